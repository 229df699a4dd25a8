"""Sparse features: rows of a CSR matrix, batched as sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_range
from shortlist.data.inputs import Inputs
from shortlist.data.target_rows import csr, take_segments
from shortlist.fingerprint import Digest


class TextEncoder(Protocol):
    """Turns texts into rows, as a model that was trained on such rows needs; see `word_features`."""

    @property
    def width(self) -> int: ...

    def rows(self, texts: Sequence[str]) -> Inputs: ...

    def to_json(self) -> dict[str, Any]: ...


class SparseRows:
    """Rows of a sparse matrix in CSR form; a batch is a sparse CSR tensor ``(B, width)``.

    Args:
        crow: ``(N + 1,)`` int64, where each row begins.
        columns: ``(entries,)`` int64, or int32 to save memory.
        values: ``(entries,)`` floating.
        width: the number of columns.
        words: if columns are words of texts, what turns texts into such rows.

    Example:
        >>> rows = SparseRows(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]), torch.tensor([1.0, 2.0, 3.0]), 3)
        >>> rows.batch(torch.tensor([1])).to_dense()
        tensor([[2., 3., 0.]])
    """

    kind = "sparse features"

    def __init__(
        self, crow: Tensor, columns: Tensor, values: Tensor, width: int, *, words: TextEncoder | None = None
    ) -> None:
        if len(columns) != len(values):
            raise ValueError(f"`columns` and `values` must have one length; got {len(columns)} and {len(values)}.")
        if crow.dtype != torch.int64 or not len(crow) or crow[0] != 0 or crow[-1] != len(columns):
            raise ValueError(f"`crow` must be int64 and go from 0 to {len(columns)}; got {crow}.")
        if bool((crow.diff() < 0).any()):
            raise ValueError("`crow` must not decrease.")
        check_range("columns", columns, width)
        self.crow, self.columns, self.values, self.width, self.words = crow, columns, values, width, words

    @classmethod
    def of_scipy(cls, matrix: Any, *, words: TextEncoder | None = None) -> SparseRows:
        """Wrap a scipy CSR matrix or array; only the row pointers are copied."""
        if getattr(matrix, "format", None) != "csr":
            raise TypeError(f"`matrix` must be a scipy CSR matrix; got {type(matrix).__name__}.")
        crow = torch.from_numpy(np.asarray(matrix.indptr, dtype=np.int64))
        columns, values = torch.from_numpy(matrix.indices), torch.from_numpy(matrix.data)
        return cls(crow, columns, values, matrix.shape[1], words=words)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.crow) - 1

    @property
    def shape(self) -> tuple[int]:
        """The shape of one row."""
        return (self.width,)

    def batch(self, rows: Tensor) -> Tensor:
        """Read rows as a sparse CSR tensor."""
        crow, positions = take_segments(self.crow, rows)
        return csr(crow, self.columns[positions].long(), self.values[positions], self.width)

    def take(self, rows: Tensor) -> SparseRows:
        """Some of the rows; copies their entries."""
        crow, positions = take_segments(self.crow, rows)
        return SparseRows(crow, self.columns[positions], self.values[positions], self.width, words=self.words)

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Content hashes of the stored entries, in their order."""
        return [
            Digest(self.columns[a:b].long().numpy().tobytes() + self.values[a:b].numpy().tobytes()).bytes()
            for a, b in zip(self.crow[:-1][rows].tolist(), self.crow[1:][rows].tolist(), strict=True)
        ]

"""Inputs of a dataset: rows that are read in batches, and only on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_range
from shortlist.data.files.mapped_arrays import MappedFile
from shortlist.data.target_rows import csr, take_segments
from shortlist.fingerprint import Digest

Self = TypeVar("Self", bound="Inputs")


class Inputs(Protocol):
    """Rows that are read on request.

    ``kind`` says what a batch is: ``features`` and ``images`` (tensors), ``sparse features`` (sparse CSR), ``text``
    (list of str) or ``object pairs``.
    """

    @property
    def kind(self) -> str: ...

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor) -> Any:
        """Read some rows, ``(B,)`` int64, in the given order."""
        ...

    def take(self: Self, rows: Tensor) -> Self:
        """The same inputs, restricted to some rows; reads nothing."""
        ...

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Sixteen bytes per row; rows with the same content have the same bytes."""
        ...


class Features:
    """Dense features, or anything else whose rows all have one shape; a memory-mapped array stays on the disk.

    Args:
        array: ``(N, ...)``, a tensor or a numpy array, memory-mapped or not. Batches keep its dtype.
        rows: which of its rows, in which order; None for all.
        bits_of: the dtype whose bits the array holds, for dtypes that numpy lacks, such as bfloat16.

    Example:
        >>> Features(torch.arange(6.0).reshape(3, 2)).batch(torch.tensor([2, 0]))
        tensor([[4., 5.],
                [0., 1.]])
    """

    kind = "features"

    def __init__(
        self, array: Tensor | np.ndarray, rows: Tensor | None = None, *, bits_of: torch.dtype | None = None
    ) -> None:
        # Arrays of other libraries will do as long as their rows can be indexed.
        if not hasattr(array, "ndim") or not hasattr(array, "shape"):
            raise TypeError(f"`array` must be a tensor or a numpy array; got {type(array).__name__}.")
        if array.ndim < 2:
            raise ValueError(f"`array` must have at least 2 dimensions, rows first; got shape {tuple(array.shape)}.")
        self.array, self.rows, self.bits_of = array, rows, bits_of

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.array) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.array.shape[1:])

    def batch(self, rows: Tensor) -> Tensor:
        """Read rows; ``(B, ...)``."""
        rows = compose_rows(self.rows, rows)
        if isinstance(self.array, Tensor):
            return self.array[rows]
        # Fancy indexing copies, so nobody can write into the file through the tensor.
        batch = torch.from_numpy(np.ascontiguousarray(self.array[rows.numpy()]))
        return batch if self.bits_of is None else batch.view(self.bits_of)

    def take(self, rows: Tensor) -> Features:
        """The same array, restricted to some rows."""
        return type(self)(self.array, compose_rows(self.rows, rows), bits_of=self.bits_of)

    def __getstate__(self) -> dict[str, object]:
        """Send a mapped file to another process by its name; numpy would send its content."""
        return {**self.__dict__, "array": MappedFile.of(self.array)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the file again."""
        self.__dict__ |= state | {"array": MappedFile.opened(state["array"])}

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Content hashes, bit for bit: 0.0 and -0.0 differ."""
        batch = self.batch(rows)
        array = batch.contiguous().view(torch.uint8) if batch.dtype == torch.bfloat16 else batch.contiguous()
        return [Digest(row.tobytes()).bytes() for row in array.numpy()]


class Texts:
    """Texts in memory.

    Args:
        texts: one per row.

    Example:
        >>> Texts(["a rose", "a daisy"]).batch(torch.tensor([1]))
        ['a daisy']
    """

    kind = "text"

    def __init__(self, texts: Sequence[str]) -> None:
        if isinstance(texts, str):
            raise TypeError("`texts` must be a sequence of texts; got a single one.")
        self.texts = texts if isinstance(texts, list) else list(texts)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.texts)

    def batch(self, rows: Tensor) -> list[str]:
        """Return the texts of some rows."""
        return [self.texts[row] for row in rows.tolist()]

    def take(self, rows: Tensor) -> Texts:
        """Some of the texts; the strings are shared."""
        return Texts(self.batch(rows))

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Content hashes."""
        return [Digest(text.encode("utf-8", "surrogatepass")).bytes() for text in self.batch(rows)]


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


def compose_rows(base: Tensor | None, rows: Tensor) -> Tensor:
    """Rows of the whole, given which of its rows remain (None: all) and which of those are requested."""
    return rows if base is None else base[rows]

"""What a row of a dataset looks like: read in batches, and only when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from mmap import mmap
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

Self = TypeVar("Self", bound="Inputs")


class Inputs(Protocol):
    """Rows that are read when they are asked for.

    ``kind`` says what a batch holds: ``features`` and ``images`` (tensors), ``sparse features`` (sparse CSR), ``text``
    (list of str), ``object pairs``.
    """

    @property
    def kind(self) -> str: ...

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor) -> Any:
        """Read some rows, ``(B,)`` int64, in their order."""
        ...

    def take(self: Self, rows: Tensor) -> Self:
        """The same inputs, restricted to some rows; reads nothing."""
        ...

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Sixteen bytes for each row; rows of the same content have the same."""
        ...


def fingerprint(content: bytes | memoryview) -> bytes:
    """Sixteen bytes that stand for a content."""
    return blake2b(content, digest_size=16).digest()


class Features:
    """Dense features, or anything else of which each row has the same shape; a memory-mapped array stays on the disk.

    Args:
        array: ``(N, ...)``, a tensor or a numpy array, memory-mapped or not. Batches keep its dtype.
        rows: which of its rows, and in which order; None for all.

    Example:
        >>> Features(torch.arange(6.0).reshape(3, 2)).batch(torch.tensor([2, 0]))
        tensor([[4., 5.],
                [0., 1.]])
    """

    kind = "features"

    def __init__(self, array: Tensor | np.ndarray, rows: Tensor | None = None) -> None:
        if array.ndim < 2:
            raise ValueError(f"`array` must have at least 2 dimensions, rows first; got shape {tuple(array.shape)}.")
        self.array, self.rows = array, rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.array) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.array.shape[1:])

    def batch(self, rows: Tensor) -> Tensor:
        """Read rows; ``(B, ...)``."""
        rows = chosen(self.rows, rows)
        if isinstance(self.array, Tensor):
            return self.array[rows]
        # Fancy indexing copies, so that nobody writes into the file through the tensor.
        return torch.from_numpy(np.ascontiguousarray(self.array[rows.numpy()]))

    def take(self, rows: Tensor) -> Features:
        """The same array, restricted to some rows."""
        return type(self)(self.array, chosen(self.rows, rows))

    def __getstate__(self) -> dict[str, object]:
        """Send a mapped file to another process by its name: numpy would send its content."""
        return {"array": _MappedFile.of(self.array), "rows": self.rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the file again."""
        array = state["array"]
        self.array = array.open() if isinstance(array, _MappedFile) else array
        self.rows = state["rows"]

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Content hashes; bit for bit, so that 0.0 and -0.0 differ."""
        batch = self.batch(rows)
        array = batch.contiguous().view(torch.uint8) if batch.dtype == torch.bfloat16 else batch.contiguous()
        return [fingerprint(row.tobytes()) for row in array.numpy()]


class _MappedFile(NamedTuple):
    """Where in a file an array lies."""

    path: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    order: str

    @classmethod
    def of(cls, array: Any) -> Any:
        """The place of a whole mapped array; anything else as it is, parts of mapped arrays included."""
        whole = isinstance(array, np.memmap) and array.filename is not None and isinstance(array.base, mmap)
        if not whole:
            return array
        order = "C" if array.flags.c_contiguous else "F"
        return cls(str(array.filename), array.offset, array.dtype, array.shape, order)

    def open(self) -> np.ndarray:
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)  # pyright: ignore[reportCallIssue, reportArgumentType]


class Texts:
    """Texts in memory.

    Args:
        texts: one for each row.

    Example:
        >>> Texts(["a rose", "a daisy"]).batch(torch.tensor([1]))
        ['a daisy']
    """

    kind = "text"

    def __init__(self, texts: Sequence[str]) -> None:
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
        return [fingerprint(text.encode("utf-8", "surrogatepass")) for text in self.batch(rows)]


def chosen(base: Tensor | None, rows: Tensor) -> Tensor:
    """Rows of the whole, given which of its rows are left and which of those are asked for."""
    return rows if base is None else base[rows]

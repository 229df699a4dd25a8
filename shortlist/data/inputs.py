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
        bits_of: the dtype that the array holds the bits of, where numpy has none, as for bfloat16.

    Example:
        >>> Features(torch.arange(6.0).reshape(3, 2)).batch(torch.tensor([2, 0]))
        tensor([[4., 5.],
                [0., 1.]])
    """

    kind = "features"

    def __init__(
        self, array: Tensor | np.ndarray, rows: Tensor | None = None, *, bits_of: torch.dtype | None = None
    ) -> None:
        # Arrays of other libraries will do as long as they have rows to take.
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
        rows = chosen(self.rows, rows)
        if isinstance(self.array, Tensor):
            return self.array[rows]
        # Fancy indexing copies, so that nobody writes into the file through the tensor.
        batch = torch.from_numpy(np.ascontiguousarray(self.array[rows.numpy()]))
        return batch if self.bits_of is None else batch.view(self.bits_of)

    def take(self, rows: Tensor) -> Features:
        """The same array, restricted to some rows."""
        return type(self)(self.array, chosen(self.rows, rows), bits_of=self.bits_of)

    def __getstate__(self) -> dict[str, object]:
        """Send a mapped file to another process by its name: numpy would send its content."""
        return {**self.__dict__, "array": MappedFile.of(self.array)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the file again."""
        self.__dict__ |= state | {"array": MappedFile.opened(state["array"])}

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Content hashes; bit for bit, so that 0.0 and -0.0 differ."""
        batch = self.batch(rows)
        array = batch.contiguous().view(torch.uint8) if batch.dtype == torch.bfloat16 else batch.contiguous()
        return [fingerprint(row.tobytes()) for row in array.numpy()]


class MappedFile(NamedTuple):
    """Where in a file an array lies; what is sent to another process instead of the content."""

    path: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    order: str

    @classmethod
    def of(cls, array: Any) -> Any:
        """The place of a mapped array, or of a contiguous part of one; anything else as it is."""
        whole = array
        while isinstance(whole, np.ndarray) and not isinstance(whole.base, mmap):
            whole = whole.base
        if not isinstance(whole, np.memmap) or whole.filename is None or not array.size:
            return array
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            return array
        begin = whole.offset + array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        order = "C" if array.flags.c_contiguous else "F"
        return cls(str(whole.filename), begin, array.dtype, array.shape, order)

    @staticmethod
    def opened(place: Any) -> Any:
        """The array of a place, mapped again to be read; anything else as it is."""
        return place._open() if isinstance(place, MappedFile) else place

    def _open(self) -> np.ndarray:
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
        return [fingerprint(text.encode("utf-8", "surrogatepass")) for text in self.batch(rows)]


def chosen(base: Tensor | None, rows: Tensor) -> Tensor:
    """Rows of the whole, given which of its rows are left and which of those are asked for."""
    return rows if base is None else base[rows]

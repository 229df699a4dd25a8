"""Arrays that stay in their files: memory-mapped, stacked without copying, and sent to other processes by file name."""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap
from typing import Any, NamedTuple

import numpy as np


class MappedFile(NamedTuple):
    """Where in a file an array is; sent to another process instead of the content."""

    path: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    axes: tuple[int, ...]  # the transposition from what is stored to the array

    @classmethod
    def of(cls, array: Any) -> Any:
        """The location of a mapped array or of a contiguous part of one, in any order of axes; else the array."""
        whole = array
        while isinstance(whole, np.ndarray) and not isinstance(whole.base, mmap):
            whole = whole.base
        if not isinstance(whole, np.memmap) or whole.filename is None or not array.size:
            return array
        # Planes of pixels are contiguous in the file, though not in the order of the axes here.
        axes = np.argsort([-stride for stride in array.strides], kind="stable")
        stored = array.transpose(axes)
        if not stored.flags.c_contiguous:
            return array
        offset = whole.offset + array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        return cls(str(whole.filename), offset, array.dtype, stored.shape, tuple(np.argsort(axes).tolist()))

    @staticmethod
    def opened(location: Any) -> Any:
        """The array of a location, mapped again for reading; anything else as it is."""
        return location._open() if isinstance(location, MappedFile) else location

    def _open(self) -> np.ndarray:
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape).transpose(self.axes)


class StackedArrays:
    """Arrays whose rows follow each other, indexed as one array without joining them.

    Args:
        parts: at least one array, all of one dtype and, except for the number of rows, of one shape.

    Example:
        >>> import numpy as np
        >>> both = StackedArrays([np.zeros((2, 3)), np.ones((4, 3))])
        >>> both.shape, both[np.array([5, 1, 2])].tolist()
        ((6, 3), [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts, self.dtype, self.ndim = tuple(parts), parts[0].dtype, parts[0].ndim
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all rows together."""
        return (len(self), *self.parts[0].shape[1:])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Copy some rows, in the given order."""
        taken = np.empty((len(rows), *self.parts[0].shape[1:]), self.dtype)
        owners = np.searchsorted(self._ends, rows, side="right")
        for owner in np.unique(owners):
            which = owners == owner
            start = self._ends[owner] - len(self.parts[owner])
            taken[which] = self.parts[owner][rows[which] - start]
        return taken

    def __getstate__(self) -> dict[str, object]:
        """Send mapped arrays to another process by the names of their files."""
        return {**self.__dict__, "parts": tuple(map(MappedFile.of, self.parts))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the files again."""
        self.__dict__ |= state | {"parts": tuple(map(MappedFile.opened, state["parts"]))}

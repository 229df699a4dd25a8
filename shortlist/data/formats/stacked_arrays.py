"""Several arrays as one, of which rows are taken without joining them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shortlist.data.inputs import MappedFile


class StackedArrays:
    """Arrays that follow each other along the rows; has what `Features` asks of an array.

    Args:
        parts: at least one array, all of one type and, but for their number of rows, of one shape.

    Example:
        >>> import numpy as np
        >>> both = StackedArrays([np.zeros((2, 3)), np.ones((4, 3))])
        >>> both.shape, both[np.array([5, 1, 2])].tolist()
        ((6, 3), [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        first = parts[0]
        for part in parts:
            if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
                raise ValueError(
                    f"`parts` must have rows of one shape and type; got {first.shape[1:]} of {first.dtype} and "
                    f"{part.shape[1:]} of {part.dtype}."
                )
        self.parts, self.dtype = tuple(parts), first.dtype
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all rows together."""
        return (len(self), *self.parts[0].shape[1:])

    @property
    def ndim(self) -> int:
        """The number of dimensions, rows included."""
        return self.parts[0].ndim

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Copy some rows, in their order."""
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

"""Rows with identical inputs, found by content hashes, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shortlist.data.inputs import Inputs
from shortlist.tensors import check_size

_FINGERPRINT_BYTES = 16


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of two or more rows with the same content, sorted by their first rows.

    Args:
        rows: ``(D,)`` int64, the rows of the first group, ascending, then those of the second, and so on.
        starts: ``(groups + 1,)`` int64, where each group begins in ``rows``.
    """

    rows: Tensor
    starts: Tensor

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.starts) - 1

    def __getitem__(self, group: int) -> Tensor:
        """Rows of one group, ascending."""
        if not -len(self) <= group < len(self):
            raise IndexError(f"`group` must lie in [{-len(self)}, {len(self) - 1}]; got {group}.")
        group %= len(self)
        return self.rows[self.starts[group] : self.starts[group + 1]]

    def __iter__(self) -> Iterator[Tensor]:
        """Rows of each group."""
        return (self[group] for group in range(len(self)))

    def groups(self) -> Tensor:
        """The group of each of ``rows``, ``(D,)`` int64."""
        return torch.repeat_interleave(torch.arange(len(self)), self.starts.diff())


def find_duplicates(
    inputs: Inputs, *, block: int = 512, progress: Callable[[int, int], object] | None = None
) -> Duplicates:
    """Find rows whose inputs are identical.

    Inputs are read ``block`` rows at a time and 16 bytes are kept per row, so memory is that of a block plus about 32
    bytes per row. Inputs with a method ``sizes()`` (one integer per row that equal rows share, such as the size of a
    file) are read only where a size occurs more than once.

    Args:
        inputs: their ``fingerprints`` define what is identical: the bytes of a file, the bits of an array.
        block: rows to read at a time.
        progress: called with the number of rows done and of all rows to read, after each block.

    Returns:
        The groups of identical rows; rows without a duplicate are in none. Contents with the same 128-bit fingerprint
        count as identical.

    Raises:
        ValueError: for a block below 1, or inputs whose fingerprints or sizes do not match their rows.

    Example:
        >>> from shortlist.data import Texts
        >>> [rows.tolist() for rows in find_duplicates(Texts(["rose", "daisy", "rose", "fern", "rose"]))]
        [[0, 2, 4]]
    """
    check_size("block", block)
    rows = _candidates(inputs)
    words = np.empty((len(rows), 2), dtype=np.uint64)
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        prints = b"".join(inputs.fingerprints(torch.from_numpy(part)))
        if len(prints) != _FINGERPRINT_BYTES * len(part):
            raise ValueError(
                f"`inputs` must give {_FINGERPRINT_BYTES} bytes for each of {len(part)} rows; got {len(prints)} bytes."
            )
        words[start : start + block] = np.frombuffer(prints, dtype=np.uint64).reshape(-1, 2)
        if progress is not None:
            progress(min(start + block, len(rows)), len(rows))
    return _groups_of_equals(words, rows)


def _candidates(inputs: Inputs) -> np.ndarray:
    """Ascending rows that can have a duplicate."""
    sizes = getattr(inputs, "sizes", None)
    if not callable(sizes):
        return np.arange(len(inputs), dtype=np.int64)
    size = np.asarray(sizes())
    if size.shape != (len(inputs),):
        raise ValueError(f"`inputs` must give one size for each of {len(inputs)} rows; got shape {size.shape}.")
    return np.flatnonzero(_is_repeated(size)).astype(np.int64, copy=False)


def _is_repeated(values: np.ndarray) -> np.ndarray:
    """Which values occur more than once."""
    order = np.argsort(values, kind="stable")
    same = values[order[1:]] == values[order[:-1]]
    repeated = np.zeros(len(values), dtype=bool)
    repeated[order[1:]] |= same
    repeated[order[:-1]] |= same
    return repeated


def _groups_of_equals(words: np.ndarray, rows: np.ndarray) -> Duplicates:
    # Half of each fingerprint leaves little but true duplicates for the sort by both halves.
    left = np.flatnonzero(_is_repeated(words[:, 0]))
    words, rows = words[left], rows[left]
    order = np.lexsort((rows, words[:, 1], words[:, 0]))
    words, rows = words[order], rows[order]
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (words[1:] != words[:-1]).any(axis=1)
    group = begins.cumsum() - 1
    sizes = np.bincount(group) if len(group) else np.zeros(0, dtype=np.int64)
    several = sizes[group] > 1
    rows, group = rows[several], group[several]
    # Rows ascend within a group, so its first row orders the groups.
    kept, first, sizes = np.unique(group, return_index=True, return_counts=True)
    ranked = np.argsort(rows[first], kind="stable")
    rank = np.empty(len(kept), dtype=np.int64)
    rank[ranked] = np.arange(len(kept))
    order = np.argsort(rank[np.searchsorted(kept, group)], kind="stable")
    starts = np.zeros(len(kept) + 1, dtype=np.int64)
    np.cumsum(sizes[ranked], out=starts[1:])
    return Duplicates(torch.from_numpy(rows[order]), torch.from_numpy(starts))

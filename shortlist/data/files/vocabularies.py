"""Names turned into numbers as a file is read: eight bytes for an entry, sorted in the end."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from shortlist.data.groups import Groups, refuse_repeated
from shortlist.data.target_rows import sparse_targets

MOST_UNNAMED = 10**7
"""Labels that have numbers for names: one damaged number must not ask for the memory of 10^18 names."""


def number_names(count: int, place: str) -> tuple[str, ...]:
    """``0``, ``1`` and so on as the names of labels; ValueError for more than there can be, which ``place`` states.

    Example:
        >>> number_names(3, "`a.txt` line 1")
        ('0', '1', '2')
    """
    if count > MOST_UNNAMED:
        raise ValueError(f"{place} must have at most {MOST_UNNAMED} labels, if they have no names; got {count}.")
    return tuple(map(str, range(count)))


class NameCodes:
    """One name for each entry, kept as a number.

    Args:
        names: the names that there may be, in their order; None for whatever comes, which is sorted in the end (by
            value, if all names are whole numbers).

    Example:
        >>> codes = NameCodes()
        >>> for name in ("10", "9", None, "10"):
        ...     codes.add(name)
        >>> codes.settle()
        (array([ 1,  0, -1,  1]), ('9', '10'))
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        refuse_repeated(names or (), "names")
        self._fixed = names is not None
        self._number = {name: i for i, name in enumerate(names or ())}
        self._codes = array("q")

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._codes)

    def allows(self, name: str) -> bool:
        """Whether the name may come."""
        return not self._fixed or name in self._number

    def add(self, name: str | None) -> None:
        """Append an entry; None is no name, which becomes -1."""
        self._codes.append(-1 if name is None else self._number.setdefault(name, len(self._number)))

    def extend(self, names: Iterable[str]) -> None:
        """Append an entry for each name."""
        number = self._number
        self._codes.extend([number.setdefault(name, len(number)) for name in names])

    def settle(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The number of each entry, int64, and the names."""
        codes, names = np.array(self._codes, dtype=np.int64), list(self._number)
        if self._fixed:
            return codes, tuple(names)
        order = _sorted_places(names)
        rank = np.full(len(names) + 1, -1, dtype=np.int64)  # The last is what -1 finds.
        rank[order] = np.arange(len(names))
        return rank[codes], tuple(names[place] for place in order)

    def groups(self, *, first: Sequence[str] = ()) -> Groups:
        """The entries as groups; the names of ``first`` that there are come first, in that order."""
        codes, names = self.settle()
        order = [names.index(name) for name in first if name in names]
        order += [place for place, name in enumerate(names) if name not in first]
        rank = np.full(len(names) + 1, -1, dtype=np.int64)
        rank[order] = np.arange(len(names))
        return Groups(torch.from_numpy(rank[codes]), tuple(names[place] for place in order))


class LabelSets:
    """A set of label names for each row.

    Args:
        names: as in `NameCodes`.

    Example:
        >>> sets = LabelSets()
        >>> for labels in (["rose", "daisy"], [], ["rose", "rose"]):
        ...     sets.add(labels)
        >>> targets, names = sets.settle()
        >>> names, targets.to_dense().tolist()
        (('daisy', 'rose'), [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._labels, self._sizes = NameCodes(names), array("q")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._sizes)

    def allows(self, name: str) -> bool:
        """Whether the label may come."""
        return self._labels.allows(name)

    def add(self, labels: Iterable[str]) -> None:
        """Append a row; a label that is listed twice counts once."""
        before = len(self._labels)
        self._labels.extend(dict.fromkeys(labels))
        self._sizes.append(len(self._labels) - before)

    def settle(self, *, min_count: int = 0) -> tuple[Tensor, tuple[str, ...]]:
        """The sets as sparse targets, and the names of the labels that are in at least ``min_count`` rows."""
        labels, names = self._labels.settle()
        rows = np.repeat(np.arange(len(self)), np.array(self._sizes, dtype=np.int64))
        kept = np.flatnonzero(np.bincount(labels, minlength=len(names)) >= min_count)
        number = np.full(len(names), -1, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        labels = number[labels]
        rows, labels = rows[labels >= 0], labels[labels >= 0]
        return sparse_targets(rows, labels, len(self), len(kept)), tuple(names[place] for place in kept.tolist())


def _sorted_places(names: Sequence[str]) -> list[int]:
    numbers = all(name.isascii() and name.isdecimal() and name == str(int(name)) for name in names)
    return sorted(range(len(names)), key=(lambda i: int(names[i])) if numbers else (lambda i: names[i]))

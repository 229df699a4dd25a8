"""Label vocabularies: names become codes of eight bytes while a file is read, and are sorted at the end."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from shortlist.data.groups import Groups, check_unique
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError
from shortlist.limits import limit


def numbered_names(count: int, where: str) -> tuple[str, ...]:
    """``0``, ``1`` and so on as label names; InputError if ``where`` states more than there can be.

    Example:
        >>> numbered_names(3, "`a.txt` line 1")
        ('0', '1', '2')
    """
    # One damaged number must not ask for the memory of 10^18 names.
    most = limit("labels")
    if count > most:
        raise InputError(f"{where} must have at most {most} labels if they have no names; got {count}.")
    return tuple(map(str, range(count)))


def distinct_names(names: Sequence[str], codes: Iterable[object]) -> tuple[str, ...]:
    """The names, with the code of the label appended to those that repeat.

    Example:
        >>> distinct_names(["oak", "ash", "oak"], range(3))
        ('oak (0)', 'ash', 'oak (2)')
    """
    counts = Counter(names)
    return tuple(f"{name} ({code})" if counts[name] > 1 else name for name, code in zip(names, codes, strict=True))


class NameCodes:
    """One name per entry, stored as a code.

    Args:
        names: the allowed names, in their order; None for whatever comes, sorted at the end (by value if all names are
            integers).

    Example:
        >>> codes = NameCodes()
        >>> for name in ("10", "9", None, "10"):
        ...     codes.add(name)
        >>> codes.finish()
        (array([ 1,  0, -1,  1]), ('9', '10'))
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        check_unique(names or (), "names", error=InputError)
        self._fixed = names is not None
        self._code_of = {name: code for code, name in enumerate(names or ())}
        self._codes = array("q")

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._codes)

    def allows(self, name: str) -> bool:
        """Whether the name is in the vocabulary, or the vocabulary is open."""
        return not self._fixed or name in self._code_of

    def add(self, name: str | None) -> None:
        """Append an entry; None, no name, becomes -1."""
        self._codes.append(-1 if name is None else self._code_of.setdefault(name, len(self._code_of)))

    def extend(self, names: Iterable[str]) -> None:
        """Append an entry for each name."""
        code_of = self._code_of
        self._codes.extend([code_of.setdefault(name, len(code_of)) for name in names])

    def finish(self, *, first: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...]]:
        """The code of each entry, int64, and the names; those of ``first`` that occur come first, in that order."""
        codes, names = np.array(self._codes, dtype=np.int64), list(self._code_of)
        if self._fixed:
            return codes, tuple(names)
        order = _sorted_positions(names)
        if first:
            ranks = {name: rank for rank, name in enumerate(first)}
            order.sort(key=lambda position: ranks.get(names[position], len(first)))
        rank = np.full(len(names) + 1, -1, dtype=np.int64)  # The last entry is the one that -1 reads.
        rank[order] = np.arange(len(names))
        return rank[codes], tuple(names[position] for position in order)

    def groups(self, *, first: Sequence[str] = ()) -> Groups:
        """The entries as `Groups`; ``first`` as in `finish`."""
        codes, names = self.finish(first=first)
        return Groups(torch.from_numpy(codes), names)


class LabelSets:
    """A set of label names per row.

    Args:
        names: as in `NameCodes`.

    Example:
        >>> sets = LabelSets()
        >>> for labels in (["rose", "daisy"], [], ["rose", "rose"]):
        ...     sets.add(labels)
        >>> targets, names = sets.finish()
        >>> names, targets.to_dense().tolist()
        (('daisy', 'rose'), [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._labels, self._sizes = NameCodes(names), array("q")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._sizes)

    def allows(self, name: str) -> bool:
        """Whether the name is in the vocabulary, or the vocabulary is open."""
        return self._labels.allows(name)

    def add(self, labels: Iterable[str]) -> None:
        """Append a row; a label that is listed twice counts once."""
        before = len(self._labels)
        self._labels.extend(dict.fromkeys(labels))
        self._sizes.append(len(self._labels) - before)

    def finish(self, *, min_count: int = 0) -> tuple[Tensor, tuple[str, ...]]:
        """The sets as sparse targets, and the names of the labels that occur in at least ``min_count`` rows."""
        labels, names = self._labels.finish()
        rows = np.repeat(np.arange(len(self)), np.array(self._sizes, dtype=np.int64))
        kept = np.flatnonzero(np.bincount(labels, minlength=len(names)) >= min_count)
        code = np.full(len(names), -1, dtype=np.int64)
        code[kept] = np.arange(len(kept))
        labels = code[labels]
        rows, labels = rows[labels >= 0], labels[labels >= 0]
        return sparse_targets(rows, labels, len(self), len(kept)), tuple(names[label] for label in kept.tolist())


def _sorted_positions(names: Sequence[str]) -> list[int]:
    numeric = all(name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0") for name in names)
    return sorted(range(len(names)), key=(lambda i: (len(names[i]), names[i])) if numeric else (lambda i: names[i]))

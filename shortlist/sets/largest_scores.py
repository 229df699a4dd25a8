"""The largest of very many scores, seen a block at a time, in memory for those wanted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Cut(NamedTuple):
    """Where the m largest end: the smallest of them, the next one, and how many ties with it, by label, belong inside.

    Attributes:
        value: the m-th largest score.
        below: the largest score smaller than ``value``; -inf when there is none.
        ties: ``(labels,)`` how often ``value`` itself occurs with each label.
        inside: how many of these ties are among the m largest.
    """

    value: float
    below: float
    ties: NDArray[np.int64]
    inside: int

    @property
    def complete(self) -> bool:
        """Whether all scores that equal ``value`` are inside."""
        return self.inside == int(self.ties.sum())

    def quota(self) -> tuple[int, int, int]:
        """The label at which the m largest end, how many of its ties are inside, and how many it has."""
        filled = np.cumsum(self.ties)
        label = int(np.searchsorted(filled, self.inside, side="right"))
        before = int(filled[label - 1]) if label else 0
        return label, self.inside - before, int(self.ties[label])


class LargestScores:
    """Keeps the scores above a rising floor, and counts by label those that equal it.

    Args:
        num_labels: columns of the scores.
    """

    def __init__(self, num_labels: int) -> None:
        self._num_labels = num_labels
        self._values: list[NDArray[np.floating]] = []
        self._labels: list[NDArray[np.int64]] = []
        self._count = 0
        self._floor = -np.inf
        self._at_floor = np.zeros(num_labels, dtype=np.int64)
        self._total = 0

    @property
    def total(self) -> int:
        """How many scores above -inf were seen."""
        return self._total

    def add(self, scores: NDArray[np.floating], keep: int) -> None:
        """Take in ``(rows, labels)`` scores; at least the ``keep`` largest of all seen so far stay known."""
        flat = scores.reshape(-1)
        if self._floor == -np.inf:
            places = np.flatnonzero(flat > -np.inf)
            self._total += len(places)
        else:
            self._total += int(np.count_nonzero(flat > -np.inf))
            places = np.flatnonzero(flat >= self._floor)
        values, labels = flat[places], places % self._num_labels
        if self._floor > -np.inf:
            equal = values == self._floor
            self._at_floor += np.bincount(labels[equal], minlength=self._num_labels)
            values, labels = values[~equal], labels[~equal]
        self._values.append(values)
        self._labels.append(labels)
        self._count += len(values)
        if self._count > max(2 * keep, 1024):
            self._raise_floor(keep)

    def _raise_floor(self, keep: int) -> None:
        values, labels = np.concatenate(self._values), np.concatenate(self._labels)
        place = len(values) - max(1, keep)
        self._floor = float(np.partition(values, place)[place])
        equal, above = values == self._floor, values > self._floor
        self._at_floor = np.bincount(labels[equal], minlength=self._num_labels)
        self._values, self._labels = [values[above]], [labels[above]]
        self._count = int(np.count_nonzero(above))

    def cut(self, m: int) -> Cut | None:
        """Where the m largest end, 0 < m < total; None when scores that matter were dropped."""
        values, labels = np.concatenate(self._values), np.concatenate(self._labels)
        known = len(values) + int(self._at_floor.sum())
        if m + 1 > known:
            return None
        if m > len(values):
            # The floor itself is the m-th largest, and more of it follow: nothing smaller matters.
            return Cut(self._floor, self._floor, self._at_floor, m - len(values))
        place = len(values) - m
        value = float(np.partition(values, place)[place])
        ties = np.bincount(labels[values == value], minlength=self._num_labels)
        smaller = values[values < value]
        below = float(smaller.max()) if len(smaller) else self._floor
        return Cut(value, below, ties, m - int(np.count_nonzero(values > value)))

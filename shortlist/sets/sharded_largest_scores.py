"""The largest of very many scores where the labels are on several processes, each with memory for those wanted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.label_axis.processes import all_max, all_sum
from shortlist.sets.largest_scores import LargestScores
from shortlist.sets.sharded_scores import ScoreShard

_DIGIT = 4
"""Bits of the threshold that one round finds, by so many counts less one: 2 to this power."""


class ShardedCut(NamedTuple):
    """As ``Cut``, the same on every process; of the ties it holds what all processes need.

    Attributes:
        value, below: as in ``Cut``.
        complete: whether all scores that equal ``value`` are inside.
        place: as ``Cut.quota`` gives it.
    """

    value: float
    below: float
    complete: bool
    place: tuple[int, int, int]

    def quota(self) -> tuple[int, int, int]:
        """The label at which the m largest end, how many of its ties are inside, and how many it has."""
        return self.place


class ShardedLargestScores(LargestScores):
    """``LargestScores`` of the own labels; its answers are about those of all processes.

    Args:
        shard: the first scores that come.
    """

    def __init__(self, shard: ScoreShard) -> None:
        super().__init__(shard.labels.count)
        self._shard = shard

    @property
    def total(self) -> int:
        """How many scores above -inf were seen by all processes."""
        return self._sum(self._total)

    def cut(self, m: int) -> ShardedCut | None:
        """Where the m largest end, 0 < m < total; None when scores that matter were dropped."""
        values, labels = np.concatenate(self._values), np.concatenate(self._labels)
        keys, bits, at_floor = np.sort(_ordered(values)), 8 * values.dtype.itemsize, int(self._at_floor.sum())
        floor = int(_ordered(np.asarray([self._floor], dtype=values.dtype))[0])
        highest = self._max(self._floor)
        known = int(np.count_nonzero(values >= highest)) + at_floor * (self._floor == highest)
        if highest > -np.inf and self._sum(known) <= m:
            return None
        key = 0  # of the m-th largest, a few bits after the other
        for shift in range(bits - _DIGIT, -1, -_DIGIT):
            higher = [key | digit << shift for digit in range(1, 1 << _DIGIT)]
            counts = len(keys) - np.searchsorted(keys, np.asarray(higher, dtype=keys.dtype))
            reached = self._sums(
                [int(count) + at_floor * (floor >= h) for count, h in zip(counts, higher, strict=True)]
            )
            key |= sum(count >= m for count in reached) << shift
        return self._cut_at(_number(key, bits), m, values, labels)

    def _cut_at(self, value: float, m: int, values: NDArray[Any], labels: NDArray[np.int64]) -> ShardedCut:
        ties = np.bincount(labels[values == value], minlength=self._num_labels)
        above = int(np.count_nonzero(values > value))
        if self._floor == value:
            ties = ties + self._at_floor
        elif self._floor > value:
            above += int(self._at_floor.sum())
        smaller = values[values < value]
        below = float(smaller.max()) if len(smaller) else -np.inf
        below = self._max(max(below, self._floor) if self._floor < value else below)
        inside = m - self._sum(above)
        filled = np.cumsum(ties) + self._before(int(ties.sum()))
        tied = self._sum(int(ties.sum()))
        # The first label, over all processes, at which more ties are filled than are inside.
        mine = bool(len(filled)) and filled[-1] > inside >= filled[-1] - ties.sum()
        place = [0, 0, 0]
        if mine:
            label = int(np.searchsorted(filled, inside, side="right"))
            place = [label + self._shard.labels.first, inside - int(filled[label] - ties[label]), int(ties[label])]
        label, taken, count = self._sums(place)
        return ShardedCut(value, below, inside == tied, (label, taken, count))

    def _before(self, count: int) -> int:
        """The sum of ``count`` over the processes with lower labels."""
        mesh = self._shard.labels.mesh
        counts = [0] * mesh.size()
        counts[mesh.get_local_rank()] = count
        return sum(self._sums(counts)[: mesh.get_local_rank()])

    def _sum(self, count: int) -> int:
        return self._sums([count])[0]

    def _sums(self, counts: list[int]) -> list[int]:
        return all_sum(torch.tensor(counts, device=self._shard.device), self._shard.group).tolist()

    def _max(self, value: float) -> float:
        return float(all_max(torch.tensor([value], dtype=torch.float64, device=self._shard.device), self._shard.group))


def _ordered(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in the order of the floats: their bits, turned over for negative ones."""
    kind = np.uint32 if values.dtype == np.float32 else np.uint64
    bits = (values + values.dtype.type(0)).view(kind)  # -0 as 0
    sign = kind(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def _number(key: int, bits: int) -> float:
    """The float of this place in the order."""
    sign = 1 << (bits - 1)
    plain = key ^ sign if key & sign else ~key & (2 * sign - 1)
    kind, number = (np.uint32, np.float32) if bits == 32 else (np.uint64, np.float64)
    return float(np.asarray([plain], dtype=kind).view(number)[0])

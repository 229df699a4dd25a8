"""Counts of equal values, and their inequality: the Lorenz curve and the Gini coefficient."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np


@dataclass(frozen=True)
class Tally:
    r"""A multiset of integers from 0, stored as values and multiplicities.

    Exact and small: members with sum T have at most :math:`\sqrt{2T} + 1` distinct values. Without members, every
    statistic is 0.

    Args:
        values: the distinct values, ascending.
        times: how many members have each value, at least 1.

    Example:
        >>> import numpy as np
        >>> tally = Tally.of(np.array([3, 0, 1, 0]))
        >>> tally
        Tally(values=(0, 1, 3), times=(2, 1, 1))
        >>> tally.mean, tally.median, tally.maximum, tally.gini()
        (1.0, 0.5, 3, 0.625)
    """

    values: tuple[int, ...]
    times: tuple[int, ...]

    @classmethod
    def of(cls, numbers: np.ndarray) -> Tally:
        """Tally integers from 0 in O(members + largest)."""
        times = np.bincount(numbers) if len(numbers) else np.zeros(0, dtype=np.int64)
        values = np.flatnonzero(times)
        return cls(tuple(values.tolist()), tuple(times[values].tolist()))

    @property
    def members(self) -> int:
        """The number of members."""
        return sum(self.times)

    @property
    def total(self) -> int:
        """The sum of all members."""
        return sum(value * times for value, times in zip(self.values, self.times, strict=True))

    @property
    def minimum(self) -> int:
        """The smallest member."""
        return self.values[0] if self.values else 0

    @property
    def maximum(self) -> int:
        """The largest member."""
        return self.values[-1] if self.values else 0

    @property
    def mean(self) -> float:
        """The average."""
        return self.total / self.members if self.values else 0.0

    @property
    def median(self) -> float:
        """The median; the mean of the two middle members if their number is even."""
        if not self.values:
            return 0.0
        until, members = list(accumulate(self.times)), self.members
        low, high = (self.values[bisect_right(until, rank)] for rank in ((members - 1) // 2, members // 2))
        return (low + high) / 2

    def bins(self, most: int) -> list[tuple[int, int, int]]:
        """A histogram with at most ``most`` bins of equal width: first value, last value and members of each bin.

        Example:
            >>> Tally((1, 2, 5), (10, 4, 1)).bins(3)
            [(1, 2, 14), (3, 4, 0), (5, 6, 1)]
        """
        if most < 1:
            raise ValueError(f"`most` must be at least 1; got {most}.")
        if not self.values:
            return []
        width = -(-(self.maximum - self.minimum + 1) // most)
        starts = range(self.minimum, self.maximum + 1, width)
        members = [0] * len(starts)
        for value, times in zip(self.values, self.times, strict=True):
            members[(value - self.minimum) // width] += times
        return [(start, start + width - 1, count) for start, count in zip(starts, members, strict=True)]

    def lorenz(self, *, points: int = 200) -> tuple[tuple[float, float], ...]:
        """The Lorenz curve: the share of the total that the smallest members hold.

        The curve is linear where members are equal, so its corners describe it completely. If there are more corners
        than ``points``, evenly spaced ones along the curve are kept.

        Args:
            points: the maximal number of corners, at least 2.

        Returns:
            (share of members, share of the total), from (0, 0) to (1, 1); the diagonal if the total is 0.

        References:
            Gastwirth, "A general definition of the Lorenz curve", 1971.
        """
        if points < 2:
            raise ValueError(f"`points` must be at least 2; got {points}.")
        x, y = self._corners()
        if len(x) > points:
            # Evenly in x + y, which rises along the whole curve: even steps of x would miss the steep end.
            wanted = np.linspace(0.0, 2.0, points)
            kept = np.unique(np.clip(np.searchsorted(x + y, wanted), 0, len(x) - 1))
            x, y = x[kept], y[kept]
        return tuple(zip(x.tolist(), y.tolist(), strict=True))

    def gini(self) -> float:
        r"""The Gini coefficient: twice the area between the diagonal and the Lorenz curve.

        .. math:: G = \frac{\sum_{i=1}^n (2i - n - 1)\, c_{(i)}}{n \sum_i c_i}, \quad c_{(1)} \le \dots \le c_{(n)}

        0 if all members are equal, (n - 1) / n if one holds everything. Summed in integers and rounded once.
        """
        members, total = self.members, self.total
        if not total:
            return 0.0
        weighted = before = 0
        for value, times in zip(self.values, self.times, strict=True):
            # The sum of 2i - n - 1 over the ranks of this value.
            weighted += value * times * (2 * before + times - members)
            before += times
        return weighted / (members * total)

    def tail_share(self, share: float) -> float:
        """The share of the total held by the smallest ``share`` of the members: the Lorenz curve at that point."""
        if not 0 <= share <= 1:
            raise ValueError(f"`share` must lie in [0, 1]; got {share}.")
        return float(np.interp(share, *self._corners()))

    def fewest_for_half(self) -> int:
        """How many of the largest members hold half of the total."""
        taken, rest = 0, (self.total + 1) // 2
        for value, times in zip(reversed(self.values), reversed(self.times), strict=True):
            if rest <= 0:
                break
            used = min(times, -(-rest // value))
            taken, rest = taken + used, rest - used * value
        return taken

    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        total = self.total
        if not total:
            return np.array([0.0, 1.0]), np.array([0.0, 1.0])
        times = np.array(self.times, dtype=np.int64)
        sums = times * np.array(self.values, dtype=np.int64)
        x = np.concatenate([[0.0], times.cumsum() / self.members])
        y = np.concatenate([[0.0], sums.cumsum() / total])
        return x, y

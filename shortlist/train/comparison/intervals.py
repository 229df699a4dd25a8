"""Means over seeds with their 95% intervals, and which candidates do not differ significantly from the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist.comparison_document import Better
from shortlist.extras import require

AVERAGE_SIZE = "average_size"  # Neither more nor less of it is better.


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half the width of its 95% interval; NaN with one seed."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Compute Student's interval of independent values.

        Example:
            >>> found = Interval.of([1.0, 2.0, 3.0])
            >>> found.mean, round(found.half_width, 3)
            (2.0, 2.484)
        """
        count = len(values)
        mean = math.fsum(values) / count
        if count < 2:
            return cls(mean, math.nan)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        quantile = float(require("scipy.special", extra="train").stdtrit(count - 1, 0.975))
        return cls(mean, quantile * deviation / math.sqrt(count))


def seeds_to_tell(interval: Interval, seeds: int) -> int | None:
    """Return how many seeds would separate a mean from 0 if values kept varying as they do; None for more than 100.

    Args:
        interval: of the values of ``seeds`` seeds.
        seeds: how many.

    Example:
        >>> seeds_to_tell(Interval.of([0.5, 1.0, 3.0]), 3)
        6
    """
    if not interval.half_width or not interval.mean:
        return None
    quantile = require("scipy.special", extra="train").stdtrit
    deviation = interval.half_width * math.sqrt(seeds) / float(quantile(seeds - 1, 0.975))
    for count in range(seeds + 1, 101):
        if float(quantile(count - 1, 0.975)) * deviation / math.sqrt(count) < abs(interval.mean):
            return count
    return None


def better(metric: str) -> Better | None:
    """Return whether ``lower`` or ``higher`` values of a metric are better; None if neither are.

    Example:
        >>> better("top3_error"), better("recall@8"), better("average_size")
        ('lower', 'higher', None)
    """
    return None if metric == AVERAGE_SIZE else "lower" if metric.endswith("error") else "higher"


def best_candidates(values: Mapping[str, Mapping[int, float]], *, lower: bool) -> list[str]:
    """Return the candidates that do not differ significantly from the best, the best first.

    These are the ones for which the interval of the difference to the best, paired by seed, contains 0; with one seed,
    those that equal the best.

    Args:
        values: of one metric, by candidate and seed.
        lower: whether lower values are better.

    Example:
        >>> best_candidates({"a": {0: 0.3, 1: 0.2}, "b": {0: 0.1, 1: 0.12}, "c": {0: 0.11, 1: 0.12}}, lower=True)
        ['b', 'c', 'a']
    """
    sign = 1 if lower else -1
    order = sorted(values, key=lambda name: sign * Interval.of(list(values[name].values())).mean)
    first = values[order[0]]
    ties = [order[0]]
    for name in order[1:]:
        gap = Interval.of([values[name][seed] - first[seed] for seed in first if seed in values[name]])
        if gap.mean == 0 or gap.half_width >= abs(gap.mean):  # The latter is False for NaN.
            ties.append(name)
    return ties

"""The order statistic of split conformal prediction, with the probability that makes ties exact."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor


def conformal_threshold(scores: Tensor, alpha: float) -> tuple[float, float]:
    r"""Threshold on conformity scores (large is good) and the probability with which a score equal to it is inside.

    The threshold is the r-th largest of the N scores of true labels, :math:`r = \lceil (N + 1)(1 - \alpha) \rceil`; a
    of them are larger and b equal. The true label of a new example is inside with probability exactly r / (N + 1) when
    ties are inside with probability (r - a) / (b + 1): that is how often a new score, put at random among its equals,
    is not beyond rank r.

    Returns:
        ``(threshold, share)``; ``(-inf, 1.0)``, everything inside, when N is too small for the level.
    """
    rank = conformal_rank(len(scores), alpha)
    if rank > len(scores):
        return -math.inf, 1.0
    threshold = float(scores.kthvalue(len(scores) - rank + 1).values)
    larger = int((scores > threshold).sum())
    equal = int((scores == threshold).sum())
    return threshold, (rank - larger) / (equal + 1)


def missing_share(scores: Tensor, threshold: float) -> float:
    """Share of true labels outside: below the threshold, or absent and in no set."""
    return float(((scores < threshold) | (scores == -math.inf)).double().mean())


def conformal_rank(count: int, alpha: float) -> int:
    """``ceil((N + 1)(1 - alpha))`` with alpha read as written: 0.1 is a tenth, not the float next to it."""
    return math.ceil((count + 1) * (1 - Fraction(repr(alpha))))


def inside_with_ties(values: Tensor, threshold: Tensor, share: Tensor, uniform: Tensor | None) -> Tensor:
    """Values above the threshold, and those equal to it with the given probability (all, without ``uniform``)."""
    tied = (values == threshold) & (values > -torch.inf)
    return (values > threshold) | (tied if uniform is None else tied & (uniform < share))

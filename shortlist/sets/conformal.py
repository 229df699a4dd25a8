"""The order statistic of split conformal prediction, with the probability that makes ties exact."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from shortlist.sets.rule import Draw


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


def reaching(values: Tensor, threshold: Tensor) -> Tensor:
    """Values above the threshold and those equal to it, but for -inf."""
    return (values >= threshold) & (values > -torch.inf)


def kept_with_ties(values: Tensor, threshold: Tensor, share: Tensor, draw: Draw) -> Tensor:
    """Which of values that reach their threshold are kept: those above it, and those equal to it by chance.

    Args:
        values: ``(count,)``.
        threshold, share: one number, or one for each value; the latter is the probability of a tie to be kept.
        draw: numbers for the ties, and for nothing else.
    """
    tied = (values == threshold).nonzero()[:, 0]
    kept = torch.ones(len(values), dtype=torch.bool)
    if len(tied):
        kept[tied] = draw.uniform((len(tied),)) < (share[tied] if share.ndim else share)
    return kept

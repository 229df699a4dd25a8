"""Conformal thresholds on the scores of true labels, with exact ranks and exact ties."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from shortlist.sets.rule import Draw
from shortlist.tensors import as_written


def conformal_threshold(scores: Tensor, alpha: float) -> tuple[float, float]:
    r"""Threshold on conformity scores (higher conforms better), and the probability of including a score equal to it.

    The threshold is the r-th largest of the N scores of true labels, :math:`r = \lceil (N + 1)(1 - \alpha) \rceil`; a
    of them are larger and b are equal. If ties are included with probability (r - a) / (b + 1), the set contains the
    true label of a new example with probability exactly r / (N + 1): this is the probability that a new score, ranked
    at random among its equals, has rank at most r.

    Returns:
        ``(threshold, share)``; ``(-inf, 1.0)``, which selects all labels, if N is too small for the level.
    """
    return threshold_at_rank(scores, conformal_rank(len(scores), alpha))


def threshold_at_rank(scores: Tensor, rank: int) -> tuple[float, float]:
    """The ``rank``-th largest score, and the share of ties as in `conformal_threshold`."""
    if rank > len(scores):
        return -math.inf, 1.0
    values, place = scores.numpy(), len(scores) - rank
    threshold = np.partition(values, place)[place]
    larger, equal = np.count_nonzero(values > threshold), np.count_nonzero(values == threshold)
    return float(threshold), (rank - larger) / (equal + 1)


def members(groups: Tensor) -> dict[int, Tensor]:
    """The places of each group, ascending.

    Example:
        >>> members(torch.tensor([5, 3, 5]))
        {3: tensor([1]), 5: tensor([0, 2])}
    """
    found, counts = groups.unique(return_counts=True)
    return dict(zip(found.tolist(), groups.argsort(stable=True).split(counts.tolist()), strict=True))


def missing_share(scores: Tensor, threshold: float) -> float:
    """Share of true labels that are missing: below the threshold, or absent."""
    return float(((scores < threshold) | (scores == -math.inf)).double().mean())


@lru_cache(maxsize=1024)
def conformal_rank(count: int, alpha: float) -> int:
    """``ceil((N + 1)(1 - alpha))``, computed with the exact decimal value of alpha."""
    return math.ceil((count + 1) * (1 - as_written(alpha)))


def kept_with_ties(tied: Tensor, share: Tensor, draw: Draw) -> Tensor | None:
    """Mask of the values to keep among those that reach their threshold: all above it, and a random part of the ties.

    Args:
        tied: ``(count,)`` bool, which are equal to their threshold.
        share: one number, or one per value; a tie is kept with probability ``share``.
        draw: random numbers for the ties.

    Returns:
        ``(count,)`` bool; None if all are kept because none ties.
    """
    places = tied.nonzero()[:, 0]
    if not len(places):
        return None
    kept = torch.ones(len(tied), dtype=torch.bool)
    kept[places] = draw.uniform((len(places),)) < (share[places] if share.ndim else share)
    return kept


def check_shares(name: str, shares: Tensor) -> None:
    """Raise unless all are probabilities."""
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(f"`{name}` must lie in [0, 1]")

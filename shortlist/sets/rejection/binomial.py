"""The binomial distribution function and the exact upper bound of Clopper and Pearson."""

from __future__ import annotations

import math

import torch


def binomial_cdf(successes: int, trials: int, rate: float) -> float:
    """P(Bin(trials, rate) <= successes), summed in log space.

    Example:
        >>> round(binomial_cdf(1, 3, 0.5), 12)
        0.5
    """
    if successes >= trials or rate <= 0:
        return 1.0
    if rate >= 1:
        return 0.0
    k = torch.arange(successes + 1, dtype=torch.float64)
    ways = math.lgamma(trials + 1) - torch.lgamma(k + 1) - torch.lgamma(trials - k + 1)
    return min(1.0, math.exp(float((ways + k * math.log(rate) + (trials - k) * math.log1p(-rate)).logsumexp(0))))


def upper_bound(successes: int, trials: int, delta: float) -> float:
    """The largest rate that ``successes`` of ``trials`` do not rule out at level ``delta`` (Clopper-Pearson).

    Example:
        >>> round(upper_bound(0, 10, 0.05), 6), 1 - 0.05 ** 0.1
        (0.258866, 0.2588655508930523)
    """
    low, high = successes / trials, 1.0
    while high - low > 1e-15 + 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_cdf(successes, trials, middle) > delta else (low, middle)
    return high

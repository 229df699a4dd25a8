"""Which thresholds keep the risk below its bound: by conformal risk control, or by Learn-then-Test.

Conformal risk control bounds the expected risk of monotone losses. Learn-then-Test bounds any risk with high
probability: every threshold gets a p-value for "its risk exceeds alpha", and the thresholds are tested in an order that
does not depend on the data.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

_STARTS = 40
"""Where no end of the candidates is safe, tests begin at about so many of them."""


def hoeffding_bentkus(totals: Tensor, rows: int, alpha: float) -> Tensor:
    r"""P-values for "the mean loss exceeds alpha", for independent losses in [0, 1].

    .. math:: p = \min\big(e^{-N\,\mathrm{kl}(\min(\hat R, \alpha)\,\|\,\alpha)},\; e\,P(\mathrm{Bin}(N, \alpha) \le
              \lceil N \hat R \rceil)\big)

    Args:
        totals: :math:`N \hat R`, sums of losses, of any shape.
        rows: N.
        alpha: in (0, 1).

    Returns:
        The shape of ``totals``, float64, increasing in them.

    Example:
        >>> hoeffding_bentkus(torch.tensor([0.0, 5.0, 30.0]), 100, 0.2)
        tensor([2.0370e-10, 5.0778e-05, 1.0000e+00], dtype=torch.float64)

    References:
        Bates, Angelopoulos, Lei, Malik, Jordan, "Distribution-free, risk-controlling prediction sets", 2021;
        Angelopoulos, Bates, Candès, Jordan, Lei, "Learn then test", 2021.
    """
    totals = totals.double()
    mean = (totals / rows).clamp(max=alpha)
    divergence = torch.special.xlogy(mean, mean / alpha) + (1 - mean) * ((1 - mean) / (1 - alpha)).log()
    hoeffding = (-rows * divergence).exp()
    k = torch.arange(rows + 1, dtype=torch.float64)
    log_choices = math.lgamma(rows + 1) - torch.lgamma(k + 1) - torch.lgamma(rows - k + 1)
    log_masses = log_choices + k * math.log(alpha) + (rows - k) * math.log1p(-alpha)
    bentkus = (1 + log_masses.logcumsumexp(0)).exp()[totals.ceil().clamp(0, rows).long()]
    return torch.minimum(hoeffding, bentkus).clamp(max=1.0)


def accepted_in_sequence(p: Tensor, delta: float, *, full_is_safe: bool, empty_is_safe: bool) -> Tensor:
    """The candidates that fixed sequences of tests accept; with probability 1 - delta all of them keep the promise.

    From a safe end, the tests go on to the first failure, each at level ``delta``: a wrong acceptance needs the first
    unsafe candidate to be accepted. Without a safe end, tests begin at evenly spaced candidates and go both ways; the
    sequences share ``delta``. The order depends on nothing but the number of candidates.

    Args:
        p: ``(m,)`` p-values of ascending thresholds: the sets shrink from full to empty.
        delta: probability of a wrong acceptance.
        full_is_safe, empty_is_safe: whether the first or the last candidate keeps the promise by definition.

    Returns:
        ``(m,)`` bool.

    Example:
        >>> p = torch.tensor([0.0, 0.01, 0.3, 0.02])
        >>> accepted_in_sequence(p, 0.1, full_is_safe=True, empty_is_safe=False)
        tensor([ True,  True, False, False])
    """
    if full_is_safe or empty_is_safe:
        ordered = p if full_is_safe else p.flip(0)
        accepted = (ordered <= delta).long().cumprod(0).bool()
        return accepted if full_is_safe else accepted.flip(0)
    step = math.ceil(len(p) / _STARTS)
    starts = range(min(step // 2, len(p) - 1), len(p), step)
    # With a start at every candidate there is nowhere to go.
    passed = p <= delta / (len(starts) * (2 if step > 1 else 1))
    ends = [-1, *(~passed).nonzero()[:, 0].tolist(), len(p)]
    accepted = torch.zeros_like(passed)
    for before, after in pairwise(ends):
        if any(before < start < after for start in starts):
            accepted[before + 1 : after] = True
    return accepted

"""The root of LML in a fixed number of steps, without data-dependent branches: for accelerators and exporters.

Split the labels by their order, about k of them above, and let s be what k exceeds their number by. Then sum p = k says
A = B + s, with A the sum of p over the labels below and B the sum of 1 - p over those above. All terms are positive,
and none is much larger than the sums: the input's own precision suffices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist.functional.selection import select
from shortlist.tensors import at_most_finite

_NEWTON_STEPS = {torch.float32: 3, torch.float64: 4}
"""Before them the error is at most about 1, or 2 if k is whole; each leaves about 1/8 of its square, or 1/30."""

_DEEP = {torch.float32: 25.0, torch.float64: 45.0}
"""Deeper inside a gap all terms are exponentials, and gaps of any width have the same root."""

_FACTOR = 1e7
"""The largest change of the odds in the first step, which resolves no more in float32."""


def exact_dual(x: Tensor, k: Tensor | float, temperature: float) -> tuple[Tensor, Tensor]:
    """``pivot`` and ``delta`` for ``x`` ``(..., n)`` and ``k``, a number or ``(..., 1)``.

    The root differs from the exact one by a few units of rounding of ``1 + |delta|``, and by at most about 2e-6
    in float32 where two groups of labels compete.
    """
    n, limits = x.shape[-1], torch.finfo(x.dtype)
    below, above, surplus = _by_rank(x, k) if not isinstance(k, Tensor) else _by_value(x, k)
    lower, upper = below.amax(-1, keepdim=True), above.amin(-1, keepdim=True)  # no label is between the two
    last = _by_sign(surplus, [lower], [lower], [upper])[0]  # the label after the first floor(k), rounding aside
    lower, upper = lower.clamp(min=limits.min), upper.clamp(max=limits.max)
    pivot, under, over, shift = _margins(lower, upper, surplus, _DEEP[x.dtype] * temperature)
    scale = min(1 / temperature, limits.max)
    below = torch.add(_over(under, temperature), below.sub_(lower), alpha=scale)
    above = torch.add(_over(over, temperature), torch.sub(upper, above), alpha=scale)
    delta = _root(below, above, surplus) + _over(shift, temperature)

    delta = delta.masked_fill(last == -math.inf, limits.max / 4)
    if isinstance(k, Tensor):
        delta = delta.masked_fill(k >= n, limits.max / 4).masked_fill(k <= 0, -math.inf)
        delta = delta.masked_fill(k.clamp(0, n) != k, math.nan)
    elif not limits.tiny <= k < n:
        delta = torch.full_like(delta, limits.max / 4 if k >= n else -math.inf)
    return pivot.nan_to_num(), delta.masked_fill(pivot.isnan(), math.nan)


def exact_lml(x: Tensor, k: Tensor | float, temperature: float) -> Tensor:
    """The projection itself."""
    pivot, delta = exact_dual(x, k, temperature)
    y = at_most_finite(x).sub_(pivot)
    return (y if temperature == 1 else y.div_(temperature)).add_(delta).sigmoid_()


def _by_rank(x: Tensor, k: float) -> tuple[Tensor, Tensor, float]:
    """The labels below and above, and s. One of the two is as narrow as their number, the other has holes for it."""
    n, largest = x.shape[-1], torch.finfo(x.dtype).max
    count = round(k)
    few_above = 2 * count <= n
    hole = -math.inf if few_above else math.inf
    rest, few = x.clamp(max=largest), min(count, n - count)
    if few:
        chosen, places = x.topk(few, largest=few_above, sorted=False)
        chosen.clamp_(max=largest)
        rest.scatter_(-1, places, hole)
    else:
        chosen = torch.full((*x.shape[:-1], 1), -hole, dtype=x.dtype, device=x.device)
    return *((rest, chosen) if few_above else (chosen, rest)), k - count


def _by_value(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for a ``k`` of each row, with all ties on one side; both have holes."""
    x = at_most_finite(x)
    middle = select(x, k)
    count = (x > middle).sum(-1, keepdim=True)
    ties = (x >= middle).sum(-1, keepdim=True) - count
    part = k - count  # what the ties share
    # They are above if they have more than half of their number.
    taken = 2 * part > ties
    is_above = (x > middle) | (taken & (x >= middle))  # ONNX Runtime has no Where for bools
    surplus = torch.addcmul(part, taken, ties, value=-1)
    return x.masked_fill(is_above, -math.inf), x.masked_fill(~is_above, math.inf), surplus


def _margins(lower: Tensor, upper: Tensor, surplus: Tensor | float, deep: float) -> Sequence[Tensor]:
    """The pivot, how far ``lower`` is below it and ``upper`` above it (both negative), and what rounding it cost.

    The pivot is the label that has a part of p, or in the middle of two that have none.
    """
    half, middle = torch.sub(lower / 2, upper, alpha=0.5), torch.add(lower / 2, upper, alpha=0.5)
    near, zero, gap = half.clamp(min=-deep), torch.zeros_like(half), 2 * half
    between = middle, near, near, half - (lower - middle)
    return _by_sign(surplus, (lower, zero, gap, zero), between, (upper, gap, zero, zero))


def _root(below: Tensor, above: Tensor, surplus: Tensor | float) -> Tensor:
    """Root of ``sum sigmoid(below + d) = s + sum sigmoid(above - d)``.

    By Newton's method on the log-ratio of the two sides, whose slope lies between 1/2 and 2 near the root, and
    everywhere if s = 0.
    """
    more = surplus.clamp(min=0) if isinstance(surplus, Tensor) else max(surplus, 0.0)
    whole = not isinstance(surplus, Tensor) and surplus == 0
    d = torch.zeros_like(below[..., :1]) if whole else _first_step(below, above, surplus)
    for _ in range(_NEWTON_STEPS[below.dtype] + whole):
        low, low_norm = _sums(torch.add(below, d).sigmoid_())
        high, high_norm = _sums(torch.sub(above, d).sigmoid_())
        low_slope = torch.addcmul(low, low_norm, low_norm, value=-1)
        high_slope = torch.addcmul(high, high_norm, high_norm, value=-1)
        if not whole:
            low, high = low + (more - surplus), high + more
        slope = torch.addcdiv(low_slope / low, high_slope, high)
        d = torch.addcdiv(d, (low / high).log_(), slope, value=-1)
    return d


def _first_step(below: Tensor, above: Tensor, surplus: Tensor | float) -> Tensor:
    """A step from 0 that comes close to the root from any distance.

    Changing d by log t changes the odds of each term r by the factor t or 1 / t: a sum S of r becomes
    ``sum r t / (1 + r (t - 1))``, nearly ``S t / (1 + a (t - 1))`` with a the mean of r weighted by r. With this for
    both sides, t is the root of a quadratic equation.
    """
    tiny = torch.finfo(below.dtype).tiny
    low, low_norm = _sums(below.sigmoid())
    high, high_norm = _sums(above.sigmoid())
    low_mean, high_mean = low_norm.square() / low.clamp(min=tiny), high_norm.square() / high.clamp(min=tiny)
    # With t = 1 + e: p e² + (p + q + gap) e + gap = 0.
    p = (1 - high_mean) * (low - surplus * low_mean)
    q = (1 - low_mean) * (high + surplus * high_mean)
    gap = low - high - surplus
    linear = p + q + gap
    root = torch.addcmul(linear * linear, p, gap, value=-4).clamp(min=0).sqrt()
    return (1 - 2 * gap / (linear + root)).clamp(1 / _FACTOR, _FACTOR).log()


def _sums(r: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of each row, and its norm."""
    return r.sum(-1, keepdim=True), torch.linalg.vector_norm(r, dim=-1, keepdim=True)


def _by_sign(
    number: Tensor | float, positive: Sequence[Tensor], zero: Sequence[Tensor], negative: Sequence[Tensor]
) -> Sequence[Tensor]:
    if isinstance(number, Tensor):
        choices = zip(positive, zero, negative, strict=True)
        return [torch.where(number > 0, more, torch.where(number < 0, less, none)) for more, none, less in choices]
    return positive if number > 0 else negative if number < 0 else zero


def _over(values: Tensor, temperature: float) -> Tensor:
    return values if temperature == 1 else values / temperature

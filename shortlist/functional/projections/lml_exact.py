"""The root of LML in a fixed number of steps, without data-dependent branches: for accelerators and exporters.

Let s be what k exceeds the number of labels above some boundary by. Then sum p = k says A = B + s, with A the sum of p
over the labels below the boundary and B the sum of 1 - p over those above it. All terms are positive and, with the
boundary at the labels whose p is nearest to 1/2, none is much larger than the sums: the input's own precision suffices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.functional.selection import select
from shortlist.tensors import at_most_finite

_STEPS = {torch.float32: 3, torch.float64: 5}
"""The error after each step is at most about 1/16 of the square of the one before, and that of the first about 1/2."""

_DEEP = {torch.float32: 25.0, torch.float64: 45.0}
"""Deeper inside a gap all terms are exponentials, and gaps of any width have the same root."""

_FACTOR = 1e7
"""The largest change of the odds in one step."""


def exact_dual(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    r"""``pivot`` and ``delta`` for ``x`` ``(..., n)`` and ``k`` ``(..., 1)``.

    The root differs from the exact one by a few units of rounding of ``1 + |delta|``, and by at most about 2e-6
    in float32 where two groups of labels compete.
    """
    return _dual(at_most_finite(x), k, temperature)


def exact_lml(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    """The projection itself."""
    x = at_most_finite(x)
    pivot, delta = _dual(x, k, temperature)
    y = x - pivot
    return (y if temperature == 1 else y.div_(temperature)).add_(delta).sigmoid_()


def _dual(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    n = x.shape[-1]
    middle = select(x, k)
    larger = x > middle
    count = larger.sum(-1, keepdim=True)
    ties = (x >= middle).sum(-1, keepdim=True) - count
    part = k - count  # what the ties share
    # The boundary is below the ties if they have more than half of their number, else above them.
    taken = 2 * part > ties
    upper = torch.where(larger, x, math.inf).amin(-1, keepdim=True)
    pivot = torch.where(part == 0, torch.add(upper / 2, middle, alpha=0.5), middle).nan_to_num()
    # Without labels above them, the ties may have to share very little.
    start = torch.where(count == 0, torch.logit(part / ties), 0)
    upper = torch.where(taken, middle, upper)
    lower = torch.where(taken, _just_below(x, middle), middle)  # no label is between the two
    delta = _root(x, lower, upper, pivot, torch.addcmul(part, taken, ties, value=-1), start, temperature)

    delta = delta.masked_fill((middle == -math.inf) | (k >= n), torch.finfo(x.dtype).max / 4)
    delta = delta.masked_fill(k <= 0, -math.inf)
    return pivot, delta.masked_fill((k.clamp(0, n) != k) | middle.isnan(), math.nan)


def _just_below(x: Tensor, middle: Tensor) -> Tensor:
    """A number below ``middle`` with no entry of ``x`` in between."""
    if torch.compiler.is_exporting():  # ONNX has no nextafter
        return torch.where(x < middle, x, torch.finfo(x.dtype).min).amax(-1, keepdim=True)
    return torch.nextafter(middle, torch.full((), -math.inf, dtype=x.dtype, device=x.device))


def _root(
    x: Tensor, lower: Tensor, upper: Tensor, pivot: Tensor, surplus: Tensor, d: Tensor, temperature: float
) -> Tensor:
    """Root of ``sum_{x <= lower} sigmoid(y + d) = s + sum_{x >= upper} sigmoid(-y - d)`` with ``y = (x - pivot) / T``.

    Changing d by log t changes the odds of each term r by the factor t or 1 / t: a sum S of r becomes
    ``sum r t / (1 + r (t - 1))``, nearly ``S t / (1 + a (t - 1))`` with a the mean of r weighted by r. With this for
    both sides, t is the root of a quadratic equation. Values and slopes of both sides are exact.
    """
    limits = torch.finfo(x.dtype)
    surplus, pivot, d = (column.unsqueeze(-2) for column in (surplus, pivot, d))
    one = torch.ones((), dtype=x.dtype, device=x.device)
    # The two sides are an axis of their own, ``(..., 2, n)``; labels of the other side are infinitely far.
    sign = torch.arange(1, -2, -2, dtype=x.dtype, device=x.device).unsqueeze(-1)
    bounds = torch.stack([lower, -upper], -2)
    far = torch.threshold_(torch.addcmul(bounds, sign, x.unsqueeze(-2), value=-1), -limits.tiny * limits.eps, math.inf)
    margins = torch.addcmul(bounds, sign, pivot, value=-1)
    excess = (margins.amax(-2, keepdim=True) + _DEEP[x.dtype] * temperature).clamp(max=0)
    margins, signed = _over(margins - excess, temperature), sign * surplus
    for _ in range(_STEPS[x.dtype]):
        r = torch.add(torch.addcmul(margins, sign, d), far, alpha=-min(1 / temperature, limits.max)).sigmoid_()
        sums = r.sum(-1, keepdim=True)
        mean = torch.linalg.vector_norm(r, dim=-1, keepdim=True).square() / sums.clamp(min=limits.tiny)
        # With t = 1 + e: p e² + (p + q + gap) e + gap = 0, where p and q are the two entries of `bent`.
        bent = torch.addcmul(sums, mean, signed, value=-1)
        bent = torch.addcmul(bent, bent, mean.flip(-2), value=-1)
        gap = sums[..., :1, :] - sums[..., 1:, :] - surplus
        linear = bent.sum(-2, keepdim=True) + gap
        root = torch.addcmul(linear * linear, bent[..., :1, :], gap, value=-4).clamp(min=0).sqrt()
        factor = torch.addcdiv(one, gap, linear + root, value=-2)
        d = d + factor.clamp(1 / _FACTOR, _FACTOR).log()
    return d.squeeze(-2)


def _over(values: Tensor, temperature: float) -> Tensor:
    return values if temperature == 1 else values / temperature

"""The root of LML by sorting, without data-dependent branches: for accelerators and exporters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.tensors import at_most_finite, log_sigmoid, wide

_STEPS = 32
"""Safeguarded steps. The bracket is at most about 80 wide, so bisection alone would gain 2^32."""

_SMALL = 1e-12
"""The search ends when no step is larger, relative to 1 plus the root."""


def exact_dual(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``pivot`` and ``delta`` for ``x`` ``(..., n)`` and ``k`` ``(..., 1)``.

    Sorting finds the two labels between which the root lies, whatever their distance. The equation is then solved in
    float64 and in log space with positive terms only, so nothing cancels or underflows.
    """
    dtype, n = x.dtype, x.shape[-1]
    precision = wide(x)
    largest = torch.finfo(dtype).max
    x, k = at_most_finite(x).to(precision), k.to(precision)
    ordered = x.sort(dim=-1, descending=True).values
    present = (ordered > -math.inf).sum(-1, keepdim=True).to(precision)
    taken = k.nan_to_num().clamp(0, n).floor()  # how many labels are above the root
    part = (k - taken).nan_to_num().clamp(0, 1)  # the fraction of a label beyond them

    def at(rank: Tensor) -> Tensor:
        return ordered.gather(-1, rank.clamp(0, n - 1).long())

    upper, lower = at((taken + part).ceil() - 1), at(taken)
    none, everything = k <= 0, k >= present
    pivot = torch.where(none, ordered[..., :1], torch.where(everything, at(present - 1), upper / 2 + lower / 2))
    pivot = pivot.clamp(min=-largest).to(dtype).to(precision)
    far = torch.finfo(precision).max / 16  # sums of such numbers stay finite
    y, upper, lower = (((value - pivot) / temperature).clamp(-far, far) for value in (ordered, upper, lower))

    delta = _root(y, upper, lower, taken, part, present)
    delta = torch.where(none, -math.inf, torch.where(everything, largest / 4, delta))
    valid = (k >= 0) & (k <= n) & ~ordered[..., :1].isnan()  # NaN sorts first
    delta = torch.where(valid, delta, math.nan)
    return pivot.to(dtype), delta.to(dtype)


def _root(y: Tensor, upper: Tensor, lower: Tensor, taken: Tensor, part: Tensor, present: Tensor) -> Tensor:
    """Root of ``log sum_{rank > taken} sigmoid(y + d) = log(part + sum_{rank <= taken} sigmoid(-y - d))``.

    The difference of the two sides is nearly linear in ``d`` between the labels that enclose the root.
    """
    on_top = torch.arange(y.shape[-1], device=y.device) < taken
    share = torch.where(part > 0, part, 1.0)
    # With ties the root is at a bound; one unit of room lets Newton's method approach it from both sides.
    low = torch.logit(share / (present - (taken + part).ceil() + 1)) - upper - 1
    high = torch.logit((taken + part) / (taken + 1)) - lower + 1
    d = torch.where(part > 0, low, (low + high) / 2)
    may_stop = y.device.type == "cpu" and not torch.compiler.is_exporting()
    for _ in range(_STEPS):
        p_log, rest_log = log_sigmoid(y + d), log_sigmoid(-y - d)
        rising = torch.where(on_top, -math.inf, p_log)
        falling = torch.where(on_top, rest_log, -math.inf)
        left = rising.logsumexp(-1, keepdim=True)
        right = torch.logaddexp(falling.logsumexp(-1, keepdim=True), part.log())
        gap = right - left
        slope = ((rising + rest_log - left).exp() + (falling + p_log - right).exp()).sum(-1, keepdim=True)
        low, high = torch.where(gap >= 0, d, low), torch.where(gap <= 0, d, high)
        new = d + gap / slope
        new = torch.where((new >= low) & (new <= high), new, (low + high) / 2)
        d, step = new, (new - d).abs()
        if may_stop and not bool((step > _SMALL * (1 + d.abs())).any()):
            break
    return d

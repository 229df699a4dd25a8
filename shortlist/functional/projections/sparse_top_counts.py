"""Sparse-top by counting labels between edges, without data-dependent branches: for accelerators.

With b the label after the first floor(k), the threshold l of ``z = (x - b) / T`` lies in [-1, 0], and the sum of
clip(z - l, 0, 1) is the integral of ``N(s) = #{z > s}`` over [l, l + 1]. Moving labels by at most h moves l by at most
h. So counts at edges of distance h around l and l + 1, with the exact integral in between, give l to within h, whatever
the labels. Each level looks closer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.functional.selection import select
from shortlist.tensors import at_most_finite

_EDGES = 128

_LEVELS = {torch.float32: 3, torch.float64: 9}
"""A level divides the distance of edges by 32; the last is 2^-17 or 2^-47. A step along the slope there ends it."""


def sparse_top_by_counts(x: Tensor, k: Tensor | float, temperature: float) -> Tensor:
    """Sparse-top of ``x`` ``(..., n)`` with ``k``, a number or ``(..., 1)``.

    In float32 the threshold is exact but for rounding unless labels begin or end to grow within 1e-5 of it; then p is
    off by at most 2e-5.
    """
    n, largest = x.shape[-1], torch.finfo(x.dtype).max
    x = at_most_finite(x)
    base = select(x, k)
    z = x - base.clamp(min=-largest)
    z = z if temperature == 1 else z.div_(temperature)
    offset = _offset(z, k)
    offset = offset.masked_fill(base == -math.inf, -largest / 4)
    if isinstance(k, Tensor):
        offset = offset.masked_fill(k >= n, -largest / 4).masked_fill(k <= 0, largest / 4)
        offset = offset.masked_fill(k.clamp(0, n) != k, math.nan)
    elif not torch.finfo(x.dtype).tiny <= k < n:
        offset = torch.full_like(offset, -largest / 4 if k >= n else largest / 4)
    offset = offset.masked_fill(base.isnan(), math.nan)
    return z.sub_(offset).clamp_(0, 1)


def _offset(z: Tensor, k: Tensor | float) -> Tensor:
    """``l`` in [-1, 0] with ``sum clip(z - l, 0, 1) = k``."""
    # Labels with p = 1 are taken out: next to their number, the sum of the others would lose digits.
    certain = z >= 1
    k, z = k - certain.sum(-1, keepdim=True, dtype=z.dtype), z.masked_fill(certain, -math.inf)
    steps = torch.arange(_EDGES, dtype=z.dtype, device=z.device)
    one = torch.ones((), dtype=torch.int32, device=z.device).expand(z.shape)
    found, h = torch.full_like(k, -1.0), 1 / _EDGES
    slopes = place = found
    for level in range(_LEVELS[z.dtype]):
        low = found - 2 * h if level else found
        h = 4 * h / _EDGES if level else h
        edges = low + torch.cat([steps * h, steps * h + 1])
        passed = torch.zeros((*edges.shape[:-1], 2 * _EDGES + 1), dtype=torch.int32, device=z.device)
        passed = passed.scatter_add_(-1, torch.searchsorted(edges, z), one).cumsum(-1)
        around_l, around_end = passed[..., :_EDGES], passed[..., _EDGES:-1]
        slopes = around_end - around_l
        above = z.shape[-1] * _EDGES - around_l.sum(-1, keepdim=True)
        missing = k - _integral(z, low + _EDGES * h, 1 - _EDGES * h) if level else k
        place = (slopes.cumsum(-1) <= above - missing / h).sum(-1, keepdim=True)
        found = torch.add(low, place, alpha=h).clamp(max=0)
    miss = _integral(z, found, 1) - k
    slope = slopes.gather(-1, (place - (miss < 0).long()).clamp(0, _EDGES - 1))
    return (found + (miss / slope.clamp(min=1)).clamp(-h, h)).clamp(max=0)


def _integral(z: Tensor, start: Tensor, length: float) -> Tensor:
    """That of ``#{z > s}`` over ``length`` from ``start`` on."""
    return (z - start).clamp_(0, length).sum(-1, keepdim=True)

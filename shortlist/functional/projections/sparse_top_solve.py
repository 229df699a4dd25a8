"""The threshold of sparse-top: ``l`` with ``sum_j clip(x_j / T - l, 0, 1) = k``.

The sum is piecewise linear in ``l``, so Newton's method ends on the exact answer once it meets the right piece: 3-8
steps on realistic rows. The threshold is held as ``base / T + offset``, with ``base`` a number of the input's dtype
near it, so that no offset of ``x`` costs digits of ``p``. Rows that do not settle are solved from their sorted
breakpoints.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.blocks import column, row_blocks
from shortlist.functional.loops import on_tensors, serve
from shortlist.functional.opaque import opaque
from shortlist.tensors import at_most_finite

_MAX_STEPS = 16

_REACH = 16.0
"""How far from the first guess the threshold may lie: further off, ``x - guess`` would lose digits."""

_MANY = 16
"""From this k on, the rounding of the sum is felt in single probabilities."""

_RAMP = 1 / 12
"""Variance of a uniform variable: clip(x, 0, 1) is its distribution function."""


def solve_sparse_top(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    """``clip(x / T - l, 0, 1)`` for ``x`` ``(..., n)`` and ``k`` broadcastable to ``(..., 1)``."""
    if x.numel() == 0:
        return x.clone()
    if x.device.type != "cpu" or torch.compiler.is_exporting():
        return _sorted(x, k.expand(*x.shape[:-1], 1), temperature)
    return (_sparse_top_op if torch.compiler.is_compiling() else _sparse_top_cpu)(x, k, temperature)


def _sparse_top_cpu(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    if serve(temperature, x, k):
        return on_tensors.sparse_top(x, k, temperature, _sorted)
    rows, rows_k = x.reshape(-1, x.shape[-1]), k.expand(*x.shape[:-1], 1).reshape(-1, 1)
    p = torch.empty_like(rows)
    for block in row_blocks(rows):
        with np.errstate(all="ignore"):
            unsettled = _newton(rows[block], rows_k[block], temperature, p[block])
            if rows_k[block].max() > _MANY:
                _polish(p[block], rows_k[block])
        crowded = _no_choice(rows[block], rows_k[block])
        left = torch.from_numpy(np.union1d(unsettled, crowded) + block.start)
        if left.numel():
            p[left] = _sorted(rows[left], rows_k[left], temperature)
    return p.view(x.shape)


def _no_choice(x: Tensor, k: Tensor) -> np.ndarray:
    """Rows in which no more than ``k`` labels are present: each has p = 1, which steps reach up to rounding only."""
    absent = (x.amin(-1) == -math.inf).any()
    present = (x > -math.inf).sum(-1, keepdim=True) if absent else x.shape[-1]
    return np.flatnonzero((k >= present).numpy())


# For a compiler, which cannot follow steps that depend on the data: one call.
_sparse_top_op = opaque(
    "sparse_top_cpu",
    "(Tensor x, Tensor k, float temperature) -> Tensor",
    _sparse_top_cpu,
    lambda x, k, temperature: x.new_empty(x.shape),
)


def _sorted(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    return _clipped(x, *_exact(x, k, temperature), temperature)


def _clipped(x: Tensor, base: Tensor, offset: Tensor, temperature: float) -> Tensor:
    shifted = at_most_finite(x) - base
    return (shifted / temperature - offset).clamp(0, 1)


def _first_guess(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, np.ndarray]:
    """The threshold, times T, if the row were normal, and how fast the log of the sum would fall beside it.

    The sum is n times the probability that a label exceeds the threshold plus a uniform variable, and the difference
    of a normal and a uniform variable is nearly normal.
    """
    n = x.shape[-1]
    mean = column(x.sum(-1, keepdim=True)) / n
    square = column(torch.linalg.vector_norm(x, dim=-1, keepdim=True)) ** 2 / n
    deviation = np.sqrt(np.maximum(square - mean**2, 0) + _RAMP * temperature**2)
    quantile, share = column(torch.special.ndtri(k / n)), column(k) / n
    guess = mean - 0.5 * temperature - deviation * quantile
    if not np.isfinite(guess).all():
        guess = np.where(np.isfinite(guess), guess, column(x.amax(-1, keepdim=True)) - temperature)
    rate = np.exp(-0.5 * quantile**2) / math.sqrt(2 * math.pi) / share * (temperature / deviation)
    return torch.from_numpy(guess).to(x.dtype), rate


def _newton(x: Tensor, k: Tensor, temperature: float, p: Tensor) -> np.ndarray:
    """Fill ``p``; returns the rows that are not settled. Settled rows leave the work once they are many."""
    wanted = column(k)
    tolerance = 8 * torch.finfo(x.dtype).eps * np.clip(wanted, 1e-3, x.shape[-1])
    guess, rate = _first_guess(x, k, temperature)
    z = x - guess
    if temperature != 1:
        z.div_(temperature)
    offset = np.zeros_like(wanted)
    low, high = offset - _REACH, offset + _REACH
    rows, value = np.arange(x.shape[0]), p
    for _ in range(_MAX_STEPS):
        torch.sub(z, torch.from_numpy(offset).to(x.dtype), out=value).clamp_(0, 1)
        total = column(value.sum(-1, keepdim=True))
        left = ~(np.abs(total - wanted) <= tolerance)
        if 2 * np.count_nonzero(left) <= left.size:
            if value is not p:
                p[rows] = value
            kept = np.flatnonzero(left)
            rows = rows[kept]
            if not rows.size:
                break
            wanted, tolerance, rate, offset, low, high, total = (
                part[kept] for part in (wanted, tolerance, rate, offset, low, high, total)
            )
            kept = torch.from_numpy(kept)
            z, value = z.index_select(0, kept), value.index_select(0, kept)
        # The number of labels strictly between 0 and 1; what `value` held is computed again by the next step.
        slope = column(value.frac_().ceil_().sum(-1, keepdim=True))
        offset, low, high = _step(offset, low, high, total, wanted, slope, rate)
    return rows


def _polish(p: Tensor, k: Tensor) -> None:
    """Correct ``p`` in place by what a sum over many ones has rounded away: ones are counted, not added up."""
    inside = p.frac()
    part = column(inside.sum(-1, keepdim=True))
    ones = np.rint(column(p.sum(-1, keepdim=True)) - part)
    slope = np.maximum(column(inside.ceil_().sum(-1, keepdim=True)), 1)
    shift = (part + (ones - column(k))) / slope
    p.sub_(inside.mul_(torch.from_numpy(shift).to(p.dtype))).clamp_(0, 1)


def _step(
    offset: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    total: np.ndarray,
    wanted: np.ndarray,
    slope: np.ndarray,
    rate: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A safeguarded Newton step; from above on the log of the sum, which falls off like an exponential."""
    over = total > wanted
    low, high = np.where(over, offset, low), np.where(over, high, offset)
    log_ratio = np.log(np.maximum(total, 0.5) / wanted)
    new = offset + np.where(over, log_ratio * total, total - wanted) / slope
    for other in (offset + log_ratio / rate, (low + high) / 2):
        bad = ~((new >= low) & (new <= high))
        if not bad.any():
            break
        new = np.where(bad, other, new)
    return new, low, high


def _exact(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``base`` and ``offset`` from the sorted breakpoints, in float64, without a data-dependent branch.

    With b the entry of rank floor(k) + 1, the threshold lies in [b - 1, b]: whatever is further than 1 above b is
    certain, whatever is further than 1 below it is out.
    """
    dtype, n = x.dtype, x.shape[-1]
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    largest = torch.finfo(dtype).max
    x, k = at_most_finite(x).to(wide), k.to(wide)
    ordered = x.sort(dim=-1, descending=True).values
    present = (ordered > -math.inf).sum(-1, keepdim=True)
    none, everything = k <= 0, k >= present
    rank = torch.where(everything, present - 1, k.nan_to_num().clamp(0, n - 1).long()).clamp(min=0)
    base = torch.where(none, ordered[..., :1], ordered.gather(-1, rank)).clamp(min=-largest)
    z = ((ordered - base) / temperature).clamp(-1.5, 1.5)

    points, order = torch.cat([z, z - 1], dim=-1).sort(dim=-1, descending=True)
    slope = torch.where(order < n, 1.0, -1.0).to(wide).cumsum(-1)[..., :-1]
    sums = (slope * -points.diff(dim=-1)).cumsum(-1)
    piece = (sums < k).sum(-1, keepdim=True).clamp(max=2 * n - 2)
    offset = points.gather(-1, piece + 1) + (sums.gather(-1, piece) - k) / slope.gather(-1, piece).clamp(min=1)
    for _ in range(2):  # rounding of the long sums
        p = (z - offset).clamp(0, 1)
        offset = offset + (p.sum(-1, keepdim=True) - k) / p.frac().ceil().sum(-1, keepdim=True).clamp(min=1)

    offset = torch.where(none, largest / 4, torch.where(everything, -largest / 4, offset))
    valid = (k >= 0) & (k <= n) & ~ordered[..., :1].isnan()  # NaN sorts first
    offset = torch.where(valid, offset, math.nan)
    return base.to(dtype), offset.to(dtype)

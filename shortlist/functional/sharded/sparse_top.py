"""Sparse-top where a row's labels are on several processes.

The threshold ``l`` with ``sum_j clip(x_j / T - l, 0, 1) = k`` is found by Newton's method between two bounds. The sum
is piecewise linear, so that a step on the right piece is exact. Where it is flat, the search goes on at the next label.
Per step one or two numbers of each row cross the wire.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.checks import check_temperature
from shortlist.label_axis.once_differentiable import once_differentiable
from shortlist.label_axis.processes import all_max, all_sum
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import at_most_finite, wide

_MAX_STEPS = 200

_FREE = 10
"""So many steps are Newton's as long as they stay between the bounds."""

_FAR = 0.5
"""Further from k, by the logarithm, the sum is taken to fall like an exponential."""

_RAMP = 1 / 12
"""Variance of a uniform variable: clip(x, 0, 1) is its distribution function."""


def sharded_sparse_top(
    logits: Tensor, k: float | Tensor, *, dim: int, temperature: float, mask: Tensor | None
) -> Tensor:
    """``sparse_top`` of a DTensor that is sharded along its labels."""
    rows = as_rows(logits, k, dim=dim, mask=mask)
    p = _SparseTop.apply(
        rows.logits, rows.k, check_temperature(temperature), rows.processes.total, rows.processes.group
    )
    return rows.restore(p, logits, dim)


class _SparseTop(Function):
    """``x, k, T, n, group -> p``. With m the indicator of 0 < p < 1, the Jacobian in x is
    ``(diag(m) - m m^T / |m|) / T``, in k it is ``m / |m|``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor, temperature: float, n: int, group: Any) -> Tensor:
        column = torch.where(k <= n, k, math.nan).expand(*x.shape[:-1], 1)
        flat = x.detach().reshape(math.prod(x.shape[:-1]), x.shape[-1])
        p = _projected(flat, column.reshape(-1, 1), temperature, group).view(x.shape)
        ctx.temperature, ctx.k_shape, ctx.group = temperature, k.shape, group
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (p,) = ctx.saved_tensors
        inside = p.frac().ceil_()
        own = torch.cat([(inside * gradient).sum(-1, keepdim=True), inside.sum(-1, keepdim=True)], -1)
        total, count = all_sum(own.to(wide(p)), ctx.group).split(1, dim=-1)
        mean = (total / count.clamp(min=1)).to(p.dtype)
        to_k = mean.sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
        return inside.mul_(gradient - mean).div_(ctx.temperature), to_k, None, None, None


def _projected(x: Tensor, k: Tensor, temperature: float, group: Any) -> Tensor:
    """``clip(x / T - l, 0, 1)`` of the own labels, ``x`` ``(B, m)`` and ``k`` ``(B, 1)``."""
    ends, infinite, broken = _ends(x, group)
    finite = x if not bool(infinite.any()) else x.masked_fill(x.isposinf(), -math.inf)
    present, certain, mean, deviation = _moments(x, finite, ends[:, :1], temperature, group)
    k = k.to(present.dtype)
    none, everything, bad = k <= 0, k >= present, ~(k >= 0) | broken
    # Labels at +inf come first, and share k evenly if that is not enough for them.
    some = (certain > 0) & (k <= certain)
    rows = (~(none | everything | bad | some)).squeeze(-1).nonzero().squeeze(-1)
    base, offset = x.new_zeros(k.shape), torch.zeros_like(k)
    if len(rows):
        wanted, rest = (k - certain)[rows], (present - certain)[rows]
        guess = mean[rows] - deviation[rows] * torch.special.ndtri(wanted / rest)
        search = _Search(_taken(finite, rows), wanted, temperature, group)
        base[rows], offset[rows] = search.run(guess, ends[rows] / temperature)
    p = _above(at_most_finite(x), base, offset, temperature).clamp_(0, 1)
    if len(rows) < len(x):
        p = torch.where(everything, (x > -math.inf).to(p.dtype), p)
        p = torch.where(some, x.isposinf() * (k / certain.clamp(min=1)).to(p.dtype), p)
        p.masked_fill_(none, 0).masked_fill_(bad, math.nan)
    return p


def _ends(x: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The largest and the smallest finite label of each row ``(B, 2)``, and which rows hold +inf or NaN."""
    own = x.new_full((len(x), 4), -math.inf, dtype=wide(x))
    if x.shape[-1]:
        # Of numbers with NaN among them the extremes are NaN, and what is NaN is not finite.
        low, high = x.aminmax(dim=-1)
        if not bool(low.isfinite().all() & high.isfinite().all()):
            seen = x.isfinite()
            low = torch.where(seen, x, math.inf).amin(-1)
            own[:, 2], own[:, 3] = (high == math.inf).to(own), high.isnan().to(own)
            high = torch.where(seen, x, -math.inf).amax(-1)
        own[:, 0], own[:, 1] = high, -low
    top, bottom, infinite, broken = all_max(own, group).split(1, dim=-1)
    return torch.cat([top, -bottom], -1), infinite > 0, broken > 0


def _moments(x: Tensor, finite: Tensor, top: Tensor, temperature: float, group: Any) -> list[Tensor]:
    """How many labels of each row are present and at +inf, and where the threshold would lie, by how much it would
    vary, if the others were normal.

    The sum is n times the chance that a label exceeds the threshold plus a uniform variable, and the difference of a
    normal and a uniform variable is nearly normal.
    """
    own = x.new_zeros(len(x), 4, dtype=wide(x))
    z = (finite - top.to(x.dtype)).div_(temperature)
    z.masked_fill_(~(z > -math.inf), 0)
    own[:, 0], own[:, 1] = (x > -math.inf).sum(-1), (x == math.inf).sum(-1)
    own[:, 2], own[:, 3] = z.sum(-1), z.square_().sum(-1)
    present, certain, total, square = all_sum(own, group).split(1, dim=-1)
    count = (present - certain).clamp(min=1)
    mean = total / count
    deviation = (square / count - mean**2).clamp(min=0).add(_RAMP).sqrt()
    return [present, certain, top / temperature + mean - 0.5, deviation]


class _Search:
    """The threshold of each row, as ``base / T + offset`` with ``base`` of the dtype of ``x`` and near it.

    Args:
        x: ``(B, m)``, own labels; -inf where one is left out.
        k: ``(B, 1)``, more than 0 and less than a row's finite labels on all processes.
        temperature: ``T``.
        group: of the processes.
    """

    def __init__(self, x: Tensor, k: Tensor, temperature: float, group: Any) -> None:
        self.x, self.k = x, k
        self.temperature, self.group = temperature, group
        self.eps = torch.finfo(x.dtype).eps

    def run(self, guess: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """``(base, offset)`` of all rows, from a first guess and the largest and smallest label over T."""
        top, bottom = ends.split(1, dim=-1)
        start = torch.where((guess > bottom - 1) & (guess < top), guess, top - 0.5)
        zero = self.x.new_zeros(top.shape)
        found = self._newton(zero, start, bottom - 1, top)
        # Far from 0 the threshold is known to fewer digits than p needs: there it is sought once more, beside a base.
        base, offset = self._split(zero, found)
        coarse = found.abs() * torch.finfo(found.dtype).eps > self.eps
        if bool(coarse.any()):
            reach = 4 + 4 * self.eps * base.abs().to(found.dtype) / self.temperature
            again = self._newton(base, torch.where(coarse, 0, offset), -reach, reach, coarse)
            offset = torch.where(coarse, again, offset)
        return base, offset

    def _newton(self, base: Tensor, start: Tensor, low: Tensor, high: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Offsets from ``base / T`` between ``low``, where the sum is above k, and ``high``, where it is below."""
        point, moved = start.clone(), torch.full_like(start, math.inf)
        rows = torch.arange(len(point), device=point.device)
        rows = rows if wanted is None else rows[wanted.squeeze(-1)]
        x, low, high = _taken(self.x, rows), low.clone(), high.clone()
        for step_number in range(_MAX_STEPS):
            here, k = point[rows], self.k[rows]
            centre, rest = self._split(base[rows], here)
            total, slope = self._sums(x, centre, rest)
            over, flat = total > k, slope == 0
            low[rows] = lowest = torch.where(over, here, low[rows])
            high[rows] = highest = torch.where(over, high[rows], here)
            step = (total - k) / slope.clamp(min=1)
            # Where the sum is far from k it rather falls off like an exponential.
            log_ratio = (total.clamp(min=0.1) / k).log()
            step = torch.where(log_ratio.abs() > _FAR, log_ratio * total.clamp(min=0.1) / slope.clamp(min=1), step)
            done = (total - k).abs() <= 4 * self.eps * slope.clamp(min=1)
            if bool((flat & ~done).any()):
                step = torch.where(flat, self._to_next_label(x, centre, rest, over), step)
            # In the middle where Newton leaves the bounds, or where, after a while, its steps are not half the last.
            shorter = flat | (2 * step.abs() <= moved[rows]) | (step_number < _FREE)
            good = (here + step > lowest) & (here + step < highest) & shorter
            # A last step of mere rounding would leave a kink, at which some p are exactly 0 or 1.
            exact = flat | ((total - k).abs() <= 8 * self.eps * k.clamp(1e-3, 1))
            new = torch.where(good | done, here + step.where(~(done & exact), 0), (lowest + highest) / 2)
            stuck = ~done & ((new <= lowest) | (new >= highest))  # the bounds are neighbouring numbers
            moved[rows] = torch.where(flat, math.inf, (new - here).abs())
            point[rows] = torch.where(stuck, here, new)
            left = ~(done | stuck).squeeze(-1)
            if not bool(left.any()):
                break
            x, rows = _taken(x, left.nonzero().squeeze(-1)), rows[left]
        return point

    def _split(self, base: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        """The same threshold with another base, next to it."""
        limits = torch.finfo(base.dtype)
        whole = base.to(offset.dtype) + offset * self.temperature
        nearest = whole.clamp(limits.min, limits.max).to(base.dtype)
        return nearest, offset + (base.to(offset.dtype) - nearest.to(offset.dtype)) / self.temperature

    def _sums(self, x: Tensor, centre: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of p over all labels, and how many of them lie strictly between 0 and 1."""
        p = _above(x, centre, rest, self.temperature).clamp_(0, 1)
        total = p.sum(-1, keepdim=True, dtype=rest.dtype)
        own = torch.cat([total, p.frac_().ceil_().sum(-1, keepdim=True, dtype=rest.dtype)], -1)
        total, slope = all_sum(own, self.group).split(1, dim=-1)
        return total, slope

    def _to_next_label(self, x: Tensor, centre: Tensor, rest: Tensor, over: Tensor) -> Tensor:
        """From a flat piece to the middle of the ramp of the next label, upwards where the sum is too large."""
        z = _above(x, centre, rest, self.temperature)
        # Here p is 0 up to z = 0, and 1 from z = 1 on.
        gap = torch.where(over, torch.where(z >= 1, 1 - z, -math.inf), torch.where(z <= 0, z, -math.inf))
        nearest = gap.amax(-1, keepdim=True) if gap.shape[-1] else gap.new_full(rest.shape, -math.inf)
        distance = 0.5 - all_max(nearest.to(rest.dtype), self.group)
        return torch.where(over, distance, -distance)


def _above(x: Tensor, centre: Tensor, rest: Tensor, temperature: float) -> Tensor:
    """``x / T`` less the threshold ``centre / T + rest``."""
    z = x - centre
    return (z if temperature == 1 else z.div_(temperature)).sub_(rest.to(x.dtype))


def _taken(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows, without a copy where these are all."""
    return x if len(rows) == len(x) else x[rows]

"""The root of LML in a fixed number of passes over the labels, for accelerators: nothing is read by the host.

A pass over the labels of `LinearLogits` costs a matrix product. Two passes count the labels between edges around the
root of a sample: the counts give the root to within the distance of the edges, which is 1/32 nearby and grows in
proportion far away. Four more evaluate the sums of `LogSums` at two points per row. Their log-ratio falls at a rate
between 1/2 and 2 on plateaus as well as on slopes, so Newton's method from both sides of the root doubles the digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.functional.projections.lml_exact import exact_dual
from shortlist.functional.projections.lml_solver import Dual, LogSums, add_log_sums
from shortlist.kernels.chooser import triton_kernels, use_triton
from shortlist.label_axis.axis import LabelAxis

RESOLUTIONS, PASSES = (1 / 4, 1 / 32), 4
"""The distances of edges near the root, one for each pass that counts, and the number of passes that evaluate."""

_NEAR, _FAR = 96, 160
"""Edges on either side, at equal distances and beyond in a geometric series to the largest number."""

_SEEN = 256
"""How many labels of its sample each of several processes shows the others."""

_FARTHEST = 1e3
"""How far the root of the sample may lie from its pivot."""

_DEEP = -20.0
"""Where the largest p (1 - p) is below exp of this, its sum hardly depends on a small step."""


class TrialRoot(NamedTuple):
    """The root, and the sum of p (1 - p) as ``total exp(nearest)``; columns ``(B, 1)`` in the dtype of the axis."""

    dual: Dual
    nearest: Tensor
    total: Tensor


@torch.no_grad()
def solve_by_trials(axis: LabelAxis, k: Tensor, temperature: float) -> TrialRoot:
    """Find the root of every row; arguments as in `solve_lml`."""
    present = axis.present()
    k = k.expand(len(present), 1).to(present.dtype)
    none, everything = k <= 0, k >= present
    invalid = ~((k >= 0) & (k <= axis.total_labels))
    trivial = none | everything | invalid
    search = _Trials(axis, torch.where(trivial, present.clamp(min=1) / 2, k), temperature)
    position = search.start(present)
    for distance in RESOLUTIONS:
        position = search.count(position, distance)
    points = torch.cat([position - RESOLUTIONS[-1], position + RESOLUTIONS[-1]], 1)
    for _ in range(PASSES):
        points = search.evaluate(points)
    pivot, delta, nearest, total = search.root()
    limits, infinite = torch.finfo(axis.dtype), search.infinite
    shared = ~trivial & (infinite >= k)
    share = (k / infinite.clamp(min=1)).clamp(0, 1)
    logit = (share / (1 - share)).log().clamp(max=limits.max / 16 / max(1, temperature))
    pivot, delta = torch.where(shared, limits.max, pivot), torch.where(shared, logit, delta)
    nearest = torch.where(shared, (k * (1 - share)).log().clamp(min=limits.min / 4), nearest)
    total = torch.where(shared | trivial, 1, total)
    pivot = torch.where(everything, limits.min, pivot)  # all differences from it are positive
    delta = torch.where(none, -math.inf, torch.where(everything, limits.max / 2, delta))
    delta = torch.where(invalid | search.broken, math.nan, delta)
    log_slope = nearest + total.log()
    pivot, delta, log_slope, nearest, total = (
        column.to(axis.dtype) for column in (pivot, delta, log_slope, nearest, total)
    )
    return TrialRoot(Dual(pivot, delta, log_slope), nearest, total)


class _End(NamedTuple):
    """The trial point next to the root on one side, and what is known there: columns ``(B, 1)``."""

    at: Tensor
    gap: Tensor  # the log-ratio of what is missing to what is too much
    rate: Tensor  # of its decrease

    def newton(self) -> Tensor:
        return self.at + self.gap / self.rate

    def moved(self, points: _End, key: Tensor, rising: bool) -> _End:
        """The farthest of the points by ``key``, where it is beyond this end."""
        chosen = key.argmax(1, keepdim=True) if rising else key.argmin(1, keepdim=True)
        new = _End(key.gather(1, chosen), *(column.gather(1, chosen) for column in points[1:]))
        better = new.at > self.at if rising else new.at < self.at
        return _End(*(torch.where(better, ours, theirs) for ours, theirs in zip(new, self, strict=True)))


class _Points(NamedTuple):
    """Positions as the blocks take them, ``(B, count)``: ``(x - pivot) / T + delta`` are the log-odds of p there."""

    pivot: Tensor  # in the dtype of the axis
    delta: Tensor  # in the dtype of the axis
    moved: Tensor  # from the anchor to the pivot


class _Found(NamedTuple):
    """The last points, the one with the shortest step to the root, and what was found there."""

    best: Tensor  # (B, 1)
    points: _Points
    at: Tensor  # (B, count), like all below
    step: Tensor
    log_slope: Tensor
    nearest: Tensor  # the largest exponent of p (1 - p), and the sum of p (1 - p) relative to it
    total: Tensor


class _Trials:
    """A bracket of the root of each row, in the precision of `wide`.

    A position is ``u`` in ``p = sigmoid((x - anchor) / T + u)``. The anchor, a number of the dtype of the axis, is the
    best position so far: ``u`` keeps its digits whatever the offset of the row.
    """

    def __init__(self, axis: LabelAxis, k: Tensor, temperature: float) -> None:
        self.axis, self.k, self.temperature = axis, k, temperature
        zero = torch.zeros_like(k)
        self.anchor, self.infinite, self.broken = zero, zero, zero != 0
        self.low, self.high = _End(zero - math.inf, zero, zero + 1), _End(zero + math.inf, zero, zero + 1)

    def start(self, present: Tensor) -> Tensor:
        """The root of a sample of the labels, the same on all processes."""
        sample, processes = self.axis.sample(), self.axis.processes
        if processes.group is not None:
            some = sample[:, :: max(1, sample.shape[-1] // _SEEN)][:, :_SEEN]
            sample = processes.gather_columns(pad(some, (0, _SEEN - some.shape[1]), value=-math.inf))
        if not sample.shape[-1]:
            return self.anchor
        seen = (sample > -math.inf).sum(-1, keepdim=True)
        pivot, delta = exact_dual(sample, (self.k * seen / present.clamp(min=1)).to(sample.dtype), self.temperature)
        self.anchor = pivot.to(self.k.dtype)
        return delta.to(self.k.dtype).nan_to_num(0.0).clamp(-_FARTHEST, _FARTHEST)

    def count(self, position: Tensor, distance: float) -> Tensor:
        """A better position than ``(B, 1)``, by the numbers of labels between edges around it."""
        points, edges = self._points(position), _edges(distance, self.axis.dtype, position.device)
        shape, one = (len(position), len(edges) + 1), torch.ones((), dtype=torch.int32, device=position.device)
        table = torch.zeros(shape, dtype=torch.int32, device=position.device)
        lowest, highest = edges.new_full(shape, math.inf), edges.new_full(shape, -math.inf)
        for _, x in self.axis.blocks():
            y = x - points.pivot
            y = (y if self.temperature == 1 else y.div_(self.temperature)).add_(points.delta)
            place = torch.bucketize(y, edges)
            table.scatter_add_(1, place, one.expand(y.shape))
            lowest.scatter_reduce_(1, place, x, "amin")
            highest.scatter_reduce_(1, place, x, "amax")
        processes, edges = self.axis.processes, edges.to(self.k.dtype)
        middles = torch.cat([2 * edges[:1], (edges[1:] + edges[:-1]) / 2, 2 * edges[-1:]])
        # The sums of p with p = 1/2 at each edge, as if all labels were in the middle between edges.
        sums = processes.sum(table.to(edges.dtype)) @ (middles.unsqueeze(-1) - edges).sigmoid()
        after = (sums >= self.k).sum(-1, keepdim=True)
        last = after.clamp(1, len(edges) - 1)
        more, less = sums.gather(1, last - 1), sums.gather(1, last)
        part = ((more - self.k) / (more - less).clamp(min=1e-30)).clamp(0, 1)
        between = points.delta - torch.lerp(edges[last - 1], edges[last], part)
        # Far away, where edges are far from each other, the root is next to a label.
        self.anchor = points.pivot.to(self.k.dtype)
        top, bottom = processes.max(highest.gather(1, after)), -processes.max(-lowest.gather(1, after))
        least, most = ((self.anchor - label) / self.temperature for label in (top, bottom))
        return torch.where(least <= most, torch.minimum(torch.maximum(between, least), most), between)

    def evaluate(self, positions: Tensor) -> Tensor:
        """Evaluate the sums at ``(B, count)`` positions, and choose the next ones."""
        points = self._points(positions)
        at = points.delta + points.moved
        sums, nearest, total = self._log_sums(points)
        gap, rate = sums.log_ratio(self.k)[:2]
        self.broken = gap.isnan().any(1, keepdim=True)
        found, step = _End(at, gap, rate), gap / rate
        low = self.low.moved(found, torch.where(gap >= 0, at, -math.inf), rising=True)
        high = self.high.moved(found, torch.where(gap <= 0, at, math.inf), rising=False)
        best = step.abs().argmin(1, keepdim=True)
        self._last = _Found(best, points, at, step, sums.log_slope, nearest, total)
        self.anchor, shift = points.pivot.gather(1, best).to(self.k.dtype), points.moved.gather(1, best)
        self.low, self.high = low._replace(at=low.at - shift), high._replace(at=high.at - shift)
        return self._next()

    def _points(self, positions: Tensor) -> _Points:
        limits = torch.finfo(self.axis.dtype)
        pivot = (self.anchor - self.temperature * positions).clamp(limits.min, limits.max).to(self.axis.dtype)
        moved = (self.anchor - pivot) / self.temperature
        return _Points(pivot, (positions - moved).clamp(limits.min / 16, limits.max / 16).to(self.axis.dtype), moved)

    def _next(self) -> Tensor:
        """Newton's steps from both ends of the bracket, or from its only end and beyond."""
        low, high = self.low, self.high
        middle = torch.lerp(low.at.asinh(), high.at.asinh(), 0.5).sinh()  # by orders of magnitude around the anchor
        steps = torch.cat([low.newton(), high.newton()], 1)
        within = torch.where((steps >= low.at) & (steps <= high.at), steps, middle)
        rising = low.at.isfinite()
        end = _End(*(torch.where(rising, ours, theirs) for ours, theirs in zip(low, high, strict=True)))
        far = torch.where(rising, 2.0, -2.0) * (end.gap.abs() + 1)
        beyond = torch.cat([end.newton(), end.at + far], 1)
        return torch.where(rising & high.at.isfinite(), within, beyond).nan_to_num(0.0)

    def _log_sums(self, points: _Points) -> tuple[LogSums, Tensor, Tensor]:
        """The sums at the points, and of p (1 - p) the largest exponent and the sum relative to it: ``(B, count)``."""
        rows, count = points.delta.shape
        sums, tops = self.k.new_zeros(rows, count, 5), self.k.new_full((rows, count, 2), -math.inf)
        infinite, largest = self.k.new_zeros(rows), torch.finfo(self.axis.dtype).max
        for _, x in self.axis.blocks():
            if use_triton(self.temperature, x):
                kernels = triton_kernels("linear_blocks")
                kernels.add_trial_sums(x, points.pivot, points.delta, sums, tops, infinite, self.temperature)
                continue
            infinite += (x == math.inf).sum(-1)
            for point in range(count):
                y = x - points.pivot[:, point, None]
                y = y if self.temperature == 1 else y.div_(self.temperature)
                y = y.add_(points.delta[:, point, None]).clamp_(-largest, largest)
                add_log_sums(sums[:, point], tops[:, point], y)
        processes = self.axis.processes
        highest = processes.max(tops)
        sums[..., :4] *= (tops - highest.clamp(min=torch.finfo(tops.dtype).min)).exp().repeat(1, 1, 2)
        self.infinite = processes.sum(infinite.unsqueeze(-1))
        totals = processes.sum(sums)
        logs = totals[..., :4].log() + highest.repeat(1, 1, 2)
        nearest = highest.amax(-1, keepdim=True).clamp(min=torch.finfo(tops.dtype).min)
        total = (totals[..., 2:4] * (highest - nearest).exp()).sum(-1)
        return LogSums._make([*logs.unbind(-1), totals[..., 4]]), nearest.squeeze(-1), total

    def root(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pivot, delta, and the sum of p (1 - p) as the logarithm of its largest term and the sum relative to it."""
        best, points, at, steps, log_slopes, *columns = self._last
        chosen = (points.pivot, points.delta, at, steps, log_slopes, *columns)
        pivot, delta, here, step, log_slope, nearest, total = (values.gather(1, best) for values in chosen)
        # Between labels far away, whose distance has few digits after the point, shares need the exponents found here.
        keep = (nearest < _DEEP) & (step.abs() <= 4 * torch.finfo(self.axis.dtype).eps * nearest.abs())
        step = torch.where(keep, 0, step)
        change = _slope_of(log_slopes, at, here, log_slope) * step
        return pivot.to(step.dtype), delta + step, nearest, total * change.exp()


def _slope_of(values: Tensor, at: Tensor, chosen: Tensor, value: Tensor) -> Tensor:
    """The change of ``values`` per unit from the ``chosen`` point to the next one that differs noticeably."""
    distance = (at - chosen).abs()
    other = torch.where(distance > 1e-4, distance, math.inf).argmin(1, keepdim=True)
    slope = (values.gather(1, other) - value) / (at.gather(1, other) - chosen)
    return torch.where(distance.gather(1, other) > 1e-4, slope, 0).clamp(-1, 1)


def _edges(distance: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Ascending numbers, symmetric to 0: at equal distances, then in a geometric series to the largest number."""
    near = torch.arange(1, _NEAR + 1, dtype=dtype, device=device) * distance
    last, most = math.log(_NEAR * distance), math.log(torch.finfo(dtype).max) - 0.1
    far = torch.linspace(last, most, _FAR + 1, dtype=dtype, device=device)[1:].exp()
    return torch.cat([-far.flip(0), -near.flip(0), near.new_zeros(1), near, far])

"""The root of LML in a fixed number of passes over the labels, for accelerators; per-row numbers stay on the device.

A pass over the labels of `LinearLogits` costs a matrix product, and another trial point within it next to nothing in a
fused kernel. So each pass evaluates the sums of `LogSums` at several points per row. Their log-ratio falls at a rate
between 1/2 and 2 on plateaus as well as on slopes, so Newton's method from the points next to the root finds it unless
many labels lie between them; for such rows, other points follow the sums as an interpolation search does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.functional.projections.lml_solver import Dual, LogSums, add_log_sums
from shortlist.kernels.chooser import triton_kernels, use_triton
from shortlist.label_axis.axis import HeldLabels, LabelAxis
from shortlist.tensors import wide

FUSED_POINTS, POINTS = 16, 4
"""Trial points per row and pass: in a fused kernel, and as tensor operations, of which each takes about twenty."""

PASSES, MOST_PASSES = 3, 10
"""Passes over all labels without reading a flag, and the most of them; ordinary rows need one to three."""

UNREAD_PASSES = 6
"""The number of passes where no flag can be read, as on the meta device or while capturing a graph."""

_SAMPLE_PASSES = 3
_QUANTILES = 256
"""How many labels of the sample are sorted for the first points."""

_SMALL = {torch.float32: 3e-4, torch.float64: 1e-8}
"""After a step this small the root is off by about its square."""

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
    sample = axis.sample()
    k = k.expand(len(sample), 1).to(wide(sample))
    present = axis.present().to(k.dtype)
    none, everything = k <= 0, k >= present
    invalid = ~((k >= 0) & (k <= axis.total_labels))
    trivial = none | everything | invalid
    wanted = torch.where(trivial, present.clamp(min=1) / 2, k)
    search = _Trials(axis, wanted, temperature)
    points = _first_points(axis, sample, wanted, present, temperature)
    for number in range(MOST_PASSES):
        points = search.evaluate(points)
        if number + 1 >= PASSES and _may_stop(search, trivial, number + 1):
            break
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


def prefers_trials(x: Tensor, temperature: float) -> bool:
    """Whether to search by trial points for features ``x``: in a fused kernel, or where nothing can be read.

    As tensor operations they move over ten times the bytes of `solve_lml`, which reads a few columns each pass.
    """
    return use_triton(temperature, x) or not _readable(x)


def _readable(x: Tensor) -> bool:
    """Whether the host can wait for a value of ``x``: not on the meta device or while capturing a graph."""
    return x.device.type != "meta" and not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def _may_stop(search: _Trials, trivial: Tensor, passes: int) -> bool:
    """Whether every row is settled: one read of a flag, unless it cannot be read."""
    if not _readable(search.k):
        return passes >= UNREAD_PASSES
    return bool((search.settled | trivial | search.broken | (search.infinite >= search.k)).all())


def _first_points(axis: LabelAxis, sample: Tensor, k: Tensor, present: Tensor, temperature: float) -> Tensor:
    """Points around the root of a sample of the labels, and quantiles of it; the same on all processes."""
    if not sample.shape[-1]:
        sample = sample.new_zeros(len(sample), 1)
    processes = axis.processes
    several = processes.sum(torch.ones_like(k))
    seen = processes.sum((sample > -math.inf).sum(-1, keepdim=True).to(k.dtype)).clamp(min=1)
    some = sample[:, :: max(1, sample.shape[-1] // _QUANTILES)]
    ordered = torch.where(some.isfinite(), some, torch.finfo(some.dtype).min).sort(dim=-1, descending=True).values
    rank = k / present.clamp(min=1) * some.isfinite().sum(-1, keepdim=True)
    count = _num_points(sample, temperature)
    near = torch.tensor([-8.0, -4, -2, -1, 0, 1, 2, 4] if count > 4 else [-4.0, -1, 1, 4], device=k.device)
    places = (rank + near).round().clamp(0, ordered.shape[-1] - 1).long()
    quantiles = processes.sum(ordered.gather(-1, places).to(k.dtype)) / (-several * temperature)
    rough = _Trials(HeldLabels(sample, processes), (k * seen / present.clamp(min=1)), temperature)
    points = quantiles.repeat(1, count // quantiles.shape[1])
    for _ in range(_SAMPLE_PASSES):
        points = rough.evaluate(points)
    away = torch.tensor([0.1, 0.5, 2.5, 12.5] if count > 4 else [0.3, 3.0], device=k.device, dtype=k.dtype)
    center = rough.estimate()
    around = torch.cat([center - away, center + away], 1)
    return torch.cat([around, quantiles], 1) if count > around.shape[1] else around


def _num_points(x: Tensor, temperature: float) -> int:
    return FUSED_POINTS if use_triton(temperature, x) else POINTS


class _End(NamedTuple):
    """The trial point next to the root on one side, and what is known there: columns ``(B, 1)``."""

    at: Tensor
    gap: Tensor  # the log-ratio of what is missing to what is too much
    rate: Tensor  # of its decrease
    total: Tensor  # the sum of p

    def newton(self) -> Tensor:
        return self.at + self.gap / self.rate

    def moved(self, points: _End, key: Tensor, rising: bool) -> _End:
        """The farthest of the points by ``key``, where it is beyond this end."""
        chosen = key.argmax(1, keepdim=True) if rising else key.argmin(1, keepdim=True)
        new = _End(key.gather(1, chosen), *(column.gather(1, chosen) for column in points[1:]))
        better = new.at > self.at if rising else new.at < self.at
        return _End(*(torch.where(better, ours, theirs) for ours, theirs in zip(new, self, strict=True)))


class _Trials:
    """A bracket of the root of each row, as ``u`` in ``p = sigmoid(x / T + u)``, in the precision of `wide`."""

    def __init__(self, axis: LabelAxis, k: Tensor, temperature: float) -> None:
        self.axis, self.k, self.temperature = axis, k, temperature
        zero = torch.zeros_like(k)
        self.low = _End(zero - math.inf, zero, zero + 1, zero)
        self.high = _End(zero + math.inf, zero, zero + 1, zero)
        self.infinite, self.broken, self.settled = zero, zero != 0, zero != 0

    def evaluate(self, points: Tensor) -> Tensor:
        """Evaluate the sums at ``points`` ``(B, count)``, and choose the next ones."""
        limits = torch.finfo(self.axis.dtype)
        # Around the first point, the best guess, ``x - pivot`` loses no digit.
        pivot = (-self.temperature * points[:, :1]).clamp(limits.min, limits.max).to(self.axis.dtype)
        base = pivot.to(points.dtype) / self.temperature
        delta = (points + base).clamp(limits.min / 16, limits.max / 16).to(self.axis.dtype)
        sums, tops = self._log_sums(pivot, delta)
        gap, rate, depth = sums.log_ratio(self.k)
        at = delta.to(points.dtype)
        self.broken = gap.isnan().any(1, keepdim=True)
        found = _End(at - base, gap, rate, sums.total())
        self.low = self.low.moved(found, torch.where(gap >= 0, found.at, -math.inf), rising=True)
        self.high = self.high.moved(found, torch.where(gap <= 0, found.at, math.inf), rising=False)
        self._last = pivot, at, gap / rate, tops, sums
        best = gap.abs().argmin(1, keepdim=True)
        step = (gap / rate).gather(1, best).abs()
        self.settled = step <= _SMALL[self.axis.dtype] + 4 * limits.eps * depth.gather(1, best)
        return self._next(points.shape[1])

    def estimate(self) -> Tensor:
        """Newton's step from the nearer end of the bracket."""
        low = self.low.gap.abs() <= self.high.gap.abs()
        low = torch.where(self.low.at.isfinite() & self.high.at.isfinite(), low, self.low.at.isfinite())
        return torch.where(low, self.low.newton(), self.high.newton()).nan_to_num(0.0)

    def _next(self, count: int) -> Tensor:
        """The next points: inside of the bracket, or beyond its only end."""
        low, high = self.low, self.high
        width, middle = high.at - low.at, low.at / 2 + high.at / 2

        def inside(point: Tensor) -> Tensor:
            return torch.where((point >= low.at) & (point <= high.at), point, middle)

        nearer = low.gap.abs() <= high.gap.abs()
        a = inside(torch.where(nearer, low.newton(), high.newton()))
        b = inside(torch.where(nearer, high.newton(), low.newton()))
        labels = high.total - low.total
        linear = inside(low.at + width * ((self.k - low.total) / labels))
        if count == POINTS:
            points = [a, b, linear, middle]
        else:
            spacing = width / labels.clamp(min=1)  # on a staircase, the distance of two labels
            points = [a, b, linear, *(linear + far * spacing for far in (-5, -1, 1, 5))]
            points += [torch.lerp(a, b, share) for share in (0.25, 0.5, 0.75)]
            points += [torch.lerp(low.at, high.at, share / 7) for share in range(1, 7)]
        within = torch.minimum(torch.maximum(torch.cat(points, 1), low.at), high.at)
        rising = low.at.isfinite()
        end = _End(*(torch.where(rising, ours, theirs) for ours, theirs in zip(low, high, strict=True)))
        reach = 2.0 * (16.0 if count == POINTS else 6.0) ** torch.arange(count - 1, device=width.device)
        away = torch.where(rising, 1.0, -1.0) * (end.gap.abs() + 1) * reach
        beyond = torch.cat([end.newton(), end.at + away], 1)
        return torch.where(rising & high.at.isfinite(), within, beyond).nan_to_num(0.0)

    def _log_sums(self, pivot: Tensor, delta: Tensor) -> tuple[LogSums, Tensor]:
        """The sums at ``(x - pivot) / T + delta``, ``(B, count)`` each, and the largest exponents below and above."""
        rows, count = delta.shape
        sums, tops = self.k.new_zeros(rows, count, 5), self.k.new_full((rows, count, 2), -math.inf)
        infinite, far = self.k.new_zeros(rows), torch.finfo(delta.dtype).max / 8
        for _, x in self.axis.blocks():
            if use_triton(self.temperature, x):
                kernels = triton_kernels("linear_blocks")
                kernels.add_trial_sums(x, pivot, delta, sums, tops, infinite, self.temperature)
                continue
            y = x - pivot
            y = y if self.temperature == 1 else y.div_(self.temperature)
            infinite += (x == math.inf).sum(-1)
            for point in range(count):
                add_log_sums(sums[:, point], tops[:, point], (y + delta[:, point, None]).clamp_(-far, far))
        processes = self.axis.processes
        largest = processes.max(tops)
        sums[..., :4] *= (tops - largest.clamp(min=torch.finfo(tops.dtype).min / 4)).exp().repeat(1, 1, 2)
        self.infinite = processes.sum(infinite.unsqueeze(-1))
        totals = processes.sum(sums)
        return LogSums._make([*(totals[..., :4].log() + largest.repeat(1, 1, 2)).unbind(-1), totals[..., 4]]), largest

    def root(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pivot, delta, and the sum of p (1 - p) as the logarithm of its largest term and the sum relative to it."""
        pivot, at, steps, tops, sums = self._last
        best = steps.abs().argmin(1, keepdim=True)
        delta, step, log_slope = (values.gather(1, best) for values in (at, steps, sums.log_slope))
        nearest = tops.amax(-1).gather(1, best)
        # Between labels far away, whose distance has few digits after the point, shares need the exponents found here.
        keep = (nearest < _DEEP) & (step.abs() <= 4 * torch.finfo(self.axis.dtype).eps * nearest.abs())
        step = torch.where(keep, 0, step)
        slope_change = _slope_of(sums.log_slope, at, delta, log_slope) * step
        return pivot.to(delta.dtype), delta + step, nearest, (log_slope - nearest + slope_change).exp()


def _slope_of(values: Tensor, at: Tensor, chosen: Tensor, value: Tensor) -> Tensor:
    """The change of ``values`` per unit from the ``chosen`` point to the next one that differs noticeably."""
    distance = (at - chosen).abs()
    other = torch.where(distance > 1e-4, distance, math.inf).argmin(1, keepdim=True)
    slope = (values.gather(1, other) - value) / (at.gather(1, other) - chosen)
    return torch.where(distance.gather(1, other) > 1e-4, slope, 0).clamp(-1, 1)

"""The root of the LML projection on any label axis: ``delta`` with ``sum_j sigmoid((x_j - pivot) / T + delta) = k``.

A pass over the labels is the unit of cost: it may recompute matrix products or wait for other processes. Each pass
sums p, p² and p³, which gives a step of third order on the log-odds of the mean of p and, with the last step, the slope
at the root. Two or three passes settle ordinary rows. On a plateau the sum of p rounds to k long before the root is
known; there the search continues on the logarithms of two sums of positive terms: p over the labels with p < 1/2, and
1 - p over the others.

Per-row numbers are numpy arrays in float64 on the host: for a few hundred rows, a numpy call costs a fraction of a
tensor operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.projections.lml_exact import exact_dual
from shortlist.label_axis.axis import HeldLabels, LabelAxis
from shortlist.label_axis.columns import (
    Columns,
    Moments,
    chosen_rows,
    middle,
    pose_equations,
    put,
    scratch,
    take,
)

_STEPS = 12
_PLATEAU_STEPS = 100

_FREE_STEPS, _STAIRS = 6, 16.0
"""After so many steps on a plateau, every other one doubles the last, or halves brackets wider than this."""

_STEEP = 0.03
"""The least slope, as a fraction of k, at which the sum of p is trusted: it determines the root to eps * k / slope."""

_LONGEST = 4.0
"""Steps on the sum of p are cut to this length."""

_PROBIT = 1.7
"""The logistic function is close to the normal distribution function with this standard deviation."""


class _Limits(NamedTuple):
    """Thresholds by dtype."""

    lift: float  # p is scaled by this factor: powers of small numbers would be subnormal, which is slow
    far: float  # how far from the pivot the root may lie; beyond, exponentials are computed around a new one
    exponent: float  # logits beyond the pivot are cut here, to keep exponentials finite
    second_order: float  # after a step this small the root is off by about its square
    third_order: float  # by about its cube, and the slope by about its square
    plateau: float  # by less; the slope by about the step itself


_LIMITS = {
    torch.float32: _Limits(2.0**20, 40.0, 80.0, 1e-3, 1e-3, 1e-7),
    torch.float64: _Limits(2.0**60, 300.0, 600.0, 1e-8, 1e-6, 1e-13),
}


class Dual(NamedTuple):
    """``p = sigmoid((x - pivot) / T + delta)`` sums to k; columns ``(B, 1)`` in the dtype of the axis."""

    pivot: Tensor  # finite and near the root, so that ``x - pivot`` keeps its digits whatever the offset of x
    delta: Tensor  # huge if all labels are taken, -inf if none is, NaN if the row or its k is invalid
    log_slope: Tensor  # log of the sum of p (1 - p); not computed for rows that were sorted


@torch.no_grad()
def solve_lml(axis: LabelAxis, k: Tensor, temperature: float) -> Dual:
    """Find the root of every row. Rows with all labels at hand are sorted if Newton's method does not settle them.

    All processes take the same steps, because they decide by reduced values only.

    Args:
        axis: the logits.
        k: broadcastable to ``(B, 1)``. Values outside [0, n] make their rows NaN; where no more than ``k`` labels are
            present, all are taken.
        temperature: ``T``.
    """
    with np.errstate(all="ignore"):
        equations = pose_equations(axis, k, temperature)
        columns, sample, moments, k_array, none, everything, invalid, shared, sortable = equations
        trivial = equations.trivial
        search = _Search(columns, equations.wanted, moments, temperature)
        search.settled |= trivial | shared
        if k_array.size:
            if sample.shape[-1] and (moments.seen < 0.5 * moments.present).all():
                search.start_from(sample, moments)
            search.newton()
            if not sortable:
                search.plateau()
        pivot, delta, log_slope = search.pivot, search.delta, np.log(np.maximum(search.slope, 1e-300))
        if search.log_slope is not None:
            log_slope = np.where(np.isnan(search.log_slope), log_slope, search.log_slope)
        limits = torch.finfo(axis.dtype)
        if shared.any():
            share = np.clip(k_array / np.maximum(moments.infinite, 1), 0, 1)
            logit = np.minimum(np.log(share / (1 - share)), limits.max / 16 / max(1, temperature))
            pivot, delta = np.where(shared, limits.max, pivot), np.where(shared, logit, delta)
            log_slope = np.where(shared, np.maximum(np.log(k_array * (1 - share)), limits.min / 4), log_slope)
        if (trivial | search.broken).any():
            delta = np.where(none, -math.inf, np.where(everything, limits.max / 2, delta))
            # From the lowest number all differences are positive, however far apart the logits are.
            pivot = np.where(everything, limits.min, pivot)
            delta = np.where(invalid | search.broken, math.nan, delta)
        root = Dual(*(columns.device(column) for column in (pivot, delta, log_slope)))
        left = np.flatnonzero(~(search.settled | search.broken))
    if sortable and len(left):
        rows = torch.from_numpy(left)
        root.pivot[rows], root.delta[rows] = exact_dual(sample[rows], k.expand(len(sample), 1)[rows], temperature)
    return root


class _Search:
    """What is known about the root of each row, in float64: ``pivot / T - delta``."""

    def __init__(self, columns: Columns, k: np.ndarray, moments: Moments, temperature: float) -> None:
        self.columns, self.axis, self.temperature = columns, columns.axis, temperature
        self.k, self.n, self.pivot = k, moments.present, moments.top
        # If the row were normal, the mean of sigmoid would be close to a normal distribution function.
        self.delta = np.sqrt(moments.variance + _PROBIT**2) * moments.quantile(k) - moments.mean
        self.slope, self.log_slope = np.ones_like(k), None
        self.broken, self.settled = moments.broken.copy(), np.zeros_like(k, dtype=bool)
        self._limits = _LIMITS[self.axis.dtype]
        self._held = isinstance(self.axis, HeldLabels)
        self._cubes = not self._held or self.axis.processes.group is not None  # worth it where passes are expensive
        self._exponentials = None if moments.scaled is None else moments.scaled.exp_()
        self._room: dict[int, Tensor] = {}

    def recenter(self, *bracket: np.ndarray) -> None:
        """Move the pivot to the root, as a number of the dtype of the axis: there ``x - pivot`` loses no digit."""
        limits = torch.finfo(self.axis.dtype)
        center = np.clip(self.pivot - self.temperature * self.delta, limits.min, limits.max)
        center = center.astype(np.float32).astype(np.float64) if self.axis.dtype == torch.float32 else center
        shift = (self.pivot - center) / self.temperature
        for column in (self.delta, *bracket):
            column -= shift
        self.pivot, self._exponentials = center, None

    def start_from(self, sample: Tensor, moments: Moments) -> None:
        """Solve roughly for a sample of the labels first: the best guess for its price."""
        share = np.minimum(moments.seen / np.maximum(self.n, 1), 1)
        columns = Columns(HeldLabels(sample, self.axis.processes), sample)
        rough = _Search(columns, self.k * share, moments._replace(present=self.n * share), self.temperature)
        rough.newton(0.1)
        better = rough.settled & np.isfinite(rough.delta)
        self.pivot = np.where(better, rough.pivot, self.pivot)
        self.delta = np.where(better, rough.delta, self.delta)

    def newton(self, small: float | None = None) -> None:
        """Steps on the log-odds of the mean of p, until they are small or the row is on a plateau."""
        if small is None:
            small = self._limits.third_order if self._cubes else self._limits.second_order
        k, n = self.k, self.n
        low, high = np.full_like(k, -math.inf), np.full_like(k, math.inf)
        stuck = np.zeros_like(self.settled)
        for _ in range(_STEPS):
            rows = chosen_rows(~(self.settled | stuck | self.broken))
            if rows is not None and not len(rows):
                break
            if not (np.abs(self.delta) < self._limits.far).all():
                self.recenter(low, high)
            total, square, cube = self._power_sums(rows)
            old, wanted, count, lowest, highest, settled = take(rows, self.delta, k, n, low, high, self.settled)
            slope = total - square
            bend = total - 3 * square + 2 * cube if self._cubes else np.zeros_like(total)
            step = _third_order_step(total, slope, bend, wanted, count)
            lowest, highest = np.where(total <= wanted, old, lowest), np.where(total >= wanted, old, highest)
            new = old + step
            inside = (new >= lowest) & (new <= highest)
            if not inside.all():
                new = np.where(inside | ~np.isfinite(total), new, middle(lowest, highest))
                new = np.where(np.isfinite(new), new, old)
                put(rows, self.broken, np.isnan(total))
            put(rows, self.settled, settled | (np.abs(step) <= small) & (slope > _STEEP * wanted) & inside)
            put(rows, stuck, ~(slope > _STEEP * total))
            put(rows, self.slope, slope + step * bend)
            for column, values in ((self.delta, new), (low, lowest), (high, highest)):
                put(rows, column, values)
        self.recenter()

    def plateau(self) -> None:
        """Steps on the log-ratio of what is missing to what is too much, for rows that are not settled."""
        if (self.settled | self.broken).all():
            return
        low, high = np.full_like(self.k, -math.inf), np.full_like(self.k, math.inf)
        small, limits = self._limits.plateau, torch.finfo(self.axis.dtype)
        self.log_slope = np.full_like(self.k, math.nan)
        last = np.zeros_like(self.k)
        for number in range(_PLATEAU_STEPS):
            rows = chosen_rows(~(self.settled | self.broken))
            if rows is not None and not len(rows):
                break
            self.recenter(low, high)
            sums = self._log_sums(rows)
            old, wanted, lowest, highest, settled = take(rows, self.delta, self.k, low, high, self.settled)
            gap, rate, depth = sums.log_ratio(wanted)
            lowest, highest = np.where(gap >= 0, old, lowest), np.where(gap <= 0, old, highest)
            step = gap / rate
            if number >= _FREE_STEPS and number % 2:
                # Down a long staircase of labels the steps are short: double them, then halve the bracket.
                (before,) = take(rows, last)
                step = np.where(step * before > 0, np.sign(step) * np.maximum(np.abs(step), 2 * np.abs(before)), step)
                width = highest - lowest
                step = np.where((width > _STAIRS) & (width < 8 * np.abs(before)), np.nan, step)
            new = np.clip(old + step, limits.min / 16, limits.max / 16)
            new = np.where((new >= lowest) & (new <= highest), new, middle(lowest, highest))
            # The difference of two large logarithms resolves no smaller steps.
            done = np.abs(new - old) <= small + 4 * limits.eps * depth
            put(rows, self.delta, np.where(np.isfinite(new), new, old))
            put(rows, self.log_slope, sums.log_slope)
            put(rows, self.settled, done | settled)
            put(rows, self.broken, np.isnan(sums.below) | np.isnan(sums.above))
            if number < _FREE_STEPS or number % 2:
                put(rows, last, new - old)
            put(rows, low, lowest)
            put(rows, high, highest)
        self.recenter()

    def _power_sums(self, rows: np.ndarray | None) -> np.ndarray:
        """The sums of p, p² and p³ over all labels, ``(3, rows)``."""
        (delta,) = take(rows, self.delta)
        lift = self._limits.lift
        # Where the pivot, being huge, cannot move to the root, the sum only has to stay a number.
        scale = self.columns.device(np.exp(-np.clip(delta, -1.5 * self._limits.far, 1.5 * self._limits.far)) / lift)
        sums = self.columns.zeros(len(delta), 3)
        for e in self._exponential_blocks(rows):
            p = torch.add(scale, e, alpha=1 / lift, out=scratch(self._room, 0, e))
            torch.div(e, p, out=p)
            sums[:, 0] += p.sum(-1)
            sums[:, 1] += torch.linalg.vector_norm(p, dim=-1).square_()
            if self._cubes:
                sums[:, 2] += (p * p).mul_(p).sum(-1)
        return self.columns.sum(sums).T / np.array([[lift], [lift**2], [lift**3]])

    def _exponential_blocks(self, rows: np.ndarray | None) -> Iterator[Tensor]:
        """``exp((x - pivot) / T)``; of held logits it is computed once for all steps around a pivot."""
        if self._held and self._exponentials is not None:
            yield self._exponentials if rows is None else self._exponentials[rows]
            return
        pivot = self.columns.device(*take(rows, self.pivot))
        for _, x in self._blocks(rows):
            e = x - pivot
            e = (e if self.temperature == 1 else e.div_(self.temperature)).clamp_(max=self._limits.exponent).exp_()
            if self._held and rows is None:
                self._exponentials = e
            yield e

    def _blocks(self, rows: np.ndarray | None) -> Iterator[tuple[int, Tensor]]:
        return self.axis.blocks(None if rows is None else torch.from_numpy(rows).to(self.columns.place))

    def _log_sums(self, rows: np.ndarray | None) -> LogSums:
        """Sums over the labels below and above p = 1/2, each relative to its largest term."""
        pivot, delta = (self.columns.device(column) for column in take(rows, self.pivot, self.delta))
        sums, tops = self.columns.zeros(len(pivot), 5), self.columns.zeros(len(pivot), 2).sub_(math.inf)
        for _, x in self._blocks(rows):
            y = x - pivot
            add_log_sums(sums, tops, (y if self.temperature == 1 else y.div_(self.temperature)).add_(delta))
        largest = self.axis.processes.max(tops)
        sums[:, :4] *= (tops - largest.clamp(min=-1e300)).exp().repeat(1, 2)
        totals, tops_array = self.columns.sum(sums).reshape(-1, 5), self.columns.host(largest)
        below, above, slope_below, slope_above = (np.log(totals[:, :4]) + np.tile(tops_array, 2)).T
        return LogSums(below, above, slope_below, slope_above, totals[:, 4])


def _third_order_step(
    total: np.ndarray, slope: np.ndarray, bend: np.ndarray, k: np.ndarray, n: np.ndarray
) -> np.ndarray:
    """The change of delta that brings the log-odds of the mean of p to those of k / n."""
    rest = n - total
    missing = np.log(k / (n - k)) - np.log(total / rest)
    weight = 1 / total + 1 / rest
    first = slope * weight
    second = bend * weight + slope**2 * (1 / rest**2 - 1 / total**2)
    step = missing / first
    # Further away the parabola need not have a root nearby.
    correction = np.where(np.abs(step) < 0.5, second * step / (2 * first), 0)
    return np.clip(step * (1 - np.clip(correction, -0.5, 0.5)), -_LONGEST, _LONGEST)


class LogSums(NamedTuple):
    """Per row: logarithms of sums over the labels below and above p = 1/2, and a count; arrays, or tensors.

    On a plateau p and 1 - p underflow together; relative to their largest terms, the sums keep their digits.
    """

    below: Any  # of p
    above: Any  # of 1 - p
    slope_below: Any  # of p (1 - p)
    slope_above: Any  # of p (1 - p)
    count: Any  # how many are above

    @property
    def log_slope(self) -> Any:
        """The logarithm of the sum of p (1 - p) over all labels."""
        return self._math.logaddexp(self.slope_below, self.slope_above)

    def log_ratio(self, k: Any) -> tuple[Any, Any, Any]:
        """The log-ratio of what is missing to what is too much, its rate of decrease in delta, and its size.

        The rate lies between 1/2 and 2: one of the two is a sum of tails that grow or decay exponentially. The size is
        that of the two logarithms whose difference is taken.
        """
        log, exp, logaddexp = self._math.log, self._math.exp, self._math.logaddexp
        left = logaddexp(self.below, log((self.count - k).clip(0)))
        right = logaddexp(self.above, log((k - self.count).clip(0)))
        rate = exp(self.slope_below - left) + exp(self.slope_above - right)
        return right - left, rate.clip(0.25, 2), self._math.maximum(abs(left), abs(right))

    def total(self) -> Any:
        """The sum of p."""
        return self.count - self._math.exp(self.above) + self._math.exp(self.below)

    @property
    def _math(self) -> Any:
        return torch if isinstance(self.count, Tensor) else np


def add_log_sums(sums: Tensor, tops: Tensor, y: Tensor) -> None:
    """Add a block of log-odds, which is overwritten, to the columns of `LogSums` relative to ``exp(tops)``."""
    if not y.shape[-1]:
        return
    above = y >= 0
    sums[:, 4] += above.sum(-1)
    near = y.abs_().neg_().exp()
    log_small, large = y - near.log1p(), 1 / (1 + near)  # log of min(p, 1 - p), and the other of the two
    for side, members in enumerate((~above, above)):
        terms = torch.where(members, log_small, -math.inf)
        before = tops[:, side]
        top = torch.maximum(before, terms.amax(-1).to(before.dtype))
        finite = top.clamp(min=torch.finfo(y.dtype).min)
        terms = (terms - finite.to(y.dtype).unsqueeze(-1)).exp_()
        scale = (before - finite).exp()
        sums[:, side] = sums[:, side] * scale + terms.sum(-1)
        sums[:, 2 + side] = sums[:, 2 + side] * scale + terms.mul_(large).sum(-1)
        tops[:, side] = top

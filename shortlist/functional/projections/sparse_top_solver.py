"""The threshold of sparse-top on any label axis: ``l`` with ``sum_j clip(x_j / T - l, 0, 1) = k``.

The sum is piecewise linear in ``l``, so Newton's method is exact once it reaches the right piece: 3 to 8 passes over
realistic rows. Where the sum is flat, the search continues at the next label. The threshold is kept as
``base / T + offset``, with ``base`` a number of the input's dtype near it, so that an offset of ``x`` costs no digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

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
from shortlist.tensors import at_most_finite, wide

_STEPS, _HELD_STEPS = 200, 16
"""The most passes; rows with all labels at hand are sorted after fewer."""

_FREE_STEPS = 10
"""So many steps may be Newton's as long as they stay in the bracket; later ones must halve the last step."""

_STAIRS = 16.0
"""Later, every other step halves brackets that are wider than this: single steps could follow a long staircase."""

_FAR = 4.0
"""The largest offset before the base is moved: ``x - base`` loses digits far from it."""

_UNIFORM = 1 / 12
"""The variance of a uniform variable, whose distribution function is clip(x, 0, 1)."""


class Threshold(NamedTuple):
    """``p = clip((x - base) / T - offset, 0, 1)`` sums to k; columns ``(B, 1)`` in the dtype of the axis."""

    base: Tensor
    offset: Tensor  # huge if no label is taken, very negative if all are, NaN if the row or its k is invalid

    def project(self, x: Tensor, temperature: float) -> Tensor:
        """p of the logits ``x`` ``(..., n)``."""
        z = at_most_finite(x) - self.base
        return (z if temperature == 1 else z / temperature).sub_(self.offset).clamp_(0, 1)


@torch.no_grad()
def solve_sparse_top(axis: LabelAxis, k: Tensor, temperature: float) -> Threshold:
    """Find the threshold of every row. Rows with all labels at hand are sorted if Newton's method does not settle them.

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
            search.newton(_HELD_STEPS if sortable else _STEPS)
        base, offset = search.base, search.offset
        if (trivial | shared | search.broken).any():
            limits = torch.finfo(axis.dtype)
            base = np.where(shared | none & (moments.infinite > 0), limits.max, np.where(none, moments.top, base))
            # From the lowest number all differences are positive, however far apart the logits are.
            base = np.where(everything, limits.min, base)
            offset = np.where(shared, -k_array / np.maximum(moments.infinite, 1), offset)
            offset = np.where(none, limits.max / 4, np.where(everything, limits.min / 4, offset))
            offset = np.where(invalid | search.broken, math.nan, offset)
        threshold = Threshold(columns.device(base), columns.device(offset))
        left = np.flatnonzero(~(search.settled | search.broken))
    if sortable and len(left):
        rows = torch.from_numpy(left)
        exact = exact_threshold(sample[rows], k.expand(len(sample), 1)[rows], temperature)
        threshold.base[rows], threshold.offset[rows] = exact
    return threshold


class _Search:
    """The threshold of each row, ``base / T + offset``, in float64."""

    def __init__(self, columns: Columns, k: np.ndarray, moments: Moments, temperature: float) -> None:
        self.columns, self.axis, self.temperature, self.k = columns, columns.axis, temperature, k
        self.eps = torch.finfo(self.axis.dtype).eps
        # If the row were normal, the sum would be n times the probability that a label exceeds the threshold plus a
        # uniform variable, and the difference of a normal and a uniform variable is nearly normal.
        quantile, deviation = moments.quantile(k), np.sqrt(moments.variance + _UNIFORM)
        guess = moments.mean - 0.5 - deviation * quantile
        spread = (moments.bottom - moments.top) / temperature
        self.base, self.offset = moments.top, np.where((guess > spread - 1) & (guess < 0), guess, -0.5)
        self.low, self.high = spread - 1, np.zeros_like(k)
        self.rate = np.exp(-0.5 * quantile**2) / math.sqrt(2 * math.pi) / (k / moments.present) / deviation
        self.broken, self.settled = moments.broken.copy(), np.zeros_like(k, dtype=bool)
        self._scaled = moments.scaled
        self._room: dict[int, Tensor] = {}

    def rebase(self) -> None:
        """Move the base to the threshold, as a number of the dtype of the axis."""
        limits = torch.finfo(self.axis.dtype)
        base = np.clip(self.base + self.temperature * self.offset, limits.min, limits.max)
        base = base.astype(np.float32).astype(np.float64) if self.axis.dtype == torch.float32 else base
        shift = (base - self.base) / self.temperature
        self.offset -= shift
        # The bounds must stay bounds after rounding.
        rounding = 4 * np.finfo(np.float64).eps * np.abs(shift)
        self.low, self.high = self.low - shift - rounding, self.high - shift + rounding
        if (base != self.base).any():
            self._scaled = None
        self.base = base

    def newton(self, steps: int) -> None:
        """Safeguarded steps until all rows are settled."""
        last = np.full_like(self.k, math.inf)
        for step_number in range(steps):
            rows = chosen_rows(~(self.settled | self.broken))
            if rows is not None and not len(rows):
                break
            if (np.abs(self.offset) > _FAR).any():
                self.rebase()
            here, k, low, high, rate, previous, settled = take(
                rows, self.offset, self.k, self.low, self.high, self.rate, last, self.settled
            )
            ones, inside, part = self._sums(rows)
            total = ones + part
            miss, over, flat = total - k, total > k, inside == 0
            low, high = np.where(over, here, low), np.where(over, high, here)
            done = np.abs(miss) <= 4 * self.eps * np.maximum(inside, 1)
            ratio = np.log(np.maximum(total, 0.1) / k)
            # From above on the log of the sum, which decays like an exponential.
            step = np.where(over, ratio * total, miss) / np.maximum(inside, 1)
            if (flat & ~done).any():
                step = np.where(flat, self._to_next_label(rows, over), step)
            good = flat | (2 * np.abs(step) <= previous) | (step_number < _FREE_STEPS)
            good &= (here + step > low) & (here + step < high)
            if step_number >= _FREE_STEPS and step_number % 2:
                good &= high - low < _STAIRS
            if not (good | done).all():
                other = ratio / rate
                usable = (here + other > low) & (here + other < high) & (step_number < _FREE_STEPS)
                step = np.where(good | done, step, np.where(usable, other, middle(low, high) - here))
            # A last step of mere rounding would create a kink, where some p are exactly 0 or 1.
            exact = flat | (np.abs(miss) <= 8 * self.eps * np.clip(k, 1e-3, 1))
            new = here + np.where(done, np.where(exact, 0, miss / np.maximum(inside, 1)), step)
            stuck = ~done & ((new <= low) | (new >= high))  # the bounds are neighboring numbers
            new = np.where(stuck, here, new)
            put(rows, last, np.where(flat, math.inf, np.abs(new - here)))
            put(rows, self.settled, settled | done | stuck)
            put(rows, self.broken, np.isnan(total))
            for column, values in ((self.offset, new), (self.low, low), (self.high, high)):
                put(rows, column, values)

    def _blocks(self, rows: np.ndarray | None) -> list[Tensor]:
        """``z = (x - base) / T`` by blocks; of held logits it is computed once for all steps around a base."""
        held = isinstance(self.axis, HeldLabels)
        if held and self._scaled is not None:
            return [self._scaled if rows is None else self._scaled[rows]]
        (base,) = take(rows, self.base)
        base, scaled = self.columns.device(base), []
        for _, x in self.axis.blocks(None if rows is None else torch.from_numpy(rows).to(self.columns.place)):
            z = x - base
            scaled.append(z if self.temperature == 1 else z.div_(self.temperature))
        if held and rows is None:
            self._scaled = scaled[0]
        return scaled

    def _sums(self, rows: np.ndarray | None) -> np.ndarray:
        """How many labels reach 1, how many lie in (0, 1), and the sum of the latter: ``(3, rows)``."""
        (offset,) = take(rows, self.offset)
        column, sums = self.columns.device(offset), self.columns.zeros(len(offset), 3)
        for z in self._blocks(rows):
            p = torch.sub(z, column, out=scratch(self._room, 0, z)).clamp_(0, 1)
            total = p.sum(-1)
            part = p.frac_().sum(-1)
            sums[:, 0] += (total - part).round_()
            sums[:, 2] += part
            sums[:, 1] += p.ceil_().sum(-1)
        return self.columns.sum(sums).T

    def _to_next_label(self, rows: np.ndarray | None, over: np.ndarray) -> np.ndarray:
        """From a flat piece to the middle of the ramp of the next label: upwards where the sum is too large."""
        (offset,) = take(rows, self.offset)
        column, up = self.columns.device(offset), torch.from_numpy(over).to(self.columns.place).unsqueeze(-1)
        nearest = torch.full_like(column, -math.inf)
        for z in self._blocks(rows):
            y = z - column
            # Here p is 0 up to y = 0 and 1 from y = 1 on.
            gap = torch.where(up, torch.where(y >= 1, 1 - y, -math.inf), torch.where(y <= 0, y, -math.inf))
            nearest = torch.maximum(nearest, gap.amax(-1, keepdim=True)) if gap.shape[-1] else nearest
        distance = 0.5 - self.columns.max(nearest.to(wide(nearest)))
        return np.where(over, distance, -distance)


def exact_threshold(x: Tensor, k: Tensor, temperature: float) -> Threshold:
    """The threshold from the sorted breakpoints of ``x`` ``(..., n)``, in float64, without data-dependent branches.

    With b the entry of rank floor(k) + 1, the threshold lies in [b - 1, b]: labels more than 1 above b
    have p = 1, and labels more than 1 below it have p = 0.
    """
    dtype, n = x.dtype, x.shape[-1]
    precision = wide(x)
    largest = torch.finfo(dtype).max
    x, k = at_most_finite(x).to(precision), k.to(precision)
    ordered = x.sort(dim=-1, descending=True).values
    present = (ordered > -math.inf).sum(-1, keepdim=True)
    none, everything = k <= 0, k >= present
    rank = torch.where(everything, present - 1, k.nan_to_num().clamp(0, n - 1).long()).clamp(min=0)
    base = torch.where(none, ordered[..., :1], ordered.gather(-1, rank)).clamp(min=-largest)
    z = ((ordered - base) / temperature).clamp(-1.5, 1.5)

    points, order = torch.cat([z, z - 1], dim=-1).sort(dim=-1, descending=True)
    slope = torch.where(order < n, 1.0, -1.0).to(precision).cumsum(-1)[..., :-1]
    sums = (slope * -points.diff(dim=-1)).cumsum(-1)
    piece = (sums < k).sum(-1, keepdim=True).clamp(max=2 * n - 2)
    offset = points.gather(-1, piece + 1) + (sums.gather(-1, piece) - k) / slope.gather(-1, piece).clamp(min=1)
    for _ in range(2):  # rounding of the long sums
        p = (z - offset).clamp(0, 1)
        offset = offset + (p.sum(-1, keepdim=True) - k) / p.frac().ceil().sum(-1, keepdim=True).clamp(min=1)

    offset = torch.where(none, largest / 4, torch.where(everything, -largest / 4, offset))
    valid = (k >= 0) & (k <= n) & ~ordered[..., :1].isnan()  # NaN sorts first
    offset = torch.where(valid, offset, math.nan)
    return Threshold(base.to(dtype), offset.to(dtype))

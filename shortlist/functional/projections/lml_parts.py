"""The root of the LML projection where a row's labels are in parts, and only sums over them can be had.

A pass over the labels is costly here: it computes products, or waits for other processes. So each pass brings the sums
of p, p² and p³, which give a step of third order and, with the last step, the slope at the root. Rows on a plateau,
where the sum of p rounds to k long before the root is known, go on by the logarithms of two sums of positive terms: p
over the labels with p < 1/2, and 1 - p over the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.functional.projections.lml_log_sums import LogSums, log_sums
from shortlist.label_axis.axis import HeldLabels, LabelAxis

_STEPS = 12
_PLATEAU_STEPS = 100

_STEEP = 0.03
"""The least slope, as a share of k, at which the plain sum of p is trusted: it knows the root to eps * k / slope."""

_LONGEST = 4.0
"""A step on the plain sum is cut to this length."""

_PROBIT = 1.7
"""The logistic function is close to the normal distribution function of this deviation."""

_SEEN = 60.0
"""For the first guess, labels further from the largest one than this count as this far."""

_LIFT = {torch.float32: 2.0**20, torch.float64: 2.0**60}
"""p is held times this factor: the cubes of small ones would be subnormal, which is slow."""

_SMALL = {torch.float32: 1e-3, torch.float64: 1e-6}
"""After a step this small the root is off by about its cube, and the slope by about its square."""

_SETTLED = {torch.float32: 1e-7, torch.float64: 1e-13}
"""The same for steps on a plateau, which leave the slope off by about themselves."""


_COARSE = 8 * torch.finfo(torch.float64).eps


class Dual(NamedTuple):
    """``p = sigmoid((x - pivot) / T + delta)`` sums to k; columns ``(B, 1)`` in the dtype of the rows."""

    pivot: Tensor  # finite, and near the root: the difference keeps its digits whatever the offset of x
    delta: Tensor  # huge where all labels are taken, -inf where none is, NaN where the row or its k is no good
    log_slope: Tensor  # log of the sum of p (1 - p)


@torch.no_grad()
def solve_parts(parts: LabelAxis, k: Tensor, temperature: float) -> Dual:
    """Find the root of every row.

    All processes take the same steps, since they decide by what they have reduced together.

    Args:
        parts: the rows.
        k: broadcastable to ``(B, 1)``; NaN and negative values make their rows NaN, and where no more than ``k`` labels
            are present all are taken.
        temperature: ``T``.
    """
    present = parts.present()
    k = k.to(present.dtype).expand(present.shape)
    none, everything, broken = k <= 0, k >= present, ~(k >= 0)
    outer = none | everything | broken
    wanted = torch.where(outer, present / 2, k)
    sample = parts.sample()
    guess = _first_guess(parts, sample, wanted, present, temperature)
    state = _State(parts, wanted, present, guess.pivot, guess.delta, temperature)
    certain = ~outer & (guess.infinite >= k)
    state.settled |= outer | certain
    state.broken |= guess.spoilt
    if present.numel():
        state.guess_from(sample, guess.seen)
        state.newton()
        state.plateau()
    limits = torch.finfo(parts.dtype)
    # Infinite logits, being equal, share what there are places for; the others get nothing.
    share = (k / guess.infinite.clamp(min=1)).clamp(0, 1)
    state.pivot = torch.where(certain, limits.max, state.pivot)
    state.delta = torch.where(certain, share.logit().clamp(max=limits.max / 16 / max(1, temperature)), state.delta)
    state.log_slope = torch.where(certain, (k * (1 - share)).log().clamp(min=limits.min / 4), state.log_slope)
    state.delta = torch.where(none, -math.inf, torch.where(everything, limits.max / 2, state.delta))
    state.delta = torch.where(broken | state.broken, math.nan, state.delta)
    return Dual(*(column.to(parts.dtype) for column in (state.pivot, state.delta, state.log_slope)))


@dataclass
class _State:
    """What is known of the root of each row, in float64: ``pivot / T - delta``."""

    parts: LabelAxis
    k: Tensor
    n: Tensor
    pivot: Tensor
    delta: Tensor
    temperature: float

    def __post_init__(self) -> None:
        self.log_slope = torch.zeros_like(self.k)
        self.broken = torch.zeros_like(self.k, dtype=torch.bool)
        self.settled = torch.zeros_like(self.broken)

    def centre(self, *bracket: Tensor) -> None:
        """Move the pivot to the root, as a number of the rows' dtype: no digit of ``x - pivot`` is lost there."""
        limits = torch.finfo(self.parts.dtype)
        centre = (self.pivot - self.temperature * self.delta).clamp(limits.min / 4, limits.max / 4)
        centre = centre.to(self.parts.dtype).to(self.pivot.dtype)
        shift = (self.pivot - centre) / self.temperature
        for column in (self.delta, *bracket):
            column -= shift
        self.pivot = centre

    def guess_from(self, sample: Tensor, seen: Tensor) -> None:
        """Solve for the sample first, if it is not everything: as good a guess as can be had for the price."""
        share = (seen / self.n.clamp(min=1)).clamp(max=1)
        if bool((share >= 0.5).all()):
            return
        few = _State(
            HeldLabels(sample, self.parts.processes),
            self.k * share,
            self.n * share,
            self.pivot,
            self.delta,
            self.temperature,
        )
        few.newton(enough=0.1)
        better = few.settled & few.delta.isfinite()
        self.pivot = torch.where(better, few.pivot, self.pivot)
        self.delta = torch.where(better, few.delta, self.delta)

    def newton(self, enough: float | None = None) -> None:
        """Steps on the log-odds of the mean of p, until they are small or on a plateau."""
        k, n = self.k, self.n
        low, high = torch.full_like(k, -math.inf), torch.full_like(k, math.inf)
        small = _SMALL[self.parts.dtype] if enough is None else enough
        stuck = torch.zeros_like(self.settled)
        for _ in range(_STEPS):
            rows = _chosen(~(self.settled | stuck | self.broken))
            if rows is not None and not len(rows):
                break
            self.centre(low, high)
            total, square, cube = self._moments(rows)
            old, wanted, count, lowest, highest = _taken(rows, self.delta, k, n, low, high)
            slope, bend = total - square, total - 3 * square + 2 * cube
            step = _third_order_step(total, slope, bend, wanted, count)
            lowest = torch.where(total <= wanted, old, lowest)
            highest = torch.where(total >= wanted, old, highest)
            new = old + step
            outside = ~((new >= lowest) & (new <= highest))
            new = torch.where(outside & total.isfinite(), _between(lowest, highest), new)
            done = (step.abs() <= small) & (slope > _STEEP * wanted) & ~outside
            _put(rows, self.delta, torch.where(new.isfinite(), new, old))
            _put(rows, self.log_slope, (slope + step * bend).clamp(min=1e-300).log())
            _put(rows, self.settled, done | _taken(rows, self.settled)[0])
            _put(rows, stuck, ~(slope > _STEEP * total))
            _put(rows, self.broken, total.isnan())
            _put(rows, low, lowest)
            _put(rows, high, highest)
        self.centre()

    def plateau(self) -> None:
        """Steps on the log-ratio of what is missing above to what is left below, for the rows that are not settled."""
        low, high = torch.full_like(self.k, -math.inf), torch.full_like(self.k, math.inf)
        small, limits = _SETTLED[self.parts.dtype], torch.finfo(self.parts.dtype)
        for _ in range(_PLATEAU_STEPS):
            rows = _chosen(~(self.settled | self.broken))
            if rows is not None and not len(rows):
                break
            self.centre(low, high)
            sums = self._log_sums(rows)
            old, wanted, lowest, highest = _taken(rows, self.delta, self.k, low, high)
            gap, rate, depth = sums.log_ratio(wanted)
            lowest = torch.where(gap >= 0, old, lowest)
            highest = torch.where(gap <= 0, old, highest)
            new = (old + gap / rate).clamp(limits.min / 16, limits.max / 16)
            outside = ~((new >= lowest) & (new <= highest))
            new = torch.where(outside, _between(lowest, highest), new)
            # A difference of two large logarithms knows no smaller steps.
            done = (new - old).abs() <= small + 4 * limits.eps * depth
            _put(rows, self.delta, torch.where(new.isfinite(), new, old))
            _put(rows, self.log_slope, sums.log_slope)
            _put(rows, self.settled, done | _taken(rows, self.settled)[0])
            _put(rows, self.broken, sums.below.isnan() | sums.above.isnan())
            _put(rows, low, lowest)
            _put(rows, high, highest)
        self.centre()

    def _log_odds(self, rows: Tensor | None) -> Iterator[Tensor]:
        pivot, delta = (column.to(self.parts.dtype) for column in _taken(rows, self.pivot, self.delta))
        for _, x in self.parts.blocks(rows):
            y = x - pivot
            yield (y if self.temperature == 1 else y.div_(self.temperature)).add_(delta)

    def _moments(self, rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The sums of p, p² and p³ over all labels."""
        lift = _LIFT[self.parts.dtype]
        sums = torch.zeros_like(_taken(rows, self.k)[0]).repeat(1, 3)
        for y in self._log_odds(rows):
            p = y.sigmoid_().mul_(lift)
            square = p * p
            sums[:, 0] += p.sum(-1)
            sums[:, 1] += square.sum(-1)
            sums[:, 2] += square.mul_(p).sum(-1)
        total, square, cube = self.parts.processes.sum(sums).split(1, dim=-1)
        return total / lift, square / lift**2, cube / lift**3

    def _log_sums(self, rows: Tensor | None) -> LogSums:
        """Sums over the labels below and above p = 1/2, each beside its largest term."""
        return log_sums(self._log_odds(rows), len(_taken(rows, self.k)[0]), self.parts)


class _Guess(NamedTuple):
    """Of each row, in float64."""

    pivot: Tensor  # the largest finite logit
    delta: Tensor  # where the root would lie if the row were normal
    seen: Tensor  # how many finite logits the sample has
    infinite: Tensor  # how many logits are +inf
    spoilt: Tensor  # whether there is a NaN


def _first_guess(parts: LabelAxis, sample: Tensor, k: Tensor, n: Tensor, temperature: float) -> _Guess:
    seen = sample.isfinite()
    finite = torch.where(seen, sample, -math.inf)
    top = finite.amax(-1, keepdim=True) if sample.shape[-1] else finite.new_full((len(sample), 1), -math.inf)
    pivot = parts.processes.max(top.to(k.dtype))
    pivot = torch.where(pivot > -math.inf, pivot, 0)
    z = torch.where(seen, (sample - pivot.to(sample.dtype)) / temperature, 0).clamp(min=-_SEEN)
    counted = (seen, z, z * z, sample == math.inf, sample.isnan())
    sums = parts.processes.sum(torch.stack([part.sum(-1).to(k.dtype) for part in counted], -1))
    count, total, square, infinite, spoilt = sums.split(1, dim=-1)
    mean = total / count.clamp(min=1)
    variance = (square / count.clamp(min=1) - mean * mean).clamp(min=0)
    quantile = torch.special.ndtri((k / n.clamp(min=1)).clamp(1e-300, 1 - 1e-16))
    return _Guess(pivot, (variance + _PROBIT**2).sqrt() * quantile - mean, count, infinite, spoilt > 0)


def _third_order_step(total: Tensor, slope: Tensor, bend: Tensor, k: Tensor, n: Tensor) -> Tensor:
    """The change of delta that brings the log-odds of the mean of p to those of k / n."""
    rest = n - total
    missing = (k / (n - k)).log() - (total / rest).log()
    weight = 1 / total + 1 / rest
    first = slope * weight
    second = bend * weight + slope**2 * (1 / rest**2 - 1 / total**2)
    step = missing / first
    # Further off, the parabola need not have a root nearby.
    correction = torch.where(step.abs() < 0.5, second * step / (2 * first), 0)
    return (step * (1 - correction.clamp(-0.5, 0.5))).clamp(-_LONGEST, _LONGEST)


def _between(low: Tensor, high: Tensor) -> Tensor:
    """The middle of a bracket, or a way off its only end."""
    far = 1 + torch.where(low.isfinite(), low, high).abs()
    low, high = torch.where(low.isfinite(), low, high - far), torch.where(high.isfinite(), high, low + far)
    return low / 2 + high / 2


def _chosen(waiting: Tensor) -> Tensor | None:
    """Indices of the rows that wait; None for all, when it is not worth taking them out."""
    rows = waiting.squeeze(-1).nonzero().squeeze(-1)
    return None if 2 * len(rows) > len(waiting) else rows


def _taken(rows: Tensor | None, *columns: Tensor) -> list[Tensor]:
    return list(columns) if rows is None else [column[rows] for column in columns]


def _put(rows: Tensor | None, column: Tensor, values: Tensor) -> None:
    if rows is None:
        column.copy_(values)
    else:
        column[rows] = values

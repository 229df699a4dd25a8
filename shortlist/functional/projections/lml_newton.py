"""Newton's method for the LML root: ``s`` with ``sum_j e_j / (e_j + s) = k``.

Two forms of the equation are nearly linear, each where the other is flat:

- the log-odds of the mean of p, away from plateaus. It needs the sums of p and of p squared.
- on a plateau, where the sum of p rounds to ``k`` long before ``s`` is known, the log-ratio of two sums of
  positive terms: p over the labels with p < 1/2, and 1 - p over the others. It needs the split sums.

The per-row scalars are numpy arrays in float64: on a few hundred values a numpy call costs a
fraction of a tensor operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.blocks import column, row_blocks

_MAX_STEPS = 12
"""Steps before a row is left to the exact solver."""

_STEEP = 0.03
"""The least slope, as a share of k, at which the plain sum of p is trusted: it knows s to eps * k / slope."""


_PROBIT = 1.7
"""The logistic function is close to the normal distribution function of this deviation."""


class _Limits(NamedTuple):
    """Where the method may be trusted, by dtype."""

    step: float  # a Newton step this small leaves an error of about its square
    smallest: float  # below this scale, exponentials or their lowered sums have lost digits
    underflow: float  # what may be missing of an exponential, over the error of the root that it may cause
    lift: float  # p is held times this factor: subnormal squares would be correct but slow


_LIMITS = {
    torch.float32: _Limits(step=1e-3, smallest=1e-20, underflow=1.2e-38 / 1e-6, lift=2.0**50),
    torch.float64: _Limits(step=1e-9, smallest=1e-200, underflow=2.3e-308 / 1e-15, lift=2.0**300),
}


def newton_blocks(
    x: Tensor, k: Tensor, temperature: float, *, buffer: Tensor | None = None
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, Tensor]]:
    """Solve the rows of ``x`` ``(rows, n)`` in blocks, on the CPU.

    Yields:
        The rows of a block, their pivots (largest entries), exponentials and scales, and the indices of the rows
        left unsettled.
    """
    for block in row_blocks(x):
        pivot = x[block].amax(-1, keepdim=True)
        work = torch.empty_like(x[block]) if buffer is None else buffer[block]
        with np.errstate(all="ignore"):
            e, scale, settled = _newton_block(x[block], k[block], pivot, temperature, work)
        left = torch.from_numpy(np.flatnonzero(~settled) + block.start)
        yield block, pivot, e, scale, left


def _newton_block(
    x: Tensor, k: Tensor, pivot: Tensor, temperature: float, buffer: Tensor
) -> tuple[Tensor, Tensor, np.ndarray]:
    limits, n = _LIMITS[x.dtype], x.shape[-1]
    e = x - pivot
    if temperature != 1:
        e.div_(temperature)
    mean = column(e.sum(-1, keepdim=True)) / n
    variance = column(torch.linalg.vector_norm(e, dim=-1, keepdim=True)) ** 2 / n - mean * mean
    e.exp_()
    wanted = column(k)
    largest = column(e.sum(-1, keepdim=True)) / wanted  # p < e / s, so the root lies below
    # Were the row normal, the mean of sigmoid would be close to a normal distribution function.
    guess = mean - np.sqrt(variance + _PROBIT**2) * column(torch.special.ndtri(k / n))
    first = np.fmin(np.exp(np.minimum(np.maximum(guess, -50), 50)), largest)
    scale = torch.from_numpy(first).to(x.dtype)

    s, step, slope = _mean_newton(e, buffer, scale, first, largest, wanted, limits)
    settled = (np.abs(step) <= limits.step) & (slope > _STEEP * wanted)
    if not settled.all():
        s, step, slope = _split_newton(e, buffer, scale, largest, wanted, limits)
        settled = np.abs(step) <= limits.step
    return e, scale, settled & (s > 10 * limits.smallest) & (n * limits.underflow < s * slope)


def _mean_newton(
    e: Tensor,
    p: Tensor,
    scale: Tensor,
    s: np.ndarray,
    largest: np.ndarray,
    k: np.ndarray,
    limits: _Limits,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps on the log-odds of the mean until all are small or on a plateau.

    Moves ``scale`` in place; returns it in float64 with the last step and slope.
    """
    n, lower = e.shape[-1], 1 / limits.lift
    sums = e.new_empty(2, *scale.shape)
    total_out, norm_out = sums.unbind()
    lifted, to_mean = sums.numpy(), np.array([lower / n, lower / n**0.5])[:, None, None]
    odds, target, flat = k / (n - k), scale.numpy(), _STEEP / n * k
    step = slope = np.full_like(s, np.inf)
    for _ in range(_MAX_STEPS):
        torch.add(scale * lower, e, alpha=lower, out=p)
        torch.div(e, p, out=p)
        torch.sum(p, -1, keepdim=True, out=total_out)
        torch.linalg.vector_norm(p, dim=-1, keepdim=True, out=norm_out)
        mean, norm = lifted * to_mean
        slope, rest = mean - norm * norm, 1 - mean
        step = np.log(odds * rest / mean) * (mean * rest / slope)
        s = np.minimum(s * np.exp(np.fmin(np.fmax(-step, -4), 4)), largest)
        target[:] = s
        if not ((np.abs(step) > limits.step) & (slope > flat)).any():
            break
    return s, step, slope * n


def _split_newton(
    e: Tensor, buffer: Tensor, scale: Tensor, largest: np.ndarray, k: np.ndarray, limits: _Limits
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As ``_mean_newton``, by the split sums: safe on plateaus, at twice the cost."""
    n, target = e.shape[-1], scale.numpy()
    s = column(scale)
    low, high = np.full_like(s, limits.smallest), largest
    small = torch.empty_like(e)
    step = slope = np.full_like(s, np.inf)
    for _ in range(_MAX_STEPS):
        sums = _split_sums(e, scale, buffer, small, limits.lift)
        new, low, high = _split_step(s, (low, high), sums, k, n)
        step, slope, s = np.log(new / s), sums[3], new
        target[:] = s
        if ((np.abs(step) <= limits.step) | ~(s > 2 * limits.smallest)).all():
            break
    return s, step, slope


def _split_sums(e: Tensor, s: Tensor, side: Tensor, small: Tensor, lift: float) -> tuple[np.ndarray, ...]:
    torch.add(s / lift, e, alpha=1 / lift, out=side)
    torch.minimum(e, s, out=small).div_(side)  # min(p, 1 - p), lifted
    torch.gt(e, s, out=side)
    count = column(side.sum(-1, keepdim=True))
    above = column(side.mul_(small).sum(-1, keepdim=True)) / lift
    both = column(small.sum(-1, keepdim=True)) / lift
    square = (column(torch.linalg.vector_norm(small, dim=-1, keepdim=True)) / lift) ** 2
    return both - above, above, count, both - square


def _split_step(
    s: np.ndarray, bracket: tuple[np.ndarray, np.ndarray], sums: tuple[np.ndarray, ...], k: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One safeguarded step: the new scale and its bracket.

    ``sums`` are, over the row: p where p < 1/2 (``below``), 1 - p elsewhere (``above``), the number of the
    latter (``count``), and p (1 - p). The log-ratio form is used on plateaus, the log-odds form elsewhere.
    """
    low, high = bracket
    below, above, count, slope = sums
    excess = (below - above) + (count - k)
    mean_step = (np.log1p(-excess / (n - k)) - np.log1p(excess / k)) * ((k + excess) * (n - k - excess) / (n * slope))
    left = below + (count - k) * (count > k)
    right = above + (k - count) * (count < k)
    unsettled = below + above
    ratio_step = np.log(right / left) * unsettled / (slope * (below / left + above / right))
    step = np.where(unsettled < 0.5, ratio_step, mean_step)
    low, high = np.where(excess >= 0, s, low), np.where(excess <= 0, s, high)
    new = s * np.exp(-step)
    inside = (new >= low) & (new <= high)
    return np.where(inside, new, np.maximum(np.sqrt(low) * np.sqrt(high), s * 1e-7)), low, high

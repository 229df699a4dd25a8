"""Elementary symmetric polynomials by the law of the number of labels: one program per row.

The same mathematics as on the CPU (`shortlist.functional.symmetric_polynomials`), in float32: a shift under which
``k - 1/2`` labels are expected, and a Fourier sum of the characteristic function. A row searches its own shift by
Newton's method, safeguarded by bisection. For labels of p up to 1/8 the logarithm of a factor is a power series, so
their sums of powers serve all angles; the others, less than 8 k, are listed in a buffer and multiplied out. The list
holds p, or ``p - 1`` above 1/2, so that a label which is nearly certain keeps its digits: with ``r = 1 - p`` its factor
is ``t (1 + r (1/t - 1))``, and the powers of t are gathered in one.

A row that fits a block is read once; a longer one is read once per step of the search and twice more.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_BLOCK = 4096
"""A row of at most this many labels stays in registers; longer ones are read in blocks of half that size."""

_HEAVY = tl.constexpr(1 / 8)
"""Labels of a larger p are multiplied out: as ``|t - 1| <= 2`` on the circle, the series of others converge as 4^-m."""

_POWERS = tl.constexpr(16)
"""Room for the terms of the series."""

_CLOSE = tl.constexpr(0.05)
"""The number of expected labels may be that far from ``k - 1/2``."""

_MOST_STEPS = tl.constexpr(300)
_SCALED = tl.constexpr(1 / 1024)
"""Sums of logits are held times this, so that they overflow only if the result does."""

_LARGEST = tl.constexpr(3.4028234663852886e38)


def log_coefficient(
    x: Tensor,
    k: int,
    ratio: bool,
    derivatives: bool,
    *,
    own: Tensor | None = None,
    hidden: Tensor | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """``log S_k``, or ``log (S_k / S_(k-1))``, of the exponentials of each row, and its derivatives.

    Args:
        x: ``(..., n)``, float32 or half precision.
        k: from 1 to n, at most 128.
        ratio: whether to divide by ``S_(k-1)``.
        derivatives: whether to compute them; else an empty tensor is returned.
        own: with ``ratio``, the index of one label per row, ``(rows,)``: the polynomials are those of
            ``scale (x - x_own)``, and the derivatives are by ``x``.
        hidden: ``(rows,)``, whether ``own`` is left out of the polynomials; None if it is in every row.
        scale: positive; 1 without ``own``.

    Returns:
        ``(..., 1)`` in float32, and ``(..., n)`` in the dtype of ``x``, in float32 for float16.
    """
    n = x.shape[-1]
    rows = x.reshape(-1, n).contiguous()
    value = torch.empty(len(rows), dtype=torch.float32, device=x.device)
    # float16 would lose small slopes, which a scaled gradient may multiply.
    kept = torch.float32 if x.dtype == torch.float16 else x.dtype
    slopes = torch.empty(rows.shape if derivatives else 0, dtype=kept, device=x.device)
    capacity = 8 * k + 8
    listed = torch.empty(len(rows), 2 * capacity, dtype=torch.float32, device=x.device)
    half, points = angles(k, n)
    block = _block(n)
    _law[(len(rows),)](
        rows,
        rows if own is None else own,
        rows if hidden is None else hidden,
        value,
        slopes,
        listed,
        n,
        k,
        capacity,
        float(scale),
        half,
        points,
        _terms(k),
        RATIO=ratio,
        DERIVATIVES=derivatives,
        BESIDE=own is not None,
        ALL_HIDDEN=hidden is None,
        ONE=n <= block,
        BLOCK=block,
        ANGLES=triton.next_power_of_2(half),
        num_warps=_warps(block),
    )
    return value.view(*x.shape[:-1], 1), slopes.view(x.shape) if derivatives else slopes


def _block(n: int) -> int:
    """The number of labels that a program takes at a time."""
    return triton.next_power_of_2(n) if n <= LARGEST_BLOCK else LARGEST_BLOCK // 2


def _warps(block: int) -> int:
    # At 1024 labels, more warps with fewer registers each spill on sm_80 or sm_90.
    return 2 if block <= 1024 else 8 if block <= 2048 else 16


def _terms(k: int) -> int:
    """How many powers of 1/4 make the rest of a series negligible."""
    return min(16, math.ceil(math.log(2 * k / torch.finfo(torch.float32).eps, 4)))


def angles(k: int, n: int) -> tuple[int, int]:
    """How many angles in (0, pi) are needed, and how many there are on the whole circle.

    As on the CPU, by Bennett's inequality, for the largest variance that any row can have.
    """
    variance = max(min(k, n - k + 1, n / 4), 0.5)
    needed = -math.log(torch.finfo(torch.float32).eps) + 2 * math.log(2 + variance)
    reach = 1
    while reach < n and (variance + reach) * math.log1p(reach / variance) - reach < needed:
        reach += 1
    half = (min(reach, n) + 2) // 2
    return half, 2 * half + 1


def compile_cases(block: int) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Kernels with the types of their arguments and their constants, to compile them without a device."""
    types = dict.fromkeys(["x_ptr", "value_ptr", "slope_ptr", "listed_ptr"], "*fp32")
    types |= {"own_ptr": "*i64", "hidden_ptr": "*i1", "scale": "fp32"}
    types |= dict.fromkeys(["n", "k", "capacity", "half", "points", "terms"], "i32")
    size = _block(block)
    common = {"BLOCK": size, "ONE": block <= size, "DERIVATIVES": True}
    alone = {**common, "RATIO": False, "BESIDE": False, "ALL_HIDDEN": True}
    beside = {**common, "RATIO": True, "BESIDE": True, "ALL_HIDDEN": False}

    def case(constants: dict[str, Any], k: int) -> tuple[Any, dict[str, str], dict[str, Any], int]:
        half, _ = angles(k, block)
        return _law, types, {**constants, "ANGLES": triton.next_power_of_2(half)}, _warps(size)

    return {
        "log_symmetric": case(alone, 5),
        "log_symmetric_value": case({**alone, "DERIVATIVES": False}, 5),
        "log_symmetric_largest_k": case(alone, 128),
        "log_symmetric_ratio": case(beside, 5),
        "log_symmetric_ratio_largest_k": case(beside, 128),
    }


@triton.jit
def _block_of(row_ptr, start, n, own, own_value, scale, BESIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The logits of a block; absent ones and those beyond the row are -inf, and +inf is the largest number."""
    columns = start + tl.arange(0, BLOCK)
    x = tl.load(row_ptr + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
    if BESIDE:
        x = tl.where(columns == own, -float("inf"), (x - own_value) * scale)
        x = tl.where(columns < n, x, -float("inf"))
    return tl.where(x > _LARGEST, _LARGEST, x)


@triton.jit
def _extremes(x, top, bottom, present, spoiled, total):
    """Update the maximum, the minimum of what is present, counts, and the sum of exponentials relative to the top."""
    is_present = x > -float("inf")
    new = tl.maximum(top, tl.max(tl.where(is_present, x, -_LARGEST), 0))
    bottom = tl.minimum(bottom, tl.min(tl.where(is_present, x, _LARGEST), 0))
    part = tl.sum(tl.where(is_present, tl.exp(x - new), 0.0), 0)
    total = total * tl.exp(top - new) + part
    spoiled += tl.sum((x != x).to(tl.int32), 0)
    return new, bottom, present + tl.sum(is_present.to(tl.int32), 0), spoiled, total


@triton.jit
def _sigmoids(y):
    """``sigmoid(y)`` and ``sigmoid(-y)``, both with all digits."""
    small = tl.exp(-tl.abs(y))
    large = 1 / (1 + small)
    return tl.where(y > 0, large, small * large), tl.where(y > 0, small * large, large)


@triton.jit
def _sine_and_cosine(x):
    """Within 1e-7, for angles up to some hundred; the general functions would need a stack."""
    turns = tl.floor(x * 0.15915494309189535 + 0.5)
    half = ((x - turns * 6.28125) - turns * 0.0019353071795864769) * 0.5
    z = half * half  # half an angle is at most pi / 2
    sine = 1 + z * (-1.6666666e-1 + z * (8.333333e-3 + z * (-1.984127e-4 + z * (2.7557319e-6 - z * 2.50521084e-8))))
    sine *= half
    cosine = -0.5 + z * (
        4.1666668e-2 + z * (-1.3888889e-3 + z * (2.4801587e-5 + z * (-2.7557319e-7 + z * 2.0876757e-9)))
    )
    cosine = 1 + z * cosine
    return 2 * sine * cosine, 1 - 2 * sine * sine


@triton.jit
def _counted(x, pivot, delta):
    """How many labels are expected, and the derivative by delta."""
    p, rest = _sigmoids(x - pivot + delta)
    return tl.sum(p, 0), tl.sum(p * rest, 0)


@triton.jit
def _expected(
    held, row_ptr, n, own, own_value, scale, pivot, delta, BESIDE: tl.constexpr, ONE: tl.constexpr, BLOCK: tl.constexpr
):
    if ONE:
        count, slope = _counted(held, pivot, delta)
    else:
        count, slope = 0.0, 0.0
        for start in range(0, n, BLOCK):
            part, rise = _counted(_block_of(row_ptr, start, n, own, own_value, scale, BESIDE, BLOCK), pivot, delta)
            count += part
            slope += rise
    return count, slope


@triton.jit
def _newton(count, slope, wanted, present):
    """The step of delta, for the logarithm of the expected number, present or absent: whichever is smaller."""
    absent, left = present - count, present - wanted
    few = wanted <= left
    rise = tl.log(wanted / tl.maximum(count, 1e-30)) * count
    fall = tl.log(tl.maximum(absent, 1e-30) / left) * absent
    return tl.where(few, rise, fall) / tl.maximum(slope, 1e-30)


@triton.jit
def _summed(x, pivot, delta, listed_ptr, listed, capacity, sums, sure, log_sum, terms):
    """Add the powers of small p to ``sums``, list the other p, and count those above 1/2."""
    y = x - pivot + delta
    p, rest = _sigmoids(y)
    heavy, above = p > _HEAVY, y > 0
    place = listed + tl.cumsum(heavy.to(tl.int32), 0) - 1
    tl.store(listed_ptr + place, tl.where(above, -rest, p), mask=heavy & (place < capacity))
    listed += tl.sum(heavy.to(tl.int32), 0)
    sure += tl.sum(above.to(tl.int32), 0)
    # log(1 + exp y) is max(y, 0) - log max(p, 1 - p); what y holds of pivot and delta is added at the end.
    log_sum += tl.sum(tl.where(heavy, (tl.where(above, x, 0.0) - tl.log(tl.maximum(p, rest))) * _SCALED, 0.0), 0)
    light = tl.where(heavy, 0.0, p)
    power = light
    lanes = tl.arange(0, _POWERS)
    for m in range(terms):
        sums = tl.where(lanes == m, sums + tl.sum(power, 0), sums)
        power *= light
    return listed, sums, sure, log_sum


@triton.jit
def _sloped(x, pivot, delta, brackets_ptr, listed, capacity, series, terms, RATIO: tl.constexpr):
    """The derivatives by the log-odds, and how many p have been found in the list."""
    y = x - pivot + delta
    p, rest = _sigmoids(y)
    heavy = p > _HEAVY
    place = listed + tl.cumsum(heavy.to(tl.int32), 0) - 1
    bracket = tl.zeros_like(p)
    lanes = tl.arange(0, _POWERS)
    for m in range(terms):
        bracket = bracket * p + tl.sum(tl.where(lanes == terms - 1 - m, series, 0.0), 0)
    bracket = tl.where(heavy, tl.load(brackets_ptr + place, mask=heavy & (place < capacity), other=0.0), bracket)
    slope = p * rest * bracket
    if not RATIO:
        slope = tl.maximum(slope + p, 0.0)
    return slope, listed + tl.sum(heavy.to(tl.int32), 0)


@triton.jit
def _law(
    x_ptr,
    own_ptr,
    hidden_ptr,
    value_ptr,
    slope_ptr,
    listed_ptr,
    n,
    k,
    capacity,
    scale,
    half,
    points,
    terms,
    RATIO: tl.constexpr,
    DERIVATIVES: tl.constexpr,
    BESIDE: tl.constexpr,
    ALL_HIDDEN: tl.constexpr,
    ONE: tl.constexpr,
    BLOCK: tl.constexpr,
    ANGLES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr, listed_ptr = x_ptr + row * n, listed_ptr + row * 2 * capacity
    brackets_ptr = listed_ptr + capacity
    own, own_index, own_value = -1, -1, 0.0
    if BESIDE:
        own_index = tl.load(own_ptr + row).to(tl.int32)
        inside = (own_index >= 0) & (own_index < n)
        own_value = tl.load(row_ptr + own_index, mask=inside, other=float("nan")).to(tl.float32)
        own = own_index
        if not ALL_HIDDEN:
            own = tl.where(tl.load(hidden_ptr + row) != 0, own_index, -1)

    top, bottom = tl.full([], -_LARGEST, tl.float32), tl.full([], _LARGEST, tl.float32)
    present, spoiled, total = 0, 0, 0.0
    held = _block_of(row_ptr, 0, n, own, own_value, scale, BESIDE, BLOCK)
    top, bottom, present, spoiled, total = _extremes(held, top, bottom, present, spoiled, total)
    for start in range(BLOCK, n, BLOCK):
        x = _block_of(row_ptr, start, n, own, own_value, scale, BESIDE, BLOCK)
        top, bottom, present, spoiled, total = _extremes(x, top, bottom, present, spoiled, total)
    solvable = (present >= k) & (spoiled == 0)
    pivot, delta = _shift(
        held, row_ptr, n, own, own_value, scale, k, top, bottom, present, total, solvable, BESIDE, ONE, BLOCK
    )

    listed, sure, log_sum, sums = 0, 0, 0.0, tl.zeros([_POWERS], tl.float32)
    if ONE:
        listed, sums, sure, log_sum = _summed(
            held, pivot, delta, listed_ptr, listed, capacity, sums, sure, log_sum, terms
        )
    else:
        for start in range(0, n, BLOCK):
            x = _block_of(row_ptr, start, n, own, own_value, scale, BESIDE, BLOCK)
            listed, sums, sure, log_sum = _summed(
                x, pivot, delta, listed_ptr, listed, capacity, sums, sure, log_sum, terms
            )
    listed = tl.minimum(listed, capacity)
    tl.debug_barrier()  # the list is read by other threads than those that wrote it

    high, low, high_re, high_im, low_re, low_im, w_re, w_im = _fourier(
        listed_ptr, listed, sums, k - sure, half, points, terms, ANGLES
    )
    high, low = tl.where(solvable, high, 1.0), tl.where(solvable, low, 1.0)
    if RATIO:
        value = tl.log(high / low) + (pivot - delta)
    else:
        lanes = tl.arange(0, _POWERS)
        log_sum = (log_sum + (k - sure) * ((pivot - delta) * _SCALED)) / _SCALED
        value = tl.log(high) + tl.sum(sums / (lanes + 1), 0) + log_sum
    value = tl.where(solvable, value, -float("inf"))
    tl.store(value_ptr + row, tl.where(spoiled > 0, float("nan"), value))

    if DERIVATIVES:
        # sum_a share w / (1 + p w), real part
        over_high, over_low = 2 / (points * high), tl.where(RATIO, 2 / (points * low), 0.0)
        share_re, share_im = high_re * over_high - low_re * over_low, high_im * over_high - low_im * over_low
        share_re, share_im = share_re * w_re - share_im * w_im, share_re * w_im + share_im * w_re
        _brackets(listed_ptr, brackets_ptr, listed, share_re, share_im, w_re, w_im)
        series = _series(share_re, share_im, w_re, w_im, terms)
        tl.debug_barrier()
        offset, found = row * n, 0
        for start in range(0, n, BLOCK):
            x = held if ONE else _block_of(row_ptr, start, n, own, own_value, scale, BESIDE, BLOCK)
            slope, found = _sloped(x, pivot, delta, brackets_ptr, found, capacity, series, terms, RATIO)
            columns = start + tl.arange(0, BLOCK)
            if BESIDE:  # the slopes of a ratio sum to 1
                slope = scale * (slope - (columns == own_index).to(tl.float32))
            slope = tl.where(solvable, slope, tl.where(spoiled > 0, float("nan"), 0.0))
            tl.store(slope_ptr + offset + columns, slope.to(slope_ptr.dtype.element_ty), mask=columns < n)


@triton.jit
def _shift(
    held,
    row_ptr,
    n,
    own,
    own_value,
    scale,
    k,
    top,
    bottom,
    present,
    total,
    solvable,
    BESIDE: tl.constexpr,
    ONE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Where ``k - 1/2`` labels are expected: log-odds are ``x - pivot + delta``.

    The pivot is searched first. Where neighbouring float32 numbers enclose it, for logits above 1e6, delta follows.
    """
    wanted, labels = k - 0.5, present.to(tl.float32)
    room = tl.log(2.0 * n) + 1
    # Above, the odds of all labels sum to less than what is wanted.
    low, high = bottom - room, tl.minimum(top + tl.log(total / wanted), top + room)
    pivot, steps, far, count, slope = high, 0, solvable, 0.0, 0.0
    while far & (steps < _MOST_STEPS):
        count, slope = _expected(held, row_ptr, n, own, own_value, scale, pivot, 0.0, BESIDE, ONE, BLOCK)
        low, high = tl.where(count > wanted, pivot, low), tl.where(count > wanted, high, pivot)
        middle = low * 0.5 + high * 0.5
        new = pivot - _newton(count, slope, wanted, labels)
        new = tl.where((new > low) & (new < high) & (steps % 4 != 3), new, middle)
        far = (tl.abs(count - wanted) > _CLOSE) & (middle > low) & (middle < high)
        pivot = tl.where(far, new, pivot)
        steps += 1
    pivot = tl.where(solvable, pivot, 0.0)
    reach = high - low + 3e-7 * tl.abs(pivot) + 1  # the bounds are rounded, too
    delta, lower, upper, steps = 0.0, -reach, reach, 0
    far = solvable & (tl.abs(count - wanted) > _CLOSE)
    while far & (steps < _MOST_STEPS):
        lower, upper = tl.where(count > wanted, lower, delta), tl.where(count > wanted, delta, upper)
        new = delta + _newton(count, slope, wanted, labels)
        delta = tl.where((new > lower) & (new < upper) & (steps % 4 != 3), new, lower * 0.5 + upper * 0.5)
        count, slope = _expected(held, row_ptr, n, own, own_value, scale, pivot, delta, BESIDE, ONE, BLOCK)
        far = tl.abs(count - wanted) > _CLOSE
        steps += 1
    return pivot, delta


@triton.jit
def _fourier(listed_ptr, listed, sums, k, half, points, terms, ANGLES: tl.constexpr):
    """The probabilities of k and k - 1 labels, their terms at each angle, and ``w = exp(i angle) - 1``.

    ``k`` is without the labels of p above 1/2.
    """
    index = tl.arange(0, ANGLES) + 1
    turn = 6.283185307179586 / points
    sine, cosine = _sine_and_cosine(index * (turn * 0.5))
    w_re, w_im = -2 * sine * sine, 2 * sine * cosine
    # log prod (1 + p w) = -sum_m (-w)^m (sum p^m) / m
    log_re, log_im = tl.zeros([ANGLES], tl.float32), tl.zeros([ANGLES], tl.float32)
    z_re, z_im = -w_re, -w_im
    lanes = tl.arange(0, _POWERS)
    sums /= lanes + 1
    for m in range(terms):
        term = tl.sum(tl.where(lanes == m, sums, 0.0), 0)
        log_re -= term * z_re
        log_im -= term * z_im
        z_re, z_im = z_im * w_im - z_re * w_re, -(z_re * w_im + z_im * w_re)
    size = tl.exp(log_re)
    # The angle of t^-k, by whole turns: k times an angle would lose digits.
    sine, cosine = _sine_and_cosine(log_im - (k * index % points) * turn)
    re, im = size * cosine, size * sine
    for i in range(listed):
        p = tl.load(listed_ptr + i)
        f_re, f_im = 1 + tl.abs(p) * w_re, p * w_im
        re, im = re * f_re - im * f_im, re * f_im + im * f_re
    counts = index <= half
    re, im = tl.where(counts, re, 0.0), tl.where(counts, im, 0.0)
    low_re, low_im = re + re * w_re - im * w_im, im + re * w_im + im * w_re
    high, low = (1 + 2 * tl.sum(re, 0)) / points, (1 + 2 * tl.sum(low_re, 0)) / points
    return high, low, re, im, low_re, low_im, w_re, w_im


@triton.jit
def _brackets(listed_ptr, brackets_ptr, listed, share_re, share_im, w_re, w_im):
    """``Re sum share / (1 + p w)`` over the angles, for each listed p."""
    back_re, back_im = share_re + share_re * w_re + share_im * w_im, share_im + share_im * w_re - share_re * w_im
    for start in range(0, listed, 16):
        places = start + tl.arange(0, 16)
        p = tl.load(listed_ptr + places, mask=places < listed, other=0.0)[:, None]
        f_re, f_im = 1 + tl.abs(p) * w_re[None, :], p * w_im[None, :]
        re = tl.where(p < 0, back_re[None, :], share_re[None, :])
        im = tl.where(p < 0, back_im[None, :], share_im[None, :])
        parts = (re * f_re + im * f_im) / (f_re * f_re + f_im * f_im)
        tl.store(brackets_ptr + places, tl.sum(parts, 1), mask=places < listed)


@triton.jit
def _series(share_re, share_im, w_re, w_im, terms):
    """The coefficients of the same as a series in p."""
    series, lanes = tl.zeros([_POWERS], tl.float32), tl.arange(0, _POWERS)
    for m in range(terms):
        series = tl.where(lanes == m, tl.sum(share_re, 0), series)
        share_re, share_im = share_im * w_im - share_re * w_re, -(share_re * w_im + share_im * w_re)
    return series

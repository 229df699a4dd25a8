"""LML on a GPU: the root of each row, p, and their gradients.

At a trial position the labels are split into those below and above p = 1/2. The sum of p is k where the sum of p below
plus ``max(count - k, 0)`` equals the sum of 1 - p above plus ``max(k - count, 0)``: positive terms only, so float32
loses no digits. Newton's method runs on the logarithm of their ratio, whose slope lies between 1/2 and 2, with each sum
relative to its largest term, so that plateaus do not underflow. A bracket, halved by the order of floats if steps are
slow, makes every row end; ordinary rows take 4 to 6 steps.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from shortlist.kernels.gpu.rows import (
    FAR,
    as_matrix,
    block_size,
    compiled_for,
    launch,
    load_block,
    middle,
    moved,
    normal_quantile,
    per_row,
    row_moments,
    scaled,
)
from shortlist.kernels.gpu.targets import RowTargets, nan_if_outside, row_targets, target_values


def lml(x: Tensor, k: Tensor, temperature: float, log: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """p or its logarithm ``(..., n)`` in the dtype of ``x``, and ``(pivot, delta)`` ``(..., 1)`` in float32."""
    rows = as_matrix(x)
    out = torch.empty_like(rows)
    return out.view(x.shape), *_solved(x, rows, out, k, temperature, LOG_P if log else P)


def lml_root(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``(pivot, delta)`` ``(..., 1)`` in float32, with ``p = sigmoid((x - pivot) / T + delta)``."""
    rows = as_matrix(x)
    return _solved(x, rows, rows, k, temperature, ROOT)


def _solved(x: Tensor, rows: Tensor, out: Tensor, k: Tensor, temperature: float, output: Any) -> tuple[Tensor, Tensor]:
    pivot, delta = (rows.new_empty((*x.shape[:-1], 1), dtype=torch.float32) for _ in range(2))
    launch(_solve, rows, out, per_row(k, x), pivot, delta, float(temperature), OUTPUT=output)
    return pivot, delta


def lml_gradient(
    x: Tensor, pivot: Tensor, delta: Tensor, gradient: Tensor, temperature: float, log: bool = False
) -> tuple[Tensor, Tensor]:
    """The gradients of p, or of its logarithm, in ``x`` and in k ``(..., 1)``."""
    return _differentiated(x, pivot, delta, as_matrix(gradient), temperature, LOG_P if log else P)


def lml_root_gradient(
    x: Tensor, pivot: Tensor, delta: Tensor, values: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """``values q / sum q`` in the dtype of ``x``, for one of ``values`` ``(..., 1)`` per row; and ``1 / sum q``."""
    return _differentiated(x, pivot, delta, per_row(values, x), temperature, ROOT)


def _differentiated(
    x: Tensor, pivot: Tensor, delta: Tensor, values: Tensor, temperature: float, output: Any
) -> tuple[Tensor, Tensor]:
    rows = as_matrix(x)
    out, column = torch.empty_like(rows), rows.new_empty(rows.shape[0], dtype=torch.float32)
    root = per_row(pivot, x), per_row(delta, x)
    launch(_gradient, rows, values, out, column, *root, float(temperature), OUTPUT=output)
    return out.view(x.shape), column.view(*x.shape[:-1], 1)


def lml_nll(
    x: Tensor, k: Tensor, target: Tensor, weight: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The likelihood loss of each row of ``x`` ``(rows, n)``, and ``(pivot, delta)`` ``(rows, 1)``."""
    rows, given = _known(x, target), row_targets(target, x.shape[-1])
    value, pivot, delta = (rows.new_empty((len(rows), 1), dtype=torch.float32) for _ in range(3))
    columns = per_row(k, x), pivot, delta, value, value
    _launch_nll(_nll, rows, rows, given, weight, *columns, temperature)
    return value.squeeze(-1), pivot, delta


def lml_nll_gradient(
    x: Tensor,
    pivot: Tensor,
    delta: Tensor,
    target: Tensor,
    weight: Tensor | None,
    gradient: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """The gradients of the likelihood loss in ``x`` and in k ``(rows, 1)``, given one ``gradient`` per row."""
    rows, given = _known(x, target), row_targets(target, x.shape[-1])
    out, to_k = torch.empty_like(rows), rows.new_empty((len(rows), 1), dtype=torch.float32)
    columns = per_row(pivot, x), per_row(pivot, x), per_row(delta, x), per_row(gradient.unsqueeze(-1), x), to_k
    _launch_nll(_nll_gradient, rows, out, given, weight, *columns, temperature)
    return out, to_k


def _known(x: Tensor, target: Tensor) -> Tensor:
    """The rows; where they are read in blocks, without the unknown labels of a signed multi-hot."""
    rows, signed = as_matrix(x), target.dtype.is_signed and target.dtype != torch.int64
    return rows.masked_fill(target < 0, -math.inf) if signed and block_size(x.shape[-1]) < x.shape[-1] else rows


def _launch_nll(
    kernel: Any, rows: Tensor, out: Tensor, given: RowTargets, weight: Tensor | None, *columns: Any
) -> None:
    weights = rows if weight is None else weight.contiguous()
    targets = given.values, weights, given.width, given.lowest
    launch(kernel, rows, out, *targets, *columns, LISTED=given.listed, WEIGHTED=weight is not None)


P, LOG_P, ROOT = 0, 1, 2
"""What a kernel computes or differentiates."""

_LIMIT = tl.constexpr(100)
"""The most steps. Every other late step halves the bracket by the order of floats; 31 such steps reach any float."""

_FREE = tl.constexpr(10)
"""So many steps may be Newton's wherever they stay in the bracket."""

_ENOUGH = tl.constexpr(1e-3)
"""A Newton step of this size leaves an error of its square."""

_ROUNDING = tl.constexpr(5e-7)
"""The error of the difference of two logarithms, relative to them."""

_LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def _side(u, members):
    """Of one side: the largest ``u = -|y|``, and the sums of min(p, 1 - p) and p (1 - p), divided by ``exp(u)``."""
    top = tl.max(tl.where(members, u, -FAR), 0)
    other = 1 + tl.exp(u)
    small = tl.where(members, tl.exp(u - top), 0.0) / other
    return top, tl.sum(small, 0), tl.sum(small / other, 0)


@triton.jit
def _sides(x, base, offset, temperature):
    """The statistics of both sides, below and above p = 1/2, and the number of labels above."""
    y = scaled(x, base, offset, temperature)
    above = y > 0
    u = -tl.abs(y)
    top_below, below, slope_below = _side(u, (y <= 0) & (x > float("-inf")))
    top_above, over, slope_over = _side(u, above)
    return top_below, below, slope_below, top_above, over, slope_over, tl.sum(above.to(tl.float32), 0)


@triton.jit
def _joined(top, total, slope, new_top, new_total, new_slope):
    """The statistics of a side in two parts of the row."""
    largest = tl.maximum(top, new_top)
    old, new = tl.exp(top - largest), tl.exp(new_top - largest)
    return largest, total * old + new_total * new, slope * old + new_slope * new


@triton.jit
def _row_sides(row, x, n, base, offset, temperature, BLOCK: tl.constexpr, FITS: tl.constexpr):
    if FITS:
        top_b, below, slope_b, top_a, over, slope_a, count = _sides(x, base, offset, temperature)
    else:
        top_b, below, slope_b = tl.full([], -FAR, tl.float32), 0.0, 0.0
        top_a, over, slope_a, count = tl.full([], -FAR, tl.float32), 0.0, 0.0, 0.0
        for start in range(0, n, BLOCK):
            part = load_block(row, start, n, BLOCK)
            tb, b, sb, ta, a, sa, c = _sides(part, base, offset, temperature)
            top_b, below, slope_b = _joined(top_b, below, slope_b, tb, b, sb)
            top_a, over, slope_a = _joined(top_a, over, slope_a, ta, a, sa)
            count += c
    return top_b, below, slope_b, top_a, over, slope_a, count


@triton.jit
def _log_add(top, total, extra):
    """``log(exp(top) total + extra)`` for numbers that are not negative; hugely negative if both are zero."""
    a = tl.where(total > 0, top + tl.log(tl.maximum(total, 1e-38)), -FAR)
    b = tl.where(extra > 0, tl.log(tl.maximum(extra, 1e-38)), -FAR)
    largest = tl.maximum(a, b)
    return largest + tl.log(tl.exp(a - largest) + tl.exp(b - largest))


@triton.jit
def _newton_step(top_b, below, slope_b, top_a, over, slope_a, count, k):
    """The change of the log-odds that brings the sum of p to k, and the step at which it is the last."""
    left_extra, right_extra = tl.maximum(count - k, 0.0), tl.maximum(k - count, 0.0)
    left, right = _log_add(top_b, below, left_extra), _log_add(top_a, over, right_extra)
    # Beside a huge exponent the logarithm of a sum has no digits left.
    below_share = tl.where(left_extra > 0, tl.exp(top_b - left), 1 / tl.maximum(below, 1e-38))
    over_share = tl.where(right_extra > 0, tl.exp(top_a - right), 1 / tl.maximum(over, 1e-38))
    rate = below_share * slope_b + over_share * slope_a
    depth = tl.maximum(tl.abs(left), tl.abs(right))
    return (right - left) / tl.minimum(tl.maximum(rate, 0.25), 2.0), _ENOUGH + _ROUNDING * depth


@triton.jit
def _search(row, x, n, k, temperature, top, bottom, guess, BLOCK: tl.constexpr, FITS: tl.constexpr):
    """The position of the root, ``base + T offset``."""
    low_base, low = moved(bottom, 0.0, -110.0, temperature)
    high_base, high = moved(top, 0.0, 110.0, temperature)
    base, offset = moved(top, 0.0, guess, temperature)
    number, searching = 0, True
    while searching:
        top_b, below, slope_b, top_a, over, slope_a, count = _row_sides(
            row, x, n, base, offset, temperature, BLOCK, FITS
        )
        step, enough = _newton_step(top_b, below, slope_b, top_a, over, slope_a, count, k)
        # More probability means a lower position.
        high_base, high = tl.where(step >= 0, base, high_base), tl.where(step >= 0, offset, high)
        low_base, low = tl.where(step <= 0, base, low_base), tl.where(step <= 0, offset, low)
        done = tl.abs(step) <= enough
        new_base, new = moved(base, offset, -step, temperature)
        inside = (new_base - low_base) / temperature + (new - low) >= 0
        inside = inside & ((high_base - new_base) / temperature + (high - new) >= 0)
        inside = inside & ((number < _FREE) | (number % 2 == 0))
        half_base, half = middle(low_base, low, high_base, high, temperature)
        offset = tl.where(done, offset - step, tl.where(inside, new, half))
        base = tl.where(done, base, tl.where(inside, new_base, half_base))
        number += 1
        searching = (number < _LIMIT) & (done == 0)
    return base, offset


@triton.jit
def _row_root(row, x, n, k, temperature, BLOCK: tl.constexpr, FITS: tl.constexpr):
    """The pivot and delta of a row: huge if all its labels are taken, -inf if none is, NaN if it or k is invalid."""
    top, bottom, present, broken, mean, variance = row_moments(row, x, n, temperature, BLOCK, FITS)
    none = k <= 0
    base = tl.where(none, tl.maximum(top, -_LARGEST), tl.minimum(bottom, _LARGEST))
    delta = tl.where(none, float("-inf"), _LARGEST / 4)
    if ((k > 0) & (k < present)) & (broken == 0):
        # If the row were normal, the mean of sigmoid would be close to a normal distribution function: its variance
        # would be that of the labels plus 1.7².
        guess = mean + normal_quantile(k / present) * tl.sqrt(variance + 2.89)
        base, offset = _search(row, x, n, k, temperature, top, bottom, guess, BLOCK, FITS)
        delta = -offset
    delta = tl.where((k >= 0) & (k <= n) & (broken == 0), delta, float("nan"))
    return base, delta


@triton.jit
def _log_sigmoid(y):
    small = tl.exp(-tl.abs(y))
    # log(1 + small), corrected for the rounding of the sum
    whole = 1 + small
    tail = tl.where(whole == 1, small, tl.log(whole) * (small / (whole - 1)))
    return tl.where(y == y, tl.where(y < 0, y, 0.0) - tail, y)


@triton.jit
def _solve(
    x_pointer,
    out_pointer,
    k_pointer,
    base_pointer,
    delta_pointer,
    temperature,
    n,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
    OUTPUT: tl.constexpr,
):
    """``x, k -> pivot, delta`` and, unless OUTPUT is the root (2), p (0) or log p (1)."""
    number = tl.program_id(0)
    row = x_pointer + number.to(tl.int64) * n
    x = load_block(row, 0, n, BLOCK)
    base, delta = _row_root(row, x, n, tl.load(k_pointer + number), temperature, BLOCK, FITS)
    tl.store(base_pointer + number, base)
    tl.store(delta_pointer + number, delta)
    if OUTPUT != 2:
        out = out_pointer + number.to(tl.int64) * n
        for start in range(0, n, BLOCK):
            if not FITS:
                x = load_block(row, start, n, BLOCK)
            index = start + tl.arange(0, BLOCK)
            y = (x - base) / temperature + delta  # -inf for absent labels, NaN throughout an invalid row
            value = _log_sigmoid(y) if OUTPUT == 1 else 1 / (1 + tl.exp(-y))
            tl.store(out + index, value, mask=index < n)


@triton.jit
def _distance(x, base, delta, temperature, taken):
    """The log-odds y of p, 0 beside the pivot where all labels are taken or none."""
    return (x - base) / temperature + tl.where(taken, 0.0, delta)


@triton.jit
def _slope_factor(y):
    """``q / exp(-|y|)`` with ``q = p (1 - p)``."""
    other = 1 + tl.exp(-tl.abs(y))
    return 1 / (other * other)


@triton.jit
def _absent_share(y):
    """``1 - p``; 0 for absent labels, which cannot move."""
    return tl.where(y > float("-inf"), 1 / (1 + tl.exp(y)), 0.0)


@triton.jit
def _finite(value):
    """The value, with overflows replaced by the largest finite number; NaN stays."""
    value = tl.where(value > _LARGEST, _LARGEST, value)
    return tl.where(value < -_LARGEST, -_LARGEST, value)


@triton.jit
def _gradient(
    x_pointer,
    values_pointer,
    out_pointer,
    column_pointer,
    base_pointer,
    delta_pointer,
    temperature,
    n,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
    OUTPUT: tl.constexpr,
):
    """The gradient in x of p (0), log p (1) or the root (2), and in k: one number per row, for the root its slope.

    With ``q = p (1 - p)`` and the upstream gradient g (for the root, one value v per row): of p it is
    ``q (g - mean) / T`` with the mean of g by q, of log p ``((1 - p) g - q / sum q sum (1 - p) g) / T``, of the root
    ``v q / sum q``. q is relative to the label nearest to p = 1/2, since it may underflow where its share does not.
    """
    number = tl.program_id(0)
    start_of_row = number.to(tl.int64) * n
    row, out = x_pointer + start_of_row, out_pointer + start_of_row
    base, delta = tl.load(base_pointer + number), tl.load(delta_pointer + number)
    taken = tl.abs(delta) >= _LARGEST / 8  # all labels or none: nothing moves
    inner = tl.where(taken, 0.0, 1.0)
    index = tl.arange(0, BLOCK)
    scale = 0.0
    if OUTPUT == 2:
        scale = tl.load(values_pointer + number).to(tl.float32)
    x = load_block(row, 0, n, BLOCK)
    values = tl.zeros([BLOCK], tl.float32)
    nearest, total, weighted = tl.full([], FAR, tl.float32), 0.0, 0.0
    for start in range(0, n, BLOCK):
        if not FITS:
            x = load_block(row, start, n, BLOCK)
        if OUTPUT != 2:
            here = start + index < n
            values = tl.load(values_pointer + start_of_row + start + index, mask=here, other=0.0).to(tl.float32)
        y = _distance(x, base, delta, temperature, taken)
        new = tl.minimum(nearest, tl.min(tl.abs(y), 0))
        q = tl.exp(tl.minimum(new - tl.abs(y), 0.0)) * _slope_factor(y)
        # Relative sums of q and q g; the sum of (1 - p) g is a plain one.
        old = tl.exp(new - nearest)
        total = total * old + tl.sum(q, 0)
        if OUTPUT == 0:
            # What is infinitely far has no part, whatever its value.
            weighted = weighted * old + tl.sum(tl.where(q > 0, q * values, 0.0), 0)
        if OUTPUT == 1:
            rest = _absent_share(y)
            weighted += tl.sum(tl.where(rest > 0, rest * values, 0.0), 0)
        nearest = new
    total = tl.maximum(total, 1.2e-38)
    inverse = tl.exp(tl.minimum(nearest - tl.log(total), 87.0)) * inner
    if OUTPUT == 0:
        weighted = weighted / total
        tl.store(column_pointer + number, weighted * inner)
    if OUTPUT == 1:
        tl.store(column_pointer + number, _finite(weighted * inverse))
    if OUTPUT == 2:
        tl.store(column_pointer + number, inverse)
    for start in range(0, n, BLOCK):
        if not FITS:
            x = load_block(row, start, n, BLOCK)
            if OUTPUT != 2:
                here = start + index < n
                values = tl.load(values_pointer + start_of_row + start + index, mask=here, other=0.0).to(tl.float32)
        y = _distance(x, base, delta, temperature, taken)
        share = tl.exp(tl.minimum(nearest - tl.abs(y), 0.0)) * _slope_factor(y) / total
        if OUTPUT == 0:
            q = tl.exp(-tl.abs(y)) * _slope_factor(y) * inner
            result = tl.where(q == 0, 0.0, q * (values - weighted) / temperature)
        if OUTPUT == 1:
            rest = _absent_share(y)
            result = (tl.where(rest > 0, rest * values, 0.0) - share * weighted) / temperature * inner
        if OUTPUT == 2:
            result = share * inner * scale
        result = tl.where(delta == delta, result, float("nan"))
        tl.store(out + start + index, result, mask=start + index < n)


@triton.jit
def _known_row(row, target, number, n, width, BLOCK: tl.constexpr, FITS: tl.constexpr, LISTED: tl.constexpr):
    """The first block of a row. In a whole row, the unknown labels of a multi-hot are absent; wider ones come so."""
    x = load_block(row, 0, n, BLOCK)
    if FITS and not LISTED:
        index = tl.arange(0, BLOCK)
        values = target_values(target, number.to(tl.int64), index, index < n, width, LISTED)
        x = tl.where(values < 0, float("-inf"), x)
    return x


@triton.jit
def _shares(target, weights, number, index, n, width, LISTED: tl.constexpr, WEIGHTED: tl.constexpr):
    """How much each label counts as a positive. Read where it is used: registers are short in a wide row."""
    share = tl.maximum(target_values(target, number.to(tl.int64), index, index < n, width, LISTED), 0.0)
    if WEIGHTED:
        share = share * tl.load(weights + index, mask=index < n, other=0.0).to(tl.float32)
    return share


@triton.jit
def _nll(
    x_pointer,
    out_pointer,
    target_pointer,
    weight_pointer,
    width,
    lowest,
    k_pointer,
    base_pointer,
    delta_pointer,
    value_pointer,
    unused_pointer,
    temperature,
    n,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
    LISTED: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """``x, k, target -> pivot, delta, -sum of log p over the positives``."""
    number = tl.program_id(0)
    row = x_pointer + number.to(tl.int64) * n
    index = tl.arange(0, BLOCK)
    x = _known_row(row, target_pointer, number, n, width, BLOCK, FITS, LISTED)
    base, delta = _row_root(row, x, n, tl.load(k_pointer + number), temperature, BLOCK, FITS)
    tl.store(base_pointer + number, base)
    tl.store(delta_pointer + number, delta)
    value = nan_if_outside(target_pointer, number.to(tl.int64), n, width, lowest, LISTED)
    for start in range(0, n, BLOCK):
        if not FITS:
            x = load_block(row, start, n, BLOCK)
        log_p = _log_sigmoid((x - base) / temperature + delta)
        share = _shares(target_pointer, weight_pointer, number, start + index, n, width, LISTED, WEIGHTED)
        value -= tl.sum(tl.where(share == 0, 0.0, share * log_p), 0)
    tl.store(value_pointer + number, value)


@triton.jit
def _nll_gradient(
    x_pointer,
    out_pointer,
    target_pointer,
    weight_pointer,
    width,
    lowest,
    k_pointer,
    base_pointer,
    delta_pointer,
    gradient_pointer,
    to_k_pointer,
    temperature,
    n,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
    LISTED: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """The gradient of the likelihood loss: ``(q / sum q sum (1 - p) s - (1 - p) s) / T`` with s the shares."""
    number = tl.program_id(0)
    first = number.to(tl.int64) * n
    index = tl.arange(0, BLOCK)
    base, delta = tl.load(base_pointer + number), tl.load(delta_pointer + number)
    taken = tl.abs(delta) >= _LARGEST / 8
    scale = tl.where(taken, 0.0, tl.load(gradient_pointer + number))
    x = _known_row(x_pointer + first, target_pointer, number, n, width, BLOCK, FITS, LISTED)
    nearest, total, whole = tl.full([], FAR, tl.float32), 0.0, 0.0
    for start in range(0, n, BLOCK):
        if not FITS:
            x = load_block(x_pointer + first, start, n, BLOCK)
        y = _distance(x, base, delta, temperature, taken)
        new = tl.minimum(nearest, tl.min(tl.abs(y), 0))
        total = total * tl.exp(new - nearest)
        total += tl.sum(tl.exp(tl.minimum(new - tl.abs(y), 0.0)) * _slope_factor(y), 0)
        nearest = new
        share = _shares(target_pointer, weight_pointer, number, start + index, n, width, LISTED, WEIGHTED)
        whole += tl.sum(tl.where(share == 0, 0.0, share * _absent_share(y)), 0) * scale
    total = tl.maximum(total, 1.2e-38)
    tl.store(to_k_pointer + number, _finite(-whole * tl.exp(tl.minimum(nearest - tl.log(total), 87.0))))
    for start in range(0, n, BLOCK):
        if not FITS:
            x = load_block(x_pointer + first, start, n, BLOCK)
        y = _distance(x, base, delta, temperature, taken)
        slope = tl.exp(tl.minimum(nearest - tl.abs(y), 0.0)) * _slope_factor(y)
        share = _shares(target_pointer, weight_pointer, number, start + index, n, width, LISTED, WEIGHTED)
        missing = tl.where(share == 0, 0.0, share * _absent_share(y)) * scale
        result = (slope / total * whole - missing) / temperature
        here = start + index < n
        tl.store(out_pointer + first + start + index, tl.where(delta == delta, result, float("nan")), mask=here)


def compile_cases(block: int) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Kernels with the types of their arguments and their constants, to compile them without a device."""
    solved = ["x_pointer", "out_pointer", "k_pointer", "base_pointer", "delta_pointer"]
    solve = {**dict.fromkeys(solved, "*fp32"), "temperature": "fp32", "n": "i32"}
    wide = ["x_pointer", "values_pointer", "out_pointer", "column_pointer", "base_pointer", "delta_pointer"]
    slope = {**dict.fromkeys(wide, "*fp32"), "temperature": "fp32", "n": "i32"}
    common, warps = compiled_for(block)
    narrow = ["k_pointer", "base_pointer", "delta_pointer", "value_pointer", "unused_pointer"]
    given = {"target_pointer": "*i64", "weight_pointer": "*fp32", "width": "i32", "lowest": "i32"}
    nll = {"x_pointer": "*fp32", "out_pointer": "*fp32", **given, **dict.fromkeys(narrow, "*fp32")}
    nll |= {"temperature": "fp32", "n": "i32"}
    renamed = {"value_pointer": "gradient_pointer", "unused_pointer": "to_k_pointer"}
    listed = {**common, "LISTED": True, "WEIGHTED": False}
    return {
        "lml": (_solve, solve, {**common, "OUTPUT": P}, warps),
        "lml_root": (_solve, solve, {**common, "OUTPUT": ROOT}, warps),
        "lml_gradient": (_gradient, slope, {**common, "OUTPUT": P}, warps),
        "log_lml_gradient": (_gradient, slope, {**common, "OUTPUT": LOG_P}, warps),
        "lml_nll": (_nll, nll, listed, warps),
        "lml_nll_gradient": (_nll_gradient, {renamed.get(a, a): t for a, t in nll.items()}, listed, warps),
        "lml_root_gradient": (_gradient, slope, {**common, "OUTPUT": ROOT}, warps),
    }

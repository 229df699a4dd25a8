"""Sparse-top on a GPU: the threshold of each row, p, and its gradient.

The sum of ``p = clip((x - l) / T, 0, 1)`` is piecewise linear in the threshold ``l``, so Newton's method is exact once
it reaches the right piece. The threshold is kept as ``base + T offset`` with ``base`` a float, so an offset of the
logits costs no digits. A bracket, halved by the order of floats where the sum is flat or steps are slow, makes every
row end.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from shortlist.kernels.gpu.rows import (
    as_matrix,
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


def sparse_top(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    """p ``(..., n)`` in the dtype of ``x``; numbers between 0 and 1 stay there when rounded, as the gradient needs."""
    rows = as_matrix(x)
    p = torch.empty_like(rows)
    least, most = _INTERIOR[x.dtype]
    options = {"VALUE": False, "DENSE": False, "LEAST": least, "MOST": most}
    launch(_solve, rows, p, per_row(k, x), p, p, p, float(temperature), **options)
    return p.view(x.shape)


def sparse_top_value(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """p ``(..., n)``, the largest logit ``(..., 1)``, and ``p . (x - largest) + p . (1 - p) / 2`` ``(..., 1)``."""
    rows = as_matrix(x)
    p = torch.empty_like(rows)
    top, value = (rows.new_empty((*x.shape[:-1], 1), dtype=torch.float32) for _ in range(2))
    least, most = _INTERIOR[x.dtype]
    options = {"VALUE": True, "DENSE": False, "LEAST": least, "MOST": most}
    launch(_solve, rows, p, per_row(k, x), top, value, p, 1.0, **options)
    return p.view(x.shape), top, value


def sparse_top_excess(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """``(p - y) . (x - largest) + p . (1 - p) / 2`` ``(..., 1)`` and ``p - y`` ``(..., n)``, with k the sum of y.

    y is ``target`` ``(..., n)`` with 0 for what is negative.
    """
    rows = as_matrix(x)
    excess, value = torch.empty_like(rows), rows.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    least, most = _INTERIOR[x.dtype]
    options = {"VALUE": True, "DENSE": True, "LEAST": least, "MOST": most}
    launch(_solve, rows, excess, value, value, value, as_matrix(target), 1.0, **options)
    return value, excess.view(x.shape)


def sparse_top_gradient(p: Tensor, gradient: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``(gradient - mean) / T`` where 0 < p < 1, else 0, in the dtype of ``p``; and the mean of ``gradient`` there."""
    rows = as_matrix(p)
    out, mean = torch.empty_like(rows), rows.new_empty((*p.shape[:-1], 1), dtype=torch.float32)
    launch(_gradient, rows, as_matrix(gradient), out, mean, float(temperature))
    return out.view(p.shape), mean


_INTERIOR = {
    torch.float32: (0.0, 1 - 2.0**-24),
    torch.float16: (2.0**-24, 1 - 2.0**-11),
    torch.bfloat16: (0.0, 1 - 2.0**-8),
}
"""The smallest and the largest number between 0 and 1 that a label which is neither may round to."""

_LIMIT = tl.constexpr(120)
"""The most steps. Every other late step halves the bracket by the order of floats; 31 such steps reach any float."""

_FREE = tl.constexpr(10)
"""So many steps may be Newton's wherever they stay in the bracket."""

_ROUNDING = tl.constexpr(1e-6)
"""The relative error of a sum of p."""

_LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def _sums(x, base, offset, temperature):
    """How many p are 1, how many lie in (0, 1), and the sum of the latter."""
    z = scaled(x, base, offset, temperature)
    ones = z >= 1
    inside = (z > 0) & (z < 1)
    return tl.sum(ones.to(tl.float32), 0), tl.sum(inside.to(tl.float32), 0), tl.sum(tl.where(inside, z, 0.0), 0)


@triton.jit
def _row_sums(row, x, n, base, offset, temperature, BLOCK: tl.constexpr, FITS: tl.constexpr):
    if FITS:
        ones, inside, part = _sums(x, base, offset, temperature)
    else:
        ones, inside, part = 0.0, 0.0, 0.0
        for start in range(0, n, BLOCK):
            o, i, p = _sums(load_block(row, start, n, BLOCK), base, offset, temperature)
            ones += o
            inside += i
            part += p
    return ones, inside, part


@triton.jit
def _search(row, x, n, k, temperature, top, bottom, guess, BLOCK: tl.constexpr, FITS: tl.constexpr):
    """The threshold ``base + T offset``."""
    low_base, low = moved(bottom, 0.0, -1.0, temperature)
    high_base, high = top, 0.0
    base, offset = moved(top, 0.0, guess, temperature)
    number, searching = 0, True
    while searching:
        ones, inside, part = _row_sums(row, x, n, base, offset, temperature, BLOCK, FITS)
        excess = (ones - k) + part
        step = excess / tl.maximum(inside, 1.0)
        low_base, low = tl.where(excess >= 0, base, low_base), tl.where(excess >= 0, offset, low)
        high_base, high = tl.where(excess <= 0, base, high_base), tl.where(excess <= 0, offset, high)
        # On a flat piece only an exact sum is right; elsewhere a step of mere rounding is the last.
        done = (excess == 0) | ((inside > 0) & (tl.abs(excess) <= _ROUNDING * tl.maximum(part, tl.minimum(k, 1.0))))
        new_base, new = moved(base, offset, step, temperature)
        good = ((new_base - low_base) / temperature + (new - low) > 0) & (inside > 0)
        good = good & ((high_base - new_base) / temperature + (high - new) > 0)
        good = good & ((number < _FREE) | (number % 2 == 0))
        half_base, half = middle(low_base, low, high_base, high, temperature)
        # Between neighboring floats many T apart the sum moves only within T of the labels at either end.
        width = (high_base - low_base) / temperature + (high - low)
        ends = (half_base == low_base) & (high_base > low_base) & (width > 4.0)
        above = (number & 2) == 0
        half_base = tl.where(ends & above, high_base, half_base)
        half = tl.where(ends, tl.where(above, high - 1.0, low + 1.0), half)
        stuck = (half_base == base) & (half == offset)  # the bounds are neighboring numbers
        offset = tl.where(done | stuck, offset + tl.where(inside > 0, step, 0.0), tl.where(good, new, half))
        base = tl.where(done | stuck, base, tl.where(good, new_base, half_base))
        number += 1
        searching = (number < _LIMIT) & ((done | stuck) == 0)
    return base, offset


@triton.jit
def _load(pointer, start, n, BLOCK: tl.constexpr):
    index = start + tl.arange(0, BLOCK)
    return tl.load(pointer + index, mask=index < n, other=0.0).to(tl.float32)


@triton.jit
def _solve(
    x_pointer,
    p_pointer,
    k_pointer,
    top_pointer,
    value_pointer,
    y_pointer,
    temperature,
    n,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
    VALUE: tl.constexpr,
    DENSE: tl.constexpr,
    LEAST: tl.constexpr,
    MOST: tl.constexpr,
):
    """``x, k -> p``; if VALUE also the largest x and ``p . (x - largest) + p . (1 - p) / 2``.

    If DENSE, k is the sum of the positive part of y, which is subtracted from p, here and in the value.
    """
    number = tl.program_id(0)
    row = x_pointer + number.to(tl.int64) * n
    x = load_block(row, 0, n, BLOCK)
    y_row = y_pointer + number.to(tl.int64) * n
    y = tl.maximum(_load(y_row, 0, n, BLOCK), 0.0) if DENSE else x
    if DENSE:
        k = tl.sum(y, 0)
        for start in range(BLOCK, n, BLOCK):
            k += tl.sum(tl.maximum(_load(y_row, start, n, BLOCK), 0.0), 0)
    else:
        k = tl.load(k_pointer + number)
    top, bottom, present, broken, mean, variance = row_moments(row, x, n, temperature, BLOCK, FITS)
    none = k <= 0
    base = tl.where(none, tl.maximum(top, -_LARGEST), tl.minimum(bottom, _LARGEST))
    offset = tl.where(none, _LARGEST / 4, -_LARGEST / 4)
    if ((k > 0) & (k < present)) & (broken == 0):
        # If the row were normal, a label minus a uniform variable would be nearly normal, and the sum of p is n times
        # the probability that it exceeds the threshold.
        guess = mean - 0.5 + normal_quantile(k / present) * tl.sqrt(variance + 1 / 12)
        guess = tl.minimum(tl.maximum(guess, (bottom - top) / temperature - 0.5), -0.5)
        base, offset = _search(row, x, n, k, temperature, top, bottom, guess, BLOCK, FITS)
    offset = tl.where((k >= 0) & (k <= n) & (broken == 0), offset, float("nan"))
    out = p_pointer + number.to(tl.int64) * n
    value = 0.0
    for start in range(0, n, BLOCK):
        if not FITS:
            x = load_block(row, start, n, BLOCK)
        index = start + tl.arange(0, BLOCK)
        z = (x - base) / temperature - offset
        p = tl.where(z > 0, tl.where(z < 1, z, 1.0), 0.0)
        p = tl.where(z == z, p, z)
        stored = tl.where((p > 0) & (p < 1), tl.maximum(tl.minimum(p, MOST), LEAST), p)
        if DENSE:
            if not FITS:
                y = tl.maximum(_load(y_row, start, n, BLOCK), 0.0)
            stored = p - y
            below = tl.maximum(x - tl.maximum(top, -_LARGEST / 4), -_LARGEST / 4)
            value -= tl.sum(tl.where(y == 0, 0.0, y * below), 0)
        tl.store(out + index, stored, mask=index < n)
        if VALUE:
            value += tl.sum(tl.where(p == 0, 0.0, p * ((x - top) + 0.5 * (1 - p))), 0)
    if VALUE:
        if not DENSE:
            tl.store(top_pointer + number, top)
        tl.store(value_pointer + number, value)


@triton.jit
def _gradient(
    p_pointer, values_pointer, out_pointer, mean_pointer, temperature, n, BLOCK: tl.constexpr, FITS: tl.constexpr
):
    """``out = (values - mean) / T`` where 0 < p < 1, else 0, with the mean of the values there."""
    number = tl.program_id(0)
    first = number.to(tl.int64) * n
    p, values = _load(p_pointer + first, 0, n, BLOCK), _load(values_pointer + first, 0, n, BLOCK)
    count, total, known = 0.0, 0.0, 0.0
    for start in range(0, n, BLOCK):
        if not FITS:
            p, values = _load(p_pointer + first, start, n, BLOCK), _load(values_pointer + first, start, n, BLOCK)
        inside = (p > 0) & (p < 1)
        count += tl.sum(inside.to(tl.float32), 0)
        total += tl.sum(tl.where(inside, values, 0.0), 0)
        known += tl.sum(p, 0)
    mean = tl.where(known == known, total / tl.maximum(count, 1.0), known)
    tl.store(mean_pointer + number, mean)
    for start in range(0, n, BLOCK):
        if not FITS:
            p, values = _load(p_pointer + first, start, n, BLOCK), _load(values_pointer + first, start, n, BLOCK)
        index = start + tl.arange(0, BLOCK)
        result = tl.where((p == 0) | (p == 1), 0.0, (values - mean) / temperature)
        tl.store(out_pointer + first + index, result, mask=index < n)


def compile_cases(block: int) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Kernels with the types of their arguments and their constants, to compile them without a device."""
    numbers, (constants, warps) = {"temperature": "fp32", "n": "i32"}, compiled_for(block)
    interior = dict(zip(("LEAST", "MOST"), _INTERIOR[torch.float32], strict=True))
    solved = ["x_pointer", "p_pointer", "k_pointer", "top_pointer", "value_pointer", "y_pointer"]
    solve = {**dict.fromkeys(solved, "*fp32"), **numbers}
    wide = ["p_pointer", "values_pointer", "out_pointer", "mean_pointer"]
    return {
        "sparse_top": (_solve, solve, {**constants, **interior, "VALUE": False, "DENSE": False}, warps),
        "sparse_top_value": (_solve, solve, {**constants, **interior, "VALUE": True, "DENSE": False}, warps),
        "sparse_top_excess": (_solve, solve, {**constants, **interior, "VALUE": True, "DENSE": True}, warps),
        "sparse_top_gradient": (_gradient, {**dict.fromkeys(wide, "*fp32"), **numbers}, constants, warps),
    }

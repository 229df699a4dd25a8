"""Sums over a block of logits, and the block's gradient in its place: one pass each, beside the matrix products.

A block ``(rows, m)`` is recomputed from a linear layer and used once. Each forward kernel adds it to columns with a few
numbers per row; each backward kernel overwrites it with its gradient. Rows may be any distance apart. Sums within a
block are float32 and those over the blocks float64. Every program writes its own row or labels, so results do not
depend on the order of the programs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 1024
"""The most labels of a row that a program holds at a time."""

TRIAL_BLOCK = 512
"""The same where it holds them for every trial point."""

_LOWEST = tl.constexpr(-3.4028234663852886e38)
"""Takes the place of -inf as the largest exponent of an empty sum: the lowest number of float32."""


@triton.jit
def _log1p(t):
    """``log(1 + t)`` for t in [0, 1] with all its digits, by the error of ``1 + t``."""
    u = 1 + t
    return tl.where(u == 1, t, tl.log(u) * (t / tl.where(u == 1, 1, u - 1)))


@triton.jit
def _negative_side(x, gamma, clip, GAMMA: tl.constexpr, CLIP: tl.constexpr):
    """``-p_m^γ log(1 - p_m)`` with ``p_m = max(σ(x) - clip, 0)``, and its slope; `binary.py` has the same formulas."""
    tail = tl.exp(-tl.abs(x))
    if CLIP:
        q = tl.where(x > 0, tail, 1.0) / (1 + tail)
        rest = tl.minimum(q + clip, 1 - 5.9604645e-08)
        ratio = tl.log(rest) / (rest - 1)
        shifted = tl.maximum(1 - clip - q, 0.0)
        fade = tl.where(shifted > 0, tl.exp(gamma * tl.log(tl.maximum(shifted, 1.1754944e-38))), 0.0)
        loss = fade * shifted * ratio
        slope = (1 - q) * q * fade * (gamma * ratio + 1 / rest)
    else:
        loss = tl.minimum(tl.maximum(x, 0.0) + _log1p(tail), 3.4028235e38)
        slope = tl.where(x > 0, 1.0, tail) / (1 + tail)
        if GAMMA:
            fade = tl.exp(-gamma * (tl.maximum(-x, 0.0) + _log1p(tail)))
            slope = (slope + gamma * (1 - slope) * loss) * fade
            loss = loss * fade
    return tl.where(x == x, loss, x), tl.where(x == x, slope, x)


@triton.jit
def _add_terms(x, stride, weight, total, gamma, clip, m, GAMMA: tl.constexpr, CLIP: tl.constexpr,
               WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, m, BLOCK):
        inside = start + lane < m
        y = tl.load(x + row * stride + start + lane, mask=inside, other=float("-inf")).to(tl.float32)
        loss, _ = _negative_side(y, gamma, clip, GAMMA, CLIP)
        if WEIGHTED:
            loss *= tl.load(weight + start + lane, mask=inside, other=0.0)
        sums += tl.where(inside, loss, 0.0)
    tl.store(total + row, tl.load(total + row) + tl.sum(sums, 0).to(tl.float64))


@triton.jit
def _terms_gradient(x, stride, weight, factor, gamma, clip, m, GAMMA: tl.constexpr, CLIP: tl.constexpr,
                    WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    scale = tl.load(factor + row)
    for start in range(0, m, BLOCK):
        inside = start + lane < m
        place = x + row * stride + start + lane
        _, slope = _negative_side(tl.load(place, mask=inside, other=0.0).to(tl.float32), gamma, clip, GAMMA, CLIP)
        if WEIGHTED:
            slope *= tl.load(weight + start + lane, mask=inside, other=0.0)
        tl.store(place, slope * scale, mask=inside)


@triton.jit
def _add_row_powers(x, stride, top, total, temperature, m, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    before = tl.load(top + row)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, m, BLOCK):
        y = tl.load(x + row * stride + start + lane, mask=start + lane < m, other=float("-inf")).to(tl.float32)
        new = tl.maximum(highest, y)
        floor = tl.maximum(new, _LOWEST)
        sums = sums * tl.exp((highest - floor) / temperature) + tl.exp((y - floor) / temperature)
        highest = new
    new = tl.maximum(before, tl.max(highest, 0))
    floor = tl.maximum(new, _LOWEST)
    block = tl.sum(sums * tl.exp((tl.maximum(highest, _LOWEST) - floor) / temperature), 0).to(tl.float64)
    tl.store(total + row, tl.load(total + row) * tl.exp((before - floor) / temperature) + block)
    tl.store(top + row, new)


@triton.jit
def _set_label_powers(x, stride, top, total, temperature, rows, m, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    labels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = labels < m
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        place = x + row.to(tl.int64)[:, None] * stride + labels[None, :]
        y = tl.load(place, mask=(row < rows)[:, None] & inside[None, :], other=float("-inf")).to(tl.float32)
        new = tl.maximum(highest, tl.max(y, 0))
        floor = tl.maximum(new, _LOWEST)
        powers = tl.exp((y - floor[None, :]) / temperature)
        sums = sums * tl.exp((highest - floor) / temperature) + tl.sum(powers, 0)
        highest = new
    tl.store(top + labels, highest, mask=inside)
    tl.store(total + labels, sums.to(tl.float64), mask=inside)


@triton.jit
def _powers_gradient(x, stride, row_floor, row_factor, label_floor, label_factor, temperature, m,
                     BY_ROW: tl.constexpr, BY_LABEL: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    for start in range(0, m, BLOCK):
        inside = start + lane < m
        place = x + row * stride + start + lane
        y = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
        g = tl.zeros([BLOCK], tl.float32)
        if BY_ROW:
            g += tl.exp((y - tl.load(row_floor + row)) / temperature) * tl.load(row_factor + row)
        if BY_LABEL:
            floor = tl.load(label_floor + start + lane, mask=inside, other=0.0)
            factor = tl.load(label_factor + start + lane, mask=inside, other=0.0)
            g += tl.exp((y - floor) / temperature) * factor
        tl.store(place, g, mask=inside)


@triton.jit
def _add_trial_sums(x, stride, pivot, delta, sums, tops, infinite, temperature, far, m,
                    POINTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    point = tl.arange(0, POINTS)
    center = tl.load(pivot + row * POINTS + point)[:, None]
    shift = tl.load(delta + row * POINTS + point)[:, None]
    top_below = tl.full([POINTS], float("-inf"), tl.float32)
    top_above = tl.full([POINTS], float("-inf"), tl.float32)
    below = tl.zeros([POINTS], tl.float32)
    above = tl.zeros([POINTS], tl.float32)
    slope_below = tl.zeros([POINTS], tl.float32)
    slope_above = tl.zeros([POINTS], tl.float32)
    count = tl.zeros([POINTS], tl.float32)
    certain = tl.zeros([BLOCK], tl.float32)
    for start in range(0, m, BLOCK):
        inside = start + lane < m
        logits = tl.load(x + row * stride + start + lane, mask=inside, other=float("-inf")).to(tl.float32)
        certain += tl.where(logits == float("inf"), 1.0, 0.0)
        y = (logits[None, :] - center) / temperature + shift
        y = tl.where(y > far, far, tl.where(y < -far, -far, y))
        over = y >= 0
        under = (y < 0) | (y != y)
        over = over & inside[None, :]
        under = under & inside[None, :]
        size = tl.where(inside[None, :], -tl.abs(y), float("-inf"))
        new_below = tl.maximum(top_below, tl.max(tl.where(under, size, float("-inf")), 1))
        new_above = tl.maximum(top_above, tl.max(tl.where(over, size, float("-inf")), 1))
        floor_below = tl.maximum(new_below, _LOWEST)
        floor_above = tl.maximum(new_above, _LOWEST)
        large = 1 / (1 + tl.exp(size))
        small = tl.exp(size - tl.where(over, floor_above[:, None], floor_below[:, None])) * large
        fade_below = tl.exp(top_below - floor_below)
        fade_above = tl.exp(top_above - floor_above)
        terms = tl.where(under, small, 0.0)
        below = below * fade_below + tl.sum(terms, 1)
        slope_below = slope_below * fade_below + tl.sum(terms * large, 1)
        terms = tl.where(over, small, 0.0)
        above = above * fade_above + tl.sum(terms, 1)
        slope_above = slope_above * fade_above + tl.sum(terms * large, 1)
        count += tl.sum(tl.where(over, 1.0, 0.0), 1)
        top_below = new_below
        top_above = new_above
    # Merge with the blocks before.
    columns = sums + (row * POINTS + point) * 5
    highest = tops + (row * POINTS + point) * 2
    old_below = tl.load(highest)
    old_above = tl.load(highest + 1)
    new_below = tl.maximum(old_below, top_below.to(tl.float64))
    new_above = tl.maximum(old_above, top_above.to(tl.float64))
    floor_below = tl.maximum(new_below, _LOWEST)
    floor_above = tl.maximum(new_above, _LOWEST)
    fade_below = tl.exp((old_below - floor_below).to(tl.float32)).to(tl.float64)
    fade_above = tl.exp((old_above - floor_above).to(tl.float32)).to(tl.float64)
    grow_below = tl.exp((top_below - floor_below).to(tl.float32)).to(tl.float64)
    grow_above = tl.exp((top_above - floor_above).to(tl.float32)).to(tl.float64)
    tl.store(columns, tl.load(columns) * fade_below + below * grow_below)
    tl.store(columns + 1, tl.load(columns + 1) * fade_above + above * grow_above)
    tl.store(columns + 2, tl.load(columns + 2) * fade_below + slope_below * grow_below)
    tl.store(columns + 3, tl.load(columns + 3) * fade_above + slope_above * grow_above)
    tl.store(columns + 4, tl.load(columns + 4) + count.to(tl.float64))
    tl.store(highest, new_below)
    tl.store(highest + 1, new_above)
    tl.store(infinite + row, tl.load(infinite + row) + tl.sum(certain, 0).to(tl.float64))


@triton.jit
def _shares_gradient(x, stride, pivot, delta, shift, factor, temperature, largest, m, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    center = tl.load(pivot + row)
    root = tl.load(delta + row)
    lift = tl.load(shift + row)
    scale = tl.load(factor + row)
    for start in range(0, m, BLOCK):
        inside = start + lane < m
        place = x + row * stride + start + lane
        y = (tl.load(place, mask=inside, other=0.0).to(tl.float32) - center) / temperature + root
        near = tl.exp(tl.minimum(lift - tl.abs(y), largest))
        rest = 1 + tl.exp(-tl.abs(y))
        g = near / (rest * rest) * scale
        tl.store(place, tl.where(y == y, g, y), mask=inside)


def add_terms(x: Tensor, total: Tensor, weight: Tensor | None, gamma: float, clip: float) -> None:
    """Add to ``total`` ``(rows,)`` float64 the negatives' terms of a block, times the weights ``(m,)`` of labels."""
    rows, m = x.shape
    _add_terms[(rows,)](
        x,
        x.stride(0),
        _contiguous(weight, x),
        total,
        gamma,
        clip,
        m,
        gamma > 0,
        clip > 0,
        weight is not None,
        _width(m),
    )


def terms_gradient_(x: Tensor, factor: Tensor, weight: Tensor | None, gamma: float, clip: float) -> Tensor:
    """Overwrite a block with the slopes of these terms, times ``factor`` ``(rows,)`` and the weights."""
    rows, m = x.shape
    _terms_gradient[(rows,)](
        x, x.stride(0), _contiguous(weight, x), factor.contiguous(), gamma, clip, m, gamma > 0, clip > 0,
        weight is not None, _width(m),
    )  # fmt: skip
    return x


def add_row_powers(x: Tensor, top: Tensor, total: Tensor, temperature: float) -> None:
    """Raise ``top`` ``(rows,)`` to the maxima of a block, and add to ``total``, float64, its ``exp((x - top) / T)``."""
    rows, m = x.shape
    _add_row_powers[(rows,)](x, x.stride(0), top, total, temperature, m, _width(m))


def set_label_powers(x: Tensor, top: Tensor, total: Tensor, temperature: float) -> None:
    """Set ``top`` ``(m,)`` and ``total``, float64, to each label's maximum and sum of ``exp((x - top) / T)``."""
    rows, m = x.shape
    _set_label_powers[(triton.cdiv(m, 64),)](x, x.stride(0), top, total, temperature, rows, m, 32, 64)


def powers_gradient_(
    x: Tensor, by_row: tuple[Tensor, Tensor] | None, by_label: tuple[Tensor, Tensor] | None, temperature: float
) -> Tensor:
    """Overwrite a block with the sum of ``exp((x - floor) / T) factor``, with floor and factor of each row or label."""
    rows, m = x.shape
    row = [part.contiguous() for part in by_row] if by_row else [x, x]
    label = [part.contiguous() for part in by_label] if by_label else [x, x]
    _powers_gradient[(rows,)](
        x, x.stride(0), *row, *label, temperature, m, by_row is not None, by_label is not None, _width(m)
    )
    return x


def add_trial_sums(
    x: Tensor, pivot: Tensor, delta: Tensor, sums: Tensor, tops: Tensor, infinite: Tensor, temperature: float
) -> None:
    """Add a block to the sums of LML's p at several trial points per row.

    Args:
        x: ``(rows, m)``.
        pivot, delta: ``(rows, points)``, a power of two: the log-odds are ``(x - pivot) / T + delta``.
        sums: ``(rows, points, 5)`` float64, as `lml_solver.add_log_sums` has them.
        tops: ``(rows, points, 2)`` float64.
        infinite: ``(rows,)`` float64, how many logits are +inf.
        temperature: ``T``.
    """
    rows, m = x.shape
    far = torch.finfo(torch.float32).max
    _add_trial_sums[(rows,)](
        x, x.stride(0), pivot.contiguous(), delta.contiguous(), sums, tops, infinite, temperature, far, m,
        delta.shape[1], TRIAL_BLOCK,
    )  # fmt: skip


def shares_gradient_(
    x: Tensor, pivot: Tensor, delta: Tensor, shift: Tensor, factor: Tensor, temperature: float, largest: float
) -> Tensor:
    """Overwrite a block with ``exp(shift) p (1 - p) factor``; columns ``(rows, 1)``, exponents at most ``largest``."""
    rows, m = x.shape
    columns = [column.contiguous() for column in (pivot, delta, shift, factor)]
    _shares_gradient[(rows,)](x, x.stride(0), *columns, temperature, largest, m, _width(m))
    return x


def _contiguous(weight: Tensor | None, x: Tensor) -> Tensor:
    """The weights, or any tensor in their place."""
    return x if weight is None else weight.contiguous()


def _width(m: int) -> int:
    return min(WIDEST, triton.next_power_of_2(m))


def compile_cases(block: int) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Kernels with the types of their arguments and their constants, to compile them without a device."""
    columns = ["x", "weight", "factor", "top", "pivot", "delta", "shift"]
    lines = ["row_floor", "row_factor", "label_floor", "label_factor"]
    types = dict.fromkeys([*columns, *lines], "*fp32")
    types |= dict.fromkeys(["total", "sums", "tops", "infinite"], "*fp64")
    types |= dict.fromkeys(["gamma", "clip", "temperature", "far", "largest"], "fp32")
    types |= dict.fromkeys(["stride", "rows", "m"], "i32")
    width = {"BLOCK": _width(block)}
    bce = {**width, "GAMMA": False, "CLIP": False, "WEIGHTED": True}
    focal, clipped = {**bce, "GAMMA": True}, {**bce, "GAMMA": True, "CLIP": True}
    kernels = {
        "add_terms": (_add_terms, bce),
        "add_terms_focal": (_add_terms, focal),
        "add_terms_clipped": (_add_terms, clipped),
        "terms_gradient": (_terms_gradient, bce),
        "terms_gradient_focal": (_terms_gradient, focal),
        "terms_gradient_clipped": (_terms_gradient, clipped),
        "add_row_powers": (_add_row_powers, width),
        "set_label_powers": (_set_label_powers, {"ROWS": 32, "BLOCK": 64}),
        "powers_gradient": (_powers_gradient, {**width, "BY_ROW": True, "BY_LABEL": True}),
        "add_trial_sums": (_add_trial_sums, {"POINTS": 2, "BLOCK": TRIAL_BLOCK}),
        "shares_gradient": (_shares_gradient, width),
    }
    return {name: (kernel, types, constants, 4) for name, (kernel, constants) in kernels.items()}

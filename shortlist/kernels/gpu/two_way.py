"""Soft maxima of the negatives and soft minima of the positives, of each row and of each label, for the two-way loss.

Both are running: a block's maximum, and the sum of exponentials relative to the largest so far. Sums over the rows are
made in chunks and added in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from shortlist.kernels.gpu.targets import nan_if_outside, row_targets, target_values

LARGEST_BLOCK = 4096
"""Labels of a row that a program works on at a time."""

CHUNK = 64
"""Rows whose part in the sums of a label is one program's work."""

_TILE_ROWS, _TILE_LABELS = 8, 128
_LOWEST = tl.constexpr(-3.4028234663852886e38 / 4)
_BOUND = tl.constexpr(1.8446742974197924e19)


Lines = tuple[Tensor, Tensor, Tensor]
"""Of each row or label, in float32: the soft maximum of its negatives minus the soft minimum of its positives; the mean
weight of its positives; and ``(4, lines)``: the highest negative, what is to be added for the soft maximum, minus the
lowest positive, and what is to be added to it. The first two are 0 for what lacks a positive or a negative."""


def row_contrasts(x: Tensor, target: Tensor, weight: Tensor | None, negative: float, positive: float) -> Lines:
    """The contrasts of the rows of ``(rows, n)``.

    Args:
        x: logits in float32 or half precision.
        target: as in `row_targets`.
        weight: ``(n,)`` in float32.
        negative: the temperature of the negatives.
        positive: the temperature of the positives.
    """
    rows, n = x.shape
    target, width, lowest, listed = row_targets(target, n)
    lines = _empty_lines(rows, x)
    block = _block(n)
    _contrast_rows[(rows,)](
        x.contiguous(),
        target,
        x if weight is None else weight.contiguous(),
        *lines,
        rows,
        n,
        width,
        lowest,
        negative,
        positive,
        LISTED=listed,
        WEIGHTED=weight is not None,
        BLOCK=block,
        num_warps=_warps(block),
    )
    return lines


def label_contrasts(x: Tensor, target: Tensor, negative: float, positive: float) -> Lines:
    """The same of the labels, where all weights are 1."""
    rows, n = x.shape
    target, width, lowest, listed = row_targets(target, n)
    chunks, blocks = triton.cdiv(rows, CHUNK), triton.cdiv(n, _TILE_LABELS)
    parts = torch.empty(chunks, 4, n, dtype=torch.float32, device=x.device)
    _label_parts[(blocks, chunks)](
        x.contiguous(),
        target,
        parts,
        rows,
        n,
        width,
        lowest,
        negative,
        positive,
        LISTED=listed,
        CHUNK=CHUNK,
        ROWS=_TILE_ROWS,
        LABELS=_TILE_LABELS,
    )
    lines = _empty_lines(n, x)
    _contrast_labels[(blocks,)](parts, *lines, chunks, n, negative, positive, LABELS=_TILE_LABELS)
    return lines


def _block(n: int) -> int:
    """The number of labels that a program takes at a time."""
    return min(LARGEST_BLOCK, triton.next_power_of_2(n))


def _warps(block: int) -> int:
    return 8 if block >= 1024 else 4


def _empty_lines(count: int, x: Tensor) -> Lines:
    contrast, share = (torch.empty(count, dtype=torch.float32, device=x.device) for _ in range(2))
    return contrast, share, torch.empty(4, count, dtype=torch.float32, device=x.device)


def contrast_gradient(
    x: Tensor,
    target: Tensor,
    row_gradient: Tensor | None,
    by_row: Tensor | None,
    label_gradient: Tensor | None,
    by_label: Tensor | None,
    negative: float,
    positive: float,
) -> Tensor:
    """The gradient in ``x``, in its dtype, given those in the contrasts and the extremes of the rows and labels.

    Without a gradient, rows or labels are left out.
    """
    rows, n = x.shape
    target, width, _, listed = row_targets(target, n)
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    of_row = row_gradient is not None and by_row is not None
    of_label = label_gradient is not None and by_label is not None
    _gradient[(triton.cdiv(rows, _TILE_ROWS), triton.cdiv(n, _TILE_LABELS))](
        x.contiguous(),
        target,
        row_gradient.contiguous() if of_row else x,
        by_row if of_row else x,
        label_gradient.contiguous() if of_label else x,
        by_label if of_label else x,
        result,
        rows,
        n,
        width,
        negative,
        positive,
        LISTED=listed,
        BY_ROW=of_row,
        BY_LABEL=of_label,
        ROWS=_TILE_ROWS,
        LABELS=_TILE_LABELS,
    )
    return result


def compile_cases(block: int) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Kernels with the types of their arguments and their constants, to compile them without a device."""
    wide = ["x", "weight", "contrast", "shares", "extremes", "parts", "result"]
    types = dict.fromkeys([*wide, "row_gradient", "by_row", "label_gradient", "by_label"], "*fp32")
    types |= {"negative": "fp32", "positive": "fp32"}
    types |= dict.fromkeys(["rows", "n", "width", "lowest", "chunks"], "i32")
    size, tile = _block(block), {"ROWS": _TILE_ROWS, "LABELS": _TILE_LABELS}
    both = {"BY_ROW": True, "BY_LABEL": True}
    cases = {"contrast_labels": (_contrast_labels, types, {"LABELS": _TILE_LABELS}, 4)}
    for form, target in (("lists", "*i64"), ("multi_hots", "*fp32")):
        given, listed = {**types, "target": target}, {"LISTED": form == "lists"}
        rows = {**listed, "WEIGHTED": True, "BLOCK": size}
        cases[f"contrast_rows_{form}"] = _contrast_rows, given, rows, _warps(size)
        cases[f"label_parts_{form}"] = _label_parts, given, {**listed, "CHUNK": CHUNK, **tile}, 4
        cases[f"contrast_gradient_{form}"] = _gradient, given, {**listed, **both, **tile}, 4
    return cases


@triton.jit
def _contrast_rows(
    x,
    target,
    weight,
    contrast,
    shares,
    extremes,
    rows,
    n,
    width,
    lowest,
    negative,
    positive,
    LISTED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    high, low = tl.full([1], _LOWEST, tl.float32), tl.full([1], _LOWEST, tl.float32)
    high_sum, low_sum = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    share, count = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n
        logits = _bounded(tl.load(x + row * n + columns, mask=inside, other=0).to(tl.float32))
        given = target_values(target, row, columns, inside, width, LISTED)
        high, high_sum = _add(logits, inside & (given == 0), high, high_sum, negative, 0)
        low, low_sum = _add(-logits, inside & (given > 0), low, low_sum, positive, 0)
        if WEIGHTED:
            weights = tl.load(weight + columns, mask=inside, other=0)
            share += tl.sum(tl.where(given > 0, weights, 0.0), 0)
            count += tl.sum((inside & (given > 0)).to(tl.float32), 0)
    high_sum += nan_if_outside(target, row, n, width, lowest, LISTED)
    share = share / tl.maximum(count, 1.0) if WEIGHTED else 1.0
    line = row + tl.arange(0, 1)
    _store_contrast(
        contrast, shares, extremes, line, rows, line < rows, high, high_sum, low, low_sum, negative, positive, share
    )


@triton.jit
def _label_parts(
    x,
    target,
    parts,
    rows,
    n,
    width,
    lowest,
    negative,
    positive,
    LISTED: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    LABELS: tl.constexpr,
):
    columns = tl.program_id(0) * LABELS + tl.arange(0, LABELS)
    chunk = tl.program_id(1).to(tl.int64)
    high, low = tl.full([LABELS], _LOWEST, tl.float32), tl.full([LABELS], _LOWEST, tl.float32)
    high_sum, low_sum = tl.zeros([LABELS], tl.float32), tl.zeros([LABELS], tl.float32)
    for start in range(0, CHUNK, ROWS):
        row = (chunk * CHUNK + start + tl.arange(0, ROWS))[:, None]
        inside = (row < rows) & (columns < n)[None, :]
        row = tl.minimum(row, rows - 1)
        logits = tl.load(x + row * n + columns[None, :], mask=inside, other=0).to(tl.float32)
        logits = _bounded(logits)
        given = target_values(target, row, columns[None, :], inside, width, LISTED)
        high, high_sum = _add(logits, inside & (given == 0), high, high_sum, negative, 1)
        low, low_sum = _add(-logits, inside & (given > 0), low, low_sum, positive, 1)
        if LISTED:
            high_sum += tl.sum(nan_if_outside(target, row, n, width, lowest, LISTED))
    part, inside = parts + chunk * 4 * n + columns, columns < n
    tl.store(part, high, mask=inside)
    tl.store(part + n, high_sum, mask=inside)
    tl.store(part + 2 * n, low, mask=inside)
    tl.store(part + 3 * n, low_sum, mask=inside)


@triton.jit
def _contrast_labels(parts, contrast, shares, extremes, chunks, n, negative, positive, LABELS: tl.constexpr):
    columns = tl.program_id(0) * LABELS + tl.arange(0, LABELS)
    inside = columns < n
    high, low = tl.full([LABELS], _LOWEST, tl.float32), tl.full([LABELS], _LOWEST, tl.float32)
    high_sum, low_sum = tl.zeros([LABELS], tl.float32), tl.zeros([LABELS], tl.float32)
    part = parts + columns
    for _ in range(chunks):
        top, total = tl.load(part, mask=inside, other=0), tl.load(part + n, mask=inside, other=0)
        high, high_sum = _merge(high, high_sum, top, total, negative)
        top, total = tl.load(part + 2 * n, mask=inside, other=0), tl.load(part + 3 * n, mask=inside, other=0)
        low, low_sum = _merge(low, low_sum, top, total, positive)
        part += 4 * n
    _store_contrast(
        contrast, shares, extremes, columns, n, inside, high, high_sum, low, low_sum, negative, positive, 1.0
    )


@triton.jit
def _gradient(
    x,
    target,
    row_gradient,
    by_row,
    label_gradient,
    by_label,
    result,
    rows,
    n,
    width,
    negative,
    positive,
    LISTED: tl.constexpr,
    BY_ROW: tl.constexpr,
    BY_LABEL: tl.constexpr,
    ROWS: tl.constexpr,
    LABELS: tl.constexpr,
):
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * LABELS + tl.arange(0, LABELS))[None, :]
    inside = (row < rows) & (columns < n)
    row = tl.minimum(row, rows - 1)
    logits = _bounded(tl.load(x + row * n + columns, mask=inside, other=0).to(tl.float32))
    given = tl.where(inside, target_values(target, row, columns, inside, width, LISTED), -1.0)
    slope = tl.zeros([ROWS, LABELS], tl.float32)
    if BY_ROW:
        slope += _slope(logits, given, row_gradient, by_row, row, rows, negative, positive)
    if BY_LABEL:
        labels = tl.minimum(columns, n - 1)
        slope += _slope(logits, given, label_gradient, by_label, labels, n, negative, positive)
    tl.store(result + row * n + columns, slope.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _slope(logits, given, gradient, extremes, line, lines, negative, positive):
    """The derivative of a line's contrast times its gradient: a softmax of negatives, or minus one of positives."""
    high, high_part = tl.load(extremes + line), tl.load(extremes + lines + line)
    low, low_part = tl.load(extremes + 2 * lines + line), tl.load(extremes + 3 * lines + line)
    up = _power(tl.where(given == 0, (logits - high) - high_part, 0.0), negative)
    down = _power(tl.where(given > 0, (-logits - low) - low_part, 0.0), positive)
    weight = tl.where(given == 0, up, tl.where(given > 0, -down, 0.0))
    lacking = tl.minimum(high, low) <= -2 * _BOUND
    return weight * tl.where(lacking, 0.0, tl.load(gradient + line))


@triton.jit
def _bounded(x):
    """``x`` with infinite values clipped to a finite range, as by `soft_maximum.bounded`."""
    x = tl.where(x < -_BOUND, -_BOUND, x)
    return tl.where(x > _BOUND, _BOUND, x)


@triton.jit
def _add(y, member, top, total, temperature, BY_LABEL: tl.constexpr):
    """Running maximum and sum of exponentials with the members of one more block, over its labels or its rows."""
    axis: tl.constexpr = 0
    new = tl.maximum(top, tl.max(tl.where(member, y, _LOWEST), axis))
    below = y - (new[None, :] if BY_LABEL else new)
    powers = tl.where(member, _power(tl.where(member, below, 0.0), temperature), 0.0)
    return new, total * _power(top - new, temperature) + tl.sum(powers, axis)


@triton.jit
def _merge(top, total, other_top, other_total, temperature):
    new = tl.maximum(top, other_top)
    return new, total * _power(top - new, temperature) + other_total * _power(other_top - new, temperature)


@triton.jit
def _power(below, temperature):
    """``exp(below / T)`` of what is at most 0; far below it is 0, and the quotient need not be finite there."""
    least = -1e4 * temperature
    return tl.exp(tl.where(below < least, least, below) / temperature)


@triton.jit
def _store_contrast(
    contrast, shares, extremes, line, lines, inside, high, high_sum, low, low_sum, negative, positive, share
):
    """The contrast and what it is made of; as in `losses.two_way`."""
    # At least the largest itself, if there is one; a NaN stays.
    high_part = negative * tl.log(tl.where(high_sum < 1, 1.0, high_sum))
    low_part = positive * tl.log(tl.where(low_sum < 1, 1.0, low_sum))
    lacking = (tl.minimum(high, low) <= -2 * _BOUND) & (high_part == high_part) & (low_part == low_part)
    tl.store(contrast + line, tl.where(lacking, 0.0, (high + low) + (high_part + low_part)), mask=inside)
    tl.store(shares + line, tl.where(lacking, 0.0, share), mask=inside)
    tl.store(extremes + line, high, mask=inside)
    tl.store(extremes + lines + line, high_part, mask=inside)
    tl.store(extremes + 2 * lines + line, low, mask=inside)
    tl.store(extremes + 3 * lines + line, low_part, mask=inside)

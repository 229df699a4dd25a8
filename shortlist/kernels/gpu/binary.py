"""Binary cross-entropy and the asymmetric loss: a target is read beside its logits, in one pass each way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from shortlist.kernels.gpu.targets import nan_if_outside, row_targets, target_values

LARGEST_BLOCK = 4096
"""Labels of a row that a program works on at a time."""

_TILE_ROWS, _TILE_LABELS = 8, 128
_LARGEST = tl.constexpr(3.4028234663852886e38)
_SMALLEST = tl.constexpr(1.1754943508222875e-38)
_BELOW_ONE = tl.constexpr(1 - 2.0**-24)
_FEW = 8
"""Up to this whole exponent a power is a handful of products; beyond it, an exponential of a logarithm."""

Options = Sequence[float]
"""``gamma_positive``, ``gamma_negative`` and ``clip``."""


def binary_sums(
    x: Tensor, target: Tensor, weight: Tensor | None, options: Options, background: float
) -> tuple[Tensor, Tensor]:
    """The loss of each row of ``(rows, n)``, summed over its labels, and how many are known, ``(rows,)`` in float32.

    Args:
        x: logits in float32 or half precision.
        target: as in `row_targets`.
        weight: ``(n,)`` in float32, multiplies the terms of each label.
        options: of the asymmetric loss; zeros for binary cross-entropy.
        background: how much a negative counts beside a positive.
    """
    rows, n = x.shape
    target, width, lowest, listed = row_targets(target, n)
    values, known = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    block = _block(n)
    _sum_rows[(rows,)](
        x.contiguous(),
        target,
        x if weight is None else weight.contiguous(),
        values,
        known,
        n,
        width,
        lowest,
        background,
        LISTED=listed,
        WEIGHTED=weight is not None,
        **_constants(options),
        BLOCK=block,
        num_warps=_warps(block),
    )
    return values, known


def binary_gradient(
    x: Tensor, target: Tensor, weight: Tensor | None, gradient: Tensor, options: Options, background: float
) -> Tensor:
    """The gradient in ``x``, in its dtype, given that of each row's sum ``(rows,)``."""
    rows, n = x.shape
    target, width, _, listed = row_targets(target, n)
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _slopes[(triton.cdiv(rows, _TILE_ROWS), triton.cdiv(n, _TILE_LABELS))](
        x.contiguous(),
        target,
        x if weight is None else weight.contiguous(),
        gradient.contiguous(),
        result,
        rows,
        n,
        width,
        background,
        LISTED=listed,
        WEIGHTED=weight is not None,
        **_constants(options),
        ROWS=_TILE_ROWS,
        LABELS=_TILE_LABELS,
    )
    return result


def _block(n: int) -> int:
    """The number of labels that a program takes at a time."""
    return min(LARGEST_BLOCK, triton.next_power_of_2(n))


def _warps(block: int) -> int:
    return 8 if block >= 2048 else 4


def _constants(options: Options) -> dict[str, float]:
    positive, negative, clip = options
    power = int(negative) if negative in range(1, _FEW + 1) else 0
    return {"GAMMA_POSITIVE": positive, "GAMMA_NEGATIVE": negative, "CLIP": clip, "POWER": power}


def compile_cases(block: int) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Kernels with the types of their arguments and their constants, to compile them without a device."""
    types = dict.fromkeys(["x", "weight", "values", "counts", "gradient", "result"], "*fp32")
    types |= dict.fromkeys(["rows", "n", "width", "lowest"], "i32") | {"background": "fp32"}
    size = _block(block)
    cases: dict[str, tuple[Any, dict[str, str], dict[str, Any], int]] = {}
    kinds = {"bce": (0.0, 0.0, 0.0), "asymmetric": (0.0, 4.0, 0.05), "asymmetric_rough": (0.5, 2.5, 0.05)}
    for (name, options), listed in product(kinds.items(), (True, False)):
        given = {**types, "target": "*i64" if listed else "*fp32"}
        constants = {"LISTED": listed, "WEIGHTED": True, **_constants(options)}
        form = "lists" if listed else "multi_hots"
        cases[f"{name}_{form}"] = _sum_rows, given, {**constants, "BLOCK": size}, _warps(size)
        tile = {"ROWS": _TILE_ROWS, "LABELS": _TILE_LABELS}
        cases[f"{name}_gradient_{form}"] = _slopes, given, {**constants, **tile}, 4
    return cases


@triton.jit
def _sum_rows(
    x,
    target,
    weight,
    values,
    counts,
    n,
    width,
    lowest,
    background,
    LISTED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    GAMMA_POSITIVE: tl.constexpr,
    GAMMA_NEGATIVE: tl.constexpr,
    CLIP: tl.constexpr,
    POWER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    known = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n
        logits = tl.load(x + row * n + columns, mask=inside, other=0).to(tl.float32)
        given = target_values(target, row, columns, inside, width, LISTED)
        logits = tl.where(given < 0, 0.0, logits)
        present, absent = _shares(given, inside, background)
        term = present * _negative_side(-logits, GAMMA_POSITIVE, 0.0, 0)[0]
        term += absent * _negative_side(logits, GAMMA_NEGATIVE, CLIP, POWER)[0]
        if WEIGHTED:
            term *= tl.load(weight + columns, mask=inside, other=0)
        total += tl.where(inside, term, 0.0)
        known += (inside & ~(given < 0)).to(tl.float32)
    broken = nan_if_outside(target, row, n, width, lowest, LISTED)
    tl.store(values + row, tl.sum(total, 0) + broken)
    tl.store(counts + row, tl.sum(known, 0))


@triton.jit
def _slopes(
    x,
    target,
    weight,
    gradient,
    result,
    rows,
    n,
    width,
    background,
    LISTED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    GAMMA_POSITIVE: tl.constexpr,
    GAMMA_NEGATIVE: tl.constexpr,
    CLIP: tl.constexpr,
    POWER: tl.constexpr,
    ROWS: tl.constexpr,
    LABELS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * LABELS + tl.arange(0, LABELS)[None, :]
    exists = row < rows
    inside = exists & (columns < n)
    row = tl.minimum(row, rows - 1)
    logits = tl.load(x + row * n + columns, mask=inside, other=0).to(tl.float32)
    given = target_values(target, row, columns, inside, width, LISTED)
    logits = tl.where(given < 0, 0.0, logits)
    present, absent = _shares(given, inside, background)
    slope = absent * _negative_side(logits, GAMMA_NEGATIVE, CLIP, POWER)[1]
    slope -= present * _negative_side(-logits, GAMMA_POSITIVE, 0.0, 0)[1]
    if WEIGHTED:
        slope *= tl.load(weight + columns, mask=columns < n, other=0)
    slope *= tl.load(gradient + row)
    tl.store(result + row * n + columns, slope.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _shares(given, inside, background):
    """How much each label counts as a positive and as a negative; an unknown one as neither."""
    unknown = given < 0
    present = tl.where(unknown, 0.0, given)
    return present, tl.where(unknown, 0.0, (1 - present) * background)


@triton.jit
def _negative_side(x, GAMMA: tl.constexpr, CLIP: tl.constexpr, POWER: tl.constexpr):
    """``-p_m^γ log(1 - p_m)`` and its slope, with ``p_m = max(σ(x) - clip, 0)``; as in `losses.binary`."""
    tail = tl.exp(-tl.abs(x))
    larger, smaller = 1 / (1 + tail), tail / (1 + tail)
    p, q = tl.where(x >= 0, larger, smaller), tl.where(x >= 0, smaller, larger)
    if CLIP > 0:
        return _clipped_side(p, q, GAMMA, CLIP, POWER)
    short = _log1p(tail)
    loss = tl.where(x > 0, x, 0.0) + short
    loss = tl.where(loss > _LARGEST, _LARGEST, loss)
    slope = p
    if GAMMA != 0:
        fade = tl.exp(-GAMMA * (tl.where(x < 0, -x, 0.0) + short))
        slope = (slope + GAMMA * q * loss) * fade
        loss = loss * fade
    return loss, slope


@triton.jit
def _clipped_side(p, q, GAMMA: tl.constexpr, CLIP: tl.constexpr, POWER: tl.constexpr):
    """The same of probabilities; ``POWER`` is a gamma that is a small whole number, else 0."""
    rest = q + CLIP
    if POWER == 0:
        # Without `p_m^(γ - 1)`, which below a gamma of 1 is infinite at the clip.
        rest = tl.where(rest > _BELOW_ONE, _BELOW_ONE, rest)
        ratio = _log_inverse(rest) / (1 - rest)
        shifted = 1 - CLIP - q
        shifted = tl.where(shifted < 0, 0.0, shifted)
        fade = tl.exp(GAMMA * tl.log(tl.where(shifted < _SMALLEST, _SMALLEST, shifted)))
        fade = tl.where(shifted == 0, 0.0, fade)
        return fade * shifted * ratio, p * q * fade * (GAMMA * ratio + 1 / rest)
    rest = tl.where(rest > 1, 1.0, rest)
    shifted = 1 - rest
    loss = _log_inverse(rest)
    lower = shifted * 0 + 1
    for _ in tl.static_range(1, POWER):
        lower *= shifted
    return loss * (lower * shifted), p * q * (shifted / rest + GAMMA * loss) * lower


@triton.jit
def _log_inverse(rest):
    """``-log(rest)`` for rest in (0, 1], with all its digits near 1."""
    near = tl.where(rest > 0.5, rest, 1.0)
    return tl.where(rest > 0.5, _twice_atanh((1 - near) / (1 + near)), -tl.log(rest))


@triton.jit
def _log1p(t):
    """``log(1 + t)`` for t in [0, 1], with all its digits near 0."""
    return _twice_atanh(t / (2 + t))


@triton.jit
def _twice_atanh(s):
    """``log((1 + s) / (1 - s))`` for s in [0, 1/3]: its series, whose rest is below the rounding error of float32."""
    square = s * s
    total = 1 / 15 * square + 1 / 13
    total = total * square + 1 / 11
    total = total * square + 1 / 9
    total = total * square + 1 / 7
    total = total * square + 1 / 5
    total = total * square + 1 / 3
    return 2 * (s + s * square * total)

"""How many logits exceed a threshold, and by how much in total, without reading a value or leaving float32.

For accelerators, compilers and `torch.func`. Sums have terms of one sign, so that differences keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.functional.autograd import RowFunction
from shortlist.tensors import wide

_FEW = 8
"""Up to this many thresholds per row, passes over the row beat a sort of it."""

_ENTRIES = 1 << 24
"""Entries of a pass, over all thresholds that it takes at a time."""


def violations(x: Tensor, thresholds: Tensor, cap: float, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """For each threshold t of a row, how many ``x + t`` are above 0, and the sum of ``min(x + t, cap)`` over these.

    Args:
        x: ``(rows, n)``; -inf marks what is no violation whatever the threshold.
        thresholds: ``(rows, m)``, or ``(m,)`` of the given ``rows``.
        cap: positive; may be infinite.
        rows: ``(m,)``, the row of each threshold of a list.

    Returns:
        Integers and, differentiable, sums, both of the shape of ``thresholds``.
    """
    # An infinite threshold must not meet a logit of -inf.
    thresholds = thresholds.clamp(max=torch.finfo(x.dtype).max)
    if rows is None and thresholds.shape[-1] <= _FEW:
        count, total = _Few.run(x, thresholds, cap)
    else:
        count, total, *_ = _Sorted.run(x, thresholds, rows, cap)
    return count, total


def ranked_rows(
    x: Tensor, values: Tensor, weight: Tensor | None, *, margin: float = 1.0, cap: float = math.inf, balance: float = 0
) -> Tensor:
    """`shortlist.functional.warp` of each row, ``(rows,)``, or with ``cap`` and ``balance`` `shortlist.functional.rml`.

    Args:
        x: logits ``(rows, n)``.
        values: ``(rows, n)``: above 0 present, 0 absent, negative unknown.
        weight: ``(n,)``, or None.
        margin: by how much a positive should exceed each negative.
        cap: positive; may be infinite. The most that a pair, or a label by itself, costs.
        balance: weight of the terms of each label by itself, which are finite only with a finite cap.
    """
    return _RankedRows.run(x, values, None if weight is None else weight.unsqueeze(0), margin, cap, balance)[0]


class _Few(RowFunction):
    """``x, t, cap -> count, total``, by passes over the rows, each for as many thresholds as memory allows."""

    @staticmethod
    def forward(x: Tensor, thresholds: Tensor, cap: float) -> tuple[Tensor, Tensor]:
        counts, totals = [], []
        for above in _excesses(x, thresholds):
            counts.append((above > 0).sum(-1))
            totals.append(above.clamp_(0, cap).sum(-1))
        return torch.cat(counts, -1), torch.cat(totals, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.cap = inputs[2]
        ctx.mark_non_differentiable(output[0])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, _: None, gradient: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        if gradient is None:
            return None, None, None
        x, thresholds = ctx.saved_tensors
        to_x, to_thresholds, start = None, [], 0
        for above in _excesses(x.detach(), thresholds.detach()):
            given = gradient[..., start : start + above.shape[-2]]
            passed = _passed(given.unsqueeze(-1), above, ctx.cap)
            to_x = passed.sum(-2) if to_x is None else to_x + passed.sum(-2)
            to_thresholds.append(passed.sum(-1))
            start += above.shape[-2]
        return to_x, torch.cat(to_thresholds, -1), None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, t_tangent: Tensor | None, _: None) -> tuple[None, Tensor]:
        x, thresholds = ctx.saved_tensors
        along_x = torch.zeros_like(x) if x_tangent is None else x_tangent
        along_t = torch.zeros_like(thresholds) if t_tangent is None else t_tangent
        pairs = zip(_excesses(along_x, along_t), _excesses(x, thresholds), strict=True)
        return None, torch.cat([_passed(rate, above, ctx.cap).sum(-1) for rate, above in pairs], -1)


def _excesses(x: Tensor, thresholds: Tensor) -> Iterator[Tensor]:
    """``x + t`` for a few thresholds at a time, ``(..., rows, few, n)``."""
    size = max(1, _ENTRIES // max(x.numel(), 1))
    for start in range(0, thresholds.shape[-1], size):
        yield x.unsqueeze(-2) + thresholds[..., start : start + size].unsqueeze(-1)


def _passed(gradient: Tensor, above: Tensor, cap: float) -> Tensor:
    """``gradient`` where ``0 < above < cap``, else 0, in one kernel."""
    return torch.ops.aten.hardtanh_backward(gradient.expand(above.shape), above, 0, cap)


class _Sorted(RowFunction):
    """``x, t, rows, cap -> count, total, order, capped``, for any number of thresholds.

    With logits y in descending order, the sum of ``y_j + t`` over the first r is
    ``sum_j (y_j - y_{r-1}) + r (y_{r-1} + t)``, and the first sum is one of ``(j + 1) (y_j - y_{j+1})``.
    """

    @staticmethod
    def forward(
        x: Tensor, thresholds: Tensor, rows: Tensor | None, cap: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        keys, order = (-x).sort(-1)
        count, total, capped = _capped(keys, thresholds, rows, cap)
        return count, total, order, count.new_empty(*count.shape[:-1], 0) if capped is None else capped

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        count, _, order, capped = output
        ctx.mark_non_differentiable(count, order, capped)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(count, order, capped, inputs[2])
        ctx.save_for_forward(count, order, capped, inputs[2])

    @staticmethod
    def backward(ctx: Any, _: None, gradient: Tensor | None, *__: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None
        count, order, capped, rows = ctx.saved_tensors
        shares = _shares(gradient, order.shape, rows, count, capped if capped.numel() else None)
        active = count - capped if capped.numel() else count
        # Every place is written once.
        if torch.is_grad_enabled():
            return torch.zeros_like(shares).scatter(-1, order, shares), gradient * active, None, None
        return torch.empty_like(shares).scatter_(-1, order, shares), gradient * active, None, None

    @staticmethod
    def tangent(
        ctx: Any, x_tangent: Tensor | None, t_tangent: Tensor | None, *_: None
    ) -> tuple[None, Tensor, None, None]:
        count, order, capped, rows = ctx.saved_tensors
        moved: Any = 0
        if x_tangent is not None:
            sums = pad(x_tangent.gather(-1, order).cumsum(-1), (1, 0))
            moved = _at(sums, rows, count)
            moved = moved - _at(sums, rows, capped) if capped.numel() else moved
        if t_tangent is not None:
            moved = moved + (count - capped if capped.numel() else count) * t_tangent
        return None, moved, None, None


class _RankedRows(RowFunction):
    """``x, values, weight, margin, cap, balance -> loss, gradient`` of each row of a multi-hot.

    The loss is piecewise linear, so its gradient is a constant, found with the value: no mask or rank is kept.
    """

    @staticmethod
    def forward(
        x: Tensor, values: Tensor, weight: Tensor | None, margin: float, cap: float, balance: float
    ) -> tuple[Tensor, Tensor]:
        absent, positive, most = values == 0, values > 0, torch.finfo(x.dtype).max
        member = (x != -math.inf).logical_and_(positive)
        below = -x
        threshold = torch.where(member, below, -most).add_(margin)
        keys, order = torch.where(absent, below, math.inf).sort(-1)
        count, total, capped = _capped(keys, threshold, None, cap)
        share = harmonic(x)[count]
        share = share if weight is None else share.mul_(weight)
        loss = total.mul_(share).sum(-1) + _lost(positive, member, weight, keys, cap, balance)
        active = count if capped is None else count - capped
        gradient = None
        if balance:
            ramp = torch.where(absent, margin - below, threshold)
            sign = torch.where(positive, -balance, balance).to(x.dtype)
            sign = sign if weight is None else sign.mul_(weight)
            gradient = _passed(sign, ramp, cap)
            ramp = ramp.clamp_(0, cap)
            loss = loss + balance * (ramp if weight is None else ramp.mul_(weight)).sum(-1)
        gradient = -share * active if gradient is None else gradient.addcmul_(share, active, value=-1)
        gradient.scatter_add_(-1, order, _shares(share, order.shape, None, count, capped))
        # What is not a number is last in order.
        return loss + torch.where(keys[..., -1].isnan(), math.nan, 0), gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return None if gradient is None else gradient.unsqueeze(-1) * slope, None, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return (slope * x_tangent).sum(-1), None


def _lost(positive: Tensor, member: Tensor, weight: Tensor | None, keys: Tensor, cap: float, balance: float) -> Tensor:
    """The terms of positives at -inf, whose margin every negative violates by infinitely much."""
    lost = positive.logical_xor(member)
    lost = lost.sum(-1) if weight is None else (lost * weight).sum(-1)
    everything = keys.new_full((*keys.shape[:-1], 1), torch.finfo(keys.dtype).max)
    rank = torch.searchsorted(keys, everything).squeeze(-1)
    each = torch.where(rank > 0, harmonic(keys)[rank] * rank * cap, 0)
    return torch.where(lost > 0, lost * (each + balance * cap if balance else each), 0)


def harmonic(x: Tensor) -> Tensor:
    """``1 + 1/2 + ... + 1/r`` for all ranks from 0 to the number of columns of ``x``."""
    steps = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=wide(x))
    return pad(steps.reciprocal().cumsum(0), (1, 0)).to(x.dtype)


def _capped(keys: Tensor, thresholds: Tensor, rows: Tensor | None, cap: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """For ascending keys and each threshold t: how many lie below t, the sum of ``min(t - key, cap)`` over these, and
    how many are capped.
    """
    # What is at inf or not a number is behind all others and never looked up.
    gaps = keys.diff(dim=-1).mul_(torch.arange(1, keys.shape[-1], device=keys.device, dtype=keys.dtype))
    # What to look up by rank: sums, and the last of the counted keys.
    table = pad(gaps.cumsum_(-1), (2, 0)), pad(keys, (1, 0))
    count, total = _look_up(keys, table, thresholds, rows)
    if cap == math.inf:
        return count, total, None
    capped, beyond = _look_up(keys, table, thresholds - cap, rows)
    return count, total.sub_(beyond), capped


def _shares(gradient: Tensor, shape: torch.Size, rows: Tensor | None, count: Tensor, capped: Tensor | None) -> Tensor:
    """The gradient of each key in order: the sum over all thresholds that count it and do not cap it."""
    given = gradient.new_zeros(*shape[:-1], shape[-1] + 1)
    flat = given if rows is None else given.flatten(-2)
    flat = flat.scatter_add(-1, _places(given, rows, count), gradient)
    if capped is not None:
        flat = flat.scatter_add(-1, _places(given, rows, capped), -gradient)
    # From the largest rank down.
    return flat.view(given.shape).flip(-1).cumsum(-1)[..., :-1].flip(-1)


def _places(table: Tensor, rows: Tensor | None, rank: Tensor) -> Tensor:
    """The place of each rank in its row of ``table``; of listed thresholds, in the flattened rows."""
    return rank if rows is None else rows * table.shape[-1] + rank


def _at(table: Tensor, rows: Tensor | None, rank: Tensor) -> Tensor:
    return (table if rows is None else table.flatten(-2)).gather(-1, _places(table, rows, rank))


def _look_up(
    keys: Tensor, table: tuple[Tensor, Tensor], thresholds: Tensor, rows: Tensor | None
) -> tuple[Tensor, Tensor]:
    """How many of the ascending keys lie below each threshold, and the sum of the differences."""
    sums, last = table
    if rows is None:
        rank = torch.searchsorted(keys, thresholds.contiguous(), out_int32=True)
    else:
        rank = count_below(keys, rows, thresholds)
    return rank, torch.addcmul(_at(sums, rows, rank), thresholds - _at(last, rows, rank), rank)


def count_below(keys: Tensor, rows: Tensor, wanted: Tensor) -> Tensor:
    """How many of the ascending keys ``(..., rows, n)`` of its row lie below each of ``wanted`` ``(..., m)``.

    By bisection.

    Example:
        >>> keys = torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 5.0]])
        >>> count_below(keys, torch.tensor([1, 0]), torch.tensor([4.0, 1.0]))
        tensor([2, 1])
    """
    n, keys = keys.shape[-1], keys.flatten(-2)
    low, high = torch.zeros_like(rows), torch.full_like(rows, n)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        below = (keys.gather(-1, rows * n + middle.clamp(max=n - 1)) < wanted) & (low < high)
        low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
    return low

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

_FEW = 8
"""Up to this many thresholds per row, passes over the row beat a sort of it."""

_ENTRIES = 1 << 24
"""Entries of a pass, over all thresholds that it takes at a time."""


def violations(x: Tensor, thresholds: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """For each threshold t of a row, how many ``x + t`` are above 0, and the sum of ``min(x + t, cap)`` over these.

    Args:
        x: ``(rows, n)``; -inf marks what is no violation whatever the threshold.
        thresholds: ``(rows, m)``.
        cap: positive; may be infinite.

    Returns:
        Integers ``(rows, m)`` and, differentiable, ``(rows, m)``.
    """
    # An infinite threshold must not meet a logit of -inf.
    thresholds = thresholds.clamp(max=torch.finfo(x.dtype).max)
    count, total, *_ = (_Few if thresholds.shape[-1] <= _FEW else _Sorted).run(x, thresholds, cap)
    return count, total


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
    """``x, t, cap -> count, total, order, capped``, for any number of thresholds.

    With logits y in descending order, the sum of ``y_j + t`` over the first r is
    ``sum_j (y_j - y_{r-1}) + r (y_{r-1} + t)``, and the first sum is one of ``(j + 1) (y_j - y_{j+1})``.
    """

    @staticmethod
    def forward(x: Tensor, thresholds: Tensor, cap: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        keys, order = (-x).sort(-1)
        finite = keys.clamp(max=torch.finfo(x.dtype).max)  # what is at -inf is behind all others and never looked up
        gaps = finite.diff(dim=-1).mul_(torch.arange(1, x.shape[-1], device=x.device, dtype=x.dtype))
        # What to look up by rank: sums, and the last of the counted keys.
        table = pad(gaps.cumsum_(-1), (2, 0)), pad(finite, (1, 0))
        count, total = _look_up(keys, table, thresholds)
        if cap == math.inf:
            return count, total, order, count.new_empty(*count.shape[:-1], 0)
        capped, beyond = _look_up(keys, table, thresholds - cap)
        return count, total.sub_(beyond), order, capped

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        count, _, order, capped = output
        ctx.n = inputs[0].shape[-1]
        ctx.mark_non_differentiable(count, order, capped)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(count, order, capped)
        ctx.save_for_forward(count, order, capped)

    @staticmethod
    def backward(ctx: Any, _: None, gradient: Tensor | None, *__: None) -> tuple[Tensor | None, Tensor | None, None]:
        if gradient is None:
            return None, None, None
        count, order, capped = ctx.saved_tensors
        # From the largest rank down, so that a running sum adds the gradients of all thresholds that count a logit.
        given = gradient.new_zeros(*order.shape[:-1], ctx.n + 1).scatter_add(-1, ctx.n - count, gradient)
        if capped.numel():
            given = given.scatter_add(-1, ctx.n - capped, -gradient)
            count = count - capped
        shares = given.cumsum(-1)[..., :-1].flip(-1)
        # Every place is written once.
        if torch.is_grad_enabled():
            return torch.zeros_like(shares).scatter(-1, order, shares), gradient * count, None
        return torch.empty_like(shares).scatter_(-1, order, shares), gradient * count, None

    @staticmethod
    def tangent(
        ctx: Any, x_tangent: Tensor | None, t_tangent: Tensor | None, _: None
    ) -> tuple[None, Tensor, None, None]:
        count, order, capped = ctx.saved_tensors
        moved: Any = 0
        if x_tangent is not None:
            sums = pad(x_tangent.gather(-1, order).cumsum(-1), (1, 0))
            moved = sums.gather(-1, count)
            moved = moved - sums.gather(-1, capped) if capped.numel() else moved
        if t_tangent is not None:
            moved = moved + (count - capped if capped.numel() else count) * t_tangent
        return None, moved, None, None


def _look_up(keys: Tensor, table: tuple[Tensor, Tensor], thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """How many of the ascending keys lie below each threshold, and the sum of the differences."""
    sums, last = table
    rank = torch.searchsorted(keys, thresholds.contiguous(), out_int32=True)
    total = (thresholds - last.gather(-1, rank)).mul_(rank).add_(sums.gather(-1, rank))
    return rank, total

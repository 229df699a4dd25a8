"""LML where a row's labels are on several processes: each solves for the same dual, and projects its own labels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.checks import check_temperature
from shortlist.functional.projections.lml_parts import solve_parts
from shortlist.functional.projections.lml_root import centred
from shortlist.label_axis.axis import HeldLabels
from shortlist.label_axis.once_differentiable import once_differentiable
from shortlist.label_axis.processes import ProcessShards, all_sum, copy_to_group
from shortlist.label_axis.rows import Rows, as_rows
from shortlist.tensors import log_sigmoid, wide

_NEAR = 20.0
"""A share is at most 1; what exceeds it by this factor is rounding of numbers too large to have any digits left."""

_LEAST = 1e-30


def sharded_lml(
    logits: Tensor, k: float | Tensor, *, dim: int, temperature: float, mask: Tensor | None, log: bool = False
) -> Tensor:
    """``lml``, or its logarithm, of a DTensor that is sharded along its labels."""
    rows = as_rows(logits, k, dim=dim, mask=mask)
    temperature = check_temperature(temperature)
    pivot, delta = sharded_dual(rows, temperature)
    delta = copy_to_group(delta, rows.processes.group)
    if not log:
        return rows.restore(_LogOdds.apply(rows.logits, pivot, delta, temperature).sigmoid(), logits, dim)
    y = centred(rows.logits, pivot, delta, temperature)
    return rows.restore(torch.where(y == -math.inf, -math.inf, log_sigmoid(y)), logits, dim)


def sharded_lml_dual(logits: Tensor, k: float | Tensor, *, dim: int, temperature: float, mask: Tensor | None) -> Tensor:
    """``lml_dual`` of a DTensor that is sharded along its labels."""
    rows = as_rows(logits, k, dim=dim, mask=mask)
    temperature = check_temperature(temperature)
    pivot, delta = sharded_dual(rows, temperature)
    everything = delta > torch.finfo(delta.dtype).max / 8
    nu = torch.where(everything, math.inf, temperature * delta - pivot)
    return rows.processes.replicate(nu.squeeze(-1).to(logits.dtype))


def sharded_dual(rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """``(pivot, delta)`` with ``p = sigmoid((x - pivot) / T + delta)``, the same on all processes; ``delta`` learns."""
    pivot, delta, _ = _Dual.apply(rows.logits, rows.k, temperature, rows.processes)
    return pivot, delta


class _Dual(Function):
    """``x, k, T, shards -> pivot, delta, log sum q``. The gradient of delta is ``-q / (T sum q)`` in the own x and
    ``1 / sum q`` in k, with ``q = p (1 - p)``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor, temperature: float, shards: ProcessShards) -> tuple[Tensor, ...]:
        column = torch.where(k <= shards.total, k, math.nan).expand(*x.shape[:-1], 1)
        flat = x.detach().reshape(math.prod(x.shape[:-1]), x.shape[-1])
        solved = solve_parts(HeldLabels(flat, shards), column.reshape(-1, 1), temperature)
        parts = tuple(part.reshape(column.shape) for part in solved)
        ctx.temperature, ctx.k_shape, ctx.group = temperature, k.shape, shards.group
        ctx.mark_non_differentiable(parts[0], parts[2])
        ctx.save_for_backward(x, *parts)
        return parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, gradient: Tensor, __: Tensor) -> tuple[Tensor | None, ...]:
        x, pivot, delta, log_slope = ctx.saved_tensors
        limits = torch.finfo(delta.dtype)
        inner = delta.abs() < limits.max / 8
        gradient = torch.where(inner, gradient, 0)
        to_x = to_k = None
        if ctx.needs_input_grad[0]:
            y = centred(x, pivot, torch.where(inner, delta, 0), ctx.temperature).abs_()
            # The share q / sum q by its logarithm: where p rounds to 0 or 1, q underflows, and its share need not.
            share = y.neg().exp_().log1p_().mul_(-2).sub_(y).sub_(torch.where(inner, log_slope, 0))
            share = share.clamp_(max=_NEAR).exp_()
            # About 1, but for the rounding of large log-odds.
            total = all_sum(share.sum(-1, keepdim=True, dtype=wide(x)), ctx.group)
            to_x = share.mul_((-gradient / (ctx.temperature * total.clamp(min=_LEAST))).to(x.dtype))
        if ctx.needs_input_grad[1]:
            per_k = (-log_slope).clamp(max=math.log(limits.max) - 1).exp()
            to_k = (gradient * torch.where(inner, per_k, 0)).clamp(-limits.max, limits.max).sum_to_size(ctx.k_shape)
        return to_x, to_k, None, None


class _LogOdds(Function):
    """``x, pivot, delta, T -> (x - pivot) / T + delta``, keeping nothing; infinite labels, too, learn."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pivot: Tensor, delta: Tensor, temperature: float) -> Tensor:
        ctx.temperature = temperature
        return centred(x, pivot, delta, temperature)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor, None]:
        return gradient / ctx.temperature, None, gradient.sum(-1, keepdim=True), None

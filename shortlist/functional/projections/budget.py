"""Budgets: at most k labels, where the projections ask for exactly k."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction, projection_gradient, projection_tangent, remember_k
from shortlist.functional.projections.lml import lml, shares, slopes
from shortlist.functional.projections.sparse_top import interior, sparse_top
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import check_logits, check_temperature


def lml_budget(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Independent sigmoids where they sum to at most ``k``, else :func:`lml`.

    .. math:: p = \arg\max_p\; x \cdot p + T H_b(p), \quad 0 \le p \le 1, \; \textstyle\sum_j p_j \le k

    Args:
        logits: as for :func:`lml`, but not sharded.
        k: the most labels that may be spent; a non-negative number or a tensor with one value per row. More than n
            is no constraint.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``.

    Example:
        >>> lml_budget(torch.tensor([[2.0, 1.0, 0.0, -1.0], [-2.0, -3.0, -4.0, -4.0]]), k=2).sum(-1)
        tensor([2.0000, 0.2026])
    """
    return _budget(logits, k, dim, temperature, mask, entropic=True)


def sparse_top_budget(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""``clip(x / T, 0, 1)`` where that sums to at most ``k``, else :func:`sparse_top`.

    .. math:: p = \arg\min_p\; \tfrac12 \|p - x / T\|^2, \quad 0 \le p \le 1, \; \textstyle\sum_j p_j \le k

    Args:
        logits: as for :func:`sparse_top`, but not sharded.
        k: the most labels that may be spent; a non-negative number or a tensor with one value per row. More than n
            is no constraint.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``.

    Example:
        >>> sparse_top_budget(torch.tensor([0.75, 0.5, -1.0]), k=2)
        tensor([0.7500, 0.5000, 0.0000])
    """
    return _budget(logits, k, dim, temperature, mask, entropic=False)


def _budget(
    logits: Tensor, k: float | Tensor, dim: int, temperature: float, mask: Tensor | None, *, entropic: bool
) -> Tensor:
    check_logits(logits, dim)
    rows = as_rows(logits, _at_most_all(k, logits, dim), dim=dim, mask=mask)
    p, _ = _Budget.run(rows.logits, rows.wanted, check_temperature(temperature), entropic)
    return rows.restore(p, logits, dim)


class _Budget(RowFunction):
    """``x, k, T, entropic -> p, binds``: the smaller of the free answer and the projection, and whether k binds.

    Where k binds, the shift of the projection is negative, so each entry is below its free value, else above it; sums
    could not tell by how little a budget is exceeded. The Jacobian is that of the projection, or diagonal.
    """

    @staticmethod
    def forward(x: Tensor, k: Tensor | float, temperature: float, entropic: bool) -> tuple[Tensor, Tensor]:
        free = x if temperature == 1 else x / temperature
        free = free.sigmoid() if entropic else free.clamp(0, 1)
        bound = (lml if entropic else sparse_top)(x, k, temperature=temperature)
        return torch.minimum(free, bound), (bound < free).any(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, k, ctx.temperature, ctx.entropic = inputs
        ctx.group = ctx.shards = None
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        column = remember_k(ctx, k)
        ctx.save_for_backward(*output, *((x, *column) if column and k.requires_grad else ()))
        ctx.save_for_forward(*output, x, *column)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None
        p, binds, *inputs = ctx.saved_tensors
        to_x, to_k = projection_gradient(ctx, _weights(ctx, p), gradient, binds)[:2]
        if ctx.entropic and ctx.needs_input_grad[1]:  # not the mean by the weights, which may underflow
            to_k = ((shares(ctx, *inputs) * gradient).sum(-1, keepdim=True) * binds).sum_to_size(ctx.k_shape)
        return to_x, to_k, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, *_: None) -> tuple[Tensor, None]:
        p, binds, *inputs = ctx.saved_tensors
        weights = _weights(ctx, p)
        moved = projection_tangent(ctx, weights, x_tangent, None, binds)
        if k_tangent is None:
            return moved, None
        share = shares(ctx, *inputs) if ctx.entropic else projection_tangent(ctx, weights, None, torch.ones_like(binds))
        return moved + share * binds * k_tangent, None


def _weights(ctx: Any, p: Tensor) -> Tensor:
    return slopes(p) if ctx.entropic else interior(p)


def _at_most_all(k: float | Tensor, logits: Tensor, dim: int) -> float | Tensor:
    """A budget of more than n labels is a budget of n."""
    if isinstance(k, Tensor):
        return k.clamp(max=logits.shape[dim]) if k.is_floating_point() or k.dtype == torch.int64 else k
    return min(k, logits.shape[dim]) if isinstance(k, Real) else k

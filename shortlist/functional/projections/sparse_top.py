"""Sparse-top: the Euclidean projection onto the vectors in [0, 1] that sum to k. Sparsemax is its case k = 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.checks import check_temperature
from shortlist.functional.loops import on_tensors, serve
from shortlist.functional.projections.centring import centred_gradient, centred_tangent, keep_projection
from shortlist.functional.projections.sparse_top_solve import solve_sparse_top
from shortlist.functional.row_function import RowFunction
from shortlist.functional.sharded.sparse_top import sharded_sparse_top
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import is_dtensor, is_plain


def sparse_top(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Euclidean projection onto the vectors in [0, 1] that sum to ``k``.

    .. math:: p = \operatorname{clip}\!\left(\frac{x - \lambda}{T}, 0, 1\right), \quad \textstyle\sum_j p_j = k

    Unlike :func:`lml` it reaches 0 and 1 exactly: labels more than about ``T`` below the ``k``-th get p = 0.

    Args:
        logits: any shape, floating. ``-inf`` marks an absent label (p = 0); a ``+inf`` label is certain (p = 1) and
            the rest share what is left of ``k``; NaN makes its own row NaN. float16 and bfloat16 are solved in
            float32. A ``DTensor`` may be sharded along its labels: then a few numbers per row travel, 5 to 12 times.
        k: how many labels, whole or not: a number in [0, n], or a tensor with one value per row, differentiable,
            whose values outside [0, n] give rows of NaN. Where no more than ``k`` labels are present, each has
            p = 1.
        dim: the label axis.
        temperature: ``T``, a positive number; :math:`T \to 0` gives the indicator of the ``k`` largest.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``, and sharded alike. Piecewise linear, so almost everywhere differentiable.

    Example:
        >>> sparse_top(torch.tensor([2.0, 1.2, 0.9, -3.0]), k=2)
        tensor([1.0000, 0.6500, 0.3500, 0.0000])

    References:
        Garcin, "Set-valued classification", 2023, eq. 6.13-6.21.
    """
    if is_dtensor(logits):
        return sharded_sparse_top(logits, k, dim=dim, temperature=temperature, mask=mask)
    rows = as_rows(logits, k, dim=dim, mask=mask)
    return rows.restore(_SparseTop.run(rows.logits, rows.k, check_temperature(temperature)), logits, dim)


def sparsemax(logits: Tensor, *, dim: int = -1, temperature: float = 1.0, mask: Tensor | None = None) -> Tensor:
    r"""Euclidean projection onto the probability simplex: :func:`sparse_top` with ``k = 1``.

    .. math:: p = \max\!\left(\frac{x - \lambda}{T}, 0\right), \quad \textstyle\sum_j p_j = 1

    Args:
        logits: as for :func:`sparse_top`, with at least one label.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``.

    Example:
        >>> sparsemax(torch.tensor([1.0, 0.6, -1.0]))
        tensor([0.7000, 0.3000, 0.0000])

    References:
        Martins, Astudillo, "From Softmax to Sparsemax", 2016.
    """
    return sparse_top(logits, 1, dim=dim, temperature=temperature, mask=mask)


class _SparseTop(RowFunction):
    """``x, k, T -> p``. With m the indicator of 0 < p < 1, the Jacobian in x is ``(diag(m) - m m^T / |m|) / T``,
    in k it is ``m / |m|``.
    """

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: float) -> Tensor:
        return solve_sparse_top(x, k, temperature)

    setup_context = staticmethod(keep_projection)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (p,) = ctx.saved_tensors
        if not torch.is_grad_enabled() and is_plain(gradient) and serve(ctx.temperature, p, gradient):
            to_x, mean = on_tensors.sparse_top_gradient(p, gradient, ctx.temperature)
            return to_x, mean.sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None, None
        return centred_gradient(ctx, *_inside(p), gradient)

    @staticmethod
    def tangent(ctx: Any, x: Tensor | None, k: Tensor | None, _: None) -> Tensor:
        return centred_tangent(ctx, *_inside(ctx.saved_tensors[0]), x, k)


def _inside(p: Tensor) -> tuple[Tensor, Tensor]:
    """The indicator of 0 < p < 1 as numbers, and how many there are (at least 1)."""
    inside = p.detach().frac().ceil_()
    return inside, inside.sum(-1, keepdim=True).clamp(min=1)

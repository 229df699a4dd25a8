"""Sparse-top: the Euclidean projection onto the vectors in [0, 1] that sum to k. Sparsemax is its case k = 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.autograd import (
    RowFunction,
    opaque,
    projection_gradient,
    projection_tangent,
    save_projection,
)
from shortlist.functional.projections.sparse_top_counts import sparse_top_by_counts
from shortlist.functional.projections.sparse_top_solver import exact_threshold, solve_sparse_top
from shortlist.kernels import projections as kernels
from shortlist.kernels.chooser import (
    TRITON_DEVICES,
    fixed_steps,
    triton_kernels,
    use_kernel,
    use_kernel_backward,
    use_triton,
    use_triton_backward,
)
from shortlist.label_axis.axis import HeldLabels, row_blocks
from shortlist.label_axis.processes import ProcessShards
from shortlist.label_axis.rows import as_rows, flat_rows
from shortlist.tensors import check_temperature, solvable


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
            the others share the rest of ``k``; NaN makes its own row NaN. float16 and bfloat16 are solved in
            float32. A ``DTensor`` may be sharded along its labels: then a few numbers per row are sent, 5 to 12 times.
        k: how many labels, as for :func:`lml`.
        dim: the label axis.
        temperature: ``T``, a positive number; :math:`T \to 0` gives the indicator of the ``k`` largest.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape, dtype and sharding as ``logits``. Piecewise linear, so almost everywhere differentiable.

    Example:
        >>> sparse_top(torch.tensor([2.0, 1.2, 0.9, -3.0]), k=2)
        tensor([1.0000, 0.6500, 0.3500, 0.0000])

    References:
        Garcin, "Set-valued classification", 2023, eq. 6.13-6.21.
    """
    temperature = check_temperature(temperature)
    fused = use_triton(temperature, logits)
    rows = as_rows(logits, k, dim=dim, mask=mask, keep_half=fused)
    p = _SparseTop.run(rows.logits, rows.k if fused else rows.wanted, temperature, rows.shards)
    return rows.restore(p, logits, dim)


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


def project_sparse_top(x: Tensor, k: Tensor | float, temperature: float) -> Tensor:
    """Sparse-top of ``x`` ``(..., n)`` with ``k`` broadcastable to ``(..., 1)``, without derivatives.

    On accelerators ``k`` may be a number (`Rows.wanted`).
    """
    if x.numel() == 0:
        return x.clone()
    if not isinstance(k, Tensor):
        return sparse_top_by_counts(x, k, temperature)
    if use_triton(temperature, x, k):
        return (_triton_op if torch.compiler.is_compiling() else _project_triton)(x, k, temperature)
    if torch.compiler.is_exporting():
        return exact_threshold(x, k.expand(*x.shape[:-1], 1), temperature).project(x, temperature)
    if fixed_steps(x):
        return sparse_top_by_counts(x, k.expand(*x.shape[:-1], 1), temperature)
    return (_project_op if torch.compiler.is_compiling() else _project_cpu)(x, k, temperature)


def _project_cpu(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    if use_kernel(temperature, x, k):
        p, left = kernels.sparse_top(x.detach(), k, temperature)
        if left.numel():
            hard, hard_k = (part[left] for part in flat_rows(x, k))
            p.view(-1, x.shape[-1])[left] = exact_threshold(hard, hard_k, temperature).project(hard, temperature)
        return p
    rows, rows_k = flat_rows(x, k)
    p = torch.empty_like(rows, memory_format=torch.contiguous_format)
    for block in row_blocks(rows):
        threshold = solve_sparse_top(HeldLabels(rows[block]), rows_k[block], temperature)
        p[block] = threshold.project(rows[block], temperature)
    return p.view(x.shape)


def _project_triton(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    return triton_kernels("sparse_top").sparse_top(x, k, temperature)


# The compiler calls these as they are: their steps depend on the data.
_project_op = opaque(
    "sparse_top",
    "(Tensor x, Tensor k, float temperature) -> Tensor",
    _project_cpu,
    lambda x, k, temperature: x.new_empty(x.shape),
)
_triton_op = opaque(
    "sparse_top_triton",
    "(Tensor x, Tensor k, float temperature) -> Tensor",
    _project_triton,
    lambda x, k, temperature: x.new_empty(x.shape),
    devices=TRITON_DEVICES,
)


class _SparseTop(RowFunction):
    """``x, k, T, shards -> p``. The Jacobian has the weights 1 where 0 < p < 1, else 0."""

    @staticmethod
    def forward(x: Tensor, k: Tensor | float, temperature: float, shards: ProcessShards | None) -> Tensor:
        if shards is None or not isinstance(k, Tensor):
            return project_sparse_top(x, k, temperature)
        flat, column = flat_rows(x, k)
        threshold = solve_sparse_top(HeldLabels(flat, shards), column, temperature)
        return threshold.project(flat, temperature).view(x.shape)

    setup_context = staticmethod(save_projection)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (p,) = ctx.saved_tensors
        kernel = _gradient_kernel(ctx, p, gradient)
        if kernel is not None:
            to_x, mean = kernel(p, gradient, ctx.temperature)
            return to_x, mean.sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None, None, None
        to_x, to_k, *_ = projection_gradient(ctx, interior(solvable(p)), solvable(gradient))
        return None if to_x is None else to_x.to(p.dtype), to_k, None, None

    @staticmethod
    def tangent(ctx: Any, x: Tensor | None, k: Tensor | None, *_: None) -> Tensor:
        (p,) = ctx.saved_tensors
        return projection_tangent(ctx, interior(solvable(p)), x, k).to(p.dtype)


def _gradient_kernel(ctx: Any, p: Tensor, gradient: Tensor) -> Callable[..., tuple[Tensor, Tensor]] | None:
    if ctx.group is None and use_triton_backward(ctx.temperature, p, gradient):
        return triton_kernels("sparse_top").sparse_top_gradient
    if ctx.group is None and use_kernel_backward(ctx.temperature, p, gradient):
        return kernels.sparse_top_gradient
    return None


def interior(p: Tensor) -> Tensor:
    """1 where 0 < p < 1, else 0."""
    return p.detach().frac().ceil_()

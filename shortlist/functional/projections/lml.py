"""The Limited Multi-Label projection (LML): probabilities in [0, 1] that sum to k, by entropy.

All of it follows from one root per row, ``delta`` with ``sum_j sigmoid((x_j - pivot) / T + delta) = k``, and from the
derivative of this root, ``-q / (T sum q)`` in x and ``1 / sum q`` in k, with ``q = p (1 - p)``. That holds for logits
in one tensor, in recomputed blocks, and on several processes.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.functional.autograd import (
    RowFunction,
    opaque,
    projection_gradient,
    projection_tangent,
    remember_k,
)
from shortlist.functional.projections.lml_exact import exact_dual, exact_lml
from shortlist.functional.projections.lml_slopes import (
    finite,
    inverse,
    inverse_slope,
    is_outer,
    log_slopes,
    slope_shares,
)
from shortlist.functional.projections.lml_solver import solve_lml
from shortlist.functional.projections.lml_trials import solve_by_trials
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
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.once_differentiable import once_differentiable
from shortlist.label_axis.processes import ProcessShards, all_sum
from shortlist.label_axis.reduction import BlockGradient
from shortlist.label_axis.rows import as_rows, flat_rows
from shortlist.tensors import at_most_finite, check_temperature, is_plain, log_sigmoid, solvable


def lml(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Entropy projection onto the vectors in [0, 1] that sum to ``k``.

    .. math:: p = \arg\max_p\; x \cdot p + T H_b(p) = \sigma\!\left(\frac{x + \nu}{T}\right),
              \quad \textstyle\sum_j p_j = k

    with :math:`H_b` the binary entropy. It keeps the order of the logits and ignores a constant added to them;
    :math:`T \to 0` gives the indicator of the ``k`` largest. With ``k = 1`` this is *not* softmax.

    Args:
        logits: any shape, floating. ``-inf`` marks an absent label (p = 0); a ``+inf`` label is certain (p = 1) and
            the others share the rest of ``k``; NaN makes its own row NaN. float16 and bfloat16 are solved in
            float32. A ``DTensor`` may be sharded along its labels: then a few numbers per row are sent, 5 to 8 times.
        k: how many labels, not necessarily an integer: a number in [0, n], or a tensor with one value per row, which
            is differentiable and whose values outside [0, n] give rows of NaN. Where at most ``k`` labels are
            present, each has p = 1.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape, dtype and sharding as ``logits``; differentiable any number of times, or once if sharded.

    Example:
        >>> lml(torch.tensor([2.0, 1.0, 0.0, -1.0]), k=2)
        tensor([0.8176, 0.6225, 0.3775, 0.1824])

    References:
        Amos, Koltun, Kolter, "The Limited Multi-Label Projection Layer", 2019, eq. 1-7.
    """
    temperature = check_temperature(temperature)
    fused = use_triton(temperature, logits)
    rows = as_rows(logits, k, dim=dim, mask=mask, keep_half=fused)
    if fused:
        return rows.restore(_FusedLML.run(rows.logits, rows.k, temperature, False)[0], logits, dim)
    if fixed_steps(rows.logits) and rows.shards is None and isinstance(k, Tensor) and k.requires_grad:
        return rows.restore(_FusedLML.run(rows.logits, rows.wanted, temperature, False)[0], logits, dim)
    return rows.restore(_LML.run(rows.logits, rows.wanted, temperature, rows.shards), logits, dim)


def log_lml(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Logarithm of :func:`lml`, exact where p itself underflows or rounds to 1.

    .. math:: \log p = -\log\left(1 + e^{-(x + \nu) / T}\right)

    Args:
        logits: as for :func:`lml`.
        k: as for :func:`lml`.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape, dtype and sharding as ``logits``; ``-inf`` for absent labels, whose gradient is zero.

    Example:
        >>> log_lml(torch.tensor([2.0, 0.0, -300.0]), k=1)
        tensor([  -0.3133,   -1.3133, -301.0000])
    """
    temperature = check_temperature(temperature)
    fused = use_triton(temperature, logits)
    rows = as_rows(logits, k, dim=dim, mask=mask, keep_half=fused)
    if fused or (rows.shards is None and fixed_steps(rows.logits)):
        wanted = rows.k if fused else rows.wanted
        return rows.restore(_FusedLML.run(rows.logits, wanted, temperature, True)[0], logits, dim)
    pivot, delta = lml_root(rows.logits, rows.k, temperature, rows.shards)
    y = log_odds(rows.logits, pivot, rows.processes.copy(delta), temperature)
    return rows.restore(_log_p(y), logits, dim)


def lml_dual(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""The shift :math:`\nu` with :math:`\sum_j \sigma((x_j + \nu) / T) = k`: the price of one more label.

    Args:
        logits: as for :func:`lml`.
        k: as for :func:`lml`.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        The shape of ``logits`` without ``dim``; ``-inf`` where ``k`` is 0, ``inf`` where at most ``k`` labels are
        present. Its gradient is :math:`-q_j / \sum q` in the logits, with :math:`q = p (1 - p)`, and
        :math:`T / \sum q` in ``k``. For sharded logits it is replicated.

    Example:
        >>> lml_dual(torch.tensor([2.0, 1.0, 0.0, -1.0]), k=2)
        tensor(-0.5000)
    """
    rows = as_rows(logits, k, dim=dim, mask=mask)
    temperature = check_temperature(temperature)
    pivot, delta = lml_root(rows.logits, rows.wanted, temperature, rows.shards)
    all_taken = delta > torch.finfo(delta.dtype).max / 8
    nu = torch.where(all_taken, math.inf, temperature * delta - pivot)
    return rows.processes.replicate(nu.squeeze(-1).to(logits.dtype))


def _log_p(y: Tensor) -> Tensor:
    # Where p is 0 the derivative of logsigmoid is 1, but nothing there can move.
    return torch.where(y == -math.inf, -math.inf, log_sigmoid(y)) if torch.is_grad_enabled() else log_sigmoid(y)


def lml_root(
    x: Tensor, k: Tensor | float, temperature: float, shards: ProcessShards | None = None
) -> tuple[Tensor, Tensor]:
    """``(pivot, delta)`` with ``p = sigmoid((x - pivot) / T + delta)``; ``delta`` is differentiable.

    Args:
        x: ``(..., n)``, the local labels; float32 or float64.
        k: broadcastable to ``(..., 1)``; or a number, on accelerators (`Rows.wanted`).
        temperature: ``T``.
        shards: the processes, if several hold the labels. Before use with local labels, ``delta`` must go through
            their ``copy``.
    """
    return _Root.run(x, k, temperature, shards)


def log_odds(x: Tensor, pivot: Tensor, delta: Tensor, temperature: float) -> Tensor:
    """``(x - pivot) / T + delta``, the log-odds of p. +inf counts as the largest finite number."""
    return _over(at_most_finite(x) - pivot, temperature) + delta


def solve_root(x: Tensor, k: Tensor | float, temperature: float) -> tuple[Tensor, Tensor]:
    """``pivot`` and ``delta``, without derivatives.

    Args:
        x: ``(..., n)``, float32 or float64.
        k: broadcastable to ``(..., 1)``, same dtype; or a number, on accelerators.
        temperature: ``T``.

    Returns:
        Two tensors ``(..., 1)``. The pivot is finite and near the root, so that ``x - pivot`` keeps its digits for any
        offset of ``x``; ``delta`` is huge where all labels are taken, -inf where none is, and NaN where the row holds
        NaN or ``k`` is outside [0, n].
    """
    if not isinstance(k, Tensor) and (x.numel() == 0 or use_triton(temperature, x)):
        k = torch.full((1,) * x.ndim, k, dtype=x.dtype, device=x.device)
    if not isinstance(k, Tensor):
        return exact_dual(x, k, temperature)
    k = k.expand(*x.shape[:-1], 1)
    if x.numel() == 0:
        return torch.zeros_like(k), torch.full_like(k, -math.inf)
    if use_triton(temperature, x, k):
        return (_triton_root_op if torch.compiler.is_compiling() else _triton_root)(x, k, temperature)
    if fixed_steps(x):
        return exact_dual(x, k, temperature)
    return (_root_op if torch.compiler.is_compiling() else _root_cpu)(x, k, temperature)


def _root_cpu(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    if use_kernel(temperature, x, k):
        pivot, delta, left = kernels.lml_root(x.detach(), k, temperature)
        if left.numel():
            hard, hard_k = (part[left] for part in flat_rows(x, k))
            pivot.view(-1, 1)[left], delta.view(-1, 1)[left] = exact_dual(hard, hard_k, temperature)
        return pivot, delta
    rows, rows_k = flat_rows(x, k)
    pivot, delta = torch.empty_like(rows_k), torch.empty_like(rows_k)
    for block in row_blocks(rows):
        pivot[block], delta[block], _ = solve_lml(HeldLabels(rows[block]), rows_k[block], temperature)
    return pivot.view(k.shape), delta.view(k.shape)


def _project(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    """p on the CPU."""
    if use_kernel(temperature, x, k):
        p, left = kernels.lml(x.detach(), k, temperature)
        if left.numel():
            hard, hard_k = (part[left] for part in flat_rows(x, k))
            p.view(-1, x.shape[-1])[left] = exact_lml(hard, hard_k, temperature)
        return p
    rows, rows_k = flat_rows(x, k)
    p, largest = torch.empty_like(rows, memory_format=torch.contiguous_format), torch.finfo(x.dtype).max
    for block in row_blocks(rows):
        pivot, delta, _ = solve_lml(HeldLabels(rows[block]), rows_k[block], temperature)
        y = torch.clamp(rows[block], max=largest, out=p[block]).sub_(pivot)
        (y if temperature == 1 else y.div_(temperature)).add_(delta).sigmoid_()
    return p.view(x.shape)


def _triton_lml(x: Tensor, k: Tensor, temperature: float, log: bool) -> tuple[Tensor, Tensor, Tensor]:
    return triton_kernels("lml").lml(x, k, temperature, log)


def _triton_root(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    return triton_kernels("lml").lml_root(x, k, temperature)


def _columns_like(x: Tensor) -> tuple[Tensor, Tensor]:
    shape, dtype = (*x.shape[:-1], 1), solvable(x).dtype
    return x.new_empty(shape, dtype=dtype), x.new_empty(shape, dtype=dtype)


# The compiler calls these as they are: their steps depend on the data.
_root_op = opaque(
    "lml_root",
    "(Tensor x, Tensor k, float temperature) -> (Tensor, Tensor)",
    _root_cpu,
    lambda x, k, temperature: _columns_like(x),
)
_project_op = opaque(
    "lml", "(Tensor x, Tensor k, float temperature) -> Tensor", _project, lambda x, k, temperature: x.new_empty(x.shape)
)

_triton_lml_op = opaque(
    "lml_triton",
    "(Tensor x, Tensor k, float temperature, bool log) -> (Tensor, Tensor, Tensor)",
    _triton_lml,
    lambda x, k, temperature, log: (x.new_empty(x.shape), *_columns_like(x)),
    devices=TRITON_DEVICES,
)
_triton_root_op = opaque(
    "lml_root_triton",
    "(Tensor x, Tensor k, float temperature) -> (Tensor, Tensor)",
    _triton_root,
    lambda x, k, temperature: _columns_like(x),
    devices=TRITON_DEVICES,
)


def _sharded_root(x: Tensor, k: Tensor, temperature: float, shards: ProcessShards) -> tuple[Tensor, Tensor]:
    flat, column = flat_rows(x, k)
    pivot, delta, _ = solve_lml(HeldLabels(flat, shards), column, temperature)
    shape = (*x.shape[:-1], 1)
    return pivot.view(shape), delta.view(shape)


_LARGEST_SHARE = 20.0


class _LML(RowFunction):
    """``x, k, T, shards -> p``. The Jacobian in x is ``(diag(q) - q q^T / sum q) / T``, in k it is ``q / sum q``."""

    @staticmethod
    def forward(x: Tensor, k: Tensor | float, temperature: float, shards: ProcessShards | None) -> Tensor:
        if x.numel() == 0 and shards is None:
            return x.clone()
        if not isinstance(k, Tensor):
            return exact_lml(x, k, temperature)
        if shards is not None:
            return log_odds(x, *_sharded_root(x, k, temperature, shards), temperature).sigmoid()
        if fixed_steps(x):
            return exact_lml(x, k.expand(*x.shape[:-1], 1), temperature)
        return (_project_op if torch.compiler.is_compiling() else _project)(x, k, temperature)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, k, ctx.temperature, ctx.shards = inputs
        ctx.group = None if ctx.shards is None else ctx.shards.group
        column = remember_k(ctx, k)
        ctx.save_for_backward(output, *((x, *column) if column and k.requires_grad else ()))
        ctx.save_for_forward(output, x, *column)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        p, *inputs = ctx.saved_tensors
        to_k = None
        if ctx.needs_input_grad[1]:  # not the mean by q, which may underflow
            to_k = all_sum((shares(ctx, *inputs) * gradient).sum(-1, keepdim=True), ctx.group).sum_to_size(ctx.k_shape)
        if ctx.group is None and use_kernel_backward(ctx.temperature, p, gradient):
            return kernels.lml_gradient(p, gradient, ctx.temperature), to_k, None, None
        to_x, *_ = projection_gradient(ctx, slopes(p), gradient)
        return to_x, to_k, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, *_: None) -> Tensor:
        p, *inputs = ctx.saved_tensors
        moved = projection_tangent(ctx, slopes(p), x_tangent, None)
        return moved if k_tangent is None else moved + shares(ctx, *inputs) * k_tangent


class _FusedLML(RowFunction):
    """``x, k, T, log -> p, pivot, delta``, or the logarithm of p, by one Triton kernel if there is one.

    It saves x, which may have half precision then, and the root: from them the gradient has full precision, and that in
    k needs no second search.
    """

    @staticmethod
    def forward(x: Tensor, k: Tensor | float, temperature: float, log: bool) -> tuple[Tensor, Tensor, Tensor]:
        if isinstance(k, Tensor) and use_triton(temperature, x, k):
            run = _triton_lml_op if torch.compiler.is_compiling() else _triton_lml
            return run(x, k, temperature, log)
        full = solvable(x)
        pivot, delta = solve_root(full, k, temperature)
        y = log_odds(full, pivot, delta, temperature)
        return (_log_p(y) if log else y.sigmoid()).to(x.dtype), pivot, delta

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, k, ctx.temperature, ctx.log = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        column = remember_k(ctx, k)
        ctx.save_for_backward(x, *output[1:], *column)
        ctx.save_for_forward(x, *column)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None
        x, pivot, delta, *column = ctx.saved_tensors
        if use_triton_backward(ctx.temperature, x, gradient):
            to_x, to_k = triton_kernels("lml").lml_gradient(x, pivot, delta, gradient, ctx.temperature, ctx.log)
            return to_x, to_k.sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None, None, None
        full, upstream = solvable(x), solvable(gradient)
        root = _root_again(ctx, full, column) if torch.is_grad_enabled() else (pivot, delta)
        y, log_q = _log_slopes_at(full, *root, ctx.temperature)
        share, needs_k, to_k = slope_shares(log_q, root[1], None), ctx.needs_input_grad[1], None
        if ctx.log:
            to_x = upstream * _log_slope(y)
            total = to_x.sum(-1, keepdim=True)
            to_k = finite(total * inverse_slope(log_q, root[1], None)) if needs_k else None
            to_x = torch.addcmul(to_x, share, total, value=-1)
        else:
            to_k = (share * upstream).sum(-1, keepdim=True)
            to_x = by_slope(upstream - to_k, y.sigmoid())
        to_k = to_k.sum_to_size(ctx.k_shape) if to_k is not None and needs_k else None
        return _over(to_x, ctx.temperature).to(x.dtype), to_k, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, *_: None) -> tuple[Tensor, None, None]:
        x, *column = ctx.saved_tensors
        full = solvable(x)
        root = _root_again(ctx, full, column)
        y, log_q = _log_slopes_at(full, *root, ctx.temperature)
        share = slope_shares(log_q, root[1], None)
        factor = _log_slope(y) if ctx.log else slopes(y.sigmoid())
        moved = torch.zeros_like(full)
        if x_tangent is not None:
            moved = factor * _over(x_tangent - (share * x_tangent).sum(-1, keepdim=True), ctx.temperature)
        if k_tangent is not None:
            per_k = finite(factor * inverse_slope(log_q, root[1], None)) if ctx.log else share
            moved = moved + per_k * k_tangent
        return moved.to(x.dtype), None, None


def _root_again(ctx: Any, x: Tensor, column: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The root, differentiable."""
    return _Root.run(x, column[0] if column else ctx.number, ctx.temperature, None)


def _log_slope(y: Tensor) -> Tensor:
    """``1 - p``, the derivative of log p in its log-odds; 0 for absent labels, which cannot move."""
    return (-y).sigmoid().masked_fill(y == -math.inf, 0)


def slopes(p: Tensor) -> Tensor:
    """``q = p (1 - p)``, in one kernel where autograd does not watch."""
    return by_slope(torch.ones((), dtype=p.dtype, device=p.device).expand_as(p), p)


def by_slope(values: Tensor, p: Tensor) -> Tensor:
    """``values * p (1 - p)``, likewise."""
    return (1 - p) * p * values if torch.is_grad_enabled() else torch.ops.aten.sigmoid_backward(values, p)


def shares(ctx: Any, x: Tensor, k: Tensor) -> Tensor:
    """``q / sum q``, the derivative of p in k, exact where q underflows."""
    pivot, delta = _Root.run(x, k, ctx.temperature, ctx.shards)
    return slope_shares(_log_slopes_at(x, pivot, delta, ctx.temperature)[1], delta, ctx.group)


class _Root(RowFunction):
    """``x, k, T, shards -> pivot, delta``. The gradient of delta is ``-q / (T sum q)`` in x and ``1 / sum q`` in k."""

    @staticmethod
    def forward(
        x: Tensor, k: Tensor | float, temperature: float, shards: ProcessShards | None
    ) -> tuple[Tensor, Tensor]:
        if shards is None or not isinstance(k, Tensor):
            return solve_root(x, k, temperature)
        return _sharded_root(x, k, temperature, shards)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, k, ctx.temperature, shards = inputs
        ctx.group = None if shards is None else shards.group
        remember_k(ctx, k)
        ctx.mark_non_differentiable(output[0])
        ctx.save_for_backward(x, *output)
        ctx.save_for_forward(x, *output)

    @staticmethod
    def backward(ctx: Any, _: Tensor, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (_root_gradient if ctx.group is None else once_differentiable(_root_gradient))(ctx, gradient)

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, *_: None) -> tuple[None, Tensor]:
        x, pivot, delta = ctx.saved_tensors
        log_q = _log_slopes_at(x, pivot, delta, ctx.temperature)[1]
        moved = torch.zeros_like(delta)
        if x_tangent is not None:
            share = slope_shares(log_q, delta, None)
            moved = moved - _over((share * x_tangent).sum(-1, keepdim=True), ctx.temperature)
        return None, moved if k_tangent is None else moved + finite(k_tangent * inverse_slope(log_q, delta, None))


def _root_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, pivot, delta = ctx.saved_tensors
    scaled = _over(-gradient, ctx.temperature)
    if ctx.group is None and use_triton_backward(ctx.temperature, x, gradient):
        to_x, per_k = triton_kernels("lml").lml_root_gradient(x, pivot, delta, scaled, ctx.temperature)
    elif ctx.group is None and use_kernel_backward(ctx.temperature, x, gradient):
        to_x, per_k, left = kernels.lml_root_gradient(x, pivot, delta, scaled, ctx.temperature)
        if left.numel():
            hard = [part.reshape(-1, part.shape[-1])[left] for part in (x, pivot, delta, scaled)]
            log_q = _log_slopes_at(hard[0], hard[1], hard[2], ctx.temperature)[1]
            to_x.view(-1, x.shape[-1])[left] = slope_shares(log_q, hard[2], None) * hard[3]
            per_k.view(-1, 1)[left] = inverse_slope(log_q, hard[2], None)
    else:
        log_q = log_slopes(log_odds(x, pivot, delta, ctx.temperature), overwrite=True)
        share = slope_shares(log_q, delta, ctx.group)
        per_k = inverse_slope(log_q, delta, ctx.group) if ctx.needs_input_grad[1] else scaled
        to_x = share.mul_(scaled) if not torch.is_grad_enabled() and is_plain(gradient) else share * scaled
    to_k = finite(gradient * per_k).sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
    return to_x, to_k, None, None


def _log_slopes_at(x: Tensor, pivot: Tensor, delta: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The log-odds of p, and ``log q``, which does not underflow where q does."""
    y = log_odds(x, pivot, delta, temperature)
    return y, log_slopes(y)


def _over(values: Tensor, temperature: float) -> Tensor:
    return values if temperature == 1 else values / temperature


class RootOfBlocks:
    """A `BlockReduction` to the root of each row: ``delta``, and without a gradient the pivot and the log slope.

    Args:
        k: ``(B, 1)``.
        temperature: ``T``.
    """

    bounded: ClassVar[bool] = False

    def __init__(self, k: Tensor, temperature: float) -> None:
        self.k, self.temperature = k, temperature

    def with_gradient_in_k(self, delta: Tensor, log_slope: Tensor) -> Tensor:
        """``delta`` plus a zero that has its derivative in ``k``."""
        if not self.k.requires_grad:
            return delta
        return delta + (self.k - self.k.detach()) * inverse(log_slope, delta.detach())

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        if fixed_steps(blocks.features):
            self.root, self.nearest, self.share_sum = solve_by_trials(blocks, self.k.detach(), self.temperature)
        else:
            self.root = solve_lml(blocks, self.k.detach(), self.temperature)
            self.nearest = self.root.log_slope
            self.share_sum = self._share_sum(blocks)
        pivot, delta, log_slope = self.root
        return (delta,), (pivot, log_slope)

    def _share_sum(self, blocks: LinearBlocks) -> Tensor:
        """The sum of the shares, which is 1 but for the rounding of a large logarithm."""
        _, delta, log_slope = self.root
        limits = torch.finfo(delta.dtype)
        deep = ~is_outer(delta) & (log_slope <= math.log(limits.tiny / limits.eps))
        rows = deep.squeeze(-1).nonzero().squeeze(-1)
        if not len(rows):
            return torch.ones_like(delta)
        total = torch.zeros(len(rows), 1, dtype=torch.float64, device=rows.device)
        pivot, delta_of_rows, shift = (column[rows] for column in (self.root.pivot, *self._inner_root()))
        for _, x in blocks.blocks(rows):
            total += self._shares(x, pivot, delta_of_rows, shift).sum(1, keepdim=True)
        total = blocks.processes.sum(total).clamp(min=1e-30)
        return torch.ones_like(delta).index_put_((rows,), total.to(delta.dtype))

    def _inner_root(self) -> tuple[Tensor, Tensor]:
        """``delta``, and the shift by which slopes are lifted; 0 for rows whose root is infinite."""
        outer = is_outer(self.root.delta)
        return self.root.delta.masked_fill(outer, 0), -self.nearest.masked_fill(outer, 0)

    def _shares(self, x: Tensor, pivot: Tensor, delta: Tensor, shift: Tensor) -> Tensor:
        y = x.sub_(pivot)
        y = (y if self.temperature == 1 else y.div_(self.temperature)).add_(delta)
        # More than 1 can only come from rounding numbers too large to have any digits left.
        return log_slopes(y, overwrite=True).add_(shift).clamp_(max=_LARGEST_SHARE).exp_()

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        pivot, (delta, shift) = self.root.pivot, self._inner_root()
        factor = (-upstream[0] / (self.temperature * self.share_sum)).masked_fill(is_outer(self.root.delta), 0)

        def block(x: Tensor, start: int) -> Tensor:
            if use_triton(self.temperature, x):
                gpu = triton_kernels("linear_blocks")
                return gpu.shares_gradient_(x, pivot, delta, shift, factor, self.temperature, _LARGEST_SHARE)
            return self._shares(x, pivot, delta, shift).mul_(factor)

        return block

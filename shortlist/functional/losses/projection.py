"""Losses that train the projections: the likelihood of LML, and the Fenchel-Young losses of sparse-top."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction, opaque
from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    own_logits,
    read_labeled,
    read_plain,
    read_raw,
    reduce_rows,
    without_unknown,
)
from shortlist.functional.projections.lml import RootOfBlocks, lml_root, log_odds
from shortlist.functional.projections.sparse_top import project_sparse_top, sparse_top
from shortlist.kernels.chooser import TRITON_DEVICES, triton_kernels, use_triton
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.processes import ONE_PROCESS, replicated
from shortlist.label_axis.rows import Rows, as_rows
from shortlist.labels import Labels, read_labels
from shortlist.tensors import check_temperature, log_sigmoid, solvable

__all__ = ["lml_nll", "sparse_top_loss", "sparsemax_loss"]


def lml_nll(
    logits: Tensor | LinearLogits,
    target: Tensor,
    k: float | Tensor,
    *,
    temperature: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Negative log-likelihood of the observed labels under the LML projection: maximum likelihood for recall at k.

    .. math:: \ell = -\sum_{j \in Y} \log p_j, \qquad p = \operatorname{LML}(x, k)

    Labels that were not observed are no negatives: they only compete for the ``k`` slots. To predict, take the ``k``
    largest logits.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label. float16 and bfloat16 are computed in
            float32, and so is the result. May be :class:`LinearLogits`. A ``DTensor`` may be sharded along its labels;
            every process passes the same target, with global label indices, and the loss is replicated.
        target: the observed labels, in any form of :mod:`shortlist.targets`; unknown labels are left out.
        k: how many labels the prediction holds: a number in (0, n], or a tensor with one value per row.
        temperature: that of :func:`lml`.
        weight: ``(n,)``, the weight of each positive.
        reduction: ``"mean"`` over the rows, where one without positives counts as 0; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row. The gradient in the logits is
        :math:`-(1 - p) \circ 1_Y + \frac{q}{\sum q} \sum_{j \in Y} (1 - p_j)` with :math:`q = p (1 - p)`.

    Example:
        >>> lml_nll(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([[0, 2]]), k=2)
        tensor(1.1755)

    References:
        Amos, Koltun, Kolter, "The Limited Multi-Label Projection Layer", 2019, section 4.
    """
    if not isinstance(k, Tensor) and k == 0:
        raise ValueError("`k` must be positive for a likelihood; got 0.")
    temperature = check_temperature(temperature)
    raw = read_raw(logits, target, weight, scales=[temperature])
    if raw is not None and isinstance(logits, Tensor):
        column = as_rows(logits, k, dim=-1, mask=None, keep_half=True).k.expand(*raw.row_shape, 1).reshape(-1, 1)
        values = _FusedNLL.run(raw.logits, column, raw.target, raw.weight, temperature)[0]
        return reduce_rows(values.reshape(raw.row_shape), reduction)
    data = read_labeled(logits, target, weight)
    like = logits.stand_in() if isinstance(logits, LinearLogits) else logits
    k = replicated(k, "k") if isinstance(k, Tensor) else k
    values = _nll_values(data, as_rows(like, k, dim=-1, mask=None), temperature)
    return data.processes.replicate(reduce_rows(values, reduction))


def _nll_values(data: LabeledLogits, rows: Rows, temperature: float) -> Tensor:
    """The loss of each row."""
    own, pivot, delta = _dual(data, rows, temperature)
    y = log_odds(own, data.beside(pivot), data.beside(delta), temperature)
    return -data.positive_sums(log_sigmoid(y))


def _dual(data: LabeledLogits, rows: Rows, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The entries' logits, and ``(pivot, delta)`` of each row with ``p = sigmoid((x - pivot) / T + delta)``."""
    if isinstance(data.logits, LinearLogits):
        k = rows.k.expand(*data.row_shape, 1).reshape(-1, 1)
        root = RootOfBlocks(k, temperature)
        own, delta, pivot, log_slope = data.reduce(root, data.labels.hiding_unknown())
        return own, pivot.squeeze(-1), root.with_gradient_in_k(delta, log_slope).squeeze(-1)
    known = without_unknown(data.logits, data.labels)
    pivot, delta = lml_root(known.reshape(rows.logits.shape), rows.wanted, temperature, rows.shards)
    return own_logits(known, data.labels), pivot.reshape(-1), delta.reshape(-1)


class _FusedNLL(RowFunction):
    """``x, k, target, weight, T -> loss of each row, pivot, delta`` by one Triton kernel, its gradient by another."""

    @staticmethod
    def forward(
        x: Tensor, k: Tensor, target: Tensor, weight: Tensor | None, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return (_nll_op if torch.compiler.is_compiling() else _nll)(x, k, target, weight, temperature)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.temperature = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.save_for_forward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        x, k, target, weight, pivot, delta = ctx.saved_tensors
        if gradient is None:
            return (None,) * 5
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            labels = read_labels(target, x.shape, dtype=torch.float32)
            data = LabeledLogits(solvable(x), labels, weight, x.shape[-1], ONE_PROCESS)
            values = _nll_values(data, Rows(solvable(x), k), ctx.temperature)
            wanted = [part for part in (x, k) if part.requires_grad]
            found = iter(torch.autograd.grad(values, wanted, gradient, create_graph=True))
            return *(next(found) if part.requires_grad else None for part in (x, k)), None, None, None
        compute = _nll_gradient_op if torch.compiler.is_compiling() else _nll_gradient
        to_x, to_k = compute(x, pivot, delta, target, weight, gradient, ctx.temperature)
        return to_x, to_k if ctx.needs_input_grad[1] else None, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, *_: None) -> tuple[Tensor, None, None]:
        x, _, target, weight, pivot, delta = ctx.saved_tensors
        ones = torch.ones(len(x), device=x.device)
        to_x, to_k = _nll_gradient(x, pivot, delta, target, weight, ones, ctx.temperature)
        moved = torch.zeros_like(ones)
        moved = moved if x_tangent is None else moved + (to_x * x_tangent).sum(-1, dtype=torch.float32)
        return moved if k_tangent is None else moved + (to_k * k_tangent).sum(-1), None, None


def _nll(
    x: Tensor, k: Tensor, target: Tensor, weight: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    return triton_kernels("lml").lml_nll(x, k, target, weight, temperature)


def _nll_gradient(
    x: Tensor,
    pivot: Tensor,
    delta: Tensor,
    target: Tensor,
    weight: Tensor | None,
    gradient: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    return triton_kernels("lml").lml_nll_gradient(x, pivot, delta, target, weight, gradient, temperature)


_nll_op = opaque(
    "lml_nll",
    "(Tensor x, Tensor k, Tensor target, Tensor? weight, float temperature) -> (Tensor, Tensor, Tensor)",
    _nll,
    lambda x, k, *_: (k.new_empty(len(x)), torch.empty_like(k), torch.empty_like(k)),
    devices=TRITON_DEVICES,
)
_nll_gradient_op = opaque(
    "lml_nll_gradient",
    "(Tensor x, Tensor pivot, Tensor delta, Tensor target, Tensor? weight, Tensor gradient, float temperature)"
    " -> (Tensor, Tensor)",
    _nll_gradient,
    lambda x, pivot, *_: (torch.empty_like(x), torch.empty_like(pivot)),
    devices=TRITON_DEVICES,
)


def sparse_top_loss(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""The convex loss of sparse-top, for as many labels as the row has positives.

    .. math:: \ell = \sum_j (p_j - y_j)\, x_j + \tfrac12 \sum_j p_j (1 - p_j), \qquad
              p = \operatorname{sparse\text{-}top}(x, |Y|)

    It is never negative, zero only where ``p`` is the target (each positive at least 1 above each negative), and its
    gradient is ``p`` minus the target.

    Args:
        logits: ``(*rows, n)``, floating. float16 and bfloat16 are computed in float32, and so is the result.
        target: the positives, in any form of :mod:`shortlist.targets`; unknown labels are left out.
        weight: ``(n,)``; a row is multiplied by the mean weight of its positives.
        reduction: ``"mean"`` over the rows, where one without positives counts as 0; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> sparse_top_loss(torch.tensor([[2.0, 1.0, 0.6, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.4900)

    References:
        Garcin, "Set-valued classification", 2023, chapter 6.
    """
    data = read_plain(logits, target, weight)
    labels = data.labels
    values = _sparse_top_excess(without_unknown(data.tensor, labels), labels).reshape(data.row_shape)
    if weight is not None:
        values = values * data.row_sums(data.share()) / data.row_sums(labels.present).clamp(min=1)
    return reduce_rows(values, reduction)


def sparsemax_loss(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""The convex loss of sparsemax: :func:`sparse_top_loss` with one true class.

    Args:
        logits: as for :func:`sparse_top_loss`.
        target: one class per row, as for :func:`cross_entropy`.
        weight: ``(n,)``, one weight per class.
        reduction: ``"mean"`` weights each row by its class; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> sparsemax_loss(torch.tensor([[1.0, 0.6, -1.0]]), torch.tensor([0]))
        tensor(0.0900)

    References:
        Martins, Astudillo, "From Softmax to Sparsemax", 2016.
    """
    data = read_plain(logits, target, weight, one_class=True)
    ones = replace(data.labels, values=torch.ones_like(data.labels.values))
    return data.reduce_classes(_sparse_top_excess(data.tensor, ones), reduction)


def _sparse_top_excess(x: Tensor, labels: Labels) -> Tensor:
    """``(p - y) . x + p . (1 - p) / 2`` of each row, with ``p = sparse_top(x, sum y)`` and y the labels."""
    if labels.is_dense:
        return _SparseTopExcess.run(x, None, None, labels.values)[0]
    k = labels.sum_along(labels.present.detach()).unsqueeze(-1)
    return _SparseTopExcess.run(x, k, labels.indices, labels.present)[0]


class _SparseTopExcess(RowFunction):
    """``x, k, indices, y -> value, p - y``: the loss and its slope.

    y are the labels at these indices of the flattened rows, and k their sum. Or indices and k are None, and y is the
    positive part of one number for each entry of x.
    """

    @staticmethod
    def forward(x: Tensor, k: Tensor | None, indices: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
        if use_triton(1.0, x, labels):
            if k is None or indices is None:
                return (_dense_excess_op if torch.compiler.is_compiling() else _dense_excess)(x, labels)
            return (_fused_excess_op if torch.compiler.is_compiling() else _fused_excess)(x, k, indices, labels)
        k, labels = _known(k, labels)
        p = project_sparse_top(x, k, 1.0)
        # p and y have the same sum, so any shift is free; this one keeps the digits that count, and the zero exact.
        limits = torch.finfo(x.dtype)
        if x.shape[-1]:
            x = (x - x.amax(-1, keepdim=True).clamp(min=limits.min / 4)).clamp(min=limits.min / 4)
        excess = _minus_labels(p, indices, labels)
        # Up to rounding, it is never negative.
        return (excess * x + p * (1 - p) / 2).sum(-1).clamp(min=0), excess

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # no zeros for the slope
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        if gradient is None:
            return None, None, None, None
        *inputs, excess = ctx.saved_tensors
        if torch.is_grad_enabled():
            excess = _excess(*inputs)
        return gradient.unsqueeze(-1) * excess, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        return (_excess(*ctx.saved_tensors) * x_tangent).sum(-1), None


def _fused_excess(x: Tensor, k: Tensor, indices: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its slope by one Triton kernel; the labels need only their own entries."""
    p, top, value = triton_kernels("sparse_top").sparse_top_value(x, k)
    rows, limits = indices // x.shape[-1], torch.finfo(x.dtype)
    own = x.flatten(-2).gather(-1, indices) - top.squeeze(-1).clamp(min=limits.min / 4).gather(-1, rows)
    value = value.squeeze(-1).scatter_add(-1, rows, -labels * own.clamp(min=limits.min / 4))
    p.flatten(-2).scatter_add_(-1, indices, -labels)
    return value.clamp(min=0), p


def _dense_excess(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a number for each entry."""
    value, excess = triton_kernels("sparse_top").sparse_top_excess(x, labels)
    return value.squeeze(-1).clamp(min=0), excess


_dense_excess_op = opaque(
    "sparse_top_dense_excess",
    "(Tensor x, Tensor labels) -> (Tensor, Tensor)",
    _dense_excess,
    lambda x, labels: (x.new_empty(x.shape[:-1]), x.new_empty(x.shape)),
    devices=TRITON_DEVICES,
)
_fused_excess_op = opaque(
    "sparse_top_excess",
    "(Tensor x, Tensor k, Tensor indices, Tensor labels) -> (Tensor, Tensor)",
    _fused_excess,
    lambda x, k, indices, labels: (x.new_empty(x.shape[:-1]), x.new_empty(x.shape)),
    devices=TRITON_DEVICES,
)


def _known(k: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """``k`` and the labels, where ``k`` is None for a number for each entry."""
    if k is not None:
        return k, labels
    labels = labels.clamp(min=0)
    return labels.sum(-1, keepdim=True), labels


def _excess(x: Tensor, k: Tensor | None, indices: Tensor | None, labels: Tensor) -> Tensor:
    """The prediction minus the labels, in operations that differentiate."""
    k, labels = _known(k, labels)
    return _minus_labels(sparse_top(x, k), indices, labels)


def _minus_labels(p: Tensor, indices: Tensor | None, labels: Tensor) -> Tensor:
    return p - labels if indices is None else p.flatten(-2).scatter_add(-1, indices, -labels).view(p.shape)

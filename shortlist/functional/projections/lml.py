"""The Limited Multi-Label projection (LML): probabilities in [0, 1] that sum to k, by entropy."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shortlist.checks import check_temperature
from shortlist.functional.loops import on_tensors, serve
from shortlist.functional.projections.lml_root import centred, solve_dual, solve_projection
from shortlist.functional.row_function import RowFunction
from shortlist.functional.sharded.lml import sharded_lml, sharded_lml_dual
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import holds, is_dtensor, is_plain, log_sigmoid


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

    with :math:`H_b` the binary entropy. The order of the logits is kept, a constant added to them changes nothing,
    and :math:`T \to 0` gives the indicator of the ``k`` largest. With ``k = 1`` this is *not* softmax.

    Args:
        logits: any shape, floating. ``-inf`` marks an absent label (p = 0); a ``+inf`` label is certain (p = 1) and
            the rest share what is left of ``k``; NaN makes its own row NaN. float16 and bfloat16 are solved in
            float32. A ``DTensor`` may be sharded along its labels: then a few numbers per row travel, 5 to 8 times.
        k: how many labels, whole or not: a number in [0, n], or a tensor with one value per row, differentiable,
            whose values outside [0, n] give rows of NaN. Where no more than ``k`` labels are present, each has
            p = 1.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``, and sharded alike; differentiable any number of times, sharded once.

    Example:
        >>> lml(torch.tensor([2.0, 1.0, 0.0, -1.0]), k=2)
        tensor([0.8176, 0.6225, 0.3775, 0.1824])

    References:
        Amos, Koltun, Kolter, "The Limited Multi-Label Projection Layer", 2019, eq. 1-7.
    """
    if is_dtensor(logits):
        return sharded_lml(logits, k, dim=dim, temperature=temperature, mask=mask)
    rows = as_rows(logits, k, dim=dim, mask=mask)
    return rows.restore(_Lml.run(rows.logits, rows.k, check_temperature(temperature)), logits, dim)


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
        Same shape and dtype as ``logits``, and sharded alike; ``-inf`` for absent labels, whose gradient is zero.

    Example:
        >>> log_lml(torch.tensor([2.0, 0.0, -300.0]), k=1)
        tensor([  -0.3133,   -1.3133, -301.0000])
    """
    if is_dtensor(logits):
        return sharded_lml(logits, k, dim=dim, temperature=temperature, mask=mask, log=True)
    rows = as_rows(logits, k, dim=dim, mask=mask)
    temperature = check_temperature(temperature)
    pivot, delta = _Dual.run(rows.logits, rows.k, temperature)
    y = centred(rows.logits, pivot, delta, temperature)
    # Where p is 0 the derivative of logsigmoid is 1, but nothing there can move.
    return rows.restore(torch.where(y == -math.inf, -math.inf, log_sigmoid(y)), logits, dim)


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
        The shape of ``logits`` without ``dim``; ``-inf`` where ``k`` is 0, ``inf`` where no more than ``k`` labels
        are present. Its gradient is :math:`-q_j / \sum q` in the logits, with :math:`q = p (1 - p)`, and
        :math:`T / \sum q` in ``k``. Of sharded logits it is replicated.

    Example:
        >>> lml_dual(torch.tensor([2.0, 1.0, 0.0, -1.0]), k=2)
        tensor(-0.5000)
    """
    if is_dtensor(logits):
        return sharded_lml_dual(logits, k, dim=dim, temperature=temperature, mask=mask)
    rows = as_rows(logits, k, dim=dim, mask=mask)
    temperature = check_temperature(temperature)
    pivot, delta = _Dual.run(rows.logits, rows.k, temperature)
    everything = delta > torch.finfo(delta.dtype).max / 8
    nu = torch.where(everything, math.inf, temperature * delta - pivot)
    return nu.squeeze(-1).to(logits.dtype)


def dual_parts(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``(pivot, delta)`` with ``p = sigmoid((x - pivot) / T + delta)``, under every transform; ``delta`` learns."""
    return _Dual.run(x, k, temperature)


class _Lml(RowFunction):
    """``x, k, T -> p``. The Jacobian in x is ``(diag(q) - q q^T / sum q) / T``, in k it is ``q / sum q``."""

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: float) -> Tensor:
        return solve_projection(x, k, temperature)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, k, ctx.temperature = inputs
        ctx.save_for_backward(output, *((x, k) if k.requires_grad else ()))
        ctx.save_for_forward(output, x, k)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        p, *inputs = ctx.saved_tensors
        to_k = None
        if ctx.needs_input_grad[1]:
            x, k = inputs
            to_k = (_share(x, k, ctx.temperature) * gradient).sum(-1, keepdim=True).sum_to_size(k.shape)
        if not torch.is_grad_enabled() and is_plain(gradient) and serve(ctx.temperature, p, gradient):
            return on_tensors.lml_gradient(p, gradient, ctx.temperature), to_k, None
        return _over(_weighted_centring(p, gradient), ctx.temperature), to_k, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, _: None) -> Tensor:
        p, x, k = ctx.saved_tensors
        moved = torch.zeros_like(p)
        if x_tangent is not None:
            moved = _over(_weighted_centring(p, x_tangent), ctx.temperature)
        return moved if k_tangent is None else moved + _share(x, k, ctx.temperature) * k_tangent


class _Dual(RowFunction):
    """``x, k, T -> pivot, delta``. The gradient of delta is ``-q / (T sum q)`` in x and ``1 / sum q`` in k."""

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        return solve_dual(x, k, temperature)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, k, ctx.temperature = inputs
        ctx.k_shape = k.shape
        ctx.mark_non_differentiable(output[0])
        ctx.save_for_backward(x, *output)
        ctx.save_for_forward(x, *output)

    @staticmethod
    def backward(ctx: Any, _: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, pivot, delta = ctx.saved_tensors
        if not torch.is_grad_enabled() and is_plain(gradient) and serve(ctx.temperature, x, gradient):
            parts = x, pivot, delta, _over(-gradient, ctx.temperature)
            to_x, per_k = on_tensors.lml_root_gradient(*parts, ctx.temperature, _log_slopes)
        else:
            share, per_k = _log_slopes(x, pivot, delta, ctx.temperature)
            to_x = _over(-gradient * share, ctx.temperature)
        to_k = _finite(gradient * per_k).sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
        return to_x, to_k, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, _: None) -> tuple[None, Tensor]:
        x, pivot, delta = ctx.saved_tensors
        share, per_k = _log_slopes(x, pivot, delta, ctx.temperature)
        moved = torch.zeros_like(per_k)
        if x_tangent is not None:
            moved = moved - _over((share * x_tangent).sum(-1, keepdim=True), ctx.temperature)
        return None, moved if k_tangent is None else moved + _finite(k_tangent * per_k)


def _weighted_centring(p: Tensor, values: Tensor) -> Tensor:
    """``q (values - mean)``, with the mean of ``values`` by the weights ``q = p (1 - p)``."""
    multiply = torch.mul if torch.is_grad_enabled() else Tensor.mul_  # in place where autograd does not watch
    q = multiply(1 - p, p)
    mean = (q * values).sum(-1, keepdim=True) / _positive(q.sum(-1, keepdim=True))
    return multiply(values - mean, q)


def _share(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    """``q / sum q``, the derivative of p in k, exact where q underflows."""
    pivot, delta = _Dual.run(x, k, temperature)
    return _log_slopes(x, pivot, delta, temperature)[0]


def _log_slopes(x: Tensor, pivot: Tensor, delta: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``q / sum q`` and ``1 / sum q``, in log space if q underflows; zero where all labels are taken or none."""
    limits = torch.finfo(delta.dtype)
    inner = delta.abs() < limits.max / 8
    y = centred(x, pivot, torch.where(inner, delta, 0), temperature)
    q = y.sigmoid() * (-y).sigmoid()
    total = q.sum(-1, keepdim=True)
    if holds((total > limits.tiny / limits.eps).all()):
        return q * (inner / total), inner / total
    q_log = (log_sigmoid(y) + log_sigmoid(-y)).clamp(min=limits.min / 4)
    largest = math.log(limits.max) - 1
    per_k = (-q_log.logsumexp(-1, keepdim=True)).clamp(max=largest).exp()
    return q_log.softmax(-1) * inner, per_k * inner


def _positive(total: Tensor) -> Tensor:
    """``total``, or the smallest normal number where it has underflowed: the quotient is then multiplied by 0."""
    return total.clamp(min=torch.finfo(total.dtype).tiny)


def _finite(values: Tensor) -> Tensor:
    """What overflowed, as the largest finite number."""
    largest = torch.finfo(values.dtype).max
    return values.clamp(-largest, largest)


def _over(values: Tensor, temperature: float) -> Tensor:
    return values if temperature == 1 else values / temperature

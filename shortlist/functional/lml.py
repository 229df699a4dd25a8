"""The Limited Multi-Label projection (LML): probabilities in [0, 1] that sum to k, by entropy."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from shortlist.functional.lml_root import centred, solve_dual, solve_projection
from shortlist.functional.row_function import RowFunction
from shortlist.functional.rows import as_rows, check_temperature


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
            float32.
        k: how many labels, whole or not: a number in [0, n], or a tensor with one value per row, differentiable,
            whose values outside [0, n] give rows of NaN. Where no more than ``k`` labels are present, each has
            p = 1.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``; differentiable any number of times.

    Example:
        >>> lml(torch.tensor([2.0, 1.0, 0.0, -1.0]), k=2)
        tensor([0.8176, 0.6225, 0.3775, 0.1824])

    References:
        Amos, Koltun, Kolter, "The Limited Multi-Label Projection Layer", 2019, eq. 1-7.
    """
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
        Same shape and dtype as ``logits``; ``-inf`` for absent labels, whose gradient is zero.

    Example:
        >>> log_lml(torch.tensor([2.0, 0.0, -300.0]), k=1)
        tensor([  -0.3133,   -1.3133, -301.0000])
    """
    rows = as_rows(logits, k, dim=dim, mask=mask)
    return rows.restore(_LogLml.run(rows.logits, rows.k, check_temperature(temperature)), logits, dim)


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
        :math:`T / \sum q` in ``k``.

    Example:
        >>> lml_dual(torch.tensor([2.0, 1.0, 0.0, -1.0]), k=2)
        tensor(-0.5000)
    """
    rows = as_rows(logits, k, dim=dim, mask=mask)
    temperature = check_temperature(temperature)
    pivot, delta = _Dual.run(rows.logits, rows.k, temperature)
    everything = delta > torch.finfo(delta.dtype).max / 8
    nu = torch.where(everything, math.inf, temperature * delta - pivot)
    return nu.squeeze(-1).to(logits.dtype)


class _Lml(RowFunction):
    """``x, k, T -> p``. The Jacobian in x is ``(diag(q) - q q^T / sum q) / T``, in k it is ``q / sum q``."""

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: float) -> Tensor:
        return solve_projection(x, k, temperature)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.k_shape, ctx.temperature = inputs[1].shape, inputs[2]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (p,) = ctx.saved_tensors
        to_x, to_k = _weighted_centring(p, gradient)
        to_k = to_k.sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
        return _over(to_x, ctx.temperature), to_k, None

    @staticmethod
    def tangent(ctx: Any, x: Tensor | None, k: Tensor | None) -> Tensor:
        (p,) = ctx.saved_tensors
        moved = torch.zeros_like(p) if x is None else _over(_weighted_centring(p, x)[0], ctx.temperature)
        if k is None:
            return moved
        q = p * (1 - p)
        return moved + q * (k / _positive(q.sum(-1, keepdim=True)))


class _LogLml(RowFunction):
    """``x, k, T -> log p``. The Jacobian in x is ``(1 - p_i) (delta_ij - q_j / sum q) / T``."""

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: float) -> Tensor:
        return logsigmoid(centred(x, *solve_dual(x, k, temperature), temperature))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.k_shape, ctx.temperature = inputs[1].shape, inputs[2]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (log_p,) = ctx.saved_tensors
        rest, share, total_log = _log_slopes(log_p)
        weighted = gradient * rest
        total = weighted.sum(-1, keepdim=True)
        to_k = (total * _exp(-total_log)).sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
        return _over(weighted - share * total, ctx.temperature), to_k, None

    @staticmethod
    def tangent(ctx: Any, x: Tensor | None, k: Tensor | None) -> Tensor:
        (log_p,) = ctx.saved_tensors
        rest, share, total_log = _log_slopes(log_p)
        moved = torch.zeros_like(log_p)
        if x is not None:
            moved = _over(rest * (x - (share * x).sum(-1, keepdim=True)), ctx.temperature)
        return moved if k is None else moved + rest * (k * _exp(-total_log))


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
        share, per_k = _Dual._slopes(ctx)
        to_k = (gradient * per_k).sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
        return _over(-gradient * share, ctx.temperature), to_k, None

    @staticmethod
    def tangent(ctx: Any, x: Tensor | None, k: Tensor | None) -> tuple[None, Tensor]:
        share, per_k = _Dual._slopes(ctx)
        moved = torch.zeros_like(per_k)
        if x is not None:
            moved = moved - _over((share * x).sum(-1, keepdim=True), ctx.temperature)
        return None, moved if k is None else moved + k * per_k

    @staticmethod
    def _slopes(ctx: Any) -> tuple[Tensor, Tensor]:
        """``q / sum q`` and ``1 / sum q``, in log space; zero where all labels are taken or none."""
        x, pivot, delta = ctx.saved_tensors
        inner = delta.abs() < torch.finfo(delta.dtype).max / 8
        y = centred(x, pivot, torch.where(inner, delta, 0), ctx.temperature)
        q_log = logsigmoid(y) + logsigmoid(-y)
        return q_log.softmax(-1) * inner, _exp(-q_log.logsumexp(-1, keepdim=True)) * inner


def _weighted_centring(p: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """``q (values - mean)`` and ``mean``, the mean of ``values`` with weights ``q = p (1 - p)``."""
    multiply = torch.mul if torch.is_grad_enabled() else Tensor.mul_  # in place where autograd does not watch
    q = multiply(1 - p, p)
    mean = (q * values).sum(-1, keepdim=True) / _positive(q.sum(-1, keepdim=True))
    return multiply(values - mean, q), mean


def _log_slopes(log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From log p: ``1 - p`` (0 for absent labels), ``q / sum q`` and ``log sum q``, exact when q underflows."""
    limits = torch.finfo(log_p.dtype)
    rest = -torch.expm1(log_p) * (log_p > -math.inf)
    q_log = log_p.clamp(min=limits.min / 4) + rest.clamp(min=limits.tiny).log()
    return rest, q_log.softmax(-1), q_log.logsumexp(-1, keepdim=True)


def _positive(total: Tensor) -> Tensor:
    """``total``, or the smallest normal number where it has underflowed: the quotient is then multiplied by 0."""
    return total.clamp(min=torch.finfo(total.dtype).tiny)


def _exp(values: Tensor) -> Tensor:
    """``exp`` that stops at the largest finite number."""
    return values.clamp(max=math.log(torch.finfo(values.dtype).max)).exp()


def _over(values: Tensor, temperature: float) -> Tensor:
    return values if temperature == 1 else values / temperature

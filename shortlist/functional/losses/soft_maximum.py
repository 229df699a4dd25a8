"""The soft maximum of the logits of a row or of a label, without those of the positives and the unknown labels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction
from shortlist.functional.losses.block_reductions import SoftMaxima, TruncatedSoftMaximum
from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    hidden_and_own,
    hide,
    split,
    without_entries,
    without_unknown_entries,
)
from shortlist.functional.order_statistics import largest
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.processes import ONE_PROCESS
from shortlist.labels import Labels
from shortlist.tensors import holds, may_look


def negative_soft_maxima(
    data: LabeledLogits, axes: tuple[int, ...], temperature: float = 1.0
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """The entries' logits, and the soft maximum of the other logits over each row (axis -1) or label (-2).

    A soft maximum ``T log sum exp(x / T)`` is a pair: the maximum, without a gradient, and what is to be added.
    Infinite logits are clipped to a finite range.
    """
    if isinstance(data.logits, LinearLogits):
        own, *found = data.reduce(SoftMaxima(axes, temperature))
        return own, list(zip(found[len(axes) :], found[: len(axes)], strict=True))
    own, *pairs = soft_maxima(bounded(data.logits), data.labels, axes, temperature)
    if -1 in axes and data.processes is not ONE_PROCESS:  # a label is whole on its process, a row is not
        at = axes.index(-1)
        top, part = pairs[at]
        whole = data.processes.max(top)
        total = data.processes.sum(((top - whole + part) / temperature).exp())
        pairs[at] = whole, temperature * total.clamp(min=torch.finfo(total.dtype).tiny).log()
    return own, pairs


def truncated_soft_maximum(data: LabeledLogits, dropped: Tensor | int, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The entries' logits, and the soft maximum of each row's other logits without its ``dropped`` largest.

    ``dropped`` is a number or ``(num_rows,)``, at most ``most``.
    """
    if isinstance(data.logits, LinearLogits):
        column = torch.as_tensor(dropped, device=data.labels.values.device).expand(data.labels.num_rows).unsqueeze(-1)
        own, part, top = data.reduce(TruncatedSoftMaximum(column, most))
        return own, top, part
    x, labels = data.logits, data.labels
    if not (most and x.numel()):
        own, (top, part) = soft_maxima(x, labels)
        return own, top, part
    own, (top, part) = soft_maxima(x, labels, more=_leading(x, labels, dropped, most))
    return own, top, part


@torch.no_grad()
def _leading(x: Tensor, labels: Labels, dropped: Tensor | int, most: int) -> tuple[Tensor, Tensor | None]:
    """Places in the flattened rows of the ``most`` largest negatives, and which of them are to be left out."""
    rest = without_entries(x, labels)
    leading, hidden = largest(rest, most), None
    if isinstance(dropped, Tensor):
        values, order = rest.gather(-1, leading).sort(-1, descending=True)
        leading = leading.gather(-1, order)
        # What is at -inf may be one of the labels, and adds nothing anyway.
        hidden = (torch.arange(most, device=x.device) < dropped.unsqueeze(-1)) | (values == -math.inf)
        hidden = hidden.reshape(-1)
    return (leading + x.shape[-1] * torch.arange(len(x), device=x.device).unsqueeze(-1)).reshape(-1), hidden


def bounded(x: Tensor) -> Tensor:
    """``x`` with infinite values clipped to a finite range; the gradient passes unchanged."""
    bound = bound_of(x.dtype)
    if x.numel() and may_look(x):
        low, high = x.detach().aminmax()
        if holds((low >= -bound) & (high <= bound)):
            return x
    return _Bounded.run(x)


def bound_of(dtype: torch.dtype) -> float:
    """More than any sensible logit: where logits are clipped, infinite ones count as this much."""
    return math.sqrt(torch.finfo(dtype).max)


def soft_maximum(x: Tensor) -> tuple[Tensor, Tensor]:
    """``log sum exp x`` of each row of ``(rows, n)``, as `soft_maxima` gives it."""
    _, *outputs = _SoftMaxima.run(x, None, None, (-1,), 1.0)
    return outputs[0], outputs[1]


def soft_maxima(
    x: Tensor,
    labels: Labels,
    axes: tuple[int, ...] = (-1,),
    temperature: float = 1.0,
    *,
    more: tuple[Tensor, Tensor | None] | None = None,
) -> Any:
    """The entries' logits (0 for unknown ones), and the soft maximum of the rest along each axis of ``(num_rows, n)``.

    A soft maximum ``T log sum exp(x / T)`` is a pair: the maximum and what is to be added to it. The whole gradient is
    that of the second, as if the maximum were a constant. Where there is nothing above -inf, the maximum is about a
    quarter of the lowest finite number, and the gradient is 0.

    Args:
        x: logits in float32 or float64.
        labels: the entries, which are no part of the rest.
        axes: -1 for rows, -2 for labels.
        temperature: T.
        more: further indices of the flattened rows that are no part of the rest, and which of them are not, or None.
    """
    if labels.is_dense:
        rest, own = split(x, labels)
        if more is not None:
            rest = hide(rest, more[0], more[1])
        _, *outputs = _SoftMaxima.run(rest, None, None, axes, temperature)
    else:
        indices, hidden, count = labels.indices, labels.listed, len(labels.values)
        if more is not None:
            every = (torch.ones_like(part, dtype=torch.bool) for part in (indices, more[0]))
            if hidden is not None or more[1] is not None:
                parts = zip((hidden, more[1]), every, strict=True)
                hidden = torch.cat([ones if part is None else part for part, ones in parts])
            indices = torch.cat([indices, more[0]])
        own, *outputs = _SoftMaxima.run(x, indices, hidden, axes, temperature)
        own = without_unknown_entries(own[:count], labels)
    return own, *zip(outputs[: len(axes)], outputs[len(axes) : 2 * len(axes)], strict=True)


class _SoftMaxima(RowFunction):
    """``x, indices, hidden, axes, T -> own, maxima, ..., parts, ..., softmaxes, ...``, one of each per axis.

    x is ``(..., rows, n)``; the entries at ``indices`` ``(..., m)`` of its flattened rows that are ``hidden`` (all if
    None) are left out.
    """

    @staticmethod
    def forward(
        x: Tensor, indices: Tensor | None, hidden: Tensor | None, axes: tuple[int, ...], temperature: float
    ) -> tuple[Tensor, ...]:
        own = x.new_empty(*x.shape[:-2], 0)
        if indices is not None:
            x, own = hidden_and_own(x, indices, hidden)
        tops, softs = zip(*(_top_and_softmax(x, axis, temperature) for axis in axes), strict=True)
        peaks = (_peak(soft, axis) for axis, soft in zip(axes, softs, strict=True))
        return own, *tops, *(-temperature * peak.log() for peak in peaks), *softs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.axes, ctx.temperature = inputs[3:]
        count = len(ctx.axes)
        ctx.mark_non_differentiable(*output[1 : count + 1], *output[2 * count + 1 :])
        ctx.set_materialize_grads(False)  # no zeros for the softmaxes
        ctx.save_for_backward(*inputs[:3], *output[2 * count + 1 :])
        ctx.save_for_forward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, to_own: Tensor | None, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        x, indices, hidden, *softs = ctx.saved_tensors
        again = torch.is_grad_enabled()
        if again:
            softs = _softmaxes(x, indices, hidden, ctx.axes, ctx.temperature)
        total = None
        for gradient, soft, axis in zip(upstream[len(ctx.axes) :], softs, ctx.axes, strict=False):
            if gradient is not None:
                gradient = gradient.unsqueeze(axis)
                if total is None:
                    total = gradient * soft
                else:
                    total = total.addcmul(gradient, soft) if again else total.addcmul_(gradient, soft)
        if indices is not None and to_own is not None:
            flat = (torch.zeros_like(x) if total is None else total).flatten(-2)
            flat = flat.scatter_add(-1, indices, to_own) if again else flat.scatter_add_(-1, indices, to_own)
            total = flat.view(x.shape)
        return total, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        x, indices, hidden = ctx.saved_tensors
        softs = _softmaxes(x, indices, hidden, ctx.axes, ctx.temperature)
        own = x.new_zeros(*x.shape[:-2], 0) if indices is None else x_tangent.flatten(-2).gather(-1, indices)
        nothing = [None] * len(ctx.axes)
        moved = [(soft * x_tangent).sum(axis) for axis, soft in zip(ctx.axes, softs, strict=True)]
        return own, *nothing, *moved, *nothing


def _peak(soft: Tensor, axis: int) -> Tensor:
    """The largest of a softmax, one over the sum of exponentials."""
    return soft.amax(axis).clamp(min=torch.finfo(soft.dtype).tiny) if soft.shape[axis] else soft.sum(axis) + 1


def _softmaxes(
    x: Tensor, indices: Tensor | None, hidden: Tensor | None, axes: tuple[int, ...], temperature: float
) -> list[Tensor]:
    """The softmaxes, in operations that differentiate."""
    rest = x if indices is None else hide(x, indices, hidden)
    return [_top_and_softmax(rest, axis, temperature)[1] for axis in axes]


def _top_and_softmax(x: Tensor, axis: int, temperature: float) -> tuple[Tensor, Tensor]:
    """The maximum, and the softmax with 0 where there is nothing but -inf."""
    lowest = torch.finfo(x.dtype).min / 4
    soft = (x if temperature == 1 else x / temperature).softmax(axis)
    if not x.shape[axis]:
        return torch.full_like(x.detach().sum(axis), lowest), soft
    top = x.detach().amax(axis)
    if not may_look(top) or not holds((top > -math.inf).all()):
        soft = soft.masked_fill((top == -math.inf).unsqueeze(axis), 0)
    return top.clamp(min=lowest), soft


class _Bounded(RowFunction):
    """``x -> x`` clipped to a finite range."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        bound = bound_of(x.dtype)
        return x.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor) -> Tensor:
        return x_tangent.view_as(x_tangent)

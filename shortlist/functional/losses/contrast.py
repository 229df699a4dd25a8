"""The highest negative against the lowest positive, both softened, along the rows or the columns of a matrix.

Here the labels are masks; `few_contrast.py` takes them one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.row_function import RowFunction
from shortlist.tensors import may_look

Pair = tuple[Tensor, Tensor]
Part = tuple[Tensor, Tensor, Tensor]
"""Along one axis: the values, 1 for those that count, and the slope, which has one number per entry."""


def contrast(
    x: Tensor, present: Tensor, absent: Tensor, axes: tuple[int, ...], temperatures: tuple[float, float]
) -> list[Pair]:
    """``T_N lse(x_N / T_N) + T_P lse(-x_P / T_P)`` along each of the axes, -1 or -2, of ``(rows, n)``.

    Members are positive where ``present`` is above 0, negative where ``absent`` is 1; the temperatures are those of
    positives and negatives. For each axis, returns the values, 0 where either is lacking, and 1 where there are both,
    else 0.
    """
    results = _Contrast.run(x, present, absent, axes, temperatures)
    return list(zip(results[: len(axes)], results[len(axes) : 2 * len(axes)], strict=True))


class _Contrast(RowFunction):
    """``x, present, absent, axes, temperatures -> values, ..., counted, ..., slopes, ...``, one of each per axis.

    A slope is the softmax of the negatives minus that of the positives.
    """

    @staticmethod
    def forward(
        x: Tensor, present: Tensor, absent: Tensor, axes: tuple[int, ...], temperatures: tuple[float, float]
    ) -> tuple[Tensor, ...]:
        if may_look(x):
            marks = present.detach().numpy() > 0, absent.detach().numpy() < 1
            places, others = (torch.from_numpy(np.flatnonzero(which)) for which in marks)
            parts = by_places(x, places, others, axes, temperatures)
        else:
            parts = _dense(x, present, absent, axes, temperatures)
        return tuple(part for kind in zip(*parts, strict=True) for part in kind)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.axes, ctx.temperatures = inputs[3:]
        count = len(ctx.axes)
        ctx.mark_non_differentiable(*output[count:])
        ctx.set_materialize_grads(False)  # else zeros are made for the slopes
        ctx.save_for_backward(*inputs[:3], *output[2 * count :])
        ctx.save_for_forward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        x, present, absent, *slopes = ctx.saved_tensors
        if torch.is_grad_enabled():
            slopes = [part[2] for part in _dense(x, present, absent, ctx.axes, ctx.temperatures)]
        return along(gradients, slopes, ctx.axes), None, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        x, present, absent = ctx.saved_tensors
        parts = _dense(x, present, absent, ctx.axes, ctx.temperatures)
        moved = ((x_tangent * slope).sum(axis) for axis, (_, _, slope) in zip(ctx.axes, parts, strict=True))
        return (*moved, *[None] * (2 * len(parts)))


def along(gradients: tuple[Tensor | None, ...], slopes: list[Tensor], axes: tuple[int, ...]) -> Tensor | None:
    """The gradient in x: that of the values along each axis times their slopes."""
    add = Tensor.addcmul if torch.is_grad_enabled() else Tensor.addcmul_
    total = None
    for gradient, slope, axis in zip(gradients, slopes, axes, strict=False):
        if gradient is not None:
            gradient = gradient.unsqueeze(axis)
            total = gradient * slope if total is None else add(total, gradient, slope)
    return total


def _dense(
    x: Tensor, present: Tensor, absent: Tensor, axes: tuple[int, ...], temperatures: tuple[float, float]
) -> list[Part]:
    positive_temperature, negative_temperature = temperatures
    parts = []
    for axis in axes:
        low, low_part, low_soft = _soft_top(-x, present.ceil(), axis, positive_temperature)
        high, high_part, high_soft = _soft_top(x, absent, axis, negative_temperature)
        parts.append((*joined(low, low_part, high, high_part), high_soft - low_soft))
    return parts


def by_places(
    x: Tensor, places: Tensor, others: Tensor, axes: tuple[int, ...], temperatures: tuple[float, float]
) -> list[Part]:
    """The same of plain tensors, for positives in ``places``; all ``others`` that are no negatives are put aside."""
    positive_temperature, negative_temperature = temperatures
    bound = bound_of(x)
    own = -x.reshape(-1)[places]
    rest = x.clone() if x.abs().amax() <= bound else x.clamp(-bound, bound)
    rest.view(-1).index_fill_(0, others, -far(x, negative_temperature))
    scaled = rest if negative_temperature == 1 else rest / negative_temperature
    parts = []
    for axis in axes:
        slope = scaled.softmax(axis)
        high, high_part = rest.amax(axis), -negative_temperature * slope.amax(axis).log()
        low, low_part, soft = _few_soft_top(own, _line(places, x, axis), high, positive_temperature)
        slope.view(-1).index_add_(0, places, soft, alpha=-1)
        parts.append((*joined(low, low_part, high, high_part), slope))
    return parts


def joined(low: Tensor, low_part: Tensor, high: Tensor, high_part: Tensor) -> Pair:
    """The values of lines with both kinds of members, and 1 for these; 0 and 0 for others."""
    counted = ~(torch.minimum(low, high) <= -2 * bound_of(low))  # NaN counts, and stays NaN
    # The largest negative minus the smallest positive first: a shift of all logits leaves it as it is.
    return torch.where(counted, (high + low) + (high_part + low_part), 0), counted.to(low.dtype)


def _soft_top(x: Tensor, members: Tensor, axis: int, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The largest member, what ``T lse(x / T)`` adds to it, and the softmax of the members."""
    bound = bound_of(x)
    x = torch.add(x.clamp(-bound, bound), members - 1, alpha=far(x, temperature))
    soft = (x if temperature == 1 else x / temperature).softmax(axis)
    return x.amax(axis), -temperature * soft.amax(axis).log(), soft


def _few_soft_top(x: Tensor, line: Tensor, like: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The same for members given one by one, with the line of each; answers for all lines as in ``like``."""
    bound = bound_of(x)
    x = x.clamp(-bound, bound)
    top = torch.full_like(like, -far(x, temperature)).view(-1).scatter_reduce_(0, line, x, "amax")
    power = (x - top[line]).div_(temperature).exp_()
    total = torch.zeros_like(top).index_add_(0, line, power)
    return top.view(like.shape), (temperature * total.clamp(min=1).log()).view(like.shape), power / total[line]


def _line(places: Tensor, x: Tensor, axis: int) -> Tensor:
    """The line, row or column, of each place in the flattened ``x``."""
    rows, n = x.shape[-2:]
    return places // n if axis == -1 else places // (rows * n) * n + places % n


def bound_of(x: Tensor) -> float:
    """More than any logit; infinite ones count as this much."""
    return math.sqrt(torch.finfo(x.dtype).max)


def far(x: Tensor, temperature: float) -> float:
    """How far down no member is, finite also over the temperature."""
    return torch.finfo(x.dtype).max / 4 * min(1.0, temperature)

"""The contrast of positives and negatives where all entries but a few are negatives, and no mask of them is made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.functional.losses.contrast import Pair, Part, along, bound_of, by_places, far, joined
from shortlist.functional.marked import Marked, add_at, filled
from shortlist.functional.row_function import RowFunction
from shortlist.tensors import may_look


def few_contrast(marks: Marked, axes: tuple[int, ...], temperatures: tuple[float, float]) -> list[Pair]:
    """`contrast` for labels given one by one: all that is not marked is negative, and members are positive."""
    marked = marks.places, marks.members > 0, marks.taken
    results = _FewContrast.run(marks.matrix, *marked, axes, temperatures)
    return list(zip(results[: len(axes)], results[len(axes) : 2 * len(axes)], strict=True))


class _FewContrast(RowFunction):
    """``x, places, member, taken, axes, temperatures -> values, ..., counted, ..., slopes, ...``, one of each per axis.

    x is ``(..., rows, n)``; places in its flattened rows, whether they are positive, and whether they are no negatives
    are ``(..., m)``.
    """

    @staticmethod
    def forward(
        x: Tensor,
        places: Tensor,
        member: Tensor,
        taken: Tensor | None,
        axes: tuple[int, ...],
        temperatures: tuple[float, float],
    ) -> tuple[Tensor, ...]:
        if may_look(x) and x.ndim == 2 and taken is None:
            parts = by_places(x, places if member.all() else places[member], places, axes, temperatures)
        else:
            parts = _parts(x, places, member, taken, axes, temperatures)
        return tuple(part for kind in zip(*parts, strict=True) for part in kind)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.axes, ctx.temperatures = inputs[4:]
        count = len(ctx.axes)
        ctx.mark_non_differentiable(*output[count:])
        ctx.set_materialize_grads(False)  # else zeros are made for the slopes
        ctx.save_for_backward(*inputs[:4], *output[2 * count :])
        ctx.save_for_forward(*inputs[:4])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        x, places, member, taken, *slopes = ctx.saved_tensors
        if torch.is_grad_enabled():
            slopes = [part[2] for part in _parts(x, places, member, taken, ctx.axes, ctx.temperatures)]
        return along(gradients, slopes, ctx.axes), *(None,) * 5

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        x, places, member, taken = ctx.saved_tensors
        parts = _parts(x, places, member, taken, ctx.axes, ctx.temperatures)
        moved = ((x_tangent * slope).sum(axis) for axis, (_, _, slope) in zip(ctx.axes, parts, strict=True))
        return (*moved, *[None] * (2 * len(parts)))


def _parts(
    x: Tensor,
    places: Tensor,
    member: Tensor,
    taken: Tensor | None,
    axes: tuple[int, ...],
    temperatures: tuple[float, float],
) -> list[Part]:
    """Values, what counts, and slopes, in operations that differentiate (the slopes) and read no value."""
    positive_temperature, negative_temperature = temperatures
    bound, n = bound_of(x), x.shape[-1]
    flat = x.clamp(-bound, bound).flatten(-2)
    rest = filled(flat, places, taken, -far(x, negative_temperature)).view(x.shape)
    own = torch.where(member, -flat.gather(-1, places), -far(x, positive_temperature))
    scaled = rest if negative_temperature == 1 else rest / negative_temperature
    parts = []
    for axis in axes:
        soft = scaled.softmax(axis)
        high, high_part = rest.amax(axis), -negative_temperature * soft.amax(axis).log()
        line = places // n if axis == -1 else places % n
        low, low_part, own_soft = _soft_top(own, member, line, high, positive_temperature)
        parts.append((*joined(low, low_part, high, high_part), add_at(soft, places, -own_soft)))
    return parts


def _soft_top(own: Tensor, member: Tensor, line: Tensor, like: Tensor, temperature: float) -> tuple[Tensor, ...]:
    """The largest member of each line, what ``T lse(own / T)`` adds to it, and the softmax of the members."""
    top = torch.full_like(like, -far(own, temperature)).scatter_reduce(-1, line, own.detach(), "amax")
    power = torch.where(member, ((own - top.gather(-1, line)) / temperature).exp(), 0)
    # At least 1, the largest member itself, where there is one.
    total = torch.zeros_like(top).scatter_add(-1, line, power).clamp(min=1)
    return top, temperature * total.log(), power / total.gather(-1, line)

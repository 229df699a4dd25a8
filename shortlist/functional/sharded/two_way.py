"""The two-way contrast where a row's labels are on several processes: rows are reduced over them, classes are whole."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.functional.losses.contrast import along, bound_of, far, joined
from shortlist.functional.marked import marked
from shortlist.functional.observed import observed
from shortlist.functional.reduction import Reduction, reduce_rows
from shortlist.functional.sharded.targets import own_target, own_weight
from shortlist.label_axis.once_differentiable import once_differentiable
from shortlist.label_axis.processes import all_max, all_sum, shards_of, to_local
from shortlist.tensors import log_sigmoid, solvable, wide


def sharded_two_way(
    logits: Tensor,
    target: Tensor,
    *,
    axes: tuple[int, ...],
    options: tuple[float, float, float],
    weight: Tensor | None,
    reduction: Reduction,
) -> Tensor:
    """``two_way`` of a DTensor that is sharded along its labels; along rows (axis -1), classes (-2) or both.

    The options are the temperatures of positives and negatives, and the margin.
    """
    labels = shards_of(logits)
    target, weight = own_target(logits, target, labels), own_weight(logits, weight, labels)
    x, shape = solvable(to_local(logits)), logits.shape[:-1]
    places, others = _places(x, target)
    x = x.reshape(math.prod(shape), labels.count)
    found = _Contrast.apply(x, places, others, axes, options[:2], labels.group)
    parts = {axis: (found[i], found[len(axes) + i]) for i, axis in enumerate(axes)}
    losses = {axis: (-log_sigmoid(-(value + options[2])), counted) for axis, (value, counted) in parts.items()}
    if -1 not in losses:
        return _class_wise(*losses[-2], weight, reduction, labels)
    values, share = losses[-1]
    if weight is not None:
        share = share * _mean_weights(x, places, weight, labels.group)
    samples = labels.replicate(reduce_rows(values.reshape(shape), reduction, share=share.reshape(shape)))
    if -2 not in losses:
        return samples
    classes = _class_wise(*losses[-2], weight, "mean", labels)
    return samples + classes * (math.prod(shape) if reduction == "sum" else 1)


def _places(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The positives, and all that are no negatives, as places in the flattened logits."""
    marks = marked(x, target)
    if marks is not None:
        others = marks.places if marks.taken is None else marks.places[marks.taken]
        return marks.places[marks.members > 0], others
    _, present, absent = observed(x, target)
    return (present > 0).reshape(-1).nonzero().squeeze(-1), (absent < 1).reshape(-1).nonzero().squeeze(-1)


def _class_wise(values: Tensor, share: Tensor, weight: Tensor | None, reduction: Reduction, labels: Any) -> Tensor:
    share = share if weight is None else share * weight
    own = reduce_rows(values, "none", share=share)
    if reduction == "none":
        return labels.shard(own, 0)
    sums = torch.stack([own.sum(), share.sum()])
    total, whole = all_sum(sums.to(wide(sums)), labels.group).to(values.dtype)
    return labels.replicate(total if reduction == "sum" else total / torch.where(whole > 0, whole, 1))


def _mean_weights(x: Tensor, places: Tensor, weight: Tensor, group: Any) -> Tensor:
    """The mean weight of the positives of each row."""
    n = max(x.shape[-1], 1)
    each = torch.stack([weight[places % n], torch.ones_like(places, dtype=x.dtype)], -1)
    own = x.new_zeros(len(x), 2).index_add(0, places // n, each)
    total, count = all_sum(own.to(wide(x)), group).to(x.dtype).unbind(-1)
    return total / count.clamp(min=1)


class _Contrast(Function):
    """``x, places, others, axes, temperatures, group -> values, ..., counted, ...``, one of each per axis.

    As ``by_places`` of ``contrast.py``; what a row adds up is reduced over the processes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        places: Tensor,
        others: Tensor,
        axes: tuple[int, ...],
        temperatures: tuple[float, float],
        group: Any,
    ) -> tuple[Tensor, ...]:
        bound = bound_of(x)
        rest = x.clamp(-bound, bound)
        own = -rest.reshape(-1)[places]
        rest.view(-1).index_fill_(0, others, -far(x, temperatures[1]))
        parts = [_along(rest, own, places, axis, temperatures, group if axis == -1 else None) for axis in axes]
        values, counted, slopes = zip(*parts, strict=True)
        ctx.axes = axes
        ctx.mark_non_differentiable(*counted)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*slopes)
        return *values, *counted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return along(gradients, list(ctx.saved_tensors), ctx.axes), *(None,) * 5


def _along(
    rest: Tensor, own: Tensor, places: Tensor, axis: int, temperatures: tuple[float, float], group: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Values, what counts, and slopes, along one axis; with a group, over all its processes.

    ``rest`` are the negatives, very low where there is none, and ``own`` minus the positives, in their places.
    """
    low_temperature, high_temperature = temperatures
    n = max(rest.shape[-1], 1)
    line = places // n if axis == -1 else places % n
    if rest.shape[axis]:
        high = rest.amax(axis)
    else:
        high = rest.new_full((rest.shape[-1] if axis == -2 else len(rest),), -far(rest, high_temperature))
    low = torch.full_like(high, -far(rest, low_temperature)).scatter_reduce_(0, line, own, "amax")
    if group is not None:
        high, low = all_max(torch.stack([high, low]), group)
    slope = (rest - high.unsqueeze(axis)).div_(high_temperature).exp_()
    power = (own - low[line]).div_(low_temperature).exp_()
    totals = torch.stack([slope.sum(axis), torch.zeros_like(low).index_add_(0, line, power)])
    if group is not None:
        totals = all_sum(totals.to(wide(rest)), group).to(rest.dtype)
    # At least 1, the largest member itself, where there is one.
    high_total, low_total = totals.clamp_(min=1)
    slope.div_(high_total.unsqueeze(axis)).view(-1).index_add_(0, places, power / low_total[line], alpha=-1)
    values, counted = joined(low, low_temperature * low_total.log(), high, high_temperature * high_total.log())
    broken = totals.isnan().any(0)
    return torch.where(broken, math.nan, values), torch.where(broken, 1, counted), slope

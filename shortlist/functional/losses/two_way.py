"""The two-way loss: each positive against all negatives, within rows and within classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    check_reduction,
    once,
    read_labeled,
    reduce_rows,
)
from shortlist.functional.losses.soft_maximum import bound_of, negative_soft_maxima
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.tensors import check_number, check_positive, is_dtensor

__all__ = ["two_way"]

TwoWayKind = Literal["two-way", "sample", "class"]
"""Whether labels compete within a row, rows within a class, or both."""

_AXES = {"two-way": (-1, -2), "sample": (-1,), "class": (-2,)}


def two_way(
    logits: Tensor | LinearLogits,
    target: Tensor,
    *,
    kind: TwoWayKind = "two-way",
    positive_temperature: float = 4.0,
    negative_temperature: float = 1.0,
    margin: float = 0.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Contrast of the lowest positive and the highest negative within rows, within classes, or both.

    .. math:: \ell = \log\left(1 + e^{u}\right), \quad u = T_N \log \sum_{j \in N} e^{x_j / T_N}
              + T_P \log \sum_{i \in P} e^{-x_i / T_P} + \text{margin}

    Sample-wise, P and N are the positives and the known negatives of a row; class-wise, the rows in which a class is
    present and absent, all leading dimensions taken together. The two-way loss is the sum of both means. Rows and
    classes that lack a positive or a negative are left out. A constant added to all logits changes nothing.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label. May be :class:`LinearLogits`. A ``DTensor``
            may be sharded along its labels; every process passes the same target, with global label indices, and the
            loss is replicated (one value per class: sharded).
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out, and what is above 0
            counts as present.
        kind: ``"two-way"``, ``"sample"`` or ``"class"``.
        positive_temperature: ``T_P``; the smaller, the closer to the lowest positive alone.
        negative_temperature: ``T_N``, likewise for the highest negative.
        margin: by how much the positives must be ahead for a loss of log 2.
        weight: ``(n,)``: a class counts by its weight, a row by the mean weight of its positives.
        reduction: ``"mean"`` over the rows that count plus mean over the classes that count; ``"none"`` gives one
            value per row (for ``"class"``, per class), 0 where left out, times its weight, and the two-way loss adds
            the class-wise mean to every row; ``"sum"`` their sum.

    Returns:
        One number, or one value per row or class; float32 or float64.

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 1.0, 0.0]])
        >>> two_way(logits, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), reduction="none", kind="sample")
        tensor([0.2413, 0.4076])
        >>> two_way(logits, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        tensor(0.4122)

    References:
        Kobayashi, "Two-way Multi-Label Loss", 2023, eq. 14-15.
    """
    if kind not in get_args(TwoWayKind):
        raise ValueError(f'`kind` must be "two-way", "sample" or "class"; got {kind!r}.')
    check_reduction(reduction)
    positive_temperature = check_positive("positive_temperature", positive_temperature)
    negative_temperature = check_positive("negative_temperature", negative_temperature)
    margin = check_number("margin", margin)
    data = read_labeled(logits, target, weight)
    if is_dtensor(logits):
        data = replace(data, logits=once(data.tensor))
    axes = _AXES[kind]
    own, highest = negative_soft_maxima(data, axes, negative_temperature)
    results = []
    for axis, high in zip(axes, highest, strict=True):
        value, counted = _contrast(data, own, high, axis, positive_temperature)
        values = softplus(value + margin, threshold=40.0)  # from here on it is the value, in float64 too
        if axis == -1:
            results.append(_sample_wise(data, values, counted, reduction))
        else:
            results.append(_class_wise(data, values, counted, reduction if kind == "class" else "mean"))
    if len(results) == 1:
        return results[0]
    return results[0] + results[1] * (data.labels.num_rows if reduction == "sum" else 1)


def _contrast(
    data: LabeledLogits, own: Tensor, high: tuple[Tensor, Tensor], axis: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """The soft maximum of the negatives minus the soft minimum of the positives of each row or class.

    Returns:
        The values, 0 for a row or class that lacks a positive or a negative, and 1 or 0: whether it counts.
    """
    labels, lowest = data.labels, torch.finfo(own.dtype).min / 4
    member = None if labels.only_present else labels.members > 0
    over = data.processes if axis == -1 else None  # a class is whole on its process
    negated = -own if member is None else torch.where(member, -own, lowest)
    low = labels.max_along(negated.detach(), axis, lowest)
    low = low if over is None else over.max(low)
    powers = ((negated - labels.spread(low, axis)) / temperature).exp()
    total = labels.sum_along(powers if member is None else torch.where(member, powers, 0), axis)
    total = total if over is None else over.sum(total)
    low_part = temperature * total.clamp(min=1).log()  # at least the largest itself, if there is one
    top, high_part = high
    # A NaN counts; maxima over processes may lose it, sums do not.
    counted = ~(torch.minimum(low, top) <= -2 * bound_of(own.dtype)) | high_part.isnan() | low_part.isnan()
    # The highest negative minus the lowest positive first: a shift of all logits leaves it unchanged.
    value = torch.where(counted, (top + low) + (high_part + low_part), 0)
    return value, counted.to(own.dtype)


def _sample_wise(data: LabeledLogits, values: Tensor, share: Tensor, reduction: Reduction) -> Tensor:
    values, share = values.reshape(data.row_shape), share.reshape(data.row_shape)
    if data.weight is not None:
        members = data.labels.members
        total = data.row_sums(members * data.labels.weights(data.weight))
        share = share * total / data.row_sums(members).clamp(min=1)
    return data.processes.replicate(reduce_rows(values, reduction, share=share))


def _class_wise(data: LabeledLogits, values: Tensor, share: Tensor, reduction: Reduction) -> Tensor:
    """Reduce over the classes of all processes, of which the local ones are given."""
    share = share if data.weight is None else share * data.weight
    local = reduce_rows(values, "none", share=share)
    if reduction == "none":
        return data.processes.shard(local)
    total, whole = data.processes.sum(torch.stack([local.sum(), share.sum()]))
    return data.processes.replicate(total if reduction == "sum" else total / torch.where(whole > 0, whole, 1))

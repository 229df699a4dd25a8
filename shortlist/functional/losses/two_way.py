"""The two-way loss: each positive against all negatives, within rows and within classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.functional.autograd import RowFunction, opaque
from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    check_reduction,
    once,
    read_labeled,
    read_raw,
    reduce_rows,
)
from shortlist.functional.losses.soft_maximum import bound_of, negative_soft_maxima
from shortlist.kernels.chooser import TRITON_DEVICES, triton_kernels
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.processes import ONE_PROCESS, Processes
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
    axes, temperatures = _AXES[kind], (negative_temperature, positive_temperature)
    lines = _read(logits, target, weight, axes, temperatures)
    results = []
    for axis, (contrast, share) in zip(axes, lines.contrasts, strict=True):
        values = softplus(contrast + margin, threshold=40.0)  # from here on it is the value, in float64 too
        if axis == -1:
            rows, shares = (part.reshape(lines.row_shape) for part in (values, share))
            results.append(lines.processes.replicate(reduce_rows(rows, reduction, share=shares)))
        else:
            by_class: Reduction = reduction if kind == "class" else "mean"
            results.append(_class_wise(lines.processes, values, share, by_class))
    if len(results) == 1:
        return results[0]
    return results[0] + results[1] * (math.prod(lines.row_shape) if reduction == "sum" else 1)


class _Lines(NamedTuple):
    """The contrast of each row and of each local class, with how much it counts."""

    contrasts: list[tuple[Tensor, Tensor]]  # in the order of the axes
    row_shape: torch.Size
    processes: Processes


def _read(
    logits: Tensor | LinearLogits,
    target: Tensor,
    weight: Tensor | None,
    axes: tuple[int, ...],
    temperatures: tuple[float, float],
) -> _Lines:
    raw = read_raw(logits, target, weight, scales=temperatures)
    if raw is not None:
        count, found = len(axes), _Contrasts.run(raw.logits, raw.target, raw.weight, axes, *temperatures)
        contrasts = list(zip(found[:count], found[count : 2 * count], strict=True))
        class_weight, row_shape, processes = raw.weight, raw.row_shape, ONE_PROCESS
    else:
        data = read_labeled(logits, target, weight)
        if is_dtensor(logits):
            data = replace(data, logits=once(data.tensor))
        contrasts = _contrasts(data, axes, *temperatures)
        class_weight, row_shape, processes = data.weight, data.row_shape, data.processes
    if class_weight is not None and -2 in axes:
        contrast, share = contrasts[-1]
        contrasts[-1] = contrast, share * class_weight
    return _Lines(contrasts, row_shape, processes)


def _contrasts(
    data: LabeledLogits, axes: tuple[int, ...], negative_temperature: float, positive_temperature: float
) -> list[tuple[Tensor, Tensor]]:
    """The contrasts along each axis, and how much each counts: a row by the mean weight of its positives."""
    own, highest = negative_soft_maxima(data, axes, negative_temperature)
    negated = -own
    if not data.labels.only_present:
        negated = negated.masked_fill(data.labels.values <= 0, _lowest(own))
    results = []
    for axis, high in zip(axes, highest, strict=True):
        contrast, share = _contrast(data, negated, high, axis, positive_temperature)
        if axis == -1 and data.weight is not None:
            members = data.labels.members
            total = data.row_sums(members * data.labels.weights(data.weight)).reshape(-1)
            share = share * total / data.row_sums(members).reshape(-1).clamp(min=1)
        results.append((contrast, share))
    return results


def _lowest(x: Tensor) -> float:
    return torch.finfo(x.dtype).min / 4


def _contrast(
    data: LabeledLogits, negated: Tensor, high: tuple[Tensor, Tensor], axis: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """The soft maximum of the negatives minus the soft minimum of the positives of each row or class.

    ``negated`` are minus the positives' logits; an entry that is no positive has the lowest number.

    Returns:
        The values, 0 for a row or class that lacks a positive or a negative, and 1 or 0: whether it counts.
    """
    labels = data.labels
    over = data.processes if axis == -1 else None  # a class is whole on its process
    low = labels.max_along(negated.detach(), axis, _lowest(negated))
    low = low if over is None else over.max(low)
    # Without a positive this sums the lowest numbers, and the line is left out.
    total = labels.sum_along(((negated - labels.spread(low, axis)) / temperature).exp(), axis)
    total = total if over is None else over.sum(total)
    top, high_part = high
    part = high_part + temperature * total.clamp(min=1).log()  # at least the largest itself, if there is one
    # A NaN counts; maxima over processes may lose it, sums do not.
    lacking = (torch.minimum(low, top) <= -2 * bound_of(part.dtype)) & (part.detach() == part.detach())
    # The highest negative minus the lowest positive first: a shift of all logits leaves it unchanged.
    return ((top + low) + part).masked_fill(lacking, 0), (~lacking).to(part.dtype)


def _class_wise(processes: Processes, values: Tensor, share: Tensor, reduction: Reduction) -> Tensor:
    """Reduce over the classes of all processes, of which the local ones are given."""
    local = reduce_rows(values, "none", share=share)
    if reduction == "none":
        return processes.shard(local)
    total, whole = processes.sum(torch.stack([local.sum(), share.sum()]))
    return processes.replicate(total if reduction == "sum" else total / whole.masked_fill(whole.detach() <= 0, 1))


class _Contrasts(RowFunction):
    """``x, target, weight, axes, T_N, T_P -> contrasts, ..., shares, ..., extremes, ...``, by Triton kernels.

    One of each per axis; the extremes are for the backward pass. A target is read as it was given; see `RawRows`.
    """

    @staticmethod
    def forward(
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        axes: tuple[int, ...],
        negative_temperature: float,
        positive_temperature: float,
    ) -> tuple[Tensor, ...]:
        compute = _contrasts_op if torch.compiler.is_compiling() else _contrasts_triton
        found = [compute(x, target, weight, axis, negative_temperature, positive_temperature) for axis in axes]
        return tuple(part for parts in zip(*found, strict=True) for part in parts)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.axes, *ctx.temperatures = inputs[3:]
        count = len(ctx.axes)
        ctx.mark_non_differentiable(*output[count:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:2], *output[2 * count :])
        ctx.save_for_forward(*inputs[:2], *output[2 * count :])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        x, target, *found = ctx.saved_tensors
        gradients = upstream[: len(ctx.axes)]
        if all(gradient is None for gradient in gradients):
            return (None,) * 6
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            contrasts = [value for value, _ in _contrasts(read_labeled(x, target), ctx.axes, *ctx.temperatures)]
            values, given = zip(
                *(pair for pair in zip(contrasts, gradients, strict=True) if pair[1] is not None), strict=True
            )
            return *torch.autograd.grad(values, x, given, create_graph=True), *(None,) * 5
        return _slopes(ctx, x, target, found, gradients), *(None,) * 5

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        x, target, *found = ctx.saved_tensors
        moved = []
        for at, axis in enumerate(ctx.axes):
            ones = [torch.ones_like(found[at][0]) if i == at else None for i in range(len(ctx.axes))]
            moved.append((_slopes(ctx, x, target, found, ones) * x_tangent).sum(axis, dtype=torch.float32))
        return *moved, *(None,) * (2 * len(ctx.axes))


def _slopes(ctx: Any, x: Tensor, target: Tensor, found: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    """The gradient in x of the contrasts along all axes."""
    sides: dict[int, tuple[Tensor | None, Tensor | None]] = {-1: (None, None), -2: (None, None)}
    sides.update(zip(ctx.axes, zip(gradients, found, strict=True), strict=True))
    compute = _gradient_op if torch.compiler.is_compiling() else _gradient_triton
    return compute(x, target, *sides[-1], *sides[-2], *ctx.temperatures)


def _contrasts_triton(
    x: Tensor, target: Tensor, weight: Tensor | None, axis: int, negative: float, positive: float
) -> tuple[Tensor, Tensor, Tensor]:
    kernels = triton_kernels("two_way")
    if axis == -1:
        return kernels.row_contrasts(x, target, weight, negative, positive)
    return kernels.label_contrasts(x, target, negative, positive)


def _gradient_triton(x: Tensor, target: Tensor, *lines_and_temperatures: Any) -> Tensor:
    return triton_kernels("two_way").contrast_gradient(x, target, *lines_and_temperatures)


def _like_contrasts(x: Tensor, target: Tensor, weight: Tensor | None, axis: int, *_: float) -> tuple[Tensor, ...]:
    lines = x.shape[0 if axis == -1 else 1]
    return tuple(x.new_empty(shape, dtype=torch.float32) for shape in ((lines,), (lines,), (4, lines)))


_contrasts_op = opaque(
    "two_way_contrasts",
    "(Tensor x, Tensor target, Tensor? weight, int axis, float negative, float positive) -> (Tensor, Tensor, Tensor)",
    _contrasts_triton,
    _like_contrasts,
    devices=TRITON_DEVICES,
)
_gradient_op = opaque(
    "two_way_gradient",
    "(Tensor x, Tensor target, Tensor? row_gradient, Tensor? by_row, Tensor? label_gradient, Tensor? by_label, "
    "float negative, float positive) -> Tensor",
    _gradient_triton,
    lambda x, *_: x.new_empty(x.shape),
    devices=TRITON_DEVICES,
)

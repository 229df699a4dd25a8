"""Logits with their labels, as every loss reads them, wherever the labels of a row are.

A loss needs two things: the logits of the few labeled entries, and a few sums over the rest of each row. Both come from
here, whether the logits are held in one tensor, recomputed in blocks (`LinearLogits`) or sharded over processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.checks import check_logits
from shortlist.functional.losses.block_reductions import SoftMaxima, TruncatedSoftMaximum
from shortlist.functional.order.largest import largest
from shortlist.functional.reduction import check_weight
from shortlist.functional.row_function import RowFunction
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.once_differentiable import once_differentiable
from shortlist.label_axis.processes import (
    ONE_PROCESS,
    Processes,
    is_replicated,
    local_part,
    replicated,
    shards_of,
    to_local,
)
from shortlist.label_axis.reduction import BlockReduction, reduce_blocks
from shortlist.labels import Labels, read_labels
from shortlist.tensors import HALF, holds, is_dtensor, solvable


@dataclass(frozen=True, eq=False)
class LabeledLogits:
    """The local labels of all rows, with their logits.

    Attributes:
        logits: ``(num_rows, local labels)`` in float32 or float64; or `LinearLogits`.
        labels: what the target says of the local labels. For `LinearLogits`, a list in the order of the labels.
        weight: ``(local labels,)``, one weight per label, or None.
        num_labels: n, over all processes.
        processes: who holds the labels.
        class_share: ``(*rows,)``, how much each row counts in a loss of one class per row; None if all count alike.
    """

    logits: Tensor | LinearLogits
    labels: Labels
    weight: Tensor | None
    num_labels: int
    processes: Processes
    class_share: Tensor | None = None

    @property
    def row_shape(self) -> torch.Size:
        """The shape of the rows."""
        return self.labels.row_shape

    @property
    def held(self) -> Tensor:
        """The logits as a tensor."""
        if not isinstance(self.logits, Tensor):
            raise RuntimeError("LinearLogits hold no tensor")
        return self.logits

    def with_logits(self, logits: Tensor) -> LabeledLogits:
        """Other logits of the same shape, with the same labels."""
        x = solvable(logits)
        labels = replace(self.labels, values=self.labels.values.to(x.dtype))
        weight = None if self.weight is None else self.weight.to(x.dtype)
        return replace(self, logits=x.reshape(self.held.shape), labels=labels, weight=weight)

    def classes(self) -> LabeledLogits:
        """The labels as one entry per row, its class; unknown labels get the logit -inf."""
        classes = _classes(self.labels)
        share = _class_share(classes, self.weight)
        return replace(self, logits=without_unknown(self.held, self.labels), labels=classes, class_share=share)

    def known(self) -> Tensor | int:
        """How many labels of all rows, over all processes, are not unknown."""
        known = self.labels.known()
        if self.processes is ONE_PROCESS:
            return known
        return self.processes.sum(torch.as_tensor(known, device=self.labels.values.device).double())

    def share(self) -> Tensor:
        """How much each entry counts as a positive: its value in the target, times the weight of its label."""
        return weighted(self.labels.present, self.labels, self.weight)

    def row_sums(self, values: Tensor) -> Tensor:
        """The sum of one value per entry over each row, ``(*rows,)``."""
        return self.processes.sum(self.labels.sum_along(values)).reshape(self.row_shape)

    def positive_sums(self, terms: Tensor) -> Tensor:
        """The sum of the positives' ``terms`` over each row, each times its share; other terms may be anything."""
        share = self.share()
        return self.row_sums(torch.where(share > 0, terms, 0) * share)

    def beside(self, values: Tensor) -> Tensor:
        """Of one value per row ``(num_rows,)`` that all processes share, that of each entry."""
        return self.labels.spread(self.processes.copy(values))

    def reduce(self, reduction: BlockReduction, hidden: Labels | None = None) -> tuple[Tensor, ...]:
        """The entries' logits of `LinearLogits`, and the outputs of a reduction that leaves out ``hidden`` entries."""
        if isinstance(self.logits, Tensor):
            raise RuntimeError("only LinearLogits are reduced in blocks")
        own, *outputs = reduce_blocks(self.logits, self.labels, self.labels if hidden is None else hidden, reduction)
        # An unknown label counts for nothing, whatever its logit.
        return own if not self.labels.has_unknown else own.masked_fill(self.labels.values < 0, 0), *outputs

    def soft_maxima(
        self, axes: tuple[int, ...], temperature: float = 1.0
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The entries' logits, and the soft maximum of the other logits over each row (axis -1) or label (-2).

        A soft maximum ``T log sum exp(x / T)`` is a pair: the maximum, without a gradient, and what is to be added.
        Infinite logits are clipped to a finite range.
        """
        if isinstance(self.logits, LinearLogits):
            own, *found = self.reduce(SoftMaxima(axes, temperature))
            return own, list(zip(found[len(axes) :], found[: len(axes)], strict=True))
        own, *pairs = soft_maxima(bounded(self.logits), self.labels, axes, temperature)
        return own, [
            self._over_processes(*pair, temperature) if axis == -1 else pair  # a label is whole on its process
            for axis, pair in zip(axes, pairs, strict=True)
        ]

    def truncated_soft_maximum(self, spare: Tensor | int, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """The entries' logits, and the soft maximum of each row's other logits without its ``spare`` largest.

        ``spare`` is a number or ``(num_rows,)``, at most ``most``.
        """
        if isinstance(self.logits, LinearLogits):
            column = torch.as_tensor(spare, device=self.labels.values.device).expand(self.labels.num_rows).unsqueeze(-1)
            own, part, top = self.reduce(TruncatedSoftMaximum(column, most))
            return own, top, part
        x, labels = self.logits, self.labels
        if not (most and x.numel()):
            own, (top, part) = soft_maxima(x, labels)
            return own, top, part
        own, (top, part) = soft_maxima(x, labels, more=_leading(x, labels, spare, most))
        return own, top, part

    def _over_processes(self, top: Tensor, part: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        if self.processes is ONE_PROCESS:
            return top, part
        whole = self.processes.max(top)
        total = self.processes.sum(((top - whole + part) / temperature).exp())
        return whole, temperature * total.clamp(min=torch.finfo(total.dtype).tiny).log()


@torch.no_grad()
def _leading(x: Tensor, labels: Labels, spare: Tensor | int, most: int) -> tuple[Tensor, Tensor | None]:
    """Places in the flattened rows of the ``most`` largest negatives, and which of them are to be left out."""
    rest = split(x, labels)[0]
    leading, hidden = largest(rest, most), None
    if isinstance(spare, Tensor):
        values, order = rest.gather(-1, leading).sort(-1, descending=True)
        leading = leading.gather(-1, order)
        # What is at -inf may be one of the labels, and adds nothing anyway.
        hidden = (torch.arange(most, device=x.device) < spare.unsqueeze(-1)) | (values == -math.inf)
        hidden = hidden.reshape(-1)
    return (leading + x.shape[-1] * torch.arange(len(x), device=x.device).unsqueeze(-1)).reshape(-1), hidden


def read_labeled(
    logits: Tensor | LinearLogits, target: Tensor, weight: Tensor | None = None, *, one_class: bool = False
) -> LabeledLogits:
    """Check and read the arguments of a loss of plain or linear logits and, but for one class, of sharded ones."""
    if isinstance(logits, LinearLogits):
        return _read_linear(logits, target, weight, one_class)
    if is_dtensor(logits) and not one_class:
        return _read_sharded(logits, target, weight)
    return read_held(logits, target, weight, one_class=one_class)


def read_held(
    logits: Tensor, target: Tensor, weight: Tensor | None = None, *, one_class: bool = False
) -> LabeledLogits:
    """Check and read the arguments of a loss that takes a plain tensor only.

    With ``one_class``, the labels have one entry per row: its class. Unknown labels then have the logit -inf.
    """
    check_logits(logits)
    x = solvable(logits)
    labels = read_labels(target, x.shape, dtype=x.dtype)
    matrix, weight = x.reshape(labels.num_rows, x.shape[-1]), check_weight(weight, x)
    data = LabeledLogits(matrix, labels, weight, x.shape[-1], ONE_PROCESS)
    return data.classes() if one_class else data


def check_second_logits(name: str, second: Tensor, logits: Tensor) -> None:
    """Refuse a second tensor of logits that is not floating or not shaped like the first."""
    check_logits(logits)
    if not isinstance(second, Tensor) or not second.is_floating_point():
        kind = second.dtype if isinstance(second, Tensor) else type(second).__name__
        raise TypeError(f"`{name}` must be a floating tensor; got {kind}.")
    if second.shape != logits.shape:
        raise ValueError(f"`{name}` must have the shape of `logits`, {tuple(logits.shape)}; got {tuple(second.shape)}.")


def _classes(labels: Labels) -> Labels:
    """The labels with one entry per row, its class; a row without one has an entry that counts for nothing."""
    if labels.num_labels == 0:
        raise ValueError("`logits` must have at least one label to be the true class; got 0.")
    index, counted = labels.one_class()
    rows = torch.arange(labels.num_rows, device=index.device)
    values = torch.ones_like(rows, dtype=labels.values.dtype) if counted is None else counted.reshape(-1)
    listed = None if counted is None else values != 0
    return Labels(labels.row_shape, labels.num_labels, rows, index.reshape(-1), values, listed, width=1)


def _class_share(classes: Labels, weight: Tensor | None) -> Tensor | None:
    """How much each row counts: the weight of its class, 0 without one."""
    if weight is None and classes.listed is None:
        return None
    return weighted(classes.values, classes, weight).reshape(classes.row_shape)


def _read_linear(logits: LinearLogits, target: Tensor, weight: Tensor | None, one_class: bool) -> LabeledLogits:
    like, processes = logits.stand_in(), logits.processes
    target = replicated(target, "target") if isinstance(target, Tensor) else target
    labels = read_labels(target, like.shape, dtype=like.dtype)
    if target.requires_grad:
        raise ValueError("`target` must not require a gradient for LinearLogits.")
    weight = check_weight(replicated(weight, "weight") if isinstance(weight, Tensor) else weight, like)
    share = _class_share(_classes(labels), weight) if one_class else None
    labels = processes.local_labels(labels.by_label())
    weight = None if weight is None else processes.local_values(weight)
    return LabeledLogits(logits, labels, weight, like.shape[-1], processes, share)


def _read_sharded(logits: Tensor, target: Tensor, weight: Tensor | None) -> LabeledLogits:
    shards, local = shards_of(logits), solvable(to_local(logits))
    if is_dtensor(target) and not is_replicated(target):
        own = local_part(target, shards, -1, like=logits, name="target")
        labels = read_labels(own, local.shape, dtype=local.dtype)
    else:
        target = replicated(target, "target") if isinstance(target, Tensor) else target
        labels = shards.local_labels(read_labels(target, logits.shape, dtype=local.dtype))
    matrix = local.reshape(labels.num_rows, local.shape[-1])
    return LabeledLogits(matrix, labels, _sharded_weight(weight, logits, shards), logits.shape[-1], shards)


def _sharded_weight(weight: Tensor | None, logits: Tensor, shards: Any) -> Tensor | None:
    """The weights of the local labels: of a tensor that every process has, or of one sharded as ``logits`` is."""
    dtype = torch.float32 if logits.dtype in HALF else logits.dtype
    like = torch.empty(logits.shape[-1:], dtype=dtype, device="meta")
    if not isinstance(weight, Tensor):
        return check_weight(weight, like)
    check_weight(torch.empty(weight.shape, dtype=weight.dtype, device="meta"), like)
    if is_dtensor(weight) and not is_replicated(weight):
        return local_part(weight, shards, 0, like=weight, name="weight").to(dtype)
    return shards.local_values(replicated(weight, "weight").to(dtype))


class ClassRows(NamedTuple):
    """Rows with one true class each."""

    logits: Tensor  # (*rows, n), float32 or float64; -inf for unknown labels
    index: Tensor  # (*rows, 1): the true class, or 0 if there is none
    share: Tensor | None  # (*rows,): how much a row counts; None if all count alike

    def true_logit(self) -> Tensor:
        """The logit of the true class, ``(*rows,)``."""
        return self.logits.gather(-1, self.index).squeeze(-1)

    def others(self) -> Tensor:
        """The logits with -inf for the true class."""
        return self.logits.scatter(-1, self.index, -math.inf)


def read_classes(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> ClassRows:
    """Read ``target`` as one class per row.

    Class indices always fit. Index lists must have room for one label, and -1 leaves the row out. A multi-hot, dense or
    sparse, must hold one positive per row; a row without one is left out, and unknown labels leave the competition.
    Two positives in a row raise where reading a value is free, and make the row NaN elsewhere.
    """
    data = read_held(logits, target, weight, one_class=True)
    index = data.labels.pairs()[1].reshape(*data.row_shape, 1)
    return ClassRows(data.held.reshape(logits.shape), index, data.class_share)


def weighted(values: Tensor, labels: Labels, weight: Tensor | None) -> Tensor:
    """One value per entry, times the weight of its label."""
    return values if weight is None else values * labels.weights(weight)


def split(x: Tensor, labels: Labels, fill: float = -math.inf) -> tuple[Tensor, Tensor]:
    """Split logits ``(num_rows, n)`` into the absent labels and the entries.

    Returns:
        ``x`` with ``fill`` for every label that is present or unknown, and the entries' logits, 0 for unknown ones.
    """
    if labels.is_dense:
        hidden = labels.values != 0
        return x.masked_fill(hidden, fill), without_unknown_entries(x, labels)
    rest, own = _Split.run(x, labels.places, labels.listed, fill)
    return rest, without_unknown_entries(own, labels)


def own_logits(x: Tensor, labels: Labels) -> Tensor:
    """The entries' logits in ``(num_rows, n)``, 0 for unknown ones."""
    return without_unknown_entries(x if labels.is_dense else x.reshape(-1).gather(0, labels.places), labels)


def without_unknown(x: Tensor, labels: Labels) -> Tensor:
    """The logits ``(num_rows, n)`` with -inf for unknown labels."""
    unknown = labels.unknown
    if unknown is None:
        return x
    return x.masked_fill(unknown, -math.inf) if labels.is_dense else hide(x, labels.places, unknown)


def hide(x: Tensor, places: Tensor, hidden: Tensor | None) -> Tensor:
    """``x`` ``(rows, n)`` with -inf at those ``places`` ``(m,)`` of its flattened rows that are ``hidden``, or all."""
    return _Split.run(x, places, hidden, -math.inf)[0]


def add_at(x: Tensor, labels: Labels, terms: Tensor) -> Tensor:
    """``x`` ``(num_rows, n)`` plus one term per entry."""
    return x + terms if labels.is_dense else x.reshape(-1).scatter_add(0, labels.places, terms).view(x.shape)


def bounded(x: Tensor) -> Tensor:
    """``x`` with infinite values clipped to a finite range; the gradient passes unchanged."""
    bound = bound_of(x.dtype)
    if x.numel():
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
        more: further places of the flattened rows that are no part of the rest, and which of them are not, or None.
    """
    if labels.is_dense:
        rest, own = split(x, labels)
        if more is not None:
            rest = hide(rest, more[0], more[1])
        _, *outputs = _SoftMaxima.run(rest, None, None, axes, temperature)
    else:
        places, hidden, count = labels.places, labels.listed, len(labels.values)
        if more is not None:
            every = (torch.ones_like(part, dtype=torch.bool) for part in (places, more[0]))
            if hidden is not None or more[1] is not None:
                parts = zip((hidden, more[1]), every, strict=True)
                hidden = torch.cat([ones if part is None else part for part, ones in parts])
            places = torch.cat([places, more[0]])
        own, *outputs = _SoftMaxima.run(x, places, hidden, axes, temperature)
        own = without_unknown_entries(own[:count], labels)
    return own, *zip(outputs[: len(axes)], outputs[len(axes) : 2 * len(axes)], strict=True)


def once(x: Tensor) -> Tensor:
    """``x``, whose gradient cannot be differentiated again."""
    return _Once.apply(x)


def without_unknown_entries(own: Tensor, labels: Labels) -> Tensor:
    """One value per entry, 0 for unknown ones."""
    unknown = labels.unknown
    return own if unknown is None else own.masked_fill(unknown, 0)


def hidden_and_own(x: Tensor, places: Tensor, hidden: Tensor | None, fill: float = -math.inf) -> tuple[Tensor, Tensor]:
    """``x`` ``(..., rows, n)`` with ``fill`` at the ``hidden`` ones (None: all) of the ``places`` ``(..., m)`` of its
    flattened rows, and its values there; for use inside a `RowFunction`.
    """
    flat = x.reshape(*x.shape[:-2], -1)
    own = flat.gather(-1, places)
    rest = flat.scatter(-1, places, fill if hidden is None else torch.where(hidden, fill, own))
    return rest.view(x.shape), own


class _Split(RowFunction):
    """``x, places, hidden, fill -> rest, own``, for x ``(..., rows, n)`` and places ``(..., m)`` of its flattened rows.

    Linear in x, and its adjoint is `_Join`. Plain indexing would do, but would make tensors of the size of x for each
    of the two gradients, and count a place that padding repeats several times.
    """

    @staticmethod
    def forward(x: Tensor, places: Tensor, hidden: Tensor | None, fill: float) -> tuple[Tensor, Tensor]:
        return hidden_and_own(x, places, hidden, fill)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[1:3])
        ctx.save_for_forward(*inputs[1:3])

    @staticmethod
    def backward(ctx: Any, to_rest: Tensor, to_own: Tensor) -> tuple[Tensor, None, None, None]:
        return _Join.run(to_rest, to_own, *ctx.saved_tensors), None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        return _Split.run(x_tangent, *ctx.saved_tensors, 0.0)


class _Join(RowFunction):
    """``rest, own, places, hidden -> x``: the adjoint of `_Split` with a fill of 0."""

    @staticmethod
    def forward(rest: Tensor, own: Tensor, places: Tensor, hidden: Tensor | None) -> Tensor:
        flat = rest.reshape(*rest.shape[:-2], -1)
        if hidden is None:
            return flat.scatter(-1, places, own).view(rest.shape)
        flat = flat.scatter(-1, places, torch.where(hidden, 0, flat.gather(-1, places)))
        return flat.scatter_add_(-1, places, own).view(rest.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:4])
        ctx.save_for_forward(*inputs[2:4])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return *_Split.run(gradient, *ctx.saved_tensors, 0.0), None, None

    @staticmethod
    def tangent(ctx: Any, rest: Tensor, own: Tensor, *_: None) -> Tensor:
        return _Join.run(rest, own, *ctx.saved_tensors)


class _SoftMaxima(RowFunction):
    """``x, places, hidden, axes, T -> own, maxima, ..., parts, ..., softmaxes, ...``, one of each per axis.

    x is ``(..., rows, n)``; the entries at ``places`` ``(..., m)`` of its flattened rows that are ``hidden`` (all if
    None) are left out.
    """

    @staticmethod
    def forward(
        x: Tensor, places: Tensor | None, hidden: Tensor | None, axes: tuple[int, ...], temperature: float
    ) -> tuple[Tensor, ...]:
        own = x.new_empty(*x.shape[:-2], 0)
        if places is not None:
            x, own = hidden_and_own(x, places, hidden)
        tops, softs = zip(*(_top_and_softmax(x, axis, temperature) for axis in axes), strict=True)
        tiny = torch.finfo(x.dtype).tiny
        peaks = (
            soft.amax(axis) if soft.shape[axis] else soft.sum(axis) + 1 for axis, soft in zip(axes, softs, strict=True)
        )
        return own, *tops, *(-temperature * peak.clamp(min=tiny).log() for peak in peaks), *softs

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
        x, places, hidden, *softs = ctx.saved_tensors
        again = torch.is_grad_enabled()
        if again:
            softs = _softmaxes(x, places, hidden, ctx.axes, ctx.temperature)
        total = None
        for gradient, soft, axis in zip(upstream[len(ctx.axes) :], softs, ctx.axes, strict=False):
            if gradient is not None:
                gradient = gradient.unsqueeze(axis)
                if total is None:
                    total = gradient * soft
                else:
                    total = total.addcmul(gradient, soft) if again else total.addcmul_(gradient, soft)
        if places is not None and to_own is not None:
            flat = (torch.zeros_like(x) if total is None else total).flatten(-2)
            flat = flat.scatter_add(-1, places, to_own) if again else flat.scatter_add_(-1, places, to_own)
            total = flat.view(x.shape)
        return total, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        x, places, hidden = ctx.saved_tensors
        softs = _softmaxes(x, places, hidden, ctx.axes, ctx.temperature)
        own = x.new_zeros(*x.shape[:-2], 0) if places is None else x_tangent.flatten(-2).gather(-1, places)
        nothing = [None] * len(ctx.axes)
        moved = [(soft * x_tangent).sum(axis) for axis, soft in zip(ctx.axes, softs, strict=True)]
        return own, *nothing, *moved, *nothing


def _peak(soft: Tensor, axis: int) -> Tensor:
    """The largest of a softmax, one over the sum of exponentials."""
    return soft.amax(axis).clamp(min=torch.finfo(soft.dtype).tiny) if soft.shape[axis] else soft.sum(axis) + 1


def _softmaxes(
    x: Tensor, places: Tensor | None, hidden: Tensor | None, axes: tuple[int, ...], temperature: float
) -> list[Tensor]:
    """The softmaxes, in operations that differentiate."""
    rest = x if places is None else _Split.run(x, places, hidden, -math.inf)[0]
    return [_top_and_softmax(rest, axis, temperature)[1] for axis in axes]


def _top_and_softmax(x: Tensor, axis: int, temperature: float) -> tuple[Tensor, Tensor]:
    """The maximum, and the softmax with 0 where there is nothing but -inf."""
    lowest = torch.finfo(x.dtype).min / 4
    soft = (x if temperature == 1 else x / temperature).softmax(axis)
    if not x.shape[axis]:
        return torch.full_like(x.detach().sum(axis), lowest), soft
    top = x.detach().amax(axis)
    if not holds((top > -math.inf).all()):
        soft = torch.where((top == -math.inf).unsqueeze(axis), 0, soft)
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


class _Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor]:
        return (gradient,)

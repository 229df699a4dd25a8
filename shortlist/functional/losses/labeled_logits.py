"""Logits with their labels, as every loss reads them, wherever the labels of a row are.

A loss needs two things: the logits of the few labeled entries, and a few sums over the rest of each row. Both come from
here, whether the logits are held in one tensor, recomputed in blocks (`LinearLogits`) or sharded over processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.checks import check_logits
from shortlist.functional.losses.block_reductions import SoftMaxima, TruncatedSoftMaximum
from shortlist.functional.losses.reduction import Reduction, check_weight, reduce_rows
from shortlist.functional.losses.soft_maximum import bounded, soft_maxima, split, without_unknown
from shortlist.functional.order_statistics import largest
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
from shortlist.tensors import HALF, is_dtensor, solvable, wide


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
    def tensor(self) -> Tensor:
        """The logits as a tensor."""
        if not isinstance(self.logits, Tensor):
            raise RuntimeError("LinearLogits hold no tensor")
        return self.logits

    def with_logits(self, logits: Tensor) -> LabeledLogits:
        """Other logits of the same shape, with the same labels."""
        x = solvable(logits)
        labels = replace(self.labels, values=self.labels.values.to(x.dtype))
        weight = None if self.weight is None else self.weight.to(x.dtype)
        return replace(self, logits=x.reshape(self.tensor.shape), labels=labels, weight=weight)

    def classes(self) -> LabeledLogits:
        """The labels as one entry per row, its class; unknown labels get the logit -inf."""
        classes = _classes(self.labels)
        share = _class_share(classes, self.weight)
        return replace(self, logits=without_unknown(self.tensor, self.labels), labels=classes, class_share=share)

    def known(self) -> Tensor | int:
        """How many labels of all rows, over all processes, are not unknown."""
        known = self.labels.known()
        if self.processes is ONE_PROCESS:
            return known
        like = self.labels.values
        return self.processes.sum(torch.as_tensor(known, device=like.device).to(wide(like)))

    def share(self) -> Tensor:
        """How much each entry counts as a positive: its value in the target, times the weight of its label."""
        return weighted(self.labels.present, self.labels, self.weight)

    def row_sums(self, values: Tensor) -> Tensor:
        """The sum of one value per entry over each row, ``(*rows,)``."""
        return self.processes.sum(self.labels.sum_along(values)).reshape(self.row_shape)

    def positive_sums(self, terms: Tensor) -> Tensor:
        """The sum of the positives' ``terms`` over each row, each times its share; other terms may be anything."""
        share = self.share()
        return self.row_sums(torch.where(share != 0, terms, 0) * share)

    def reduce_classes(self, values: Tensor, reduction: Reduction) -> Tensor:
        """Reduce one value per row ``(num_rows,)``, each weighted by the class of the row."""
        return reduce_rows(values.reshape(self.row_shape), reduction, share=self.class_share)

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
        if -1 in axes and self.processes is not ONE_PROCESS:  # a label is whole on its process, a row is not
            at = axes.index(-1)
            top, part = pairs[at]
            whole = self.processes.max(top)
            total = self.processes.sum(((top - whole + part) / temperature).exp())
            pairs[at] = whole, temperature * total.clamp(min=torch.finfo(total.dtype).tiny).log()
        return own, pairs

    def truncated_soft_maximum(self, dropped: Tensor | int, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """The entries' logits, and the soft maximum of each row's other logits without its ``dropped`` largest.

        ``dropped`` is a number or ``(num_rows,)``, at most ``most``.
        """
        if isinstance(self.logits, LinearLogits):
            column = (
                torch.as_tensor(dropped, device=self.labels.values.device).expand(self.labels.num_rows).unsqueeze(-1)
            )
            own, part, top = self.reduce(TruncatedSoftMaximum(column, most))
            return own, top, part
        x, labels = self.logits, self.labels
        if not (most and x.numel()):
            own, (top, part) = soft_maxima(x, labels)
            return own, top, part
        own, (top, part) = soft_maxima(x, labels, more=_leading(x, labels, dropped, most))
        return own, top, part


@torch.no_grad()
def _leading(x: Tensor, labels: Labels, dropped: Tensor | int, most: int) -> tuple[Tensor, Tensor | None]:
    """Places in the flattened rows of the ``most`` largest negatives, and which of them are to be left out."""
    rest = split(x, labels)[0]
    leading, hidden = largest(rest, most), None
    if isinstance(dropped, Tensor):
        values, order = rest.gather(-1, leading).sort(-1, descending=True)
        leading = leading.gather(-1, order)
        # What is at -inf may be one of the labels, and adds nothing anyway.
        hidden = (torch.arange(most, device=x.device) < dropped.unsqueeze(-1)) | (values == -math.inf)
        hidden = hidden.reshape(-1)
    return (leading + x.shape[-1] * torch.arange(len(x), device=x.device).unsqueeze(-1)).reshape(-1), hidden


def read_labeled(
    logits: Tensor | LinearLogits,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    one_class: bool = False,
    sharded: bool = True,
) -> LabeledLogits:
    """Check and read the arguments of a loss that takes plain logits, `LinearLogits` and, if ``sharded``, DTensors."""
    if isinstance(logits, LinearLogits):
        return _read_linear(logits, target, weight, one_class)
    if sharded and is_dtensor(logits):
        return _read_sharded(logits, target, weight)
    return read_plain(logits, target, weight, one_class=one_class)


def read_plain(
    logits: Tensor, target: Tensor, weight: Tensor | None = None, *, one_class: bool = False
) -> LabeledLogits:
    """Check and read the arguments of a loss that takes a plain tensor only.

    With ``one_class``, the labels have one entry per row, its class, and unknown labels have the logit -inf. Class
    indices always fit. Index lists must have room for one label, and -1 leaves the row out. A multi-hot must hold one
    positive per row; a row without one is left out. Two positives in a row raise where reading a value is free, and
    make the row NaN elsewhere.
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


def weighted(values: Tensor, labels: Labels, weight: Tensor | None) -> Tensor:
    """One value per entry, times the weight of its label."""
    return values if weight is None else values * labels.weights(weight)


def once(x: Tensor) -> Tensor:
    """``x``, whose gradient cannot be differentiated again."""
    return _Once.apply(x)


class _Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor]:
        return (gradient,)

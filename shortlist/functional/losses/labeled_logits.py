"""Logits with their labels, as every loss reads them, wherever the labels of a row are.

A loss needs two things: the logits of the few labeled entries, and a few sums over the rest of each row. It gets both
alike, whether the logits are one tensor, recomputed in blocks (`LinearLogits`) or sharded over processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.functional.autograd import RowFunction
from shortlist.kernels.chooser import use_triton
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
from shortlist.labels import Labels, TargetForm, read_labels, target_form
from shortlist.tensors import HALF, check_logits, holds, is_dtensor, on_accelerator, solvable, wide

Reduction = Literal["mean", "sum", "none"]
"""``"mean"`` over what counts, ``"sum"``, or ``"none"``."""


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
        logits = without_unknown(self.tensor, self.labels)
        if classes.listed is not None and not holds(classes.listed.all()):
            # A row without a class counts for nothing, but infinite logits would make its zero gradient NaN.
            logits = torch.where(classes.listed.unsqueeze(-1), logits, 0)
        return replace(self, logits=logits, labels=classes, class_share=share)

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


class RawRows(NamedTuple):
    """Logits and target as they were given, in rows, for the Triton kernels, which read both themselves."""

    logits: Tensor  # (num_rows, n), in float32 or half precision
    target: Tensor  # (num_rows,) or (num_rows, width) int64, or a multi-hot (num_rows, n)
    weight: Tensor | None  # (n,) in float32
    row_shape: torch.Size


_MOST_SLOTS = 64
"""Kernels compare every label with all that a list of its row has room for."""


def read_raw(
    logits: Tensor | LinearLogits, target: Tensor, weight: Tensor | None, *, scales: Sequence[float] = (1.0,)
) -> RawRows | None:
    """The arguments of a loss with temperatures ``scales`` for a Triton kernel; None where none serves them."""
    if isinstance(logits, LinearLogits) or not isinstance(target, Tensor) or target.layout != torch.strided:
        return None
    others = [target] if weight is None else [target, weight]
    # Kernels differentiate in the logits alone.
    if not all(use_triton(scale, logits, *others) for scale in scales) or any(part.requires_grad for part in others):
        return None
    check_logits(logits)
    n, row_shape = logits.shape[-1], logits.shape[:-1]
    form = target_form(target, n, row_dims=len(row_shape))
    if target.shape[: len(row_shape)] != row_shape:
        return None
    if form is TargetForm.INDEX_LISTS and not 0 < target.shape[-1] <= _MOST_SLOTS:
        return None
    rows = math.prod(row_shape)
    shape = (rows,) if form is TargetForm.CLASS_INDICES else (rows, target.shape[-1])
    weight = None if weight is None else check_weight(weight, logits)
    weight = None if weight is None else weight.float()
    return RawRows(logits.reshape(rows, n), target.reshape(shape), weight, row_shape)


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
    # A list that is not read has its padding; a dense target has to be read.
    if not on_accelerator(like) or labels.is_dense or processes is not ONE_PROCESS:
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


def split(x: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
    """Split logits ``(num_rows, n)`` into the absent labels and the entries.

    Returns:
        ``x`` with -inf for every label that is present or unknown, and the entries' logits, 0 for unknown ones.
    """
    if labels.is_dense:
        return without_entries(x, labels), own_logits(x, labels)
    rest, own = _Split.run(x, labels.indices, labels.listed, -math.inf)
    return rest, without_unknown_entries(own, labels)


def without_entries(x: Tensor, labels: Labels) -> Tensor:
    """The logits ``(num_rows, n)`` with -inf for every label that is present or unknown."""
    return x.masked_fill(labels.values != 0, -math.inf) if labels.is_dense else hide(x, labels.indices, labels.listed)


def own_logits(x: Tensor, labels: Labels) -> Tensor:
    """The entries' logits in ``(num_rows, n)``, 0 for unknown ones."""
    return without_unknown_entries(x if labels.is_dense else x.reshape(-1).gather(0, labels.indices), labels)


def without_unknown(x: Tensor, labels: Labels) -> Tensor:
    """The logits ``(num_rows, n)`` with -inf for unknown labels."""
    unknown = labels.unknown
    if unknown is None:
        return x
    return x.masked_fill(unknown, -math.inf) if labels.is_dense else hide(x, labels.indices, unknown)


def hide(x: Tensor, indices: Tensor, hidden: Tensor | None) -> Tensor:
    """``x`` ``(rows, n)`` with -inf at those ``indices`` ``(m,)`` of its flattened rows that are ``hidden``, or all."""
    return _Split.run(x, indices, hidden, -math.inf)[0]


def add_at(x: Tensor, labels: Labels, terms: Tensor) -> Tensor:
    """``x`` ``(num_rows, n)`` plus one term per entry."""
    return x + terms if labels.is_dense else x.reshape(-1).scatter_add(0, labels.indices, terms).view(x.shape)


def without_unknown_entries(own: Tensor, labels: Labels) -> Tensor:
    """One value per entry, 0 for unknown ones."""
    unknown = labels.unknown
    return own if unknown is None else own.masked_fill(unknown, 0)


def hidden_and_own(x: Tensor, indices: Tensor, hidden: Tensor | None, fill: float = -math.inf) -> tuple[Tensor, Tensor]:
    """``x`` ``(..., rows, n)`` with ``fill`` at the ``hidden`` ones (None: all) of the ``indices`` ``(..., m)`` of its
    flattened rows, and its values there; for use inside a `RowFunction`.
    """
    flat = x.reshape(*x.shape[:-2], -1)
    own = flat.gather(-1, indices)
    rest = flat.scatter(-1, indices, fill if hidden is None else torch.where(hidden, fill, own))
    return rest.view(x.shape), own


class _Split(RowFunction):
    """``x, indices, hidden, fill -> rest, own``, as `hidden_and_own`; linear in x but for the fill.

    Plain indexing has the same values, but would give a place that padding repeats several gradients.
    """

    @staticmethod
    def forward(x: Tensor, indices: Tensor, hidden: Tensor | None, fill: float) -> tuple[Tensor, Tensor]:
        return hidden_and_own(x, indices, hidden, fill)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.shape = inputs[0].shape
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[1:3])
        ctx.save_for_forward(*inputs[1:3])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, to_own: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        indices, hidden = ctx.saved_tensors
        to_x = None if gradient is None else _Split.run(gradient, indices, hidden, 0.0)[0]
        if to_own is not None:
            flat = to_own.new_zeros(ctx.shape) if to_x is None else to_x
            flat = flat.flatten(-2)
            again = torch.is_grad_enabled()
            flat = flat.scatter_add(-1, indices, to_own) if again else flat.scatter_add_(-1, indices, to_own)
            to_x = flat.view(ctx.shape)
        return to_x, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        return _Split.run(x_tangent, *ctx.saved_tensors, 0.0)


def check_reduction(reduction: str) -> None:
    """Raise for an unknown reduction."""
    if reduction not in get_args(Reduction):
        raise ValueError(f'`reduction` must be "mean", "sum" or "none"; got {reduction!r}.')


def check_weight(weight: Tensor | None, logits: Tensor) -> Tensor | None:
    """``weight`` in the dtype of ``logits``, checked to have one value per label."""
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"`weight` must be a floating tensor with one value per label; got {kind}.")
    if weight.shape != logits.shape[-1:]:
        raise ValueError(
            f"`weight` must have one value per label, shape {tuple(logits.shape[-1:])}; got {tuple(weight.shape)}."
        )
    return weight.to(logits.dtype)


def reduce_rows(values: Tensor, reduction: Reduction, *, share: Tensor | None = None) -> Tensor:
    """Reduce ``values``, each counting by its ``share``.

    With a share, ``"mean"`` is the weighted mean, as in :func:`torch.nn.functional.cross_entropy`; values with a share
    of 0 are left out, NaN included. The mean of nothing is a 0 that still backpropagates.
    """
    check_reduction(reduction)
    if share is not None:
        values = values.masked_fill(share.detach() <= 0, 0) * share
    if reduction == "none":
        return values
    total = values.sum()
    if reduction == "sum":
        return total
    if share is None:
        return total / max(values.numel(), 1)
    whole = share.sum()
    return total / whole.masked_fill(whole.detach() <= 0, 1)

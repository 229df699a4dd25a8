"""Logits of a linear layer that are never held: for more labels than a batch of logits has room for."""

from __future__ import annotations

import math
from numbers import Integral
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from shortlist.functional.linear.blocks import LinearBlocks
from shortlist.functional.linear.reach import reach_of
from shortlist.functional.linear.top import TopKept
from shortlist.functional.order.largest import whole_k
from shortlist.functional.sharded.shards import is_sharded, local_part, replicated


class TopLabels(NamedTuple):
    """The best labels of each row, best first."""

    values: Tensor  # (*rows, k): their logits
    labels: Tensor  # (*rows, k) int64


class LinearLogits:
    """Stands for ``features @ weight.T + bias`` without holding it.

    ``lml_nll``, ``bce``, ``two_way``, ``truncated_topk_entropy`` and ``multilabel_truncated_topk_entropy`` take it in
    place of logits, and so do their modules. They compute the logits a block of labels at a time, keep a few numbers
    per row, and compute each block again for the gradient: the values are the same, the memory that of one block, and
    the time that of one more product (for ``lml_nll``, of a few). The result can be differentiated once. Half precision
    and autocast mean products in that precision, as for a layer; all else is computed in float32.

    Args:
        features: ``(*rows, d)``, floating.
        weight: ``(n, d)``, in the same dtype unless autocast casts both. A ``DTensor`` may be sharded along its labels,
            as in :class:`shortlist.nn.ColumnParallelHead`: then each process computes the blocks of its own labels,
            features and labels are the same on all of them, and the loss is a replicated ``DTensor``.
        bias: ``(n,)``, sharded as the weight is; ``-inf`` marks an absent label.
        label_block: how many labels are computed at a time; by default about a million logits, and at least 64
            labels. Results do not depend on it but for rounding.

    Example:
        >>> features, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
        >>> logits = LinearLogits(features, weight)
        >>> logits.shape, logits.dense()
        (torch.Size([1, 3]), tensor([[1., 2., 0.]]))
        >>> bce(logits, torch.tensor([1]))
        tensor(0.7111)
        >>> logits.topk(2).labels
        tensor([[1, 0]])
    """

    refusal: ClassVar[str] = (
        ", which only `lml_nll`, `bce`, `two_way`, `truncated_topk_entropy` and `multilabel_truncated_topk_entropy` "
        "take: its `dense()` is a tensor"
    )
    """What the functions that need a tensor say of it."""

    def __init__(
        self, features: Tensor, weight: Tensor, bias: Tensor | None = None, *, label_block: int | None = None
    ) -> None:
        features = replicated(features, "features")
        _check(features, weight, bias)
        if label_block is not None:
            if not isinstance(label_block, Integral) or isinstance(label_block, bool):
                raise TypeError(f"`label_block` must be a whole number; got {type(label_block).__name__}.")
            if label_block < 1:
                raise ValueError(f"`label_block` must be at least 1; got {label_block}.")
        kind = features.device.type
        cast = torch.is_autocast_enabled(kind) and features.dtype != torch.float64
        if not cast and not features.dtype == weight.dtype == (weight if bias is None else bias).dtype:
            given = ", ".join(str(part.dtype) for part in (features, weight, bias) if part is not None)
            raise TypeError(f"`features`, `weight` and `bias` must have one dtype; got {given}.")
        self.features, self.weight, self.bias, self.label_block = features, weight, bias, label_block
        self.reach = reach_of(weight)
        self.dtype = torch.get_autocast_dtype(kind) if cast else features.dtype

    @property
    def shape(self) -> torch.Size:
        """``(*rows, n)``."""
        return torch.Size((*self.features.shape[:-1], self.weight.shape[0]))

    @property
    def ndim(self) -> int:
        """The number of dimensions, that of the labels included."""
        return self.features.ndim

    @property
    def num_labels(self) -> int:
        """n."""
        return self.weight.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.features.device

    def dense(self) -> Tensor:
        """The logits ``(*rows, n)`` as a tensor, differentiable like any other."""
        features, weight, bias = (None if part is None else part.to(self.dtype) for part in self.own_layer())
        with torch.autocast(self.device.type, enabled=False):
            own = linear(features, weight, bias)  # pyright: ignore[reportArgumentType]
        return self.reach.own_result(own.reshape(*self.shape[:-1], own.shape[-1]))

    def topk(self, k: int) -> TopLabels:
        """The ``k`` best labels of each row, equal logits by ascending label; without a gradient.

        Args:
            k: a whole number in [0, n].

        Returns:
            ``values`` and ``labels``, each ``(*rows, k)``.
        """
        k = whole_k(k, self.num_labels, lowest=0)
        with torch.no_grad():
            blocks = LinearBlocks(*self.own_layer(), self.dtype, self.label_block)
            best = TopKept.none(blocks.num_rows, k, blocks.own, stable=True)
            for start, x in blocks.each() if k else ():
                best.add(x, self.reach.first + start)
            best.join(self.reach)
        shape = (*self.shape[:-1], k)
        return TopLabels(best.values.to(self.dtype).reshape(shape), best.labels.reshape(shape))

    def own_layer(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The features with one row dimension, and weight and bias of the own labels: plain tensors."""
        features = self.features.reshape(math.prod(self.features.shape[:-1]), self.features.shape[-1])
        bias = self.bias
        if is_sharded(self.weight):
            if bias is not None:
                bias = local_part(bias) if is_sharded(bias) else self.reach.own_values(bias)
            return self.reach.shared(features), local_part(self.weight), bias
        return features, self.weight, bias

    def stand_in(self) -> Tensor:
        """A tensor of this shape, in the dtype that is solved in, that holds one number: for checks of arguments."""
        dtype = torch.promote_types(self.dtype, torch.float32)
        return self.features.detach().new_zeros((), dtype=dtype).expand(self.shape)

    def __repr__(self) -> str:
        block = "" if self.label_block is None else f", label_block={self.label_block}"
        return f"LinearLogits(shape={tuple(self.shape)}, dtype={self.dtype}{block})"


def _check(features: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    for name, part in (("features", features), ("weight", weight), ("bias", bias)):
        if name == "bias" and part is None:
            continue
        if not isinstance(part, Tensor) or not part.is_floating_point():
            kind = part.dtype if isinstance(part, Tensor) else type(part).__name__
            raise TypeError(f"`{name}` must be a floating tensor; got {kind}.")
    if weight.ndim != 2:
        raise ValueError(f"`weight` must have 2 dimensions, labels and features; got shape {tuple(weight.shape)}.")
    if features.ndim == 0 or features.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"`features` must have last size {weight.shape[1]}, as `weight` has; got shape {tuple(features.shape)}."
        )
    if is_sharded(bias) and getattr(bias, "placements", None) != getattr(weight, "placements", None):
        raise ValueError("`bias` must be sharded as `weight` is.")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"`bias` must have one value per label, shape ({len(weight)},); got {tuple(bias.shape)}.")

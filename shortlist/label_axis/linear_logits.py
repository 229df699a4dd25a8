"""Logits of a linear layer that are never materialized, for when a batch of logits does not fit into memory."""

from __future__ import annotations

import math
from numbers import Integral
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.amp import is_autocast_available
from torch.nn.functional import linear

from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.processes import processes_of, replicated, to_local
from shortlist.label_axis.running_topk import RunningTopK
from shortlist.tensors import is_dtensor, no_autocast, whole_k


class TopLabels(NamedTuple):
    """The best labels of each row, best first."""

    values: Tensor  # (*rows, k): their logits
    labels: Tensor  # (*rows, k) int64


class LinearLogits:
    """Represents ``features @ weight.T + bias`` without materializing it.

    Several losses and their modules accept it in place of logits (``shortlist losses`` lists them). They compute the
    logits one block of labels at a time, keep a few numbers per row, and recompute each block for the gradient. The
    values are the same, memory is that of one block, and the extra time is one more matrix product (a few for
    ``lml_nll``). The result can be differentiated once. With half precision or autocast, matrix products use that
    precision, as in a layer; everything else uses float32.

    Args:
        features: ``(*rows, d)``, floating.
        weight: ``(n, d)``, in the same dtype unless autocast casts both. A ``DTensor`` may be sharded along the labels,
            as in :class:`shortlist.nn.ColumnParallelHead`: then each process computes the blocks of its own labels,
            features and targets are the same on all of them, and the loss is a replicated ``DTensor``.
        bias: ``(n,)``, sharded like the weight; ``-inf`` marks an absent label.
        label_block: how many labels to compute at a time; by default as many as give about a million logits, but at
            least 64. Results depend on it only through rounding.

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
        ", which this function does not accept: call its `dense()` (`shortlist losses` lists losses that accept one)"
    )
    """Hint for the error message of functions that need a tensor."""

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
        cast = is_autocast_available(kind) and torch.is_autocast_enabled(kind) and features.dtype != torch.float64
        if not cast and not features.dtype == weight.dtype == (weight if bias is None else bias).dtype:
            given = ", ".join(str(part.dtype) for part in (features, weight, bias) if part is not None)
            raise TypeError(f"`features`, `weight` and `bias` must have one dtype; got {given}.")
        self.features, self.weight, self.bias, self.label_block = features, weight, bias, label_block
        self.processes = processes_of(weight, 0, name="weight")
        self.dtype = torch.get_autocast_dtype(kind) if cast else features.dtype

    @property
    def shape(self) -> torch.Size:
        """``(*rows, n)``."""
        return torch.Size((*self.features.shape[:-1], self.weight.shape[0]))

    @property
    def ndim(self) -> int:
        """The number of dimensions, including the label axis."""
        return self.features.ndim

    @property
    def num_labels(self) -> int:
        """n."""
        return self.weight.shape[0]

    @property
    def device(self) -> torch.device:
        """The device of the features."""
        return self.features.device

    def dense(self) -> Tensor:
        """The logits ``(*rows, n)`` as a tensor, differentiable like any other."""
        features, weight, bias = (None if part is None else part.to(self.dtype) for part in self.local_layer())
        with no_autocast(self.device):
            local = linear(features, weight, bias)  # pyright: ignore[reportArgumentType]
        return self.processes.shard(local.reshape(*self.shape[:-1], local.shape[-1]))

    def topk(self, k: int) -> TopLabels:
        """The ``k`` best labels of each row, ties by ascending label; without a gradient.

        Args:
            k: a whole number in [0, n].

        Returns:
            ``values`` and ``labels``, each ``(*rows, k)``.
        """
        k = whole_k(k, self.num_labels, lowest=0)
        with torch.no_grad():
            blocks = LinearBlocks(*self.local_layer(), self.dtype, self.label_block)
            best = RunningTopK.empty(blocks.num_rows, k, blocks.pair_logits, stable=True)
            for start, x in blocks.blocks() if k else ():
                best.add(x, self.processes.first + start)
            best.merge_processes(self.processes)
        shape = (*self.shape[:-1], k)
        return TopLabels(best.values.to(self.dtype).reshape(shape), best.labels.reshape(shape))

    def local_layer(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features ``(B, d)``, and weight and bias of the local labels, as plain tensors."""
        features = self.features.reshape(math.prod(self.features.shape[:-1]), self.features.shape[-1])
        bias = self.bias
        if is_dtensor(self.weight):
            if bias is not None:
                bias = to_local(bias) if is_dtensor(bias) else self.processes.local_values(bias)
            return self.processes.copy(features), to_local(self.weight), bias
        return features, self.weight, bias

    def stand_in(self) -> Tensor:
        """A tensor of this shape and the compute dtype that stores one number; for argument checks."""
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
            f"`features` must have last size {weight.shape[1]} like `weight`; got shape {tuple(features.shape)}."
        )
    if is_dtensor(bias) and getattr(bias, "placements", None) != getattr(weight, "placements", None):
        raise ValueError("`bias` must be sharded like `weight`.")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"`bias` must have one value per label, shape ({len(weight)},); got {tuple(bias.shape)}.")

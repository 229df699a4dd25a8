"""How a loss over ``LinearLogits`` meets autograd: blocks of logits forth, and the same blocks again on the way back.

A loss reads two things: the logits of the labels that its target marks, and a few sums over the crowd of all labels.
From these on it is plain autograd. A `Crowd` is the second part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.functional.linear.blocks import LinearBlocks
from shortlist.functional.linear.logits import LinearLogits
from shortlist.functional.linear.marks import MarkedLabels
from shortlist.functional.linear.reach import Reach
from shortlist.functional.once import once
from shortlist.functional.reduction import check_weight
from shortlist.functional.sharded.shards import replicated

BlockGradient = Callable[[Tensor, int], Tensor]
"""From the logits of a block, which it may overwrite, and its first label to the gradient in them."""


class Crowd(Protocol):
    """Sums over all labels of each row, or over all rows of each label."""

    bounded: ClassVar[bool]
    """Whether infinite logits are brought to a finite range."""

    def sums(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The sums that have a gradient, and other numbers that the loss needs; what ``gradient`` needs is kept."""
        ...

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        """The gradient in the logits, given that in the sums."""
        ...


def read_blocks(logits: LinearLogits, marks: MarkedLabels, hidden: MarkedLabels, crowd: Crowd) -> tuple[Tensor, ...]:
    """The logits of the marked labels ``(m,)``, and the numbers of the crowd, to which no ``hidden`` label belongs.

    Marks are of the own labels of this process; what the crowd has for rows is the same on all processes.
    """
    how = _How(logits.dtype, logits.label_block, logits.reach, marks, hidden, crowd)
    return _Blocks.apply(*logits.own_layer(), how)


def own_weight(weight: Tensor | None, like: Tensor, reach: Reach) -> Tensor | None:
    """The weights of the own labels, of one for each label of ``like``."""
    if isinstance(weight, Tensor):
        weight = replicated(weight, "weight")
    weight = check_weight(weight, like)
    return None if weight is None else reach.own_values(weight)


class _How(NamedTuple):
    """All but the layer."""

    dtype: torch.dtype
    label_block: int | None
    reach: Reach
    marks: MarkedLabels
    hidden: MarkedLabels
    crowd: Crowd

    def blocks(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> LinearBlocks:
        blocks = LinearBlocks(features, weight, bias, self.dtype, self.label_block, self.reach)
        blocks.mark(self.marks, self.hidden, bounded=self.crowd.bounded)
        return blocks


class _Blocks(Function):
    """``features, weight, bias, how -> own, sums, ..., other numbers, ...``."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, how: _How) -> tuple[Tensor, ...]:
        with torch.autocast(features.device.type, enabled=False):
            blocks = how.blocks(features, weight, bias)
            sums, others = how.crowd.sums(blocks)
        ctx.mark_non_differentiable(*others)
        ctx.save_for_backward(features, weight, bias)
        ctx.how, ctx.count = how, len(sums)
        return blocks.own, *sums, *others

    @staticmethod
    @once
    def backward(ctx: Any, own: Tensor, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, bias = ctx.saved_tensors
        how: _How = ctx.how
        with torch.autocast(features.device.type, enabled=False):
            blocks = how.blocks(features, weight, bias)
            grads = _Gradients(features, weight, bias, ctx.needs_input_grad)
            slope = how.crowd.gradient(*upstream[: ctx.count])
            for start, x in blocks.each():
                g = slope(x, start)
                at, places = how.marks.places(start, x.shape[1])
                g.view(-1).index_add_(0, places, own[at])
                grads.add(g.to(blocks.features.dtype), start, blocks)
        return grads.features, grads.weight, grads.bias, None


class _Gradients:
    """The gradients in the three tensors, of those that want one."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor | None, wanted: tuple[bool, ...]) -> None:
        # Sums over many blocks are not rounded to half precision in between.
        summed = torch.promote_types(features.dtype, torch.float32)
        self._features = torch.zeros_like(features, dtype=summed) if wanted[0] else None
        self._dtype = features.dtype
        empty = torch.zeros_like if len(features) == 0 else torch.empty_like
        self.weight = empty(weight) if wanted[1] else None
        self.bias = empty(bias) if bias is not None and wanted[2] else None

    @property
    def features(self) -> Tensor | None:
        return None if self._features is None else self._features.to(self._dtype)

    def add(self, g: Tensor, start: int, blocks: LinearBlocks) -> None:
        """Take in the gradient of a block."""
        labels = slice(start, start + g.shape[1])
        if self._features is not None:
            weight = blocks.weight[labels].to(g.dtype)
            if self._features.dtype == g.dtype:
                self._features.addmm_(g, weight)
            else:
                self._features += g @ weight
        if self.weight is not None:
            if self.weight.dtype == g.dtype and self.weight.is_contiguous():
                torch.mm(g.T, blocks.features, out=self.weight[labels])
            else:
                self.weight[labels] = g.T @ blocks.features
        if self.bias is not None:
            self.bias[labels] = g.sum(0)

"""Reductions over recomputed blocks of labels, as a differentiable operator.

A loss over `LinearLogits` needs two things: the logits of a few (row, label) pairs, and a few sums over all labels. The
forward pass accumulates both over blocks without a graph; the backward pass recomputes each block and adds its gradient
to those of features, weight and bias. Everything else is plain autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.label_axis.block_pairs import BlockPairs
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.once_differentiable import once_differentiable
from shortlist.label_axis.processes import Processes
from shortlist.labels import Labels
from shortlist.tensors import no_autocast

BlockGradient = Callable[[Tensor, int], Tensor]
"""Maps a block of logits, which it may overwrite, and its first label to the gradient of these logits."""


class BlockReduction(Protocol):
    """Sums over all labels of each row, or over all rows of each label, and their gradient w.r.t. the logits."""

    bounded: ClassVar[bool]
    """Whether infinite logits are clipped to a finite range."""

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The differentiable sums and other outputs; stores whatever ``gradient`` needs."""
        ...

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        """The gradient w.r.t. the logits, given that w.r.t. the sums."""
        ...


def reduce_blocks(logits: LinearLogits, pairs: Labels, hidden: Labels, reduction: BlockReduction) -> tuple[Tensor, ...]:
    """The logits of the pairs ``(m,)`` and the outputs of the reduction, which excludes ``hidden`` pairs.

    Pairs use local label indices. Per-row outputs are the same on all processes.
    """
    plan = _Plan(logits.dtype, logits.label_block, logits.processes, pairs, hidden, reduction)
    return _ReduceBlocks.apply(*logits.local_layer(), plan)


class _Plan(NamedTuple):
    """All arguments except the tensors of the layer."""

    dtype: torch.dtype
    label_block: int | None
    processes: Processes
    pairs: Labels
    hidden: Labels
    reduction: BlockReduction

    def blocks(self, features: Tensor, weight: Tensor, bias: Tensor | None, *, collect: bool = True) -> LinearBlocks:
        return LinearBlocks(
            features,
            weight,
            bias,
            self.dtype,
            self.label_block,
            self.processes,
            pairs=self.pairs if collect else None,
            hidden=self.hidden,
            bounded=self.reduction.bounded,
        )


class _ReduceBlocks(Function):
    """``features, weight, bias, plan -> pair_logits, sums, ..., others, ...``."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan) -> tuple[Tensor, ...]:
        with no_autocast(features.device):
            blocks = plan.blocks(features, weight, bias)
            sums, others = plan.reduction.forward(blocks)
            blocks.collect_pairs()
        ctx.mark_non_differentiable(*others)
        ctx.save_for_backward(features, weight, bias)
        ctx.plan, ctx.count = plan, len(sums)
        return blocks.pair_logits, *sums, *others

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_pairs: Tensor, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, bias = ctx.saved_tensors
        plan: _Plan = ctx.plan
        with no_autocast(features.device):
            blocks = plan.blocks(features, weight, bias, collect=False)
            grads = _LayerGradient(features, weight, bias, ctx.needs_input_grad)
            slope, pairs = plan.reduction.gradient(*upstream[: ctx.count]), BlockPairs(plan.pairs)
            for start, x in blocks.blocks():
                g = slope(x, start)
                pairs.add(g, start, to_pairs)
                grads.add(g.to(blocks.features.dtype), start, blocks)
        return grads.features, grads.weight, grads.bias, None


class _LayerGradient:
    """The required gradients of features, weight and bias."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor | None, needed: tuple[bool, ...]) -> None:
        # Accumulate over blocks without rounding to half precision in between.
        summed = torch.promote_types(features.dtype, torch.float32)
        self._features = torch.zeros_like(features, dtype=summed) if needed[0] else None
        self._dtype = features.dtype
        empty = torch.zeros_like if len(features) == 0 else torch.empty_like
        self.weight = empty(weight) if needed[1] else None
        self.bias = empty(bias) if bias is not None and needed[2] else None

    @property
    def features(self) -> Tensor | None:
        return None if self._features is None else self._features.to(self._dtype)

    def add(self, g: Tensor, start: int, blocks: LinearBlocks) -> None:
        """Add the gradient of a block."""
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

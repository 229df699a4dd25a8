"""Binary cross-entropy over logits that are computed block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.functional.linear.marks import local_weight, marked_labels
from shortlist.functional.losses.binary_terms import binary_terms
from shortlist.functional.reduction import Reduction, check_reduction
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.reduction import BlockGradient, reduce_blocks

_STRAIGHT = 40.0
"""From here on ``log(1 + exp x)`` is x in float64, too."""


def linear_bce(logits: LinearLogits, target: Tensor, *, weight: Tensor | None, reduction: Reduction) -> Tensor:
    """:func:`bce` of ``LinearLogits``."""
    check_reduction(reduction)
    if reduction == "none":
        raise ValueError('`reduction` must be "mean" or "sum" for LinearLogits, which hold no entries; got "none".')
    like, processes = logits.stand_in(), logits.processes
    marks = marked_labels(like, target)
    known = like.numel() - (~marks.present).sum()
    marks, weight = processes.local_pairs(marks), local_weight(weight, like, processes)
    if weight is not None and weight.requires_grad:
        raise ValueError("`weight` must not require a gradient for LinearLogits.")
    own, negatives = reduce_blocks(logits, marks, marks, _Negatives(weight))
    # An unknown label is no term, whatever its logit.
    own = torch.where(marks.present, own, 0)
    factor = marks.present.to(own.dtype) if weight is None else marks.present * weight[marks.labels]
    present, absent = factor * marks.values, factor * (1 - marks.values)
    total = negatives.sum() + binary_terms(own[:, None], present[:, None], absent[:, None]).sum()
    total = processes.sum(total)
    return processes.replicate(total if reduction == "sum" else total / known.clamp(min=1))


@dataclass
class _Negatives:
    """The sum of ``log(1 + exp x)`` over each row, times the weights."""

    weight: Tensor | None
    bounded: ClassVar[bool] = False

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        total = torch.zeros(blocks.num_rows, dtype=torch.float64, device=blocks.features.device)
        largest = torch.finfo(blocks.dtype).max
        for start, x in blocks.blocks():
            terms = softplus(x, threshold=_STRAIGHT)
            if self.weight is None:
                total += terms.sum(1)
            else:
                total += terms.clamp_(max=largest) @ self.weight[start : start + x.shape[1]]
        return (total.clamp(max=largest).to(blocks.dtype),), ()

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        factor = upstream[0].unsqueeze(-1)

        def block(x: Tensor, start: int) -> Tensor:
            g = x.sigmoid_().mul_(factor)
            return g if self.weight is None else g.mul_(self.weight[start : start + x.shape[1]])

        return block

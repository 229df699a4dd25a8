"""Truncated entropy, of one class and of sets, over logits that are computed block by block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from shortlist.checks import whole_k
from shortlist.functional.linear.marks import local_weight, marked_labels
from shortlist.functional.observed import one_class
from shortlist.functional.reduction import Reduction, check_weight, reduce_rows
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.pairs import PairsByLabel
from shortlist.label_axis.processes import replicated
from shortlist.label_axis.reduction import BlockGradient, reduce_blocks
from shortlist.label_axis.running_topk import NO_LABEL, RunningTopK
from shortlist.tensors import log_sigmoid, may_look


def linear_truncated_entropy(
    logits: LinearLogits, target: Tensor, k: int, *, weight: Tensor | None, reduction: Reduction
) -> Tensor:
    """:func:`truncated_topk_entropy` of ``LinearLogits``."""
    like, processes = logits.stand_in(), logits.processes
    marks = marked_labels(like, target)
    shape = like.shape[:-1]
    weight = replicated(weight, "weight") if isinstance(weight, Tensor) else weight
    share = _one_each(like, replicated(target, "target"), marks, weight)
    k = whole_k(k, like.shape[-1])
    spare = torch.full((math.prod(shape), 1), k - 1, device=like.device)
    marks = processes.local_pairs(marks)
    own, rest = _against_rest(logits, marks, spare, k - 1)
    chosen = marks.present
    own_of_row = processes.sum(torch.zeros_like(rest.pivot).index_put((marks.rows[chosen],), own[chosen]))
    values = _softplus(rest.above(own_of_row)).reshape(shape)
    return processes.replicate(reduce_rows(values, reduction, share=None if share is None else share.reshape(shape)))


def linear_multilabel_truncated_entropy(
    logits: LinearLogits, target: Tensor, k: int, *, weight: Tensor | None, reduction: Reduction
) -> Tensor:
    """:func:`multilabel_truncated_topk_entropy` of ``LinearLogits``."""
    like, processes = logits.stand_in(), logits.processes
    marks = marked_labels(like, target)
    k, weight = whole_k(k, like.shape[-1]), local_weight(weight, like, processes)
    spare = (k - _positives(marks, math.prod(like.shape[:-1]))).clamp(0, k - 1).unsqueeze(-1)
    marks = processes.local_pairs(marks)
    own, rest = _against_rest(logits, marks, spare, k - 1)
    chosen = marks.present
    rows, share = marks.rows[chosen], marks.values[chosen]
    share = share if weight is None else share * weight[marks.labels[chosen]]
    terms = share * _softplus(_Rest(processes.copy(rest.part), rest.pivot).above(own[chosen], rows))
    values = processes.sum(torch.zeros_like(rest.pivot).index_add(0, rows, terms))
    return processes.replicate(reduce_rows(values.reshape(like.shape[:-1]), reduction))


class _Rest(NamedTuple):
    """The labels that a positive competes with: ``pivot + part`` is their log-sum-exp, its gradient in ``part``."""

    part: Tensor  # (B,)
    pivot: Tensor  # (B,)

    def above(self, own: Tensor, rows: Tensor | None = None) -> Tensor:
        """By how much it exceeds ``own``, the logits of positives of all rows or of ``rows``."""
        part, pivot = self if rows is None else (self.part[rows], self.pivot[rows])
        return (pivot - own) + part


def _against_rest(logits: LinearLogits, marks: PairsByLabel, spare: Tensor, most: int) -> tuple[Tensor, _Rest]:
    own, part, pivot = reduce_blocks(logits, marks, marks, _Rivals(spare, most))
    return own, _Rest(part, pivot)


@dataclass
class _Rivals:
    """Log-sum-exp over each row but its ``spare`` largest logits, ``(B, 1)``; ``most`` is the largest of these."""

    spare: Tensor
    most: int
    bounded: ClassVar[bool] = False

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        limits, first = torch.finfo(blocks.dtype), blocks.processes.first
        self.top = blocks.pair_logits.new_full((blocks.num_rows, 1), limits.min / 4)
        self.total = torch.zeros_like(self.top, dtype=torch.float64)
        kept = RunningTopK.empty(blocks.num_rows, self.most, blocks.pair_logits, stable=False)
        for start, x in blocks.blocks():
            if self.most:
                self._take(kept.add(x, first + start))
            self._take(x)
        # What this process kept for all and is not among the largest of all comes back.
        for values, labels in (kept.merge_processes(blocks.processes), self._drop(kept, first, blocks.num_labels)):
            own = (labels >= first) & (labels < first + blocks.num_labels)
            self._take(values.masked_fill(~own, -math.inf))
        top = blocks.processes.max(self.top)
        self.total = blocks.processes.sum(self.total * (self.top - top).exp_())
        self.top, self.total = top, self.total.clamp(min=limits.tiny).to(blocks.dtype)
        return (self.total.log().squeeze(-1),), (self.top.squeeze(-1),)

    def _drop(self, kept: RunningTopK, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Remember the own ones of the dropped labels, and give those that are kept but not dropped."""
        values, labels = kept.values, kept.labels
        dropped = torch.arange(labels.shape[1], device=labels.device) < self.spare
        here = dropped & (labels >= first) & (labels < first + count)
        rows, columns = here.nonzero(as_tuple=True)
        own, order = (labels[rows, columns] - first).sort()
        self.dropped = PairsByLabel(rows[order], own, torch.ones_like(own, dtype=values.dtype))
        return values, labels.masked_fill(dropped, NO_LABEL)

    def _take(self, x: Tensor) -> None:
        if x.shape[1] == 0:
            return
        top = torch.maximum(self.top, x.amax(1, keepdim=True))
        self.total.mul_((self.top - top).exp_()).add_(x.sub_(top).exp_().sum(1, keepdim=True))
        self.top = top

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        factor = upstream[0].unsqueeze(-1) / self.total

        def block(x: Tensor, start: int) -> Tensor:
            _, places = self.dropped.in_block(start, x.shape[1])
            x.view(-1).index_fill_(0, places, -math.inf)
            return x.sub_(self.top).exp_().mul_(factor)

        return block


def _one_each(like: Tensor, target: Tensor, marks: PairsByLabel, weight: Tensor | None) -> Tensor | None:
    """How much each row counts, ``(B,)``; None if all count alike."""
    if target.dtype == torch.int64:
        share = one_class(like, target, weight).share
        return None if share is None else share.reshape(-1)
    if like.shape[-1] == 0:
        raise ValueError("`logits` must have at least one label to be the true class; got 0.")
    count = _positives(marks, math.prod(like.shape[:-1]))
    if may_look(count) and bool((count > 1).any()):
        row = torch.unravel_index((count > 1).nonzero()[0, 0], like.shape[:-1])
        name = int(row[0]) if len(row) == 1 else tuple(int(i) for i in row)
        number = int(count.reshape(like.shape[:-1])[row])
        raise ValueError(f"`target` row {name}: one label must be positive for this loss; got {number}.")
    share = torch.where(count > 1, math.nan, count.to(like.dtype))
    weight = check_weight(weight, like)
    if weight is None:
        return share
    chosen = marks.present
    return share * torch.zeros_like(share).index_put((marks.rows[chosen],), weight[marks.labels[chosen]])


def _positives(marks: PairsByLabel, rows: int) -> Tensor:
    """How many different positives each row has."""
    return marks.rows.new_zeros(rows).index_add_(0, marks.rows, marks.present.long())


def _softplus(u: Tensor) -> Tensor:
    return -log_sigmoid(-u)

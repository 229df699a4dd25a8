"""The sums over recomputed blocks of labels that the losses need, for `LinearLogits`.

Each is the streaming form of a sum over the rest of a row that `labeled_logits.py` and `binary.py` have for tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from shortlist.kernels.chooser import triton_kernels, use_triton
from shortlist.label_axis.block_pairs import BlockPairs
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.reduction import BlockGradient
from shortlist.label_axis.running_topk import NO_LABEL, RunningTopK
from shortlist.labels import Labels
from shortlist.tensors import may_look, wide


@dataclass
class SoftMaxima:
    """``T log sum exp((x - top) / T)`` of each row (axis -1) and each label (-2); beside it, the maximum ``top``.

    The whole gradient of the soft maximum ``top + ...`` is that of the first part, as if ``top`` were a constant.
    """

    axes: tuple[int, ...]
    temperature: float
    bounded: ClassVar[bool] = True
    tops: list[Tensor] = field(default_factory=list)
    totals: list[Tensor] = field(default_factory=list)

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        sizes = (blocks.num_rows if axis == -1 else blocks.num_labels for axis in self.axes)
        self.tops = [blocks.pair_logits.new_full((size,), -math.inf) for size in sizes]
        self.totals = [torch.zeros_like(top, dtype=wide(top)) for top in self.tops]
        for start, x in blocks.blocks():
            for axis, top, total in zip(self.axes, self.tops, self.totals, strict=True):
                last = axis == self.axes[-1]
                if axis == -1:
                    self._add_rows(x, top, total, overwrite=last)
                else:
                    labels = slice(start, start + x.shape[1])
                    self._set_labels(x, top[labels], total[labels], overwrite=last)
        if -1 in self.axes:
            at = self.axes.index(-1)
            top = blocks.processes.max(self.tops[at])
            scale = ((self.tops[at] - _finite(top)) / self.temperature).exp_()
            self.tops[at], self.totals[at] = top, blocks.processes.sum(self.totals[at] * scale)
        self.totals = [torch.where(total == 0, 1, total).to(blocks.dtype) for total in self.totals]
        return tuple(self.temperature * total.log() for total in self.totals), tuple(self.tops)

    def _add_rows(self, x: Tensor, top: Tensor, total: Tensor, *, overwrite: bool) -> None:
        if use_triton(self.temperature, x):
            triton_kernels("linear_blocks").add_row_powers(x, top, total, self.temperature)
            return
        new = torch.maximum(top, x.amax(1))
        floor = _finite(new)
        total.mul_(((top - floor) / self.temperature).exp_())
        total.add_(self._powers(x, floor.unsqueeze(1), overwrite=overwrite).sum(1))
        top.copy_(new)

    def _set_labels(self, x: Tensor, top: Tensor, total: Tensor, *, overwrite: bool) -> None:
        if use_triton(self.temperature, x):
            triton_kernels("linear_blocks").set_label_powers(x, top, total, self.temperature)
            return
        torch.amax(x, 0, out=top)
        total.copy_(self._powers(x, _finite(top), overwrite=overwrite).sum(0))

    def _powers(self, x: Tensor, top: Tensor, *, overwrite: bool) -> Tensor:
        y = x.sub_(top) if overwrite else x - top
        return (y if self.temperature == 1 else y.div_(self.temperature)).exp_()

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        factors = [given / total for given, total in zip(upstream, self.totals, strict=True)]
        floors = [_finite(top) for top in self.tops]

        def block(x: Tensor, start: int) -> Tensor:
            labels = slice(start, start + x.shape[1])
            if use_triton(self.temperature, x):
                pairs = dict(zip(self.axes, zip(floors, factors, strict=True), strict=True))
                by_label = tuple(v[labels] for v in pairs[-2]) if -2 in pairs else None
                return triton_kernels("linear_blocks").powers_gradient_(x, pairs.get(-1), by_label, self.temperature)
            g = None
            for axis, floor, factor in zip(self.axes, floors, factors, strict=True):
                top, scale = (v.unsqueeze(1) if axis == -1 else v[labels] for v in (floor, factor))
                powers = self._powers(x, top, overwrite=axis == self.axes[-1])
                g = powers.mul_(scale) if g is None else g.addcmul_(powers, scale)
            return x if g is None else g

        return block


def _finite(top: Tensor) -> Tensor:
    return top.clamp(min=torch.finfo(top.dtype).min / 4)


@dataclass
class TruncatedSoftMaximum:
    """``log sum exp(x - top)`` over each row without its ``num_dropped`` largest logits; beside it, ``top``.

    Args:
        num_dropped: ``(B, 1)``, how many of the largest logits to leave out.
        most: the largest of these numbers.
    """

    num_dropped: Tensor
    most: int
    bounded: ClassVar[bool] = False

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        limits, first = torch.finfo(blocks.dtype), blocks.processes.first
        self.top = blocks.pair_logits.new_full((blocks.num_rows, 1), limits.min / 4)
        self.total = torch.zeros_like(self.top, dtype=wide(self.top))
        kept = RunningTopK.empty(blocks.num_rows, self.most, blocks.pair_logits, stable=False)
        for start, x in blocks.blocks():
            if self.most:
                self._add(kept.add(x, first + start))
            self._add(x)
        # Of the logits that this process kept back, those that are not among the largest of all processes count.
        for values, labels in (kept.merge_processes(blocks.processes), self._drop(kept, first, blocks.num_labels)):
            local = (labels >= first) & (labels < first + blocks.num_labels)
            self._add(values.masked_fill(~local, -math.inf))
        top = blocks.processes.max(self.top)
        self.total = blocks.processes.sum(self.total * (self.top - top).exp_())
        self.top, self.total = top, self.total.clamp(min=limits.tiny).to(blocks.dtype)
        return (self.total.log().squeeze(-1),), (self.top.squeeze(-1),)

    def _drop(self, kept: RunningTopK, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Store which local labels are left out, and return the logits that were kept back but count."""
        values, labels = kept.values, kept.labels
        dropped = torch.arange(labels.shape[1], device=labels.device) < self.num_dropped
        here = dropped & (labels >= first) & (labels < first + count)
        self.dropped = BlockPairs(_listed(here, torch.where(here, labels - first, 0), count))
        return values, labels.masked_fill(dropped, NO_LABEL)

    def _add(self, x: Tensor) -> None:
        if x.shape[1] == 0:
            return
        if use_triton(1.0, x):
            triton_kernels("linear_blocks").add_row_powers(x, self.top, self.total, 1.0)
            return
        top = torch.maximum(self.top, x.amax(1, keepdim=True))
        self.total.mul_((self.top - top).exp_()).add_(x.sub_(top).exp_().sum(1, keepdim=True))
        self.top = top

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        factor = upstream[0].unsqueeze(-1) / self.total

        def block(x: Tensor, start: int) -> Tensor:
            self.dropped.hide(x, start)
            if use_triton(1.0, x):
                return triton_kernels("linear_blocks").powers_gradient_(x, (self.top, factor), None, 1.0)
            return x.sub_(self.top).exp_().mul_(factor)

        return block


def _listed(here: Tensor, labels: Tensor, count: int) -> Labels:
    """Labels ``(B, m)`` where ``here`` holds; sorted by label where they may be read."""
    shape = torch.Size([len(here)])
    if may_look(here):
        rows, columns = here.nonzero(as_tuple=True)
        own, order = labels[rows, columns].sort()
        return Labels(shape, count, rows[order], own, torch.ones_like(own))
    rows = torch.arange(len(here), device=here.device).unsqueeze(-1).expand(here.shape).reshape(-1)
    flat = labels.reshape(-1)
    return Labels(shape, count, rows, flat, torch.ones_like(flat), listed=here.reshape(-1))


@dataclass
class SumOfTerms:
    """The sum over each row of the term of each label as a negative, times the weight of the label.

    Args:
        terms: from logits, gamma and clip to terms and their derivatives, both of the shape of the logits.
        gamma: the focusing exponent of the asymmetric loss.
        clip: the probability below which a negative costs nothing.
        weight: ``(n,)``, one weight per label, or None.
    """

    terms: Callable[[Tensor, float, float], tuple[Tensor, Tensor]]
    gamma: float
    clip: float
    weight: Tensor | None
    bounded: ClassVar[bool] = False

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        total = blocks.features.new_zeros(blocks.num_rows, dtype=wide(blocks.features))
        for start, x in blocks.blocks():
            weight = None if self.weight is None else self.weight[start : start + x.shape[1]]
            if use_triton(1.0, x):
                triton_kernels("linear_blocks").add_terms(x, total, weight, self.gamma, self.clip)
                continue
            values, _ = self.terms(x, self.gamma, self.clip)
            total += values.sum(1) if weight is None else values @ weight
        total = blocks.processes.sum(total)
        return (total.clamp(max=torch.finfo(blocks.dtype).max).to(blocks.dtype),), ()

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        factor = upstream[0].unsqueeze(-1)

        def block(x: Tensor, start: int) -> Tensor:
            weight = None if self.weight is None else self.weight[start : start + x.shape[1]]
            if use_triton(1.0, x):
                return triton_kernels("linear_blocks").terms_gradient_(x, factor, weight, self.gamma, self.clip)
            g = self.terms(x, self.gamma, self.clip)[1].mul_(factor)
            return g if weight is None else g.mul_(weight)

        return block

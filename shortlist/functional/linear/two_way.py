"""The two-way contrast over logits that are computed block by block."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from shortlist.functional.linear.marks import local_weight, marked_labels
from shortlist.functional.reduction import Reduction, reduce_rows
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.pairs import PairsByLabel
from shortlist.label_axis.processes import ONE_PROCESS, Processes
from shortlist.label_axis.reduction import BlockGradient, reduce_blocks
from shortlist.tensors import log_sigmoid


def linear_two_way(
    logits: LinearLogits,
    target: Tensor,
    *,
    axes: tuple[int, ...],
    options: tuple[float, float, float],
    weight: Tensor | None,
    reduction: Reduction,
) -> Tensor:
    """:func:`two_way` of ``LinearLogits``, along rows (axis -1), classes (-2) or both.

    The options are the temperatures of positives and negatives, and the margin.
    """
    positive_temperature, negative_temperature, margin = options
    like, processes = logits.stand_in(), logits.processes
    marks, weight = processes.local_pairs(marked_labels(like, target)), local_weight(weight, like, processes)
    shape = like.shape[:-1]
    own, *found = reduce_blocks(logits, marks, marks, _Highest(axes, negative_temperature))
    positive, own = marks.select(marks.present), own[marks.present]
    results = []
    for axis, part, top in zip(axes, found, found[len(axes) :], strict=False):
        line, over = (positive.rows, processes) if axis == -1 else (positive.labels, ONE_PROCESS)
        values, share = _contrast(own, line, part, top, positive_temperature, margin, over)
        if axis == -1:
            share = share if weight is None else share * _mean_weight(positive, weight, len(share), processes)
            results.append(
                processes.replicate(reduce_rows(values.reshape(shape), reduction, share=share.reshape(shape)))
            )
        else:
            share = share if weight is None else share * weight
            results.append(_class_wise(values, share, reduction if len(axes) == 1 else "mean", processes))
    if len(results) == 1:
        return results[0]
    return results[0] + results[1] * (math.prod(shape) if reduction == "sum" else 1)


def _contrast(
    own: Tensor, line: Tensor, high_part: Tensor, high: Tensor, temperature: float, margin: float, over: Processes
) -> tuple[Tensor, Tensor]:
    """The losses of all lines, rows or classes, and whether each counts; ``line`` is that of each positive."""
    lowest = -own
    low = over.max(torch.full_like(high, -math.inf).scatter_reduce(0, line, lowest.detach(), "amax"))
    powers = ((lowest - low[line]) / temperature).exp()
    sums = over.sum(torch.zeros_like(high).index_add(0, line, powers))
    low_part = temperature * torch.where(sums == 0, 1, sums).log()
    counted = ~(torch.minimum(low, high) == -math.inf)  # NaN counts, and stays NaN
    # The largest negative minus the smallest positive first: a shift of all logits leaves it as it is.
    value = torch.where(counted, (high + low) + (high_part + low_part), 0)
    return -log_sigmoid(-(value + margin)), counted.to(own.dtype)


def _class_wise(values: Tensor, share: Tensor, reduction: Reduction, processes: Processes) -> Tensor:
    """The reduction over all classes, of which the own ones are given."""
    own = reduce_rows(values, "none", share=share)
    if reduction == "none":
        return processes.shard(own)
    total, whole = processes.sum(torch.stack([own.sum(), share.sum()]))
    return processes.replicate(total if reduction == "sum" else total / torch.where(whole > 0, whole, 1))


@dataclass
class _Highest:
    """``T log sum exp((x - top) / T)`` of each row (axis -1) and each class (-2); beside it, the largest x, ``top``.

    The whole gradient of the soft maximum ``top + ...`` is that of the first, as if the second were constant.
    """

    axes: tuple[int, ...]
    temperature: float
    bounded: ClassVar[bool] = True
    tops: list[Tensor] = field(default_factory=list)
    totals: list[Tensor] = field(default_factory=list)

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        sizes = (blocks.num_rows if axis == -1 else blocks.num_labels for axis in self.axes)
        self.tops = [blocks.pair_logits.new_full((size,), -math.inf) for size in sizes]
        self.totals = [torch.zeros_like(top, dtype=torch.float64) for top in self.tops]
        for start, x in blocks.blocks():
            for axis, top, total in zip(self.axes, self.tops, self.totals, strict=True):
                last = axis == self.axes[-1]
                if axis == -1:
                    self._row_sums(x, top, total, overwrite=last)
                else:
                    labels = slice(start, start + x.shape[1])
                    self._class_sums(x, top[labels], total[labels], overwrite=last)
        if -1 in self.axes:
            at = self.axes.index(-1)
            top = blocks.processes.max(self.tops[at])
            scale = ((self.tops[at] - _finite(top)) / self.temperature).exp_()
            self.tops[at], self.totals[at] = top, blocks.processes.sum(self.totals[at] * scale)
        self.totals = [torch.where(total == 0, 1, total).to(blocks.dtype) for total in self.totals]
        return tuple(self.temperature * total.log() for total in self.totals), tuple(self.tops)

    def _row_sums(self, x: Tensor, top: Tensor, total: Tensor, *, overwrite: bool) -> None:
        new = torch.maximum(top, x.amax(1))
        floor = _finite(new)
        total.mul_(((top - floor) / self.temperature).exp_())
        total.add_(self._powers(x, floor.unsqueeze(1), overwrite=overwrite).sum(1))
        top.copy_(new)

    def _class_sums(self, x: Tensor, top: Tensor, total: Tensor, *, overwrite: bool) -> None:
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
            g = None
            for axis, floor, factor in zip(self.axes, floors, factors, strict=True):
                top, scale = (v.unsqueeze(1) if axis == -1 else v[labels] for v in (floor, factor))
                powers = self._powers(x, top, overwrite=axis == self.axes[-1])
                g = powers.mul_(scale) if g is None else g.addcmul_(powers, scale)
            return x if g is None else g

        return block


def _finite(top: Tensor) -> Tensor:
    return top.clamp(min=torch.finfo(top.dtype).min / 4)


def _mean_weight(positive: PairsByLabel, weight: Tensor, rows: int, processes: Processes) -> Tensor:
    """The mean weight of the positives of each row."""
    each = torch.stack([weight[positive.labels], torch.ones_like(positive.values)], -1)
    total, count = processes.sum(weight.new_zeros(rows, 2).index_add(0, positive.rows, each)).unbind(-1)
    return total / count.clamp(min=1)

"""The likelihood of LML over logits that are computed block by block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shortlist.checks import check_temperature
from shortlist.functional.linear.marks import local_weight, marked_labels
from shortlist.functional.projections.lml_parts import Dual, solve_parts
from shortlist.functional.projections.lml_root import centred
from shortlist.functional.reduction import Reduction, reduce_rows
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.processes import replicated
from shortlist.label_axis.reduction import BlockGradient, reduce_blocks
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import log_sigmoid


def linear_lml_nll(
    logits: LinearLogits,
    target: Tensor,
    k: float | Tensor,
    *,
    temperature: float,
    weight: Tensor | None,
    reduction: Reduction,
) -> Tensor:
    """:func:`lml_nll` of ``LinearLogits``."""
    like, processes = logits.stand_in(), logits.processes
    marks = processes.local_pairs(marked_labels(like, target))
    temperature, weight = check_temperature(temperature), local_weight(weight, like, processes)
    k = replicated(k, "k") if isinstance(k, Tensor) else k
    wanted = as_rows(like, k, dim=-1, mask=None).k.expand(*like.shape[:-1], 1).reshape(-1, 1)
    crowd = _Competition(wanted.detach(), like.shape[-1], temperature)
    own, delta, pivot, log_slope = reduce_blocks(logits, marks, marks.select(~marks.present), crowd)
    if wanted.requires_grad:
        # Zero, but for its gradient: the root moves by one over the slope.
        per_k = (-log_slope).clamp(max=math.log(torch.finfo(delta.dtype).max) - 1).exp() * _inner(delta.detach())
        delta = delta + (wanted - wanted.detach()) * per_k
    delta = processes.copy(delta)
    chosen = marks.present
    rows, labels = marks.rows[chosen], marks.labels[chosen]
    y = centred(own[chosen], pivot[rows, 0], delta[rows, 0], temperature)
    share = marks.values[chosen]
    terms = -log_sigmoid(y) * (share if weight is None else share * weight[labels])
    values = processes.sum(torch.zeros_like(pivot[:, 0]).index_add(0, rows, terms))
    return processes.replicate(reduce_rows(values.reshape(like.shape[:-1]), reduction))


@dataclass
class _Competition:
    """The root of each row: ``delta`` with its gradient, and beside it the pivot and the logarithm of the slope."""

    k: Tensor
    num_labels: int
    temperature: float
    bounded: ClassVar[bool] = False

    def forward(self, blocks: LinearBlocks) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        pivot, delta, log_slope = solve_parts(blocks, self.k, self.temperature)
        delta = torch.where(self.k > self.num_labels, math.nan, delta)
        self.dual = Dual(pivot, delta, log_slope)
        limits = torch.finfo(delta.dtype)
        small = _inner(delta) & (log_slope <= math.log(limits.tiny / limits.eps))
        self.saturated = small.squeeze(-1).nonzero().squeeze(-1)
        self.share_sum = self._share_sum(blocks)
        return (delta,), (pivot, log_slope)

    def _share_sum(self, blocks: LinearBlocks) -> Tensor:
        """What the shares of the saturated rows sum to, which is 1 but for the rounding of a large logarithm."""
        rows = self.saturated
        total = torch.zeros(len(rows), 1, dtype=torch.float64, device=rows.device)
        for _, x in blocks.blocks(rows) if len(rows) else ():
            total += self._shares(self._below(x, rows), rows).sum(1, keepdim=True)
        total = blocks.processes.sum(total) if len(rows) else total
        return torch.ones_like(self.dual.delta).index_put_((rows,), total.to(self.dual.delta.dtype))

    def _below(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Minus the absolute log-odds, in the place of ``x``: p (1 - p) is even in them."""
        pivot, delta = (part if rows is None else part[rows] for part in self.dual[:2])
        y = x.sub_(pivot)
        y = (y if self.temperature == 1 else y.div_(self.temperature)).add_(torch.where(_inner(delta), delta, 0))
        return y.copysign_(y.new_tensor(-1.0))

    def _shares(self, y: Tensor, rows: Tensor | None = None) -> Tensor:
        """p (1 - p) over its sum, where both may underflow."""
        log_slope = self.dual.log_slope if rows is None else self.dual.log_slope[rows]
        log_q = y - 2 * y.exp().log1p_()
        return log_q.sub_(log_slope).exp_()

    def gradient(self, *upstream: Tensor) -> BlockGradient:
        delta, log_slope = self.dual[1:]
        factor = torch.where(_inner(delta), -upstream[0] / (self.temperature * self.share_sum), 0)
        if not len(self.saturated):
            factor = factor * torch.where(_inner(delta), -log_slope, 0).exp()

        def block(x: Tensor, start: int) -> Tensor:
            y = self._below(x)
            if len(self.saturated):
                return self._shares(y).mul_(factor)
            p = y.sigmoid_()  # the smaller side, and so 1 - p has all its digits
            return torch.addcmul(p, p, p, value=-1, out=p).mul_(factor)

        return block


def _inner(delta: Tensor) -> Tensor:
    """Whether neither all labels are taken nor none."""
    return delta.abs() < torch.finfo(delta.dtype).max / 8

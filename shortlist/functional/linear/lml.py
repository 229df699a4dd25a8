"""The dual root of LML over logits that are computed block by block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shortlist.functional.projections.lml_parts import Dual, solve_parts
from shortlist.label_axis.linear_blocks import LinearBlocks
from shortlist.label_axis.reduction import BlockGradient


@dataclass
class DualRoot:
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

    def with_gradient_in(self, k: Tensor, delta: Tensor, log_slope: Tensor) -> Tensor:
        """``delta`` with its gradient in ``k``: the root moves by one over the slope."""
        if not k.requires_grad:
            return delta
        per_k = (-log_slope).clamp(max=math.log(torch.finfo(delta.dtype).max) - 1).exp() * _inner(delta.detach())
        return delta + (k - k.detach()) * per_k


def _inner(delta: Tensor) -> Tensor:
    """Whether neither all labels are taken nor none."""
    return delta.abs() < torch.finfo(delta.dtype).max / 8

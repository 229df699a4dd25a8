"""Plain versions of the published algorithms: bracketing for LML, sort-and-scan for sparse-top."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

SAMPLES, TOLERANCE, SATURATION = 10, 1e-4, 7.0


class BracketingLML(Function):
    """Algorithm 1 of Amos, Koltun, Kolter (2019): sort, then shrink a bracket by ten samples at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
        """LML of the rows of ``x``."""
        ordered = x.sort(dim=-1, descending=True).values
        low, high = -ordered[:, k - 1] - SATURATION, -ordered[:, k] + SATURATION
        grid = torch.linspace(0, 1, SAMPLES)
        rows = torch.arange(x.shape[0])
        while (high - low).max() > TOLERANCE:
            points = low[:, None] + (high - low)[:, None] * grid
            excess = torch.sigmoid(x[:, None, :] + points[:, :, None]).sum(-1) - k
            below = ((excess < 0).sum(-1) - 1).clamp(0, SAMPLES - 2)
            low, high = points[rows, below], points[rows, below + 1]
        p = torch.sigmoid(x + ((low + high) / 2)[:, None])
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """The paper's formulas, with their divisions by p and 1 - p."""
        (p,) = ctx.saved_tensors
        h = 1 / p + 1 / (1 - p)
        shift = (upstream / h).sum(-1, keepdim=True) / (1 / h).sum(-1, keepdim=True)
        return -(shift - upstream) / h, None


class SortedSparseTop(Function):
    """Sparse-top by sorting the 2n breakpoints and scanning the pieces between them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
        """Sparse-top of the rows of ``x``."""
        n = x.shape[-1]
        points, order = torch.cat([x, x - 1], dim=-1).sort(dim=-1, descending=True)
        slope = torch.where(order < n, 1.0, -1.0).cumsum(-1)[:, :-1]
        sums = (slope * -points.diff(dim=-1)).cumsum(-1)
        piece = (sums < k).sum(-1, keepdim=True).clamp(max=2 * n - 2)
        rest = sums.gather(-1, piece) - k
        threshold = points.gather(-1, piece + 1) + rest / slope.gather(-1, piece).clamp(min=1)
        p = (x - threshold).clamp(0, 1)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """Center the gradient over the labels strictly between 0 and 1."""
        (p,) = ctx.saved_tensors
        inside = ((p > 0) & (p < 1)).to(p.dtype)
        mean = (inside * upstream).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True).clamp(min=1)
        return inside * (upstream - mean), None

"""The sums that settle the LML root on a plateau: over the labels below and above p = 1/2, as logarithms.

There p and 1 - p underflow together; held beside their largest terms, the sums keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.label_axis.axis import LabelAxis


class LogSums(NamedTuple):
    """Columns ``(rows, 1)`` in float64: logarithms of sums over the labels below and above p = 1/2, and a count."""

    below: Tensor  # of p
    above: Tensor  # of 1 - p
    slope_below: Tensor  # of p (1 - p)
    slope_above: Tensor  # of p (1 - p)
    count: Tensor  # how many are above

    @property
    def log_slope(self) -> Tensor:
        """The logarithm of the sum of p (1 - p) over all labels."""
        return torch.logaddexp(self.slope_below, self.slope_above)

    def log_ratio(self, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The logarithm of what is missing over what is too much, how fast it falls as delta grows, and its size.

        It falls by 1/2 to 2 for each 1 of delta: one of the two is a sum of tails that fall or rise like exponentials.
        The size is that of the two logarithms it is the difference of.
        """
        left = torch.logaddexp(self.below, (self.count - k).clamp(min=0).log())
        right = torch.logaddexp(self.above, (k - self.count).clamp(min=0).log())
        rate = (self.slope_below - left).exp() + (self.slope_above - right).exp()
        return right - left, rate.clamp(0.25, 2), torch.maximum(left.abs(), right.abs())


def log_sums(blocks: Iterable[Tensor], rows: int, parts: LabelAxis) -> LogSums:
    """Add up over blocks of log-odds ``(rows, labels)``, which are overwritten, and over processes."""
    columns = tops = None
    for y in blocks:
        if columns is None or tops is None:
            columns = torch.zeros(rows, 5, dtype=torch.float64, device=y.device)
            tops = torch.full_like(columns[:, :2], -math.inf)
        above = y >= 0
        columns[:, 4] += above.sum(-1)
        near = y.abs_().neg_().exp()
        small, large = y - near.log1p(), 1 / (1 + near)
        for side, members in enumerate((~above, above)):
            _merge(columns, tops, side, torch.where(members, small, -math.inf), large)
    if columns is None or tops is None:
        raise ValueError("`blocks` must hold at least one block, which may have no labels.")
    largest = parts.processes.max(tops)
    columns[:, :4] *= (tops - largest.clamp(min=-1e300)).exp().repeat(1, 2)
    sums = parts.processes.sum(columns)
    below, above, slope_below, slope_above = (sums[:, :4].log() + largest.repeat(1, 2)).split(1, dim=-1)
    return LogSums(below, above, slope_below, slope_above, sums[:, 4:])


def _merge(columns: Tensor, tops: Tensor, side: int, small: Tensor, large: Tensor) -> None:
    """Add a block's terms ``exp(small)`` and ``exp(small) * large``, each held over the exponential of the top."""
    if not small.shape[-1]:
        return
    before = tops[:, side]
    top = torch.maximum(before, small.amax(-1).to(before.dtype))
    finite = top.clamp(min=torch.finfo(small.dtype).min / 4)
    terms = (small - finite.to(small.dtype).unsqueeze(-1)).exp_()
    scale = (before - finite).exp()
    columns[:, side] = columns[:, side] * scale + terms.sum(-1)
    columns[:, 2 + side] = columns[:, 2 + side] * scale + terms.mul_(large).sum(-1)
    tops[:, side] = top

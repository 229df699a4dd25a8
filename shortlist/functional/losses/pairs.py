"""The positives of each row against all its negatives, by rank: in O(n log n), whatever the number of pairs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.functional.marked import Marked
from shortlist.functional.observed import Observed
from shortlist.tensors import is_plain


class Pairs(NamedTuple):
    """Positives with their shares, and the negatives in order, in float64.

    Positives stand in rows, ``(*rows, m)``, or, if their rows are named, one after the other, ``(m,)``.
    """

    own: Tensor  # the logits of the positives
    share: Tensor  # how much each counts, 0 for padding
    keys: Tensor  # (*rows, n): minus the logits of the negatives, ascending, then inf
    sums: Tensor  # (*rows, n + 1): the sum of the 0, 1, 2, ... largest negatives
    dtype: torch.dtype
    rows: Tensor | None = None  # (m,): the row of each positive

    def hinge(self, margin: float) -> tuple[Tensor, Tensor]:
        """For each positive, how many negatives violate the margin, and by how much altogether."""
        threshold = margin - self.own
        if self.rows is None:
            rank = torch.searchsorted(self.keys, threshold.detach().contiguous())
            return rank, rank * threshold + self.sums.gather(-1, rank)
        rank = count_below(self.keys, self.rows, threshold.detach())
        return rank, rank * threshold + self.sums.reshape(-1)[self.rows * self.sums.shape[-1] + rank]

    def total(self, rank: Tensor, terms: Tensor) -> Tensor:
        """The sum of the ``terms`` of the positives, weighted by 1 + 1/2 + ... + 1/rank, ``(*rows,)``."""
        steps = torch.arange(1, self.sums.shape[-1], device=rank.device, dtype=terms.dtype)
        harmonic = pad(steps.reciprocal().cumsum(0), (1, 0))
        weighted = self.share * harmonic[rank] * terms
        if self.rows is None:
            return weighted.sum(-1).to(self.dtype)
        shape = self.keys.shape[:-1]
        summed = weighted.new_zeros(math.prod(shape)).index_add(0, self.rows, weighted)
        return summed.view(shape).to(self.dtype)


def marked_pairs(marks: Marked, rest: Tensor, weight: Tensor | None) -> Pairs:
    """The pairs of labels given one by one; ``rest`` are the logits with -inf in marked places."""
    share = marks.members if weight is None else marks.members * weight[marks.labels]
    own = torch.where(marks.members > 0, marks.own(), 0).double()
    keys, sums = _ranked(rest)
    if marks.width is None:
        return Pairs(own, share, keys, sums, rest.dtype, marks.rows)
    shape = (*rest.shape[:-1], marks.width)
    return Pairs(own.view(shape), share.view(shape), keys, sums, rest.dtype)


def observed_pairs(labels: Observed, weight: Tensor | None) -> Pairs:
    """The pairs of a multi-hot."""
    x, present, absent = labels
    keys, sums = _ranked(torch.where(absent >= 1, x, -math.inf))
    share, places = present.ceil().topk(_most(present), -1)
    own = torch.where(share > 0, x.gather(-1, places), 0).double()
    return Pairs(own, share if weight is None else share * weight[places], keys, sums, x.dtype)


def _ranked(rest: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and sums of the negatives: all that is above -inf."""
    order = _ascending(-rest.detach())
    ranked = rest.gather(-1, order)
    negative = ranked > -math.inf
    ranked = torch.where(negative, ranked, 0).double()
    return torch.where(negative, -ranked.detach(), math.inf), pad(ranked.cumsum(-1), (1, 0))


def count_below(keys: Tensor, rows: Tensor, wanted: Tensor) -> Tensor:
    """How many of the ascending keys ``(*rows, n)`` of its row lie below each of ``wanted`` ``(m,)``, by bisection.

    Example:
        >>> keys = torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 5.0]])
        >>> count_below(keys, torch.tensor([1, 0]), torch.tensor([4.0, 1.0]))
        tensor([2, 1])
    """
    n, keys = keys.shape[-1], keys.reshape(-1)
    low, high = torch.zeros_like(rows), torch.full_like(rows, n)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        below = (keys[rows * n + middle.clamp(max=n - 1)] < wanted) & (low < high)
        low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
    return low


def _most(present: Tensor) -> int:
    """How many positives a row has at most, where looking is free; else the number of labels."""
    return int((present > 0).sum(-1).max()) if is_plain(present) and present.numel() else present.shape[-1]


def _ascending(x: Tensor) -> Tensor:
    """The order of each row; numpy finds it several times faster than torch, where it may look."""
    return torch.from_numpy(np.argsort(x.numpy(), -1)) if is_plain(x) else x.argsort(-1)

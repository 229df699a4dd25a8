"""Class-conditional sets that also bound the rank of a label (RC3P)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shortlist.sets.conformal.class_conditional import ClassConditional
from shortlist.sets.conformal.conformity import LAC, ConformityScore, label_ranks, true_ranks
from shortlist.sets.conformal.thresholds import threshold_at_rank
from shortlist.sets.rule import Draw
from shortlist.sets.scores import Block, Link, Selection
from shortlist.tensors import as_written, check_number


class RankCalibrated(ClassConditional):
    r"""Class-conditional sets whose labels must also be among the best ones of the row (RC3P).

    .. math:: C(x) = \{l : s_l(x) \ge t_l \text{ and } \text{rank}_l(x) \le k_l\}

    Hard classes have low thresholds, which let them into the sets of rows that have nothing to do with them. A bound on
    the rank keeps them out. Of the N calibration rows of a class, :math:`m = \lfloor (N + 1) \alpha \rfloor` may be
    missed: the rank misses at most ``rank_share`` of m, and the threshold what is left of m.

    The miscoverage of every class is at most ``alpha``, in finite samples: the paper takes the error of the k best
    labels to be known; here the threshold is fitted with the lowest k that a further row could lead to, and labels are
    kept up to the highest.

    Classes with few examples are pooled as in `ClassConditional`.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        rank_share: how much of alpha the bound on the rank may use, in [0, 1]; 0 is `ClassConditional`.
        min_count: as in `ClassConditional`.
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import RankCalibrated
        >>> scores = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.6, 0.3, 0.1], [0.7, 0.2, 0.1]]).repeat(2, 1)
        >>> rule = RankCalibrated(0.5).fit(scores, torch.tensor([1, 1, 1, 1, 0, 0, 0, 0]), from_logits=False)
        >>> rule.ranks
        tensor([1, 2, 2])

    References:
        Shi, Ghosh, Belkhouja, Doppa, Yan, "Conformal prediction for class-wise coverage via augmented label rank
        calibration", 2024.
    """

    ranks: Tensor

    def __init__(
        self,
        alpha: float,
        *,
        rank_share: float = 0.5,
        min_count: int | None = None,
        score: ConformityScore = LAC(),
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.rank_share = check_number("rank_share", rank_share, at_least=0.0)
        if self.rank_share > 1:
            raise ValueError(f"`rank_share` must lie in [0, 1]; got {rank_share}.")
        super().__init__(alpha, min_count=min_count, score=score, link=link, min_size=min_size)

    def _clear(self) -> None:
        super()._clear()
        # The largest rank at which each label is in a set.
        self.register_buffer("ranks", torch.zeros(0, dtype=torch.int64))

    def _check_buffers(self, num_labels: int) -> None:
        super()._check_buffers(num_labels)
        if not ((self.ranks >= 1) & (self.ranks <= num_labels)).all():
            raise ValueError(f"`ranks` must lie in [1, {num_labels}]")

    def _threshold(self) -> Tensor | None:
        return None

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        classes = labels.to(block.values.device).clamp(0, block.values.shape[-1] - 1)
        return (*super()._observe(block, labels), true_ranks(block.marked(), classes))

    def _settle_groups(self, groups: Tensor, true: Tensor, classes: Tensor, *rest: Tensor) -> None:
        self.ranks = torch.full_like(groups, len(groups))
        super()._settle_groups(groups, true, classes, *rest)

    def _settle_group(self, labels: Tensor, true: Tensor, *rest: Tensor) -> None:
        (ranks,) = rest
        missable = math.floor((len(true) + 1) * as_written(self.alpha))
        by_rank = math.floor(missable * as_written(self.rank_share))
        ordered, last = ranks.sort().values, len(ranks) - by_rank
        # With the rank of a new row among them, the bound is one of these two, or between them.
        lowest = int(ordered[last - 1]) if last else 0
        self.ranks[labels] = int(ordered[last]) if by_rank else len(self.ranks)
        inside = true.masked_fill(ranks > lowest, -math.inf)
        self.thresholds[labels], self.tie_shares[labels] = threshold_at_rank(inside, len(true) + 1 - missable)

    def _missed(self, true: Tensor, classes: Tensor, *rest: Tensor) -> Tensor:
        return super()._missed(true, classes) | (rest[0] > self.ranks[classes])

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        return super()._select(block, draw) & (label_ranks(block.marked()) <= self.ranks.to(block.values.device))

    def _select_entries(self, block: Block, draw: Draw) -> Selection:
        found = super()._select_entries(block, draw)
        ranks = label_ranks(block.marked())[found.rows, found.labels].cpu()
        return found.where(ranks <= self.ranks[found.labels])

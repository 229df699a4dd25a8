"""Propensity-scored precision at k over many batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.metrics.labels import check_ks, like_k
from shortlist.functional.metrics.propensity import check_propensities, propensity_sums
from shortlist.metrics.accumulated import Accumulated


class PropensityScoredPrecisionAtK(Accumulated):
    """:func:`~shortlist.functional.propensity_scored_precision_at_k` over many batches.

    Args:
        propensities: ``(n,)`` floating, in (0, 1]; :func:`~shortlist.functional.propensities` has them from counts.
        k: a whole number from 1, or a sequence of them.
        normalized: whether to divide by the best possible.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

    Example:
        >>> from shortlist.metrics import PropensityScoredPrecisionAtK
        >>> metric = PropensityScoredPrecisionAtK(torch.tensor([0.5, 0.25, 1.0]), 1)
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        tensor(0.7500, dtype=torch.float64)
    """

    gained: Tensor
    best: Tensor
    rows: Tensor
    rows_without_positives: Tensor
    propensities: Tensor

    def __init__(
        self, propensities: Tensor, k: int | Sequence[int], *, normalized: bool = True, **torchmetrics_options: Any
    ) -> None:
        ks = check_ks(k, len(check_propensities(propensities)))
        super().__init__("propensity", propensities, ks, **torchmetrics_options)
        self.k, self._ks, self.normalized = k, ks, normalized
        self.register_buffer("propensities", propensities.detach().clone(), persistent=False)
        self.add_sum("gained", len(ks))
        self.add_sum("best", len(ks))
        self.add_sum("rows", dtype=torch.int64)
        self.add_sum("rows_without_positives", dtype=torch.int64)

    def update(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally which rows count."""
        sums = propensity_sums(scores, target, self.propensities, self._ks, mask)
        self.gained = self.gained + sums.gained
        self.best = self.best + sums.best
        self.rows = self.rows + sums.rows
        self.rows_without_positives = self.rows_without_positives + sums.rows_without_positives

    def compute(self) -> Tensor:
        """One number, or one for each k; NaN if no row had a positive."""
        return like_k(self.gained / (self.best if self.normalized else self.rows), self.k)

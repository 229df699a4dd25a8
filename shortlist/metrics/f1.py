"""Micro and macro F1 over many batches, at a threshold or at k."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.functional.metrics.f1 import F1Counts, f1_counts, f1_of
from shortlist.functional.metrics.scored_labels import check_ks, check_one_rule
from shortlist.labels import LabelsLike, Numbers
from shortlist.metrics.base import SumMetric, absent_labels
from shortlist.tensors import whole_k


class _F1(SumMetric):
    hits: Tensor
    predicted: Tensor
    positives: Tensor
    threshold: Tensor | None

    def __init__(
        self, family: str, threshold: Numbers | None, k: int | None, *shape: int, **torchmetrics_options: Any
    ) -> None:
        threshold = check_one_rule(k, threshold)
        if k is not None:
            check_ks(k)
        super().__init__(family, threshold, k, shape, **torchmetrics_options)
        self.k = k
        edge = None if threshold is None else torch.as_tensor(threshold, dtype=torch.float64).detach().clone()
        self.register_buffer("threshold", edge, persistent=False)
        for name in F1Counts._fields:
            self.add_sum(name, *shape)

    def _count(self, scores: Numbers, target: LabelsLike, mask: Numbers | None) -> F1Counts:
        return f1_counts(scores, target, threshold=self.threshold, k=self.k, mask=mask)


class MicroF1(_F1):
    """Micro :func:`~shortlist.functional.f1_score` over many batches.

    Args:
        threshold: labels that score at least this are predicted; a number, or ``(n,)`` with one per label.
        k: instead of ``threshold``: the k best labels of each row are predicted.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import MicroF1
        >>> metric = MicroF1(threshold=0.5)
        >>> metric(torch.tensor([[0.9, 0.6, 0.1], [0.2, 0.8, 0.7]]), torch.tensor([[0, -1], [1, 2]]))
        tensor(0.8571, dtype=torch.float64)
    """

    def __init__(self, *, threshold: Numbers | None = None, k: int | None = None, **torchmetrics_options: Any) -> None:
        super().__init__("micro-f1", threshold, k, **torchmetrics_options)

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        self.accumulate(F1Counts(*(count.sum() for count in self._count(scores, target, mask))))

    def compute(self) -> Tensor:
        """One number; NaN if there were no positives and no predictions."""
        return f1_of(self.hits, self.predicted, self.positives)


class MacroF1(_F1):
    """Macro :func:`~shortlist.functional.f1_score` over many batches: the mean over the labels that occur.

    Args:
        num_labels: n.
        threshold: labels that score at least this are predicted; a number, or ``(n,)`` with one per label.
        k: instead of ``threshold``: the k best labels of each row are predicted.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import MacroF1
        >>> metric = MacroF1(4, threshold=0.5)
        >>> metric(torch.tensor([[0.9, 0.6, 0.1, 0.0], [0.2, 0.8, 0.7, 0.0]]), torch.tensor([[0, -1], [1, 2]]))
        tensor(0.8889, dtype=torch.float64)
        >>> metric.absent
        tensor([3])
    """

    def __init__(
        self,
        num_labels: int,
        *,
        threshold: Numbers | None = None,
        k: int | None = None,
        **torchmetrics_options: Any,
    ) -> None:
        whole_k(num_labels, 1 << 62, name="num_labels")
        super().__init__("macro-f1", threshold, k, num_labels, **torchmetrics_options)
        self.num_labels = num_labels

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        counts = self._count(scores, target, mask)
        self.check_width(len(counts.positives), self.num_labels)
        self.accumulate(counts)

    def compute(self) -> Tensor:
        """One number; NaN if no label occurred."""
        return f1_of(self.hits, self.predicted, self.positives)[self.positives > 0].mean()

    @property
    def absent(self) -> Tensor:
        """Labels not seen yet on this process, ascending; on all processes inside ``with metric.sync_context():``."""
        return absent_labels(self.positives)

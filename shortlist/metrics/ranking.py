"""Precision, recall, F1 and nDCG at k over many batches; all of them can share one pass and one state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.metrics.labels import check_ks, like_k
from shortlist.functional.metrics.ranking import harmonic_mean, ranking_sums
from shortlist.metrics.accumulated import Accumulated


class _Ranking(Accumulated):
    """The sums behind all metrics at k. They are the same for all, so a `MetricCollection` computes them once."""

    precision_sum: Tensor
    recall_sum: Tensor
    ndcg_sum: Tensor
    rows: Tensor
    rows_without_positives: Tensor

    def __init__(self, k: int | Sequence[int], **torchmetrics_options: Any) -> None:
        ks = check_ks(k)
        super().__init__("ranking", ks, **torchmetrics_options)
        self.k, self._ks = k, ks
        for name in ("precision_sum", "recall_sum", "ndcg_sum"):
            self.add_sum(name, len(ks))
        self.add_sum("rows", dtype=torch.int64)
        self.add_sum("rows_without_positives", dtype=torch.int64)

    def update(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally which rows count."""
        sums = ranking_sums(scores, target, self._ks, mask)
        self.precision_sum = self.precision_sum + sums.precision
        self.recall_sum = self.recall_sum + sums.recall
        self.ndcg_sum = self.ndcg_sum + sums.ndcg
        self.rows = self.rows + sums.rows
        self.rows_without_positives = self.rows_without_positives + sums.rows_without_positives

    def _values(self) -> dict[str, Tensor]:
        """All four, ``(len(ks),)`` each."""
        precision, recall = self.precision_sum / self.rows, self.recall_sum / self.rows
        ndcg = self.ndcg_sum / self.rows
        return {"precision": precision, "recall": recall, "f1": harmonic_mean(precision, recall), "ndcg": ndcg}


class RankingMetrics(_Ranking):
    """Precision, recall, F1 and nDCG at every ``k``, from one pass over the scores.

    Rows without a (known) positive are left out and counted in ``rows_without_positives``.

    Args:
        k: a whole number from 1, or a sequence of them.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

    Example:
        >>> from shortlist.metrics import RankingMetrics
        >>> metric = RankingMetrics((1, 2))
        >>> metric.update(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        >>> {name: round(value.item(), 3) for name, value in metric.compute().items()}
        {'precision@1': 1.0, 'precision@2': 0.5, 'recall@1': 0.75, 'recall@2': 0.75,
         'f1@1': 0.857, 'f1@2': 0.6, 'ndcg@1': 1.0, 'ndcg@2': 0.807}

    References:
        The functions :func:`~shortlist.functional.precision_at_k` and its neighbours have the formulas.
    """

    def compute(self) -> dict[str, Tensor]:
        """``{"precision@1": ..., ...}``, one number each; NaN if no row had a positive."""
        values = self._values().items()
        return {f"{name}@{k}": value for name, line in values for k, value in zip(self._ks, line, strict=True)}


class PrecisionAtK(_Ranking):
    """:func:`~shortlist.functional.precision_at_k` over many batches.

    Args:
        k: a whole number from 1, or a sequence of them.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

    Example:
        >>> from shortlist.metrics import PrecisionAtK
        >>> metric = PrecisionAtK((1, 2))
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    def compute(self) -> Tensor:
        """One number, or one for each k."""
        return like_k(self._values()["precision"], self.k)


class RecallAtK(_Ranking):
    """:func:`~shortlist.functional.recall_at_k` over many batches.

    Args:
        k: a whole number from 1, or a sequence of them.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

    Example:
        >>> from shortlist.metrics import RecallAtK
        >>> metric = RecallAtK(2)
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        tensor(0.7500, dtype=torch.float64)
    """

    def compute(self) -> Tensor:
        """One number, or one for each k."""
        return like_k(self._values()["recall"], self.k)


class F1AtK(_Ranking):
    """:func:`~shortlist.functional.f1_at_k` over many batches: of the averages over all rows, not of the batches.

    Args:
        k: a whole number from 1, or a sequence of them.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

    Example:
        >>> from shortlist.metrics import F1AtK
        >>> metric = F1AtK(2)
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        tensor(0.6000, dtype=torch.float64)
    """

    def compute(self) -> Tensor:
        """One number, or one for each k."""
        return like_k(self._values()["f1"], self.k)


class NDCGAtK(_Ranking):
    """:func:`~shortlist.functional.ndcg_at_k` over many batches.

    Args:
        k: a whole number from 1, or a sequence of them.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

    Example:
        >>> from shortlist.metrics import NDCGAtK
        >>> metric = NDCGAtK((1, 3))
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [2, -1]]))
        tensor([0.5000, 0.7753], dtype=torch.float64)
    """

    def compute(self) -> Tensor:
        """One number, or one for each k."""
        return like_k(self._values()["ndcg"], self.k)

"""Precision, recall, F1, nDCG and propensity-scored precision at k over many batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from shortlist.functional.metrics.propensity import check_propensities, propensity_sums
from shortlist.functional.metrics.ranking import harmonic_mean, ranking_sums
from shortlist.functional.metrics.scored_labels import check_ks, like_k
from shortlist.labels import LabelsLike, Numbers
from shortlist.metrics.base import SumMetric


class _Ranking(SumMetric):
    """The sums behind all metrics at k. They are the same for all, so a `MetricCollection` computes them once."""

    precision: Tensor
    recall: Tensor
    ndcg: Tensor
    rows: Tensor
    rows_without_positives: Tensor

    def __init__(self, k: int | Sequence[int], **torchmetrics_options: Any) -> None:
        ks = check_ks(k)
        super().__init__("ranking", ks, **torchmetrics_options)
        self.k, self._ks = k, ks
        for name in ("precision", "recall", "ndcg"):
            self.add_sum(name, len(ks))
        self.add_count("rows", "rows_without_positives")

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        self.accumulate(ranking_sums(scores, target, self._ks, mask))

    def _values(self) -> dict[str, Tensor]:
        """All four, ``(len(ks),)`` each."""
        precision, recall, ndcg = (sums / self.rows for sums in (self.precision, self.recall, self.ndcg))
        return {"precision": precision, "recall": recall, "f1": harmonic_mean(precision, recall), "ndcg": ndcg}


class _AtK(_Ranking):
    """One of the values of `_Ranking`."""

    value: ClassVar[str]

    def compute(self) -> Tensor:
        """One number, or one per k; NaN if no row had a positive."""
        return like_k(self._values()[self.value], self.k)


class RankingMetrics(_Ranking):
    """Precision, recall, F1 and nDCG at every ``k``, from one pass over the scores.

    Rows without a (known) positive are left out and counted in ``rows_without_positives``.

    Args:
        k: an integer of at least 1, or a sequence of them.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import RankingMetrics
        >>> metric = RankingMetrics((1, 2))
        >>> metric.update(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        >>> {name: round(value.item(), 3) for name, value in metric.compute().items()}
        {'precision@1': 1.0, 'precision@2': 0.5, 'recall@1': 0.75, 'recall@2': 0.75,
         'f1@1': 0.857, 'f1@2': 0.6, 'ndcg@1': 1.0, 'ndcg@2': 0.807}

    References:
        For the formulas, see :func:`~shortlist.functional.precision_at_k` and related functions.
    """

    def compute(self) -> dict[str, Tensor]:
        """``{"precision@1": ..., ...}``, one number each; NaN if no row had a positive."""
        lines = self._values().items()
        return {f"{name}@{k}": value for name, line in lines for k, value in zip(self._ks, line, strict=True)}


class PrecisionAtK(_AtK):
    """:func:`~shortlist.functional.precision_at_k` over many batches.

    Args:
        k: an integer of at least 1, or a sequence of them.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import PrecisionAtK
        >>> metric = PrecisionAtK((1, 2))
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    value = "precision"


class RecallAtK(_AtK):
    """:func:`~shortlist.functional.recall_at_k` over many batches.

    Args:
        k: an integer of at least 1, or a sequence of them.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import RecallAtK
        >>> metric = RecallAtK(2)
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        tensor(0.7500, dtype=torch.float64)
    """

    value = "recall"


class F1AtK(_AtK):
    """:func:`~shortlist.functional.f1_at_k` over many batches: computed from the averages over all rows, not averaged
    over batches.

    Args:
        k: an integer of at least 1, or a sequence of them.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import F1AtK
        >>> metric = F1AtK(2)
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [1, -1]]))
        tensor(0.6000, dtype=torch.float64)
    """

    value = "f1"


class NDCGAtK(_AtK):
    """:func:`~shortlist.functional.ndcg_at_k` over many batches.

    Args:
        k: an integer of at least 1, or a sequence of them.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import NDCGAtK
        >>> metric = NDCGAtK((1, 3))
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([[0, 1], [2, -1]]))
        tensor([0.5000, 0.7753], dtype=torch.float64)
    """

    value = "ndcg"


class PropensityScoredPrecisionAtK(SumMetric):
    """:func:`~shortlist.functional.propensity_scored_precision_at_k` over many batches.

    Args:
        propensities: ``(n,)`` floating, in (0, 1]; see :func:`~shortlist.functional.propensities`.
        k: an integer of at least 1, or a sequence of them.
        normalized: whether to divide by the best possible value.
        torchmetrics_options: passed to `torchmetrics.Metric`.

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
        self, propensities: Numbers, k: int | Sequence[int], *, normalized: bool = True, **torchmetrics_options: Any
    ) -> None:
        propensities = check_propensities(propensities)
        ks = check_ks(k, len(propensities))
        super().__init__("propensity", propensities, ks, **torchmetrics_options)
        self.k, self._ks, self.normalized = k, ks, normalized
        self.register_buffer("propensities", propensities.detach().clone(), persistent=False)
        self.add_sum("gained", len(ks))
        self.add_sum("best", len(ks))
        self.add_count("rows", "rows_without_positives")

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        self.accumulate(propensity_sums(scores, target, self.propensities, self._ks, mask))

    def compute(self) -> Tensor:
        """One number, or one per k; NaN if no row had a positive."""
        return like_k(self.gained / (self.best if self.normalized else self.rows), self.k)

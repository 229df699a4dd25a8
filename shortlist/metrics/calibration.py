"""Calibration error, Brier score and the area under the risk-coverage curve over many batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.functional.metrics.calibration import (
    EVENTS,
    Events,
    Reliability,
    ScoredEvents,
    brier_sums,
    equal_mass_error,
    error_of,
    inner_edges,
    reliability,
    scored_events,
)
from shortlist.functional.metrics.risk_coverage import RiskCoverage, risk_coverage, top_errors
from shortlist.functional.metrics.scored_labels import check_choice
from shortlist.labels import LabelsLike, Numbers
from shortlist.metrics.base import ListMetric, SumMetric
from shortlist.tensors import whole_k


class CalibrationError(SumMetric):
    """:func:`~shortlist.functional.calibration_error` with bins of equal width, over many batches.

    Args:
        bins: how many.
        events: ``"top"``, the best label of each row, or ``"labels"``, each known label.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import CalibrationError
        >>> metric = CalibrationError()
        >>> metric(torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.1, 0.9]]), torch.tensor([0, 1, 1]))
        tensor(0.3333, dtype=torch.float64)
        >>> int(metric.reliability().counts.sum())
        3
    """

    higher_is_better = False
    counts: Tensor
    predicted: Tensor
    observed: Tensor

    def __init__(self, *, bins: int = 15, events: Events = "top", **torchmetrics_options: Any) -> None:
        check_choice("events", events, EVENTS)
        super().__init__("calibration", bins, events, **torchmetrics_options)
        self.bins = bins
        self.events: Events = events
        for name in Reliability._fields:
            self.add_sum(name, len(inner_edges(bins)) + 1)

    def update(self, probs: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: probabilities ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        self.accumulate(reliability(probs, target, events=self.events, bins=self.bins, mask=mask))

    def compute(self) -> Tensor:
        """One number; NaN without events."""
        return error_of(self.reliability())

    def reliability(self) -> Reliability:
        """The sums of each bin, for a reliability diagram."""
        return Reliability(self.counts, self.predicted, self.observed)


class AdaptiveCalibrationError(ListMetric):
    """:func:`~shortlist.functional.calibration_error` with bins of equal mass, over many batches; keeps all events.

    Args:
        bins: how many.
        events: ``"top"``, the best label of each row, or ``"labels"``, each known label.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import AdaptiveCalibrationError
        >>> metric = AdaptiveCalibrationError(bins=1)
        >>> metric(torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8]]), torch.tensor([0, 1, 1]))
        tensor(0.0333, dtype=torch.float64)
    """

    higher_is_better = False

    def __init__(self, *, bins: int = 15, events: Events = "top", **torchmetrics_options: Any) -> None:
        check_choice("events", events, EVENTS)
        super().__init__("adaptive calibration", bins, events, **torchmetrics_options)
        self.bins = whole_k(bins, 1 << 24, name="bins")
        self.events: Events = events
        self.add_list("confidence", None)
        self.add_list("of_true", None)
        self.add_list("true", torch.float64)

    def update(self, probs: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: probabilities ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        found = scored_events(probs, target, self.events, mask)
        self.keep("confidence", found.confidence[found.counts])
        self.keep("of_true", found.of_true)
        self.keep("true", found.true)

    def compute(self) -> Tensor:
        """One number; NaN without events."""
        confidence = self.kept("confidence")
        counts = torch.ones_like(confidence, dtype=torch.bool)
        return equal_mass_error(ScoredEvents(confidence, counts, self.kept("of_true"), self.kept("true")), self.bins)


class BrierScore(SumMetric):
    """:func:`~shortlist.functional.brier_score` over many batches.

    Args:
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import BrierScore
        >>> metric = BrierScore()
        >>> metric(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
        tensor(0.1562, dtype=torch.float64)
    """

    higher_is_better = False
    squares: Tensor
    count: Tensor

    def __init__(self, **torchmetrics_options: Any) -> None:
        super().__init__("brier", **torchmetrics_options)
        self.add_sum("squares")
        self.add_sum("count")

    def update(self, probs: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: probabilities ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        squares, count = brier_sums(probs, target, mask)
        self.squares, self.count = self.squares + squares, self.count + count

    def compute(self) -> Tensor:
        """One number; NaN without known labels."""
        return self.squares / self.count


class AreaUnderRiskCoverage(ListMetric):
    """:func:`~shortlist.functional.area_under_risk_coverage` over many batches; keeps two numbers of each row.

    Args:
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import AreaUnderRiskCoverage
        >>> metric = AreaUnderRiskCoverage()
        >>> metric(torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), torch.tensor([0, 0, 0]))
        tensor(0.2778, dtype=torch.float64)
        >>> metric.curve().coverage
        tensor([0.3333, 0.6667, 1.0000], dtype=torch.float64)
    """

    higher_is_better = False
    errors: list[Tensor]

    def __init__(self, **torchmetrics_options: Any) -> None:
        super().__init__("risk-coverage", **torchmetrics_options)
        self.add_list("confidence", None)
        self.add_list("errors", torch.float64)

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        confidence, errors = top_errors(scores, target, mask)
        self.keep("confidence", confidence)
        self.errors.append(errors)

    def compute(self) -> Tensor:
        """One number; NaN without rows."""
        return self.curve().risk.mean()

    def curve(self) -> RiskCoverage:
        """The risk-coverage curve."""
        return risk_coverage(self.kept("confidence"), self.kept("errors"))

"""Mean average precision over many batches: exact, which keeps all scores, or binned, in bounded memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.functional.metrics.average_precision import (
    BinnedAveragePrecision,
    By,
    ScoreHistogram,
    average_precision,
    bin_edges,
    histogram_average_precision,
    line_average_precision,
    mean_of_known,
    score_histogram,
)
from shortlist.functional.metrics.scored_labels import check_choice, read_scored_labels, refuse_nan
from shortlist.labels import LabelsLike, Numbers, read_numbers
from shortlist.metrics.base import ListMetric, SumMetric
from shortlist.tensors import solvable, whole_k


class MeanAveragePrecision(ListMetric):
    """:func:`~shortlist.functional.average_precision` over many batches, exactly.

    By class, the ranking runs over all rows, so the metric **keeps all scores**: 4 bytes each (8 for float64), plus 8
    for each positive. `BinnedMeanAveragePrecision` has bounded memory. By sample, it keeps only two sums.

    Args:
        by: ``"class"``, mean over the classes that occur, or ``"sample"``, mean over the rows with a positive.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import MeanAveragePrecision
        >>> metric = MeanAveragePrecision()
        >>> metric.update(torch.tensor([[0.9, 0.2], [0.8, 0.7]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> metric.update(torch.tensor([[0.1, 0.6]]), torch.tensor([[1.0, 1.0]]))
        >>> metric.compute()
        tensor(0.9167, dtype=torch.float64)
    """

    scores: list[Tensor]
    labels: list[Tensor]
    row_sizes: list[Tensor]
    num_labels: Tensor
    total: Tensor
    rows: Tensor
    rows_without_positives: Tensor

    def __init__(self, by: By = "class", **torchmetrics_options: Any) -> None:
        check_choice("by", by, ("class", "sample"))
        super().__init__("map", by, **torchmetrics_options)
        self.by = by
        if by == "class":
            self.add_list("scores", None)  # row by row
            self.add_list("labels", torch.int64)  # of the positives, row by row
            self.add_list("row_sizes", torch.int64)  # number of positives in each row
            self.add_state("num_labels", torch.tensor(0), dist_reduce_fx="max")
        else:
            self.add_sum("total")
            self.add_count("rows")
        self.add_count("rows_without_positives")

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        if self.by == "sample":
            values = average_precision(scores, target, by="sample", reduction="none", mask=mask)
            counted = len(values) if mask is None else read_numbers(mask, name="mask").sum()
            known = ~values.isnan()
            self.total = self.total + values[known].sum()
            self.rows = self.rows + known.sum()
            self.rows_without_positives = self.rows_without_positives + counted - known.sum()
            return
        data = read_scored_labels(scores, target, mask)
        refuse_nan(data.scores)
        n, seen = data.num_labels, int(self.num_labels)
        if seen not in (0, n):
            raise ValueError(f"`scores` must have {seen} labels as in earlier batches; got {n}.")
        self.num_labels = torch.full_like(self.num_labels, n)
        positives = data.positives[data.counted]
        self.keep("scores", solvable(data.scores if mask is None else data.scores[data.counted]).flatten().clone())
        self.keep("labels", data.chosen()[1])
        self.keep("row_sizes", positives)
        self.rows_without_positives = self.rows_without_positives + (positives == 0).sum()

    def compute(self) -> Tensor:
        """One number; NaN without a positive."""
        return self.total / self.rows if self.by == "sample" else mean_of_known(self.values())

    def values(self) -> Tensor:
        """Average precision of each class, ``(n,)``, on this process; inside ``with metric.sync_context():``, on all.

        NaN for classes without positives.
        """
        if self.by == "sample":
            raise ValueError('`by` must be "class" for per-class values; got "sample".')
        labels, sizes = self.kept("labels"), self.kept("row_sizes")
        x = self.kept("scores").reshape(len(sizes), int(self.num_labels))
        return line_average_precision(x.T, labels, torch.repeat_interleave(sizes))


class BinnedMeanAveragePrecision(SumMetric):
    """:func:`~shortlist.functional.binned_average_precision` over many batches, in two tables of labels × bins counts.

    The exact value lies between `bounds`.

    Args:
        num_labels: n.
        bins: number of bins, at least 1.
        limits: the bins are equally wide between these two scores, and the outer ones extend to infinity: (0, 1) for
            probabilities. None: equally wide in ``sigmoid(score)``, for logits.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import BinnedMeanAveragePrecision
        >>> metric = BinnedMeanAveragePrecision(2, bins=100, limits=(0, 1))
        >>> metric.update(torch.tensor([[0.9, 0.2], [0.8, 0.7]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> metric.update(torch.tensor([[0.1, 0.6]]), torch.tensor([[1.0, 1.0]]))
        >>> metric.compute()
        tensor(0.9167, dtype=torch.float64)
    """

    known: Tensor
    positive: Tensor
    positives: Tensor
    edges: Tensor

    def __init__(
        self,
        num_labels: int,
        *,
        bins: int = 1000,
        limits: tuple[float, float] | None = None,
        **torchmetrics_options: Any,
    ) -> None:
        edges = bin_edges(bins, limits)
        whole_k(num_labels, 1 << 62, name="num_labels")
        super().__init__("binned-map", num_labels, bins, limits, **torchmetrics_options)
        self.num_labels, self.bins, self.limits = num_labels, bins, limits
        self.register_buffer("edges", edges, persistent=False)
        self.add_sum("known", num_labels, bins, dtype=torch.int64)
        self.add_sum("positive", num_labels, bins, dtype=torch.int64)
        self.add_sum("positives", num_labels, dtype=torch.int64)

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, labels in any form, and optionally a mask of the rows that count."""
        counts = score_histogram(scores, target, self.edges, mask)
        self.check_width(len(counts.positives), self.num_labels)
        self.accumulate(counts)

    def compute(self) -> Tensor:
        """One number; NaN without a positive."""
        return mean_of_known(self.values().value)

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds on the exact value, on this process; inside ``sync_context()``, on all."""
        found = self.values()
        return mean_of_known(found.lower), mean_of_known(found.upper)

    def values(self) -> BinnedAveragePrecision:
        """Value and bounds of each class, ``(n,)``; NaN for those without positives."""
        return histogram_average_precision(ScoreHistogram(self.known, self.positive, self.positives))

"""Top-k and average-K accuracy over many batches: micro, macro, and by training frequency of the class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.metrics.accuracy import (
    AVERAGES,
    Average,
    ClassHits,
    ScoreCounts,
    SetThreshold,
    averaged,
    check_k,
    class_hits,
    count_scores,
    macro_mean,
    merge_scores,
    one_class_rows,
    set_budget,
)
from shortlist.functional.metrics.scored_labels import (
    check_choice,
    check_ks,
    check_one_rule,
    like_k,
    read_scored_labels,
    refuse_nan,
)
from shortlist.labels import LabelsLike, Numbers, read_numbers
from shortlist.metrics.base import ListMetric, SumMetric, absent_labels, state_size
from shortlist.tensors import solvable, whole_k

FEW, MANY = 20, 100
"""Classes with fewer training examples than the first are few-shot; with more than the second, many-shot."""


class _ClassAccuracy(SumMetric):
    """Hits and rows, by class or, for ``num_labels=None``, in total."""

    hits: Tensor
    total: Tensor
    rows_without_positives: Tensor

    def __init__(
        self, family: str, k: int | Sequence[int], num_labels: int | None, *options: object, **torchmetrics_options: Any
    ) -> None:
        ks = check_ks(k)
        super().__init__(family, ks, num_labels, *options, **torchmetrics_options)
        self.k, self._ks, self.num_labels = k, ks, num_labels
        self.add_sum("hits", state_size(num_labels), len(ks))
        self.add_sum("total", state_size(num_labels), dtype=torch.int64)
        self.add_count("rows_without_positives")

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, one class per row, and optionally a mask of the rows that count."""
        found = class_hits(scores, target, self._ks, mask)
        if self.num_labels is not None:
            self.check_width(found.num_labels, self.num_labels)
        self.accumulate(found.sums(self.num_labels))

    @property
    def absent(self) -> Tensor:
        """Classes not seen yet on this process, ascending; on all processes inside ``with metric.sync_context():``."""
        if self.num_labels is None:
            raise ValueError('absent classes are known only for `average="macro"`; got "micro".')
        return absent_labels(self.total)


class TopKAccuracy(_ClassAccuracy):
    """:func:`~shortlist.functional.topk_accuracy` over many batches.

    Args:
        k: an integer of at least 1, or a sequence of them.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur; ``absent`` lists the others.
        num_labels: n, required for ``"macro"``.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import TopKAccuracy
        >>> metric = TopKAccuracy(1, average="macro", num_labels=3)
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([0, 2]))
        tensor(0.5000, dtype=torch.float64)
        >>> metric.absent
        tensor([1])
    """

    def __init__(
        self,
        k: int | Sequence[int],
        *,
        average: Average = "micro",
        num_labels: int | None = None,
        **torchmetrics_options: Any,
    ) -> None:
        super().__init__("accuracy", k, check_average(average, num_labels), **torchmetrics_options)
        self.average = average

    def compute(self) -> Tensor:
        """One number, or one per k; NaN if no row had a class."""
        return like_k(macro_mean(self.hits, self.total), self.k)  # for micro, all rows belong to one class


class ShotAccuracy(_ClassAccuracy):
    """Top-k accuracy by the number of training examples of the true class: few (< 20), medium, many (> 100).

    Args:
        counts: ``(n,)``, the number of training examples of each class.
        k: an integer of at least 1, or a sequence of them.
        average: ``"macro"`` over the classes of a group that occur, ``"micro"`` over its rows.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import ShotAccuracy
        >>> metric = ShotAccuracy(torch.tensor([500, 50, 5]), k=1)
        >>> metric(torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]), torch.tensor([0, 2]))
        {'few': tensor(0., dtype=torch.float64), 'medium': tensor(nan, dtype=torch.float64),
         'many': tensor(1., dtype=torch.float64)}

    References:
        Liu, Miao, Zhan, Wang, Gong, Yu, "Large-Scale Long-Tailed Recognition in an Open World", 2019.
    """

    counts: Tensor

    def __init__(
        self, counts: Numbers, k: int | Sequence[int] = 1, *, average: Average = "macro", **torchmetrics_options: Any
    ) -> None:
        counts = read_numbers(counts, name="counts")
        if counts.ndim != 1 or len(counts) == 0:
            raise ValueError(f"`counts` must have one value per label; got shape {tuple(counts.shape)}.")
        check_choice("average", average, AVERAGES)
        super().__init__("shots", k, len(counts), counts, average, **torchmetrics_options)
        self.average = average
        self.register_buffer("counts", counts.detach().clone(), persistent=False)

    def compute(self) -> dict[str, Tensor]:
        """``{"few": ..., "medium": ..., "many": ...}``: one number each, or one per k; NaN without rows."""
        few, many = self.counts < FEW, self.counts > MANY
        groups = {"few": few, "medium": ~(few | many), "many": many}
        return {name: like_k(self._mean(self.hits[group], self.total[group]), self.k) for name, group in groups.items()}

    def _mean(self, hits: Tensor, total: Tensor) -> Tensor:
        return macro_mean(hits, total) if self.average == "macro" else hits.sum(0) / total.sum()


def check_average(average: Average, num_labels: int | None) -> int | None:
    """The number of classes to count separately: None for micro."""
    check_choice("average", average, AVERAGES)
    if average == "macro" and num_labels is None:
        raise ValueError('`num_labels` must be given for `average="macro"`; got None.')
    if average == "micro" and num_labels is not None:
        raise ValueError(f'`num_labels` must be None for `average="micro"`; got {num_labels}.')
    return num_labels


class AverageKAccuracy(ListMetric):
    """:func:`~shortlist.functional.average_k_accuracy` over many batches.

    With a ``threshold`` fitted elsewhere, the metric keeps only the score of each true class. With ``k``, it fits the
    threshold on all rows seen, so it must keep scores: all of them or, if ``num_rows`` is given, those that can be
    among the ⌊k · num_rows⌋ largest. Equal scores are stored once, with a count. Either way, the value is exact no
    matter how the rows are split into batches and processes.

    Args:
        k: average number of labels; may be fractional.
        threshold: instead of ``k``: labels that score at least this are in the set.
        num_rows: upper bound on the number of rows over all processes; only with ``k``.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import AverageKAccuracy
        >>> metric = AverageKAccuracy(k=2, num_rows=2)
        >>> metric.update(torch.tensor([[0.9, 0.1, 0.0]]), torch.tensor([0]))
        >>> metric.update(torch.tensor([[0.4, 0.3, 0.3]]), torch.tensor([1]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
        >>> metric.average_size
        2.0
    """

    values: list[Tensor]
    counts: list[Tensor]
    true_scores: list[Tensor]
    classes: list[Tensor]
    selected: Tensor
    rows_without_positives: Tensor

    def __init__(
        self,
        k: float | None = None,
        *,
        threshold: float | None = None,
        num_rows: int | None = None,
        average: Average = "micro",
        **torchmetrics_options: Any,
    ) -> None:
        check_one_rule(k, threshold)
        check_choice("average", average, AVERAGES)
        if num_rows is not None:
            if k is None:
                raise ValueError(f"`num_rows` must be None with `threshold`; got {num_rows}.")
            whole_k(num_rows, 1 << 62, name="num_rows")
        super().__init__("average-k", k, threshold, num_rows, **torchmetrics_options)
        self.k, self.threshold, self.num_rows = k, threshold, num_rows
        self.average: Average = average
        self._capacity = None if k is None or num_rows is None else max(1, set_budget(check_k(k, 1 << 62), num_rows))
        self.add_list("values", None)
        self.add_list("counts", torch.int64)
        self.add_list("true_scores", None)
        self.add_list("classes", torch.int64)
        self.add_count("selected", "rows_without_positives")

    def update(self, scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: scores ``(B, n)``, one class per row, and optionally a mask of the rows that count."""
        data = read_scored_labels(scores, target, mask)
        refuse_nan(data.scores)
        rows, classes, missing = one_class_rows(data)
        if self.k is None:
            # A finite threshold, so labels of score -inf are in no set.
            self.selected = self.selected + (solvable(data.scores[rows]) >= self._set_threshold().threshold).sum()
        else:
            check_k(self.k, data.num_labels)
            found = count_scores(data, rows, largest=self._capacity)
            self.keep("values", found.values)
            self.keep("counts", found.counts)
            self._forget()
        self.keep("true_scores", solvable(data.scores[rows, classes]))
        self.keep("classes", classes)
        self.rows_without_positives = self.rows_without_positives + missing

    def compute(self) -> Tensor:
        """One number; NaN if no row had a class."""
        classes = self.kept("classes")
        inclusion = self._set_threshold().inclusion(self.kept("true_scores")).unsqueeze(-1)
        num_labels = 0 if self.average == "micro" or len(classes) == 0 else int(classes.max()) + 1
        return averaged(ClassHits(classes, inclusion, self.rows_without_positives, num_labels), self.average).squeeze(
            -1
        )

    @property
    def average_size(self) -> float:
        """Average number of labels in a set, over the rows of this process; NaN without rows."""
        rows = len(self.kept("classes"))
        if rows == 0:
            return math.nan
        if self.k is None:
            return int(self.selected) / rows
        # With `k`, the sets use up the budget unless there are too few labels.
        return min(set_budget(self.k, rows), int(self.kept("counts").sum())) / rows

    def _set_threshold(self) -> SetThreshold:
        if self.k is None:
            return SetThreshold(float(self.threshold), 1.0)  # pyright: ignore[reportArgumentType]
        rows = len(self.kept("classes"))
        if self.num_rows is not None and rows > self.num_rows:
            raise ValueError(f"`num_rows` must be at least the number of rows seen; got {self.num_rows} for {rows}.")
        return self._score_counts().threshold(set_budget(self.k, rows))

    def _score_counts(self) -> ScoreCounts:
        return merge_scores(self.kept("values"), self.kept("counts"))

    def _forget(self) -> None:
        """Drop scores that cannot be among the largest."""
        if self._capacity is None:
            return
        found = self._score_counts().largest(self._capacity)
        self.values, self.counts = [found.values], [found.counts]

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        super()._reduce_states(incoming_state)
        self._forget()

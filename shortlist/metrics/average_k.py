"""Average-K accuracy over many batches, with memory for the largest scores only."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shortlist.checks import whole_k
from shortlist.functional.metrics.accuracy import AVERAGES, Average, ClassHits, averaged, one_class_rows
from shortlist.functional.metrics.average_k import (
    Counted,
    Cut,
    check_k,
    check_one_rule,
    counted_scores,
    merged,
    set_budget,
)
from shortlist.functional.metrics.labels import check_choice, labelled, refuse_nan
from shortlist.metrics.accumulated import Kept
from shortlist.tensors import solvable


class AverageKAccuracy(Kept):
    """:func:`~shortlist.functional.average_k_accuracy` over many batches.

    With ``threshold``, fitted elsewhere, nothing is kept but the score of each true class. With ``k`` the threshold is
    that of all rows seen, so their scores must be kept: all of them, or, if ``num_rows`` says how many rows there will
    be, those that can be among the ⌊k · num_rows⌋ largest. Scores that are equal are kept once, with a count. Either
    way the value is exact, however the rows are split into batches and processes.

    Args:
        k: how many labels on average; may be fractional.
        threshold: instead of ``k``, labels of at least this score are in the set.
        num_rows: at most how many rows will be seen, over all processes; only with ``k``.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

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
                raise ValueError(f"`num_rows` has no use beside `threshold`; got {num_rows}.")
            whole_k(num_rows, 1 << 62, name="num_rows")
        super().__init__("average-k", k, threshold, num_rows, **torchmetrics_options)
        self.k, self.threshold, self.num_rows = k, threshold, num_rows
        self.average: Average = average
        self._capacity = None if k is None or num_rows is None else max(1, set_budget(check_k(k, 1 << 62), num_rows))
        self.add_list("values", None)
        self.add_list("counts", torch.int64)
        self.add_list("true_scores", None)
        self.add_list("classes", torch.int64)
        self.add_sum("selected", dtype=torch.int64)
        self.add_sum("rows_without_positives", dtype=torch.int64)

    def update(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch: scores ``(B, n)``, one class per row, and optionally which rows count."""
        data = labelled(scores, target, mask)
        refuse_nan(data.scores)
        rows, classes, missing = one_class_rows(data)
        if self.k is None:
            chosen = data.scores[rows]
            self.selected = self.selected + self._limit().chance(chosen).sum().long()
        else:
            check_k(self.k, scores.shape[-1])
            found = counted_scores(data, rows, largest=self._capacity)
            self.keep("values", found.values)
            self.keep("counts", found.counts)
            self._forget()
        self.keep("true_scores", solvable(data.scores[rows, classes]))
        self.keep("classes", classes)
        self.rows_without_positives = self.rows_without_positives + missing

    def compute(self) -> Tensor:
        """One number; NaN if no row had a class."""
        classes = self.kept("classes")
        chance = self._limit().chance(self.kept("true_scores")).unsqueeze(-1)
        found = ClassHits(classes, chance, self.rows_without_positives)
        return averaged(found, int(classes.max()) + 1 if len(classes) else 0, self.average).squeeze(-1)

    @property
    def average_size(self) -> float:
        """How many labels a set has on average, in the rows of this process; NaN without rows."""
        rows = len(self.kept("classes"))
        if rows == 0:
            return math.nan
        if self.k is None:
            return int(self.selected) / rows
        # With `k` the budget is spent, unless there are not that many labels.
        held = int(self.kept("counts").sum())
        return min(set_budget(self.k, rows), held) / rows

    def _limit(self) -> Cut:
        if self.k is None:
            return Cut(float(self.threshold), 1.0)  # pyright: ignore[reportArgumentType]
        rows = len(self.kept("classes"))
        if self.num_rows is not None and rows > self.num_rows:
            raise ValueError(f"`num_rows` must be at least the number of rows seen; got {self.num_rows} for {rows}.")
        return self._counted().cut(set_budget(self.k, rows))

    def _counted(self) -> Counted:
        return merged(self.kept("values"), self.kept("counts"))

    def _forget(self) -> None:
        """Keep what can be among the largest, in one piece."""
        if self._capacity is None:
            return
        found = self._counted().largest(self._capacity)
        self.values, self.counts = [found.values], [found.counts]

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        super()._reduce_states(incoming_state)
        self._forget()

"""Top-k accuracy over many batches: micro, macro, and by how often a class was seen in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist.checks import whole_k
from shortlist.functional.metrics.accuracy import AVERAGES, Average, class_hits, macro_mean
from shortlist.functional.metrics.labels import check_choice, check_ks, like_k
from shortlist.metrics.accumulated import Accumulated

FEW, MANY = 20, 100
"""Classes with fewer, and with more training examples than this."""


class _ClassSums(Accumulated):
    """Hits and rows, by class or, for ``num_labels=None``, together."""

    hits: Tensor
    total: Tensor
    rows_without_positives: Tensor

    def __init__(
        self, family: str, k: int | Sequence[int], num_labels: int | None, *options: object, **torchmetrics_options: Any
    ) -> None:
        ks = check_ks(k)
        super().__init__(family, ks, num_labels, *options, **torchmetrics_options)
        self.k, self._ks, self.num_labels = k, ks, num_labels
        size = 1 if num_labels is None else whole_k(num_labels, 1 << 62, name="num_labels")
        self.add_sum("hits", size, len(ks))
        self.add_sum("total", size, dtype=torch.int64)
        self.add_sum("rows_without_positives", dtype=torch.int64)

    def update(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch: scores ``(B, n)``, one class per row, and optionally which rows count."""
        found = class_hits(scores, target, self._ks, mask)
        if self.num_labels is None:
            hits, total = found.hits.sum(0, keepdim=True), self.total.new_tensor([len(found.classes)])
        elif scores.shape[-1] != self.num_labels:
            raise self._wrong_size("scores", self.num_labels, scores.shape[-1])
        else:
            hits, total = found.by_class(self.num_labels)
        self.hits = self.hits + hits
        self.total = self.total + total
        self.rows_without_positives = self.rows_without_positives + found.rows_without_positives

    @property
    def absent(self) -> Tensor:
        """Classes that have not occurred so far, ascending; they are in no macro average.

        Of this process alone; inside ``with metric.sync_context():`` of all.
        """
        if self.num_labels is None:
            raise ValueError('absent classes are known for `average="macro"` only; got "micro".')
        return (self.total == 0).nonzero().squeeze(-1)


class TopKAccuracy(_ClassSums):
    """:func:`~shortlist.functional.topk_accuracy` over many batches.

    Args:
        k: a whole number from 1, or a sequence of them.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur; ``absent`` lists the others.
        num_labels: n, needed for ``"macro"``.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

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
        """One number, or one for each k; NaN if no row had a class."""
        return like_k(macro_mean(self.hits, self.total), self.k)  # micro: all rows as those of one class


class ShotAccuracy(_ClassSums):
    """Top-k accuracy by how often the true class was seen in training: few (< 20), medium (20 to 100), many (> 100).

    Args:
        counts: ``(n,)``, how many training examples each class has.
        k: a whole number from 1, or a sequence of them.
        average: ``"macro"`` over the classes of a group that occur, ``"micro"`` over its rows.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

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
        self, counts: Tensor, k: int | Sequence[int] = 1, *, average: Average = "macro", **torchmetrics_options: Any
    ) -> None:
        if counts.ndim != 1 or len(counts) == 0:
            raise ValueError(f"`counts` must have one value per label; got shape {tuple(counts.shape)}.")
        check_choice("average", average, AVERAGES)
        super().__init__("shots", k, len(counts), counts, average, **torchmetrics_options)
        self.average = average
        self.register_buffer("counts", counts.detach().clone(), persistent=False)

    def compute(self) -> dict[str, Tensor]:
        """``{"few": ..., "medium": ..., "many": ...}``: one number each, or one for each k; NaN without rows."""
        few, many = self.counts < FEW, self.counts > MANY
        groups = {"few": few, "medium": ~(few | many), "many": many}
        return {name: like_k(self._mean(self.hits[group], self.total[group]), self.k) for name, group in groups.items()}

    def _mean(self, hits: Tensor, total: Tensor) -> Tensor:
        return macro_mean(hits, total) if self.average == "macro" else hits.sum(0) / total.sum()


def check_average(average: Average, num_labels: int | None) -> int | None:
    """The number of classes to count one by one: none for micro."""
    check_choice("average", average, AVERAGES)
    if average == "macro" and num_labels is None:
        raise ValueError('`num_labels` must be given for `average="macro"`; got None.')
    if average == "micro" and num_labels is not None:
        raise ValueError(f'`num_labels` has no use for `average="micro"`; got {num_labels}.')
    return num_labels

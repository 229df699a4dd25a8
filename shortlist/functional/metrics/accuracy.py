"""Accuracy of sets for one true class: the k best labels (top-k), or all labels above one threshold (average-K)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.metrics.ranking import expected_hits
from shortlist.functional.metrics.scored_labels import (
    ScoredLabels,
    check_choice,
    check_ks,
    check_one_rule,
    like_k,
    read_scored_labels,
    refuse_nan,
)
from shortlist.labels import LabelsLike, Numbers
from shortlist.tensors import as_written, check_number, holds, is_plain, may_look, solvable

Average = Literal["micro", "macro"]
AVERAGES = ("micro", "macro")


class ClassHits(NamedTuple):
    """Rows with a class: the class, and the probability that it is in the set under a random order of ties."""

    classes: Tensor  # (m,) int64
    hits: Tensor  # (m, len(ks)) float64
    rows_without_positives: Tensor  # () int64
    num_labels: int
    counted: Tensor | None = None  # (m,) bool: False for entries that are none, where their number was not read

    def sums(self, num_labels: int | None) -> ClassSums:
        """Sums for each of ``num_labels`` classes, or over all classes if None."""
        ones = torch.ones_like(self.classes) if self.counted is None else self.counted.long()
        found = self.hits if self.counted is None else self.hits * ones.unsqueeze(-1)
        if num_labels is None:
            hits, total = found.sum(0, keepdim=True), ones.sum(0, keepdim=True)
        else:
            hits = found.new_zeros(num_labels, found.shape[-1]).index_add(0, self.classes, found)
            total = ones.new_zeros(num_labels).index_add(0, self.classes, ones)
        return ClassSums(hits, total, self.rows_without_positives)


class ClassSums(NamedTuple):
    """Sums over rows, by class or in total, which add up over batches."""

    hits: Tensor  # (classes, len(ks)) float64
    total: Tensor  # (classes,) int64
    rows_without_positives: Tensor  # () int64


def topk_accuracy(
    scores: Numbers,
    target: LabelsLike,
    k: int | Sequence[int],
    *,
    average: Average = "micro",
    mask: Numbers | None = None,
) -> Tensor:
    r"""Share of rows whose true class is among the ``k`` best.

    .. math:: \text{micro} = \frac1B \sum_i [\,y_i \in \text{top}_k(s_i)\,], \qquad
              \text{macro} = \frac1{|C|} \sum_{c \in C} \text{accuracy on the rows of class } c

    where C is the set of classes that occur in ``target``. A tie across rank k counts by its probability under a random
    order, so constant scores have accuracy k/n.

    Args:
        scores: ``(B, n)``, floating; only their order matters, and ``-inf`` marks an absent label.
        target: one class per row, in any form of :mod:`shortlist.targets`; rows without a class and unknown labels are
            left out.
        k: an integer in [1, n], or a sequence of them.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur.
        mask: ``(B,)`` bool, False for rows that do not count.

    Returns:
        One float64 number, or ``(len(k),)`` for a sequence; NaN if no row has a class.

    Raises:
        ValueError: for a row with several positives, among others (checked only on the CPU, where reading values needs
            no synchronization).

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])
        >>> topk_accuracy(scores, torch.tensor([0, 2, 2]), (1, 2))
        tensor([0.4444, 0.8889], dtype=torch.float64)
        >>> topk_accuracy(scores, torch.tensor([0, 2, 2]), 1, average="macro")
        tensor(0.5833, dtype=torch.float64)

    References:
        Garcin, "Set-valued classification", 2023, section 3.3.
    """
    check_choice("average", average, AVERAGES)
    return like_k(averaged(class_hits(scores, target, check_ks(k), mask), average), k)


def class_hits(scores: Numbers, target: LabelsLike, ks: list[int], mask: Numbers | None = None) -> ClassHits:
    """Expected hits at all ``ks`` of the rows that count and have a class."""
    data = read_scored_labels(scores, target, mask)
    at_k = expected_hits(data, check_ks(ks, data.num_labels))
    if data.width is not None:
        return hits_of_entries(data, at_k.repeat_interleave(data.width, 0))
    rows, classes, missing = one_class_rows(data)
    return ClassHits(classes, at_k[rows], missing, data.num_labels)


def hits_of_entries(data: ScoredLabels, hits: Tensor) -> ClassHits:
    """All entries of rows of a fixed width with their hits, ``(m, len(ks))``, and which of them count."""
    counted = data.counted if data.width == 1 else data.counted.repeat_interleave(data.width or 1)
    counted = counted if data.present is None else counted & data.present
    missing = (data.counted & (data.positives == 0)).sum()
    return ClassHits(data.labels, hits, missing, data.num_labels, counted)


def one_class_rows(data: ScoredLabels) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that count and have a class, their classes, and the number of rows without a class; reads values."""
    positives = data.positives
    several = (positives > 1) & data.counted
    if holds(several.any()):
        row = int(several.nonzero()[0])
        raise ValueError(f"`target` row {row}: one label must be positive for accuracy; got {int(positives[row])}.")
    return *data.chosen(), (data.counted & (positives == 0)).sum()


def averaged(found: ClassHits, average: Average) -> Tensor:
    """Mean over rows, or over the classes that occur, ``(len(ks),)``."""
    sums = found.sums(None if average == "micro" else found.num_labels)
    return macro_mean(sums.hits, sums.total)


def macro_mean(sums: Tensor, total: Tensor) -> Tensor:
    """Mean over the classes with ``total > 0`` of ``sums / total``: ``(n, ...)`` and ``(n,)`` to ``(...)``."""
    occurs = (total > 0).reshape(-1, *[1] * (sums.ndim - 1))
    return torch.where(occurs, sums / total.reshape(occurs.shape), 0).sum(0) / occurs.sum()


class SetThreshold(NamedTuple):
    """A threshold; a label with exactly this score is in the set with probability ``share``."""

    threshold: float | Tensor
    share: float | Tensor

    def inclusion(self, scores: Tensor) -> Tensor:
        """The probability that a label with each score is in the set, float64; 0 for ``-inf``."""
        x = solvable(scores)  # compare in its own precision: a float32 score of 0.3 must reach a threshold of 0.3
        probability = (x > self.threshold).double() + self.share * (x == self.threshold).double()
        return probability.masked_fill(x == -math.inf, 0)


class ScoreCounts(NamedTuple):
    """Distinct scores in descending order, and how often each occurred."""

    values: Tensor  # (m,) float32 or float64
    counts: Tensor  # (m,) int64

    def threshold(self, size: int) -> SetThreshold:
        """The threshold for which ``size`` of all scores are in the sets."""
        total = self.counts.cumsum(0)
        if size == 0 or len(total) == 0:
            return SetThreshold(math.inf, 0.0)
        if size > int(total[-1]):
            return SetThreshold(-math.inf, 0.0)
        last = int(torch.searchsorted(total, size))
        count = int(self.counts[last])
        return SetThreshold(float(self.values[last]), (size - int(total[last]) + count) / count)

    def largest(self, size: int) -> ScoreCounts:
        """The scores that can be among the ``size`` largest, including all ties of the last one."""
        kept = self.counts.cumsum(0) - self.counts < size
        return ScoreCounts(self.values[kept], self.counts[kept])


def average_k_accuracy(
    scores: Numbers,
    target: LabelsLike,
    *,
    k: float | None = None,
    threshold: float | None = None,
    average: Average = "micro",
    mask: Numbers | None = None,
) -> Tensor:
    r"""Share of rows whose true class scores at least one threshold, common to all rows.

    .. math:: \frac1B \sum_i [\,s_{i y_i} \ge \lambda\,], \qquad \lambda \text{ such that }
              \textstyle\sum_{ij} [\,s_{ij} \ge \lambda\,] = \lfloor k B \rfloor

    With ``k``, the threshold is fitted on the same scores. If several scores equal it, each is in the set with the same
    probability, so the sets have exactly ⌊k·B⌋ labels in expectation. Pass ``threshold`` if it was fitted elsewhere.

    Args:
        scores: ``(B, n)``, floating, comparable between rows (probabilities, or logits if they were trained to be);
            ``-inf`` marks an absent label, which is in no set.
        target: one class per row, in any form of :mod:`shortlist.targets`; rows without a class are ignored entirely,
            and unknown labels are in no set.
        k: average number of labels, in [0, n]; may be fractional. Its decimal value is exact: 0.29 labels for each of
            100 rows are 29.
        threshold: a number instead of ``k``.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur; the threshold is the same for all.
        mask: ``(B,)`` bool, False for rows that do not count.

    Returns:
        One float64 number; NaN if no row has a class.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
        >>> average_k_accuracy(probs, torch.tensor([0, 1]), k=2)
        tensor(1., dtype=torch.float64)
        >>> average_k_accuracy(probs, torch.tensor([0, 1]), threshold=0.35)
        tensor(0.5000, dtype=torch.float64)

    References:
        Denis, Hebiri, "Confidence sets with expected sizes for multiclass classification", 2017; Garcin,
        "Set-valued classification", 2023, section 3.3.
    """
    check_choice("average", average, AVERAGES)
    check_one_rule(k, threshold)
    data = read_scored_labels(scores, target, mask)
    refuse_nan(data.scores)
    if k is not None:
        check_k(k, data.num_labels)
    if data.every_row_has_one_class and mask is None:
        rows, found = None, hits_of_entries(data, torch.zeros_like(data.labels).unsqueeze(-1))
    else:
        rows, classes, missing = one_class_rows(data)
        data = data._replace(rows=rows, labels=classes, width=None, present=None)
        found = ClassHits(classes, classes.unsqueeze(-1), missing, data.num_labels)
    if k is None:
        limit = SetThreshold(float(threshold), 1.0)  # pyright: ignore[reportArgumentType]
    else:
        limit = _fitted_threshold(data, rows, set_budget(k, len(found.classes)))
    return averaged(found._replace(hits=limit.inclusion(data.true_scores()).unsqueeze(-1)), average).squeeze(-1)


def _fitted_threshold(data: ScoredLabels, rows: Tensor | None, size: int) -> SetThreshold:
    """The threshold for which the scores of ``rows`` (None for all) have ``size`` labels."""
    if may_look(data.scores):
        return count_scores(data, rows, largest=size).threshold(size)
    x = solvable(data.scores if rows is None else data.scores[rows]).reshape(-1)
    if size == 0 or len(x) == 0:
        return SetThreshold(math.inf, 0.0)
    largest = x.topk(size, sorted=False).values
    last = largest.amin()
    return SetThreshold(last, (size - (largest > last).sum()) / (x == last).sum().double())


def check_k(k: float, n: int) -> float:
    """``k`` as a number in [0, n]."""
    if not 0 <= check_number("k", k) <= n:
        raise ValueError(f"`k` must lie in [0, {n}]; got {k}.")
    return k


def set_budget(k: float, rows: int) -> int:
    """⌊k · rows⌋ for the exact decimal value of ``k``: in binary, 0.29 · 100 is slightly less than 29."""
    return math.floor(as_written(k) * rows)


def count_scores(data: ScoredLabels, rows: Tensor | None, *, largest: int | None = None) -> ScoreCounts:
    """Count the scores of ``rows``; if ``largest`` is given, only those that can be among the ``largest`` largest."""
    every = rows is None or len(rows) == len(data.scores)
    x = solvable(data.scores if every else data.scores[rows]).reshape(-1)
    if largest is not None and largest < len(x):
        x = x[x >= _kth_largest(x, max(largest, 1))]
    return merge_scores(x[x > -math.inf])


def merge_scores(values: Tensor, counts: Tensor | None = None) -> ScoreCounts:
    """Sort scores and add up the counts of equal ones."""
    if counts is None:
        ascending = torch.from_numpy(np.sort(values.numpy())) if is_plain(values) else values.sort().values
        unique, number = ascending.flip(0).unique_consecutive(return_counts=True)
        return ScoreCounts(unique, number)
    ordered, order = values.sort(descending=True)
    unique, inverse = ordered.unique_consecutive(return_inverse=True)
    return ScoreCounts(unique, counts.new_zeros(len(unique)).index_add(0, inverse, counts[order]))


def _kth_largest(x: Tensor, k: int) -> Tensor:
    if is_plain(x):
        return torch.as_tensor(np.partition(x.numpy(), len(x) - k)[len(x) - k])
    return x.kthvalue(len(x) - k + 1).values

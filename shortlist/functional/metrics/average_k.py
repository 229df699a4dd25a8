"""Average-K accuracy: sets of all sizes, K labels on average, from one threshold on all scores."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.metrics.accuracy import AVERAGES, Average, ClassHits, averaged, one_class_rows
from shortlist.functional.metrics.labels import Labelled, check_choice, labelled, refuse_nan
from shortlist.functional.options import check_number
from shortlist.tensors import is_plain, solvable


class Cut(NamedTuple):
    """A threshold; a label of just that score is in the set with chance ``share``."""

    threshold: float
    share: float

    def chance(self, scores: Tensor) -> Tensor:
        """The chance of each score to be in the set, float64; never for ``-inf``."""
        x = solvable(scores)  # compared in its own precision, so that a float32 score of 0.3 meets a threshold of 0.3
        chance = (x > self.threshold).double() + self.share * (x == self.threshold).double()
        return chance.masked_fill(x == -math.inf, 0)


class Counted(NamedTuple):
    """Scores in descending order, each once, with how often it occurred."""

    values: Tensor  # (m,) float32 or float64
    counts: Tensor  # (m,) int64

    def cut(self, size: int) -> Cut:
        """The threshold that leaves ``size`` of all scores in the sets."""
        total = self.counts.cumsum(0)
        if size == 0 or len(total) == 0:
            return Cut(math.inf, 0.0)
        if size > int(total[-1]):
            return Cut(-math.inf, 0.0)
        place = int(torch.searchsorted(total, size))
        count = int(self.counts[place])
        return Cut(float(self.values[place]), (size - int(total[place]) + count) / count)

    def largest(self, size: int) -> Counted:
        """Those that can be among the ``size`` largest; what ties with the last of them stays."""
        kept = self.counts.cumsum(0) - self.counts < size
        return Counted(self.values[kept], self.counts[kept])


def average_k_accuracy(
    scores: Tensor,
    target: Tensor,
    *,
    k: float | None = None,
    threshold: float | None = None,
    average: Average = "micro",
    mask: Tensor | None = None,
) -> Tensor:
    r"""How often the true class is in a set of all labels above one threshold.

    .. math:: \frac1B \sum_i [\,s_{i y_i} \ge \lambda\,], \qquad \lambda \text{ such that }
              \textstyle\sum_{ij} [\,s_{ij} \ge \lambda\,] = \lfloor k B \rfloor

    With ``k`` the threshold is found on these very scores; where several scores equal it, each is in with the same
    chance, so that exactly ⌊k·B⌋ labels are in on average. With ``threshold`` it was fitted elsewhere.

    Args:
        scores: ``(B, n)``, floating, comparable between rows (probabilities, or logits if they were trained to be);
            ``-inf`` marks an absent label, which is in no set.
        target: one class per row, in any form of :mod:`shortlist.targets`; rows without a class are left out of
            everything, and unknown labels are in no set.
        k: how many labels on average, in [0, n]; may be fractional, and is taken as it is written: 0.29 labels for
            each of 100 rows are 29.
        threshold: a number instead of ``k``.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur; the threshold is the same for all.
        mask: ``(B,)`` bool, False where a row does not count.

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
    data = labelled(scores, target, mask)
    refuse_nan(data.scores)
    rows, classes, missing = one_class_rows(data)
    if k is None:
        limit = Cut(float(threshold), 1.0)  # pyright: ignore[reportArgumentType]
    else:
        size = set_budget(check_k(k, scores.shape[-1]), len(rows))
        limit = counted_scores(data, rows, largest=size).cut(size)
    chance = limit.chance(data.scores[rows, classes]).unsqueeze(-1)
    return averaged(ClassHits(classes, chance, missing), scores.shape[-1], average).squeeze(-1)


def check_one_rule(k: float | None, threshold: float | None) -> None:
    """Exactly one of ``k`` and ``threshold`` must say what is predicted."""
    if (k is None) == (threshold is None):
        raise ValueError(f"one of `k` and `threshold` must be given; got k={k} and threshold={threshold}.")
    if threshold is not None:
        check_number("threshold", threshold)


def check_k(k: float, n: int) -> float:
    """``k`` as a number in [0, n]."""
    if not 0 <= check_number("k", k) <= n:
        raise ValueError(f"`k` must lie in [0, {n}]; got {k}.")
    return k


def set_budget(k: float, rows: int) -> int:
    """⌊k · rows⌋ with ``k`` as it is written: in binary, 0.29 · 100 is a little less than 29."""
    return math.floor(Fraction(str(k)) * rows)


def counted_scores(data: Labelled, rows: Tensor, *, largest: int | None = None) -> Counted:
    """The scores of ``rows``; if ``largest`` is given, only those that can be among that many largest."""
    x = solvable(data.scores if len(rows) == len(data.scores) else data.scores[rows]).reshape(-1)
    if largest is not None and largest < len(x):
        x = x[x >= _kth_largest(x, max(largest, 1))]
    return merged(x[x > -math.inf])


def merged(values: Tensor, counts: Tensor | None = None) -> Counted:
    """Bring scores into order and add up the counts of equal ones."""
    if counts is None:
        ascending = torch.from_numpy(np.sort(values.numpy())) if is_plain(values) else values.sort().values
        unique, how_often = ascending.flip(0).unique_consecutive(return_counts=True)
        return Counted(unique, how_often)
    ordered, order = values.sort(descending=True)
    unique, inverse = ordered.unique_consecutive(return_inverse=True)
    return Counted(unique, counts.new_zeros(len(unique)).index_add(0, inverse, counts[order]))


def _kth_largest(x: Tensor, k: int) -> Tensor:
    if is_plain(x):
        return torch.as_tensor(np.partition(x.numpy(), len(x) - k)[len(x) - k])
    return x.kthvalue(len(x) - k + 1).values

"""Top-k accuracy: how often the one true class is among the k best, over rows or over classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.labels import Labelled, check_choice, check_ks, labelled, like_k
from shortlist.functional.metrics.places import hits
from shortlist.tensors import holds

Average = Literal["micro", "macro"]
AVERAGES = ("micro", "macro")


class ClassHits(NamedTuple):
    """Rows that have a class: which one, and whether (how probably, among ties) it was in the set."""

    classes: Tensor  # (m,) int64
    hits: Tensor  # (m, len(ks)) float64
    rows_without_positives: Tensor  # () int64

    def by_class(self, num_labels: int) -> tuple[Tensor, Tensor]:
        """Sums of hits ``(n, len(ks))`` and numbers of rows ``(n,)`` for each class."""
        total = torch.bincount(self.classes, minlength=num_labels)
        return self.hits.new_zeros(num_labels, self.hits.shape[-1]).index_add(0, self.classes, self.hits), total


def topk_accuracy(
    scores: Tensor,
    target: Tensor,
    k: int | Sequence[int],
    *,
    average: Average = "micro",
    mask: Tensor | None = None,
) -> Tensor:
    r"""How often the true class is among the ``k`` best.

    .. math:: \text{micro} = \frac1B \sum_i [\,y_i \in \text{top}_k(s_i)\,], \qquad
              \text{macro} = \frac1{|C|} \sum_{c \in C} \text{accuracy on the rows of class } c

    with C the classes that occur in ``target``. A tie across place k counts by the chance of a random order, so a
    constant score has accuracy k/n.

    Args:
        scores: ``(B, n)``, floating; only their order matters, and ``-inf`` marks an absent label.
        target: one class per row, in any form of :mod:`shortlist.targets`; rows without a class are left out, and
            unknown labels leave the ranking.
        k: a whole number in [1, n], or a sequence of them.
        average: ``"micro"`` over rows, ``"macro"`` over the classes that occur.
        mask: ``(B,)`` bool, False where a row does not count.

    Returns:
        One float64 number, or ``(len(k),)`` for a sequence; NaN if no row has a class.

    Raises:
        ValueError: for a row with several positives (on the CPU, where looking is free), among others.

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
    found = class_hits(scores, target, check_ks(k), mask)
    return like_k(averaged(found, scores.shape[-1], average), k)


def class_hits(scores: Tensor, target: Tensor, ks: list[int], mask: Tensor | None = None) -> ClassHits:
    """Expected hits at all ``ks`` of the rows that count and have a class."""
    data = labelled(scores, target, mask)
    at_k = hits(data, check_ks(ks, scores.shape[-1]))
    rows, classes, missing = one_class_rows(data)
    return ClassHits(classes, at_k[rows], missing)


def one_class_rows(data: Labelled) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that count and have a class, their classes, and how many rows that count have none."""
    positives = data.positives
    several = (positives > 1) & data.counted
    if holds(several.any()):
        row = int(several.nonzero()[0])
        raise ValueError(f"`target` row {row}: one label must be positive for accuracy; got {int(positives[row])}.")
    chosen = data.counted[data.rows]
    return data.rows[chosen], data.labels[chosen], (data.counted & (positives == 0)).sum()


def averaged(found: ClassHits, num_labels: int, average: Average) -> Tensor:
    """Mean over rows, or over the classes that occur, ``(len(ks),)``."""
    if average == "micro":
        return found.hits.mean(0)
    return macro_mean(*found.by_class(num_labels))


def macro_mean(sums: Tensor, total: Tensor) -> Tensor:
    """Mean over the classes with ``total > 0`` of ``sums / total``: ``(n, ...)`` and ``(n,)`` to ``(...)``."""
    occurs = total > 0
    return (sums[occurs] / total[occurs].reshape(-1, *[1] * (sums.ndim - 1))).mean(0)

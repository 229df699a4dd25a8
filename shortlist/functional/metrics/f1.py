"""Micro and macro F1, where labels are predicted by a threshold or as the k best of each row."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.average_precision import mean_of_known
from shortlist.functional.metrics.ranking import cutoff
from shortlist.functional.metrics.scored_labels import (
    ScoredLabels,
    check_choice,
    check_ks,
    check_one_rule,
    read_scored_labels,
    refuse_nan,
)
from shortlist.label_axis.axis import row_blocks
from shortlist.labels import LabelsLike, Numbers
from shortlist.tensors import may_look, solvable

_PARTS = 1 << 40
"""Probabilities on an accelerator are counted in integers of this part, exactly and without wide float64 tensors."""


class F1Counts(NamedTuple):
    """Counts per label over known entries, ``(n,)`` float64, which add up over batches."""

    hits: Tensor  # predicted and positive
    predicted: Tensor
    positives: Tensor


def f1_counts(
    scores: Numbers,
    target: LabelsLike,
    *,
    threshold: Numbers | None = None,
    k: int | None = None,
    mask: Numbers | None = None,
) -> F1Counts:
    """Count the hits, predictions and positives of each label, which determine F1.

    Args:
        scores: ``(B, n)``, floating; ``-inf`` marks an absent label, which is never predicted.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are not counted, and with ``k`` they are
            left out of the ranking.
        threshold: labels that score at least this are predicted; a number, or ``(n,)`` with one per label.
        k: instead of ``threshold``: the k best labels of each row are predicted; a tie across rank k counts by its
            probability under a random order.
        mask: ``(B,)`` bool, False for rows that do not count.

    Returns:
        `F1Counts`; rows without positives count their false positives.

    Example:
        >>> scores = torch.tensor([[0.9, 0.6, 0.1], [0.2, 0.8, 0.7]])
        >>> f1_counts(scores, torch.tensor([[0, -1], [1, 2]]), threshold=0.5).hits
        tensor([1., 1., 1.], dtype=torch.float64)
    """
    threshold = check_one_rule(k, threshold)
    data = read_scored_labels(scores, target, mask)
    refuse_nan(data.scores)
    x, n = solvable(data.scores), data.num_labels
    if k is None:
        edge, share = check_thresholds(threshold, x), None
    else:
        edge, share = (column.unsqueeze(-1) for column in cutoff(x, check_ks(k, n)[0]))
    predicted = _predicted(x, edge, share, None if mask is None else data.counted.unsqueeze(-1))
    return F1Counts(_hits(data, x, edge, share), predicted, _per_label(data, torch.ones_like(data.rows).double()))


def _predicted(x: Tensor, edge: Tensor, share: Tensor | None, counted: Tensor | None) -> Tensor:
    """How often each label is predicted, in expectation, over the rows that count: ``(n,)``."""
    if not may_look(x):
        inside = x >= edge.clamp(min=torch.finfo(x.dtype).min) if share is None else x > edge
        predicted = (inside if counted is None else inside & counted).sum(0).double()
        if share is None:
            return predicted
        parts = (share * _PARTS).round().long() * (1 if counted is None else counted)
        return predicted + torch.where(x == edge, parts, 0).sum(0).double() / _PARTS
    predicted = torch.zeros(x.shape[-1], dtype=torch.float64, device=x.device)
    for block in row_blocks(x) if x.numel() else ():
        predictions = _probability(
            x[block], edge if share is None else edge[block], None if share is None else share[block]
        )
        predicted += (predictions if counted is None else predictions * counted[block]).sum(0, dtype=torch.float64)
    return predicted


def f1_score(
    scores: Numbers,
    target: LabelsLike,
    *,
    threshold: Numbers | None = None,
    k: int | None = None,
    average: Literal["micro", "macro", "none"] = "micro",
    mask: Numbers | None = None,
) -> Tensor:
    r"""Harmonic mean of precision and recall of predicted labels.

    .. math:: F_1 = \frac{2 \cdot \text{hits}}{\text{predicted} + \text{positives}}

    With ``k`` and ties, this is the F1 of the expected counts.

    Args:
        scores, target, threshold, k, mask: as for :func:`f1_counts`.
        average: ``"micro"`` adds the counts of all labels, ``"macro"`` is the mean over the labels that occur in
            ``target``, ``"none"`` gives one value per label, NaN for those that do not occur.

    Returns:
        Float64: one number, or ``(n,)`` for ``"none"``; NaN if there are no positives (micro: and no predictions).

    Example:
        >>> scores = torch.tensor([[0.9, 0.6, 0.1], [0.2, 0.8, 0.7]])
        >>> f1_score(scores, torch.tensor([[0, -1], [1, 2]]), threshold=0.5)
        tensor(0.8571, dtype=torch.float64)
        >>> f1_score(scores, torch.tensor([[0, -1], [1, 2]]), k=1, average="macro")
        tensor(0.6667, dtype=torch.float64)

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck", 2024, appendix J.
    """
    check_choice("average", average, ("micro", "macro", "none"))
    counts = f1_counts(scores, target, threshold=threshold, k=k, mask=mask)
    if average == "micro":
        return f1_of(*(count.sum() for count in counts))
    values = f1_of(*counts).masked_fill(counts.positives == 0, math.nan)
    return values if average == "none" else mean_of_known(values)


def f1_of(hits: Tensor, predicted: Tensor, positives: Tensor) -> Tensor:
    """``2 hits / (predicted + positives)``; NaN if both are 0."""
    return 2 * hits / (predicted + positives)


def check_thresholds(threshold: float | Tensor | None, x: Tensor) -> Tensor:
    """``threshold`` as ``(1,)`` or ``(n,)`` in the precision of ``x``."""
    edge = torch.as_tensor(threshold).to(x)
    n, shape = x.shape[-1], tuple(edge.shape)
    if shape not in ((), (n,)):
        raise ValueError(f"`threshold` must be a number or have one value per label, shape ({n},); got {shape}.")
    return edge.reshape(-1)


def _probability(x: Tensor, edge: Tensor, share: Tensor | None) -> Tensor:
    """The probability that each label is predicted."""
    if share is None:
        return ((x >= edge) & (x > -math.inf)).double()
    return (x > edge).double() + share * (x == edge)


def _hits(data: ScoredLabels, x: Tensor, edge: Tensor, share: Tensor | None) -> Tensor:
    rows, labels, true = data.rows, data.labels, solvable(data.true_scores())
    if share is None:
        predicted = _probability(true, edge.expand(x.shape[-1])[labels], None)
    else:
        predicted = _probability(true, edge.squeeze(-1)[rows], share.squeeze(-1)[rows])
    return _per_label(data, predicted)


def _per_label(data: ScoredLabels, values: Tensor) -> Tensor:
    """Sum of one value per positive over the rows that count, ``(n,)``."""
    counted = data.counted[data.rows] if data.present is None else data.counted[data.rows] & data.present
    return values.new_zeros(data.num_labels).index_add(0, data.labels, values * counted)

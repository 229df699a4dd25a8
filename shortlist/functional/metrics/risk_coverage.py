"""Error of the answers that are given when the least confident rows get none: the risk-coverage curve and its area."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.calibration import top_answers
from shortlist.functional.metrics.scored_labels import read_scored_labels, refuse_nan
from shortlist.labels import LabelsLike, Numbers, read_numbers, read_scores


class RiskCoverage(NamedTuple):
    """Risk after answering the most confident rows: one entry for each number of answers, ``(B,)`` float64."""

    coverage: Tensor  # share of rows with an answer: 1 / B, 2 / B, ..., 1
    risk: Tensor  # expected error of these answers, if equal confidences are in random order


def risk_coverage(confidence: Numbers, errors: Numbers) -> RiskCoverage:
    """The risk-coverage curve of any answers, exact with ties.

    Args:
        confidence: ``(B,)``, floating; rows with a high one are answered first. ``-inf`` is last.
        errors: ``(B,)``, how wrong each answer is: bool, or a number such as the share of true labels outside a set.

    Example:
        >>> risk_coverage(torch.tensor([0.9, 0.8, 0.8, 0.5]), torch.tensor([False, True, False, True])).risk
        tensor([0.0000, 0.2500, 0.3333, 0.5000], dtype=torch.float64)

    References:
        El-Yaniv, Wiener, "On the foundations of noise-free selective classification", 2010.
    """
    confidence, errors = read_scores(confidence, name="confidence"), read_numbers(errors, name="errors").double()
    if confidence.ndim != 1 or confidence.shape != errors.shape:
        shapes = f"{tuple(confidence.shape)} and {tuple(errors.shape)}"
        raise ValueError(f"`confidence` and `errors` must be vectors of the same length; got {shapes}.")
    if not len(confidence):
        return RiskCoverage(errors, errors)
    order = confidence.argsort(descending=True)
    ordered, errors = confidence[order], errors.to(order.device)[order]
    # In random order, each of the rows with one confidence has their mean error.
    group = torch.cat([ordered.new_zeros(1, dtype=torch.int64), (ordered[1:] != ordered[:-1]).cumsum(0)])
    sums = torch.zeros_like(errors).index_add(0, group, errors)
    counts = torch.zeros_like(errors).index_add(0, group, torch.ones_like(errors))
    answers = torch.arange(1, len(errors) + 1, dtype=torch.float64, device=errors.device)
    return RiskCoverage(answers / len(errors), (sums / counts.clamp(min=1))[group].cumsum(0) / answers)


def area_under_risk_coverage(scores: Numbers, target: LabelsLike, *, mask: Numbers | None = None) -> Tensor:
    r"""AURC of top-1 answers: the error of the answers given, averaged over all numbers of answers.

    .. math:: \text{AURC} = \frac1B \sum_{m=1}^{B} \frac1m \sum_{i \in \text{the } m \text{ most confident}} e_i

    The confidence of a row is its best score, and its answer is wrong if the best label is not a positive. Equal scores
    count by their expectation in random order. For answers that are sets, average `risk_coverage` instead.

    Args:
        scores: ``(B, n)``, floating, comparable between rows, as probabilities are; ``-inf`` marks an absent label.
        target: labels in any form of :mod:`shortlist.targets`; rows without a known positive are left out.
        mask: ``(B,)`` bool, False for rows that do not count.

    Returns:
        One number, float64; NaN without rows.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
        >>> area_under_risk_coverage(scores, torch.tensor([0, 0, 0]))  # the risks are 0, 1/2 and 1/3
        tensor(0.2778, dtype=torch.float64)

    References:
        Geifman, Uziel, El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers", 2019.
    """
    return risk_coverage(*top_errors(scores, target, mask)).risk.mean()


def top_errors(scores: Numbers, target: LabelsLike, mask: Numbers | None) -> tuple[Tensor, Tensor]:
    """Confidence and error of the top-1 answer of each row that counts."""
    data = read_scored_labels(scores, target, mask)
    refuse_nan(data.scores)
    best, right = top_answers(data)
    counted = data.counted & (data.positives > 0)
    return best[counted], 1 - right[counted].double()

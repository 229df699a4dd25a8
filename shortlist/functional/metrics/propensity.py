"""Propensity-scored precision at k: rare labels are missing from the data more often, so they count more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.ranking import at_ranks, rank_gains
from shortlist.functional.metrics.scored_labels import ScoredLabels, check_ks, like_k, read_scored_labels
from shortlist.labels import LabelsLike, Numbers, read_numbers, read_scores
from shortlist.tensors import check_number, counts_of, holds, whole_k


class PropensitySums(NamedTuple):
    """Sums over rows with a positive, each divided by k, which add up over batches."""

    gained: Tensor  # (len(ks),) float64
    best: Tensor  # (len(ks),) float64: what the best order would gain
    rows: Tensor  # () int64
    rows_without_positives: Tensor  # () int64


def propensities(counts: Numbers, *, num_rows: int, a: float = 0.55, b: float = 1.5) -> Tensor:
    r"""Estimate the probability that a true label is recorded in the data, from how often it occurs there.

    .. math:: p_l = \frac{1}{1 + C\, (N_l + b)^{-a}}, \qquad C = (\log N - 1)\,(b + 1)^a

    Args:
        counts: ``(n,)``, the number of training examples with each label.
        num_rows: N, the number of training examples; at least 3, so that C is positive.
        a: at least 0; 0.55 in general, 0.5 for Wikipedia articles, 0.6 for Amazon products.
        b: at least 0; 1.5 in general, 0.4 for Wikipedia articles, 2.6 for Amazon products.

    Returns:
        ``(n,)`` float64 in (0, 1), increasing in the counts.

    Example:
        >>> propensities(torch.tensor([1000, 10, 0]), num_rows=5000)
        tensor([0.7823, 0.2354, 0.0913], dtype=torch.float64)

    References:
        Jain, Prabhu, Varma, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing
        Label Applications", 2016.
    """
    whole_k(num_rows, 1 << 62, lowest=3, name="num_rows")
    a, b = check_number("a", a, at_least=0), check_number("b", b, at_least=0)
    counts = read_numbers(counts, name="counts")
    if counts.ndim != 1:
        raise ValueError(f"`counts` must have one value per label; got shape {tuple(counts.shape)}.")
    if holds((counts < 0).any()):
        raise ValueError(f"`counts` must be at least 0; got {counts.min().item()}.")
    scale = (math.log(num_rows) - 1) * (b + 1) ** a
    return 1 / (1 + scale * (counts.double() + b).pow(-a))


def propensity_scored_precision_at_k(
    scores: Numbers,
    target: LabelsLike,
    propensities: Numbers,
    k: int | Sequence[int],
    *,
    normalized: bool = True,
    mask: Numbers | None = None,
) -> Tensor:
    r"""Precision at ``k`` with each hit weighted by the inverse propensity of its label.

    .. math:: \text{PSP}@k = \frac1k \sum_{j \in Y \cap \text{top}_k(s)} \frac{1}{p_j}

    If the propensities are correct, this is an unbiased estimate of precision on all true labels. It can exceed 1, so
    ``normalized`` divides the sum over all rows by the largest that any ranking could achieve. Ties count by their
    expected value; see :func:`hits_at_k`. Rows without a (known) positive are left out.

    Args:
        scores: ``(B, n)``, floating; only their order matters, and ``-inf`` marks an absent label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out of the ranking.
        propensities: ``(n,)`` floating, in (0, 1].
        k: an integer in [1, n], or a sequence of them.
        normalized: whether to divide by the best possible value.
        mask: ``(B,)`` bool, False for rows that do not count.

    Returns:
        One float64 number, or ``(len(k),)`` for a sequence; NaN if no row has a positive.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
        >>> target = torch.tensor([[0, 1], [1, -1]])
        >>> propensity_scored_precision_at_k(scores, target, torch.tensor([0.5, 0.25, 1.0]), 1)
        tensor(0.7500, dtype=torch.float64)

    References:
        Jain, Prabhu, Varma, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing
        Label Applications", 2016.
    """
    sums = propensity_sums(scores, target, propensities, check_ks(k), mask)
    return like_k(sums.gained / (sums.best if normalized else sums.rows), k)


def propensity_sums(
    scores: Numbers, target: LabelsLike, propensities: Numbers, ks: list[int], mask: Numbers | None = None
) -> PropensitySums:
    """Sums of the gains and of the best possible gains at all ``ks``."""
    data = read_scored_labels(scores, target, mask)
    ks = check_ks(ks, data.num_labels)
    gains = 1 / check_propensities(propensities, data.num_labels).to(data.scores.device).double()
    counted = data.counted & (data.positives > 0)
    ranks = torch.arange(1, max(ks) + 1, device=gains.device)
    found = (at_ranks(rank_gains(data, max(ks), gains).cumsum(-1), ks), _best(data, gains, at_ranks(ranks, ks)))
    gained, best = ((values * counted.unsqueeze(-1)).sum(0) / at_ranks(ranks, ks) for values in found)
    return PropensitySums(gained, best, counted.sum(), (data.counted & ~counted).sum())


def check_propensities(propensities: Numbers, num_labels: int | None = None) -> Tensor:
    """Check that ``propensities`` is ``(n,)`` and, where that needs no synchronization, in (0, 1]."""
    propensities = read_scores(propensities, name="propensities")
    if propensities.ndim != 1 or num_labels not in (None, len(propensities)):
        wanted = "n" if num_labels is None else num_labels
        raise ValueError(
            f"`propensities` must have one value per label, shape ({wanted},); got {tuple(propensities.shape)}."
        )
    wrong = ~((propensities > 0) & (propensities <= 1))
    if holds(wrong.any()):
        raise ValueError(f"`propensities` must lie in (0, 1]; got {propensities[wrong][0].item()}.")
    return propensities


def _best(data: ScoredLabels, gains: Tensor, at: Tensor) -> Tensor:
    """Sum of the k largest gains among the positives of each row, ``(B, len(ks))``."""
    worth = gains[data.labels] if data.present is None else gains[data.labels] * data.present
    worth, order = worth.sort(descending=True, stable=True)
    rows = data.rows[order]
    by_row = rows.argsort(stable=True)
    worth, rows = worth[by_row], rows[by_row]
    entries = counts_of(data.rows, len(data.scores))
    first = entries.cumsum(0) - entries
    rank = torch.arange(len(rows), device=rows.device) - first[rows]
    within = worth.unsqueeze(-1) * (rank.unsqueeze(-1) < at)
    return within.new_zeros(len(data.scores), len(at)).index_add(0, rows, within)

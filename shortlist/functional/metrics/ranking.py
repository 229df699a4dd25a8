"""Precision, recall, F1 and nDCG at k, all from one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.labels import check_ks, labelled, like_k
from shortlist.functional.metrics.places import place_gains


class RankingSums(NamedTuple):
    """Sums over rows with a positive; any number of batches add up."""

    precision: Tensor  # (len(ks),) float64
    recall: Tensor  # (len(ks),) float64
    ndcg: Tensor  # (len(ks),) float64
    rows: Tensor  # () int64: how many rows have a positive
    rows_without_positives: Tensor  # () int64: how many were left out for having none


def ranking_sums(scores: Tensor, target: Tensor, ks: list[int], mask: Tensor | None = None) -> RankingSums:
    """Sums of the row values of precision, recall and nDCG at all ``ks``."""
    data = labelled(scores, target, mask)
    ks = check_ks(ks, scores.shape[-1])
    gains, positives = place_gains(data, max(ks)), data.positives
    counted = data.counted & (positives > 0)
    at = torch.tensor(ks, device=scores.device)
    hits = gains.cumsum(-1)[:, at - 1]
    discount = 1 / torch.arange(2, max(ks) + 2, dtype=torch.float64, device=scores.device).log2()
    ideal = discount.cumsum(0)[torch.minimum(positives.clamp(min=1).unsqueeze(-1), at) - 1]
    values = torch.stack([hits / at, hits / positives.clamp(min=1).unsqueeze(-1), _dcg(gains, discount, at) / ideal])
    precision, recall, ndcg = (values * counted.unsqueeze(-1)).sum(1)
    return RankingSums(precision, recall, ndcg, counted.sum(), (data.counted & ~counted).sum())


def harmonic_mean(precision: Tensor, recall: Tensor) -> Tensor:
    """``2 p r / (p + r)``, and 0 where both are 0."""
    total = precision + recall
    return torch.where(total == 0, 0, 2 * precision * recall / total.masked_fill(total == 0, 1))


def precision_at_k(scores: Tensor, target: Tensor, k: int | Sequence[int], *, mask: Tensor | None = None) -> Tensor:
    r"""Share of positives among the ``k`` best labels of a row, averaged over rows.

    .. math:: P@k = \frac{1}{k}\, |Y \cap \text{top}_k(s)|

    Always divided by k, also where a row has fewer than k labels left. Ties count by expectation, see
    :func:`hits_at_k`. Rows without a (known) positive are left out.

    Args:
        scores: ``(B, n)``, floating; only their order matters, and ``-inf`` marks an absent label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out of the ranking.
        k: a whole number in [1, n], or a sequence of them.
        mask: ``(B,)`` bool, False where a row does not count.

    Returns:
        One float64 number, or ``(len(k),)`` for a sequence; NaN if no row has a positive.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
        >>> precision_at_k(scores, torch.tensor([[0, 1], [1, -1]]), (1, 2))
        tensor([1.0000, 0.5000], dtype=torch.float64)

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck", 2024, appendix J.
    """
    sums = ranking_sums(scores, target, check_ks(k), mask)
    return like_k(sums.precision / sums.rows, k)


def recall_at_k(scores: Tensor, target: Tensor, k: int | Sequence[int], *, mask: Tensor | None = None) -> Tensor:
    r"""Share of the positives of a row that are among its ``k`` best labels, averaged over rows.

    .. math:: R@k = \frac{1}{|Y|}\, |Y \cap \text{top}_k(s)|

    Args:
        scores, target, k, mask: as for :func:`precision_at_k`.

    Returns:
        As :func:`precision_at_k`.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
        >>> recall_at_k(scores, torch.tensor([[0, 1], [1, -1]]), 2)
        tensor(0.7500, dtype=torch.float64)

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck", 2024, appendix J.
    """
    sums = ranking_sums(scores, target, check_ks(k), mask)
    return like_k(sums.recall / sums.rows, k)


def f1_at_k(scores: Tensor, target: Tensor, k: int | Sequence[int], *, mask: Tensor | None = None) -> Tensor:
    r"""Harmonic mean of the averages of precision and recall at ``k``.

    .. math:: F_1@k = 2\, \frac{P@k \cdot R@k}{P@k + R@k}

    The averages over rows come first, as in the reference; the mean of the F1 of single rows is another number.

    Args:
        scores, target, k, mask: as for :func:`precision_at_k`.

    Returns:
        As :func:`precision_at_k`; 0 if no positive is found.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
        >>> f1_at_k(scores, torch.tensor([[0, 1], [1, -1]]), 2)
        tensor(0.6000, dtype=torch.float64)

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck", 2024, eq. 29.
    """
    sums = ranking_sums(scores, target, check_ks(k), mask)
    return like_k(harmonic_mean(sums.precision / sums.rows, sums.recall / sums.rows), k)


def ndcg_at_k(scores: Tensor, target: Tensor, k: int | Sequence[int], *, mask: Tensor | None = None) -> Tensor:
    r"""Discounted gain of the ``k`` best labels over that of the best possible order, averaged over rows.

    .. math:: \text{nDCG}@k = \frac{\sum_{i=1}^{k} [\,j_i \in Y\,] / \log_2(i + 1)}
              {\sum_{i=1}^{\min(k, |Y|)} 1 / \log_2(i + 1)}

    with :math:`j_i` the label at place i. Labels that tie share the discounts of their places.

    Args:
        scores, target, k, mask: as for :func:`precision_at_k`.

    Returns:
        As :func:`precision_at_k`.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
        >>> ndcg_at_k(scores, torch.tensor([[0, 1], [2, -1]]), (1, 3))
        tensor([0.5000, 0.7753], dtype=torch.float64)

    References:
        Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002; McSherry, Najork, "Computing
        information retrieval performance measures efficiently in the presence of tied scores", 2008.
    """
    sums = ranking_sums(scores, target, check_ks(k), mask)
    return like_k(sums.ndcg / sums.rows, k)


def _dcg(gains: Tensor, discount: Tensor, at: Tensor) -> Tensor:
    return (gains * discount).cumsum(-1)[:, at - 1]

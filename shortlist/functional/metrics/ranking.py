"""Precision, recall, F1 and nDCG at k, from one pass over the ranking with exact ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.scored_labels import ScoredLabels, check_ks, like_k, read_scored_labels
from shortlist.label_axis.axis import row_blocks
from shortlist.labels import LabelsLike, Numbers
from shortlist.tensors import may_look

_GROUP = 16
"""Number of labels per group in the search for the largest scores."""


def hits_at_k(scores: Numbers, target: LabelsLike, k: int | Sequence[int]) -> Tensor:
    r"""Number of positives among the ``k`` best labels of each row, in expectation over the order of ties.

    .. math:: h_k = \sum_{j \in Y} \min\Bigl(1, \Bigl(\frac{k - a_j}{g_j}\Bigr)_+\Bigr)

    where :math:`a_j` labels score above label j and :math:`g_j` labels score the same, including j itself. Without ties
    these are integers. One pass for the largest k yields the values for all k.

    Args:
        scores: ``(B, n)``, floating; only their order matters. ``-inf`` marks an absent label: it is never among the
            best, even if fewer than k other labels are left.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out of the ranking.
        k: an integer in [1, n], or a sequence of them.

    Returns:
        ``(B,)`` float64 for one k, ``(B, len(k))`` for a sequence.

    Raises:
        ValueError: if the scores contain a NaN, naming its row (checked only on the CPU, where reading values needs no
            synchronization).

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
        >>> hits_at_k(scores, torch.tensor([[0, 1], [2, -1]]), (1, 2))
        tensor([[1.0000, 1.0000],
                [0.3333, 0.6667]], dtype=torch.float64)
    """
    data = read_scored_labels(scores, target)
    return like_k(expected_hits(data, check_ks(k, data.num_labels)), k)


def expected_hits(data: ScoredLabels, ks: list[int]) -> Tensor:
    """Expected hits ``(B, len(ks))``."""
    return at_ranks(rank_gains(data, max(ks)).cumsum(-1), ks)


def at_ranks(values: Tensor, ks: list[int]) -> Tensor:
    """The columns ``ks`` of values for the ranks from 1, ``(..., len(ks))``; without an index, a copy to the device."""
    return torch.stack([values[..., k - 1] for k in ks], -1)


def rank_gains(data: ScoredLabels, k: int, gains: Tensor | None = None) -> Tensor:
    """Expected gain of the label at each of the first ``k`` ranks, ``(B, k)`` float64; tied labels share their gains.

    Args:
        data: the rows.
        k: number of ranks.
        gains: ``(n,)`` float64, what each label is worth if positive; 1 if None.
    """
    x = data.scores
    # One rank more shows whether a tie crosses rank k.
    values, labels = _largest(x, min(k + 1, x.shape[-1]))
    if may_look(x) and values.numel() and bool((wrong := values[:, 0].isnan()).any()):  # topk puts NaN first
        raise ValueError(f"`scores` row {int(wrong.nonzero()[0])}: scores must not be NaN.")
    if not may_look(x):
        return _shared_in_all_rows(data, values, labels, k, gains)
    at = data.gain_of(labels, gains).masked_fill(values == -math.inf, 0)
    tied = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -math.inf)).any(-1)
    rows = tied.nonzero().squeeze(-1)
    if len(rows):
        at[rows] = _shared(data, rows, values[rows], at[rows], k, gains)
    return at[:, :k]


def cutoff(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The score at rank ``k``, and the probability that a label with exactly this score is among the k best.

    Both are ``(B,)``. Labels that score higher are always among the k best. The probability is 1 if no tie crosses rank
    k, and 0 if fewer than k labels are present.
    """
    values, _ = _largest(scores, min(k + 1, scores.shape[-1]))
    last = values[:, k - 1]
    share = torch.ones(len(scores), dtype=torch.float64, device=scores.device)
    if not may_look(scores):
        above = (values[:, :k] > last.unsqueeze(-1)).sum(-1)
        share = (k - above) / (scores == last.unsqueeze(-1)).sum(-1).double()
    elif values.shape[-1] > k:
        rows = ((values[:, k] == last) & (last > -math.inf)).nonzero().squeeze(-1)
        above = (values[rows, :k] > last[rows].unsqueeze(-1)).sum(-1)
        share[rows] = (k - above) / _equal_in_row(scores, rows, last[rows]).double()
    return last, share.masked_fill(last == -math.inf, 0)


def _largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and labels of the ``k`` largest of each row, in descending order.

    With labels in groups of 16, the k largest lie in the k groups with the largest maxima: for a label outside, those k
    maxima are at least as large. Finding the maxima is one fast pass and leaves few labels to select from.
    """
    n = x.shape[-1]
    if not may_look(x) or k * 64 > n or x.numel() == 0:
        values, labels = x.topk(k)
        return values, labels
    groups = n // _GROUP
    offsets, rest = groups * torch.arange(_GROUP), torch.arange(_GROUP * groups, n)
    found = []
    for block in row_blocks(x):
        part = x[block]
        maxima = part[:, : _GROUP * groups].unflatten(1, (_GROUP, groups)).amax(1)
        candidates = (maxima.topk(k, sorted=False).indices.unsqueeze(-1) + offsets).flatten(1)
        candidates = torch.cat([candidates, rest.expand(len(part), -1)], 1)
        values, slots = part.gather(1, candidates).topk(k)
        found.append((values, candidates.gather(1, slots)))
    values, labels = zip(*found, strict=True)
    return torch.cat(values), torch.cat(labels)


def _shared(data: ScoredLabels, rows: Tensor, values: Tensor, at: Tensor, k: int, gains: Tensor | None) -> Tensor:
    """``at`` with each gain replaced by its mean over equal scores."""
    group = torch.zeros_like(values, dtype=torch.int64)
    group[:, 1:] = (values[:, 1:] != values[:, :-1]).cumsum(-1)
    size = torch.zeros_like(at).scatter_add(-1, group, torch.ones_like(at))
    total = torch.zeros_like(at).scatter_add(-1, group, at)
    if values.shape[-1] > k:  # the last group of ties may extend past rank k
        is_open = (values[:, -1] == values[:, -2]) & (values[:, -1] > -math.inf)
        inner = is_open.nonzero().squeeze(-1)
        last = group[inner, -1]
        edge, cut_rows = values[inner, -1], rows[inner]
        size[inner, last] = _equal_in_row(data.scores, cut_rows, edge).double()
        total[inner, last] = _gain_of_equal(data, cut_rows, edge, gains)
    return (total / size.clamp(min=1)).gather(-1, group).masked_fill(values == -math.inf, 0)


def _shared_in_all_rows(data: ScoredLabels, values: Tensor, labels: Tensor, k: int, gains: Tensor | None) -> Tensor:
    """The same for all rows, without reading which of them tie: 1.5 passes over the scores beside the search."""
    edge, values, labels = values[:, -1:], values[:, :k], labels[:, :k]
    # Counts of few labels are exact in float32.
    at = data.are_positive(labels).float() if gains is None else data.gain_of(labels, gains)
    group = torch.nn.functional.pad(values[:, 1:] != values[:, :-1], (1, 0)).cumsum(-1)
    size, total = torch.zeros_like(at).scatter_add_(-1, group, at.new_ones(()).expand_as(at)), torch.zeros_like(at)
    mean = (total.scatter_add_(-1, group, at) / size.double()).gather(-1, group)
    # The last group of ties may extend past rank k, and holds all labels of score -inf.
    true = data.true_scores()
    own = (
        true == edge.squeeze(-1)[data.rows] if data.width is None else (true.reshape(len(edge), -1) == edge).reshape(-1)
    )
    last = data.row_sums(own if gains is None else gains[data.labels] * own).unsqueeze(-1)
    last = last / (data.scores == edge).sum(-1, keepdim=True).double()
    return torch.where(values == edge, last.masked_fill_(edge == -math.inf, 0), mean)


def _equal_in_row(scores: Tensor, rows: Tensor, edge: Tensor) -> Tensor:
    """The number of scores in each of ``rows`` that equal its ``edge``."""
    if len(rows) == 0:
        return rows
    blocks = row_blocks(scores[:1].expand(len(rows), -1))
    return torch.cat([(scores[rows[block]] == edge[block].unsqueeze(-1)).sum(-1) for block in blocks])


def _gain_of_equal(data: ScoredLabels, rows: Tensor, edge: Tensor, gains: Tensor | None) -> Tensor:
    """Total gain of the positives in each of ``rows`` whose score equals its ``edge``."""
    edges = torch.full_like(data.scores[:, 0], math.nan).index_put((rows,), edge)
    gain = torch.ones_like(data.rows, dtype=torch.float64) if gains is None else gains[data.labels]
    return data.row_sums(gain * (data.true_scores() == edges[data.rows]))[rows]


class RankingSums(NamedTuple):
    """Sums over rows with a positive, which add up over batches."""

    precision: Tensor  # (len(ks),) float64
    recall: Tensor  # (len(ks),) float64
    ndcg: Tensor  # (len(ks),) float64
    rows: Tensor  # () int64: rows with a positive
    rows_without_positives: Tensor  # () int64: rows left out


def ranking_sums(scores: Numbers, target: LabelsLike, ks: list[int], mask: Numbers | None = None) -> RankingSums:
    """Sums over rows of precision, recall and nDCG at all ``ks``."""
    data = read_scored_labels(scores, target, mask)
    ks = check_ks(ks, data.num_labels)
    gains, positives = rank_gains(data, max(ks)), data.positives
    counted = data.counted & (positives > 0)
    ranks = torch.arange(1, max(ks) + 1, device=gains.device)
    discount = 1 / (ranks + 1).double().log2()
    weight, least = counted.double(), positives.clamp(min=1)
    hits, recall = (torch.stack([weight, weight / least]) @ gains).cumsum(-1)
    precision, recall = (at_ranks(values, ks) for values in (hits / ranks, recall))
    most_gained = torch.nn.functional.pad(discount.cumsum(0), (1, 0))
    ideal = most_gained[torch.minimum(least.unsqueeze(-1), at_ranks(ranks, ks))]
    ndcg = weight @ (at_ranks((gains * discount).cumsum(-1), ks) / ideal)
    return RankingSums(precision, recall, ndcg, counted.sum(), (data.counted & ~counted).sum())


def harmonic_mean(precision: Tensor, recall: Tensor) -> Tensor:
    """``2 p r / (p + r)``, and 0 if both are 0."""
    total = precision + recall
    return torch.where(total == 0, 0, 2 * precision * recall / total.masked_fill(total == 0, 1))


def precision_at_k(
    scores: Numbers, target: LabelsLike, k: int | Sequence[int], *, mask: Numbers | None = None
) -> Tensor:
    r"""Share of positives among the ``k`` best labels of a row, averaged over rows.

    .. math:: P@k = \frac{1}{k}\, |Y \cap \text{top}_k(s)|

    The divisor is always k, even if a row has fewer than k positives. Ties count by their expected value; see
    :func:`hits_at_k`. Rows without a (known) positive are left out.

    Args:
        scores: ``(B, n)``, floating; only their order matters, and ``-inf`` marks an absent label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out of the ranking.
        k: an integer in [1, n], or a sequence of them.
        mask: ``(B,)`` bool, False for rows that do not count.

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


def recall_at_k(scores: Numbers, target: LabelsLike, k: int | Sequence[int], *, mask: Numbers | None = None) -> Tensor:
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


def f1_at_k(scores: Numbers, target: LabelsLike, k: int | Sequence[int], *, mask: Numbers | None = None) -> Tensor:
    r"""Harmonic mean of precision and recall at ``k``, each averaged over rows.

    .. math:: F_1@k = 2\, \frac{P@k \cdot R@k}{P@k + R@k}

    Averages are taken first, as in the reference; the mean of per-row F1 is a different number.

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


def ndcg_at_k(scores: Numbers, target: LabelsLike, k: int | Sequence[int], *, mask: Numbers | None = None) -> Tensor:
    r"""Discounted cumulative gain of the ``k`` best labels relative to the best possible order, averaged over rows.

    .. math:: \text{nDCG}@k = \frac{\sum_{i=1}^{k} [\,j_i \in Y\,] / \log_2(i + 1)}
              {\sum_{i=1}^{\min(k, |Y|)} 1 / \log_2(i + 1)}

    where :math:`j_i` is the label at rank i. Tied labels share the discounts of their ranks.

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

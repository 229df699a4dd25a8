"""The one pass behind all metrics at k: what stands at each place of the ranking, ties shared out exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist.functional.blocks import row_blocks
from shortlist.functional.metrics.labels import Labelled, check_ks, labelled, like_k
from shortlist.tensors import may_look

_GROUP = 16
"""Labels of a group when looking for the largest."""


def hits_at_k(scores: Tensor, target: Tensor, k: int | Sequence[int]) -> Tensor:
    r"""How many positives are among the ``k`` best labels of each row, in expectation over the order of ties.

    .. math:: h_k = \sum_{j \in Y} \min\Bigl(1, \Bigl(\frac{k - a_j}{g_j}\Bigr)_+\Bigr)

    with :math:`a_j` labels scored above label j and :math:`g_j` scored like it, itself included. Without ties these
    are whole numbers. All k come from one pass for the largest of them.

    Args:
        scores: ``(B, n)``, floating; only their order matters. ``-inf`` marks an absent label: it is never among the
            best, even where fewer than k others are left.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out of the ranking.
        k: a whole number in [1, n], or a sequence of them.

    Returns:
        ``(B,)`` float64 for one k, ``(B, len(k))`` for a sequence.

    Raises:
        ValueError: for a NaN among the scores (on the CPU, where looking is free), naming its row.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
        >>> hits_at_k(scores, torch.tensor([[0, 1], [2, -1]]), (1, 2))
        tensor([[1.0000, 1.0000],
                [0.3333, 0.6667]], dtype=torch.float64)
    """
    data = labelled(scores, target)
    ks = check_ks(k, scores.shape[-1])
    return like_k(hits(data, ks), k)


def hits(data: Labelled, ks: list[int]) -> Tensor:
    """Expected hits ``(B, len(ks))``."""
    return place_gains(data, max(ks)).cumsum(-1)[:, [k - 1 for k in ks]]


def place_gains(data: Labelled, k: int, gains: Tensor | None = None) -> Tensor:
    """Expected gain of the label at each of the first ``k`` places, ``(B, k)`` float64; labels that tie share theirs.

    Args:
        data: the rows.
        k: how many places.
        gains: ``(n,)`` float64, what a positive label is worth; 1 if None.
    """
    x = data.scores
    # One place more shows whether a tie runs across the last.
    values, places = _leading(x, min(k + 1, x.shape[-1]))
    if may_look(x) and values.numel() and bool((wrong := values[:, 0].isnan()).any()):  # topk puts NaN first
        raise ValueError(f"`scores` row {int(wrong.nonzero()[0])}: scores must not be NaN.")
    at = data.gain_at(places, gains).masked_fill(values == -math.inf, 0)
    tied = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -math.inf)).any(-1)
    rows = tied.nonzero().squeeze(-1)
    if len(rows):
        at[rows] = _shared(data, rows, values[rows], at[rows], k, gains)
    return at[:, :k]


def cut(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The score of the ``k``-th place, and the chance with which a label of just that score is among the k best.

    Both are ``(B,)``; labels scored above are in for certain. The chance is 1 where no tie runs across place k, and 0
    where place k is empty.
    """
    values, _ = _leading(scores, min(k + 1, scores.shape[-1]))
    last = values[:, k - 1]
    share = torch.ones(len(scores), dtype=torch.float64, device=scores.device)
    if values.shape[-1] > k:
        rows = ((values[:, k] == last) & (last > -math.inf)).nonzero().squeeze(-1)
        above = (values[rows, :k] > last[rows].unsqueeze(-1)).sum(-1)
        share[rows] = (k - above) / _equal_in_row(scores, rows, last[rows]).double()
    return last, share.masked_fill(last == -math.inf, 0)


def _leading(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and places of the ``k`` largest of each row, in descending order.

    With a group for every 16th label, the k largest lie in the k groups with the largest maxima: a label outside has
    k of these above it or equal. Finding the maxima is one quick pass, and little is left to select from.
    """
    n = x.shape[-1]
    if not may_look(x) or k * 64 > n or x.numel() == 0:
        values, places = x.topk(k)
        return values, places
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
    values, places = zip(*found, strict=True)
    return torch.cat(values), torch.cat(places)


def _shared(data: Labelled, rows: Tensor, values: Tensor, at: Tensor, k: int, gains: Tensor | None) -> Tensor:
    """``at`` with the mean of its group of equal scores in each place."""
    group = torch.zeros_like(values, dtype=torch.int64)
    group[:, 1:] = (values[:, 1:] != values[:, :-1]).cumsum(-1)
    size = torch.zeros_like(at).scatter_add(-1, group, torch.ones_like(at))
    total = torch.zeros_like(at).scatter_add(-1, group, at)
    if values.shape[-1] > k:  # so there may be more of the last group than is seen
        is_open = (values[:, -1] == values[:, -2]) & (values[:, -1] > -math.inf)
        inner = is_open.nonzero().squeeze(-1)
        last = group[inner, -1]
        edge, cut_rows = values[inner, -1], rows[inner]
        size[inner, last] = _equal_in_row(data.scores, cut_rows, edge).double()
        total[inner, last] = _gain_of_equal(data, cut_rows, edge, gains)
    return (total / size.clamp(min=1)).gather(-1, group).masked_fill(values == -math.inf, 0)


def _equal_in_row(scores: Tensor, rows: Tensor, edge: Tensor) -> Tensor:
    """How many scores of each of ``rows`` equal its ``edge``."""
    if len(rows) == 0:
        return rows
    blocks = row_blocks(scores[:1].expand(len(rows), -1))
    return torch.cat([(scores[rows[block]] == edge[block].unsqueeze(-1)).sum(-1) for block in blocks])


def _gain_of_equal(data: Labelled, rows: Tensor, edge: Tensor, gains: Tensor | None) -> Tensor:
    """Gain of the positives of each of ``rows`` whose score equals its ``edge``."""
    edges = torch.full_like(data.scores[:, 0], math.nan).index_put((rows,), edge)
    gain = torch.ones_like(data.rows, dtype=torch.float64) if gains is None else gains[data.labels]
    gain = gain * (data.true_scores() == edges[data.rows])
    return gain.new_zeros(len(data.scores)).index_add(0, data.rows, gain)[rows]

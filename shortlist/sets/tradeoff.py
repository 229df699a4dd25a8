"""Error as a function of average set size for three kinds of sets, in one pass over the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.functional.losses.violations import count_below
from shortlist.labels import Labels, LabelsLike, Numbers, read_scores, read_target
from shortlist.sets.average_k import AverageK, LargestScores
from shortlist.sets.conformal.split import PointwiseError
from shortlist.sets.rule import read_label_sets
from shortlist.sets.scores import Link


class Tradeoff(NamedTuple):
    """Error curves of one set of scores.

    Attributes:
        sizes: ``(m,)`` average set sizes.
        errors: for each rule, ``(m,)``: the share of missing true labels, averaged over rows.
    """

    sizes: Tensor
    errors: dict[str, Tensor]


@torch.no_grad()
def tradeoff(
    scores: Numbers,
    labels: LabelsLike,
    *,
    from_logits: bool,
    link: Link = "softmax",
    sizes: Sequence[float] | None = None,
) -> Tradeoff:
    """Error by average set size, for sets of fixed size, of one threshold, or of a given probability mass.

    Args:
        scores: ``(N, n)``, logits, or scores that are compared without a link, in the forms of `SetRule.fit`.
        labels: in any form of ``shortlist.targets``; with several per row, the error is the share that is missing. Rows
            without labels count toward the size but not toward the error.
        from_logits, link: as in `SetRule`.
        sizes: average set sizes, positive; by default 1 to 20, or to the number of labels if that is less.

    Returns:
        ``"top-k"`` (between integer sizes, a mixture of the two), ``"average-k"`` (also the curve of `AverageError`)
        and ``"aps"``, the sets of `PointwiseError` without randomization. Ties count by expectation.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
        >>> tradeoff(scores, torch.tensor([0, 2]), from_logits=False, sizes=[1, 1.5, 2]).errors["average-k"]
        tensor([0.5000, 0.2500, 0.0000], dtype=torch.float64)
    """
    reader = PointwiseError(0.5, randomized=False, link=link)
    scores = read_scores(scores)
    reader._check_reading(scores, from_logits)
    source = reader._read_scores(scores)
    reader._check_values(source)
    n = scores.shape[1]
    true = read_label_sets(read_target(labels, n, name="labels"), len(scores), n)
    if not len(true.values):
        raise ValueError(f"`labels` must hold at least one true label; got none in {len(true)} rows.")
    wanted = torch.tensor(list(range(1, min(20, n) + 1)) if sizes is None else list(sizes), dtype=torch.float64)
    if not len(wanted) or not (wanted > 0).all() or wanted.max() > n:
        raise ValueError(f"`sizes` must lie in (0, {n}]; got {wanted.tolist()}.")
    counts = [AverageK(size).wanted(len(scores)) for size in wanted.tolist()]
    curves = {"average-k": _Curve(n, max(counts)), "aps": _Curve(n, max(counts))}
    ranks, start = [], 0
    for found in source.blocks(link if from_logits else None, on_host=True):
        values = found.values
        block = true[start : start + len(values)]
        start += len(values)
        curves["average-k"].add(values.double(), block)
        curves["aps"].add(reader.score(found), block)
        ranks.append(_ranks(values, block))
    weights = 1.0 / true.counts[true.pairs()[0]].double() / (true.counts > 0).sum()
    errors = {name: torch.stack([curve.error(m, weights) for m in counts]) for name, curve in curves.items()}
    rank = torch.cat(ranks)
    top = torch.stack([_top_error(rank, weights, size) for size in wanted.tolist()])
    return Tradeoff(wanted, {"top-k": top, **errors})


class _Curve:
    """The largest values of all labels, and the values of the true ones."""

    def __init__(self, num_labels: int, most: int) -> None:
        self._largest = LargestScores(num_labels)
        self._most = most
        self._true: list[Tensor] = []

    def add(self, values: Tensor, labels: Labels) -> None:
        self._largest.add(values.numpy(), self._most + 1)
        self._true.append(labels.at(values))

    def error(self, m: int, weights: Tensor) -> Tensor:
        """Weight of the true values that are not among the m largest of all; ties count by their share."""
        true = torch.cat(self._true)
        if m == 0:
            return weights.sum()
        if m >= self._largest.total:
            return weights[true == -torch.inf].sum()
        cut = self._largest.cut(m)
        if cut is None:
            raise RuntimeError("the largest scores were not kept")
        share = cut.inside / cut.tied
        return weights[true < cut.value].sum() + (1.0 - share) * weights[true == cut.value].sum()


def _ranks(values: Tensor, labels: Labels) -> Tensor:
    """For each true label: how many labels score higher, and how many the same."""
    (rows, _), true, ordered = labels.pairs(), labels.at(values), values.sort(dim=-1).values
    higher = count_below(-ordered.flip(-1), rows, -true)
    same = values.shape[1] - count_below(ordered, rows, true) - higher
    return torch.stack([higher, same], -1)


def _top_error(ranks: Tensor, weights: Tensor, size: float) -> Tensor:
    """Probability that a true label is not among the ``size`` best if ties are broken at random."""
    higher, same = ranks.double().unbind(-1)
    floor = float(int(size))
    inside = [((k - higher) / same).clamp(0.0, 1.0) for k in (floor, floor + 1)]
    part = size - floor
    return (weights * (1.0 - (1.0 - part) * inside[0] - part * inside[1])).sum()

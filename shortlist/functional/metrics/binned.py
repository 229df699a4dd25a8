"""Average precision by class from histograms of the scores: bounded memory, and a bound on the error."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist.checks import whole_k
from shortlist.functional.metrics.average_precision import ascending, mean_of_known
from shortlist.functional.metrics.labels import check_choice, labelled, refuse_nan
from shortlist.tensors import solvable


class BinnedAveragePrecision(NamedTuple):
    """Average precision with every bin as one threshold, and two numbers between which the exact one lies."""

    value: Tensor
    lower: Tensor
    upper: Tensor


class ScoreHistogram(NamedTuple):
    """Counts that any number of batches add up to; all int64."""

    known: Tensor  # (n, bins): scores above -inf in each bin
    positive: Tensor  # (n, bins): those of positives
    positives: Tensor  # (n,): all positives, those of score -inf included


def binned_average_precision(
    scores: Tensor,
    target: Tensor,
    *,
    bins: int = 1000,
    limits: tuple[float, float] | None = None,
    reduction: Literal["mean", "none"] = "mean",
    mask: Tensor | None = None,
) -> BinnedAveragePrecision:
    r"""Average precision by class, with scores known only by their bin, and bounds of the exact value.

    A bin with p positives and q negatives, below bins with P positives and N negatives, adds

    .. math:: \underbrace{\sum_{j=1}^{p} \frac{P+j}{P+N+q+j}}_{\text{lower}} \;\le\;
              \underbrace{p\, \frac{P+p}{P+N+p+q}}_{\text{value}} \;\le\;
              \underbrace{p\, \frac{P+p}{P+N+p}}_{\text{upper}}

    and whatever the order inside the bins, :func:`average_precision` lies between the sums of lower and upper. Memory
    is that of two tables of labels × bins.

    Args:
        scores, target, mask: as for :func:`average_precision`.
        bins: how many, at least 1.
        limits: the bins are equally wide between these two scores, and the outer ones hold all beyond: (0, 1) for
            probabilities. None: equally wide in ``sigmoid(score)``, for logits.
        reduction: ``"mean"`` over the classes that have a positive, or ``"none"``: NaN for those that have none.

    Returns:
        ``value``, ``lower`` and ``upper``, float64: one number each, or ``(n,)``.

    Example:
        >>> scores = torch.tensor([[0.9, 0.2], [0.8, 0.7], [0.1, 0.6]])
        >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> found = binned_average_precision(scores, target, bins=4, limits=(0, 1))
        >>> [round(number.item(), 4) for number in found]
        [0.7917, 0.7917, 0.9167]
        >>> average_precision(scores, target)
        tensor(0.9167, dtype=torch.float64)
    """
    check_choice("reduction", reduction, ("mean", "none"))
    counts = score_histogram(scores, target, bin_edges(bins, limits), mask)
    found = histogram_average_precision(counts)
    return found if reduction == "none" else BinnedAveragePrecision(*map(mean_of_known, found))


def bin_edges(bins: int, limits: tuple[float, float] | None) -> Tensor:
    """The scores between bins, ``(bins - 1,)`` float32 and ascending."""
    whole_k(bins, 1 << 30, name="bins")
    parts = torch.arange(1, bins, dtype=torch.float64) / bins
    if limits is None:
        return parts.logit().float()
    low, high = (float(limit) for limit in limits)
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"`limits` must be two finite numbers, the lower first; got {limits}.")
    return (low + parts * (high - low)).float()


def score_histogram(scores: Tensor, target: Tensor, edges: Tensor, mask: Tensor | None = None) -> ScoreHistogram:
    """Count the scores of each class by bin.

    The edges are compared with the scores themselves: a score that is mapped first could, by rounding, change places
    with its neighbour, and the bounds would not be bounds.
    """
    data = labelled(scores, target, mask)
    refuse_nan(data.scores)
    n, bins = scores.shape[-1], len(edges) + 1
    # A row that does not count is one in which every label is absent.
    x = solvable(data.scores).masked_fill(~data.counted.unsqueeze(-1), -math.inf)
    chosen = data.counted[data.rows]
    rows, labels = data.rows[chosen], data.labels[chosen]
    truth = x[rows, labels]
    found = truth > -math.inf
    cells = torch.bucketize(truth[found], edges.to(x), right=True) + bins * labels[found]
    positive = torch.bincount(cells, minlength=n * bins).reshape(n, bins)
    return ScoreHistogram(_counts(x.T, edges.to(x)), positive, torch.bincount(labels, minlength=n))


def _counts(lines: Tensor, edges: Tensor) -> Tensor:
    """How many scores above -inf of each line ``(n, B)`` lie from one edge to below the next, ``(n, bins)``."""
    ordered = ascending(lines)  # and then look for the edges among the scores, for there are fewer
    start = torch.searchsorted(ordered, ordered.new_full((len(lines), 1), -math.inf), right=True)
    below = torch.searchsorted(ordered, edges.repeat(len(lines), 1))
    return torch.cat([start, below, torch.full_like(start, lines.shape[-1])], -1).diff()


def histogram_average_precision(counts: ScoreHistogram) -> BinnedAveragePrecision:
    """Value and bounds for each class, ``(n,)``; NaN without positives."""
    # From the highest bin down, with what lies above and what is in each bin.
    p = counts.positive.flip(-1).double()
    q = counts.known.flip(-1).double() - p
    P, N = p.cumsum(-1) - p, q.cumsum(-1) - q
    total = counts.positives.double().masked_fill(counts.positives == 0, math.nan)
    value = p * _ratio(P + p, P + N + p + q)
    upper = p * _ratio(P + p, P + N + p)
    # The sum over j of 1 / (P + N + q + j) is a difference of digammas.
    below = P + N + q
    lower = p - (N + q) * ((below + p + 1).digamma() - (below + 1).digamma())
    return BinnedAveragePrecision(*(terms.sum(-1) / total for terms in (value, lower.clamp(min=0), upper)))


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    return numerator / denominator.clamp(min=1)

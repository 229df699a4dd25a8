"""Average precision: exact, by class (mAP) or by row (label ranking); or binned, with bounds on the exact value."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.metrics.scored_labels import check_choice, read_scored_labels, refuse_nan
from shortlist.labels import LabelsLike, Numbers
from shortlist.tensors import counts_of, is_plain, solvable, whole_k

By = Literal["class", "sample"]
_BLOCK = 1 << 21
"""Number of entries to sort at a time; the buffers take some tens of megabytes."""

_MANY = 64
"""From this many values per line, numpy's searchsorted, which reuses the last position, is faster than torch's."""


def average_precision(
    scores: Numbers,
    target: LabelsLike,
    *,
    by: By = "class",
    reduction: Literal["mean", "none"] = "mean",
    mask: Numbers | None = None,
) -> Tensor:
    r"""Mean precision at the positives: of each class over the rows, or of each row over the classes.

    .. math:: \text{AP} = \frac{1}{|P|} \sum_{i \in P}
              \frac{|\{j \in P : s_j \ge s_i\}|}{|\{j : s_j \ge s_i\}|}

    Equal scores form one threshold, as in scikit-learn, so their order does not matter. A positive with score ``-inf``
    is never found, so its precision is 0. By class, this is average precision without interpolation; by sample, it is
    label ranking average precision.

    Args:
        scores: ``(B, n)``, floating; only their order matters (by class: within each column). ``-inf`` marks an absent
            label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out.
        by: ``"class"`` or ``"sample"``.
        reduction: ``"mean"`` over the classes (rows) with a positive, or ``"none"``: one value each, NaN for those
            without positives.
        mask: ``(B,)`` bool, False for rows that do not count.

    Returns:
        Float64: one number, or ``(n,)`` by class and ``(B,)`` by sample; NaN without a positive.

    Example:
        >>> scores = torch.tensor([[0.9, 0.2], [0.8, 0.7], [0.1, 0.6]])
        >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> average_precision(scores, target, reduction="none")
        tensor([0.8333, 1.0000], dtype=torch.float64)

    References:
        Kobayashi, "Two-way Multi-Label Loss", 2023, section 4 (both ways); Tsoumakas, Katakis, Vlahavas, "Mining
        Multi-label Data", 2010 (label ranking).
    """
    check_choice("by", by, ("class", "sample"))
    check_choice("reduction", reduction, ("mean", "none"))
    data = read_scored_labels(scores, target, mask)
    refuse_nan(data.scores)
    rows, labels = data.chosen()
    if by == "class":
        # Treat a row that does not count as one in which every label is absent.
        x = data.scores if mask is None else data.scores.masked_fill(~data.counted.unsqueeze(-1), -math.inf)
        values = line_average_precision(x.T, labels, rows)
    else:
        values = line_average_precision(data.scores, rows, labels)
    return values if reduction == "none" else mean_of_known(values)


def mean_of_known(values: Tensor) -> Tensor:
    """Mean over values that are not NaN; NaN if there are none."""
    return values.nanmean()


def line_average_precision(x: Tensor, lines: Tensor, columns: Tensor) -> Tensor:
    """Average precision of each line of ``x`` ``(L, m)`` with its positives at ``(lines, columns)``; float64."""
    counts = counts_of(lines, len(x))
    result = torch.full((len(x),), math.nan, dtype=torch.float64, device=x.device)
    width = max(x.shape[-1], 1)
    columns = ascending(lines * width + columns) - width * torch.repeat_interleave(counts)  # sorted by line
    first = counts.cumsum(0) - counts
    size = max(1, _BLOCK // width)
    for start in range(0, len(x), size):
        table = solvable(x[start : start + size]).contiguous()
        ordered, own = ascending(table), counts[start : start + size]
        for chosen in _similar(own):
            slot = torch.arange(int(own[chosen].max()), device=x.device)
            entry = first[start + chosen].unsqueeze(-1) + slot
            real = slot < own[chosen].unsqueeze(-1)
            found = table[chosen].gather(-1, columns[entry.clamp(max=len(columns) - 1)]).masked_fill(~real, -math.inf)
            result[start + chosen] = _precision_sums(ordered[chosen], ascending(found)) / own[chosen]
    return result


def _similar(counts: Tensor) -> list[Tensor]:
    """Lines with at least one positive, in groups where no line has twice as many positives as another.

    A padded table of a group's positives is then at least half full.
    """
    doublings = counts.clamp(min=1).double().log2().floor().masked_fill(counts == 0, -1)
    return [(doublings == level).nonzero().squeeze(-1) for level in doublings.unique().tolist() if level >= 0]


def ascending(table: Tensor) -> Tensor:
    """Sort each line; on the CPU, numpy is several times as fast as torch."""
    table = table.contiguous()
    return torch.from_numpy(np.sort(table.numpy(), axis=-1)) if is_plain(table) else table.sort(-1).values


def _precision_sums(table: Tensor, found: Tensor) -> Tensor:
    """Sum of the precision at each of ``found`` in its line; both ascend, and ``-inf`` in ``found`` counts as 0."""
    at_least = table.shape[-1] - _count_below(table, found)
    # Without ties, the number of positives below a positive is its index.
    below = torch.arange(found.shape[-1], device=found.device).repeat(len(found), 1)
    tied = (found[:, 1:] == found[:, :-1]).any(-1).nonzero().squeeze(-1)
    below[tied] = _count_below(found[tied], found[tied])
    positives_at_least = found.shape[-1] - below
    return (positives_at_least / at_least.double()).masked_fill(found == -math.inf, 0).sum(-1)


def _count_below(table: Tensor, wanted: Tensor) -> Tensor:
    """For each of ``wanted``, the number of smaller entries in the same line of ``table``; both ascend."""
    if wanted.shape[-1] < _MANY or len(table) == 0 or not is_plain(table):
        return torch.searchsorted(table, wanted)
    pairs = zip(table.numpy(), wanted.numpy(), strict=True)
    return torch.from_numpy(np.stack([np.searchsorted(*pair) for pair in pairs]))


class BinnedAveragePrecision(NamedTuple):
    """Average precision with one threshold per bin, and bounds on the exact value."""

    value: Tensor
    lower: Tensor
    upper: Tensor


class ScoreHistogram(NamedTuple):
    """Counts that add up over batches; all int64."""

    known: Tensor  # (n, bins): scores above -inf in each bin
    positive: Tensor  # (n, bins): those of positives
    positives: Tensor  # (n,): all positives, including those of score -inf


def binned_average_precision(
    scores: Numbers,
    target: LabelsLike,
    *,
    bins: int = 1000,
    limits: tuple[float, float] | None = None,
    reduction: Literal["mean", "none"] = "mean",
    mask: Numbers | None = None,
) -> BinnedAveragePrecision:
    r"""Average precision by class from binned scores, with bounds on the exact value.

    A bin with p positives and q negatives, below bins with P positives and N negatives, adds

    .. math:: \underbrace{\sum_{j=1}^{p} \frac{P+j}{P+N+q+j}}_{\text{lower}} \;\le\;
              \underbrace{p\, \frac{P+p}{P+N+p+q}}_{\text{value}} \;\le\;
              \underbrace{p\, \frac{P+p}{P+N+p}}_{\text{upper}}

    and for any order inside the bins, :func:`average_precision` lies between the sums of the lower and upper terms.
    Memory is two tables of labels × bins.

    Args:
        scores, target, mask: as for :func:`average_precision`.
        bins: number of bins, at least 1.
        limits: the bins are equally wide between these two scores, and the outer ones extend to infinity: (0, 1) for
            probabilities. None: equally wide in ``sigmoid(score)``, for logits.
        reduction: ``"mean"`` over the classes with a positive, or ``"none"``: NaN for classes without positives.

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
    """The edges between bins, ``(bins - 1,)`` float32, ascending."""
    whole_k(bins, 1 << 30, name="bins")
    parts = torch.arange(1, bins, dtype=torch.float64) / bins
    if limits is None:
        return parts.logit().float()
    low, high = (float(limit) for limit in limits)
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"`limits` must be two finite numbers, the lower first; got {limits}.")
    return (low + parts * (high - low)).float()


def score_histogram(scores: Numbers, target: LabelsLike, edges: Tensor, mask: Numbers | None = None) -> ScoreHistogram:
    """Count the scores of each class by bin.

    The edges are compared with the raw scores. If scores were mapped first, rounding could swap neighbors, and the
    bounds would not hold.
    """
    data = read_scored_labels(scores, target, mask)
    refuse_nan(data.scores)
    n, bins = data.num_labels, len(edges) + 1
    # Treat a row that does not count as one in which every label is absent.
    x = solvable(data.scores).masked_fill(~data.counted.unsqueeze(-1), -math.inf)
    rows, labels = data.chosen()
    truth = x[rows, labels]
    found = truth > -math.inf
    cells = torch.bucketize(truth[found], edges.to(x), right=True) + bins * labels[found]
    positive = counts_of(cells, n * bins).reshape(n, bins)
    return ScoreHistogram(_counts(x.T, edges.to(x)), positive, counts_of(labels, n))


def _counts(lines: Tensor, edges: Tensor) -> Tensor:
    """The number of scores above -inf in each bin, for each line ``(n, B)``; ``(n, bins)``."""
    ordered = ascending(lines)  # searching for edges is cheaper: there are fewer edges than scores
    start = torch.searchsorted(ordered, ordered.new_full((len(lines), 1), -math.inf), right=True)
    below = torch.searchsorted(ordered, edges.repeat(len(lines), 1))
    return torch.cat([start, below, torch.full_like(start, lines.shape[-1])], -1).diff()


def histogram_average_precision(counts: ScoreHistogram) -> BinnedAveragePrecision:
    """Value and bounds for each class, ``(n,)``; NaN without positives."""
    # From the highest bin down; capital letters count what lies above each bin.
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

"""Whether probabilities mean what they say: reliability, calibration error with bins of equal width or mass, Brier."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.scored_labels import ScoredLabels, check_choice, read_scored_labels, refuse_nan
from shortlist.labels import LabelsLike, Numbers
from shortlist.tensors import solvable, whole_k

Events = Literal["top", "labels"]
Binning = Literal["width", "mass"]
EVENTS: tuple[Events, ...] = ("top", "labels")


class Reliability(NamedTuple):
    """Sums over the events of each bin, ``(bins,)`` float64, which add up over batches.

    ``predicted / counts`` against ``observed / counts`` is the reliability diagram.
    """

    counts: Tensor
    predicted: Tensor  # sum of the probabilities
    observed: Tensor  # how many came true


def reliability(
    probs: Numbers,
    target: LabelsLike,
    *,
    events: Events = "top",
    bins: int | Tensor = 15,
    mask: Numbers | None = None,
) -> Reliability:
    """Count events, their probabilities and how many came true, in bins of the probability.

    Args:
        probs: ``(B, n)``, floating, probabilities; ``-inf`` marks an absent label: an event only if it is true, of
            probability 0.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are no events.
        events: ``"top"``: for each row with a known positive, that its best label is one (a tie counts by its share);
            ``"labels"``: that a label is positive, for each known label of each row.
        bins: how many bins of equal width; or their inner edges, ascending. A bin contains its lower edge.
        mask: ``(B,)`` bool, False for rows that do not count.

    Example:
        >>> probs = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.1, 0.9]])
        >>> reliability(probs, torch.tensor([0, 1, 1]), bins=2).observed
        tensor([0., 2.], dtype=torch.float64)
    """
    found = scored_events(probs, target, events, mask)
    return in_bins(found, inner_edges(bins).to(found.confidence))


def calibration_error(
    probs: Numbers,
    target: LabelsLike,
    *,
    events: Events = "top",
    bins: int = 15,
    binning: Binning = "width",
    mask: Numbers | None = None,
) -> Tensor:
    r"""Expected calibration error: how far probabilities are from frequencies, averaged over bins.

    .. math:: \text{ECE} = \sum_b \frac{|b|}{N} \Big| \frac{1}{|b|} \sum_{i \in b} p_i - \frac{1}{|b|} \sum_{i \in b}
              y_i \Big|

    Args:
        probs, target, events, mask: as for :func:`reliability`.
        bins: the number of bins.
        binning: ``"width"``: bins of equal width; ``"mass"``: of about as many events each (adaptive ECE); equal
            probabilities are in one bin.

    Returns:
        One number, float64; NaN without events.

    Example:
        >>> probs = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.1, 0.9]])
        >>> calibration_error(probs, torch.tensor([0, 1, 1]))
        tensor(0.3333, dtype=torch.float64)

    References:
        Naeini, Cooper, Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", 2015; Nixon,
        Dusenberry, Zhang, Jerfel, Tran, "Measuring calibration in deep learning", 2019.
    """
    check_choice("binning", binning, ("width", "mass"))
    found = scored_events(probs, target, events, mask)
    if binning == "width":
        return error_of(in_bins(found, inner_edges(bins).to(found.confidence)))
    return equal_mass_error(found, bins)


def brier_score(probs: Numbers, target: LabelsLike, *, mask: Numbers | None = None) -> Tensor:
    r"""Mean squared difference of probability and truth, over the known labels of all rows.

    .. math:: \frac{1}{|K|} \sum_{(i, l) \in K} (p_{il} - y_{il})^2

    Some authors sum over labels; for rows of n known labels that is n times this.

    Args:
        probs, target, mask: as for :func:`reliability`.

    Returns:
        One number, float64; NaN without known labels.

    Example:
        >>> brier_score(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
        tensor(0.1562, dtype=torch.float64)

    References:
        Brier, "Verification of forecasts expressed in terms of probability", 1950.
    """
    squares, count = brier_sums(probs, target, mask)
    return squares / count


def brier_sums(probs: Numbers, target: LabelsLike, mask: Numbers | None) -> tuple[Tensor, Tensor]:
    """The sum of squares and the number of known labels."""
    found = scored_events(probs, target, "labels", mask)
    squares = (found.confidence.double().square() * found.counts).sum()
    # (p - 1)^2 instead of p^2 for those that came true.
    return squares + (found.true * (1 - 2 * found.of_true.double())).sum(), found.counts.sum().double()


class ScoredEvents(NamedTuple):
    """Events with their probabilities; which came true is a list of its own, as short as that of the positives.

    Attributes:
        confidence: ``(m,)``, the probability of each event.
        counts: ``(m,)`` bool, whether it is an event at all.
        of_true: ``(t,)``, the probabilities of events that came true.
        true: ``(t,)`` float64, by how much: 1, or a share.
    """

    confidence: Tensor
    counts: Tensor
    of_true: Tensor
    true: Tensor


def scored_events(probs: Numbers, target: LabelsLike, events: Events, mask: Numbers | None) -> ScoredEvents:
    """The events of rows that count."""
    check_choice("events", events, EVENTS)
    data = read_scored_labels(probs, target, mask)
    refuse_nan(data.scores)
    x = solvable(data.scores)
    if events == "top":
        best, right = top_answers(data)
        counts = data.counted & (data.positives > 0)
        return ScoredEvents(best.clamp(min=0.0), counts, best.clamp(min=0.0), right * counts)
    own = x[data.rows, data.labels]
    true = data.counted[data.rows] if data.present is None else data.counted[data.rows] & data.present
    # A positive of an absent label is an event of probability 0.
    confidence = torch.cat([x.flatten(), own]).clamp(min=0.0)
    counts = torch.cat([(data.counted.unsqueeze(-1) & (x > -math.inf)).flatten(), true & (own == -math.inf)])
    return ScoredEvents(confidence, counts, own.clamp(min=0.0), true.double())


def top_answers(data: ScoredLabels) -> tuple[Tensor, Tensor]:
    """The best score of each row, ``(B,)``, and the share of the labels with that score that are positive."""
    x = solvable(data.scores)
    if not x.shape[0]:
        return x.new_zeros(0), x.new_zeros(0)
    best = x.amax(-1)
    tied = ((x == best.unsqueeze(-1)) & (x > -math.inf)).sum(-1)
    hits = (x[data.rows, data.labels] == best[data.rows]) & (best[data.rows] > -math.inf)
    hits = hits if data.present is None else hits & data.present
    right = torch.zeros_like(best, dtype=torch.float64).index_add(0, data.rows, hits.double())
    return best, right / tied.clamp(min=1)


def inner_edges(bins: int | Tensor) -> Tensor:
    """The edges between bins: of ``bins`` bins of equal width in [0, 1], or as given."""
    if isinstance(bins, Tensor):
        return bins
    return torch.arange(1, whole_k(bins, 1 << 24, name="bins"), dtype=torch.float64) / bins


def in_bins(events: ScoredEvents, edges: Tensor) -> Reliability:
    """The sums of each bin."""

    def add(confidence: Tensor, values: Tensor) -> Tensor:
        none = torch.zeros(len(edges) + 1, dtype=torch.float64, device=confidence.device)
        return none.index_add(0, torch.bucketize(confidence, edges, right=True), values.double())

    confidence, counts = events.confidence, events.counts
    return Reliability(
        add(confidence, counts), add(confidence, confidence * counts), add(events.of_true.contiguous(), events.true)
    )


def error_of(sums: Reliability) -> Tensor:
    """The calibration error of sums over bins; NaN without events."""
    return (sums.predicted - sums.observed).abs().sum() / sums.counts.sum()


def equal_mass_error(events: ScoredEvents, bins: int) -> Tensor:
    """The calibration error in bins whose edges are quantiles of the probabilities."""
    whole_k(bins, 1 << 24, name="bins")
    ordered = events.confidence[events.counts].sort().values
    if not len(ordered):
        return ordered.new_full((), math.nan, dtype=torch.float64)
    places = (torch.arange(1, bins, device=ordered.device) * len(ordered) + bins - 1) // bins
    return error_of(in_bins(events, ordered[places.clamp(max=len(ordered) - 1)]))

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
    confidence, true, weight = scored_events(probs, target, events, mask)
    return in_bins(confidence, true, weight, inner_edges(bins).to(confidence))


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
    confidence, true, weight = scored_events(probs, target, events, mask)
    if binning == "width":
        return error_of(in_bins(confidence, true, weight, inner_edges(bins).to(confidence)))
    return equal_mass_error(confidence[weight], true[weight], bins)


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
    confidence, true, weight = scored_events(probs, target, "labels", mask)
    squares = torch.where(weight, (confidence.double() - true.double()).square(), 0.0)
    return squares.sum(), weight.sum().double()


def scored_events(
    probs: Numbers, target: LabelsLike, events: Events, mask: Numbers | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Probability, truth in [0, 1] and whether it counts (bool) of each event, three vectors."""
    check_choice("events", events, EVENTS)
    data = read_scored_labels(probs, target, mask)
    refuse_nan(data.scores)
    x = solvable(data.scores)
    if events == "top":
        best, right = top_answers(data)
        return best.clamp(min=0.0), right, data.counted & (data.positives > 0)
    true = positive_mask(data)
    counts = data.counted.unsqueeze(-1) & (true | (x > -math.inf))
    return x.clamp(min=0.0).flatten(), true.to(x.dtype).flatten(), counts.flatten()


def top_answers(data: ScoredLabels) -> tuple[Tensor, Tensor]:
    """The best score of each row, ``(B,)``, and the share of the labels with that score that are positive."""
    x = solvable(data.scores)
    if not x.shape[0]:
        return x.new_zeros(0), x.new_zeros(0)
    best = x.amax(-1, keepdim=True)
    tied = (x == best) & (best > -math.inf)
    right = (tied & positive_mask(data)).sum(-1).double() / tied.sum(-1).clamp(min=1)
    return best.squeeze(-1), right


def positive_mask(data: ScoredLabels) -> Tensor:
    """``(B, n)`` bool."""
    x = data.scores
    present = torch.ones_like(data.rows, dtype=torch.bool) if data.present is None else data.present
    # Padding names label 0, so it must not overwrite a positive there.
    hits = torch.zeros(x.shape, dtype=torch.int32, device=x.device)
    return hits.index_put((data.rows, data.labels), present.int(), accumulate=True) > 0


def inner_edges(bins: int | Tensor) -> Tensor:
    """The edges between bins: of ``bins`` bins of equal width in [0, 1], or as given."""
    if isinstance(bins, Tensor):
        return bins
    return torch.arange(1, whole_k(bins, 1 << 24, name="bins"), dtype=torch.float64) / bins


def in_bins(confidence: Tensor, true: Tensor, weight: Tensor, edges: Tensor) -> Reliability:
    """The sums of each bin."""
    bins = torch.bucketize(confidence, edges, right=True)
    none = torch.zeros(len(edges) + 1, dtype=torch.float64, device=confidence.device)
    add = lambda values: none.index_add(0, bins, values.double() * weight)
    return Reliability(add(torch.ones_like(confidence)), add(confidence), add(true))


def error_of(sums: Reliability) -> Tensor:
    """The calibration error of sums over bins; NaN without events."""
    return (sums.predicted - sums.observed).abs().sum() / sums.counts.sum()


def equal_mass_error(confidence: Tensor, true: Tensor, bins: int) -> Tensor:
    """The calibration error in bins whose edges are quantiles of the probabilities."""
    whole_k(bins, 1 << 24, name="bins")
    if not len(confidence):
        return confidence.new_full((), math.nan, dtype=torch.float64)
    places = (torch.arange(1, bins, device=confidence.device) * len(confidence) + bins - 1) // bins
    edges = confidence.sort().values[places.clamp(max=len(confidence) - 1)]
    return error_of(in_bins(confidence, true, torch.ones_like(true, dtype=torch.bool), edges))

"""What all labels together say about a score: how many answers above it are right, and how likely one at it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MOST_KNOTS = 2048


@dataclass(frozen=True)
class PooledCurve:
    """Counts of all entries above some thresholds, at quantiles of the scores of true labels.

    Attributes:
        knots: ascending thresholds.
        right: true answers at each, per true label.
        wrong: false answers at each, per true label.
        likelihood: at each knot, increasing: how likely an entry with such a score is true.
    """

    knots: Array
    right: Array
    wrong: Array
    likelihood: Array

    @classmethod
    def fit(cls, scores: NDArray[np.floating], true: NDArray[np.floating]) -> PooledCurve:
        """Count in one pass over all scores; ``true`` are those of true labels."""
        true = np.sort(true.astype(np.float64))
        true = true[np.isfinite(true)]
        if len(true) == 0:
            raise ValueError("`labels` must have a true label whose score is finite.")
        knots = np.unique(true[np.linspace(0, len(true) - 1, min(_MOST_KNOTS, len(true))).round().astype(np.int64)])
        histogram = np.zeros(len(knots) + 1, dtype=np.int64)
        for row in np.array_split(scores, max(1, scores.size >> 22)):
            histogram += np.bincount(np.searchsorted(knots, row.reshape(-1), side="right"), minlength=len(knots) + 1)
        answers = histogram[::-1].cumsum()[::-1][1:]
        right = len(true) - np.searchsorted(true, knots, side="left")
        return cls(knots, right / len(true), (answers - right) / len(true), _likelihood(histogram, true, knots))

    def best_threshold(self) -> float:
        """Where F1 over all labels together is largest."""
        f1 = 2 * self.right / (self.right + self.wrong + 1)
        return float(self.knots[int(np.argmax(f1))])

    def rates(self, thresholds: NDArray[np.floating]) -> tuple[Array, Array]:
        """Right and wrong answers per true label at any thresholds."""
        at = thresholds.astype(np.float64)
        return np.interp(at, self.knots, self.right), np.interp(at, self.knots, self.wrong)

    def calibrated(self, scores: NDArray[np.floating]) -> Array:
        """How likely each score is true, strictly increasing with it; -inf stays."""
        values = np.interp(scores.astype(np.float64), self.knots, self.likelihood)
        below = scores < self.knots[0]
        # Outside the knots the curve goes on to zero below and stays flat above but for a slope that keeps the order.
        falling = self.likelihood[0] * np.exp(np.minimum(0.0, scores.astype(np.float64) - self.knots[0]))
        rising = 1e-9 * np.maximum(0.0, scores.astype(np.float64) - self.knots[-1])
        return np.where(scores == -np.inf, -np.inf, np.where(below, falling, values + rising))

    def inverse(self, likelihoods: Array) -> Array:
        """The score at which `calibrated` reaches each value."""
        within = np.interp(likelihoods, self.likelihood, self.knots)
        with np.errstate(divide="ignore", invalid="ignore"):
            below = self.knots[0] + np.log(likelihoods / self.likelihood[0])
        above = self.knots[-1] + (likelihoods - self.likelihood[-1]) / 1e-9
        return np.where(
            likelihoods < self.likelihood[0], below, np.where(likelihoods > self.likelihood[-1], above, within)
        )


def _likelihood(histogram: NDArray[np.int64], true: Array, knots: Array) -> Array:
    """Share of true entries around each knot, made increasing by pooling neighbours, then strictly by a tiny slope."""
    places = np.bincount(np.searchsorted(knots, true, side="right"), minlength=len(knots) + 1)
    shares = _increasing(places[1:].astype(np.float64), histogram[1:].astype(np.float64))
    return np.maximum(shares, 1e-12) + 1e-9 * np.arange(len(knots)) / max(1, len(knots))


def _increasing(positives: Array, totals: Array) -> Array:
    """Isotonic regression of positives / totals: neighbours that are out of order are pooled."""
    blocks: list[list[float]] = []
    for positive, total in zip(positives.tolist(), totals.tolist(), strict=True):
        blocks.append([positive, max(total, 1e-300), 1])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [mine + other for mine, other in zip(blocks[-1], last, strict=True)]
    return np.repeat([block[0] / block[1] for block in blocks], [int(block[2]) for block in blocks])

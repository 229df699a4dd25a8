"""A threshold for every label, with rare labels shrunk toward a curve pooled over all labels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.calibration.isotonic import pool_adjacent_violators
from shortlist.labels import Labels
from shortlist.sets.average_k import AverageK
from shortlist.sets.rule import SetRule, read_label_sets
from shortlist.sets.scores import Block, Link
from shortlist.tensors import check_number

Objective = Literal["f1", "average-size"]
Array = NDArray[np.float64]

_MAX_KNOTS = 2048


class PerLabelThreshold(SetRule):
    r"""One threshold per label, fitted on held-out data without overfitting rare labels.

    ``"f1"`` maximizes, for each label, the F1 of its own counts plus pooled counts of all labels, weighted like
    ``prior`` true examples:

    .. math:: F_l(t) = \frac{2\,(TP_l + \kappa\, tp)}{n_l + P_l + \kappa\,(tp + fp + 1)}

    with :math:`n_l` predictions and :math:`P_l` true examples of the label, and tp, fp the pooled true and false
    positives per true example at t. A label without examples gets the pooled optimum, and a frequent label gets nearly
    its own.

    ``"average-size"`` returns about k labels on average. It calibrates scores by one increasing curve for all labels
    times a factor per label, :math:`(P_l + \kappa) / (E_l + \kappa)`, where :math:`E_l` is the number of true examples
    that the curve predicts. One threshold on the calibrated scores is then one threshold per label on the raw scores.

    Pooling assumes that scores mean about the same for all labels, as calibrated probabilities do. If this does not
    hold, for instance because rare labels never score high, choose a small ``prior`` or calibrate the scores first.

    Fitting keeps all scores of the calibration data in memory, and moves those of an accelerator to the CPU.

    Args:
        objective: ``"f1"`` or ``"average-size"``.
        k: for ``"average-size"``, the average number of labels.
        prior: :math:`\kappa`, the number of true examples that the pooled curve is worth.
        link, min_size: as in `SetRule`.

    Example:
        >>> scores = torch.tensor([[0.9, 0.2], [0.8, 0.3], [0.6, 0.1], [0.1, 0.2]])
        >>> rule = PerLabelThreshold(prior=0.1).fit(scores, torch.tensor([[0], [0], [-1], [-1]]), from_logits=False)
        >>> rule.predict(torch.tensor([[0.75, 0.2]])).sizes
        tensor([1])
    """

    threshold_name: ClassVar[str | None] = "thresholds"
    thresholds: Tensor

    def __init__(
        self,
        objective: Objective = "f1",
        k: float | None = None,
        *,
        prior: float = 10.0,
        link: Link = "sigmoid",
        min_size: int = 0,
    ) -> None:
        if objective not in ("f1", "average-size"):
            raise ValueError(f'`objective` must be "f1" or "average-size"; got {objective!r}.')
        if (k is None) != (objective == "f1"):
            raise ValueError(f'`k` must be given for "average-size" and only there; got {k!r} for {objective!r}.')
        self.objective: Objective = objective
        self.k = None if k is None else check_number("k", k, at_least=0.0)
        self.prior = check_number("prior", prior, at_least=0.0)
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("thresholds", torch.zeros(0, dtype=torch.float64))

    def _read_labels(self, labels: Tensor, rows: int) -> Labels:
        return read_label_sets(labels, rows, self.num_labels)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return block.marked(), labels.pairs()[1], block.at(*labels.pairs())

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        scores, labels, true = (column.numpy() for column in observed)
        order = np.argsort(labels, kind="stable")
        labels, true = labels[order], true[order]
        if not len(labels):
            raise ValueError("`labels` must have at least one true label.")
        curve = _PooledCurve.fit(scores, true)
        if self.objective == "f1":
            return self._settle_f1(scores, labels, true, curve)
        return self._settle_size(scores, labels, curve)

    def _settle_f1(
        self, scores: NDArray[Any], labels: NDArray[np.int64], true: NDArray[Any], curve: _PooledCurve
    ) -> dict[str, Any]:
        best, n = curve.best_threshold(), scores.shape[1]
        ends = np.searchsorted(labels, np.arange(n + 1))
        own = (true[start:end] for start, end in pairwise(ends))
        thresholds = [self._best(scores[:, label], mine, curve, best) for label, mine in enumerate(own)]
        self.thresholds = torch.tensor(thresholds, dtype=torch.float64)
        edges = np.array(thresholds, dtype=scores.dtype)
        answers, right = np.count_nonzero(scores >= edges), np.count_nonzero(true >= edges[labels])
        achieved = 2 * right / (answers + len(true))
        return {"constraint": "F1 over all labels", "wanted": 1.0, "achieved": float(achieved)}

    def _best(self, scores: NDArray[Any], own: NDArray[Any], curve: _PooledCurve, pooled: float) -> float:
        """The threshold of one label: the best of the scores of its ``own`` rows and the pooled optimum."""
        true = len(own)
        if true == 0:
            return pooled
        candidates = np.unique(np.append(own, np.array(pooled, dtype=scores.dtype)))
        ordered, ordered_true = np.sort(scores), np.sort(own)
        answers = len(ordered) - np.searchsorted(ordered, candidates, side="left")
        right = true - np.searchsorted(ordered_true, candidates, side="left")
        tp, fp = curve.rates(candidates)
        f1 = 2 * (right + self.prior * tp) / (answers + true + self.prior * (tp + fp + 1))
        at = int(np.argmax(f1))
        below = ordered[ordered < candidates[at]]
        # Use the midpoint to the next lower score, so that a new score between the two goes to the closer one.
        middle = (float(candidates[at]) + float(below[-1])) / 2 if len(below) else float(candidates[at])
        return middle if np.isfinite(middle) else float(candidates[at])

    def _settle_size(self, scores: NDArray[Any], labels: NDArray[np.int64], curve: _PooledCurve) -> dict[str, Any]:
        expected = curve.calibrated(scores)
        factor = (np.bincount(labels, minlength=scores.shape[1]) + self.prior) / np.maximum(
            expected.sum(axis=0) + self.prior, 1e-300
        )
        counter = AverageK(self.k or 0.0)
        counter.fit(torch.from_numpy(expected * factor), from_logits=False)
        self.thresholds = torch.from_numpy(curve.inverse(float(counter.threshold) / factor))
        achieved = np.count_nonzero(scores >= self.thresholds.numpy()) / len(scores)
        return {"constraint": "average size", "wanted": self.k, "achieved": float(achieved)}


@dataclass(frozen=True)
class _PooledCurve:
    """Pooled over all labels: true and false positives above each score, and the probability of a positive at it.

    Attributes:
        knots: ascending thresholds, at quantiles of the scores of true labels.
        right: true positives at each, per true label.
        wrong: false positives at each, per true label.
        likelihood: at each knot, increasing: the probability that a label with this score is true.
    """

    knots: Array
    right: Array
    wrong: Array
    likelihood: Array

    @classmethod
    def fit(cls, scores: NDArray[np.floating], true: NDArray[np.floating]) -> _PooledCurve:
        """Count in one pass over all scores; ``true`` are the scores of true labels."""
        true = np.sort(true.astype(np.float64))
        true = true[np.isfinite(true)]
        if len(true) == 0:
            raise ValueError("`labels` must have a true label whose score is finite.")
        knots = np.unique(true[np.linspace(0, len(true) - 1, min(_MAX_KNOTS, len(true))).round().astype(np.int64)])
        histogram = np.zeros(len(knots) + 1, dtype=np.int64)
        for row in np.array_split(scores, max(1, scores.size >> 22)):
            histogram += np.bincount(np.searchsorted(knots, row.reshape(-1), side="right"), minlength=len(knots) + 1)
        answers = histogram[::-1].cumsum()[::-1][1:]
        right = len(true) - np.searchsorted(true, knots, side="left")
        return cls(knots, right / len(true), (answers - right) / len(true), _likelihood(histogram, true, knots))

    def best_threshold(self) -> float:
        """The threshold that maximizes F1 over all labels pooled."""
        f1 = 2 * self.right / (self.right + self.wrong + 1)
        return float(self.knots[int(np.argmax(f1))])

    def rates(self, thresholds: NDArray[np.floating]) -> tuple[Array, Array]:
        """True and false positives per true label at any thresholds."""
        at = thresholds.astype(np.float64)
        return np.interp(at, self.knots, self.right), np.interp(at, self.knots, self.wrong)

    def calibrated(self, scores: NDArray[np.floating]) -> Array:
        """The probability that a label with each score is true, strictly increasing; -inf stays."""
        values = np.interp(scores.astype(np.float64), self.knots, self.likelihood)
        below = scores < self.knots[0]
        # Below the knots the curve falls to zero. Above, it keeps a tiny slope to preserve the order.
        falling = self.likelihood[0] * np.exp(np.minimum(0.0, scores.astype(np.float64) - self.knots[0]))
        rising = 1e-9 * np.maximum(0.0, scores.astype(np.float64) - self.knots[-1])
        return np.where(scores == -np.inf, -np.inf, np.where(below, falling, values + rising))

    def inverse(self, likelihoods: Array) -> Array:
        """The score at which `calibrated` reaches each value."""
        within = np.interp(likelihoods, self.likelihood, self.knots)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            below = self.knots[0] + np.log(likelihoods / self.likelihood[0])
            above = self.knots[-1] + (likelihoods - self.likelihood[-1]) / 1e-9
        return np.where(
            likelihoods < self.likelihood[0], below, np.where(likelihoods > self.likelihood[-1], above, within)
        )


def _likelihood(histogram: NDArray[np.int64], true: Array, knots: Array) -> Array:
    """Share of true labels around each knot: isotonic, with a tiny slope added to make it strictly increasing."""
    positives = np.bincount(np.searchsorted(knots, true, side="right"), minlength=len(knots) + 1)
    shares = pool_adjacent_violators(positives[1:].astype(np.float64), histogram[1:].astype(np.float64))
    return np.maximum(shares, 1e-12) + 1e-9 * np.arange(len(knots)) / max(1, len(knots))

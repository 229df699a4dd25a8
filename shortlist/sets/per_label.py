"""A threshold for every label, with rare labels held to what all labels show."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.functional.options import check_number
from shortlist.labels import Labels
from shortlist.sets.average_k import AverageK
from shortlist.sets.pooled_curve import PooledCurve
from shortlist.sets.row_labels import read_sets
from shortlist.sets.rule import Draw, Link, SetRule

Objective = Literal["f1", "average-size"]


class PerLabelThreshold(SetRule):
    r"""One threshold per label, fitted on held-out data without overfitting the labels that hardly occur there.

    ``"f1"`` maximises for each label the F1 of its own counts plus ``prior`` true examples' worth of those of all
    labels pooled:

    .. math:: F_l(t) = \frac{2\,(TP_l + \kappa\, tp)}{n_l + P_l + \kappa\,(tp + fp + 1)}

    with :math:`n_l` answers and :math:`P_l` true examples of the label, and tp, fp the pooled true and false answers
    per true example at t. A label without examples gets the pooled optimum, a frequent one its own.

    ``"average-size"`` returns about k labels on average: scores are calibrated by one increasing curve for all labels
    times a factor per label, :math:`(P_l + \kappa) / (E_l + \kappa)`, with :math:`E_l` the true examples that the curve
    expects; one threshold on these is a threshold per label on the scores.

    Pooling takes scores to mean about the same for all labels, as calibrated probabilities do. Where they do not, say
    because rare labels never score high, ``prior`` should be small or the scores calibrated first.

    All scores of the calibration data are held in memory while fitting.

    Args:
        objective: ``"f1"`` or ``"average-size"``.
        k: for ``"average-size"``, how many labels on average.
        prior: :math:`\kappa`, how many true examples the pooled curve is worth.
        link, min_size: as in `SetRule`.

    Example:
        >>> scores = torch.tensor([[0.9, 0.2], [0.8, 0.3], [0.6, 0.1], [0.1, 0.2]])
        >>> rule = PerLabelThreshold(prior=0.1).fit(scores, torch.tensor([[0], [0], [-1], [-1]]), from_logits=False)
        >>> rule.predict(torch.tensor([[0.75, 0.2]])).sizes
        tensor([1])
    """

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

    def options(self) -> dict[str, Any]:
        return {"objective": self.objective, "k": self.k, "prior": self.prior}

    def _clear(self) -> None:
        self.register_buffer("thresholds", torch.zeros(0, dtype=torch.float64))
        self._scores: list[NDArray[np.floating]] = []
        self._labels: list[Tensor] = []
        self._true: list[Tensor] = []

    def _read_labels(self, labels: Tensor, rows: int) -> Labels:
        return read_sets(labels, rows, self.num_labels)

    def _observe(self, values: Tensor, labels: Any) -> None:
        self._scores.append(values.numpy())
        self._labels.append(labels.labels)
        self._true.append(labels.at(values))

    def _settle(self) -> dict[str, Any]:
        scores = np.concatenate(self._scores)
        labels, true = self._true_scores()
        if not len(labels):
            raise ValueError("`labels` must have at least one true label.")
        curve = PooledCurve.fit(scores, true)
        if self.objective == "f1":
            return self._settle_f1(scores, labels, true, curve)
        return self._settle_size(scores, labels, curve)

    def _true_scores(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The true labels of all rows, ascending, and the scores that they have there."""
        labels, true = (torch.cat(part).numpy() for part in (self._labels, self._true))
        order = np.argsort(labels, kind="stable")
        return labels[order], true[order]

    def _settle_f1(
        self, scores: NDArray[Any], labels: NDArray[np.int64], true: NDArray[Any], curve: PooledCurve
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

    def _best(self, scores: NDArray[Any], own: NDArray[Any], curve: PooledCurve, pooled: float) -> float:
        """The threshold of one label: at one of the scores of its ``own`` rows, or the pooled optimum."""
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
        # Halfway to the next score outside, so that a new score just below a true one is judged by distance.
        middle = (float(candidates[at]) + float(below[-1])) / 2 if len(below) else float(candidates[at])
        return middle if np.isfinite(middle) else float(candidates[at])

    def _settle_size(self, scores: NDArray[Any], labels: NDArray[np.int64], curve: PooledCurve) -> dict[str, Any]:
        expected = curve.calibrated(scores)
        factor = (np.bincount(labels, minlength=scores.shape[1]) + self.prior) / np.maximum(
            expected.sum(axis=0) + self.prior, 1e-300
        )
        counter = AverageK(self.k or 0.0)
        counter.fit(torch.from_numpy(expected * factor), from_logits=False)
        self.thresholds = torch.from_numpy(curve.inverse(float(counter.threshold) / factor))
        achieved = np.count_nonzero(scores >= self.thresholds.numpy()) / len(scores)
        return {"constraint": "average size", "wanted": self.k, "achieved": float(achieved)}

    def _forget(self) -> None:
        self._scores, self._labels, self._true = [], [], []

    def _select(self, values: Tensor, draw: Draw | None) -> Tensor:
        return (values >= self.thresholds.to(values.dtype)) & (values > -torch.inf)

    def _floor(self) -> Tensor:
        return self.thresholds

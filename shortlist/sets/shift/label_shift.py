"""Conformal sets when classes become more or less frequent, and how much more, from predictions alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_numbers
from shortlist.sets.conformal.conformity import LAC, ConformityScore
from shortlist.sets.conformal.split import LabelThresholds
from shortlist.sets.scores import Link
from shortlist.sets.shift.weighted import WeightedScores


class LabelShift(LabelThresholds):
    r"""Conformal sets for rows in which classes have other frequencies than in the calibration rows.

    .. math:: C(x) = \Big\{l : \frac{\sum_{i : s_i \le s_l(x)} w_{y_i} + w_l}{\sum_i w_{y_i} + w_l} > \alpha\Big\},
              \quad w_l = \frac{p_{\text{new}}(l)}{p_{\text{calibration}}(l)}

    If the rows of each class are distributed equally in both, the set contains the true label of a new row with
    probability at least :math:`1 - \alpha`. With ratios that are estimated, as by `label_ratios`, this holds as far as
    they are right. Each label has a threshold, so predictions need no weights. Ties at a threshold are broken at
    random, with the exact probability.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        ratios: w, one per label, finite and not negative; None: all are 1.
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import LabelShift
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = LabelShift(0.5, ratios=[0.5, 2.0]).fit(scores, torch.tensor([0, 0, 1, 1]), from_logits=False)
        >>> rule.thresholds
        tensor([0.7000, 0.4000], dtype=torch.float64)

    References:
        Podkopaev, Ramdas, "Distribution-free uncertainty quantification for classification under label shift", 2021.
    """

    def __init__(
        self,
        alpha: float,
        *,
        ratios: Sequence[float] | Numbers | None = None,
        score: ConformityScore = LAC(),
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.ratios = None if ratios is None else _read_ratios(ratios)
        super().__init__(alpha, score, link=link, min_size=min_size)

    def _check_labels_count(self, num_labels: int) -> None:
        super()._check_labels_count(num_labels)
        if self.ratios is not None and len(self.ratios) != num_labels:
            raise ValueError(f"`ratios` must have one entry per label, {num_labels}; got {len(self.ratios)}.")

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        true, classes = observed
        ratios = torch.tensor(self.ratios or [1.0] * (self.num_labels or 0), dtype=torch.float64)
        weights = ratios[classes]
        if not weights.sum() > 0:
            raise ValueError("`ratios` must be positive for a class of the calibration rows; all are 0.")
        self.thresholds, self.tie_shares = WeightedScores.of(true, weights).cut(self.alpha, ratios)
        missed = float((weights * self._missed(true, classes)).sum() / weights.sum())
        return {"constraint": "average error", "wanted": self.alpha, "achieved": missed}


def label_ratios(confusion: Numbers, predicted: Numbers) -> Tensor:
    r"""How much more frequent each class is among new rows, from the predictions for them (BBSE).

    .. math:: w = C^{-1} \mu, \quad C_{jl} = P(\text{predicted } j, \text{true } l), \quad
              \mu_j = P_{\text{new}}(\text{predicted } j)

    Negative ratios become 0. Where the predictions cannot tell classes apart, the solution nearest to 1 is taken; a
    class that is not among the calibration rows has ratio 1.

    Args:
        confusion: ``(n, n)``: how many calibration rows, which the model was not trained on, are predicted as the row's
            class and are truly of the column's.
        predicted: ``(n,)``: how many of the new rows, which need no labels, are predicted as each class.

    Returns:
        ``(n,)`` float64, for `LabelShift`.

    Example:
        >>> from shortlist.sets import label_ratios
        >>> label_ratios(torch.tensor([[40, 10], [10, 40]]), torch.tensor([35, 65]))
        tensor([0.5000, 1.5000], dtype=torch.float64)

    References:
        Lipton, Wang, Smola, "Detecting and correcting for label shift with black box predictors", 2018.
    """
    counts, found = (
        read_numbers(part, name=name).double().cpu()
        for part, name in ((confusion, "confusion"), (predicted, "predicted"))
    )
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or found.shape != counts.shape[:1]:
        raise ValueError(
            "`confusion` must have shape (n, n) and `predicted` (n,); "
            f"got {tuple(counts.shape)} and {tuple(found.shape)}."
        )
    for name, part in (("confusion", counts), ("predicted", found)):
        if not ((part >= 0) & (part < torch.inf)).all() or not part.sum() > 0:
            raise ValueError(f"`{name}` must hold counts that are not negative and not all 0.")
    joint, shares = counts / counts.sum(), found / found.sum()
    deviation = torch.linalg.pinv(joint, rtol=1e-9) @ (shares - joint.sum(1))
    return (1 + deviation).clamp(min=0.0)


def _read_ratios(ratios: Sequence[float] | Numbers) -> list[float]:
    read = read_numbers(ratios, name="ratios").double().cpu()
    if read.ndim != 1 or not ((read >= 0) & (read < torch.inf)).all():
        raise ValueError("`ratios` must be finite and not negative, one per label.")
    return read.tolist()

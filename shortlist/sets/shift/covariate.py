"""Conformal sets under covariate shift: calibration rows count by how likely they are among the new rows."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_numbers
from shortlist.sets.conformal.conformity import LAC, ConformityScore
from shortlist.sets.conformal.split import ConformalRule
from shortlist.sets.scores import Block, Link
from shortlist.sets.shift.weighted import WeightedScores


class CovariateShift(ConformalRule):
    r"""Conformal sets for rows from another distribution than the calibration rows, given how their densities differ.

    .. math:: C(x) = \Big\{l : \frac{\sum_{i : s_i \le s_l(x)} w_i + w(x)}{\sum_i w_i + w(x)} > \alpha\Big\}, \quad
              w(x) \propto \frac{p_{\text{new}}(x)}{p_{\text{calibration}}(x)}

    If the labels of equal rows are distributed equally in both, and the weights are proportional to the ratio of
    densities, the set contains the true label of a new row with probability at least :math:`1 - \alpha`. With ratios
    that are estimated, for instance by `density_ratio`, what is promised holds as far as they are right. A row with a
    weight that large calibration rows cannot back gets all labels. Ties at the threshold are broken at random, with the
    exact probability.

    ``fit`` and ``predict`` take ``weights``, one per row: the ratios of densities, up to a factor that both share.
    Without weights in both, all are 1.

    ``evidence["effective_rows"]``, :math:`(\sum w)^2 / \sum w^2`, says how many equal rows the weighted ones are worth.
    The rule keeps only the lowest scores, with about ``alpha`` of the weight.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import CovariateShift
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = CovariateShift(0.4)
        >>> _ = rule.fit(scores, torch.tensor([0, 0, 1, 0]), from_logits=False, weights=torch.tensor([1.0, 1, 1, 3]))
        >>> rule.predict(torch.tensor([[0.65, 0.35], [0.65, 0.35]]), weights=torch.tensor([1.0, 9.0])).sizes
        tensor([1, 2])

    References:
        Tibshirani, Barber, Candès, Ramdas, "Conformal prediction under covariate shift", 2019.
    """

    row_option: ClassVar[str | None] = "weights"
    other_shapes: ClassVar[tuple[str, ...]] = ("values", "cumulative")
    values: Tensor
    cumulative: Tensor
    total: Tensor

    def __init__(
        self, alpha: float, *, score: ConformityScore = LAC(), link: Link = "softmax", min_size: int = 0
    ) -> None:
        super().__init__(alpha, score, link=link, min_size=min_size)

    def forward(self, scores: Numbers, weights: Numbers | None = None) -> Tensor:
        """Bool mask of the shape of ``scores``, deterministic: includes labels that tie at the threshold."""
        self._check_fitted()
        self._check_given(weights)
        per_row = None if weights is None else read_numbers(weights, name="weights").reshape(-1).double()
        return self._mask(scores, per_row)

    @property
    def row_argument(self) -> str | None:
        """``"weights"`` if the rule was fitted with some."""
        return "weights" if self.evidence.get("weighted") else None

    def _read_rows(self, given: Any, count: int) -> Tensor | None:
        if self.fitted:
            self._check_given(given)
        elif self._rows and (given is not None) != self._weighted:
            raise ValueError("`weights` must be given with all batches or with none.")
        else:
            self._weighted = given is not None
        return None if given is None else _read_weights(given, count)

    def _check_given(self, weights: Numbers | None) -> None:
        if (weights is not None) != (self.row_argument is not None):
            rule = "must be given, as in `fit`" if weights is None else "must be None, as in `fit`"
            raise ValueError(f"`weights` {rule}.")

    def _clear(self) -> None:
        self.register_buffer("values", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("cumulative", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("total", torch.tensor(0.0, dtype=torch.float64))
        self._weighted = False

    def _check_buffers(self, num_labels: int) -> None:
        self._calibration.check()

    @property
    def _calibration(self) -> WeightedScores:
        return WeightedScores(self.values, self.cumulative, self.total)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        (true,) = super()._observe(block, labels)
        return true, torch.ones(len(true), dtype=torch.float64) if block.rows is None else block.rows

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        true, weights = observed
        kept = WeightedScores.of(true, weights)
        threshold, _ = kept.cut(self.alpha, weights.mean())
        missed = float(weights[(true < threshold) | (true == -torch.inf)].sum() / weights.sum())
        self.values, self.cumulative, self.total = kept.lowest(self.alpha)
        shares = weights / weights.max()  # whose squares are finite
        effective = float(shares.sum() ** 2 / shares.square().sum())
        constraint = {"constraint": "average error", "wanted": self.alpha, "achieved": missed}
        return constraint | {"weighted": self._weighted, "effective_rows": effective}

    def _threshold(self) -> None:
        return None

    def _cut(self, block: Block | None) -> tuple[Tensor, Tensor]:
        if block is None or block.rows is None:
            return self._calibration.cut(self.alpha, torch.ones_like(self.total))
        threshold, share = self._calibration.cut(self.alpha, block.rows.to(self.total.device))
        return threshold[:, None], share[:, None]


def _read_weights(weights: Numbers, rows: int) -> Tensor:
    """``(rows,)`` float64 on the CPU, finite and not negative."""
    read = read_numbers(weights, name="weights").detach().double().cpu()
    if read.shape != (rows,):
        raise ValueError(f"`weights` must have one entry per row of scores, {rows}; got shape {tuple(read.shape)}.")
    wrong = (~((read >= 0) & (read < torch.inf))).nonzero()[:1, 0].tolist()
    if wrong:
        raise ValueError(f"`weights` must be finite and not negative; row {wrong[0]} has {float(read[wrong[0]]):g}.")
    return read

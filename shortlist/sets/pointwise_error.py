"""Sets that collect labels until their mass is enough: adaptive, for errors that should not hide in hard examples."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.functional.options import check_number
from shortlist.sets.conformal import kept_with_ties
from shortlist.sets.conformal_rule import ConformalRule
from shortlist.sets.row_hash import uniform_of_rows
from shortlist.sets.rule import Draw, Link, best_first, refuse_rows


class PointwiseError(ConformalRule):
    r"""Adaptive prediction sets: the best labels until their probabilities sum to a calibrated level (APS, RAPS).

    .. math:: S_l(x) = \sum_{j : \text{before } l} p_j + U p_l + \eta\,(\text{rank}_l - \text{free})_+, \quad
              C(x) = \{l : S_l(x) \le q\}

    With the true probabilities and q = 1 - alpha the true label of *every* example is inside with probability
    1 - alpha; the calibrated q keeps that on average for any model. U is one uniform number per row, a hash of its
    scores, so that the same row always gets the same set; or 1 without randomisation (larger sets).

    Args:
        alpha: how often the true label may be missing, in (0, 1).
        randomized: use U; ``forward`` takes U = 1 in any case.
        penalty: :math:`\eta`, per label beyond ``free``: shorter sets on hard examples (RAPS).
        free: labels without penalty.
        link, min_size: as in `SetRule`. Sets may be empty when randomised; ``min_size=1`` forbids that.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.5, 0.2, 0.3]])
        >>> rule = PointwiseError(0.4, randomized=False).fit(scores, torch.tensor([0, 1, 2]), from_logits=False)
        >>> rule.predict(torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]])).sizes
        tensor([1, 2])

    References:
        Romano, Sesia, Candès, "Classification with valid and adaptive coverage", 2020; Angelopoulos, Bates, Malik,
        Jordan, "Uncertainty sets for image classifiers using conformal prediction", 2021.
    """

    constraint: ClassVar[str] = "average error, with the mass of each answer"

    def __init__(
        self,
        alpha: float,
        *,
        randomized: bool = True,
        penalty: float = 0.0,
        free: int = 0,
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.randomized = bool(randomized)
        self.penalty = check_number("penalty", penalty, at_least=0.0)
        if not isinstance(free, Integral) or free < 0:
            raise ValueError(f"`free` must be a whole number, at least 0; got {free!r}.")
        self.free = int(free)
        super().__init__(alpha, link=link, min_size=min_size)

    def options(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "randomized": self.randomized, "penalty": self.penalty, "free": self.free}

    def _check_values(self, scores: Tensor) -> None:
        super()._check_values(scores)
        if not self.from_logits:
            refuse_rows(scores, lambda block: (block < 0) & (block > -torch.inf), "must be masses, not negative")

    def _observe(self, values: Tensor, labels: Any) -> None:
        conformity = self._conformity(values, randomized=self.randomized)
        # An absent label, which no set holds, is worse than any that is there.
        conformity = torch.where(values == -torch.inf, -torch.inf, conformity)
        self._true.append(conformity.gather(1, labels[:, None])[:, 0])

    def _select(self, values: Tensor, draw: Draw | None) -> Tensor:
        conformity = self._conformity(values, randomized=self.randomized and draw is not None)
        inside = (conformity >= self.threshold) & (values > -torch.inf)
        if draw is not None:
            inside[inside.clone()] = kept_with_ties(conformity[inside], self.threshold, self.tie_share, draw)
        return inside

    def _conformity(self, values: Tensor, *, randomized: bool) -> Tensor:
        """Minus the mass up to each label, in float64: sums of rounded probabilities must not tie by accident."""
        ordered, order = best_first(values.double().clamp(min=0.0))
        share = uniform_of_rows(values)[:, None] if randomized else 1.0
        mass = ordered.cumsum(-1) - ordered + share * ordered
        rank = torch.arange(1, values.shape[-1] + 1, device=values.device)
        mass = mass + self.penalty * (rank - self.free).clamp(min=0)
        return torch.zeros_like(mass).scatter(-1, order, -mass)

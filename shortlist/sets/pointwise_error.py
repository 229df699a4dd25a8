"""Adaptive prediction sets (APS, RAPS): the best labels until their probabilities reach a calibrated level."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.sets.conformal import ConformalRule, kept_with_ties
from shortlist.sets.rule import Draw
from shortlist.sets.scores import Link, Scores
from shortlist.tensors import check_number

_STEP = np.uint64(0x9E3779B97F4A7C15)


class PointwiseError(ConformalRule):
    r"""Adaptive prediction sets: the best labels until their probabilities sum to a calibrated level (APS, RAPS).

    .. math:: S_l(x) = \sum_{j : \text{before } l} p_j + U p_l + \eta\,(\text{rank}_l - \text{free})_+, \quad
              C(x) = \{l : S_l(x) \le q\}

    With the true probabilities and q = 1 - alpha, the set of *every* example contains its true label with probability 1
    - alpha. The calibrated q guarantees this on average, for any model. U is one uniform number per row, a hash of its
    scores, so the same row always gets the same set. Without randomization U is 1, which makes sets larger.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        randomized: whether to use U; ``forward`` always takes U = 1.
        penalty: :math:`\eta`, per label beyond ``free``: smaller sets on hard examples (RAPS).
        free: number of labels without penalty.
        link, min_size: as in `SetRule`. Randomized sets may be empty; ``min_size=1`` prevents that.

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
            raise ValueError(f"`free` must be an integer, at least 0; got {free!r}.")
        self.free = int(free)
        super().__init__(alpha, link=link, min_size=min_size)

    def _check_values(self, scores: Scores) -> None:
        super()._check_values(scores)
        if not self.from_logits:
            scores.check(lambda block: (block < 0) & (block > -torch.inf), "must be probabilities, not negative")

    def _observe(self, values: Tensor, labels: Any) -> tuple[Tensor, ...]:
        conformity = self.conformity(values, randomized=self.randomized)
        # An absent label is in no set, so it must conform less than any other.
        conformity = torch.where(values == -torch.inf, -torch.inf, conformity)
        return (conformity.gather(1, labels[:, None])[:, 0],)

    def _select(self, values: Tensor, draw: Draw | None) -> Tensor:
        conformity = self.conformity(values, randomized=self.randomized and draw is not None)
        inside = (conformity >= self.threshold) & (values > -torch.inf)
        if draw is not None:
            inside[inside.clone()] = kept_with_ties(conformity[inside], self.threshold, self.tie_share, draw)
        return inside

    def conformity(self, values: Tensor, *, randomized: bool) -> Tensor:
        """Minus the mass up to each label, in float64 so that sums of rounded probabilities do not tie by accident."""
        ordered, order = _best_first(values.double().clamp(min=0.0))
        share = row_uniforms(values)[:, None] if randomized else 1.0
        mass = ordered.cumsum(-1) - ordered + share * ordered
        rank = torch.arange(1, values.shape[-1] + 1, device=values.device)
        mass = mass + self.penalty * (rank - self.free).clamp(min=0)
        return torch.zeros_like(mass).scatter(-1, order, -mass)


def _best_first(values: Tensor) -> tuple[Tensor, Tensor]:
    """Each row by descending score, equal scores by ascending label, and the labels in that order."""
    if torch.compiler.is_exporting():
        # ONNX has no stable sort, but its top-k returns the lower index first among equal values.
        return values.topk(values.shape[-1], dim=-1)
    return values.sort(dim=-1, descending=True, stable=True)


def row_uniforms(values: Tensor) -> Tensor:
    """A pseudorandom number in [0, 1) for each row, ``(rows,)`` float64, that depends only on the row's entries.

    Every bit of every entry matters: entries are mixed, multiplied by an odd number for their column, and summed.

    Example:
        >>> row_uniforms(torch.tensor([[0.2, 0.8], [0.8, 0.2], [0.2, 0.8]]))
        tensor([0.3591, 0.1589, 0.3591], dtype=torch.float64)
    """
    # Adding 0 turns -0 into 0, which is the same score.
    bits = (values.double() + 0.0).contiguous().numpy().view(np.uint64)
    factors = _mixed(np.arange(1, bits.shape[-1] + 1, dtype=np.uint64) * _STEP) | np.uint64(1)
    hashed = _mixed((_mixed(bits) * factors).sum(axis=-1, dtype=np.uint64))
    return torch.from_numpy((hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection on 64-bit integers in which each bit depends on all others (the SplitMix64 finalizer)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))

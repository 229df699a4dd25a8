"""Adaptive prediction sets (APS, RAPS): the best labels until their probabilities reach a calibrated level."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.sets.conformal import ConformalRule, kept_with_ties
from shortlist.sets.rule import Draw
from shortlist.sets.scores import Block, Link
from shortlist.tensors import check_number

# Of the hash: a Mersenne prime, and the constants added in its rounds (digits of pi).
_PRIME = 2**31 - 1
_SHIFTS = (0x243F6A88, 0x13198A2E, 0x299F31D0)


class PointwiseError(ConformalRule):
    r"""Adaptive prediction sets: the best labels until their probabilities sum to a calibrated level (APS, RAPS).

    .. math:: S_l(x) = \sum_{j : \text{before } l} p_j + U p_l + \eta\,(\text{rank}_l - \text{free})_+, \quad
              C(x) = \{l : S_l(x) \le q\}

    With the true probabilities and q = 1 - alpha, the set of *every* example contains its true label with probability 1
    - alpha. The calibrated q guarantees this on average, for any model. U is one uniform number per row, a hash of its
    scores as given, so the same row always gets the same set: from ``predict``, the module and an exported graph.
    Without randomization U is 1, which makes sets larger.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        randomized: whether to use U.
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
        if not isinstance(free, Integral) or not 0 <= free < _PRIME:
            raise ValueError(f"`free` must be an integer, at least 0 and below 2**31 - 1; got {free!r}.")
        self.free = int(free)
        super().__init__(alpha, link=link, min_size=min_size)

    def _refusals(self) -> list[tuple[str, Callable[[Tensor], Tensor], float | None]]:
        if self.from_logits:
            return super()._refusals()
        negative = "`scores` must be probabilities, not negative"
        return [*super()._refusals(), (negative, lambda block: (block < 0) & (block > -torch.inf), None)]

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        # An absent label is in no set, so it must conform less than any other.
        return (self._true_scores(Block(self._conformity(block), block.scores), labels),)

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        conformity = self._conformity(block)
        inside = (conformity >= self.threshold) & (block.scores > -torch.inf)
        if draw is not None:
            kept = kept_with_ties(conformity[inside].cpu(), self.threshold, self.tie_share, draw)
            inside[inside.clone()] = kept.to(inside.device)
        return inside

    def _conformity(self, block: Block) -> Tensor:
        return self.conformity(block.values, row_uniforms(block.scores)[:, None] if self.randomized else 1.0)

    def conformity(self, values: Tensor, share: Tensor | float = 1.0) -> Tensor:
        """Minus the mass before each label and ``share``, U, of its own.

        In float64, so that sums of rounded probabilities do not tie by accident.
        """
        ordered, order = _best_first(values.clamp(min=0.0))  # before it becomes twice as wide
        ordered = ordered.double()
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


def row_uniforms(scores: Tensor) -> Tensor:
    """A pseudorandom number in [0, 1) for each row, ``(rows,)`` float64, that depends only on the row's scores.

    Equal scores give equal numbers in every dtype, batch, device and exported graph: every step is exact. Scores count
    up to a magnitude of a million and down to a part in 2**84.

    Example:
        >>> row_uniforms(torch.tensor([[0.2, 0.8], [0.8, 0.2], [0.2, 0.8]]))
        tensor([0.5724, 0.5739, 0.5724], dtype=torch.float64)
    """
    n = scores.shape[-1]
    # ONNX cannot read the bits of a float, so two integers of at most 53 bits stand for it: floor(x) and the rest.
    fixed = scores.detach().double().clamp(-(2.0**20), 2.0**20) * 2.0**32
    whole = fixed.floor()
    parts = torch.cat([whole, (fixed - whole) * 2.0**52], dim=-1).long() % _PRIME
    # Below 2**31 each, so that no product overflows: what integers do then is up to the runtime.
    factors = _mixed(torch.arange(1, 2 * n + 1, device=scores.device))
    hashed = (parts * factors % _PRIME).sum(-1) % _PRIME
    return _mixed(hashed).double() / _PRIME


def _mixed(numbers: Tensor) -> Tensor:
    """A bijection modulo the prime, far from linear: fifth powers are one, because 5 does not divide the prime - 1."""
    for shift in _SHIFTS:
        square = numbers * numbers % _PRIME
        numbers = (square * square % _PRIME * numbers % _PRIME + shift) % _PRIME
    return numbers

"""Conformity scores: how well a label conforms to a row of scores. Thresholds and p-values are made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.sets.conformal.row_uniforms import PRIME, row_uniforms
from shortlist.sets.scores import Block
from shortlist.tensors import check_number


@dataclass(frozen=True)
class ConformityScore(ABC):
    """How well each label conforms to its row; the higher, the better.

    To make a score of your own, subclass this as a frozen dataclass whose fields are its options. A rule that uses it
    is saved with these options, and loaded if the class has been imported.
    """

    needs_probabilities: ClassVar[bool] = True
    """Whether scores that are not logits must not be negative."""

    @abstractmethod
    def __call__(self, block: Block) -> Tensor:
        """Conformity ``(rows, n)`` of a block; the values of absent labels are arbitrary.

        Args:
            block: ``values``, the scores after the link, and ``scores``, as they came, where absent labels have -inf.
        """

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> ConformityScore:
        """A score from the plain values in the file of a rule: its class by name, and its fields."""
        kinds = {kind.__name__: kind for kind in _subclasses(ConformityScore)}
        given = dict(options)
        name = given.pop("kind", None)
        if name not in kinds:
            raise ValueError(f"`score` is of unknown kind {name!r}")
        return kinds[name](**given)


@dataclass(frozen=True)
class LAC(ConformityScore):
    """The score of the label itself. With the true probabilities, no other score gives smaller sets on average.

    References:
        Sadinle, Lei, Wasserman, "Least ambiguous set-valued classifiers with bounded error levels", 2019.
    """

    needs_probabilities: ClassVar[bool] = False

    def __call__(self, block: Block) -> Tensor:
        """The values themselves."""
        return block.values


@dataclass(frozen=True)
class APS(ConformityScore):
    r"""Minus the probability mass up to the label, best label first (APS); with a penalty on ranks, RAPS.

    .. math:: -\Big(\sum_{j : \text{before } l} p_j + U p_l + \eta\,(\text{rank}_l - \text{free})_+\Big)

    In float64, so that sums of rounded probabilities do not tie by accident.

    Args:
        penalty: :math:`\eta`, per label beyond ``free``: smaller sets on hard examples.
        free: number of labels without penalty.
        randomized: whether U is one uniform number per row, a hash of its scores as given; otherwise it is 1, which
            makes sets larger.

    Example:
        >>> probs = torch.tensor([[0.5, 0.3, 0.2]])
        >>> APS(randomized=False)(Block(probs, probs))
        tensor([[-0.5000, -0.8000, -1.0000]], dtype=torch.float64)

    References:
        Romano, Sesia, Candès, "Classification with valid and adaptive coverage", 2020; Angelopoulos, Bates, Malik,
        Jordan, "Uncertainty sets for image classifiers using conformal prediction", 2021.
    """

    penalty: float = 0.0
    free: int = 0
    randomized: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", check_number("penalty", self.penalty, at_least=0.0))
        if not isinstance(self.free, Integral) or not 0 <= self.free < PRIME:
            raise ValueError(f"`free` must be an integer, at least 0 and below 2**31 - 1; got {self.free!r}.")
        object.__setattr__(self, "free", int(self.free))
        object.__setattr__(self, "randomized", bool(self.randomized))

    def __call__(self, block: Block) -> Tensor:
        """Minus the mass before each label, its share of its own, and the penalty."""
        ordered, order = best_first(block.values.clamp(min=0.0))  # before it becomes twice as wide
        ordered = ordered.double()
        mass = ordered.cumsum(-1) - ordered + _own_share(block, self.randomized) * ordered
        mass = mass + self.penalty * (_ranks(ordered).double() - self.free).clamp(min=0)
        return torch.zeros_like(mass).scatter(-1, order, -mass)


@dataclass(frozen=True)
class SAPS(ConformityScore):
    r"""Sorted adaptive prediction sets: the largest probability of the row, and otherwise only the rank of the label.

    .. math:: -U p_{[1]} \text{ for the best label}, \quad
              -\big(p_{[1]} + (\text{rank}_l - 2 + U)\,\text{weight}\big) \text{ for the others}

    Small probabilities are the least reliable ones, so their sizes are not used, only their order.

    Args:
        weight: of each rank beyond the first, above 0.
        randomized: whether U is one uniform number per row, as in `APS`; otherwise it is 1.

    Example:
        >>> probs = torch.tensor([[0.5, 0.3, 0.2]])
        >>> SAPS(0.2, randomized=False)(Block(probs, probs))
        tensor([[-0.5000, -0.7000, -0.9000]], dtype=torch.float64)

    References:
        Huang, Xi, Zhang, Yao, Qiu, Wei, "Conformal prediction for deep classifier via label ranking", 2024.
    """

    weight: float
    randomized: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_number("weight", self.weight, at_least=0.0))
        if self.weight == 0:
            raise ValueError("`weight` must be above 0; got 0.0.")
        object.__setattr__(self, "randomized", bool(self.randomized))

    def __call__(self, block: Block) -> Tensor:
        """Minus the largest probability, and a weight for each further rank."""
        ordered, order = best_first(block.values.clamp(min=0.0))
        best, rank, share = ordered[:, :1].double(), _ranks(ordered).double(), _own_share(block, self.randomized)
        score = torch.where(rank == 1, share * best, best + (rank - 2 + share) * self.weight)
        return torch.zeros_like(score).scatter(-1, order, -score)


@dataclass(frozen=True)
class Margin(ConformityScore):
    r"""By how much the label beats the best other one: :math:`p_l - \max_{j \ne l} p_j`.

    Example:
        >>> probs = torch.tensor([[0.5, 0.3, 0.2]])
        >>> Margin()(Block(probs, probs))
        tensor([[ 0.2000, -0.2000, -0.3000]])

    References:
        Johansson, Linusson, Löfström, Boström, "Model-agnostic nonconformity functions for conformal classification",
        2017.
    """

    def __call__(self, block: Block) -> Tensor:
        """The difference from the best other label; from 0 if there is none."""
        probs = block.values.clamp(min=0.0)
        if probs.shape[-1] == 1:
            return probs
        best, second = probs.topk(2, dim=-1).values.split(1, dim=-1)
        return probs - torch.where(probs == best, second, best)


@dataclass(frozen=True)
class Entropy(ConformityScore):
    r"""The log-probability of the label against the row's own expectation of it: :math:`\log p_l + H(p)`.

    The set holds the labels that are at most so much more surprising than the row's labels are on average, so rows of
    high entropy get larger sets than with `LAC`. In a row without doubt only labels near certainty conform.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
        >>> Entropy()(Block(probs, probs))[:, 0]
        tensor([ 0.0000, -0.3466], dtype=torch.float64)
    """

    def __call__(self, block: Block) -> Tensor:
        """In float64; smaller probabilities count as 1e-37, so that a present label stays above the absent ones."""
        probs = block.values.double().clamp(min=0.0)
        logs = probs.clamp(min=1e-37).log()
        return logs - (probs * logs).sum(-1, keepdim=True)


def best_first(values: Tensor) -> tuple[Tensor, Tensor]:
    """Each row by descending score, equal scores by ascending label, and the labels in that order."""
    if torch.compiler.is_exporting():
        # ONNX has no stable sort, but its top-k returns the lower index first among equal values.
        return values.topk(values.shape[-1], dim=-1)
    return values.sort(dim=-1, descending=True, stable=True)


def label_ranks(values: Tensor) -> Tensor:
    """The rank of each label in its row, from 1; of equal scores, the lower label comes first.

    Example:
        >>> label_ranks(torch.tensor([[0.2, 0.5, 0.5]]))
        tensor([[3, 1, 2]])
    """
    _, order = best_first(values)
    return torch.zeros_like(order).scatter(-1, order, _ranks(order).expand_as(order))


def _ranks(ordered: Tensor) -> Tensor:
    """1, 2, ... along the labels of rows in descending order."""
    return torch.arange(1, ordered.shape[-1] + 1, device=ordered.device)


def _own_share(block: Block, randomized: bool) -> Tensor | float:
    """U: the share of a label's own mass that counts, one number per row."""
    return row_uniforms(block.scores)[:, None] if randomized else 1.0


def _subclasses(kind: type) -> list[type]:
    return [each for direct in kind.__subclasses__() for each in (direct, *_subclasses(direct))]

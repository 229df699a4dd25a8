"""Conformity scores: how well a label conforms to a row of scores. Thresholds and p-values are made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.kernels import ranked_rows
from shortlist.kernels.chooser import use_kernel
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

    def of_labels(self, block: Block, labels: Tensor) -> Tensor:
        """The conformity of one label of each row, ``(rows,)``; override it if that is less work than all of them."""
        return self(block).gather(-1, labels.unsqueeze(-1)).squeeze(-1)

    def reaching(self, block: Block, thresholds: Tensor) -> Tensor | None:
        """Which labels conform as much as the threshold of their row demands, if that is less work than all of it.

        Args:
            block: as above.
            thresholds: ``(rows,)`` float64.

        Returns:
            ``(rows, n)`` uint8: 1 for labels above the threshold, 2 for those at it, else 0; those of absent labels are
            arbitrary. None to compare all.
        """
        return None

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


class RankedScore(ConformityScore):
    """A conformity score that falls with the rank of the label and depends on no label of a lower rank.

    Probabilities are rounded so that their sums are exact: what a kernel selects without sorting, or an exported graph,
    is what sorting selects. In float64, so that sums of rounded probabilities do not tie by accident.
    """

    randomized: bool
    by_rank: ClassVar[bool]
    """Which of the two levels of `ranked_rows.first_labels`."""

    @abstractmethod
    def level(self, rank: Tensor, mass: Tensor, own: Tensor, best: Tensor, share: Tensor | float) -> Tensor:
        """Minus the conformity, float64.

        Args:
            rank: from 1, float64.
            mass: the sum of the probabilities of all labels before.
            own, best: the probability of the label, and the largest one of the row.
            share: U, or 1.
        """

    @property
    @abstractmethod
    def penalties(self) -> tuple[float, int]:
        """A weight for each rank, and the number of ranks without it."""

    def __call__(self, block: Block) -> Tensor:
        """Of all labels, by sorting them."""
        probs = block.values.clamp(min=0.0)
        ordered, order = best_first(probs)  # before it becomes twice as wide
        best, ordered = ordered[:, :1].double(), _summable(ordered, ordered[:, :1])
        share = row_uniforms(block.scores)[:, None] if self.randomized else 1.0
        level = self.level(_ranks(ordered).double(), ordered.cumsum(-1) - ordered, ordered, best, share)
        return torch.zeros_like(level).scatter(-1, order, -level)

    def of_labels(self, block: Block, labels: Tensor) -> Tensor:
        """Without sorting."""
        probs, at = block.values.clamp(min=0.0), labels.unsqueeze(-1)
        best = probs.amax(-1, keepdim=True)
        if use_kernel(1.0, probs, labels):
            rank, mass = ranked_rows.places(probs, labels)
            own = _summable(probs.gather(-1, at), best, probs.shape[-1])
        else:
            ahead, exact = _ahead(probs, labels), _summable(probs, best)
            rank, mass, own = ahead.sum(-1) + 1, torch.where(ahead, exact, 0.0).sum(-1), exact.gather(-1, at)
        share = row_uniforms(block.scores) if self.randomized else 1.0
        return -self.level(rank.double(), mass, own[:, 0], best[:, 0].double(), share)

    def reaching(self, block: Block, thresholds: Tensor) -> Tensor | None:
        """By counting labels of about the same probability, and sorting those at the end of the set."""
        probs = block.values.clamp(min=0.0)
        if not use_kernel(1.0, probs, thresholds):
            return None
        shares = row_uniforms(block.scores) if self.randomized else torch.ones(len(probs), dtype=torch.float64)
        weight, free = self.penalties
        return ranked_rows.first_labels(
            probs, shares, -thresholds, by_rank=self.by_rank, weight=weight, free=float(free)
        )


@dataclass(frozen=True)
class APS(RankedScore):
    r"""Minus the probability mass up to the label, best label first (APS); with a penalty on ranks, RAPS.

    .. math:: -\Big(\sum_{j : \text{before } l} p_j + U p_l + \eta\,(\text{rank}_l - \text{free})_+\Big)

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

    by_rank: ClassVar[bool] = False
    penalty: float = 0.0
    free: int = 0
    randomized: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", check_number("penalty", self.penalty, at_least=0.0))
        if not isinstance(self.free, Integral) or not 0 <= self.free < PRIME:
            raise ValueError(f"`free` must be an integer, at least 0 and below 2**31 - 1; got {self.free!r}.")
        object.__setattr__(self, "free", int(self.free))
        object.__setattr__(self, "randomized", bool(self.randomized))

    @property
    def penalties(self) -> tuple[float, int]:
        """``penalty`` and ``free``."""
        return self.penalty, self.free

    def level(self, rank: Tensor, mass: Tensor, own: Tensor, best: Tensor, share: Tensor | float) -> Tensor:
        """The mass before the label, its share of its own, and the penalty."""
        return mass + share * own + self.penalty * (rank - self.free).clamp(min=0)


@dataclass(frozen=True)
class SAPS(RankedScore):
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

    by_rank: ClassVar[bool] = True
    weight: float
    randomized: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_number("weight", self.weight, at_least=0.0))
        if self.weight == 0:
            raise ValueError("`weight` must be above 0; got 0.0.")
        object.__setattr__(self, "randomized", bool(self.randomized))

    @property
    def penalties(self) -> tuple[float, int]:
        """``weight``, of every rank beyond the first."""
        return self.weight, 1

    def level(self, rank: Tensor, mass: Tensor, own: Tensor, best: Tensor, share: Tensor | float) -> Tensor:
        """The largest probability, and a weight for each further rank."""
        return torch.where(rank == 1, share * best, best + (rank - 2 + share) * self.weight)


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

    def of_labels(self, block: Block, labels: Tensor) -> Tensor:
        """By the best of the other labels of each row."""
        at = labels.unsqueeze(-1)
        own, others = block.values.gather(-1, at).squeeze(-1), block.values.scatter(-1, at, 0.0).amax(-1)
        return own.clamp(min=0.0) - others.clamp(min=0.0)


@dataclass(frozen=True)
class Entropy(ConformityScore):
    r"""The log-probability of the label against the row's own expectation of it: :math:`\log p_l + H(p)`.

    The set holds the labels that are at most so much more surprising than the row's labels are on average, so rows of
    high entropy get larger sets than with `LAC`. In a row without doubt only labels near certainty conform.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
        >>> Entropy()(Block(probs, probs))[:, 0]
        tensor([ 0.0000, -0.3466])
    """

    def __call__(self, block: Block) -> Tensor:
        """Smaller probabilities count as 1e-37, so that a present label stays above the absent ones."""
        probs = block.values.clamp(min=0.0)
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


def true_ranks(values: Tensor, labels: Tensor) -> Tensor:
    """The rank of one label of each row, as in `label_ranks`."""
    if use_kernel(1.0, values, labels):
        return ranked_rows.places(values, labels)[0]
    return _ahead(values, labels).sum(-1) + 1


def _ahead(values: Tensor, labels: Tensor) -> Tensor:
    """Mask of the labels that rank before one label of each row."""
    at = labels.unsqueeze(-1)
    own = values.gather(-1, at)
    n = values.shape[-1]
    equal = torch.where(values == own, torch.arange(n, dtype=torch.int32, device=values.device), n)
    return (values > own) | (equal < at)


def _ranks(ordered: Tensor) -> Tensor:
    """1, 2, ... along the labels of rows in descending order."""
    return torch.arange(1, ordered.shape[-1] + 1, device=ordered.device)


def _summable(probs: Tensor, best: Tensor, count: int | None = None) -> Tensor:
    """Probabilities in float64, rounded to multiples of so large a number that sums of a row are exact in any order."""
    unit = best.double() * (2.0 * (count or probs.shape[-1]))
    return (probs.double() + unit) - unit


def _subclasses(kind: type) -> list[type]:
    return [each for direct in kind.__subclasses__() for each in (direct, *_subclasses(direct))]

"""The set of greatest expected utility, if one label is true and its probabilities are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_numbers, read_scores
from shortlist.sets.rule import Draw, SetRule
from shortlist.sets.scores import Block, Link
from shortlist.tensors import check_number, check_positive, may_look

_FIRST = 32
"""So many of the best labels are sorted first; most sets of greatest utility are smaller."""


class ExpectedUtility(SetRule):
    r"""The set of greatest expected utility, given the probabilities of one true label.

    .. math:: C(x) = \arg\max_S \sum_y p_y(x)\, U(S, y), \quad U(S, y) = g(|S|)\, [y \in S]

    For each size, the best set holds the labels of greatest probability, so that one sort and its prefix sums find the
    best set among all :math:`2^n` exactly, in :math:`O(n \log n)`. Of sets that are equally good, the smallest is the
    answer, and of equal scores the lower label is inside.

    With a matrix ``worth``, labels differ in what they are worth if another one is true:

    .. math:: U(S, y) = g(|S|) \sum_{l \in S} w_{yl}

    The labels are then sorted by :math:`\sum_y p_y w_{yl}`, and the answer is exact as well; it is empty if no set is
    worth more than nothing. The identity matrix gives the utility above. Costs are negative worth: with
    ``utility=lambda size: 1.0`` the set holds every label that is expected to gain more than it costs. Utilities that
    do not add up over the labels of a set, such as its worst cost, are not covered.

    Nothing is fitted: the sets are best if the probabilities are right, and no error is guaranteed. Calibrate the
    probabilities first.

    Args:
        utility: g, not negative: a function of the size, such as `u65`, `u80` and `f_utility`, or its values for the
            sizes 1 to n.
        worth: ``(n, n)``, finite: what label l (column) is worth in a set if y (row) is true; None for the identity.
        link, min_size: as in `SetRule`.

    Example:
        >>> probs = torch.tensor([[0.9, 0.06, 0.04], [0.6, 0.25, 0.15], [0.36, 0.33, 0.31]])
        >>> ExpectedUtility(u65).fit(probs, from_logits=False).predict(probs).sizes
        tensor([1, 1, 3])
        >>> ExpectedUtility(u80).fit(probs, from_logits=False).predict(probs).sizes
        tensor([1, 2, 3])

    References:
        Mortier, Wydmuch, Dembczyński, Hüllermeier, Waegeman, "Efficient set-valued prediction in multi-class
        classification", 2021; del Coz, Díez, Bahamonde, "Learning nondeterministic classifiers", 2009.
    """

    needs_labels = False
    needs_probabilities = True
    gains: Tensor

    def __init__(
        self,
        utility: Callable[[int], float] | Numbers,
        *,
        worth: Numbers | None = None,
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.utility = utility if callable(utility) else _read_gains(utility)
        self.worth = None if worth is None else _read_worth(worth)
        self._matrix = None if worth is None else torch.tensor(self.worth, dtype=torch.float64)
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("gains", torch.zeros(0, dtype=torch.float64))

    def _check_labels_count(self, num_labels: int) -> None:
        super()._check_labels_count(num_labels)
        for name, value in (("utility", self.utility), ("worth", self.worth)):
            if isinstance(value, list) and len(value) != num_labels:
                raise ValueError(f"`{name}` must be for {num_labels} labels; got {len(value)}.")

    def _check_buffers(self, num_labels: int) -> None:
        if self.gains.shape != (num_labels,) or not (self.gains >= 0).all() or self.gains.isinf().any():
            raise ValueError("`gains` must be finite and not negative, one for each size")

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return ()

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        sizes = range(1, (self.num_labels or 0) + 1)
        gains = _read_gains([self.utility(size) for size in sizes]) if callable(self.utility) else self.utility
        self.gains = torch.tensor(gains, dtype=torch.float64)
        return {"constraint": "greatest expected utility", "wanted": None, "achieved": None}

    def _arguments(self) -> dict[str, Any]:
        """As plain values: the utility by its values, once the number of labels is known."""
        arguments = super()._arguments()
        return {**arguments, "utility": self.gains.tolist() if self.fitted else arguments["utility"]}

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        values, gains = self._values(block), self.gains.to(block.values.device)
        n = values.shape[-1]
        look = draw is not None or may_look(values)  # `predict` reads its answer anyway
        if n <= _FIRST or not look:
            return best_labels(values, _best(values.topk(n, dim=-1).values, gains), look=look)
        best = _best(values.topk(_FIRST, dim=-1).values, gains)
        mask = best_labels(values, best, look=look)
        # No larger set gains more than everything of worth times the largest gain of those sizes.
        most = gains[_FIRST:].amax() * values.double().clamp(min=0).sum(-1)
        unsure = (best.utility <= most * (1 + 1e-9)).nonzero()[:, 0]
        if len(unsure):
            rest = values[unsure]
            ordered = rest.sort(dim=-1, descending=True).values
            mask[unsure] = best_labels(rest, _best(ordered, gains), look=look)
        return mask

    def _values(self, block: Block) -> Tensor:
        """What each label is expected to be worth in a set of gain 1; -inf for absent labels."""
        values = block.marked()
        if self._matrix is None:
            return values
        probs = torch.where(values > -torch.inf, values, 0.0).double()
        return torch.where(values > -torch.inf, probs @ self._matrix.to(values.device), -torch.inf)


class Best(NamedTuple):
    """The best sets of a block of rows.

    Attributes:
        size: ``(rows,)`` int64, how many of the best labels they hold.
        cut: ``(rows,)``, the value of the last of them; inf for an empty set.
        utility: ``(rows,)`` float64.
    """

    size: Tensor
    cut: Tensor
    utility: Tensor

    @classmethod
    def of(cls, ordered: Tensor, utilities: Tensor) -> Best:
        """The first of the sizes 0 to m with the greatest utility, ``(rows, m + 1)``; ``ordered`` is ``(rows, m)``."""
        size = utilities.argmax(-1)
        cut = ordered.gather(-1, (size - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
        best = utilities.gather(-1, size.unsqueeze(-1)).squeeze(-1)
        return cls(size, torch.where(size > 0, cut, torch.inf), best)


def _best(ordered: Tensor, gains: Tensor) -> Best:
    """Of the sets of the first labels, for values in descending order."""
    present = ordered > -torch.inf
    sums = torch.where(present, ordered, 0.0).double().cumsum(-1)
    utilities = torch.where(present, gains[: ordered.shape[-1]] * sums, -torch.inf)
    return Best.of(ordered, torch.cat([torch.zeros_like(sums[..., :1]), utilities], -1))


def best_labels(values: Tensor, best: Best, *, look: bool) -> Tensor:
    """Mask of the best labels of each row, as many as ``best.size``; ties by ascending label.

    With ``look``, values are read to see which rows tie.
    """
    cut, size = best.cut.unsqueeze(-1), best.size.unsqueeze(-1)
    if look:
        mask = values >= cut
        # Only rows that tie where the set ends take the further passes.
        tied = (mask.sum(-1) > best.size).nonzero()[:, 0]
        if len(tied):
            mask[tied] = _first_of_ties(values[tied], cut[tied], size[tied])
        return mask
    return _first_of_ties(values, cut, size)


def _first_of_ties(values: Tensor, cut: Tensor, size: Tensor) -> Tensor:
    above, equal = values > cut, values == cut
    return above | (equal & (equal.cumsum(-1) <= size - above.sum(-1, keepdim=True)))


def u65(size: int) -> float:
    """Discounted accuracy that takes two labels with one true for 0.65 of a right answer: ``1.6 / s - 0.6 / s**2``.

    Example:
        >>> round(u65(2), 2)
        0.65

    References:
        Zaffalon, Corani, Mauá, "Evaluating credal classifiers by utility-discounted predictive accuracy", 2012.
    """
    return 1.6 / size - 0.6 / size**2


def u80(size: int) -> float:
    """The same for those who mind doubt less: two labels with one true are worth 0.8, ``2.2 / s - 1.2 / s**2``.

    Example:
        >>> round(u80(2), 2)
        0.8
    """
    return 2.2 / size - 1.2 / size**2


def f_utility(beta: float = 1.0) -> Callable[[int], float]:
    r"""The F-beta of a set if one label is true, :math:`(1 + \beta^2) / (\beta^2 + s)`.

    Example:
        >>> f_utility(1.0)(3)
        0.5
    """
    return partial(_f_utility, beta=check_positive("beta", beta))


def _f_utility(size: int, *, beta: float) -> float:
    return (1 + beta**2) / (beta**2 + size)


def _read_gains(gains: Numbers) -> list[float]:
    values: Any = gains
    if not isinstance(gains, Sequence):
        read = read_numbers(gains, name="utility")
        if read.ndim != 1:
            raise TypeError(f"`utility` must be a function of the size or a sequence of its values; got {gains!r}.")
        values = read.tolist()
    return [check_number("utility", gain, at_least=0.0) for gain in values]


def _read_worth(worth: Numbers) -> list[list[float]]:
    matrix = read_scores(worth, name="worth").detach().cpu().double()
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.isfinite().all():
        raise ValueError(f"`worth` must be a square matrix of finite numbers; got shape {tuple(matrix.shape)}.")
    return matrix.tolist()

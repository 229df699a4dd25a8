"""The set of greatest expected F-beta, if labels are independent and their probabilities are given."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.kernels import label_counts
from shortlist.kernels.chooser import use_kernel
from shortlist.labels import Numbers, read_scores
from shortlist.sets.risk.expected_utility import Best, best_labels
from shortlist.sets.rule import Draw, Refusal, SetRule
from shortlist.sets.scores import Block, Link
from shortlist.tensors import check_positive, may_look

_FIRST = 8
"""So many of the best labels are looked at first; most sets of greatest expected F are smaller."""
_LEFT_OUT = 1e-18
"""Probability of more true labels than are counted."""

_NOT_PROBABILITIES: Refusal = (
    "`scores` must be probabilities, in [0, 1]",
    lambda block: (block > 1) | ((block < 0) & (block > -torch.inf)),
    None,
)


class ExpectedF(SetRule):
    r"""The set of greatest expected F-beta, given independent probabilities of any number of true labels.

    .. math:: C(x) = \arg\max_S E\,\frac{(1 + \beta^2)\,|S \cap Y|}{|S| + \beta^2 |Y|}, \quad
              Y_l \sim \mathrm{Bernoulli}(p_l(x)) \text{ independent}

    The best set holds the labels of greatest probability, as many as `expected_f` says: exact among all :math:`2^n`
    sets, up to rounding. An empty set is right where no label is true.

    Nothing is fitted: the sets are best if the probabilities are right and labels are independent given the row. They
    are the best for each row, whereas `PerLabelThreshold` is for the F1 of each label over all rows.

    Args:
        beta: weight of recall against precision, positive.
        link, min_size: as in `SetRule`.

    Example:
        >>> probs = torch.tensor([[0.9, 0.6, 0.1], [0.1, 0.2, 0.1], [0.3, 0.3, 0.3]])
        >>> ExpectedF().fit(probs, from_logits=False).predict(probs).sizes
        tensor([2, 0, 3])

    References:
        Ye, Chai, Lee, Chieu, "Optimizing F-measures: a tale of two approaches", 2012; Dembczyński, Waegeman, Cheng,
        Hüllermeier, "An exact algorithm for F-measure maximization", 2011.
    """

    needs_labels = False

    def __init__(self, beta: float = 1.0, *, link: Link = "sigmoid", min_size: int = 0) -> None:
        self.beta = check_positive("beta", beta)
        super().__init__(link=link, min_size=min_size)

    def _refusals(self) -> list[Refusal]:
        return [*super()._refusals(), *([] if self.from_logits else [_NOT_PROBABILITIES])]

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return ()

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        return {"constraint": "greatest expected F-beta", "wanted": None, "achieved": None}

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        values = block.marked()
        n = values.shape[-1]
        look = draw is not None or may_look(values)  # `predict` reads its answer anyway
        if not look:
            return best_labels(values, self._best(values, n, look=False)[0], look=False)
        mask, size = torch.zeros_like(values, dtype=torch.bool), min(_FIRST, n)
        rows = torch.arange(len(values), device=values.device)
        while len(rows):
            rest = values[rows]
            best, larger = self._best(rest, size, look=True)
            mask[rows] = best_labels(rest, best, look=True)
            rows = rows[best.utility <= larger * (1 + 1e-9)] if size < n else rows[:0]
            size = min(4 * size, n)
        return mask

    def _best(self, values: Tensor, size: int, *, look: bool) -> tuple[Best, Tensor]:
        """The best of the sets of at most ``size`` labels, and what no larger set exceeds."""
        ordered = values.topk(size, dim=-1).values
        masses = _count_masses(values, _most_labels(values.clamp(min=0.0), look=look))
        kernel = use_kernel(1.0, values)
        expected = (label_counts.expected_f if kernel else _expected_sizes)(ordered, masses, self.beta)
        utilities = torch.cat([masses[:, :1], torch.where(ordered > -torch.inf, expected, -torch.inf)], -1)
        # A set of k labels cannot hit more than all true ones; what `masses` leaves out has at most 1.
        true = torch.arange(masses.shape[1], dtype=masses.dtype, device=masses.device)
        worth = (1 + self.beta**2) * true / (size + 1 + self.beta**2 * true)
        return Best.of(ordered, utilities), masses @ worth + _LEFT_OUT


def expected_f(probs: Numbers, *, beta: float = 1.0) -> Tensor:
    r"""Expected F-beta of the first k labels, for every k, if labels are true independently.

    .. math:: f_k = \sum_s \frac{1 + \beta^2}{k + \beta^2 s} \sum_{i \le k} p_i\, P\big(|Y_{-i}| = s - 1\big), \quad
              f_0 = P(|Y| = 0)

    The distribution of the number of other true labels, :math:`|Y_{-i}|`, comes from that of all by division of
    polynomials, upward for :math:`p_i \le 1/2` and downward otherwise, in which rounding errors shrink. It takes
    :math:`O(n m)` per row, where m is n or, if that is less, a number of true labels that is exceeded with probability
    below 1e-18.

    Args:
        probs: ``(rows, n)``, in [0, 1].
        beta: weight of recall, positive.

    Returns:
        ``(rows, n + 1)`` float64.

    Example:
        >>> expected_f(torch.tensor([[1.0, 0.5]]))
        tensor([[0.0000, 0.8333, 0.8333]], dtype=torch.float64)
    """
    p = read_scores(probs, name="probs")
    masses = _count_masses(p, _most_labels(p, look=may_look(p)))
    return torch.cat([masses[:, :1], _expected_sizes(p, masses, beta)], -1)


def _expected_sizes(first: Tensor, masses: Tensor, beta: float) -> Tensor:
    """Expected F-beta of the first labels, ``(rows, k)`` for 1 to k of them, given the masses of all true labels."""
    p, most = first.double().clamp(min=0.0), masses.shape[-1] - 1
    sizes = torch.arange(1, p.shape[-1] + 1, dtype=p.dtype, device=p.device)
    low = p <= 0.5
    result = torch.zeros_like(p)
    upward, rest = torch.zeros_like(p), 1 / torch.where(low, 1 - p, 1.0)
    for s in range(1, most + 1):
        upward = torch.where(low, (masses[:, s - 1 : s] - p * upward) * rest, 0.0)
        result = result + (p * upward).cumsum(-1) * ((1 + beta**2) / (sizes + beta**2 * s))
    downward, rest = torch.zeros_like(p), 1 / torch.where(low, 1.0, p)
    for s in range(most, 0, -1):
        downward = torch.where(low, 0.0, (masses[:, s : s + 1] - (1 - p) * downward) * rest)
        result = result + (p * downward).cumsum(-1) * ((1 + beta**2) / (sizes + beta**2 * s))
    return result


def _count_masses(p: Tensor, most: int) -> Tensor:
    """Probabilities of 0 to ``most`` true labels, ``(rows, most + 1)``: products of polynomials, two by two."""
    if use_kernel(1.0, p) and not p.requires_grad:
        return label_counts.count_masses(p, most)
    p = p.double().clamp(min=0.0)
    factors = torch.stack([1 - p, p], -1)
    while factors.shape[1] > 1:
        if factors.shape[1] % 2:
            one = torch.cat([torch.ones_like(factors[:, :1, :1]), torch.zeros_like(factors[:, :1, 1:])], -1)
            factors = torch.cat([factors, one], 1)
        left, right, terms = factors[:, ::2], factors[:, 1::2], factors.shape[-1]
        width = min(2 * terms - 1, most + 1)
        shifted = (
            pad(left[..., : width - j] * right[..., j : j + 1], (j, width - j - min(terms, width - j)))
            for j in range(min(terms, width))
        )
        factors = sum(shifted, torch.zeros_like(left[..., :1]))
    return pad(factors[:, 0], (0, most + 1 - factors.shape[-1]))


def _most_labels(p: Tensor, *, look: bool) -> int:
    """A number of true labels that no row exceeds with probability above 1e-18, by Bernstein's inequality."""
    n = p.shape[-1]
    if not look or not len(p):
        return n
    mean = float(p.detach().sum(-1, dtype=torch.float64).amax())
    # exp(-t^2 / (2 (mean + t / 3))) = 1e-18
    log = -math.log(_LEFT_OUT)
    return min(n, math.ceil(mean + log / 3 + math.sqrt(log**2 / 9 + 2 * log * mean)))

"""Conformal p-values of every label, by binary search in the sorted calibration scores."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_scores
from shortlist.sets.conformal.conformity import LAC, ConformityScore
from shortlist.sets.conformal.split import LabelThresholds
from shortlist.sets.conformal.thresholds import conformal_threshold, members
from shortlist.sets.rule import Draw
from shortlist.sets.scores import Block, Link


class PValues(LabelThresholds):
    r"""How well each label conforms to the true labels of the calibration rows, as a p-value.

    .. math:: p_l(x) = \frac{\#\{i : s_i < s_l(x)\} + U\,(1 + \#\{i : s_i = s_l(x)\})}{N + 1}

    over the conformity scores s of all N calibration rows, or of those whose class is l (``by_class=True``). For
    exchangeable data the p-value of the true label is at most a with probability at most a, for every a at once; with
    ``by_class``, for the rows of every class. U is 1; smoothed p-values take it at random from (0, 1), which makes the
    probability exactly a, whatever the ties. The labels with a p-value above ``alpha`` are the set that the module
    returns; ``predict`` breaks ties at the threshold at random, as `AverageError` does.

    The rule keeps one number per calibration row, and its class.

    Args:
        alpha: miscoverage level of the sets, in (0, 1).
        by_class: whether a label is compared with the calibration rows of its own class alone. A class with fewer than
            1 / alpha - 1 rows is then in every set.
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import PValues
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = PValues(0.2).fit(scores, torch.tensor([0, 0, 1, 0]), from_logits=False)
        >>> rule.predict_p(torch.tensor([[0.75, 0.25]]))
        tensor([[0.6000, 0.2000]], dtype=torch.float64)
        >>> rule.predict(torch.tensor([[0.75, 0.25]])).to_list()
        [[0]]

    References:
        Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005, chapters 2 and 4.
    """

    other_shapes: ClassVar[tuple[str, ...]] = ("values", "places", "ends")
    values: Tensor
    places: Tensor
    ends: Tensor

    def __init__(
        self,
        alpha: float,
        *,
        by_class: bool = False,
        score: ConformityScore = LAC(),
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.by_class = bool(by_class)
        super().__init__(alpha, score, link=link, min_size=min_size)

    @torch.no_grad()
    def predict_p(
        self,
        scores: Numbers,
        *,
        smoothed: bool = False,
        generator: torch.Generator | None = None,
        draw: Draw | None = None,
    ) -> Tensor:
        """The p-value of each label, ``(rows, n)`` float64 on the CPU; 0 for absent labels.

        Args:
            scores: ``(rows, n)``, as in ``predict``.
            smoothed: whether U is random, one number per row; then p-values of true labels are uniform.
            generator, draw: the source of these numbers, as in ``predict``.
        """
        self._check_fitted()
        scores = read_scores(scores)
        self._check_reading(scores, bool(self.from_logits))
        source = self._read_scores(scores)
        self._check_values(source)
        draw = Draw(generator) if draw is None else draw
        found = torch.zeros(scores.shape, dtype=torch.float64)
        start = 0
        for block in source.blocks(self._link_used, on_host=True):
            stop = start + len(block.values)
            share = draw.uniform((stop - start, 1)) if smoothed else 1.0
            found[start:stop] = self._p_values(block, share)
            start = stop
        return found

    def _p_values(self, block: Block, share: Tensor | float) -> Tensor:
        values, places, ends = self.values.cpu(), self.places.cpu(), self.ends.cpu()
        conformity = self.score(block).double().contiguous()
        group = torch.arange(len(ends) - 1) if self.by_class else torch.tensor(0)
        at = torch.searchsorted(values, conformity)
        tied = values[at.clamp(max=len(values) - 1)] == conformity
        first = group * (len(values) + 1)
        below = torch.searchsorted(places, at + first) - ends[group]
        upto = torch.where(tied, torch.searchsorted(places, at + 1 + first) - ends[group], below)
        count = (ends[1:] - ends[:-1])[group]
        p = (below + share * (1.0 + upto - below).double()) / (count + 1)
        return torch.where(block.scores == -torch.inf, 0.0, p)

    def _cut(self, block: Block | None) -> tuple[Tensor, Tensor]:
        return super()._cut(block) if self.by_class else (self.thresholds[0], self.tie_shares[0])

    def _clear(self) -> None:
        super()._clear()
        # The distinct conformity scores in ascending order; for each calibration row, sorted, its class times their
        # number plus one, plus the place of its score among them; and where the rows of each class start and end.
        self.register_buffer("values", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("places", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("ends", torch.zeros(0, dtype=torch.int64))

    def _check_buffers(self, num_labels: int) -> None:
        super()._check_buffers(num_labels)
        groups, rows = (num_labels if self.by_class else 1), len(self.places)
        step = len(self.values) + 1
        sorted_ = all(bool((part.diff() >= 0).all()) for part in (self.values, self.places, self.ends))
        if len(self.ends) != groups + 1 or rows == 0 or not sorted_ or not len(self.values):
            raise ValueError("`values`, `places` and `ends` must be sorted, with an end for each class")
        if not torch.equal(torch.searchsorted(self.places, step * torch.arange(groups + 1)), self.ends):
            raise ValueError("`ends` must be where the rows of each class end")

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        true, classes = observed
        num_labels = self.num_labels or 0
        group = classes if self.by_class else torch.zeros_like(classes)
        # A -inf is a true label that was absent; it ranks below all others.
        self.values, place = true.double().unique(return_inverse=True)
        step, groups = len(self.values) + 1, num_labels if self.by_class else 1
        self.places = (group * step + place).sort().values
        self.ends = torch.searchsorted(self.places, step * torch.arange(groups + 1))
        rows = members(group)
        cuts = [conformal_threshold(true[rows.get(each, group[:0])], self.alpha) for each in range(groups)]
        self.thresholds, self.tie_shares = (
            torch.tensor(part, dtype=torch.float64).expand(num_labels).clone() for part in zip(*cuts, strict=True)
        )
        if self.by_class:
            constraint, achieved = "error of each class", self._worst_error(true, classes)
        else:
            constraint, achieved = "average error", float(self._missed(true, classes).double().mean())
        return {"constraint": constraint, "wanted": self.alpha, "achieved": achieved}

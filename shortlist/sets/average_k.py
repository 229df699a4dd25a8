"""As many labels as each example needs, k on average."""

from __future__ import annotations

from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.functional.options import check_number
from shortlist.sets.entries import Entries, entries_reaching
from shortlist.sets.largest_scores import Cut, LargestScores
from shortlist.sets.rule import Draw, Link, SetRule
from shortlist.sets.sharded_largest_scores import ShardedCut, ShardedLargestScores
from shortlist.sets.sharded_scores import ScoreShard

# Without the number of rows in advance, this many times the labels wanted so far are kept.
_RESERVE = 8


class AverageK(SetRule):
    r"""All labels whose score reaches one threshold, chosen so that there are ``k`` of them on average.

    .. math:: \lambda = \tfrac12 \left(s_{[m]} + s_{[m + 1]}\right), \quad m = \lfloor k N \rfloor

    over all :math:`N \times n` scores of the calibration data, which needs no labels. For scores that are the true
    probabilities no rule with the same average size makes fewer errors.

    Where scores tie at the threshold, lower labels come first; of the one label at which the m-th score is reached, an
    even share of the tied rows is taken, in the order of the call. So ``predict`` on the calibration data, in one call,
    returns exactly m labels whatever the ties.

    Scores may be a ``DTensor`` that is sharded along its labels, in all batches of a fit or in none: every process
    keeps the largest of its own, and all find the same threshold by counting. Softmax scores of sharded and of plain
    logits may differ in the last bit, so that ties at the threshold of a rule that was fitted the other way may fall
    otherwise.

    Args:
        k: how many labels on average, a real number, at least 0. It is read as written: 0.29 of 100 rows are 29.
        rows: how many calibration rows will come, if they come in batches and this is known.
        link, min_size: as in `SetRule`. ``min_size`` adds labels beyond the average.

    Example:
        >>> from shortlist.sets import AverageK
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
        >>> rule = AverageK(1.5).fit(scores, from_logits=False)
        >>> rule.predict(scores).sizes  # one label where one is enough
        tensor([1, 2])

    References:
        Lorieul, "Uncertainty in predictions of deep learning models for fine-grained classification", 2020; Garcin,
        "Set-valued classification", 2023, chapters 2 and 3.
    """

    needs_labels: ClassVar[bool] = False
    threshold: Tensor
    tie_label: Tensor
    tie_taken: Tensor
    tie_count: Tensor

    def __init__(self, k: float, *, rows: int | None = None, link: Link = "softmax", min_size: int = 0) -> None:
        self.k = check_number("k", k, at_least=0.0)
        if rows is not None and (not isinstance(rows, Integral) or rows < 1):
            raise ValueError(f"`rows` must be None or a whole number, at least 1; got {rows!r}.")
        self.rows = None if rows is None else int(rows)
        super().__init__(link=link, min_size=min_size)

    def options(self) -> dict[str, Any]:
        return {"k": self.k, "rows": self.rows}

    def wanted(self, rows: int) -> int:
        """How many labels ``rows`` rows get together."""
        return int(Fraction(repr(self.k)) * rows)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(torch.inf, dtype=torch.float64))
        # Labels below this one are inside when their score equals the threshold.
        self.register_buffer("tie_label", torch.tensor(0))
        self.register_buffer("tie_taken", torch.tensor(0))
        self.register_buffer("tie_count", torch.tensor(1))
        self._largest: LargestScores | None = None
        self._seen = 0

    def _observe(self, values: Tensor, labels: Any) -> None:
        self._keep(values, LargestScores(values.shape[1]))

    def _observe_own(self, values: Tensor, shard: ScoreShard) -> None:
        self._keep(values, ShardedLargestScores(shard))

    def _keep(self, values: Tensor, empty: LargestScores) -> None:
        if self._largest is None:
            self._largest, self._dtype = empty, values.dtype
        if type(empty) is not type(self._largest):
            raise ValueError("`scores` must be sharded over processes in all batches or in none.")
        self._seen += len(values)
        total = self._expected or self.rows
        keep = self.wanted(total) + 1 if total else _RESERVE * self.wanted(self._seen) + 1024
        self._largest.add(values.numpy(), keep)

    def _settle(self) -> dict[str, Any]:
        if self.rows not in (None, self._rows):
            raise ValueError(f"`rows` must be the number of rows that come; it is {self.rows}, and {self._rows} came.")
        m = self.wanted(self._rows)
        if self._largest is not None and m > 0:
            if m >= self._largest.total:
                self._set(-torch.inf, self.num_labels or 0, 0, 1)
            else:
                self._cut(self._largest.cut(m))
        achieved = min(m, self._largest.total if self._largest else 0) / self._rows
        return {"constraint": "average size", "wanted": self.k, "achieved": achieved}

    def _cut(self, cut: Cut | ShardedCut | None) -> None:
        if cut is None:
            raise ValueError(
                "the batches differ too much to find the threshold in the scores kept; give `rows`, their total number."
            )
        if cut.complete and cut.below < cut.value:
            self._set(_midpoint(cut, self._dtype), self.num_labels or 0, 0, 1)
            return
        self._set(cut.value, *cut.quota())

    def _set(self, threshold: float, label: int, taken: int, count: int) -> None:
        self.threshold.fill_(threshold)
        self.tie_label.fill_(label)
        self.tie_taken.fill_(taken)
        self.tie_count.fill_(count)

    def _forget(self) -> None:
        self._largest = None

    def _select(self, values: Tensor, draw: Draw | None) -> Tensor:
        threshold = self.threshold.to(values.dtype)
        labels = torch.arange(values.shape[-1], device=values.device)
        tied = values == threshold
        inside = (values > threshold) | (tied & (labels < self.tie_label) & (values > -torch.inf))
        column = tied & (labels == self.tie_label)
        row = column.any(-1)
        return inside | (column & (row & self._taken(row.cumsum(0))).unsqueeze(-1))

    def _own_entries(self, values: Tensor, shard: ScoreShard, draw: Draw) -> Entries:
        found = entries_reaching(values, self.threshold)
        found = found._replace(labels=found.labels + shard.labels.first)
        return shard.at_least(found.where(self._kept(found, draw)), values, self.min_size)

    def _floor(self) -> Tensor:
        return self.threshold

    def _kept(self, found: Entries, draw: Draw) -> Tensor:
        above = found.values > self.threshold.to(found.values.dtype)
        column = ~above & (found.labels == self.tie_label)
        place = column.cumsum(0) + draw.seen
        draw.seen += int(column.sum())
        return above | (found.labels < self.tie_label) | (column & self._taken(place))

    def _taken(self, place: Tensor) -> Tensor:
        """The quota of one label: tied rows are counted through, and taken when their even share passes a number."""
        return place * self.tie_taken // self.tie_count > (place - 1) * self.tie_taken // self.tie_count


def _midpoint(cut: Cut | ShardedCut, dtype: torch.dtype) -> float:
    """Between the last score inside and the first outside, in their own type; the former if the two are neighbours."""
    middle = torch.tensor(cut.value / 2 + cut.below / 2, dtype=torch.float64).to(dtype).item()
    return middle if cut.below < middle <= cut.value else cut.value

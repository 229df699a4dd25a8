"""Losses of hits alone, exactly at every threshold: they change only where a true label leaves its set."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from shortlist.sets.risk.admissible import hoeffding_bentkus
from shortlist.sets.risk.risks import Risk
from shortlist.tensors import as_written


class HitLosses:
    """The total loss of the held-out rows as their true labels leave the sets one by one, the lowest score first.

    Args:
        risk: one that larger sets lower, with ``of_hits``.
        true: ``(m,)`` scores of the true labels, row by row.
        row_counts: ``(rows,)`` number of true labels.
    """

    def __init__(self, risk: Risk, true: Tensor, row_counts: Tensor) -> None:
        if not len(true):
            raise ValueError(f"`labels` must have at least one positive; without one, the {risk.name} is undefined.")
        self._risk = risk
        self._rows = int((row_counts > 0).sum()) if risk.labeled_rows else len(row_counts)
        self._bound = 1.0 if risk.bound is None else risk.bound
        order = true.argsort(stable=True)
        self._true = true[order]
        self._kinds, self._steps = _steps(risk, row_counts, order)
        sizes, times = row_counts[row_counts >= int(risk.labeled_rows)].unique(return_counts=True)
        self._least = sum(
            (_loss(risk, m, m) * n for m, n in zip(sizes.tolist(), times.tolist(), strict=True)), Fraction()
        )
        steps = torch.tensor([float(step) for step in self._steps], dtype=torch.float64)[self._kinds]
        self._totals = float(self._least) + torch.cat([steps.new_zeros(1), steps.cumsum(0)])

    def threshold(self, alpha: float, delta: float | None) -> float:
        """The largest threshold that keeps the mean loss of new rows at ``alpha`` or below; -inf if none is known to.

        A monotone risk allows to choose among scores of the held-out rows themselves: if a threshold above the last
        safe one is accepted, so is every one between the two, and each of these, fixed in advance, is accepted with
        probability at most ``delta``.

        Args:
            alpha: the bound.
            delta: how often it may fail; None for a bound on the expectation.
        """
        if delta is None:
            # The mean over these rows and one more, with the greatest loss.
            budget = as_written(alpha) * (self._rows + 1) - as_written(self._bound)
            missing = int((self._totals <= float(budget) * (1 + 1e-9) + 1e-9).sum()) - 1
            while missing >= 0 and self._exact_total(missing) > budget:
                missing -= 1
        else:
            p = hoeffding_bentkus(self._totals / self._bound, self._rows, alpha / self._bound)
            missing = int((p <= delta).sum()) - 1
        # The threshold is the score of the first label that must not be missing; labels that tie with it are included.
        return -math.inf if missing < 0 else float(self._true[min(missing, len(self._true) - 1)])

    def mean(self, threshold: float) -> float:
        """The mean loss of the held-out rows at a threshold; absent labels are always missing."""
        missing = int(((self._true < threshold) | (self._true == -torch.inf)).sum())
        return float(self._totals[missing]) / self._rows

    def _exact_total(self, missing: int) -> Fraction:
        times = self._kinds[:missing].bincount(minlength=len(self._steps)).tolist()
        return self._least + sum((step * n for step, n in zip(self._steps, times, strict=True)), Fraction())


def _steps(risk: Risk, row_counts: Tensor, order: Tensor) -> tuple[Tensor, list[Fraction]]:
    """What each label adds when it leaves: an index ``(m,)`` in the order of the scores, and the values."""
    rows = torch.arange(len(row_counts)).repeat_interleave(row_counts)[order]
    # A label leaves after those of its row with lower scores.
    by_row = rows.argsort(stable=True)
    first = (row_counts.cumsum(0) - row_counts)[rows[by_row]]
    place = torch.empty_like(rows).scatter(0, by_row, torch.arange(len(rows)) - first)
    base = int(row_counts.max()) + 1
    keys, kinds = (row_counts[rows] * base + place).unique(return_inverse=True)
    pairs = [divmod(key, base) for key in keys.tolist()]
    steps = [_loss(risk, m - left - 1, m) - _loss(risk, m - left, m) for m, left in pairs]
    if min(steps) < 0:
        raise ValueError(f"the loss of {risk.name!r} must not fall when a true label is missing.")
    return kinds, steps


def _loss(risk: Risk, hits: int, positives: int) -> Fraction:
    if risk.of_hits is None:
        raise TypeError(f"{risk.name!r} has no `of_hits`.")
    return Fraction(risk.of_hits(hits, positives))

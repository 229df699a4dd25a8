"""Weighted calibration scores, and the threshold for a new row with a weight of its own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.tensors import as_written


class WeightedScores(NamedTuple):
    """Distinct scores of true labels and the weight up to each.

    Attributes:
        values: ``(count,)`` float64, ascending.
        cumulative: ``(count,)`` float64, the weight of all rows that score at most as much.
        total: the weight of all rows.
    """

    values: Tensor
    cumulative: Tensor
    total: Tensor

    @classmethod
    def of(cls, scores: Tensor, weights: Tensor) -> WeightedScores:
        """Add the weights of equal scores.

        Example:
            >>> WeightedScores.of(torch.tensor([0.5, 0.2, 0.5]), torch.tensor([1.0, 2.0, 3.0])).cumulative
            tensor([2., 6.], dtype=torch.float64)
        """
        values, place = scores.double().unique(return_inverse=True)
        summed = torch.zeros_like(values).index_add(0, place, weights.double())
        if not summed.sum() > 0:
            raise ValueError("`weights` must have a positive sum; all are 0.")
        if not summed.sum() < torch.inf:
            raise ValueError("`weights` must have a finite sum; divide them by the largest.")
        cumulative = summed.cumsum(0)
        return cls(values, cumulative, cumulative[-1])

    def cut(self, alpha: float, own: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest conformity in the set of a row, and the probability of including a label equal to it.

        With W the total, and sums over the calibration rows, a label of conformity s is in the set if its p-value
        (sum_{s_i <= s} w_i + own) / (W + own) is above alpha. A tie at the threshold is included as often as its
        smoothed p-value is above alpha. Sums are float64; with integer weights they are exact.

        Args:
            alpha: miscoverage level.
            own: weights of new rows, of any shape.

        Returns:
            Thresholds and shares in the shape of ``own``; -inf and 1 where the row's own weight needs all labels.
        """
        # Times the denominator of alpha, so that no fraction is rounded.
        part, whole = (float(number) for number in as_written(alpha).as_integer_ratio())
        sums, needed = whole * self.cumulative, part * self.total - (whole - part) * own
        if torch.compiler.is_exporting():  # ONNX has no binary search.
            at = (sums <= needed[..., None]).sum(-1)
        else:
            at = torch.searchsorted(sums, needed.contiguous(), right=True)
        at = at.clamp(max=len(self.values) - 1)
        upto = _picked(self.cumulative, at)
        equal = upto - torch.where(at > 0, _picked(self.cumulative, (at - 1).clamp(min=0)), 0.0)
        share = ((upto - needed / whole) / (equal + own)).clamp(0.0, 1.0)
        everything = needed < 0
        return torch.where(everything, -torch.inf, _picked(self.values, at)), torch.where(everything, 1.0, share)

    def lowest(self, alpha: float) -> WeightedScores:
        """Without the scores that are the threshold for no weight."""
        part, whole = as_written(alpha).as_integer_ratio()
        above = int((float(whole) * self.cumulative <= float(part) * self.total).sum())
        return WeightedScores(self.values[: above + 1], self.cumulative[: above + 1], self.total)

    def check(self) -> None:
        """Raise ValueError for values that `of` could not have made."""
        ascending = bool((self.values.diff() > 0).all()) and bool((self.cumulative.diff() >= 0).all())
        if not len(self.values) or self.values.shape != self.cumulative.shape or not ascending:
            raise ValueError("`values` and `cumulative` must be equally many, at least one, and ascending")
        if not 0 < self.cumulative[-1] <= self.total < torch.inf:
            raise ValueError("`total` must be finite and at least the last of `cumulative`, which must be positive")


def _picked(values: Tensor, at: Tensor) -> Tensor:
    """``values[at]``, without reading an index that has no dimensions, and in a form that exports."""
    return values.index_select(0, at.reshape(-1)).reshape(at.shape)

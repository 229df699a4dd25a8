"""Scores and labels as all metrics read them, and checks of shared arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.labels import (
    LabelsLike,
    Numbers,
    TargetForm,
    list_labels,
    read_numbers,
    read_scores,
    read_target,
    target_form,
)
from shortlist.tensors import check_number, counts_of, may_look, whole_k

_ANY = 1 << 62


class ScoredLabels(NamedTuple):
    """Rows of scores with their known positives.

    On an accelerator, the labels of index forms are not counted, because that would synchronize with it: every row has
    ``width`` entries then, of which some may be padding.
    """

    scores: Tensor  # (B, n); -inf for labels that are absent or unknown, which are never predicted
    rows: Tensor  # (m,) int64, ascending: the row of each positive
    labels: Tensor  # (m,) int64, ascending in each row
    counted: Tensor  # (B,) bool: rows that `mask` does not leave out
    width: int | None = None  # entries of each row, if fixed
    present: Tensor | None = None  # (m,) bool: False for padding, which names label 0; None if there is none

    @property
    def num_labels(self) -> int:
        """n."""
        return self.scores.shape[-1]

    @property
    def positives(self) -> Tensor:
        """The number of positives in each row, ``(B,)`` int64."""
        if self.present is None:
            return counts_of(self.rows, len(self.scores))
        return self.present.reshape(len(self.scores), -1).sum(-1)

    @property
    def every_row_has_one_class(self) -> bool:
        """Whether that is known without reading a value."""
        return self.width == 1 and self.present is None

    def row_sums(self, values: Tensor) -> Tensor:
        """Sum of one value for each positive over its row, ``(B,)``."""
        if self.width is None:
            values = values.long() if values.dtype == torch.bool else values
            return values.new_zeros(len(self.scores)).index_add(0, self.rows, values)
        values = values if self.present is None else values * self.present
        return values.reshape(len(self.scores), self.width).sum(-1)

    def gain_of(self, labels: Tensor, gains: Tensor | None) -> Tensor:
        """Gain of each of ``labels`` ``(B, p)`` that is positive, else 0; float64."""
        found = self.are_positive(labels)
        return found.double() if gains is None else gains[labels] * found

    def are_positive(self, labels: Tensor) -> Tensor:
        """Which of ``labels`` ``(B, p)`` are positives of their row."""
        if len(self.rows) == 0:
            return torch.zeros(labels.shape, dtype=torch.bool, device=labels.device)
        if self.width is not None:
            own = self.labels if self.present is None else torch.where(self.present, self.labels, -1)
            return (labels.unsqueeze(-1) == own.reshape(len(labels), 1, self.width)).any(-1)
        n = self.num_labels
        keys = self.rows * n + self.labels
        wanted = torch.arange(len(labels), device=labels.device).unsqueeze(-1) * n + labels
        return keys[torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)] == wanted

    def chosen(self) -> tuple[Tensor, Tensor]:
        """The row and the label of each positive in a row that counts; reading their number synchronizes."""
        counted = self.counted[self.rows] if self.present is None else self.counted[self.rows] & self.present
        return self.rows[counted], self.labels[counted]

    def true_scores(self) -> Tensor:
        """The scores of the positives, ``(m,)``."""
        if self.width is not None:
            return self.scores.gather(1, self.labels.reshape(-1, self.width)).reshape(-1)
        return self.scores[self.rows, self.labels]


def read_scored_labels(scores: Numbers, target: LabelsLike, mask: Numbers | None = None) -> ScoredLabels:
    """Check and read the arguments shared by all metrics.

    Args:
        scores: ``(B, n)`` floating, any real numbers; ``-inf`` marks an absent label. A tensor, a numpy array, a table
            of pandas, polars or pyarrow, or a list of lists.
        target: labels of the same rows in any form of :mod:`shortlist.targets`, as a tensor or in another library.
        mask: ``(B,)`` bool, False for rows that do not count.
    """
    scores = read_scores(scores)
    if scores.ndim != 2:
        raise ValueError(f"`scores` must have the shape (rows, labels); got {tuple(scores.shape)}.")
    num_rows, n = scores.shape
    given, target = target, read_target(target, n)
    target = target if target is given else target.to(scores.device)
    form = target_form(target, n)
    if len(target) != num_rows:
        raise ValueError(f"`target` must have the {num_rows} rows of `scores`; got shape {tuple(target.shape)}.")
    counted = check_mask(mask, num_rows, scores.device)
    if form in (TargetForm.CLASS_INDICES, TargetForm.INDEX_LISTS) and not may_look(target) and target.numel():
        width = 1 if form is TargetForm.CLASS_INDICES else target.shape[-1]
        rows = torch.arange(num_rows, device=target.device)
        rows = rows if width == 1 else rows.unsqueeze(-1).expand(target.shape).reshape(-1)
        if form is TargetForm.CLASS_INDICES:
            return ScoredLabels(scores.detach(), rows, target, counted, width)
        target = target.reshape(-1)
        return ScoredLabels(scores.detach(), rows, target.clamp(min=0), counted, width, target >= 0)
    entries = list_labels(target, n, check=may_look(target))
    positives, x = entries.positives(), scores.detach()
    if len(positives.values) < len(entries.values):
        unknown = entries.only(entries.values < 0)
        x = x.index_put(unknown.pairs(), x.new_tensor(-math.inf))
    return ScoredLabels(x, *positives.pairs(), counted)


def check_mask(mask: Numbers | None, rows: int, device: torch.device) -> Tensor:
    """``mask`` as a bool for each row; without one, all rows count."""
    if mask is None:
        return torch.ones(rows, dtype=torch.bool, device=device)
    given, mask = mask, read_numbers(mask, name="mask")
    if mask.dtype != torch.bool:
        raise TypeError(f"`mask` must be a bool tensor, False for rows that do not count; got {mask.dtype}.")
    if mask.shape != (rows,):
        raise ValueError(f"`mask` must have one value per row, shape ({rows},); got {tuple(mask.shape)}.")
    return mask if mask is given else mask.to(device)


def check_ks(k: int | Sequence[int], n: int | None = None) -> list[int]:
    """One ``k`` or several, as a list of integers in [1, n]."""
    ks = list(k) if isinstance(k, Sequence) else [k]
    if not ks:
        raise ValueError("`k` must contain at least one number; got none.")
    for one in ks:
        if n is None and whole_k(one, _ANY, lowest=-_ANY) < 1:
            raise ValueError(f"`k` must be at least 1; got {one}.")
        whole_k(one, _ANY if n is None else n)
    return [int(one) for one in ks]


def like_k(values: Tensor, k: int | Sequence[int]) -> Tensor:
    """``values`` ``(..., len(ks))``, without the last axis if ``k`` is one number."""
    return values if isinstance(k, Sequence) else values.squeeze(-1)


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """``value``, which must be one of ``choices``."""
    if value not in choices:
        raise ValueError(f"`{name}` must be {' or '.join(map(repr, choices))}; got {value!r}.")
    return value


def check_one_rule(k: float | None, threshold: Numbers | None) -> float | Tensor | None:
    """The threshold, a finite number or a floating tensor; exactly one of ``k`` and ``threshold`` must be given."""
    if (k is None) == (threshold is None):
        raise ValueError(f"one of `k` and `threshold` must be given; got {'neither' if k is None else 'both'}.")
    if threshold is None or isinstance(threshold, Real | str):
        return threshold if threshold is None else check_number("threshold", threshold)  # pyright: ignore[reportArgumentType]
    return read_scores(threshold, name="threshold")


def refuse_nan(scores: Tensor) -> None:
    """Raise for the first row with a NaN, if reading values needs no synchronization."""
    # Summing is several times faster than testing every entry, and any NaN makes the sum NaN.
    if may_look(scores) and bool(scores.sum().isnan()) and bool((wrong := scores.isnan().any(-1)).any()):
        raise ValueError(f"`scores` row {int(wrong.nonzero()[0])}: scores must not be NaN.")

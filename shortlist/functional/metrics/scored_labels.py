"""Scores and labels as all metrics read them, and checks of shared arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.labels import list_labels, target_form
from shortlist.tensors import check_number, counts_of, may_look, whole_k

_ANY = 1 << 62


class ScoredLabels(NamedTuple):
    """Rows of scores with their known positives."""

    scores: Tensor  # (B, n); -inf for labels that are absent or unknown, which are never predicted
    rows: Tensor  # (m,) int64, ascending: the row of each positive
    labels: Tensor  # (m,) int64, ascending in each row
    counted: Tensor  # (B,) bool: rows that `mask` does not leave out

    @property
    def positives(self) -> Tensor:
        """The number of positives in each row, ``(B,)`` int64."""
        return counts_of(self.rows, len(self.scores))

    def gain_of(self, labels: Tensor, gains: Tensor | None) -> Tensor:
        """Gain of each of ``labels`` ``(B, p)`` that is positive, else 0; float64."""
        n = self.scores.shape[-1]
        result = torch.zeros(labels.shape, dtype=torch.float64, device=labels.device)
        if len(self.rows) == 0:
            return result
        keys = self.rows * n + self.labels
        wanted = torch.arange(len(labels), device=labels.device).unsqueeze(-1) * n + labels
        found = keys[torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)] == wanted
        return result.masked_fill(found, 1) if gains is None else torch.where(found, gains[labels], result)

    def true_scores(self) -> Tensor:
        """The scores of the positives, ``(m,)``."""
        return self.scores[self.rows, self.labels]


def read_scored_labels(scores: Tensor, target: Tensor, mask: Tensor | None = None) -> ScoredLabels:
    """Check and read the arguments shared by all metrics.

    Args:
        scores: ``(B, n)`` floating, any real numbers; ``-inf`` marks an absent label.
        target: labels of the same rows in any form of :mod:`shortlist.targets`.
        mask: ``(B,)`` bool, False for rows that do not count.
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"`scores` must be a floating tensor; got {kind}.")
    if scores.ndim != 2:
        raise ValueError(f"`scores` must have the shape (rows, labels); got {tuple(scores.shape)}.")
    num_rows, n = scores.shape
    target_form(target, n)
    if len(target) != num_rows:
        raise ValueError(f"`target` must have the {num_rows} rows of `scores`; got shape {tuple(target.shape)}.")
    counted = check_mask(mask, num_rows, scores.device)
    entries = list_labels(target, n, check=may_look(target))
    positives, x = entries.positives(), scores.detach()
    if len(positives.values) < len(entries.values):
        unknown = entries.only(entries.values < 0)
        x = x.index_put(unknown.pairs(), x.new_tensor(-math.inf))
    return ScoredLabels(x, *positives.pairs(), counted)


def check_mask(mask: Tensor | None, rows: int, device: torch.device) -> Tensor:
    """``mask`` as a bool for each row; without one, all rows count."""
    if mask is None:
        return torch.ones(rows, dtype=torch.bool, device=device)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"`mask` must be a bool tensor, False for rows that do not count; got {kind}.")
    if mask.shape != (rows,):
        raise ValueError(f"`mask` must have one value per row, shape ({rows},); got {tuple(mask.shape)}.")
    return mask


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


def check_one_rule(k: float | None, threshold: float | Tensor | None) -> None:
    """Exactly one of ``k`` and ``threshold`` must be given; a threshold is a finite number or a floating tensor."""
    if (k is None) == (threshold is None):
        raise ValueError(f"one of `k` and `threshold` must be given; got {'neither' if k is None else 'both'}.")
    if isinstance(threshold, Tensor) and not threshold.is_floating_point():
        raise TypeError(f"`threshold` must be a number or a floating tensor; got {threshold.dtype}.")
    if threshold is not None and not isinstance(threshold, Tensor):
        check_number("threshold", threshold)


def refuse_nan(scores: Tensor) -> None:
    """Raise for the first row with a NaN, if reading values needs no synchronization."""
    # Summing is several times faster than testing every entry, and any NaN makes the sum NaN.
    if may_look(scores) and bool(scores.sum().isnan()) and bool((wrong := scores.isnan().any(-1)).any()):
        raise ValueError(f"`scores` row {int(wrong.nonzero()[0])}: scores must not be NaN.")

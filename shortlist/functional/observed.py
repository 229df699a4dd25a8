"""Labels as the losses read them: the one class of each row, or masks of what is present and what is absent."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.reduction import check_weight
from shortlist.functional.rows import check_logits, holds, is_plain, solvable
from shortlist.targets import TargetForm, stored_entries, target_form

_INDICES = (TargetForm.CLASS_INDICES, TargetForm.INDEX_LISTS)


class OneClass(NamedTuple):
    """Rows with one true class each."""

    logits: Tensor  # (*rows, n), float32 or float64; -inf where a label is unknown
    index: Tensor  # (*rows, 1): the true class, or 0 where there is none
    share: Tensor | None  # (*rows,): how much a row counts; None if all count alike

    def true_logit(self) -> Tensor:
        """The logit of the true class, ``(*rows,)``."""
        return self.logits.gather(-1, self.index).squeeze(-1)

    def others(self) -> Tensor:
        """The logits with -inf in the place of the true class."""
        return self.logits.scatter(-1, self.index, -math.inf)


class Observed(NamedTuple):
    """Rows with any number of positives, as numbers 0 and 1 (or soft targets between)."""

    logits: Tensor  # (*rows, n), float32 or float64; 0 where a label is unknown
    present: Tensor  # (*rows, n), same dtype
    absent: Tensor  # (*rows, n), same dtype; what is neither is unknown


def one_class(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> OneClass:
    """Read ``target`` as one class per row.

    Class indices always fit. Index lists must have room for one label, and -1 leaves the row out. A multi-hot, dense
    or sparse, must hold one positive per row; a row without any is left out, and unknown labels leave the competition.
    Two positives in a row raise where reading a value is free, and make the row NaN elsewhere.
    """
    form = check_rows(logits, target)
    x = solvable(logits)
    if x.shape[-1] == 0:
        raise ValueError("`logits` must have at least one label to be the true class; got 0.")
    if form in _INDICES:
        index, counted = _listed_class(target, form, x)
    else:
        hot = target.to_dense() if form is TargetForm.SPARSE else target
        index, counted = _hot_class(hot, x)
        if hot.is_floating_point():
            x = x.masked_fill(hot < 0, -math.inf)
    weight = check_weight(weight, x)
    if weight is None:
        return OneClass(x, index, counted)
    share = weight[index.squeeze(-1)]
    return OneClass(x, index, share if counted is None else share * counted)


def observed(logits: Tensor, target: Tensor) -> Observed:
    """Read ``target``, in any form, as dense masks."""
    x = solvable(logits)
    hot = _hot(target, x, check_rows(logits, target))
    if not target.is_floating_point() or holds(hot.numel() == 0 or hot.amin() >= 0):
        return Observed(x, hot, 1 - hot)
    present = hot.clamp(min=0)
    return Observed(x.masked_fill(hot < 0, 0), present, hot.sign().clamp(max=0) + (1 - present))


class Positives(NamedTuple):
    """The positives of each row, one by one."""

    logits: Tensor  # (*rows, m)
    share: Tensor  # (*rows, m): how much each counts, 0 for padding

    def total(self, terms: Tensor) -> Tensor:
        """The sum of the ``terms`` of the positives by their shares, whatever the terms of what is none."""
        if not holds(self.logits.numel() == 0 or self.logits.amin() > -math.inf):
            terms = torch.where(self.share > 0, terms, 0)  # 0 times inf
        return (terms * self.share).sum(-1)


def positives(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Positives:
    """Pick the positives: in O(labels) from index forms, and from multi-hots where reading them is free."""
    form = check_rows(logits, target)
    x = solvable(logits)
    weight = check_weight(weight, x)
    if form in _INDICES and x.shape[-1]:
        lists = target.unsqueeze(-1) if form is TargetForm.CLASS_INDICES else target
        index, share = lists.clamp(min=0), (lists >= 0).to(x.dtype)
    else:
        hot = _hot(target, x, form).clamp(min=0)
        lists = _lists(hot)
        if lists is None:
            return Positives(x, hot if weight is None else hot * weight)
        index = lists.clamp(min=0)
        share = hot.gather(-1, index) * (lists >= 0)
    return Positives(x.gather(-1, index), share if weight is None else share * weight[index])


class FewMarked(NamedTuple):
    """Rows in which all but a few entries are absent labels."""

    logits: Tensor  # (*rows, n), float32 or float64
    places: Tensor  # (m,): the other entries, as indices into the flattened logits
    values: Tensor  # (m,): 1 for present, negative for unknown

    @property
    def known(self) -> int:
        """How many entries are not unknown."""
        return self.logits.numel() - int((self.values < 0).sum())


def few_marked(logits: Tensor, target: Tensor) -> FewMarked | None:
    """Read ``target`` by what is not absent, or None where that is not free, not little, or soft."""
    form = check_rows(logits, target)
    x = solvable(logits)
    if not is_plain(x) or not is_plain(target) or x.numel() == 0:
        return None
    hot = _hot(target, x, form).reshape(-1)
    places = torch.from_numpy(np.flatnonzero(hot.detach().numpy() != 0))
    values = hot[places]
    if len(places) * 16 > x.numel() or target.requires_grad or ((values > 0) & (values != 1)).any():
        return None
    return FewMarked(x, places, values)


def without_unknown(logits: Tensor, target: Tensor) -> Tensor:
    """The logits with -inf for unknown labels, in a precision fit for solving."""
    form = check_rows(logits, target)
    x = solvable(logits)
    if not target.is_floating_point():
        return x
    hot = target.to_dense() if form is TargetForm.SPARSE else target
    return x if holds(hot.numel() == 0 or hot.amin() >= 0) else x.masked_fill(hot < 0, -math.inf)


def check_rows(logits: Tensor, target: Tensor) -> TargetForm:
    """The form of ``target``, checked to be for the rows of ``logits`` and, where reading is free, for its labels."""
    check_logits(logits)
    rows, n = logits.shape[:-1], logits.shape[-1]
    form = target_form(target, n, row_dims=len(rows))
    if target.shape[: len(rows)] != rows:
        raise ValueError(f"`target` must have the rows of `logits`, {tuple(rows)}; got shape {tuple(target.shape)}.")
    if form in _INDICES:
        lowest = 0 if form is TargetForm.CLASS_INDICES else -1
        wrong = (target < lowest) | (target >= n)
        _refuse(wrong if lowest == 0 else wrong.any(-1), f"labels must lie in [{lowest}, {n})", target)
    return form


def _listed_class(target: Tensor, form: TargetForm, x: Tensor) -> tuple[Tensor, Tensor | None]:
    if form is TargetForm.CLASS_INDICES:
        return target.unsqueeze(-1), None
    if target.shape[-1] != 1:
        raise ValueError(
            f"`target` must name one class per row; got index lists with room for {target.shape[-1]}. "
            "Losses for several positives are `lml_nll`, `two_way`, `bce` and others."
        )
    return target.clamp(min=0), (target >= 0).squeeze(-1).to(x.dtype)


def _hot_class(hot: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    positive = hot > 0
    several = positive.sum(-1) > 1
    _refuse(several, "one label must be positive for this loss", hot)
    counted = torch.where(several, math.nan, positive.any(-1).to(x.dtype))
    return positive.to(x.dtype).argmax(-1, keepdim=True), counted


def _hot(target: Tensor, x: Tensor, form: TargetForm) -> Tensor:
    """``target`` as a dense multi-hot in the dtype of ``x``, unknown labels negative."""
    if form is TargetForm.MULTI_HOT:
        return target.to(x.dtype)
    if form is TargetForm.SPARSE:
        rows, labels, values = stored_entries(target)
        return torch.zeros_like(x).index_put((rows, labels), values.to(x.dtype))
    if x.shape[-1] == 0:
        return torch.zeros_like(x)
    lists = target.unsqueeze(-1) if form is TargetForm.CLASS_INDICES else target
    # Padding writes a 0 to label 0, so the larger value wins.
    return torch.zeros_like(x).scatter_reduce(-1, lists.clamp(min=0), (lists >= 0).to(x.dtype), "amax")


def _lists(hot: Tensor) -> Tensor | None:
    """Index lists of the positives of a dense multi-hot, or None where its values may not or need not be read."""
    counts = (hot > 0).sum(-1)
    if hot.numel() == 0 or not holds((counts <= hot.shape[-1] // 8).all()):
        return None
    flat = counts.reshape(-1)
    rows, labels = (hot > 0).reshape(len(flat), -1).nonzero().unbind(-1)
    slots = torch.arange(len(rows)) - (flat.cumsum(0) - flat)[rows]
    lists = torch.full((len(flat), int(flat.max())), -1).index_put((rows, slots), labels)
    return lists.view(*counts.shape, -1)


def _refuse(wrong: Tensor, rule: str, target: Tensor) -> None:
    """Raise for the first row in which ``wrong`` is known to hold."""
    if holds(wrong.any()):
        row = tuple(wrong.nonzero()[0].tolist())
        name = row[0] if len(row) == 1 else row
        raise ValueError(f"`target` row {name}: {rule}; got {target[row].tolist()}.")

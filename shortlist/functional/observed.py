"""Labels as the losses read them: the one class of each row, the positives one by one, or a multi-hot as two masks.

Losses that need every label but some read index and sparse forms by :mod:`shortlist.functional.marked`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.checks import check_logits
from shortlist.functional.reduction import check_weight
from shortlist.labels.reading import read_labels
from shortlist.targets import TargetForm, fill_unknown, stored_entries, target_form
from shortlist.tensors import holds, is_plain, solvable, wide

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
        index, counted = (_stored_class if form is TargetForm.SPARSE else _hot_class)(target, x)
        x = fill_unknown(x, target, -math.inf)
    weight = check_weight(weight, x)
    if weight is None:
        return OneClass(x, index, counted)
    share = weight[index.squeeze(-1)]
    return OneClass(x, index, share if counted is None else share * counted)


def observed(logits: Tensor, target: Tensor) -> Observed:
    """Read ``target``, a multi-hot, as what is present and what is absent."""
    check_rows(logits, target)
    x = solvable(logits)
    hot = target.to(x.dtype)
    if not target.is_floating_point() or holds(hot.numel() == 0 or hot.amin() >= 0):
        return Observed(x, hot, 1 - hot)
    present = hot.clamp(min=0)
    return Observed(x.masked_fill(hot < 0, 0), present, hot.sign().clamp(max=0) + (1 - present))


class Positives(NamedTuple):
    """The positives of each row, one by one."""

    logits: Tensor  # (*rows, m); or (m,), of all rows
    share: Tensor  # the same shape: how much each counts, 0 for padding
    rows: Tensor | None = None  # (m,): the row of each; None if they stand in rows
    num_rows: int = 0

    def beside(self, column: Tensor) -> Tensor:
        """For each positive the value of its row in ``column``, ``(*rows, 1)``."""
        if self.rows is None:
            return column
        # Backwards the gradients of a row's positives are added one after the other.
        return column.reshape(-1).to(wide(column))[self.rows].to(column.dtype)

    def total(self, terms: Tensor) -> Tensor:
        """The sum of the ``terms`` of the positives by their shares, whatever the terms of what is none."""
        if not holds(self.logits.numel() == 0 or self.logits.amin() > -math.inf):
            terms = torch.where(self.share > 0, terms, 0)  # 0 times inf
        return self.row_sums(terms * self.share)

    def row_sums(self, values: Tensor) -> Tensor:
        """The sum of one value per positive, ``(*rows,)``."""
        if self.rows is None:
            return values.sum(-1)
        total = values.new_zeros(self.num_rows, dtype=wide(values))
        return total.index_add(0, self.rows, values.to(total.dtype)).to(values.dtype)


def positives(x: Tensor, target: Tensor, weight: Tensor | None = None) -> Positives:
    """Pick the positives: in O(labels) from index and sparse forms, and from multi-hots where reading them is free.

    ``x`` are logits that were read with the same ``target`` before, so that it is checked.
    """
    form = target_form(target, x.shape[-1], row_dims=x.ndim - 1)
    weight = check_weight(weight, x)
    if form is TargetForm.SPARSE:
        return _stored_positives(x, target, weight)
    if form in _INDICES and x.shape[-1]:
        lists = target.unsqueeze(-1) if form is TargetForm.CLASS_INDICES else target
        index, share = lists.clamp(min=0), (lists >= 0).to(x.dtype)
    elif form in _INDICES:
        return Positives(x, x)  # no labels, so no positives
    else:
        hot = target.to(x.dtype).clamp(min=0)
        lists = _lists(hot)
        if lists is None:
            return Positives(x, hot if weight is None else hot * weight)
        index = lists.clamp(min=0)
        share = hot.gather(-1, index) * (lists >= 0)
    return Positives(x.gather(-1, index), share if weight is None else share * weight[index])


def _stored_positives(x: Tensor, target: Tensor, weight: Tensor | None) -> Positives:
    rows, labels, values = stored_entries(target)
    share = values.to(x.dtype).clamp(min=0)
    if is_plain(share):
        found = share.detach() > 0
        rows, labels, share = rows[found], labels[found], share[found]
    own = x[rows, labels].masked_fill(share <= 0, 0)
    return Positives(own, share if weight is None else share * weight[labels], rows, len(x))


def without_unknown(logits: Tensor, target: Tensor) -> Tensor:
    """The logits with -inf for unknown labels, in a precision fit for solving."""
    check_rows(logits, target)
    return fill_unknown(solvable(logits), target, -math.inf)


def check_rows(logits: Tensor, target: Tensor) -> TargetForm:
    """The form of ``target``, checked to be for the rows of ``logits`` and, where reading is free, for its labels."""
    check_logits(logits)
    rows, n = logits.shape[:-1], logits.shape[-1]
    form = target_form(target, n, row_dims=len(rows))
    if target.shape[: len(rows)] != rows:
        raise ValueError(f"`target` must have the rows of `logits`, {tuple(rows)}; got shape {tuple(target.shape)}.")
    read_labels(target, logits.shape, dtype=torch.float32)
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


def _stored_class(target: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The one positive of each row of a sparse multi-hot, and whether there is one."""
    rows, labels, values = stored_entries(target)
    positive = values > 0
    n = x.shape[-1]
    # By its first and its last: where values are not read, one label may be named twice.
    first = labels.new_full((len(x),), n).scatter_reduce(0, rows, torch.where(positive, labels, n), "amin")
    last = labels.new_full((len(x),), -1).scatter_reduce(0, rows, torch.where(positive, labels, -1), "amax")
    several = first < last
    _refuse(several, "one label must be positive for this loss", target)
    return last.clamp(min=0).unsqueeze(-1), torch.where(several, math.nan, (last >= 0).to(x.dtype))


def _hot_class(hot: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    positive = hot > 0
    several = positive.sum(-1) > 1
    _refuse(several, "one label must be positive for this loss", hot)
    counted = torch.where(several, math.nan, positive.any(-1).to(x.dtype))
    return positive.to(x.dtype).argmax(-1, keepdim=True), counted


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
        if target.layout != torch.strided:
            rows, labels, values = stored_entries(target)
            raise ValueError(f"`target` row {name}: {rule}; got {labels[(rows == name) & (values > 0)].tolist()}.")
        raise ValueError(f"`target` row {name}: {rule}; got {target[row].tolist()}.")

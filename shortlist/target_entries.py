"""Labels one by one, whatever their form, with their values checked."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.target_forms import TargetForm, stored_entries, target_form


class Entries(NamedTuple):
    """Labels one by one: flat row, label, and value (positive: present, negative: unknown)."""

    row_shape: torch.Size
    rows: Tensor
    labels: Tensor
    values: Tensor

    def take(self, which: Tensor) -> "Entries":
        """Some of them, by a mask or by indices."""
        return Entries(self.row_shape, self.rows[which], self.labels[which], self.values[which])

    def counts(self) -> Tensor:
        """How many there are of each row."""
        return torch.bincount(self.rows, minlength=math.prod(self.row_shape))

    def hot_values(self, dtype: torch.dtype) -> Tensor:
        """The values 1 and -1 of a multi-hot."""
        if dtype != torch.bool and not dtype.is_floating_point:
            raise TypeError(f"`dtype` must be bool or floating; got {dtype}.")
        if dtype == torch.bool:
            self.refuse_unknown("bool")
        return torch.where(self.values > 0, 1, -1).to(dtype)

    def refuse(self, bad: Tensor, rule: str) -> None:
        """Raise for the first bad entry; ``rule`` may hold ``{value}``."""
        if bad.any():
            i = int(bad.nonzero()[0])
            row, label, value = self.row_name(int(self.rows[i])), int(self.labels[i]), self.values[i].item()
            raise ValueError(f"`target` row {row}: label {label} {rule.format(value=value)}")

    def refuse_unknown(self, form: str) -> None:
        """Raise for the first label that is unknown, which ``form`` cannot say."""
        self.refuse(self.values < 0, f"must not be unknown (negative) to become {form}; got {{value}}.")

    def row_name(self, row: int) -> str:
        """The index of a flat row; a tuple where there are several row dimensions."""
        index = tuple(int(place) for place in torch.unravel_index(torch.tensor(row), self.row_shape))
        return str(index[0] if len(index) == 1 else index)


def checked_entries(target: Tensor, num_labels: int, row_dims: int) -> Entries:
    """All present and unknown labels, sorted by row and then by label."""
    entries = distinct_entries(target, num_labels, row_dims)
    values = entries.values
    entries.refuse(~((values == 0) | (values == 1) | (values < 0)), "must have value 0, 1 or negative; got {value}.")
    return entries.take(values != 0)


def distinct_entries(target: Tensor, num_labels: int, row_dims: int) -> Entries:
    """All labels that a target names, sorted by row and then by label, whatever their values."""
    entries = _read(target, target_form(target, num_labels, row_dims=row_dims), target.shape[:row_dims])
    # Two stable sorts, because one by row * n + label can overflow.
    entries = entries.take(entries.labels.argsort(stable=True))
    entries = entries.take(entries.rows.argsort(stable=True))
    _, rows, labels, _ = entries
    entries.refuse((labels < 0) | (labels >= num_labels), f"must lie in [0, {num_labels}).")
    entries.refuse((rows[1:] == rows[:-1]) & (labels[1:] == labels[:-1]), "must not occur twice.")
    return entries


def refuse_ambiguous(target: Tensor, num_labels: int, *, row_dims: int = 1) -> None:
    """Raise for a label that a row names twice, and for one after a -1; this waits for the device.

    It is what losses check where reading values is free: soft targets pass. Labels in ascending order, as the
    conversions give them, are seen at a glance to be distinct.

    Args:
        target, num_labels, row_dims: as in `target_form`.

    Raises:
        ValueError: naming the row.

    Example:
        >>> refuse_ambiguous(torch.tensor([[2, 0, -1], [1, 1, -1]]), 3)
        Traceback (most recent call last):
        ValueError: `target` row 1: label 1 must not occur twice.
    """
    form = target_form(target, num_labels, row_dims=row_dims)
    if form is TargetForm.INDEX_LISTS:
        before, after = target[..., :-1], target[..., 1:]
        late = (before < 0) & (after >= 0)
        if not (late | (after >= 0) & (after <= before)).any():
            return
        ordered = target.sort(-1).values
        wrong = late | (ordered[..., 1:] >= 0) & (ordered[..., 1:] == ordered[..., :-1])
    elif form is TargetForm.SPARSE:
        check_sparse_rows(target)
        rows, labels, _ = stored_entries(target)
        wrong = (rows[1:] < rows[:-1]) | ((rows[1:] == rows[:-1]) & (labels[1:] <= labels[:-1]))
    else:
        return
    if wrong.any():
        distinct_entries(target, num_labels, row_dims)


def _read(target: Tensor, form: TargetForm, row_shape: torch.Size) -> Entries:
    """All labels that may be present or unknown, in any order, with the checks that only one form needs."""
    if form is TargetForm.SPARSE:
        check_sparse_rows(target)
        return Entries(row_shape, *stored_entries(target))
    num_rows = math.prod(row_shape)
    if form is TargetForm.CLASS_INDICES:
        labels, rows = target.reshape(num_rows), torch.arange(num_rows, device=target.device)
        return Entries(row_shape, rows, labels, torch.ones_like(labels))
    table = target.reshape(num_rows, target.shape[-1])
    if form is TargetForm.MULTI_HOT:
        rows, labels = table.nonzero(as_tuple=True)
        return Entries(row_shape, rows, labels, table[rows, labels])
    padding = table == -1
    rows, slots = (~padding).nonzero(as_tuple=True)
    labels = table[rows, slots]
    entries = Entries(row_shape, rows, labels, torch.ones_like(labels))
    entries.refuse(padding.cumsum(-1)[rows, slots] > 0, "must not come after -1, which only pads.")
    return entries


def check_sparse_rows(target: Tensor) -> None:
    """Check row numbers (COO) or row pointers (CSR); torch, by default, does not."""
    if target.layout == torch.sparse_coo:
        rows = target._indices()[0]
        outside = rows[(rows < 0) | (rows >= target.shape[0])]
        if len(outside):
            raise ValueError(f"`target` row {int(outside[0])}: the row must lie in [0, {target.shape[0]}).")
    else:
        pointers, end = target.crow_indices(), len(target.col_indices())
        if pointers[0] != 0 or pointers[-1] != end or (pointers.diff() < 0).any():
            raise ValueError(f"`target` row pointers must rise from 0 to {end}; got {pointers}.")

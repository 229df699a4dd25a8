"""Read a target in any of its four forms: as a checked list or, for losses, without device synchronization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.labels.arrays import LabelsLike, read_target
from shortlist.labels.labels import Labels
from shortlist.tensors import holds, is_plain, may_look

_RARE = 16
"""Read a multi-hot as a list if at most one in this many entries is present or unknown."""

_BLOCK = 1 << 18
"""Number of entries that numpy processes at a time, so that they stay in the cache."""


class TargetForm(Enum):
    """The four forms of labels."""

    CLASS_INDICES = "class indices"
    INDEX_LISTS = "index lists"
    MULTI_HOT = "multi-hot"
    SPARSE = "sparse"


def target_form(target: Tensor, num_labels: int, *, row_dims: int = 1, name: str = "target") -> TargetForm:
    """Recognize the form of ``target`` by its dtype, layout and shape.

    Reads no values, so it never synchronizes with a device and works under ``torch.compile`` and ``torch.func.vmap``
    (which leaves ``row_dims=0`` when it maps over all rows).

    Args:
        target: labels in one of the four forms.
        num_labels: n, the number of labels.
        row_dims: how many leading dimensions are rows: all dimensions of the logits but the last.
        name: the target's name in error messages.

    Returns:
        The form.

    Raises:
        TypeError: for a dtype or layout that belongs to no form.
        ValueError: for a wrong number of dimensions or a wrong last size, and for int64 tables with n columns: they may
            be multi-hots or index lists, and `from_multi_hot` and `from_indices` say which.

    Example:
        >>> target_form(torch.tensor([2, 0]), 3)
        <TargetForm.CLASS_INDICES: 'class indices'>
        >>> target_form(torch.tensor([2, 0]), 3, row_dims=0)
        <TargetForm.INDEX_LISTS: 'index lists'>
    """
    if not isinstance(target, Tensor):
        raise TypeError(f"`{name}` must be a torch.Tensor; got {type(target).__name__}.")
    if num_labels < 0:
        raise ValueError(f"`num_labels` must be at least 0; got {num_labels}.")
    if row_dims < 0:
        raise ValueError(f"`row_dims` must be at least 0; got {row_dims}.")
    sparse = target.layout in (torch.sparse_coo, torch.sparse_csr)
    if not sparse and target.layout != torch.strided:
        raise TypeError(f"`{name}` must be dense, sparse COO or sparse CSR; got layout {target.layout}.")
    shape = tuple(target.shape)
    if target.dtype == torch.int64 and not sparse:
        # Not `in`, which the compiler gets wrong for a symbolic `row_dims`.
        if len(shape) != row_dims and len(shape) != row_dims + 1:
            raise ValueError(
                f"an int64 `{name}` must have {row_dims} (class indices) or {row_dims + 1} (index lists) "
                f"dimensions; got shape {shape}."
            )
        if len(shape) == row_dims:
            return TargetForm.CLASS_INDICES
        if shape[-1] == num_labels and num_labels > 0:
            (_refuse_wide_op if _error_waits() else _refuse_wide)(target, num_labels, name)
            return TargetForm.MULTI_HOT  # what a graph that is to raise can go on with, whatever the loss
        return TargetForm.INDEX_LISTS
    if target.dtype != torch.bool and not target.is_floating_point():
        raise TypeError(
            f"`{name}` must be int64 for indices, and bool or floating for multi-hots, sparse ones included; "
            f"got {target.dtype}."
        )
    if len(shape) != row_dims + 1 or shape[-1] != num_labels:
        raise ValueError(
            f"a multi-hot `{name}` must have {row_dims + 1} dimensions, the last of size {num_labels}; "
            f"got shape {shape}."
        )
    if sparse and (row_dims != 1 or target.dense_dim() != 0):
        raise ValueError(
            f"a sparse `{name}` must have 1 row dimension and 0 dense ones; got {row_dims} and {target.dense_dim()}."
        )
    return TargetForm.SPARSE if sparse else TargetForm.MULTI_HOT


def _refuse_wide(target: Tensor, num_labels: int, name: str) -> None:
    raise ValueError(
        f"an int64 `{name}` must not be as wide as the labels, because it may be a multi-hot or index lists: "
        f"convert it with `targets.from_multi_hot` or `targets.from_indices`; got shape {tuple(target.shape)} for "
        f"{num_labels} labels."
    )


def _error_waits() -> bool:
    """Whether an error has to be raised by the compiled graph: the compiler buries those of tracing in its own."""
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


_refuse_wide_op = torch.library.custom_op("shortlist::refuse_wide", _refuse_wide, mutates_args=())
# It returns nothing, so the compiler would remove it.
_refuse_wide_op.register_effect(torch.library.EffectType.ORDERED)  # pyright: ignore[reportPrivateImportUsage]


@_refuse_wide_op.register_fake
def _(target: Tensor, num_labels: int, name: str) -> None:
    if type(target) is Tensor:  # on the meta device, where this is the operator itself
        _refuse_wide(target, num_labels, name)


@_refuse_wide_op.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], target: Tensor, num_labels: int, name: str) -> tuple[None, None]:
    _refuse_wide_op(target, num_labels, name)
    return None, None


def stored_entries(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, labels and values of a sparse tensor, in storage order."""
    if target.layout == torch.sparse_coo:
        # The public accessors need a coalesced tensor, and coalescing synchronizes with the device.
        rows, labels = target._indices()
        return rows, labels, target._values()
    labels = target.col_indices().long()
    rows = torch.arange(target.shape[0], device=target.device)
    row_sizes = target.crow_indices().diff()
    return rows.repeat_interleave(row_sizes, output_size=len(labels)), labels, target.values()


def check_sparse_rows(target: Tensor, name: str) -> None:
    """Check row indices (COO) or row pointers (CSR), which torch does not check by default."""
    if target.layout == torch.sparse_coo:
        rows = target._indices()[0]
        outside = rows[(rows < 0) | (rows >= target.shape[0])]
        if len(outside):
            raise ValueError(f"`{name}` row {int(outside[0])}: the row must lie in [0, {target.shape[0]}).")
    else:
        pointers, end = target.crow_indices(), len(target.col_indices())
        if pointers[0] != 0 or pointers[-1] != end or (pointers.diff() < 0).any():
            raise ValueError(f"`{name}` row pointers must rise from 0 to {end}; got {pointers}.")


def list_labels(
    target: LabelsLike, num_labels: int, *, row_dims: int = 1, name: str = "target", check: bool = True
) -> Labels:
    """List the present and the unknown labels, sorted by row, then by label.

    Reading their number synchronizes with the device. With ``check``, this also rejects labels outside [0, n), a label
    after a -1, a duplicate label in a row, and multi-hot values other than 0, 1 and negative numbers.

    Args:
        target: labels in one of the four forms, or what `read_target` makes one of.
        num_labels, row_dims, name: as in `target_form`.
        check: whether to check the values.

    Raises:
        ValueError: for an invalid value, naming its row; otherwise as `target_form`.
    """
    target = read_target(target, num_labels, name=name)
    form = target_form(target, num_labels, row_dims=row_dims, name=name)
    if form is TargetForm.SPARSE and check:
        check_sparse_rows(target, name)  # before using the rows as indices
    entries = _raw_entries(target, form, target.shape[:row_dims], num_labels, name)
    if form is TargetForm.MULTI_HOT and target.dtype == torch.bool:
        return entries  # already sorted, with no values to check
    if form is TargetForm.INDEX_LISTS and check:
        _refuse_after_padding(target.reshape(entries.num_rows, target.shape[-1]), entries)
    entries = _in_order(entries)
    if check:
        _check_range(entries)
        _check_distinct(entries)
        values = entries.values
        good = (values == 0) | (values == 1) | (values < 0)
        if values.is_floating_point():
            entries.refuse(~good, "must have value 0, 1 or negative; got {value}.")
    return entries if form in _INDEX_FORMS else entries.only(entries.values != 0)


def read_labels(
    target: Tensor, shape: Sequence[int], *, dtype: torch.dtype, name: str = "target", like: str = "logits"
) -> Labels:
    """Read a target for a loss: accepts soft targets, and never synchronizes with the device.

    If reading values needs no synchronization, labels that are out of range, duplicated or after a -1 are rejected.

    Args:
        target: labels in any form.
        shape: ``(*rows, n)``, the shape of the logits.
        dtype: dtype of the entries' values.
        name: the target's name in error messages.
        like: the logits' name in error messages.
    """
    row_shape, n = torch.Size(shape[:-1]), shape[-1]
    form = target_form(target, n, row_dims=len(row_shape), name=name)
    if target.shape[: len(row_shape)] != row_shape:
        raise ValueError(
            f"`{name}` must have the rows of `{like}`, {tuple(row_shape)}; got shape {tuple(target.shape)}."
        )
    if form is TargetForm.MULTI_HOT:
        return _read_multi_hot(target, row_shape, n, dtype, name)
    if form is TargetForm.SPARSE:
        return _read_sparse(target, row_shape, n, dtype, name)
    if may_look(target):
        lowest = 0 if form is TargetForm.CLASS_INDICES else -1
        wrong = (target < lowest) | (target >= n)
        _refuse_rows(wrong if lowest == 0 else wrong.any(-1), f"labels must lie in [{lowest}, {n})", target, name)
    return _read_indices(target, form, row_shape, n, dtype, name)


_INDEX_FORMS = (TargetForm.CLASS_INDICES, TargetForm.INDEX_LISTS)


def _raw_entries(target: Tensor, form: TargetForm, row_shape: torch.Size, num_labels: int, name: str) -> Labels:
    """All entries that may be present or unknown, in the order of the target."""
    num_rows = math.prod(row_shape)
    if form is TargetForm.SPARSE:
        rows, labels, values = stored_entries(target)
        return Labels(row_shape, num_labels, rows, labels, values, has_unknown=True, soft=True, name=name)
    if form is TargetForm.CLASS_INDICES:
        labels, rows = target.reshape(num_rows), torch.arange(num_rows, device=target.device)
        return Labels(row_shape, num_labels, rows, labels, torch.ones_like(labels), name=name)
    table = target.detach().reshape(num_rows, target.shape[-1])
    rows, slots = nonzero(table != -1 if form is TargetForm.INDEX_LISTS else table)
    if form is TargetForm.INDEX_LISTS or table.dtype == torch.bool:
        labels = table[rows, slots] if form is TargetForm.INDEX_LISTS else slots
        return Labels(row_shape, num_labels, rows, labels, torch.ones_like(labels), name=name)
    return Labels(row_shape, num_labels, rows, slots, table[rows, slots], has_unknown=True, soft=True, name=name)


def nonzero(table: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of nonzero entries; if there are few, numpy is much faster than torch."""
    n = table.shape[-1]
    if table.numel() == 0 or not is_plain(table):
        rows, columns = table.nonzero(as_tuple=True)
        return rows, columns
    array, size = table.numpy(), max(1, _BLOCK * torch.get_num_threads() // n)
    blocks = [array[start : start + size] for start in range(0, len(array), size)]
    # numpy is fastest on bool.
    found = [np.flatnonzero(block if block.dtype == bool else block != 0) for block in blocks]
    indices = np.concatenate([part + i * size * n for i, part in enumerate(found)])
    rows = indices // n
    return torch.from_numpy(rows), torch.from_numpy(indices - rows * n)


def _in_order(entries: Labels) -> Labels:
    """The entries sorted by row, then by label."""
    rows, labels = entries.pairs()
    behind = (rows[1:] < rows[:-1]) | ((rows[1:] == rows[:-1]) & (labels[1:] < labels[:-1]))
    if holds(~behind.any()):
        return entries
    # Use two stable sorts, because a single key row * n + label can overflow.
    entries = entries.only(labels.argsort(stable=True))
    return entries.only(entries.pairs()[0].argsort(stable=True))


def _check_range(entries: Labels) -> None:
    labels = entries.pairs()[1]
    entries.refuse((labels < 0) | (labels >= entries.num_labels), f"must lie in [0, {entries.num_labels}).")


def _check_distinct(entries: Labels) -> None:
    rows, labels = entries.pairs()
    entries.refuse((rows[1:] == rows[:-1]) & (labels[1:] == labels[:-1]), "must not occur twice.")


def _refuse_after_padding(table: Tensor, entries: Labels) -> None:
    if ((table[:, 1:] != -1) & (table[:, :-1] == -1)).any():
        rows, slots = (table != -1).nonzero(as_tuple=True)
        late = (table == -1).cumsum(-1)[rows, slots] > 0
        entries.refuse(late, "must not come after -1, which only pads.")


def _refuse_rows(wrong: Tensor, rule: str, target: Tensor, name: str) -> None:
    """Raise for the first row in which ``wrong`` is known to hold."""
    if holds(wrong.any()):
        row = tuple(wrong.nonzero()[0].tolist())
        shown = row[0] if len(row) == 1 else row
        raise ValueError(f"`{name}` row {shown}: {rule}; got {target[row].tolist()}.")


def _read_multi_hot(target: Tensor, row_shape: torch.Size, n: int, dtype: torch.dtype, name: str) -> Labels:
    hot = (target if target.dtype == dtype else target.to(dtype)).reshape(math.prod(row_shape), n)
    if hot.numel() and not target.requires_grad and is_plain(hot):
        rows, labels = nonzero(target.reshape(hot.shape) if target.dtype == torch.bool else hot)
        values = torch.from_numpy(hot.numpy()[rows.numpy(), labels.numpy()])  # faster than torch for few entries
        has_unknown, soft = _signs(values, name)
        if len(rows) * _RARE <= hot.numel():
            return Labels(row_shape, n, rows, labels, values, has_unknown=has_unknown, soft=soft, name=name)
        return Labels(row_shape, n, None, None, hot, has_unknown=has_unknown, soft=True, name=name)
    floating = target.is_floating_point()
    return Labels(row_shape, n, None, None, hot, has_unknown=floating, soft=True, name=name)


def _signs(values: Tensor, name: str) -> tuple[bool, bool]:
    """Whether readable values contain unknown labels, and whether they contain soft targets."""
    array = values.numpy()
    if (array == 1).all():
        return False, False
    if not (array <= 1).all():
        wrong = array[~(array <= 1)][0]
        raise ValueError(f"`{name}`: soft targets must lie in [0, 1], and unknown labels below 0; got {wrong:g}.")
    unknown = array < 0
    return bool(unknown.any()), not (unknown | (array == 0) | (array == 1)).all()


def _read_sparse(target: Tensor, row_shape: torch.Size, n: int, dtype: torch.dtype, name: str) -> Labels:
    rows, labels, values = None, None, None
    if may_look(target):
        check_sparse_rows(target, name)
        rows, labels, values = stored_entries(target)
        outside = (labels < 0) | (labels >= n)
        if outside.any():
            row, label = (int(part[outside][0]) for part in (rows, labels))
            raise ValueError(f"`{name}` row {row}: labels must lie in [0, {n}); got {label}.")
        if ((rows[1:] < rows[:-1]) | ((rows[1:] == rows[:-1]) & (labels[1:] <= labels[:-1]))).any():
            _check_distinct(_in_order(Labels(row_shape, n, rows, labels, values, name=name)))
    else:
        rows, labels, values = stored_entries(target)
    values = values.to(dtype)
    if is_plain(labels) and is_plain(values):
        stored = values.detach() != 0
        if not stored.all():
            rows, labels, values = rows[stored], labels[stored], values[stored]
        has_unknown, soft = _signs(values.detach(), name)
        soft = soft or values.requires_grad
        return Labels(row_shape, n, rows, labels, values, has_unknown=has_unknown, soft=soft, name=name)
    stored = values.detach() != 0
    if target.layout == torch.sparse_coo and not target.is_coalesced():  # may contain duplicates, which are not checked
        order = labels.argsort(stable=True)
        order = order[rows[order].argsort(stable=True)]
        rows, labels, stored = rows[order], labels[order], stored[order]
        repeated = (rows[1:] == rows[:-1]) & (labels[1:] == labels[:-1])
        values = values[order] * ~torch.nn.functional.pad(repeated, (1, 0))
    return Labels(row_shape, n, rows, labels, values, listed=stored, has_unknown=True, soft=True, name=name)


def _read_indices(
    target: Tensor, form: TargetForm, row_shape: torch.Size, n: int, dtype: torch.dtype, name: str
) -> Labels:
    width = 1 if form is TargetForm.CLASS_INDICES else target.shape[-1]
    table = target.reshape(math.prod(row_shape), width)
    if table.numel() == 0 or n == 0:
        none = table.new_empty(0)
        return Labels(row_shape, n, none, none, none.to(dtype), width=0, slots=width, name=name)
    rows = torch.arange(len(table), device=table.device)
    if form is TargetForm.CLASS_INDICES:
        labels = table.reshape(-1)
        ones = torch.ones_like(labels, dtype=dtype)
        return Labels(row_shape, n, rows, labels, ones, width=1, slots=1, name=name)
    if is_plain(table):
        _refuse_ambiguous(table, row_shape, n, name)
        if width > 1:
            rows, slots = nonzero(table >= 0)
            labels = table[rows, slots]
            return Labels(row_shape, n, rows, labels, torch.ones_like(labels, dtype=dtype), slots=width, name=name)
    # Sort, so that padding can repeat the largest label of its row and a duplicate label counts once.
    ordered = table.sort(-1).values
    largest = ordered[:, -1:]
    labels = torch.where(ordered >= 0, ordered, largest).clamp(min=0)
    first = torch.nn.functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    values = ((ordered >= 0) & first).to(dtype)
    listed = (largest >= 0).expand(table.shape)
    return Labels(
        row_shape,
        n,
        rows.unsqueeze(-1).expand(table.shape).reshape(-1),
        labels.reshape(-1),
        values.reshape(-1),
        listed=listed.reshape(-1),
        width=width,
        slots=width,
        name=name,
    )


def _refuse_ambiguous(table: Tensor, row_shape: torch.Size, n: int, name: str) -> None:
    """Reject duplicate labels in a row and labels after a -1. Strictly ascending lists need no further check."""
    before, after = table[:, :-1], table[:, 1:]
    if ((after >= 0) & (after <= before) | (before < 0) & (after >= 0)).any():
        rows, slots = nonzero(table != -1)
        labels = table[rows, slots]
        entries = Labels(row_shape, n, rows, labels, torch.ones_like(labels), name=name)
        _refuse_after_padding(table, entries)
        _check_distinct(_in_order(entries))

"""Labels of all rows of a dataset: as pairs of row and label, as a sparse tensor, and of some rows."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_range
from shortlist.labels import list_labels
from shortlist.targets import TargetForm, check_target, target_form


class LabelPairs(NamedTuple):
    """The present and the unknown labels, one by one."""

    rows: Tensor
    labels: Tensor
    present: Tensor  # bool; False for unknown


def label_pairs(target: Tensor, num_labels: int) -> LabelPairs:
    """List the present and the unknown labels of all rows, in O(labels) for index and sparse forms.

    Args:
        target: labels in any form of :mod:`shortlist.targets`, of one row dimension.
        num_labels: n, the number of labels.

    Returns:
        Rows and labels, ``(entries,)`` int64, with a bool that is False for unknown labels; in the order of the rows,
        then of the labels.

    Example:
        >>> label_pairs(torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), 3)
        LabelPairs(rows=tensor([0, 0, 1]), labels=tensor([0, 2, 1]), present=tensor([ True, False,  True]))
    """
    entries = list_labels(target, num_labels, check=False)
    return LabelPairs(*entries.pairs(), entries.values > 0)


def sparse_targets(
    rows: Tensor | np.ndarray,
    labels: Tensor | np.ndarray,
    num_rows: int,
    num_labels: int,
    *,
    present: Tensor | np.ndarray | None = None,
) -> Tensor:
    """Make a sparse multi-hot from (row, label) pairs in any order.

    Args:
        rows, labels: ``(entries,)`` integers. A pair that is listed several times counts once, and as present if
            one of them is.
        num_rows: how many rows, those without labels included.
        num_labels: n, the number of labels.
        present: ``(entries,)`` bool, False for unknown labels; None if all are present.

    Returns:
        ``(rows, n)`` float32 in CSR form: 1 for present, -1 for unknown.

    Example:
        >>> sparse_targets(torch.tensor([1, 0, 1]), torch.tensor([2, 0, 2]), 2, 3).to_dense()
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
    """
    row, label = np.asarray(rows, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    check_range("rows", row, num_rows)
    check_range("labels", label, num_labels)
    known = np.ones(len(row), dtype=bool) if present is None else np.asarray(present, dtype=bool)
    order = np.lexsort((~known, label, row))  # Of a repeated pair, a present one comes first.
    row, label, known = row[order], label[order], known[order]
    first = np.ones(len(row), dtype=bool)
    first[1:] = (row[1:] != row[:-1]) | (label[1:] != label[:-1])
    row, label, known = row[first], label[first], known[first]
    crow = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=num_rows), out=crow[1:])
    values = np.where(known, np.float32(1), np.float32(-1))
    return csr(torch.from_numpy(crow), torch.from_numpy(label), torch.from_numpy(values), num_labels)


def csr(crow: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    """A sparse CSR tensor of trusted parts, without torch's warning that the layout is in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(crow, columns, values, (len(crow) - 1, width), check_invariants=False)


def as_csr(target: Tensor) -> Tensor:
    """A sparse COO tensor as CSR; any other as it is."""
    if target.layout != torch.sparse_coo:
        return target
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return target.coalesce().to_sparse_csr()


def check_labels(target: Tensor, num_labels: int, *, name: str = "target") -> None:
    """Check labels by value, in one pass if they are in order; ValueError names the row of a bad one.

    Raises:
        TypeError, ValueError: as `shortlist.targets.check_target`.
    """
    form = target_form(target, num_labels, name=name)
    if form is TargetForm.SPARSE and target.layout == torch.sparse_csr:
        columns, values = target.col_indices(), target.values()
        row_starts = torch.zeros(len(columns) + 1, dtype=torch.bool)
        row_starts[target.crow_indices().long()] = True
        ascending = bool(((columns[1:] > columns[:-1]) | row_starts[1:-1]).all()) if len(columns) else True
        good = ascending and (not len(columns) or (int(columns.min()) >= 0 and int(columns.max()) < num_labels))
        if good and (values.dtype == torch.bool or bool(((values == 0) | (values == 1) | (values < 0)).all())):
            return
    check_target(target, num_labels, name=name)


def take_rows(target: Tensor, rows: Tensor) -> Tensor:
    """Labels of some rows, in their order and with repeats, in the form that they have; COO becomes CSR.

    Example:
        >>> take_rows(torch.tensor([3, 1, 2]), torch.tensor([2, 0]))
        tensor([2, 3])
    """
    if target.layout == torch.strided:
        return target[rows]
    target = as_csr(target)
    crow, places = take_segments(target.crow_indices().long(), rows)
    return csr(crow, target.col_indices()[places].long(), target.values()[places], target.shape[1])


def take_segments(crow: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Row pointers of the chosen rows, and the places of their entries in the old order."""
    starts = crow[rows]
    sizes = crow[rows + 1] - starts  # Of the chosen rows alone: a batch must not cost a pass over all.
    chosen = torch.zeros(len(rows) + 1, dtype=torch.int64)
    torch.cumsum(sizes, 0, out=chosen[1:])
    offsets = torch.repeat_interleave(starts - chosen[:-1], sizes)
    return chosen, torch.arange(int(chosen[-1])) + offsets

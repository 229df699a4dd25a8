"""The four forms of a target, recognized by dtype, layout and shape."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor


class TargetForm(Enum):
    """The four forms that labels may take."""

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
        name: what error messages call the target.

    Returns:
        The form.

    Raises:
        TypeError: for a dtype or layout that belongs to no form.
        ValueError: for a wrong number of dimensions or a wrong last size.

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
        if len(shape) not in (row_dims, row_dims + 1):
            raise ValueError(
                f"an int64 `{name}` must have {row_dims} (class indices) or {row_dims + 1} (index lists) "
                f"dimensions; got shape {shape}."
            )
        return TargetForm.CLASS_INDICES if len(shape) == row_dims else TargetForm.INDEX_LISTS
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


def stored_entries(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, labels and values that a sparse tensor stores, in its own order."""
    if target.layout == torch.sparse_coo:
        # The public accessors need a coalesced tensor, and coalescing synchronizes with the device.
        rows, labels = target._indices()
        return rows, labels, target._values()
    labels = target.col_indices().long()
    rows = torch.arange(target.shape[0], device=target.device)
    row_sizes = target.crow_indices().diff()
    return rows.repeat_interleave(row_sizes, output_size=len(labels)), labels, target.values()


def check_sparse_rows(target: Tensor, name: str) -> None:
    """Check row indices (COO) or row pointers (CSR), which torch does not do by default."""
    if target.layout == torch.sparse_coo:
        rows = target._indices()[0]
        outside = rows[(rows < 0) | (rows >= target.shape[0])]
        if len(outside):
            raise ValueError(f"`{name}` row {int(outside[0])}: the row must lie in [0, {target.shape[0]}).")
    else:
        pointers, end = target.crow_indices(), len(target.col_indices())
        if pointers[0] != 0 or pointers[-1] != end or (pointers.diff() < 0).any():
            raise ValueError(f"`{name}` row pointers must rise from 0 to {end}; got {pointers}.")

"""Labels and weights of rows whose labels are on several processes: of each, what concerns the own labels."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.functional.observed import check_rows
from shortlist.functional.reduction import check_weight
from shortlist.label_axis.processes import ProcessShards, local_part, replicated
from shortlist.targets import TargetForm, stored_entries
from shortlist.tensors import HALF, is_dtensor


def own_target(logits: Tensor, target: Tensor, labels: ProcessShards) -> Tensor:
    """``target`` for the own labels alone, numbered from 0: in O(labels) from index and sparse forms.

    Args:
        logits: the DTensor, its labels along the last axis.
        target: in any form and with the numbers of all labels, the same on every process; or a multi-hot DTensor,
            sharded as ``logits`` is.
        labels: the own ones of ``logits``.
    """
    if is_dtensor(target) and not _is_replicated(target):
        return local_part(target, labels, -1, like=logits, name="target")
    if isinstance(target, Tensor):
        target = replicated(target, "target")
    form = check_rows(torch.empty(logits.shape, dtype=logits.dtype, device="meta"), target)
    if form is TargetForm.MULTI_HOT:
        return labels.local_values(target)
    if form is TargetForm.SPARSE:
        return _own_entries(target, labels)
    lists = target.unsqueeze(-1) if form is TargetForm.CLASS_INDICES else target
    own = (lists >= labels.first) & (lists < labels.first + labels.count)
    numbers = torch.where(own, lists - labels.first, labels.count).sort(-1).values
    return numbers.masked_fill_(numbers == labels.count, -1)


def own_weight(logits: Tensor, weight: Tensor | None, labels: ProcessShards) -> Tensor | None:
    """``weight`` of the own labels: of a plain tensor that every process has, or of one sharded as ``logits`` is."""
    dtype = torch.float32 if logits.dtype in HALF else logits.dtype
    if isinstance(weight, Tensor):
        check_weight(torch.empty(weight.shape, dtype=weight.dtype, device="meta"), _one_row(logits))
        if is_dtensor(weight) and not _is_replicated(weight):
            return local_part(weight, labels, 0, like=weight, name="weight").to(dtype)
        weight = replicated(weight, "weight")
    weight = check_weight(weight, _one_row(logits))
    return None if weight is None else labels.local_values(weight.to(dtype))


def _own_entries(target: Tensor, labels: ProcessShards) -> Tensor:
    rows, columns, values = stored_entries(target)
    own = (columns >= labels.first) & (columns < labels.first + labels.count)
    indices = torch.stack([rows[own], columns[own] - labels.first])
    single = target.layout != torch.sparse_coo or target.is_coalesced()
    size = (len(target), labels.count)
    return torch.sparse_coo_tensor(indices, values[own], size, is_coalesced=single or None, check_invariants=False)


def _one_row(logits: Tensor) -> Tensor:
    return torch.empty(logits.shape[-1:], dtype=logits.dtype, device="meta")


def _is_replicated(values: Tensor) -> bool:
    return all(placement.is_replicate() for placement in values.placements)  # pyright: ignore[reportAttributeAccessIssue]

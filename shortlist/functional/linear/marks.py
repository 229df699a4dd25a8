"""What a target says of single labels, in the order of the labels: for losses that meet them block by block."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.functional.observed import check_rows
from shortlist.functional.reduction import check_weight
from shortlist.label_axis.pairs import PairsByLabel
from shortlist.label_axis.processes import Processes, replicated
from shortlist.targets import TargetForm, stored_entries


def marked_labels(like: Tensor, target: Tensor) -> PairsByLabel:
    """Read ``target``, in any form, for logits shaped like ``like``, of which only shape and dtype are looked at."""
    target = replicated(target, "target")
    form = check_rows(like, target)
    if target.requires_grad:
        raise ValueError("`target` must not require a gradient for LinearLogits, which knows its marked labels only.")
    num_rows, n = math.prod(like.shape[:-1]), like.shape[-1]
    if form is TargetForm.MULTI_HOT:
        labels, rows = target.reshape(num_rows, n).t().nonzero(as_tuple=True)
        values = target.reshape(num_rows, n)[rows, labels].to(like.dtype)
        return PairsByLabel(rows, labels, values)
    if form is TargetForm.SPARSE:
        rows, labels, stored = stored_entries(target)
        kept = stored != 0
        rows, labels, values = rows[kept], labels[kept], stored[kept].to(like.dtype)
    else:
        table = target.reshape(num_rows, 1 if form is TargetForm.CLASS_INDICES else target.shape[-1])
        rows, slots = (table >= 0).nonzero(as_tuple=True)
        labels = table[rows, slots]
        values = torch.ones_like(labels, dtype=like.dtype)
    # Two stable sorts, because one by label * rows + row can overflow.
    order = rows.argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]
    return PairsByLabel(rows[order], labels[order], values[order])


def local_weight(weight: Tensor | None, like: Tensor, processes: Processes) -> Tensor | None:
    """The weights of the local labels, from one per label of ``like``."""
    if isinstance(weight, Tensor):
        weight = replicated(weight, "weight")
    weight = check_weight(weight, like)
    return None if weight is None else processes.local_values(weight)

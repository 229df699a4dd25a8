"""Losses where a row's labels are on several processes: each adds up over its own labels, then all add up."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shortlist.checks import check_temperature
from shortlist.functional.observed import positives, without_unknown
from shortlist.functional.projections.lml_root import centred
from shortlist.functional.reduction import Reduction, check_reduction, reduce_rows
from shortlist.functional.sharded.lml import sharded_dual
from shortlist.functional.sharded.targets import own_target, own_weight
from shortlist.label_axis.processes import all_sum, copy_to_group, shards_of, to_local
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import log_sigmoid, solvable, wide


def sharded_lml_nll(
    logits: Tensor,
    target: Tensor,
    k: float | Tensor,
    *,
    temperature: float,
    weight: Tensor | None,
    reduction: Reduction,
) -> Tensor:
    """``lml_nll`` of a DTensor that is sharded along its labels."""
    check_reduction(reduction)
    temperature = check_temperature(temperature)
    rows = as_rows(logits, k, dim=-1, mask=None)
    target, weight = own_target(logits, target, rows.processes), own_weight(logits, weight, rows.processes)
    known, group = without_unknown(rows.logits, target), rows.processes.group
    pivot, delta = sharded_dual(rows._replace(logits=known), temperature)
    picked = positives(known, target, weight)
    parts = picked.beside(pivot), picked.beside(copy_to_group(delta, group))
    values = picked.total(log_sigmoid(centred(picked.logits, *parts, temperature)))
    if weight is not None and not rows.processes.count:
        values = values + weight.sum()  # a 0, so that backwards this process takes part in adding up
    values = -all_sum(values.to(wide(values)), group).to(known.dtype)
    return rows.processes.replicate(reduce_rows(values, reduction))


def sharded_entries(
    terms: Callable[..., tuple[Tensor, Tensor | int]],
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: Reduction,
) -> Tensor:
    """A loss with one value per entry of a DTensor that is sharded along its labels.

    ``terms(logits, target, weight, summed=)`` gives the values of plain logits, by entries or by rows, and how many
    entries are known.
    """
    check_reduction(reduction)
    labels = shards_of(logits)
    target, weight = own_target(logits, target, labels), own_weight(logits, weight, labels)
    values, known = terms(solvable(to_local(logits)), target, weight, summed=reduction != "none")
    if reduction == "none":
        return labels.shard(values, logits.ndim - 1)
    total = values.sum().to(wide(values))
    total, count = all_sum(torch.stack([total, torch.as_tensor(known).to(total)]), labels.group)
    total = total if reduction == "sum" else total / count.clamp(min=1)
    return labels.replicate(total.to(values.dtype))

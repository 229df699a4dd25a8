"""Losses that couple the rows of a batch, over the batch of all processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from shortlist.data.target_rows import label_pairs, sparse_targets
from shortlist.nn import ROLE, AverageK, TwoWay
from shortlist.targets import to_sparse


def couples_rows(loss: torch.nn.Module) -> bool:
    """Whether the loss of a batch differs from the mean of its rows' losses: candidates and class terms do that."""
    return isinstance(loss, AverageK) or (isinstance(loss, TwoWay) and loss.kind != "sample")


def gather_rows(values: Tensor) -> Tensor:
    """The rows of all processes in the order of processes; only the own ones carry a gradient.

    If every process computes the loss of the global batch from it, the gradients of the parameters sum up to those of
    one process. DDP averages, so the loss is multiplied by the number of processes.
    """
    sizes = _sizes(len(values))
    longest = max(sizes)
    padded = values.detach().new_zeros((longest, *values.shape[1:]))
    padded[: len(values)] = values.detach()
    received = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(received, padded)
    parts = [part[:size] for part, size in zip(received, sizes, strict=True)]
    parts[dist.get_rank()] = values
    return torch.cat(parts)


def gather_targets(target: Tensor, num_labels: int) -> Tensor:
    """The labels of all processes, in the form that they have; sparse ones go as (row, label) pairs."""
    if target.layout == torch.strided:
        return gather_rows(target)
    rows, labels, present = label_pairs(to_sparse(target, num_labels), num_labels)
    sizes = _sizes(target.shape[0])
    first = sum(sizes[: dist.get_rank()])
    entries = gather_rows(torch.stack([rows + first, labels, present.long()], dim=1))
    return sparse_targets(entries[:, 0], entries[:, 1], sum(sizes), num_labels, present=entries[:, 2] > 0)


def batch_loss(loss: torch.nn.Module, outputs: tuple[Tensor, ...], target: Tensor, rows: Tensor) -> Tensor:
    """The loss of a batch, over all processes where rows are coupled.

    Args:
        loss: a loss of :mod:`shortlist.nn` with reduction ``mean``, or a module that takes outputs and labels.
        outputs: what the head gives.
        target: labels in any form.
        rows: the numbers of the training rows, for losses that learn something of each.
    """
    if isinstance(loss, ROLE):
        return loss(*outputs, target, rows)
    if not (couples_rows(loss) and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return loss(*outputs, target)
    everyone = tuple(gather_rows(output) for output in outputs)
    return dist.get_world_size() * loss(*everyone, gather_targets(target, outputs[0].shape[-1]))


def _sizes(own: int) -> list[int]:
    """How many rows each process has."""
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([own]))
    return [int(size) for size in sizes]

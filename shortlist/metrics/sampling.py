"""Distributed evaluation without counting twice what a sampler adds to make shares equal."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.checks import whole_k


def sampler_mask(num_rows: int, *, rank: int, world_size: int, start: int, count: int) -> Tensor:
    """Which examples of a batch are no duplicates that `torch.utils.data.DistributedSampler` added.

    The sampler (with ``drop_last=False``, shuffled or not) gives process ``rank`` every ``world_size``-th example
    and repeats some at the end, so that all get equally many: the i-th example of a process is a repetition
    exactly if ``i * world_size + rank >= num_rows``.

    Args:
        num_rows: how many examples the data set has.
        rank: which process, in [0, world_size).
        world_size: how many processes.
        start: how many examples this process had before this batch.
        count: how many examples are in this batch.

    Returns:
        ``(count,)`` bool for the ``mask`` of metrics: False for a repetition.

    Example:
        >>> from shortlist.metrics import sampler_mask
        >>> sampler_mask(5, rank=1, world_size=2, start=0, count=3)
        tensor([ True,  True, False])
    """
    whole_k(world_size, 1 << 31, name="world_size")
    whole_k(rank, world_size - 1, lowest=0, name="rank")
    for name, value in (("num_rows", num_rows), ("start", start), ("count", count)):
        whole_k(value, 1 << 62, lowest=0, name=name)
    return torch.arange(start, start + count) * world_size + rank < num_rows

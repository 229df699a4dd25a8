"""Base classes of the metrics, whose states add up over batches and processes, and the mask for a sampler."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.extras import require
from shortlist.tensors import whole_k

require("torchmetrics", extra="metrics")
import torchmetrics  # noqa: E402
from torchmetrics.utilities.distributed import gather_all_tensors  # noqa: E402

_UNBOUNDED = 1 << 62


class SumMetric(torchmetrics.Metric):
    """A metric whose state is a few sums of fixed shape, which add up over batches of any size and over processes.

    ``family`` and ``options`` become part of the state: `torchmetrics.MetricCollection` merges metrics whose states are
    equal after the first batch, but must not merge equal sums for different k.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    signature: Tensor

    def __init__(self, family: str, *options: object, **torchmetrics_options: Any) -> None:
        super().__init__(**torchmetrics_options)
        plain = [option.tolist() if isinstance(option, Tensor) else option for option in options]
        self.add_state("signature", torch.tensor(zlib.crc32(repr((family, plain)).encode())), dist_reduce_fx="max")

    def add_sum(self, name: str, *shape: int, dtype: torch.dtype = torch.float64) -> None:
        """Create a zero state that is summed over processes."""
        self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")

    def add_count(self, *names: str) -> None:
        """Create states that count rows."""
        for name in names:
            self.add_sum(name, dtype=torch.int64)

    def accumulate(self, sums: NamedTuple) -> None:
        """Add the sums of a batch to the states of the same names."""
        for name, value in sums._asdict().items():
            setattr(self, name, getattr(self, name) + value)

    def check_width(self, given: int, num_labels: int) -> None:
        """Raise unless scores with ``given`` labels have the ``num_labels`` of the metric."""
        if given != num_labels:
            raise ValueError(f"`scores` must have the {num_labels} labels of the metric; got {given}.")


class ListMetric(SumMetric):
    """A metric that keeps lists of scores; a process without rows can still synchronize with the others."""

    wide: Tensor

    def __init__(self, family: str, *options: object, **torchmetrics_options: Any) -> None:
        super().__init__(family, *options, **torchmetrics_options)
        self._list_dtypes: dict[str, torch.dtype | None] = {}
        self.add_state("wide", torch.tensor(0), dist_reduce_fx="max")

    def add_list(self, name: str, dtype: torch.dtype | None) -> None:
        """Create a list of vectors to concatenate; without a dtype, scores in float32 or float64."""
        self._list_dtypes[name] = dtype
        self.add_state(name, [], dist_reduce_fx="cat")

    def kept(self, name: str) -> Tensor:
        """Concatenate the list to one vector."""
        values = getattr(self, name)
        if isinstance(values, Tensor):
            return values
        dtype = self._list_dtypes[name] or (torch.float64 if self.wide else torch.float32)
        if not values:
            return torch.empty(0, dtype=dtype, device=self.device)
        return torch.cat([batch.to(dtype) for batch in values])

    def keep(self, name: str, values: Tensor) -> None:
        """Append to a list."""
        if values.dtype == torch.float64:
            self.wide = torch.ones_like(self.wide)
        getattr(self, name).append(values)

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any | None = None) -> None:
        # All processes must contribute one vector of the same dtype, which a process without rows cannot know by
        # itself.
        group = process_group or self.process_group
        self.wide = torch.stack(dist_sync_fn(self.wide, group=group)).max()
        for name in self._list_dtypes:
            setattr(self, name, [self.kept(name)])
        super()._sync_dist(dist_sync_fn, process_group=process_group)


def state_size(num_labels: int | None) -> int:
    """One sum per label, or a single sum if ``num_labels`` is None."""
    return 1 if num_labels is None else whole_k(num_labels, _UNBOUNDED, name="num_labels")


def absent_labels(counts: Tensor) -> Tensor:
    """The labels with a count of 0, ascending."""
    return (counts == 0).nonzero().squeeze(-1)


def sampler_mask(num_rows: int, *, rank: int, world_size: int, start: int, count: int) -> Tensor:
    """Mask of the examples in a batch that are not duplicates added by `torch.utils.data.DistributedSampler`.

    The sampler (with ``drop_last=False``, shuffled or not) gives process ``rank`` every ``world_size``-th example and
    repeats some at the end so that all processes get the same number. The i-th example of a process is a repetition if
    and only if ``i * world_size + rank >= num_rows``.

    Args:
        num_rows: number of examples in the dataset.
        rank: rank of this process, in [0, world_size).
        world_size: number of processes.
        start: number of examples this process had before this batch.
        count: number of examples in this batch.

    Returns:
        ``(count,)`` bool, to pass as ``mask``: False for a repetition.

    Example:
        >>> from shortlist.metrics import sampler_mask
        >>> sampler_mask(5, rank=1, world_size=2, start=0, count=3)
        tensor([ True,  True, False])
    """
    whole_k(world_size, 1 << 31, name="world_size")
    whole_k(rank, world_size - 1, lowest=0, name="rank")
    for name, value in (("num_rows", num_rows), ("start", start), ("count", count)):
        whole_k(value, _UNBOUNDED, lowest=0, name=name)
    return torch.arange(start, start + count) * world_size + rank < num_rows

"""What all metrics here share: sums over batches and processes, and lists that a process without rows survives."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shortlist.extras import require

require("torchmetrics", extra="metrics")
import torchmetrics  # noqa: E402
from torchmetrics.utilities.distributed import gather_all_tensors  # noqa: E402


class Accumulated(torchmetrics.Metric):
    """A metric whose state is a few sums of fixed shape, so that batches and processes of any size add up.

    ``family`` and ``options`` become part of the state. `torchmetrics.MetricCollection` takes metrics for one whose
    states are equal after the first batch; the same sums at another k must not pass for the same metric.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    signature: Tensor

    def __init__(self, family: str, *options: object, **torchmetrics_options: Any) -> None:
        super().__init__(**torchmetrics_options)
        told = [option.tolist() if isinstance(option, Tensor) else option for option in options]
        self.add_state("signature", torch.tensor(zlib.crc32(repr((family, told)).encode())), dist_reduce_fx="max")

    def add_sum(self, name: str, *shape: int, dtype: torch.dtype = torch.float64) -> None:
        """Add a state of zeros that adds up."""
        self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")

    def _wrong_size(self, name: str, wanted: int, got: int) -> ValueError:
        return ValueError(f"`{name}` must have the {wanted} labels that the metric was made for; got {got}.")


class Kept(Accumulated):
    """A metric that keeps scores themselves, in lists; also a process that has none can meet the others."""

    wide: Tensor

    def __init__(self, family: str, *options: object, **torchmetrics_options: Any) -> None:
        super().__init__(family, *options, **torchmetrics_options)
        self._list_dtypes: dict[str, torch.dtype | None] = {}
        self.add_state("wide", torch.tensor(0), dist_reduce_fx="max")

    def add_list(self, name: str, dtype: torch.dtype | None) -> None:
        """Add a list of vectors that are concatenated; without a dtype, of scores in float32 or float64."""
        self._list_dtypes[name] = dtype
        self.add_state(name, [], dist_reduce_fx="cat")

    def kept(self, name: str) -> Tensor:
        """The list as one vector."""
        values = getattr(self, name)
        if isinstance(values, Tensor):
            return values
        return torch.cat([values_of.to(self._dtype_of(name)) for values_of in values]) if values else self._none(name)

    def keep(self, name: str, values: Tensor) -> None:
        """Append to a list."""
        if values.dtype == torch.float64:
            self.wide = torch.ones_like(self.wide)
        getattr(self, name).append(values)

    def _dtype_of(self, name: str) -> torch.dtype:
        return self._list_dtypes[name] or (torch.float64 if self.wide else torch.float32)

    def _none(self, name: str) -> Tensor:
        return torch.empty(0, dtype=self._dtype_of(name), device=self.device)

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any | None = None) -> None:
        # All processes must bring one vector of one dtype; who has no rows cannot know the dtype alone.
        group = process_group or self.process_group
        self.wide = torch.stack(dist_sync_fn(self.wide, group=group)).max()
        for name in self._list_dtypes:
            setattr(self, name, [self.kept(name)])
        super()._sync_dist(dist_sync_fn, process_group=process_group)

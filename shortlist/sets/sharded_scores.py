"""Set rules on scores whose labels are on several processes: each reads its own labels, and the best ones travel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from shortlist.label_axis.processes import ProcessShards, all_max, all_sum, shards_of, to_local
from shortlist.sets.entries import Entries, either, top_entries
from shortlist.tensors import solvable, wide

if TYPE_CHECKING:
    from shortlist.sets.rule import SetRule

_BLOCK = 1 << 18
"""About so many own scores are read at a time."""


class ScoreShard:
    """The own labels of scores ``(rows, n)``, and what their process tells the others.

    Args:
        scores: a DTensor that is sharded along its labels, the last axis.
    """

    def __init__(self, scores: Tensor) -> None:
        self.labels: ProcessShards = shards_of(scores, name="scores")
        own = to_local(scores).detach()
        self.scores = own.reshape(math.prod(own.shape[:-1]), own.shape[-1])
        self.device = own.device

    @property
    def group(self) -> dist.ProcessGroup:
        """Of the processes that have the labels."""
        return self.labels.group

    def refuse(self) -> None:
        """ValueError, on every process, that names the first row with NaN or +inf."""
        rows = len(self.scores)
        wrong = (~(self.scores < torch.inf)).any(-1).nonzero() if self.labels.count else self.scores.new_empty(0)
        first = torch.tensor([-int(wrong[0]) if len(wrong) else -rows], dtype=torch.int64, device=self.device)
        first = -int(all_max(first, self.group))
        if first < rows:
            raise ValueError(f"`scores` must not be NaN or infinite; row {first} breaks that.")

    def blocks(self, rule: SetRule) -> Iterator[Tensor]:
        """Values of a few rows at a time, equally many on every process."""
        rows = max(1, _BLOCK // max(1, math.ceil(self.labels.total / self.labels.mesh.size())))
        for start in range(0, len(self.scores), rows):
            yield self.values(rule, self.scores[start : start + rows])

    def values(self, rule: SetRule, scores: Tensor) -> Tensor:
        """What the rule compares, on the CPU; -inf for absent labels."""
        work = solvable(scores)
        if not rule.from_logits:
            return work.cpu()
        values = self._softmax(work) if rule.link == "softmax" else work.sigmoid()
        return torch.where(work == -torch.inf, -torch.inf, values).cpu()

    def _softmax(self, work: Tensor) -> Tensor:
        own = work.amax(-1, keepdim=True) if self.labels.count else work.new_full((len(work), 1), -torch.inf)
        powers = (work - all_max(own, self.group)).exp()
        total = all_sum(powers.sum(-1, keepdim=True, dtype=wide(work)), self.group)
        return powers / total.to(work.dtype)

    def top(self, values: Tensor, k: int) -> Entries:
        """The k best of all labels of each row, equal ones by ascending label; k numbers per row and process travel."""
        rows, count = len(values), self.labels.count
        best = values.new_full((rows, k, 2), -torch.inf, dtype=torch.float64)
        if count:
            own = top_entries(values, min(k, count))
            order = (own.rows * count + own.labels).argsort()
            row = own.rows[order]
            slot = torch.arange(len(row)) - torch.searchsorted(row, row)
            best[row, slot, 0] = own.values[order].double()
            best[row, slot, 1] = (own.labels[order] + self.labels.first).double()
        # Every process lists its labels in ascending order, and a stable sort keeps that among equals.
        gathered = torch.cat(self._gather(best), dim=1)
        order = gathered[..., 0].sort(dim=-1, descending=True, stable=True).indices[:, :k]
        best = gathered.gather(1, order.unsqueeze(-1).expand(-1, -1, 2)).reshape(-1, 2)
        numbers = torch.arange(rows).repeat_interleave(order.shape[-1])
        inside = best[:, 0] > -torch.inf
        best, numbers = best[inside], numbers[inside]
        return Entries(numbers, best[:, 1].long(), best[:, 0].to(values.dtype))

    def own(self, found: Entries) -> Entries:
        """Those of the own labels."""
        first = self.labels.first
        return found.where((found.labels >= first) & (found.labels < first + self.labels.count))

    def at_least(self, found: Entries, values: Tensor, size: int) -> Entries:
        """Own entries, and with them those among the ``size`` best of all."""
        if size == 0:
            return found
        return either(found, self.own(self.top(values, min(size, self.labels.total))), self.labels.total)

    def gather(self, found: Entries, seen: int) -> tuple[Entries, int]:
        """The entries of all processes, and the sum of their ``seen``."""
        counts = self._gather(torch.tensor([len(found.rows), seen], dtype=torch.int64))
        longest = max(int(count[0]) for count in counts)
        packed = torch.zeros(longest, 3, dtype=torch.float64)
        packed[: len(found.rows)] = torch.stack([part.double() for part in found], -1)
        parts = [part[: int(count[0])] for part, count in zip(self._gather(packed), counts, strict=True)]
        rows, labels, values = torch.cat(parts).unbind(-1)
        return Entries(rows.long(), labels.long(), values.to(found.values.dtype)), sum(
            int(count[1]) for count in counts
        )

    def mask(self, found: Entries, shape: torch.Size) -> Tensor:
        """Own entries as a bool DTensor, sharded as the scores are."""
        own = torch.zeros(len(self.scores), self.labels.count, dtype=torch.bool)
        own[found.rows, found.labels - self.labels.first] = True
        own = own.to(self.device).reshape(*shape[:-1], self.labels.count)
        return self.labels.shard(own, len(shape) - 1)

    def _gather(self, values: Tensor) -> list[Tensor]:
        """The tensors of all processes, of one shape, in their order."""
        values = values.to(self.device).contiguous()
        parts = [torch.empty_like(values) for _ in range(self.labels.mesh.size())]
        dist.all_gather(parts, values, group=self.group)
        return [part.cpu() for part in parts]

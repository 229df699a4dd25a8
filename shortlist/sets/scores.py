"""Scores as set rules read them, in blocks of rows, and the selection of labels from a block.

A process may hold all labels or a shard of them. With shards, each process reads its local labels, and only the best
labels of each row are communicated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from shortlist.label_axis.processes import ProcessShards, all_max, all_sum, processes_of, to_local
from shortlist.tensors import is_dtensor, on_accelerator, solvable, wide

Link = Literal["softmax", "sigmoid"]

BLOCK = 1 << 18
"""Block size in entries for transforming and comparing scores; a block fits into the cache."""

DEVICE_BLOCK = 1 << 26
"""The same on an accelerator, where a block costs a few launches and bounds the memory."""


class Block:
    """A block of rows, with the labels that this process holds.

    Attributes:
        values: ``(rows, labels)``, the scores after the link, by which labels are compared. Absent labels have -inf,
            except where that would take another pass over them: see `at` and `marked`.
        scores: ``(rows, labels)``, as they came. Rounding of the link depends on the batch, the device and the
            runtime; these do not.
        rows: ``(rows,)`` on the CPU, what came with each row besides scores, such as weights or groups; or None.
        link: how values are computed, on an accelerator only once they are read; None if they were given.
    """

    def __init__(
        self, values: Tensor | None, scores: Tensor, rows: Tensor | None = None, link: Link | None = None
    ) -> None:
        self.scores, self.rows = scores, rows
        self.link: Link | None = link
        self._values = scores if values is None and link is None else values

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def values(self) -> Tensor:
        if self._values is None:
            self._values = apply_link(self.scores, self.link, all_present=True)
        return self._values

    def at(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The values of some labels; -inf for absent ones."""
        rows, labels = rows.to(self.scores.device), labels.to(self.scores.device)
        return torch.where(self.scores[rows, labels] == -torch.inf, -torch.inf, self.values[rows, labels])

    def marked(self) -> Tensor:
        """All values; -inf for absent labels."""
        if self.values is self.scores:
            return self.values
        return torch.where(self.scores == -torch.inf, -torch.inf, self.values)


class Selection(NamedTuple):
    """Selected labels of a block of rows, each at most once.

    Attributes:
        rows, labels: ``(count,)`` int64.
        values: ``(count,)``, their scores.
    """

    rows: Tensor
    labels: Tensor
    values: Tensor

    def where(self, mask: Tensor) -> Selection:
        """The labels for which the ``(count,)`` mask is true."""
        return Selection(self.rows[mask], self.labels[mask], self.values[mask])

    def union(self, other: Selection, num_labels: int) -> Selection:
        """The union of both, without duplicates."""
        keys = self.rows * num_labels + self.labels
        fresh = other.where(~torch.isin(other.rows * num_labels + other.labels, keys))
        return Selection(*(torch.cat(pair) for pair in zip(self, fresh, strict=True)))


def select_where(mask: Tensor, block: Block) -> Selection:
    """The labels where a mask of the shape of a block is true, or not 0, row by row; on the CPU, wherever the block is.

    Example:
        >>> values = torch.tensor([[0.2, 0.8], [0.7, 0.3]])
        >>> select_where(values > 0.5, Block(values, values)).labels
        tensor([1, 0])
    """
    if not on_accelerator(mask):
        # If few entries are true, numpy finds them much faster than torch.
        return _select_flat(torch.from_numpy(np.flatnonzero(mask.numpy())), block.values)
    rows, labels = mask.nonzero(as_tuple=True)
    return Selection(rows.cpu(), labels.cpu(), block.at(rows, labels).cpu())


def select_reaching(block: Block, threshold: Tensor) -> Selection:
    """The labels that score at least ``threshold`` (one number, or one per label), except those with score -inf.

    Example:
        >>> values = torch.tensor([[0.2, 0.8], [0.7, 0.3]])
        >>> select_reaching(Block(values, values), torch.tensor([0.1, 0.8])).rows
        tensor([0, 0, 1])
    """
    bound = threshold.to(block.values.dtype)
    if on_accelerator(block.values):
        found = select_where(block.values >= bound.to(block.values.device), block)
        return found.where(found.values > -torch.inf)
    found = select_where(torch.from_numpy(block.values.numpy() >= bound.numpy()), block)
    return found.where(found.values > -torch.inf) if (bound == -torch.inf).any() else found


def select_top(values: Tensor, k: int) -> Selection:
    """The k best labels of each row, ties by ascending label, except those with score -inf; on the CPU.

    Example:
        >>> select_top(torch.tensor([[0.1, 0.5, 0.5, 0.5]]), 2).labels
        tensor([1, 2])
    """
    rows, n = values.shape
    largest, labels = (part.cpu() for part in values.topk(min(k + 1, n), dim=-1))
    labels, chosen = labels[:, :k], largest[:, :k]
    if k < n:
        # `topk` chooses arbitrarily among scores that tie for rank k; their values are the same.
        last = largest[:, k - 1]
        tied = ((last == largest[:, k]) & (last > -torch.inf)).nonzero()[:, 0]
        if len(tied):
            first = top_mask(values[tied.to(values.device)], k).nonzero()[:, 1].reshape(-1, k).cpu()
            labels = labels.index_put((tied,), first)
            chosen = chosen.index_put((tied,), values[tied.to(values.device)].cpu().gather(1, first))
    row = torch.arange(rows).repeat_interleave(k)
    return Selection(row, labels.flatten(), chosen.flatten()).where(chosen.flatten() > -torch.inf)


def top_mask(values: Tensor, k: int) -> Tensor:
    """Mask of the k best labels of each row, k at least 1, except those with score -inf; ties by ascending label."""
    last = values.topk(k, dim=-1).values[..., -1:]
    above, equal = values > last, values == last
    free = (k - above.sum(-1, keepdim=True)).masked_fill(last == -torch.inf, 0)
    return above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= free))


def _select_flat(flat: Tensor, values: Tensor) -> Selection:
    rows = flat.div(values.shape[-1], rounding_mode="floor")
    return Selection(rows, flat - rows * values.shape[-1], values.reshape(-1)[flat])


def in_precision(scores: Tensor, precision: torch.dtype | None) -> Tensor:
    """Scores in the precision in which a rule was fitted, so that equal scores give equal values in every dtype.

    None, or float64 on a device that lacks it: as `solvable`.
    """
    if precision is None or (precision == torch.float64 and wide(scores) != torch.float64):
        return solvable(scores)
    return scores.to(precision)


def apply_link(scores: Tensor, link: Link | None, *, all_present: bool = False) -> Tensor:
    """Probabilities from logits, or the scores themselves for ``link=None``; absent labels have -inf."""
    work = solvable(scores)
    if link is None:
        return work
    # The last bit of a sigmoid depends on the layout in memory, and scores near a threshold on the last bit.
    work = work.contiguous()
    values = work.softmax(-1) if link == "softmax" else work.sigmoid()
    # A label with logit -inf must be in no set, but its probability of 0 could reach a threshold.
    return values if all_present else torch.where(work == -torch.inf, -torch.inf, values)


class Scores:
    """Scores ``(*rows, n)``; this process holds all labels or a shard of them.

    Args:
        scores: a tensor, or a DTensor sharded along the labels, the last axis.
        precision: in which values are computed and compared, float32 or float64; None for that of the scores, float32
            for half precision.
        rows: what blocks hold as ``rows``.
    """

    def __init__(self, scores: Tensor, precision: torch.dtype | None = None, rows: Tensor | None = None) -> None:
        self.shape, self.precision, self.rows = scores.shape, precision, rows
        self.processes = processes_of(scores, name="scores")
        local = to_local(scores) if is_dtensor(scores) else scores
        self.local = local.detach().reshape(math.prod(local.shape[:-1]), local.shape[-1])

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.local)

    @property
    def shards(self) -> ProcessShards | None:
        """The labels on this process; None if it has all of them."""
        return self.processes if isinstance(self.processes, ProcessShards) else None

    def check(self, wrong: Callable[[Tensor], Tensor], rule: str, *, fine_below: float | None = None) -> None:
        """Raise on every process for the first row with an entry for which ``wrong`` is true.

        Args:
            wrong: maps a block to a mask.
            rule: wording for the error message.
            fine_below: skip a block whose maximum lies below this value.
        """
        first = next(self._bad_rows(wrong, fine_below), len(self))
        if self.shards is not None:
            first = -int(all_max(torch.tensor([-first], device=self.local.device), self.shards.group))
        if first < len(self):
            raise ValueError(f"{rule}; row {first} violates this.")

    def _bad_rows(self, wrong: Callable[[Tensor], Tensor], fine_below: float | None) -> Iterator[int]:
        if self.local.shape[-1] == 0:
            return
        for start, block in self._row_blocks():
            # The maximum of values with a NaN is NaN, which compares false.
            if fine_below is not None and float(block.amax()) < fine_below:
                continue
            yield from (start + row for row in wrong(block).any(-1).nonzero()[:1, 0].tolist())

    @property
    def stay(self) -> bool:
        """Whether blocks stay on an accelerator: scores that are sharded over processes are compared on the CPU."""
        return self.shards is None and on_accelerator(self.local)

    def bad_rows(self, wrong: Callable[[Tensor], Tensor], fine_below: float | None) -> Tensor:
        """What `check` raises for, as one bool for each row on the device, for a later time."""
        if fine_below is not None:
            return ~(self.local.amax(-1) < fine_below)
        return torch.cat([wrong(block).any(-1) for _, block in self._row_blocks()])

    def _row_blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Blocks of a few rows, the same on every process, with the index of the first row."""
        n, shards = self.shape[-1], self.shards
        width = n if shards is None else math.ceil(n / shards.mesh.size())
        step = max(1, (DEVICE_BLOCK if self.stay else BLOCK) // max(1, width))
        for start in range(0, len(self), step):
            yield start, self.local[start : start + step]

    def blocks(self, link: Link | None, *, on_host: bool = False) -> Iterator[Block]:
        """The scores before and after the link, in blocks, so that there is never a copy of all scores.

        Args:
            link: how logits become values.
            on_host: whether blocks must be on the CPU; otherwise those of an accelerator stay there.
        """
        for start, block in self._row_blocks():
            rows = None if self.rows is None else self.rows[start : start + len(block)]
            if self.stay and not on_host:
                work = in_precision(block, self.precision)
                yield Block(None, work, rows, link)
            elif self.shards is None:
                work = in_precision(block.cpu(), self.precision)
                yield Block(
                    apply_link(work, link, all_present=link is None or float(work.amin()) > -torch.inf), work, rows
                )
            else:
                work = in_precision(block, self.precision)
                yield Block(self._sharded_values(work, link, self.shards).cpu(), work, rows)

    def whole(self, link: Link | None) -> Block:
        """All rows as one block."""
        work = in_precision(self.local, self.precision)
        if self.shards is None:
            return Block(apply_link(work, link), work)
        return Block(self._sharded_values(work, link, self.shards).cpu(), work)

    def _sharded_values(self, block: Tensor, link: Link | None, shards: ProcessShards) -> Tensor:
        if link != "softmax":
            return apply_link(block, link)
        work = solvable(block)
        largest = work.amax(-1, keepdim=True) if shards.count else work.new_full((len(work), 1), -torch.inf)
        powers = (work - all_max(largest, shards.group)).exp()
        total = all_sum(powers.sum(-1, keepdim=True, dtype=wide(work)), shards.group)
        return torch.where(work == -torch.inf, -torch.inf, powers / total.to(work.dtype))

    def top(self, block: Block, k: int) -> Selection:
        """The k best of all labels of each row by their scores as they came, ties by ascending label.

        With shards, it communicates k labels per row and process.

        Args:
            block: scores of the local labels.
            k: at most the number of labels.
        """
        if self.shards is None:
            found = select_top(block.scores, k)
            if block.values is block.scores:
                return found
            place = (found.rows * block.values.shape[1] + found.labels).to(block.values.device)
            return found._replace(values=block.values.reshape(-1)[place].cpu())
        scores = block.scores.cpu()
        rows, count = scores.shape
        best = scores.new_full((rows, k, 3), -torch.inf, dtype=torch.float64)
        if count:
            local = select_top(scores, min(k, count))
            order = (local.rows * count + local.labels).argsort()
            row, labels = local.rows[order], local.labels[order]
            slot = torch.arange(len(row)) - torch.searchsorted(row, row)
            columns = local.values[order], labels + self.shards.first, block.values[row, labels]
            best[row, slot] = torch.stack([column.double() for column in columns], -1)
        # Every process lists its labels in ascending order, and a stable sort preserves that order among ties.
        gathered = torch.cat(self._all_gather(best, self.shards), dim=1)
        order = gathered[..., 0].sort(dim=-1, descending=True, stable=True).indices[:, :k]
        best = gathered.gather(1, order.unsqueeze(-1).expand(-1, -1, 3)).reshape(-1, 3)
        row = torch.arange(rows).repeat_interleave(order.shape[-1])
        return Selection(row, best[:, 1].long(), best[:, 2].to(block.values.dtype)).where(best[:, 0] > -torch.inf)

    def select_local(self, block: Block, threshold: Tensor) -> Selection:
        """The local labels that reach a threshold, as global label indices."""
        found = select_reaching(block, threshold)
        return found._replace(labels=found.labels + self.processes.first)

    def only_local(self, found: Selection) -> Selection:
        """The local labels among those of all processes."""
        if self.shards is None:
            return found
        first = self.shards.first
        return found.where((found.labels >= first) & (found.labels < first + self.shards.count))

    def gather(self, found: Selection, ties: int) -> tuple[Selection, int]:
        """The selected labels of all processes, and the sum of their ``ties``."""
        if self.shards is None:
            return found, ties
        counts = self._all_gather(torch.tensor([len(found.rows), ties], dtype=torch.int64), self.shards)
        packed = torch.zeros(max(int(count[0]) for count in counts), 3, dtype=torch.float64)
        packed[: len(found.rows)] = torch.stack([column.double() for column in found], -1)
        gathered = self._all_gather(packed, self.shards)
        columns = torch.cat([part[: int(count[0])] for part, count in zip(gathered, counts, strict=True)])
        rows, labels, values = columns.unbind(-1)
        selection = Selection(rows.long(), labels.long(), values.to(found.values.dtype))
        return selection, sum(int(count[1]) for count in counts)

    def local_mask(self, found: Selection) -> Tensor:
        """Local labels as a bool mask with the shape and sharding of the scores."""
        mask = torch.zeros(self.local.shape, dtype=torch.bool)
        mask[found.rows, found.labels - self.processes.first] = True
        return self.processes.shard(mask.to(self.local.device).reshape(*self.shape[:-1], self.local.shape[-1]))

    def _all_gather(self, values: Tensor, shards: ProcessShards) -> list[Tensor]:
        """Gather tensors of the same shape from all processes, in rank order."""
        values = values.to(self.local.device).contiguous()
        gathered = [torch.empty_like(values) for _ in range(shards.mesh.size())]
        dist.all_gather(gathered, values, group=shards.group)
        return [each.cpu() for each in gathered]

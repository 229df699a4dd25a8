"""The largest logits of each row, accumulated over blocks of labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.label_axis.processes import Processes

NO_LABEL = 1 << 62

_GROUP = 16
"""Number of labels per group in the search for the largest."""


@dataclass
class RunningTopK:
    """The ``k`` largest so far in descending order; fewer until ``k`` were seen.

    If ``stable``, ties are ordered by ascending label; otherwise, the choice among ties is undefined.
    """

    k: int
    stable: bool
    values: Tensor  # (B, m)
    labels: Tensor  # (B, m)

    @classmethod
    def empty(cls, rows: int, k: int, like: Tensor, *, stable: bool) -> RunningTopK:
        """An empty state for values with the dtype and device of ``like``."""
        values = like.new_empty((rows, 0))
        return cls(k, stable, values, values.long())

    def add(self, x: Tensor, start: int) -> Tensor:
        """Add a block of logits whose first label is ``start``.

        Returns:
            ``(B, m)``: dropped values, from the block's largest and from those kept before. The block's largest are
            replaced by -inf in ``x``, so ``x`` and the result together contain everything that is not kept.
        """
        select = _leading if self.stable else _largest
        values, columns = select(x, min(self.k, x.shape[1]))
        x.scatter_(1, columns, -math.inf)
        # Earlier blocks have smaller labels, so they come first.
        dropped, _ = self._merge(torch.cat([self.values, values], 1), torch.cat([self.labels, columns + start], 1))
        return dropped

    def merge_processes(self, processes: Processes) -> tuple[Tensor, Tensor]:
        """Keep the largest over all processes, which must use global label indices.

        Returns:
            ``(B, m)``: the values and labels dropped on any process.
        """
        # Every process sends the same number; padding uses an extra label after all others.
        short = self.k - self.values.shape[1]
        values = processes.gather_columns(pad(self.values, (0, short), value=-math.inf))
        labels = processes.gather_columns(pad(self.labels, (0, short), value=NO_LABEL))
        order = (labels == NO_LABEL).byte().argsort(dim=1, stable=True)
        return self._merge(values.gather(1, order), labels.gather(1, order))

    def _merge(self, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the largest of these; ties must be ordered by label."""
        values, order = values.sort(dim=1, descending=True, stable=True)
        labels = labels.gather(1, order)
        self.values, self.labels = values[:, : self.k], labels[:, : self.k]
        return values[:, self.k :], labels[:, self.k :]


def _leading(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the ``k`` largest of each row in descending order, ties by ascending column."""
    n = x.shape[1]
    if k * 64 > n or x.numel() == 0:
        values, columns = x.sort(dim=1, descending=True, stable=True)
        return values[:, :k], columns[:, :k]
    values, columns = _largest(x, k + 1)
    order = columns[:, :k].argsort(1)
    columns = columns[:, :k].gather(1, order)
    ordered, order = values[:, :k].gather(1, order).sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, order)
    # If a tie crosses rank k, the search may have found any of the tied labels.
    tied = (values[:, k] == values[:, k - 1]).nonzero().squeeze(1)
    if len(tied):
        columns[tied] = x[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return ordered, columns


def _largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the ``k`` largest in descending order.

    They lie in the k groups with the largest maxima: for a label outside, those k maxima are at least as large.
    """
    groups = x.shape[1] // _GROUP
    if k >= groups:
        return x.topk(k)
    maxima = x[:, : _GROUP * groups].unflatten(1, (_GROUP, groups)).amax(1)
    offsets = groups * torch.arange(_GROUP, device=x.device)
    rest = torch.arange(_GROUP * groups, x.shape[1], device=x.device)
    candidates = (maxima.topk(k, sorted=False).indices.unsqueeze(-1) + offsets).flatten(1)
    candidates = torch.cat([candidates, rest.expand(len(x), -1)], 1)
    values, slots = x.gather(1, candidates).topk(k)
    return values, candidates.gather(1, slots)

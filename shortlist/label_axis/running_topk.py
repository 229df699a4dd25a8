"""The largest logits of each row, collected while blocks of labels pass by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.label_axis.processes import Processes

NO_LABEL = 1 << 62

_GROUP = 16
"""Labels per group when searching for the largest."""


@dataclass
class RunningTopK:
    """The ``k`` largest so far in descending order; fewer until there are as many.

    If ``stable``, ties are kept and ordered by ascending label; otherwise, which of them are kept is undefined.
    """

    k: int
    stable: bool
    values: Tensor  # (B, m)
    labels: Tensor  # (B, m)

    @classmethod
    def empty(cls, rows: int, k: int, like: Tensor, *, stable: bool) -> RunningTopK:
        """Nothing yet, for values with the dtype and device of ``like``."""
        values = like.new_empty((rows, 0))
        return cls(k, stable, values, values.long())

    def add(self, x: Tensor, start: int) -> Tensor:
        """Add a block of logits whose first label is ``start``.

        Returns:
            ``(B, m)``: values that were dropped, from the block's largest and from those kept before. In ``x`` the
            block's largest are replaced by -inf, so the two together hold everything that is not kept.
        """
        select = _leading if self.stable else _largest
        values, columns = select(x, min(self.k, x.shape[1]))
        x.scatter_(1, columns, -math.inf)
        # Earlier blocks have smaller labels and come first.
        dropped, _ = self._merge(torch.cat([self.values, values], 1), torch.cat([self.labels, columns + start], 1))
        return dropped

    def merge_processes(self, processes: Processes) -> tuple[Tensor, Tensor]:
        """Keep the largest over all processes, which must number labels globally.

        Returns:
            ``(B, m)``: the values and labels that were dropped, on any process.
        """
        # Every process sends equally many; padding has a label of its own, after all others.
        short = self.k - self.values.shape[1]
        values = processes.gather_columns(pad(self.values, (0, short), value=-math.inf))
        labels = processes.gather_columns(pad(self.labels, (0, short), value=NO_LABEL))
        order = (labels == NO_LABEL).byte().argsort(dim=1, stable=True)
        return self._merge(values.gather(1, order), labels.gather(1, order))

    def _merge(self, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the largest of these; equal values must come in the order of their labels."""
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
    # Where a tie crosses the last place, it is undefined which of the equal labels were found.
    tied = (values[:, k] == values[:, k - 1]).nonzero().squeeze(1)
    if len(tied):
        columns[tied] = x[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return ordered, columns


def _largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the ``k`` largest in descending order.

    They lie in the k groups with the largest maxima: a label outside has k of these at or above it.
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

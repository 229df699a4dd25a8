"""The largest logits of each row, kept aside while blocks of labels go by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.functional.linear.reach import Reach

NO_LABEL = 1 << 62

_GROUP = 16
"""Labels of a group when looking for the largest."""


@dataclass
class TopKept:
    """The ``k`` largest so far, in descending order; fewer while there are not so many.

    If ``stable``, equal ones are kept and ordered by ascending label; else, which of them are kept is not defined.
    """

    k: int
    stable: bool
    values: Tensor  # (B, m)
    labels: Tensor  # (B, m)

    @classmethod
    def none(cls, rows: int, k: int, like: Tensor, *, stable: bool) -> TopKept:
        """Nothing yet; ``like`` has the dtype and the device of the values."""
        values = like.new_empty((rows, 0))
        return cls(k, stable, values, values.long())

    def add(self, x: Tensor, start: int) -> Tensor:
        """Take in a block, whose first label is ``start``.

        Returns:
            ``(B, m)``: what is no longer kept, of the block's best and of what was kept before. In ``x``, the best of
            the block are replaced by -inf: together with these, it holds all that is not kept.
        """
        select = _leading if self.stable else _largest
        values, columns = select(x, min(self.k, x.shape[1]))
        x.scatter_(1, columns, -math.inf)
        # Labels of earlier blocks are smaller, and come first.
        pool, _ = self._merge(torch.cat([self.values, values], 1), torch.cat([self.labels, columns + start], 1))
        return pool

    def join(self, reach: Reach) -> tuple[Tensor, Tensor]:
        """Keep the largest of all processes; labels are numbered alike on all of them.

        Returns:
            ``(B, m)``: values and labels that are no longer kept, of this process and of others.
        """
        # Each sends as many; what is made up has a label of its own, behind all others.
        short = self.k - self.values.shape[1]
        values = reach.side_by_side(pad(self.values, (0, short), value=-math.inf))
        labels = reach.side_by_side(pad(self.labels, (0, short), value=NO_LABEL))
        order = (labels == NO_LABEL).byte().argsort(dim=1, stable=True)
        return self._merge(values.gather(1, order), labels.gather(1, order))

    def _merge(self, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the largest of these, of which equal ones stand by ascending label."""
        values, order = values.sort(dim=1, descending=True, stable=True)
        labels = labels.gather(1, order)
        self.values, self.labels = values[:, : self.k], labels[:, : self.k]
        return values[:, self.k :], labels[:, self.k :]


def _leading(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and places of the ``k`` largest of each row, in descending order, equal ones by ascending place."""
    n = x.shape[1]
    if k * 64 > n or x.numel() == 0:
        values, places = x.sort(dim=1, descending=True, stable=True)
        return values[:, :k], places[:, :k]
    values, places = _largest(x, k + 1)
    order = places[:, :k].argsort(1)
    places = places[:, :k].gather(1, order)
    ordered, order = values[:, :k].gather(1, order).sort(dim=1, descending=True, stable=True)
    places = places.gather(1, order)
    # Where a tie runs across the last place, which of the equal ones were found is not defined.
    tied = (values[:, k] == values[:, k - 1]).nonzero().squeeze(1)
    if len(tied):
        places[tied] = x[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return ordered, places


def _largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and places of the ``k`` largest in descending order.

    They lie in the k groups with the largest maxima: a label outside has k of these above it or equal.
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

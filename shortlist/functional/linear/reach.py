"""The processes that share the labels of ``LinearLogits``: one that has them all, or several that each have some."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from shortlist.functional.linear.marks import MarkedLabels
from shortlist.functional.sharded.shards import (
    OwnLabels,
    all_max,
    all_sum,
    is_sharded,
    own_labels,
    shared,
    wide,
)


class Reach(Protocol):
    """What a loss must say where some of its labels may be elsewhere; all processes go on alike."""

    first: int  # the number of the first own label

    def own(self, marks: MarkedLabels) -> MarkedLabels:
        """Those of the own labels, numbered from the first of these."""
        ...

    def own_values(self, values: Tensor) -> Tensor:
        """Of one value per label, those of the own labels."""
        ...

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over the processes, the same on each; its gradient is passed on as it is."""
        ...

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over the processes, without a gradient."""
        ...

    def shared(self, values: Tensor) -> Tensor:
        """What all have, for use on the own labels: the gradients of all are added up."""
        ...

    def side_by_side(self, values: Tensor) -> Tensor:
        """The columns of all processes, in their order, without a gradient."""
        ...

    def result(self, values: Tensor) -> Tensor:
        """What all have, for the user."""
        ...

    def own_result(self, values: Tensor) -> Tensor:
        """What each has for its own labels, along the last axis, for the user."""
        ...


class Alone:
    """All labels are here."""

    first = 0

    def own(self, marks: MarkedLabels) -> MarkedLabels:
        return marks

    def own_values(self, values: Tensor) -> Tensor:
        return values

    def add_up(self, values: Tensor) -> Tensor:
        return values

    def largest(self, values: Tensor) -> Tensor:
        return values

    def shared(self, values: Tensor) -> Tensor:
        return values

    def side_by_side(self, values: Tensor) -> Tensor:
        return values

    def result(self, values: Tensor) -> Tensor:
        return values

    def own_result(self, values: Tensor) -> Tensor:
        return values


class Several:
    """Some of the labels are here."""

    def __init__(self, labels: OwnLabels) -> None:
        self.labels, self.first = labels, labels.first

    def own(self, marks: MarkedLabels) -> MarkedLabels:
        at = marks.between(self.first, self.first + self.labels.count)
        parts = (part[at] for part in (marks.rows, marks.labels - self.first, marks.values))
        return MarkedLabels(*parts)

    def own_values(self, values: Tensor) -> Tensor:
        return self.labels.take(values)

    def add_up(self, values: Tensor) -> Tensor:
        return all_sum(values.to(wide(values)), self.labels.group).to(values.dtype)

    def largest(self, values: Tensor) -> Tensor:
        return all_max(values, self.labels.group)

    def shared(self, values: Tensor) -> Tensor:
        return shared(values, self.labels.group)

    def side_by_side(self, values: Tensor) -> Tensor:
        parts = [torch.empty_like(values) for _ in range(dist.get_world_size(self.labels.group))]
        dist.all_gather(parts, values.contiguous(), group=self.labels.group)
        return torch.cat(parts, -1)

    def result(self, values: Tensor) -> Tensor:
        return self.labels.replicate(values)

    def own_result(self, values: Tensor) -> Tensor:
        return self.labels.wrap(values, values.ndim - 1)


def reach_of(weight: Tensor) -> Alone | Several:
    """Who has the labels of ``weight`` ``(n, d)``: a DTensor is sharded along them."""
    return Several(own_labels(weight, 0, name="weight")) if is_sharded(weight) else Alone()

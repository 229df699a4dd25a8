"""A linear layer's logits, one block of labels after the other: what every loss over ``LinearLogits`` reads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from shortlist.functional.linear.marks import MarkedLabels
from shortlist.functional.linear.reach import Alone, Reach

ENTRIES = 1 << 20
"""Logits of a block: enough for products to run at full speed, few enough to be forgotten."""

NARROWEST = 64
"""Labels of a block at least: with fewer, products are slow. So a block never has more numbers than rows of 64
features."""


def block_width(rows: int, label_block: int | None = None) -> int:
    """How many labels are computed at a time."""
    return max(NARROWEST, ENTRIES // max(rows, 1)) if label_block is None else label_block


class LinearBlocks:
    """Logits ``(B, n)`` of ``features`` ``(B, d)``, computed when they are asked for; a ``LabelParts``.

    Args:
        features: ``(B, d)``.
        weight: ``(n, d)``.
        bias: ``(n,)`` or None.
        dtype: that of the products; half precision is brought to float32 after.
        label_block: labels of a block, or None for a good number.
        reach: where other labels of the rows are; by default nowhere.
    """

    def __init__(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        label_block: int | None,
        reach: Reach | None = None,
    ) -> None:
        self.reach = Alone() if reach is None else reach
        self.features, self.weight, self.bias = features.to(dtype), weight, bias
        self._dtype, self._label_block = torch.promote_types(dtype, torch.float32), label_block
        self._marks: MarkedLabels | None = None
        self._hidden: MarkedLabels | None = None
        self._bound: float | None = None
        self.own = features.new_empty(0, dtype=self._dtype)
        self.own_known = True

    def mark(self, marks: MarkedLabels, hidden: MarkedLabels, *, bounded: bool) -> None:
        """Look out for labels.

        Args:
            marks: a pass over all rows collects their logits in ``own``.
            hidden: these have the logit -inf.
            bounded: whether the logits of others, infinite ones too, are brought to a finite range.
        """
        self._marks, self._hidden = marks, hidden
        self._bound = bound_of(self._dtype) if bounded else None
        self.own, self.own_known = self.own.new_zeros(len(marks.labels)), False

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the logits: float32 or float64."""
        return self._dtype

    @property
    def num_rows(self) -> int:
        """B."""
        return len(self.features)

    @property
    def num_labels(self) -> int:
        """How many labels are here."""
        return len(self.weight)

    def each(self, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """The first label and the logits of each block; they may be written to, and last until the next block."""
        features = self.features if rows is None else self.features[rows]
        slots = None if rows is None else self._slots(rows)
        width = min(block_width(len(features), self._label_block), self.num_labels)
        if self.weight.dtype != features.dtype:  # of which a block is cast, too
            width = min(width, block_width(features.shape[1]))
        room = features.new_empty(len(features) * width)
        wide = room if self._dtype == features.dtype else room.to(self._dtype)
        for start in range(0, self.num_labels if len(features) else 0, max(width, 1)):
            stop = min(start + width, self.num_labels)
            shape = len(features), stop - start
            x = room[: math.prod(shape)].view(shape)
            self._products(features, slice(start, stop), x)
            if wide is not room:
                x = wide[: math.prod(shape)].view(shape).copy_(x)
            self._look(x, start, slots)
            yield start, x
        self.own_known |= rows is None

    def _products(self, features: Tensor, labels: slice, out: Tensor) -> None:
        weight = self.weight[labels].to(features.dtype)
        if self.bias is None:
            torch.mm(features, weight.T, out=out)
        else:
            torch.addmm(self.bias[labels].to(features.dtype), features, weight.T, out=out)

    def _look(self, x: Tensor, start: int, slots: Tensor | None) -> None:
        """Collect and hide what is marked in a block, whose rows are at ``slots``, or all of them."""
        if self._bound is not None:
            x.clamp_(-self._bound, self._bound)
        if self._marks is None or self._hidden is None:
            return
        width, flat = x.shape[1], x.view(-1)
        if slots is None:
            at, places = self._marks.places(start, width)
            self.own[at] = flat[places]
            flat.index_fill_(0, self._hidden.places(start, width)[1], -math.inf)
            return
        at = self._hidden.between(start, start + width)
        slot = slots[self._hidden.rows[at]]
        places = slot * width + (self._hidden.labels[at] - start)
        flat.index_fill_(0, places[slot >= 0], -math.inf)

    def _slots(self, rows: Tensor) -> Tensor:
        """Where each row stands among ``rows``; -1 for those that do not."""
        numbers = torch.arange(len(rows), device=rows.device)
        return rows.new_full((self.num_rows,), -1).index_put_((rows,), numbers)

    def sample(self) -> Tensor:
        """Logits of every m-th label, as many as a block has room for. Hidden ones are seen, which a guess forgives."""
        stride = max(1, -(-self.num_labels // block_width(self.num_rows)))
        bias = None if self.bias is None else self.bias[::stride]
        some = LinearBlocks(self.features, self.weight[::stride], bias, self.features.dtype, None)
        return next((x for _, x in some.each()), self.own.new_empty(self.num_rows, 0))

    def present(self) -> Tensor:
        """How many labels of each row are above -inf: ``(B, 1)`` float64."""
        there = torch.ones(self.num_labels, dtype=torch.float64, device=self.weight.device)
        if self.bias is not None:
            there = (self.bias > -math.inf).double()
        count = there.sum().expand(self.num_rows).clone()
        if self._hidden is not None:
            count.index_add_(0, self._hidden.rows, there[self._hidden.labels], alpha=-1)
        return self.add_up(count.unsqueeze(-1))

    def blocks(self, rows: Tensor | None) -> Iterator[Tensor]:
        """The logits of all rows or some, a block of labels at a time."""
        return (x for _, x in self.each(rows))

    def add_up(self, sums: Tensor) -> Tensor:
        """The sum over the processes."""
        return self.reach.add_up(sums)

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over the processes."""
        return self.reach.largest(values)


def bound_of(dtype: torch.dtype) -> float:
    """More than any logit; where they are bounded, infinite ones count as this much."""
    return math.sqrt(torch.finfo(dtype).max)

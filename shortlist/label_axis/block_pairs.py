"""A few (row, label) pairs in blocks of labels: read their logits, hide them, add to their gradients.

Where values may be read, pairs are sorted by label and each block takes a slice of them. On accelerators, nothing is
read: each block works on all pairs, and those of other blocks change nothing at the first label of their row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.labels import Labels
from shortlist.tensors import on_accelerator


class BlockPairs:
    """The pairs of ``labels``, which are sorted as by `Labels.by_label` unless they are on an accelerator."""

    def __init__(self, labels: Labels) -> None:
        self.rows, self.labels = labels.pairs()
        self.listed = labels.listed
        self._source, self._masked = labels, on_accelerator(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, x: Tensor, start: int, out: Tensor) -> None:
        """Write the logits of a block's pairs to their places in ``out`` ``(m,)``."""
        if self._masked:
            inside, indices = self._places(x, start)
            out.copy_(torch.where(inside, x.view(-1).index_select(0, indices), out))
        else:
            chosen, indices = self._source.in_block(start, x.shape[1])
            out[chosen] = x.view(-1)[indices]

    def hide(self, x: Tensor, start: int, slots: Tensor | None = None) -> None:
        """Set the logits of a block's pairs to -inf.

        If the block has only some rows, ``slots`` maps each row to its place in the block, or to -1.
        """
        flat, width = x.view(-1), x.shape[1]
        if self._masked:
            inside, indices = self._places(x, start, slots)
            flat.scatter_reduce_(0, indices, torch.where(inside, -math.inf, math.inf).to(x.dtype), "amin")
        elif slots is None:
            flat.index_fill_(0, self._source.in_block(start, width)[1], -math.inf)
        else:
            chosen = self._source.between(start, start + width)
            slot = slots[self.rows[chosen]]
            flat.index_fill_(0, (slot * width + (self.labels[chosen] - start))[slot >= 0], -math.inf)

    def add(self, g: Tensor, start: int, values: Tensor) -> None:
        """Add one value per pair ``(m,)`` to a block."""
        if self._masked:
            inside, indices = self._places(g, start)
            g.view(-1).index_add_(0, indices, torch.where(inside, values, 0))
        else:
            chosen, indices = self._source.in_block(start, g.shape[1])
            g.view(-1).index_add_(0, indices, values[chosen])

    def _places(self, x: Tensor, start: int, slots: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Which pairs are in a block, and their indices in it when flattened; the first of the row for the others."""
        column, width = self.labels - start, x.shape[1]
        inside = (column >= 0) & (column < width)
        inside = inside if self.listed is None else inside & self.listed
        row = self.rows if slots is None else slots[self.rows]
        if slots is not None:
            inside, row = inside & (row >= 0), row.clamp(min=0)
        return inside, torch.where(inside, column, 0).add_(row * width)

"""The logits of a linear layer, recomputed one block of labels at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from shortlist.label_axis.block_pairs import BlockPairs
from shortlist.label_axis.processes import ONE_PROCESS, Processes
from shortlist.labels import Labels
from shortlist.tensors import wide

ENTRIES = 1 << 20
"""Logits per block: enough for matrix products to run at full speed, few enough to recompute."""

NARROWEST = 64
"""Minimum number of labels per block; smaller matrix products are slow."""


def block_width(rows: int, label_block: int | None = None) -> int:
    """The number of labels to compute at a time."""
    return max(NARROWEST, ENTRIES // max(rows, 1)) if label_block is None else label_block


class LinearBlocks:
    """Logits ``(B, n)`` of ``features`` ``(B, d)``, computed on demand; a `LabelAxis`.

    Args:
        features: ``(B, d)``.
        weight: ``(n, d)`` of the local labels.
        bias: ``(n,)`` or None.
        dtype: dtype of the matrix products. Half precision is cast to float32 afterwards.
        label_block: labels per block; None chooses a suitable number.
        processes: the processes that share the labels.
        pairs: (row, label) pairs whose logits a pass over all rows collects in ``pair_logits``.
        hidden: pairs whose logit is -inf.
        bounded: whether logits, infinite ones included, are clipped to a finite range.
    """

    def __init__(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        label_block: int | None,
        processes: Processes = ONE_PROCESS,
        *,
        pairs: Labels | None = None,
        hidden: Labels | None = None,
        bounded: bool = False,
    ) -> None:
        self.features, self.weight, self.bias, self.processes = features.to(dtype), weight, bias, processes
        self._dtype, self._label_block = torch.promote_types(dtype, torch.float32), label_block
        self._pairs, self._hidden = (None if part is None else BlockPairs(part) for part in (pairs, hidden))
        self._bound = bound_of(self._dtype) if bounded else None
        self.pair_logits = features.new_zeros(0 if self._pairs is None else len(self._pairs), dtype=self._dtype)
        self._pairs_collected = pairs is None

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
        """The number of local labels."""
        return len(self.weight)

    @property
    def total_labels(self) -> int:
        """n, over all processes."""
        return self.processes.total_labels(self.num_labels)

    def blocks(self, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """The first label and the logits of each block, which may be modified and are valid until the next block."""
        features = self.features if rows is None else self.features[rows]
        slots = None if rows is None else self._slots(rows)
        width = min(block_width(len(features), self._label_block), self.num_labels)
        if self.weight.dtype != features.dtype:  # also cast a block of the weight
            width = min(width, block_width(features.shape[1]))
        room = features.new_empty(len(features) * width)
        wide_room = room if self._dtype == features.dtype else room.to(self._dtype)
        for start in range(0, self.num_labels if len(features) else 0, max(width, 1)):
            stop = min(start + width, self.num_labels)
            shape = len(features), stop - start
            x = room[: math.prod(shape)].view(shape)
            self._products(features, slice(start, stop), x)
            if wide_room is not room:
                x = wide_room[: math.prod(shape)].view(shape).copy_(x)
            self._apply_pairs(x, start, slots)
            yield start, x
        self._pairs_collected |= rows is None

    def collect_pairs(self) -> None:
        """Fill ``pair_logits`` if no pass has covered all rows yet."""
        if not self._pairs_collected:
            for _ in self.blocks():
                pass

    def _products(self, features: Tensor, labels: slice, out: Tensor) -> None:
        weight = self.weight[labels].to(features.dtype)
        if self.bias is None:
            torch.mm(features, weight.T, out=out)
        else:
            torch.addmm(self.bias[labels].to(features.dtype), features, weight.T, out=out)

    def _apply_pairs(self, x: Tensor, start: int, slots: Tensor | None) -> None:
        """Collect the pairs of a block and mask its hidden ones; ``slots`` maps rows to those of the block."""
        if self._bound is not None:
            x.clamp_(-self._bound, self._bound)
        if self._pairs is not None and slots is None and not self._pairs_collected:
            self._pairs.read(x, start, self.pair_logits)
        if self._hidden is not None:
            self._hidden.hide(x, start, slots)

    def _slots(self, rows: Tensor) -> Tensor:
        """The position of each row in ``rows``, or -1."""
        numbers = torch.arange(len(rows), device=rows.device)
        return rows.new_full((self.num_rows,), -1).index_put_((rows,), numbers)

    def sample(self) -> Tensor:
        """Logits of every m-th label, one block in total. Includes hidden labels, which a guess tolerates."""
        stride = max(1, -(-self.num_labels // block_width(self.num_rows)))
        bias = None if self.bias is None else self.bias[::stride]
        some = LinearBlocks(self.features, self.weight[::stride], bias, self.features.dtype, None)
        return next((x for _, x in some.blocks()), self.pair_logits.new_empty(self.num_rows, 0))

    def present(self) -> Tensor:
        """The number of labels above -inf in each row: ``(B, 1)`` in `wide` precision."""
        there = self.weight.new_ones(self.num_labels, dtype=wide(self.weight))
        if self.bias is not None:
            there = (self.bias > -math.inf).to(there.dtype)
        count = there.sum().expand(self.num_rows).clone()
        if self._hidden is not None:
            gone = there.index_select(0, self._hidden.labels)
            gone = gone if self._hidden.listed is None else gone * self._hidden.listed
            count.index_add_(0, self._hidden.rows, gone, alpha=-1)
        return self.processes.sum(count.unsqueeze(-1))


def bound_of(dtype: torch.dtype) -> float:
    """A bound above any sensible logit; if logits are clipped, infinite ones become this value."""
    return math.sqrt(torch.finfo(dtype).max)

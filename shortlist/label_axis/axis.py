"""The label axis: logits ``(B, n)`` in blocks of labels, with reductions over the processes that share them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from shortlist.label_axis.processes import ONE_PROCESS, Processes
from shortlist.tensors import wide

_CACHED = 1 << 18
"""Number of entries per thread at a time, so that a few buffers of this size stay in its cache."""


class LabelAxis(Protocol):
    """Logits ``(B, n)``; this process holds or computes those of its local labels.

    An operator accesses the labels of a row only through sums and maxima with one number per row.
    """

    @property
    def dtype(self) -> torch.dtype:
        """The precision to compute in, float32 or float64."""
        ...

    @property
    def processes(self) -> Processes:
        """The processes that hold the labels; ``sum`` and ``max`` reduce per-row values over them."""
        ...

    @property
    def total_labels(self) -> int:
        """n, over all processes."""
        ...

    def blocks(self, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """The first label and the logits ``(rows, labels)`` of each local block, for all rows or some."""
        ...

    def sample(self) -> Tensor:
        """Logits ``(B, m)`` of some local labels, or of all, for an initial guess."""
        ...

    def present(self) -> Tensor:
        """Number of labels above -inf in each row, over all blocks and processes: ``(B, 1)`` in `wide` precision."""
        ...


class HeldLabels:
    """Logits in memory: one block ``(B, m)`` with the local labels, which must not be modified."""

    def __init__(self, logits: Tensor, processes: Processes = ONE_PROCESS) -> None:
        self.logits, self.processes = logits, processes

    @property
    def dtype(self) -> torch.dtype:
        return self.logits.dtype

    @property
    def total_labels(self) -> int:
        return self.processes.total_labels(self.logits.shape[-1])

    def blocks(self, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        yield 0, self.logits if rows is None else self.logits[rows]

    def sample(self) -> Tensor:
        return self.logits

    def present(self) -> Tensor:
        rows, n = self.logits.shape
        count = self.logits.new_full((rows, 1), n, dtype=wide(self.logits))
        if n and not bool((self.logits.amin(-1) > -math.inf).all()):
            count = (self.logits > -math.inf).sum(-1, keepdim=True).to(count.dtype)
        return self.processes.sum(count)


def row_blocks(x: Tensor) -> list[slice]:
    """Slices that split the rows of ``x`` ``(B, n)`` into blocks that fit the caches of torch's threads."""
    size = max(1, _CACHED * torch.get_num_threads() // max(x.shape[-1], 1))
    return [slice(start, start + size) for start in range(0, x.shape[0], size)]

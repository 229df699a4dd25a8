"""The label axis: logits ``(B, n)`` by blocks of labels, with reductions over the processes that share them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from shortlist.label_axis.processes import ONE_PROCESS, Processes
from shortlist.tensors import wide

_ENOUGH_SAMPLES = 256


class LabelAxis(Protocol):
    """Logits ``(B, n)`` of which this process holds or computes the local labels.

    An operator sees the labels of a row only through sums and maxima, each of one number per row.
    """

    @property
    def dtype(self) -> torch.dtype:
        """The precision to compute in, float32 or float64."""
        ...

    @property
    def processes(self) -> Processes:
        """Who holds the labels: its ``sum`` and ``max`` reduce per-row values over the processes."""
        ...

    def blocks(self, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """The first label and the logits ``(rows, labels)`` of each local block, of all rows or some."""
        ...

    def sample(self) -> Tensor:
        """Logits ``(B, m)`` of some local labels, or of all, for an initial guess."""
        ...

    def present(self) -> Tensor:
        """How many labels of each row are above -inf, over all blocks and processes: ``(B, 1)`` in `wide` precision."""
        ...


class HeldLabels:
    """Logits that are held in memory: one block ``(B, m)`` with the local labels, which must not be written to."""

    def __init__(self, logits: Tensor, processes: Processes = ONE_PROCESS) -> None:
        self.logits, self.processes = logits, processes

    @property
    def dtype(self) -> torch.dtype:
        return self.logits.dtype

    def blocks(self, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        yield 0, self.logits if rows is None else self.logits[rows]

    def sample(self) -> Tensor:
        # Every other label serves as well, and the guess makes several tensors of this size.
        return self.logits if self.logits.shape[-1] < _ENOUGH_SAMPLES else self.logits[:, ::2]

    def present(self) -> Tensor:
        return self.processes.sum((self.logits > -math.inf).sum(-1, keepdim=True).to(wide(self.logits)))

"""Rows whose labels are in parts: on several processes, or computed block by block when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor


class LabelParts(Protocol):
    """Logits ``(B, n)`` of which this process holds or computes a part of the labels.

    Whoever solves for a row looks at its labels only through sums and maxima, each of one number per row.
    """

    @property
    def dtype(self) -> torch.dtype:
        """The precision to solve in, float32 or float64."""
        ...

    def sample(self) -> Tensor:
        """Logits ``(B, m)`` of own labels, all of them or some, for a first guess."""
        ...

    def present(self) -> Tensor:
        """How many labels of each row are above -inf in all parts and on all processes: ``(B, 1)`` float64."""
        ...

    def blocks(self, rows: Tensor | None) -> Iterator[Tensor]:
        """Own logits ``(rows, labels)`` of all rows or some, a block of labels at a time, for reading only."""
        ...

    def add_up(self, sums: Tensor) -> Tensor:
        """The sum over the processes, the same on each of them."""
        ...

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over the processes."""
        ...

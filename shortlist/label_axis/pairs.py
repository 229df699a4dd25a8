"""Pairs of a row and a label, in the order of the labels: what a pass over blocks of labels looks up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor


@dataclass
class PairsByLabel:
    """The present and the unknown labels of all rows. Each pair occurs once; pairs are sorted by label."""

    rows: Tensor  # (m,): row numbers, with all leading dimensions flattened
    labels: Tensor  # (m,), ascending
    values: Tensor  # (m,), floating: 1 (or a soft target) for present labels, negative for unknown ones

    def select(self, which: Tensor | slice) -> PairsByLabel:
        """The pairs of a mask ``(m,)`` or of a slice."""
        return PairsByLabel(self.rows[which], self.labels[which], self.values[which])

    @cached_property
    def present(self) -> Tensor:
        """Which labels are present: ``(m,)`` bool."""
        return self.values > 0

    @cached_property
    def _host_labels(self) -> np.ndarray:
        return self.labels.cpu().numpy()

    def between(self, start: int, stop: int) -> slice:
        """The pairs with labels in [start, stop)."""
        first, last = np.searchsorted(self._host_labels, (start, stop))
        return slice(int(first), int(last))

    def in_block(self, start: int, width: int) -> tuple[slice, Tensor]:
        """The pairs in the block of ``width`` labels from ``start`` on, and their indices in the flattened block."""
        chosen = self.between(start, start + width)
        return chosen, self.rows[chosen] * width + (self.labels[chosen] - start)

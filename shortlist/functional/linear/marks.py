"""What a target says of single labels, in the order of the labels: for losses that meet them block by block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.observed import check_rows
from shortlist.functional.sharded.shards import replicated
from shortlist.target_entries import refuse_ambiguous
from shortlist.targets import TargetForm, stored_entries


@dataclass
class MarkedLabels:
    """The present and the unknown labels of all rows, each pair of a row and a label once, sorted by label."""

    rows: Tensor  # (m,): numbers of the rows, all leading dimensions taken together
    labels: Tensor  # (m,), ascending
    values: Tensor  # (m,), floating: 1 (or a soft target) for present, negative for unknown

    def only(self, which: Tensor) -> MarkedLabels:
        """Some of them, by a mask ``(m,)``."""
        return MarkedLabels(self.rows[which], self.labels[which], self.values[which])

    @cached_property
    def present(self) -> Tensor:
        """Which of them are present: ``(m,)`` bool."""
        return self.values > 0

    @cached_property
    def _host_labels(self) -> np.ndarray:
        """A copy that can be looked at once for all blocks."""
        return self.labels.cpu().numpy()

    def between(self, start: int, stop: int) -> slice:
        """Those with labels in [start, stop)."""
        first, last = np.searchsorted(self._host_labels, (start, stop))
        return slice(int(first), int(last))

    def places(self, start: int, width: int) -> tuple[slice, Tensor]:
        """Those in a block of so many labels from ``start`` on, and their places in it, flattened."""
        at = self.between(start, start + width)
        return at, self.rows[at] * width + (self.labels[at] - start)


def marked_labels(like: Tensor, target: Tensor) -> MarkedLabels:
    """Read ``target``, in any form, for logits shaped like ``like``, of which only shape and dtype are looked at."""
    target = replicated(target, "target")
    form = check_rows(like, target)
    refuse_ambiguous(target, like.shape[-1], row_dims=like.ndim - 1)  # each pair once, on every device
    if target.requires_grad:
        raise ValueError("`target` must not require a gradient for LinearLogits, which knows its marked labels only.")
    num_rows, n = math.prod(like.shape[:-1]), like.shape[-1]
    if form is TargetForm.MULTI_HOT:
        labels, rows = target.reshape(num_rows, n).t().nonzero(as_tuple=True)
        values = target.reshape(num_rows, n)[rows, labels].to(like.dtype)
        return MarkedLabels(rows, labels, values)
    if form is TargetForm.SPARSE:
        rows, labels, stored = stored_entries(target)
        kept = stored != 0
        rows, labels, values = rows[kept], labels[kept], stored[kept].to(like.dtype)
    else:
        table = target.reshape(num_rows, 1 if form is TargetForm.CLASS_INDICES else target.shape[-1])
        rows, slots = (table >= 0).nonzero(as_tuple=True)
        labels = table[rows, slots]
        values = torch.ones_like(labels, dtype=like.dtype)
    # Two stable sorts, because one by label * rows + row can overflow.
    order = rows.argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]
    return MarkedLabels(rows[order], labels[order], values[order])

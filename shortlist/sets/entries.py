"""The few entries of a block of scores that are inside, found in one pass over the block and then handled alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Entries(NamedTuple):
    """Entries of a ``(rows, n)`` block, each at most once.

    Attributes:
        rows, labels: ``(count,)`` int64.
        values: ``(count,)``, the scores there.
    """

    rows: Tensor
    labels: Tensor
    values: Tensor

    def where(self, mask: Tensor) -> Entries:
        """Those for which the ``(count,)`` mask is true."""
        return Entries(self.rows[mask], self.labels[mask], self.values[mask])


def entries_of(mask: Tensor, values: Tensor) -> Entries:
    """The entries of ``values`` for which a mask of the same shape is true, row by row.

    Example:
        >>> values = torch.tensor([[0.2, 0.8], [0.7, 0.3]])
        >>> entries_of(values > 0.5, values).labels
        tensor([1, 0])
    """
    # numpy finds the true entries of a mask many times faster than torch where they are few.
    return _at(torch.from_numpy(np.flatnonzero(mask.numpy())), values)


def entries_reaching(values: Tensor, floor: Tensor) -> Entries:
    """The entries that are at least ``floor``, one number or one per label; never those of -inf.

    Example:
        >>> entries_reaching(torch.tensor([[0.2, 0.8], [0.7, 0.3]]), torch.tensor([0.1, 0.8])).rows
        tensor([0, 0, 1])
    """
    array, bound = values.numpy(), floor.to(values.dtype).numpy()
    found = entries_of(torch.from_numpy(array >= bound), values)
    return found.where(found.values > -torch.inf) if (bound == -np.inf).any() else found


def top_entries(values: Tensor, k: int) -> Entries:
    """The k largest entries of each row, equal ones by ascending label; never those of -inf.

    Example:
        >>> top_entries(torch.tensor([[0.1, 0.5, 0.5, 0.5]]), 2).labels
        tensor([1, 2])
    """
    rows, n = values.shape
    largest = values.topk(min(k + 1, n), dim=-1)
    places = torch.arange(rows)[:, None] * n + largest.indices[:, :k]
    if k < n:
        # Which of those that tie for the last place `topk` took is not defined.
        tied = (largest.values[:, k - 1] == largest.values[:, k]).nonzero()
        if len(tied):
            places[tied[:, 0]] = tied * n + first_labels(values[tied[:, 0]], k).nonzero()[:, 1].reshape(-1, k)
    found = _at(places.flatten(), values)
    return found.where(found.values > -torch.inf)


def first_labels(values: Tensor, k: int) -> Tensor:
    """Mask of the k best labels of each row, k at least 1; equal scores by ascending label."""
    last = values.topk(k, dim=-1).values[..., -1:]
    above, equal = values > last, values == last
    # Of those that tie for the last place, as many as are wanted still; which ones `topk` took is not defined.
    return above | (equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True)))


def either(first: Entries, second: Entries, num_labels: int) -> Entries:
    """The entries of both, each once."""
    keys = first.rows * num_labels + first.labels
    fresh = second.where(~torch.isin(second.rows * num_labels + second.labels, keys))
    return Entries(*(torch.cat(pair) for pair in zip(first, fresh, strict=True)))


def _at(places: Tensor, values: Tensor) -> Entries:
    rows = places.div(values.shape[-1], rounding_mode="floor")
    return Entries(rows, places - rows * values.shape[-1], values.reshape(-1)[places])

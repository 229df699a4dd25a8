"""The true labels of rows as set rules read them: compressed rows, as many numbers as there are labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.targets import to_pairs


@dataclass(frozen=True, eq=False)
class RowLabels:
    """Labels of each row, ascending, one row after the other.

    Attributes:
        rows: ``(m,)`` int64, the row of each label, ascending.
        labels: ``(m,)`` int64.
        counts: ``(rows,)`` int64, how many labels each row has.

    Example:
        >>> found = RowLabels.of(torch.tensor([[2, 0], [1, -1]]), 2, 3)
        >>> found[1:2].labels, found[1:2].rows
        (tensor([1]), tensor([0]))
    """

    rows: Tensor
    labels: Tensor
    counts: Tensor

    @classmethod
    def of(cls, labels: Tensor, num_rows: int, num_labels: int | None) -> RowLabels:
        """Read and check labels in any form of ``shortlist.targets``; none may be unknown."""
        try:
            rows, found = to_pairs(labels.cpu(), num_labels or 0)
        except ValueError as error:
            raise ValueError(str(error).replace("`target`", "`labels`")) from None
        if labels.shape[0] != num_rows:
            raise ValueError(f"`labels` must have one row per row of scores, {num_rows}; got {labels.shape[0]}.")
        return cls(rows, found, torch.bincount(rows, minlength=num_rows))

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.counts)

    def __getitem__(self, which: slice) -> RowLabels:
        """Some rows in a row, counted from 0."""
        start, stop, _ = which.indices(len(self))
        first, last = torch.searchsorted(self.rows, torch.tensor([start, stop])).tolist()
        return RowLabels(self.rows[first:last] - start, self.labels[first:last], self.counts[start:stop])

    def at(self, values: Tensor) -> Tensor:
        """The values of the labels in a table ``(rows, n)``, ``(m,)``."""
        return values[self.rows, self.labels]

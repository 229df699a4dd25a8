"""Label sets as runs of neighbours on a circle: what a trigonometric polynomial has to separate."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.targets import to_sparse


class Runs(NamedTuple):
    """Maximal runs of active labels on the circle, by row; a full row has none, for it has neither end.

    ``first`` and ``last`` are labels; a run that passes from n - 1 to 0 has ``last < first``.
    """

    num_rows: int
    rows: Tensor
    first: Tensor
    last: Tensor

    def counts(self) -> Tensor:
        """How many runs each row has, ``(rows,)``."""
        return torch.bincount(self.rows, minlength=self.num_rows)


def sign_changes(target: Tensor, num_labels: int, *, cyclic: bool = True) -> Tensor:
    r"""How often the labels, read in order, pass from absent to present or back.

    .. math:: \#\{i : y_i \ne y_{i+1}\}

    A set of ``k`` labels has at most ``2k``. The signs of a trigonometric polynomial of degree ``k`` at ``n`` points
    are those with at most ``2k`` cyclic changes and no others: so what :func:`dft_logits` can answer is decided here.

    Args:
        target: label sets, one per row, in any form of :mod:`shortlist.targets` without unknown labels. The values are
            checked; index lists and sparse ones take time by the labels that they hold, whatever n is.
        num_labels: n.
        cyclic: whether label 0 follows label n - 1.

    Returns:
        ``(rows,)`` int64.

    Example:
        >>> sign_changes(torch.tensor([[0, 1, 4], [2, -1, -1]]), 5)
        tensor([2, 2])
        >>> sign_changes(torch.tensor([[0, 1, 4], [2, -1, -1]]), 5, cyclic=False)
        tensor([2, 2])
        >>> sign_changes(torch.tensor([0, 4]), 5, cyclic=False)
        tensor([1, 1])

    References:
        Gantmakher, Krein, "Oscillation Matrices and Kernels", 1961, on sign changes and minors.
    """
    num_rows, rows, labels = active_labels(target, num_labels)
    joined = _joined(rows, labels)
    if cyclic:
        wraps = _wraps(num_rows, rows, labels, num_labels)
        return 2 * _count(rows, ~joined & ~((labels == 0) & wraps[rows]), num_rows)
    left, right = ~joined & (labels > 0), ~_next(joined) & (labels < num_labels - 1)
    return _count(rows, left, num_rows) + _count(rows, right, num_rows)


def active_labels(target: Tensor, num_labels: int) -> tuple[int, Tensor, Tensor]:
    """How many rows there are, and row and label of every active label, sorted; the values are checked."""
    sparse = to_sparse(target, num_labels, dtype=torch.bool)
    rows, labels = sparse.indices()
    return sparse.shape[0], rows, labels


def active_runs(num_rows: int, rows: Tensor, labels: Tensor, num_labels: int) -> Runs:
    """The runs of what `active_labels` returns."""
    joined, wraps = _joined(rows, labels), _wraps(num_rows, rows, labels, num_labels)
    starts = ~joined & ~((labels == 0) & wraps[rows])
    ends = ~_next(joined) & ~((labels == num_labels - 1) & wraps[rows])
    rows, first, last = rows[starts], labels[starts], labels[ends]
    counts = torch.bincount(rows, minlength=num_rows)
    offset = counts.cumsum(0) - counts
    # Where a run passes label 0, the end that comes first belongs to the start that comes last.
    place = torch.arange(len(rows), device=rows.device) - offset[rows]
    partner = offset[rows] + (place + wraps[rows].long()) % counts[rows]
    return Runs(num_rows, rows, first, last[partner])


def _joined(rows: Tensor, labels: Tensor) -> Tensor:
    """Whether the label before is active too, not counting n - 1 before 0."""
    joined = torch.zeros_like(rows, dtype=torch.bool)
    joined[1:] = (rows[1:] == rows[:-1]) & (labels[1:] == labels[:-1] + 1)
    return joined


def _next(joined: Tensor) -> Tensor:
    """Whether the label after is active too."""
    return torch.cat([joined[1:], joined.new_zeros(min(1, len(joined)))])


def _wraps(num_rows: int, rows: Tensor, labels: Tensor, num_labels: int) -> Tensor:
    """Whether a row has both label 0 and label n - 1."""
    return (_count(rows, labels == 0, num_rows) > 0) & (_count(rows, labels == num_labels - 1, num_rows) > 0)


def _count(rows: Tensor, which: Tensor, num_rows: int) -> Tensor:
    return torch.bincount(rows[which], minlength=num_rows)

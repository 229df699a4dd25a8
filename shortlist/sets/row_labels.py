"""The true labels of rows, as set rules read them."""

from __future__ import annotations

from torch import Tensor

from shortlist.labels import Labels, list_labels
from shortlist.targets import to_class_indices


def read_sets(labels: Tensor, num_rows: int, num_labels: int | None, *, rows_of: str = "row of scores") -> Labels:
    """Read and check the true labels of each row, in any form of ``shortlist.targets``; none may be unknown.

    Example:
        >>> found = read_sets(torch.tensor([[2, 0], [1, -1]]), 2, 3)
        >>> found[1:2].labels, found[1:2].rows
        (tensor([1]), tensor([0]))
    """
    found = list_labels(labels.cpu(), num_labels or 0, name="labels")
    found.refuse_unknown("a true label")
    _check_rows(labels, num_rows, rows_of)
    return found


def read_classes(labels: Tensor, num_rows: int, num_labels: int | None) -> Tensor:
    """Read and check the one true class of each row."""
    classes = to_class_indices(labels.cpu(), num_labels or 0, name="labels")
    _check_rows(labels, num_rows, "row of scores")
    return classes


def _check_rows(labels: Tensor, num_rows: int, rows_of: str) -> None:
    if len(labels) != num_rows:
        raise ValueError(f"`labels` must have one row per {rows_of}, {num_rows}; got {len(labels)}.")

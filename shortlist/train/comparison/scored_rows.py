"""The scores and the known labels of rows that a comparison looks at."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.data import Dataset
from shortlist.data.target_rows import label_pairs, sparse_targets
from shortlist.targets import to_class_indices
from shortlist.train.inputs import is_one_class


def probabilities(logits: Tensor, link: str) -> Tensor:
    """Apply the link, as the set rules do."""
    return logits.softmax(-1) if link == "softmax" else logits.sigmoid()


def positive_pairs(rows: Dataset) -> tuple[Tensor, Tensor]:
    """Return row and label of every known positive."""
    at, labels, present = label_pairs(rows.true_targets, rows.num_labels)
    return at[present], labels[present]


def unknown_pairs(rows: Dataset) -> tuple[Tensor, Tensor]:
    """Return row and label of every unknown label."""
    at, labels, present = label_pairs(rows.true_targets, rows.num_labels)
    return at[~present], labels[~present]


def true_labels(rows: Dataset) -> Tensor | None:
    """Return classes or a sparse multi-hot, as rules read them, without unknown labels; None if no label is true."""
    at, labels = positive_pairs(rows)
    if not len(at):
        return None
    if is_one_class(rows):
        return to_class_indices(rows.true_targets, rows.num_labels)
    return sparse_targets(at, labels, len(rows), rows.num_labels)


def missed_share(hit: Tensor, at: Tensor, num_rows: int) -> float:
    """Return the fraction of a row's true labels that is missing, averaged over rows with labels."""
    true = torch.bincount(at, minlength=num_rows).double()
    found = torch.bincount(at, hit.double(), minlength=num_rows)
    return float(1 - (found[true > 0] / true[true > 0]).mean())

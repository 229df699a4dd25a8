"""Procedures that need exactly one class per row."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.targets import TargetForm, target_form


def all_classes(dataset: Dataset, procedure: str) -> np.ndarray:
    """The class of each row; TypeError, in the name of ``procedure``, for sets of labels."""
    form = target_form(dataset.targets, dataset.num_labels)
    if form is not TargetForm.CLASS_INDICES:
        raise TypeError(f"`{procedure}` needs one class per row, int64 with 1 dimension; the targets are {form.value}.")
    return dataset.targets.numpy()


def training_classes(dataset: Dataset, procedure: str) -> tuple[Tensor, np.ndarray]:
    """The rows of the part ``train``, and their classes."""
    classes = all_classes(dataset, procedure)
    rows = dataset.part_rows("train")
    return rows, classes[rows.numpy()]

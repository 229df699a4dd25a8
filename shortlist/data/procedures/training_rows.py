"""What several procedures need: the classes of rows, ranks within a class, and exact shares."""

from __future__ import annotations

import math
from fractions import Fraction

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


def rank_within(classes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The rank of each row by key among the rows of its class."""
    by_class = np.lexsort((keys, classes))
    counts = np.bincount(classes)
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(classes), dtype=np.int64)
    rank[by_class] = np.arange(len(classes)) - starts[classes[by_class]]
    return rank


def exact_share(share: float, count: int) -> int:
    """``share * count`` rounded up, with the share read as the decimal number that it is written as."""
    return math.ceil(Fraction(str(share)) * int(count))

"""What about the data limits all figures: too few rows, labels that cannot be learned."""

from __future__ import annotations

from shortlist.data import Dataset
from shortlist.data.formats.table_columns import several_labels
from shortlist.formatting import format_count

# With this many test rows, the 95% interval of an error of 10% reaches 11 and 6 points to either side.
_FEW_ROWS, _ENOUGH_ROWS = 30, 100


def data_cautions(dataset: Dataset) -> list[str]:
    """Return what about the data limits all figures, a sentence each.

    Args:
        dataset: with parts train and test.

    Example:
        >>> import torch
        >>> from shortlist.data import Features, Groups
        >>> split = Groups.of(["train", "train", "test"])
        >>> data_cautions(Dataset(Features(torch.zeros(3, 1)), torch.tensor([0, 1, 0]), ("a", "b"), split=split))[0]
        'Only 1 test row: one row more or less is 100 percent. Give 100 or more for figures that can be trusted.'
    """
    found, rows = [], len(dataset.part_rows("test"))
    if 0 < rows < _FEW_ROWS:
        step = f"one row more or less is {100 / rows:.3g} percent"
        count = format_count(rows, "test row")
        found.append(f"Only {count}: {step}. Give {_ENOUGH_ROWS} or more for figures that can be trusted.")
    counts = dataset.label_counts()
    once, used = int((counts == 1).sum()), int((counts > 0).sum())
    if once > used / 2:
        found.append(
            f"{once:,} of {used:,} labels occur in one row only, so they cannot be both learned and tested: "
            "is this the right column of labels?"
        )
    tested = dataset.label_counts("test") > 0
    unlearned = int((tested & (dataset.label_counts("train") == 0)).sum())
    if unlearned:
        found.append(
            f"{format_count(unlearned, 'label')} of test rows never occur in training rows and must be missed."
        )
    separator = several_labels(dataset.label_names)
    if separator is not None:
        found.append(f"Some labels look like several, separated by {separator!r}: `labels` reads them as sets.")
    return found

"""What a user should know before trusting figures: too few rows or seeds, labels that cannot be learned, odd sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shortlist.comparison_document import ComparisonDocument
from shortlist.data import Dataset
from shortlist.data.formats.table_columns import several_labels
from shortlist.formatting import format_count
from shortlist.train.comparison.intervals import AVERAGE_SIZE

# With this many test rows, the 95% interval of an error of 10% reaches 11 and 6 points to either side.
_FEW_ROWS, _ENOUGH_ROWS = 30, 100
_FEW_SEEDS = 3
# Sizes that differ by less are not worth a sentence.
_SIZE_GAP = 0.05


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


def result_cautions(document: ComparisonDocument) -> list[str]:
    """Return what limits the results of a comparison, a sentence each."""
    found = []
    seeds = {len(candidate.runs) for candidate in document.candidates.values()}
    if max(seeds) < _FEW_SEEDS and len(document.candidates) > 1:
        found.append(f"{format_count(max(seeds), 'seed')} can hardly tell candidates apart: use --seeds 5.")
    improving = [
        name
        for name, candidate in document.candidates.items()
        if any(still_improving(run.history, run.monitor) for run in candidate.runs)
    ]
    if improving:
        found.append(f"Scores of {', '.join(improving)} still improved at the last epoch: use more --epochs.")
    for name, candidate in document.candidates.items():
        interval = candidate.intervals.get(AVERAGE_SIZE)
        size = None if interval is None else interval.mean
        if size is not None and abs(size - document.k) > _SIZE_GAP * document.k:
            found.append(size_caution(name, size, document.k))
    return found


def size_caution(name: str, size: float, k: float) -> str:
    """Return the sentence about sets that are larger or smaller on test rows than on validation rows."""
    return (
        f"{name} answers test rows with {size:.3g} labels on average, not {k:g}: its rule was fitted on validation "
        "rows, and test rows differ from them."
    )


def still_improving(history: Sequence[Mapping[str, float | None]], monitor: str | None) -> bool:
    """Return whether the last of several epochs was the best one by far enough to expect more of another.

    Example:
        >>> still_improving([{"recall": 0.1}, {"recall": 0.2}, {"recall": 0.3}], "recall")
        True
        >>> still_improving([{"recall": 0.1}, {"recall": 0.3}, {"recall": 0.3}], "recall")
        False
    """
    scores = [epoch.get(monitor or "") for epoch in history]
    known = [score for score in scores if score is not None and math.isfinite(score)]
    if len(known) < 2 or len(known) < len(scores):
        return False
    before = max(known[:-1])
    return known[-1] > before + 0.01 * abs(before)

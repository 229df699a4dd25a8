"""Statistics of a dataset: rows, labels, their frequencies, groups, unknown labels and duplicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.summary.duplicates import Duplicates, find_duplicates
from shortlist.data.summary.statistics import (
    Changed,
    DatasetSummary,
    EqualRows,
    GroupStructure,
    Names,
    Part,
    Shots,
    Training,
    Unknown,
)
from shortlist.data.summary.tally import Tally
from shortlist.data.target_rows import label_pairs
from shortlist.targets import target_form

_MAX_NAMES = 10
_TAILS = (0.5, 0.8, 0.9)
# Few below 20, medium to 100, many above.
_SHOTS = (("few", 0, 19), ("medium", 20, 100), ("many", 101, None))


def summarise(
    dataset: Dataset, *, duplicates: bool = True, progress: Callable[[int, int], object] | None = None
) -> DatasetSummary:
    """Summarize a dataset, in memory and time linear in its labels (except for sorting).

    Args:
        dataset: from any reader.
        duplicates: look for rows with identical inputs, which reads all inputs once.
        progress: for that, called with the number of rows done and of all rows to read.

    Returns:
        The statistics, finite even for datasets without rows or labels. Shares of nothing are 0.

    Raises:
        InputError: if an input cannot be read while looking for duplicates; names the file.

    Example:
        >>> from shortlist.data import Dataset, Features
        >>> summary = summarise(Dataset(Features(torch.eye(4)), torch.tensor([0, 1, 0, 0]), ("oak", "elm", "ash")))
        >>> summary.rows_per_label, summary.never_seen.first, round(summary.gini, 3)
        (Tally(values=(0, 1, 3), times=(1, 1, 1)), ('ash',), 0.5)
        >>> summary.training.imbalance
        3.0

    References:
        Garcin, "Set-valued classification", 2023, section 3.2 (the Lorenz curve of species) and chapter 4 (labels with
        few, medium and many training examples).
    """
    rows, labels = len(dataset), dataset.num_labels
    present = _Entries.of(dataset, dataset.targets, present=True)
    unknown = _Entries.of(dataset, dataset.targets, present=False)
    counts = np.bincount(present.labels, minlength=labels)
    row_sizes = np.bincount(present.rows, minlength=rows)
    sets = _label_set_words(present, rows, labels)
    split = dataset.split
    part_counts = {} if split is None else {name: _part_counts(present, split, name, labels) for name in split.names}
    tally = Tally.of(counts)
    seen = np.flatnonzero(counts)
    rarest = seen[np.argsort(counts[seen], kind="stable")]
    commonest = seen[np.argsort(-counts[seen], kind="stable")]
    shape = getattr(dataset.inputs, "shape", None)
    return DatasetSummary(
        name=dataset.name,
        rows=rows,
        labels=labels,
        inputs=dataset.inputs.kind,
        input_shape=None if shape is None else tuple(int(size) for size in shape),
        target_form=target_form(dataset.targets, labels).value,
        parts=_parts(split, part_counts),
        rows_without_part=0 if split is None else int((split.index < 0).sum()),
        labels_per_row=Tally.of(row_sizes),
        density=len(present.rows) / (rows * labels) if rows and labels else 0.0,
        rows_without_labels=int((row_sizes == 0).sum()),
        label_sets=len(np.unique(sets)),
        rows_per_label=tally,
        most_frequent=_with_counts(dataset.label_names, counts, commonest[:_MAX_NAMES]),
        least_frequent=_with_counts(dataset.label_names, counts, rarest[:_MAX_NAMES]),
        never_seen=_names(dataset, counts == 0),
        only_in_test=_names(dataset, (counts > 0) & (part_counts.get("test", -1) == counts)),
        lorenz=tally.lorenz(),
        gini=tally.gini(),
        tails=tuple((share, tally.tail_share(share) if tally.total else 0.0) for share in _TAILS),
        half=tally.fewest_for_half(),
        training=_training(dataset, counts if split is None else part_counts.get("train")),
        label_groups=tuple(_label_group(name, g, present) for name, g in dataset.label_groups.items()),
        row_groups=tuple(_row_group(name, g, split) for name, g in dataset.row_groups.items()),
        unknown=_unknown(unknown, rows, labels),
        changed=_changed(dataset, present),
        duplicates=_equal_rows(find_duplicates(dataset.inputs, progress=progress), split, sets) if duplicates else None,
    )


@dataclass(frozen=True, eq=False)
class _Entries:
    """Pairs of row and label, in the order of the rows; a dataset has each pair once."""

    rows: np.ndarray
    labels: np.ndarray
    keys: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, targets: Any, *, present: bool) -> _Entries:
        size = max(1, dataset.num_labels)
        pairs = label_pairs(targets, dataset.num_labels)
        wanted = pairs.present if present else ~pairs.present
        rows, labels = pairs.rows[wanted].numpy(), pairs.labels[wanted].numpy()
        return cls(rows, labels, rows * size + labels)


def _label_set_words(present: _Entries, rows: int, num_labels: int) -> np.ndarray:
    """A 64-bit hash of each row's set of labels: the sum of random words of its labels, modulo 2^64.

    Two different sets have the same hash with probability 2^-64.
    """
    words = Draws(0, "label sets").raw(num_labels)
    sums = np.zeros(len(present.labels) + 1, dtype=np.uint64)
    # Running sums wrap around, and so do their differences, so these are exact.
    np.cumsum(words[present.labels], out=sums[1:])
    starts = np.searchsorted(present.rows, np.arange(rows + 1))
    return sums[starts[1:]] - sums[starts[:-1]]


def _part_counts(present: _Entries, split: Groups, name: str, num_labels: int) -> np.ndarray:
    """The number of rows of a part with each label."""
    inside = split.index.numpy() == split.names.index(name)
    return np.bincount(present.labels[inside[present.rows]], minlength=num_labels)


def _parts(split: Groups | None, part_counts: dict[str, np.ndarray]) -> tuple[Part, ...]:
    if split is None:
        return ()
    return tuple(
        Part(name, rows, int(part_counts[name].sum()) / rows if rows else 0.0, int((part_counts[name] > 0).sum()))
        for name, rows in zip(split.names, split.counts().tolist(), strict=True)
    )


def _training(dataset: Dataset, counts: np.ndarray | None) -> Training | None:
    if counts is None:
        return None
    shots = []
    for name, low, high in _SHOTS:
        inside = (counts >= low) if high is None else (counts >= low) & (counts <= high)
        shots.append(Shots(name, low, high, int(inside.sum()), int(counts[inside].sum())))
    some = counts[counts > 0]
    imbalance = int(some.max()) / int(some.min()) if len(some) else None
    return Training(len(dataset.part_rows("train")), tuple(shots), imbalance, _names(dataset, counts == 0))


def _names(dataset: Dataset, selected: np.ndarray) -> Names:
    found = np.flatnonzero(selected)
    return Names(len(found), tuple(dataset.label_names[label] for label in found[:_MAX_NAMES].tolist()))


def _with_counts(names: tuple[str, ...], counts: np.ndarray, members: np.ndarray) -> tuple[tuple[str, int], ...]:
    return tuple((names[member], int(counts[member])) for member in members.tolist())


def _label_group(name: str, groups: Groups, present: _Entries) -> GroupStructure:
    group = groups.index.numpy()[present.labels]
    size = max(1, len(groups.names))
    # A row counts once for a group, however many of the group's labels it has.
    pairs = np.unique((present.rows * size + group)[group >= 0])
    rows = np.bincount(pairs % size, minlength=len(groups.names))
    return _structure(name, groups, rows=Tally.of(rows[groups.counts().numpy() > 0]))


def _row_group(name: str, groups: Groups, split: Groups | None) -> GroupStructure:
    if split is None:
        return _structure(name, groups)
    size = max(1, len(split.names))
    group, part = groups.index.numpy(), split.index.numpy()
    pairs = np.unique((group * size + part)[(group >= 0) & (part >= 0)])
    across = int((np.bincount(pairs // size, minlength=len(groups.names)) > 1).sum())
    return _structure(name, groups, across_parts=across)


def _structure(name: str, groups: Groups, **more: Any) -> GroupStructure:
    counts = groups.counts().numpy()
    order = np.argsort(-counts, kind="stable")
    filled = order[counts[order] > 0]
    without = int((groups.index < 0).sum())
    largest = _with_counts(groups.names, counts, filled[:_MAX_NAMES])
    return GroupStructure(name, len(filled), without, Tally.of(counts[filled]), largest, **more)


def _unknown(unknown: _Entries, rows: int, labels: int) -> Unknown:
    entries = len(unknown.rows)
    return Unknown(entries, entries / (rows * labels) if entries else 0.0, len(np.unique(unknown.rows)))


def _changed(dataset: Dataset, present: _Entries) -> Changed | None:
    if dataset.clean_targets is None:
        return None
    clean = _Entries.of(dataset, dataset.clean_targets, present=True)
    added = np.setdiff1d(present.keys, clean.keys, assume_unique=True)
    removed = np.setdiff1d(clean.keys, present.keys, assume_unique=True)
    rows = np.unique(np.concatenate([added, removed]) // max(1, dataset.num_labels))
    return Changed(len(rows), len(added), len(removed))


def _equal_rows(found: Duplicates, split: Groups | None, sets: np.ndarray) -> EqualRows:
    rows, group = found.rows.numpy(), found.groups().numpy()
    first = tuple(tuple(found[number][:_MAX_NAMES].tolist()) for number in range(min(len(found), _MAX_NAMES)))
    different = len(np.unique(group[sets[rows] != sets[rows[found.starts[:-1].numpy()]][group]]))
    across = leaked = 0
    if split is not None:
        part = split.index.numpy()[rows]
        size = max(1, len(split.names))
        pairs = np.unique((group * size + part)[part >= 0])
        across = int((np.bincount(pairs // size) > 1).sum())
        train = part == split.names.index("train") if "train" in split.names else np.zeros(len(part), dtype=bool)
        trained = np.bincount(group[train], minlength=len(found)) > 0
        leaked = int((trained[group] & ~train & (part >= 0)).sum())
    return EqualRows(len(found), len(rows), across, leaked, different, first)

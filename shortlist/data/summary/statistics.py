"""Statistics of a dataset: rows, labels, their frequencies, groups, unknown labels and duplicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.summary.duplicates import Duplicates, find_duplicates
from shortlist.data.summary.tally import Tally
from shortlist.data.target_rows import label_pairs
from shortlist.targets import target_form

_FORMAT = "shortlist dataset summary"
_VERSION = 1
_MAX_NAMES = 10
_TAILS = (0.5, 0.8, 0.9)
# Few below 20, medium to 100, many above.
_SHOTS = (("few", 0, 19), ("medium", 20, 100), ("many", 101, None))


@dataclass(frozen=True)
class Part:
    """One part of the split.

    Attributes:
        name: such as ``train``.
        rows: its number of rows.
        labels_per_row: the mean number of labels of these rows.
        labels_seen: how many labels occur in them.
    """

    name: str
    rows: int
    labels_per_row: float
    labels_seen: int


@dataclass(frozen=True)
class Names:
    """Some of the labels.

    Attributes:
        count: how many there are.
        first: the names of the first ten, in the order of the labels.
    """

    count: int
    first: tuple[str, ...]


@dataclass(frozen=True)
class Shots:
    """Labels whose number of training examples lies in a range.

    Attributes:
        name: ``few``, ``medium`` or ``many``.
        low: the smallest number of examples.
        high: the largest; None for no limit.
        labels: how many labels are in the range.
        entries: the sum of their examples.
    """

    name: str
    low: int
    high: int | None
    labels: int
    entries: int


@dataclass(frozen=True)
class Training:
    """Labels in the training part, or in all rows if there is no split.

    Attributes:
        rows: the number of training rows.
        shots: labels with few (below 20), medium (up to 100) and many examples.
        imbalance: the largest over the smallest nonzero number of examples of a label; None if no label has any.
        never: labels without examples.
    """

    rows: int
    shots: tuple[Shots, ...]
    imbalance: float | None
    never: Names


@dataclass(frozen=True)
class GroupStructure:
    """One partition of labels or rows.

    Attributes:
        name: of the partition, such as ``genus``.
        groups: how many groups have members.
        without: how many labels or rows are in no group.
        sizes: the sizes of the nonempty groups.
        largest: names and sizes of the ten largest groups.
        rows: for groups of labels, the number of rows with a label of the group; None for groups of rows.
        across_parts: for groups of rows, how many have rows in several parts of the split; None for groups of labels or
            without a split.
    """

    name: str
    groups: int
    without: int
    sizes: Tally
    largest: tuple[tuple[str, int], ...]
    rows: Tally | None = None
    across_parts: int | None = None


@dataclass(frozen=True)
class Unknown:
    """Labels that are marked unknown.

    Attributes:
        entries: how many pairs of row and label.
        share: their share of all pairs.
        rows: how many rows have any.
    """

    entries: int
    share: float
    rows: int


@dataclass(frozen=True)
class Changed:
    """How the labels differ from the clean ones.

    Attributes:
        rows: how many rows differ.
        added: labels that are present but were not.
        removed: labels that were present but are absent or unknown.
    """

    rows: int
    added: int
    removed: int


@dataclass(frozen=True)
class EqualRows:
    """Groups of two or more rows with identical inputs.

    Attributes:
        groups: how many groups.
        rows: how many rows they have together.
        across_parts: groups with rows in several parts of the split.
        leaked_rows: rows of other parts whose input is also in the training part.
        different_labels: groups whose rows have different labels.
        first: indices of the first ten rows of each of the first ten groups.
    """

    groups: int
    rows: int
    across_parts: int
    leaked_rows: int
    different_labels: int
    first: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class DatasetSummary:
    """Statistics of a dataset, computed by `summarise`.

    A label entry is a pair of a row and a label that is present in it.

    Attributes:
        name: of the dataset, for headings; may be empty.
        rows: the number of rows.
        labels: n, the number of labels.
        inputs: their kind, such as ``images`` or ``text``.
        input_shape: the shape of one input; None if inputs have no common shape.
        target_form: the form of the labels, such as ``class indices``; see :mod:`shortlist.targets`.
        parts: the parts of the split; empty without a split.
        rows_without_part: how many rows of a split dataset are in no part.
        labels_per_row: the number of labels of each row, as an exact tally.
        density: the mean share of the n labels that a row has.
        rows_without_labels: how many rows have no label.
        label_sets: how many different sets of labels occur.
        rows_per_label: the number of rows of each label, as an exact tally, including labels that never occur.
        most_frequent: names and row counts of the ten most frequent labels.
        least_frequent: the same for the ten rarest labels that occur.
        never_seen: labels that occur in no row.
        only_in_test: labels that occur in the part ``test`` and nowhere else.
        lorenz: corners of the Lorenz curve of ``rows_per_label``, at most 200: share of the labels, the rarest first,
            and share of the label entries that they hold.
        gini: the Gini coefficient of ``rows_per_label``, from 0 for equal frequencies to almost 1.
        tails: for the rarest 50, 80 and 90 percent of the labels, the share of the label entries that they hold.
        half: how many of the most frequent labels hold half of the label entries.
        training: the labels in the training part; None if there is a split without ``train``.
        label_groups: the partitions of the labels.
        row_groups: the partitions of the rows.
        unknown: labels that are marked unknown.
        changed: how the labels differ from the clean ones; None if there are no clean ones.
        duplicates: rows with identical inputs; None if they were not looked for.

    Example:
        >>> from shortlist.data import Dataset, Texts, summarise
        >>> summary = summarise(Dataset(Texts(["red", "red", "old"]), torch.tensor([0, 1, 0]), ("rose", "oak")))
        >>> summary.labels_per_row.mean, summary.most_frequent, summary.duplicates.different_labels
        (1.0, (('rose', 2), ('oak', 1)), 1)
    """

    name: str
    rows: int
    labels: int
    inputs: str
    input_shape: tuple[int, ...] | None
    target_form: str
    parts: tuple[Part, ...]
    rows_without_part: int
    labels_per_row: Tally
    density: float
    rows_without_labels: int
    label_sets: int
    rows_per_label: Tally
    most_frequent: tuple[tuple[str, int], ...]
    least_frequent: tuple[tuple[str, int], ...]
    never_seen: Names
    only_in_test: Names
    lorenz: tuple[tuple[float, float], ...]
    gini: float
    tails: tuple[tuple[float, float], ...]
    half: int
    training: Training | None
    label_groups: tuple[GroupStructure, ...]
    row_groups: tuple[GroupStructure, ...]
    unknown: Unknown
    changed: Changed | None
    duplicates: EqualRows | None

    def to_json(self) -> dict[str, Any]:
        """The statistics as plain values.

        Returns:
            Numbers, texts, lists and dicts under the names of the attributes, with ``format`` and ``version`` first; a
            tally also has its mean, median, minimum and maximum.

        Example:
            >>> from shortlist.data import Dataset, Texts, summarise
            >>> found = summarise(Dataset(Texts(["red"]), torch.tensor([0]), ("rose",))).to_json()
            >>> found["format"], found["rows_per_label"]["mean"]
            ('shortlist dataset summary', 1.0)
        """
        return {"format": _FORMAT, "version": _VERSION, **_plain(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, Tally):
        statistics = {name: getattr(value, name) for name in ("mean", "median", "minimum", "maximum")}
        return {**statistics, "values": list(value.values), "times": list(value.times)}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


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

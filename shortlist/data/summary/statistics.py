"""Statistics of a dataset as dataclasses, and as plain values for JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from shortlist.data.summary.tally import Tally

_FORMAT = "shortlist dataset summary"
_VERSION = 1


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

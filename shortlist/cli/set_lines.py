"""Sets of labels as text, a line for each row: JSON lines and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from shortlist.cli.short_numbers import short_numbers
from shortlist.sets import PredictionSets

SEPARATOR = ";"
# About this many labels are Python objects at a time, however large the sets of a block are.
_LABELS = 1 << 16
_QUOTED_END = "\r\n"


class SetRows(NamedTuple):
    """The sets of some rows, and what the rows are called.

    Attributes:
        key: ``"row"`` for numbers, ``"id"`` for names.
        rows: the numbers or names.
        sets: as many.
    """

    key: str
    rows: Sequence[int | str]
    sets: PredictionSets


class JsonLines:
    """An object per row.

    Args:
        names: of the labels, or None.
        ascii_only: whether other characters become codes, for whoever cannot show them.
    """

    def __init__(self, names: Sequence[str] | None, *, ascii_only: bool = False) -> None:
        self._encode = json.JSONEncoder(ensure_ascii=ascii_only).encode
        self._names = None if names is None else [self._encode(name) for name in names]

    def begin(self, rows: SetRows) -> str:
        """What stands before the first row."""
        return ""

    def lines(self, rows: SetRows) -> Iterator[str]:
        """The lines of some rows, several at a time."""
        for first, last in row_groups(rows.sets, _LABELS):
            bounds, labels, scores = _bounds_labels_scores(rows.sets, first, last, self._names)
            numbers = list(map(repr, scores))
            keys = map(str if rows.key == "row" else self._encode, rows.rows[first:last])
            front, comma = f'{{"{rows.key}": ', ", "
            yield "".join(
                f'{front}{key}, "labels": [{comma.join(labels[a:b])}], "scores": [{comma.join(numbers[a:b])}]}}\n'
                for key, a, b in zip(keys, bounds, bounds[1:], strict=False)
            )


class CsvLines:
    """A line per row, with semicolons between labels.

    Args:
        names: of the labels, or None.
    """

    def __init__(self, names: Sequence[str] | None) -> None:
        for name in names or ():
            if SEPARATOR in name:
                raise ValueError(
                    f"names must not hold {SEPARATOR!r}, which separates them in CSV; {name!r} does (.jsonl can)."
                )
        self._names = names

    def begin(self, rows: SetRows) -> str:
        """The header."""
        return f"{rows.key},size,labels,scores\n"

    def lines(self, rows: SetRows) -> Iterator[str]:
        """The lines of some rows, several at a time."""
        for first, last in row_groups(rows.sets, _LABELS):
            bounds, labels, scores = _bounds_labels_scores(rows.sets, first, last, self._names)
            numbers = list(map(repr, scores))
            text = _Lines()
            # The writer quotes the characters of its line ends: readers take a bare "\r" for one, too.
            csv.writer(text, lineterminator=_QUOTED_END).writerows(
                (row, b - a, SEPARATOR.join(labels[a:b]), SEPARATOR.join(numbers[a:b]))
                for row, a, b in zip(rows.rows[first:last], bounds, bounds[1:], strict=False)
            )
            yield "".join(text)


class _Lines(list[str]):
    r"""The lines of a CSV writer, which end in a plain ``"\n"``."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_QUOTED_END) + "\n")


def row_groups(sets: PredictionSets, most: int) -> Iterator[tuple[int, int]]:
    """Rows from and to, as many as have no more labels than ``most`` together, and at least one.

    Example:
        >>> sets = PredictionSets.from_mask(torch.tensor([[True, True], [False, True], [True, True]]))
        >>> list(row_groups(sets, 3))
        [(0, 2), (2, 3)]
    """
    first, rows = 0, len(sets)
    while first < rows:
        bound = sets.indptr[first] + most
        last = max(first + 1, min(int(torch.searchsorted(sets.indptr, bound, right=True)) - 1, rows))
        yield first, last
        first = last


def _bounds_labels_scores(
    sets: PredictionSets, first: int, last: int, names: Sequence[str] | None
) -> tuple[list[int], list[str], list[float]]:
    """Where the labels of each row begin and the last ones end, the labels of all rows, and their scores."""
    begin, end = int(sets.indptr[first]), int(sets.indptr[last])
    labels = sets.labels[begin:end].tolist()
    shown = list(map(str, labels)) if names is None else [str(names[label]) for label in labels]
    return (sets.indptr[first : last + 1] - begin).tolist(), shown, short_numbers(sets.scores[begin:end].numpy())

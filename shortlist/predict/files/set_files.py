"""Files of prediction sets that grow row by row: JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.predict.files.resumable_output import PartialOutput
from shortlist.sets import PredictionSets

FORMATS = ("jsonl", "parquet", "csv")
_SEPARATOR = ";"
# About this many labels are Python objects at a time, however large the sets of a block are.
_TEXT_LABELS = 1 << 16
_QUOTED_END = "\r\n"
# A row group ends after so many rows or labels: enough for fast columns, few enough to hold in memory.
_GROUP_ROWS, _GROUP_LABELS = 1 << 17, 1 << 20


class SetRows(NamedTuple):
    """The sets of consecutive rows.

    Attributes:
        key: ``"row"`` if rows have numbers, ``"id"`` if they have ids.
        rows: the numbers or ids.
        sets: as many.
    """

    key: str
    rows: Sequence[int | str]
    sets: PredictionSets


class TextLines(Protocol):
    """How sets are written as text."""

    def header(self, rows: SetRows) -> str:
        """Return what comes before the first row."""
        ...

    def lines(self, rows: SetRows) -> Iterator[str]:
        """Yield the lines of the rows, several at a time."""
        ...


class JsonLines:
    """An object per row.

    Args:
        names: of the labels, or None.
        ascii_only: whether to escape all other characters, for terminals that cannot show them.
    """

    def __init__(self, names: Sequence[str] | None, *, ascii_only: bool = False) -> None:
        self._encode = json.JSONEncoder(ensure_ascii=ascii_only).encode
        self._names = None if names is None else [self._encode(name) for name in names]

    def header(self, rows: SetRows) -> str:
        """There is none."""
        return ""

    def lines(self, rows: SetRows) -> Iterator[str]:
        """Yield the lines of the rows, several at a time."""
        for first, last in row_groups(rows.sets, _TEXT_LABELS):
            bounds, labels, scores = _cells(rows.sets, first, last, self._names)
            keys = map(str if rows.key == "row" else self._encode, rows.rows[first:last])
            front, comma = f'{{"{rows.key}": ', ", "
            ends = [f', "abstained": {flag}}}\n' for flag in _abstained(rows.sets, first, last)] or ["}\n"] * (
                last - first
            )
            yield "".join(
                f'{front}{key}, "labels": [{comma.join(labels[a:b])}], "scores": [{comma.join(scores[a:b])}]{end}'
                for key, a, b, end in zip(keys, bounds, bounds[1:], ends, strict=False)
            )


class CsvLines:
    """A line per row, with semicolons between labels.

    Args:
        names: of the labels, or None.

    Raises:
        InputError: if a name holds a semicolon.
    """

    def __init__(self, names: Sequence[str] | None) -> None:
        for name in names or ():
            if _SEPARATOR in name:
                raise InputError(
                    f"label names must not hold {_SEPARATOR!r}, which separates them in CSV; {name!r} does. "
                    "The format jsonl has no such limit."
                )
        self._names = names

    def header(self, rows: SetRows) -> str:
        """Return the names of the columns."""
        return f"{rows.key},size,labels,scores{'' if rows.sets.abstained is None else ',abstained'}\n"

    def lines(self, rows: SetRows) -> Iterator[str]:
        """Yield the lines of the rows, several at a time."""
        for first, last in row_groups(rows.sets, _TEXT_LABELS):
            bounds, labels, scores = _cells(rows.sets, first, last, self._names)
            text = _Lines()
            # The writer quotes the characters of its line ends: some readers end lines at a bare "\r", too.
            ends = [(flag,) for flag in _abstained(rows.sets, first, last)] or [()] * (last - first)
            csv.writer(text, lineterminator=_QUOTED_END).writerows(
                (row, b - a, _SEPARATOR.join(labels[a:b]), _SEPARATOR.join(scores[a:b]), *end)
                for row, a, b, end in zip(rows.rows[first:last], bounds, bounds[1:], ends, strict=False)
            )
            yield "".join(text)


class _Lines(list[str]):
    r"""The lines of a CSV writer, ended by a plain ``"\n"``."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_QUOTED_END) + "\n")


def text_lines(form: str, names: Sequence[str] | None, *, ascii_only: bool = False) -> TextLines:
    """Return how sets are written as JSON lines or CSV."""
    return CsvLines(names) if form == "csv" else JsonLines(names, ascii_only=ascii_only)


class SetWriter(Protocol):
    """How rows are appended to a partial output, and how it becomes the file."""

    @property
    def convert(self) -> Callable[[Path, Path], None] | None:
        """Makes the output of the file of rows; None if that is the output already."""

    def append(self, rows: SetRows, partial: PartialOutput) -> None:
        """Add rows."""


class _TextWriter:
    """Lines of text in UTF-8."""

    convert = None

    def __init__(self, lines: TextLines) -> None:
        self._lines = lines

    def append(self, rows: SetRows, partial: PartialOutput) -> None:
        if partial.finished.rows == 0:
            partial.append(self._lines.header(rows).encode())
        for text in self._lines.lines(rows):
            partial.append(text.encode())


class _ParquetWriter:
    """Record batches of Arrow's stream format, which a killed process leaves readable, made into one Parquet file.

    Columns are ``row`` or ``id``, and the lists ``labels`` (numbers, until the end) and ``scores``, best first; from
    rules that abstain also ``abstained``.
    """

    def __init__(self, names: Sequence[str] | None) -> None:
        self._arrow, self._parquet = require("pyarrow", extra="data"), require("pyarrow.parquet", extra="data")
        self._names = names
        self._schema: Any = None

    def append(self, rows: SetRows, partial: PartialOutput) -> None:
        if partial.finished.rows == 0:
            self._schema = self._new_schema(rows)
            partial.append(self._schema.serialize().to_pybytes())
        elif self._schema is None:
            with self._arrow.OSFile(str(partial.rows_file)) as file, self._arrow.ipc.open_stream(file) as stream:
                self._schema = stream.schema
        for first, last in row_groups(rows.sets, _GROUP_LABELS):
            partial.append(self._batch(rows.rows[first:last], rows.sets[first:last]))

    def _new_schema(self, rows: SetRows) -> Any:
        arrow = self._arrow
        dtype = arrow.float64() if rows.sets.scores.dtype == torch.float64 else arrow.float32()
        return arrow.schema(
            [
                (rows.key, arrow.int64() if rows.key == "row" else arrow.string()),
                ("labels", arrow.list_(arrow.int32())),
                ("scores", arrow.list_(dtype)),
                *([] if rows.sets.abstained is None else [("abstained", arrow.bool_())]),
            ]
        )

    def _batch(self, rows: Sequence[int | str], sets: PredictionSets) -> memoryview:
        arrow, schema = self._arrow, self._schema
        ends = arrow.array(sets.indptr.numpy().astype(np.int32))
        labels = arrow.array(sets.labels.numpy().astype(np.int32))
        scores = arrow.array(sets.scores.numpy()).cast(schema.field("scores").type.value_type)
        columns = [
            arrow.array(np.asarray(rows) if schema.names[0] == "row" else list(rows), schema.field(0).type),
            arrow.ListArray.from_arrays(ends, labels),
            arrow.ListArray.from_arrays(ends, scores),
            *([] if sets.abstained is None else [arrow.array(sets.abstained.numpy())]),
        ]
        return memoryview(arrow.record_batch(columns, names=schema.names).cast(schema).serialize())

    def convert(self, batches: Path, output: Path) -> None:
        """Make one Parquet file of the batches, with label names instead of numbers."""
        arrow = self._arrow
        names = None if self._names is None else arrow.array(self._names, arrow.string())
        with arrow.OSFile(str(batches)) as file, arrow.ipc.open_stream(file) as stream:
            schema = stream.schema
            if names is not None:
                schema = schema.set(1, arrow.field("labels", arrow.list_(arrow.string())))
            with self._parquet.ParquetWriter(output, schema) as writer:
                group, rows, labels = [], 0, 0
                for batch in stream:
                    group.append(batch if names is None else self._named(batch, names, schema))
                    rows, labels = rows + batch.num_rows, labels + len(batch.column("labels").values)
                    if rows >= _GROUP_ROWS or labels >= _GROUP_LABELS:
                        writer.write_table(arrow.Table.from_batches(group, schema), row_group_size=rows)
                        group, rows, labels = [], 0, 0
                if group:
                    writer.write_table(arrow.Table.from_batches(group, schema), row_group_size=rows)

    def _named(self, batch: Any, names: Any, schema: Any) -> Any:
        numbers = batch.column("labels")
        named = self._arrow.ListArray.from_arrays(numbers.offsets, names.take(numbers.values))
        return self._arrow.record_batch([batch.column(0), named, *batch.columns[2:]], schema=schema)


def set_writer(form: str, names: Sequence[str] | None) -> SetWriter:
    """Return the writer of a format of `FORMATS`.

    Raises:
        InputError: if the format cannot hold the names.
        MissingExtraError: if the package that writes it is missing.
    """
    return _ParquetWriter(names) if form == "parquet" else _TextWriter(text_lines(form, names))


def row_groups(sets: PredictionSets, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose sets hold at most ``most`` labels together, or of a single row.

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


def _cells(
    sets: PredictionSets, first: int, last: int, names: Sequence[str] | None
) -> tuple[list[int], list[str], list[str]]:
    """Return where each row begins and the last one ends, and the labels and scores of all rows as text."""
    begin, end = int(sets.indptr[first]), int(sets.indptr[last])
    labels = sets.labels[begin:end].tolist()
    shown = list(map(str, labels)) if names is None else [str(names[label]) for label in labels]
    scores = list(map(repr, shortest_decimals(sets.scores[begin:end].numpy())))
    return (sets.indptr[first : last + 1] - begin).tolist(), shown, scores


def _abstained(sets: PredictionSets, first: int, last: int) -> list[str]:
    """Whether there is no answer, for each row, as text; empty for sets of rules that always answer."""
    return [] if sets.abstained is None else [str(flag).lower() for flag in sets.abstained[first:last].tolist()]


# Up to here powers of ten are exact in float64, so one division gives the float nearest to a decimal number.
_POWERS = 10.0 ** np.arange(23)
_LEAST, _MOST, _DIGITS = 1e-13, 10.0, 9


def shortest_decimals(scores: np.ndarray) -> list[float]:
    """Return floats whose ``repr`` has the fewest digits that read back as the same score.

    Args:
        scores: one axis, float32 or float64.

    Example:
        >>> shortest_decimals(np.array([0.1, 1 / 3], dtype=np.float32))
        [0.1, 0.33333334]
    """
    if scores.dtype == np.float64:
        return scores.tolist()
    found = scores.astype(np.float64)
    size = np.abs(found)
    usual = (size >= _LEAST) & (size < _MOST)
    others = np.flatnonzero(~usual)
    # numpy finds the digits of any number, but slowly.
    found[others] = scores[others].astype(str).astype(np.float64)
    left = np.flatnonzero(usual)
    exact, exponents = found[left], -np.floor(np.log10(size[left])).astype(np.int64)
    for digits in range(_DIGITS, 0, -1):
        power = _POWERS[np.maximum(exponents + digits - 1, 0)]
        short = np.rint(exact * power) / power
        same = short.astype(np.float32) == scores[left]
        left, exact, exponents = left[same], exact[same], exponents[same]
        found[left] = short[same]
        if not len(left):
            break
    return found.tolist()

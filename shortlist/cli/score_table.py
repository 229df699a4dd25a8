"""Tables with a column of scores for each label, read in blocks of rows whose size does not grow with the labels."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.data.files.table_files import open_table
from shortlist.data.files.text_files import text_lines
from shortlist.data.groups import refuse_repeated
from shortlist.extras import require

TABLES = (".csv", ".tsv", ".parquet")


class TableBlock(NamedTuple):
    """Some rows of scores, what they are called, and where they stand in the file."""

    values: np.ndarray
    ids: list[str] | None
    place: Callable[[int], str]


@dataclass(frozen=True)
class ScoreTable:
    """A table that is not read yet.

    Args:
        path: of the file.
        columns: all of its columns.
        id_column: the one that names the rows, or None.
    """

    path: Path
    columns: tuple[str, ...]
    id_column: str | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns of scores."""
        return tuple(name for name in self.columns if name != self.id_column)

    def count(self) -> int:
        """How many rows there are; of text, by reading it."""
        if self.path.suffix == ".parquet":
            return require("pyarrow.parquet", extra="data").read_metadata(self.path).num_rows
        return sum(1 for _ in _csv_records(self.path)) - 1

    def blocks(self, start: int, step: int) -> Iterator[TableBlock]:
        """The rows from a number on, as many at a time; ValueError names the first cell that is no number."""
        if self.path.suffix == ".parquet":
            return self._parquet_blocks(start, step)
        return self._csv_blocks(start, step)

    def _csv_blocks(self, start: int, step: int) -> Iterator[TableBlock]:
        records = _csv_records(self.path)
        next(records)
        at_id = None if self.id_column is None else self.columns.index(self.id_column)
        numbers: list[int] = []
        ids: list[str] = []
        values = np.empty((step, len(self.labels)))
        for row, (line, cells) in enumerate(records):
            if row < start:
                continue
            values[len(numbers)] = self._parsed(line, cells, ids, at_id)
            numbers.append(line)
            if len(numbers) == step:
                yield self._csv_block(values, ids, numbers)
                values, numbers, ids = np.empty_like(values), [], []
        if numbers:
            yield self._csv_block(values[: len(numbers)], ids, numbers)

    def _parsed(self, line: int, cells: list[str], ids: list[str], at_id: int | None) -> list[float]:
        if len(cells) != len(self.columns):
            rule = f"must have {len(self.columns)} cells, as the header has"
            raise ValueError(f"`{self.path}` line {line}: {rule}; got {len(cells)}.")
        if at_id is not None:
            ids.append(cells.pop(at_id))
        try:
            # Python reads 1_000 as a number, nobody else does.
            if not any("_" in cell for cell in cells):
                return list(map(float, cells))
        except ValueError:
            pass
        raise self._no_number(f"`{self.path}` line {line}", self.labels, cells)

    def _csv_block(self, values: np.ndarray, ids: list[str], numbers: list[int]) -> TableBlock:
        named = None if self.id_column is None else ids
        return TableBlock(values, named, lambda row: f"`{self.path}` line {numbers[row]}")

    def _parquet_blocks(self, start: int, step: int) -> Iterator[TableBlock]:
        parquet, arrow = require("pyarrow.parquet", extra="data"), require("pyarrow", extra="data")
        first = 0
        try:
            # Without a buffer of its own the reader holds some pages of each column, not a whole row group.
            with parquet.ParquetFile(self.path, pre_buffer=False) as file:
                groups = list(range(file.num_row_groups))
                while groups and first + file.metadata.row_group(groups[0]).num_rows <= start:
                    first += file.metadata.row_group(groups.pop(0)).num_rows
                for batch in file.iter_batches(batch_size=step, row_groups=groups) if groups else ():
                    after = first + batch.num_rows
                    if after > start:
                        some = batch.slice(max(0, start - first))
                        yield self._parquet_block(some, after - some.num_rows)
                    first = after
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"`{self.path}` is damaged after row {first}: {_first_sentence(error)}.") from error

    def _parquet_block(self, batch: Any, first: int) -> TableBlock:
        place = lambda row: f"`{self.path}` row {first + row}"
        ids = None if self.id_column is None else [str(cell) for cell in batch.column(self.id_column).to_pylist()]
        columns = [self._column(batch.column(name), name, place) for name in self.labels]
        floats = {column.dtype for column in columns}
        dtype = np.float32 if floats == {np.dtype(np.float32)} else np.float64
        values = np.empty((batch.num_rows, len(columns)), dtype)
        for place_of_label, column in enumerate(columns):
            values[:, place_of_label] = column
        return TableBlock(values, ids, place)

    def _column(self, cells: Any, name: str, place: Callable[[int], str]) -> np.ndarray:
        types = require("pyarrow", extra="data").types
        if (types.is_floating(cells.type) or types.is_integer(cells.type)) and not cells.null_count:
            return cells.to_numpy(zero_copy_only=False)
        listed = cells.to_pylist()
        if all(_is_number(cell) for cell in listed):
            return np.array([float(cell) for cell in listed])
        row = next(row for row, cell in enumerate(listed) if not _is_number(cell))
        raise self._no_number(place(row), (name,), [listed[row]])

    def _no_number(self, place: str, columns: Sequence[str], cells: Sequence[Any]) -> ValueError:
        column, cell = next(pair for pair in zip(columns, cells, strict=True) if not _is_number(pair[1]))
        hint = f"; --id {column}, if it names the rows" if self.id_column is None else ""
        return ValueError(f"{place}: {column!r} must be a number; got {cell!r:.60}{hint}.")


def open_score_table(path: Path, id_column: str | None) -> ScoreTable:
    """Open a table; its header tells the names of the labels.

    Raises:
        ValueError: for a file that is no table, a column of ids that is not there, or no column of scores.
    """
    columns = open_table(path).columns if path.suffix == ".parquet" else _csv_header(path)
    if id_column is not None and id_column not in columns:
        raise ValueError(f"`{path}` has no column {id_column!r} for --id; it begins with {columns[0]!r}.")
    table = ScoreTable(path, columns, id_column)
    if not table.labels:
        raise ValueError(f"`{path}` must have a column for each label; it has none.")
    if "" in table.labels:
        at = columns.index("") + 1
        raise ValueError(f"`{path}` column {at} has no name; if it names the rows, say so by --id ''.")
    return table


def _csv_header(path: Path) -> tuple[str, ...]:
    _, header = next(_csv_records(path), (0, None))
    if header is None:
        raise ValueError(f"`{path}` is empty.")
    names = tuple(name.strip() for name in header)
    try:
        refuse_repeated([name for name in names if name], "columns")
    except ValueError as error:
        raise ValueError(f"`{path}`: {error}") from None
    return names


def _csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The line at which a row begins, from 1, and its cells, the header included; empty lines are skipped."""
    delimiter = "\t" if ".tsv" in path.suffixes[-2:] else ","
    reader = csv.reader((f"{line}\n" for _, line in text_lines(path)), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for cells in reader:
            if cells:
                yield begin, cells
            begin = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"`{path}` line {reader.line_num} is not CSV: {error}.") from error


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError, OverflowError):
        return False
    return "_" not in str(cell)


def _first_sentence(error: Exception) -> str:
    """The first sentence of another library's explanation."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line.split(". ")[0].rstrip(".")

"""Tables with a column of scores for each label (CSV, TSV, Parquet), read in blocks of rows of bounded size."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.data.files.table_files import open_table
from shortlist.data.files.text_files import text_lines
from shortlist.errors import InputError, reason
from shortlist.extras import require

TABLES = (".csv", ".tsv", ".parquet")


class TableBlock(NamedTuple):
    """Consecutive rows of scores, their ids, and a function that names a row's place in the file."""

    values: np.ndarray
    ids: list[str] | None
    location: Callable[[int], str]


@dataclass(frozen=True)
class ScoreTable:
    """A table that has not been read yet; made by `open_score_table`.

    Args:
        path: of the file.
        columns: all columns.
        id_column: the column that holds the ids of rows, or None.
    """

    path: Path
    columns: tuple[str, ...]
    id_column: str | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the score columns."""
        return tuple(name for name in self.columns if name != self.id_column)

    def count(self) -> int:
        """Return the number of rows; text files are read for that."""
        if self.path.suffix == ".parquet":
            return require("pyarrow.parquet", extra="data").read_metadata(self.path).num_rows
        return sum(1 for _ in _csv_records(self.path)) - 1

    def blocks(self, start: int, step: int) -> Iterator[TableBlock]:
        """Yield the rows from ``start`` on, ``step`` at a time; InputError names a cell that is not a number."""
        if self.path.suffix == ".parquet":
            return self._parquet_blocks(start, step)
        return self._csv_blocks(start, step)

    def _csv_blocks(self, start: int, step: int) -> Iterator[TableBlock]:
        records = _csv_records(self.path)
        next(records)
        id_index = None if self.id_column is None else self.columns.index(self.id_column)
        lines: list[int] = []
        ids: list[str] = []
        values = np.empty((step, len(self.labels)))
        for row, (line, cells) in enumerate(records):
            if row < start:
                continue
            values[len(lines)] = self._parsed(line, cells, ids, id_index)
            lines.append(line)
            if len(lines) == step:
                yield self._csv_block(values, ids, lines)
                values, lines, ids = np.empty_like(values), [], []
        if lines:
            yield self._csv_block(values[: len(lines)], ids, lines)

    def _parsed(self, line: int, cells: list[str], ids: list[str], id_index: int | None) -> list[float]:
        if len(cells) != len(self.columns):
            rule = f"must have {len(self.columns)} cells like the header"
            raise InputError(f"`{self.path}` line {line}: {rule}; got {len(cells)}.")
        if id_index is not None:
            ids.append(cells.pop(id_index))
        try:
            # Python alone reads 1_000 as a number.
            if not any("_" in cell for cell in cells):
                return list(map(float, cells))
        except ValueError:
            pass
        raise self._not_a_number(f"`{self.path}` line {line}", self.labels, cells)

    def _csv_block(self, values: np.ndarray, ids: list[str], lines: list[int]) -> TableBlock:
        return TableBlock(
            values, None if self.id_column is None else ids, lambda row: f"`{self.path}` line {lines[row]}"
        )

    def _parquet_blocks(self, start: int, step: int) -> Iterator[TableBlock]:
        parquet, arrow = require("pyarrow.parquet", extra="data"), require("pyarrow", extra="data")
        first = 0
        try:
            # Without its own buffer the reader holds a few pages of each column instead of a whole row group.
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
            raise InputError(f"`{self.path}` is damaged after row {first}: {reason(error)}.") from error

    def _parquet_block(self, batch: Any, first: int) -> TableBlock:
        location = lambda row: f"`{self.path}` row {first + row}"
        ids = None if self.id_column is None else [str(cell) for cell in batch.column(self.id_column).to_pylist()]
        columns = [self._column(batch.column(name), name, location) for name in self.labels]
        dtypes = {column.dtype for column in columns}
        dtype = np.float32 if dtypes == {np.dtype(np.float32)} else np.float64
        values = np.empty((batch.num_rows, len(columns)), dtype)
        for label, column in enumerate(columns):
            values[:, label] = column
        return TableBlock(values, ids, location)

    def _column(self, cells: Any, name: str, location: Callable[[int], str]) -> np.ndarray:
        types = require("pyarrow", extra="data").types
        if (types.is_floating(cells.type) or types.is_integer(cells.type)) and not cells.null_count:
            return cells.to_numpy(zero_copy_only=False)
        listed = cells.to_pylist()
        if all(_is_number(cell) for cell in listed):
            return np.array([float(cell) for cell in listed])
        row = next(row for row, cell in enumerate(listed) if not _is_number(cell))
        raise self._not_a_number(location(row), (name,), [listed[row]])

    def _not_a_number(self, location: str, columns: Sequence[str], cells: Sequence[Any]) -> InputError:
        column, cell = next(pair for pair in zip(columns, cells, strict=True) if not _is_number(pair[1]))
        hint = f" (if {column!r} holds the ids of rows, name it as the id column)" if self.id_column is None else ""
        return InputError(f"{location}: {column!r} must be a number; got {cell!r:.60}{hint}.")


def open_score_table(path: Path, id_column: str | None) -> ScoreTable:
    """Open a table; its header names the labels.

    Raises:
        InputError: if the file is not a table, or has no such id column or no column of scores.
    """
    columns = open_table(path).columns if path.suffix == ".parquet" else _csv_header(path)
    if id_column is not None and id_column not in columns:
        raise InputError(f"`{path}` has no column {id_column!r} of ids; its first column is {columns[0]!r}.")
    table = ScoreTable(path, columns, id_column)
    if not table.labels:
        raise InputError(f"`{path}` must have a column for each label; it has none.")
    if "" in table.labels:
        at = columns.index("") + 1
        raise InputError(f"`{path}` column {at} has no name; if it holds the ids of rows, name '' as the id column.")
    return table


def _csv_header(path: Path) -> tuple[str, ...]:
    _, header = next(_csv_records(path), (0, None))
    if header is None:
        raise InputError(f"`{path}` is empty.")
    names = tuple(name.strip() for name in header)
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise InputError(f"`{path}`: columns must have different names; {name!r} occurs twice.")
        seen.add(name)
    return names


def _csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line at which each row begins, from 1, and its cells, including the header; skip empty lines."""
    delimiter = "\t" if ".tsv" in path.suffixes[-2:] else ","
    reader = csv.reader((f"{line}\n" for _, line in text_lines(path)), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for cells in reader:
            if cells:
                yield begin, cells
            begin = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"`{path}` line {reader.line_num} is not CSV: {error}.") from error


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError, OverflowError):
        return False
    return "_" not in str(cell)

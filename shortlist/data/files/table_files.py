"""Tables in CSV, JSON and Parquet, read in blocks of rows, each block as columns."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.data.files.json_stream import json_records
from shortlist.data.files.text_files import detect_encoding, need_file, text_lines
from shortlist.data.groups import check_unique
from shortlist.errors import InputError, reason
from shortlist.extras import require
from shortlist.limits import advice, limit

BLOCK = 1024
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")

_KEY = "data"  # Under which some files have the list of records.
_DELIMITERS = (",", ";", "\t", "|")
_SNIFFED = 50  # Rows that show the delimiter.
_limit_lock = threading.Lock()


class Block(NamedTuple):
    """Some rows: the cells of each column, as a list or as a numeric numpy array, and the number of each row."""

    columns: dict[str, Any]
    numbers: Sequence[int]
    unit: str  # "`flowers.csv` line", which a number completes
    decimal: str = "."

    def location(self, row: int) -> str:
        """The file and the row, for an error."""
        return f"{self.unit} {self.numbers[row]}"


@dataclass(frozen=True)
class TableFile:
    """A table that is not read yet: its columns, and a function that gives some of them in blocks.

    ``decimal`` is the mark in its numbers, beside the point, ``assumed`` says what was detected about the file, and
    ``delimiter`` is that of a text file with a line of names.
    """

    path: Path
    columns: tuple[str, ...]
    blocks: Callable[[Sequence[str]], Iterator[Block]]
    decimal: str = "."
    assumed: tuple[str, ...] = ()
    delimiter: str | None = None


def open_table(path: str | Path, *, encoding: str | None = None, delimiter: str | None = None) -> TableFile:
    """Open a table; its ending, before ``.gz`` or ``.xz``, says what it is.

    Args:
        path: ``.csv`` and ``.tsv`` (the first line names the columns), ``.jsonl`` and ``.ndjson``, ``.json`` with a
            list of records, also under the key ``data`` (all keys of records are columns, so the file is read twice),
            or ``.parquet``. Text may be compressed: ``.csv.gz``, ``.jsonl.xz``.
        encoding: of text, one with the line ends of ASCII; a byte order mark is skipped. None for UTF-8, or Windows'
            Latin alphabet if the file is not UTF-8.
        delimiter: between the cells of ``.csv`` and ``.tsv``; None for that of the first lines. If it is a semicolon,
            numbers may have decimal commas.

    Raises:
        InputError: names the file, and the line where it stops being a table.
    """
    path = need_file(path)
    endings = [ending.lower() for ending in path.suffixes]
    packed = bool(endings) and endings[-1] in (".gz", ".xz")
    ending = (endings[-2:-1] or [""])[0] if packed else (endings or [""])[-1]
    if ending == ".parquet" and not packed:
        return _open_parquet(path)
    if ending not in ENDINGS[:-1]:
        raise InputError(f"`{path}` must end in one of {', '.join(ENDINGS)} (text also followed by .gz or .xz).")
    detected = detect_encoding(path) if encoding is None else encoding
    if ending == ".json":
        table = _json_table(path, "record", lambda: enumerate(_listed_records(path, detected), 1))
    elif "json" in ending:
        table = _json_table(path, "line", lambda: _json_lines(path, detected))
    else:
        table = _open_csv(path, ending, delimiter, detected)
    odd = [] if encoding is not None or detected == "utf-8" else [f"encoding {detected}, because it is not UTF-8"]
    return replace(table, assumed=(*table.assumed, *odd))


def _open_csv(path: Path, ending: str, delimiter: str | None, encoding: str) -> TableFile:
    usual = "," if ending == ".csv" else "\t"
    found = delimiter or detect_delimiter(path, usual, encoding)
    if len(found) != 1:
        raise InputError(f"`delimiter` must be one character; got {found!r}.")
    assumed = () if delimiter or found == usual else (f"delimiter {found!r}",)
    return replace(_csv_table(path, found, encoding), assumed=assumed, decimal="," if found == ";" else ".")


def detect_delimiter(path: Path, usual: str, encoding: str) -> str:
    """The character that divides the first rows into the same number of cells, two or more; else the usual one."""
    for delimiter in dict.fromkeys((usual, *_DELIMITERS)):
        try:
            widths = [len(cells) for _, cells in islice(csv_records(path, delimiter, encoding=encoding), _SNIFFED)]
        except InputError:
            continue
        if widths and widths[0] > 1 and set(widths) == {widths[0]}:
            return delimiter
    return usual


def csv_records(path: Path, delimiter: str = ",", *, encoding: str = "utf-8") -> Iterator[tuple[int, list[str]]]:
    """The line at which a row begins, from 1, and its cells, the header included; empty lines are skipped."""
    lines = (line for _, line in text_lines(path, encoding=encoding, keep_ends=True))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    numbered = _numbered(reader)
    while True:
        try:
            with _field_limit(limit("field")):
                records = list(islice(numbered, BLOCK))
        except csv.Error as error:
            if "field larger than field limit" in str(error):
                where = f"`{path}` line {reader.line_num}"
                raise InputError(f"{where} has too long a cell: {advice('field')} (characters).") from error
            raise InputError(f"`{path}` line {reader.line_num} is not CSV: {error}.") from error
        if not records:
            return
        yield from records


def cell_list(column: Any) -> list[Any]:
    """The cells of a column as Python objects."""
    return column.tolist() if isinstance(column, np.ndarray) else column


def _numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    begin = 1
    for cells in reader:
        if cells:
            yield begin, cells
        begin = reader.line_num + 1


@contextmanager
def _field_limit(most: int) -> Iterator[None]:
    """Change csv's limit of 128 kB per cell, which is global to the process, and restore it."""
    with _limit_lock:
        before = csv.field_size_limit(min(most, 2**31 - 1))  # More does not fit a C long everywhere.
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _csv_table(path: Path, delimiter: str, encoding: str) -> TableFile:
    _, header = next(csv_records(path, delimiter, encoding=encoding), (0, None))
    if header is None:
        raise InputError(f"`{path}` is empty.")
    names = tuple(name.strip() for name in header)
    check_unique([name for name in names if name], "columns", where=f"`{path}`", error=InputError)

    def blocks(columns: Sequence[str]) -> Iterator[Block]:
        records = islice(csv_records(path, delimiter, encoding=encoding), 1, None)
        positions = {name: position for position, name in enumerate(names)}
        wanted = [(column, positions[column]) for column in columns]
        for chunk in _chunks(records):
            for line, cells in chunk:
                if len(cells) != len(names):
                    rule = f"must have {len(names)} cells, like the header"
                    raise InputError(f"`{path}` line {line}: {rule}; got {len(cells)}.")
            values = {column: [cells[position] for _, cells in chunk] for column, position in wanted}
            yield Block(values, [line for line, _ in chunk], f"`{path}` line", "," if delimiter == ";" else ".")

    return TableFile(path, names, blocks, delimiter=delimiter)


def _listed_records(path: Path, encoding: str) -> Iterator[dict[str, Any]]:
    return json_records(path, key=_KEY, noun="record", encoding=encoding)


def _json_lines(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in text_lines(path, encoding=encoding):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except RecursionError as error:
            raise InputError(f"`{path}` line {number} is not JSON: it is nested too deeply.") from error
        except ValueError as error:
            problem = error.msg if isinstance(error, json.JSONDecodeError) else reason(error)
            raise InputError(f"`{path}` line {number} is not JSON: {problem}.") from error
        if not isinstance(record, dict):
            raise InputError(f"`{path}` line {number}: must be an object with keys; got {type(record).__name__}.")
        yield number, record


def _json_table(path: Path, unit: str, records: Callable[[], Iterator[tuple[int, dict[str, Any]]]]) -> TableFile:
    names: dict[str, None] = {}  # A key may be missing from any record, the first included.
    empty = True
    for _, record in records():
        names |= dict.fromkeys(record)
        empty = False
    if empty:
        raise InputError(f"`{path}` is empty.")

    def blocks(columns: Sequence[str]) -> Iterator[Block]:
        for chunk in _chunks(records()):
            values = {column: [record.get(column) for _, record in chunk] for column in columns}
            yield Block(values, [number for number, _ in chunk], f"`{path}` {unit}")

    return TableFile(path, tuple(names), blocks)


def _open_parquet(path: Path) -> TableFile:
    parquet = require("pyarrow.parquet", extra="data")
    arrow = require("pyarrow", extra="data")
    damaged = (arrow.ArrowException, OSError, UnicodeDecodeError)
    try:
        names = tuple(parquet.read_schema(path).names)
    except damaged as error:
        raise InputError(f"`{path}` is not a Parquet file: {reason(error)}.") from error
    check_unique(names, "columns", where=f"`{path}`", error=InputError)

    def blocks(columns: Sequence[str]) -> Iterator[Block]:
        start = 0
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=BLOCK, columns=list(columns)):
                    values = {column: _cells(batch.column(column), arrow) for column in columns}
                    yield Block(values, range(start, start + batch.num_rows), f"`{path}` row")
                    start += batch.num_rows
        except damaged as error:
            raise InputError(f"`{path}` is damaged after row {start}: {reason(error)}.") from error

    return TableFile(path, names, blocks)


def _cells(column: Any, arrow: Any) -> Any:
    """A column of Parquet; numbers, and lists of equally many numbers per row, stay numpy arrays."""
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if column.null_count:
        return column.to_pylist()
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return column.to_numpy(zero_copy_only=False)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        flat, sizes = column.flatten(), require("pyarrow.compute", extra="data").list_value_length(column)
        numeric = types.is_integer(kind.value_type) or types.is_floating(kind.value_type)
        if numeric and not flat.null_count and len(sizes) and len(sizes.unique()) == 1:
            return flat.to_numpy(zero_copy_only=False).reshape(len(column), sizes[0].as_py())
    return column.to_pylist()


def _chunks(records: Iterable[Any]) -> Iterator[list[Any]]:
    records = iter(records)
    while chunk := list(islice(records, BLOCK)):
        yield chunk

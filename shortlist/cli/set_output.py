"""Files of sets, as they grow: text by lines, Parquet by batches that become one file at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from shortlist.cli.partial_output import PartialOutput
from shortlist.cli.set_columns import SetColumns, write_parquet
from shortlist.cli.set_lines import CsvLines, JsonLines, SetRows


class SetOutput(Protocol):
    """How rows are appended to a partial output, and what is made of it in the end."""

    @property
    def convert(self) -> Callable[[Path, Path], None] | None:
        """Makes the output of the file of rows; None if that is the output."""

    def append(self, rows: SetRows, partial: PartialOutput) -> None:
        """Add some rows."""


class TextOutput:
    """Lines of text in UTF-8."""

    convert = None

    def __init__(self, lines: JsonLines | CsvLines) -> None:
        self._lines = lines

    def append(self, rows: SetRows, partial: PartialOutput) -> None:
        """Add the lines of some rows."""
        if partial.finished.rows == 0:
            partial.append(self._lines.begin(rows).encode())
        for text in self._lines.lines(rows):
            partial.append(text.encode())


class ParquetOutput:
    """Columns; a file of Parquet cannot grow once it is closed, nor be read before."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self._names = names
        self._columns: SetColumns | None = None

    def append(self, rows: SetRows, partial: PartialOutput) -> None:
        """Add a batch of rows."""
        begun = partial.finished.rows > 0
        if self._columns is None:
            self._columns = SetColumns(partial.rows_file if begun else None)
        if not begun:
            partial.append(self._columns.begin(rows))
        for batch in self._columns.batches(rows):
            partial.append(batch)

    def convert(self, batches: Path, output: Path) -> None:
        """Make one file of all batches."""
        write_parquet(batches, output, self._names)


def set_output(form: str, names: Sequence[str] | None) -> SetOutput:
    """The output of a form: ``"jsonl"``, ``"csv"`` or ``"parquet"``.

    Raises:
        ValueError: for names of labels that the form cannot hold.
        ImportError: if what writes it is missing.
    """
    if form == "parquet":
        SetColumns()  # Says before the work what is missing.
        return ParquetOutput(names)
    return TextOutput(CsvLines(names) if form == "csv" else JsonLines(names))

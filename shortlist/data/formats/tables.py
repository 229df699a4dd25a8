"""Plain tables: CSV, TSV, JSON and Parquet with one row per example, read column by column."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, part_name
from shortlist.data.files.table_files import Block, TableFile, cell_list, open_table
from shortlist.data.files.vocabularies import LabelSets, NameCodes
from shortlist.data.formats.table_columns import (
    ColumnRoles,
    column_names,
    infer_columns,
    is_number,
    label_names_in,
    likely_columns,
    several_labels,
    with_points,
)
from shortlist.data.inputs import Features, Inputs, Texts
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import ChoiceError, InputError


def read_table(
    path: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    separator: str | None = None,
    split: str | None = None,
    groups: Sequence[str] | None = None,
    skip_unlabeled: bool = False,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> Dataset:
    r"""Read a table of texts or numbers with labels.

    The file's ending says what it is: ``.csv``, ``.tsv`` (quoted as in CSV), ``.jsonl`` or ``.ndjson``, ``.json`` with
    a list of records, all optionally followed by ``.gz`` or ``.xz``, and ``.parquet`` (needs the extra ``data``). What
    no argument says is inferred from the names of the columns and the first rows; `table_roles` tells what. A row has
    one class (``label``) or a set of labels (``labels``); classes that look like several labels, such as ``red;round``,
    are refused unless an argument says what they are. The table is read into memory, numbers as float32. Errors count
    lines of text, and records of a list, from 1 and rows of Parquet from 0, like the dataset.

    Args:
        path: the file.
        text: a column, or several, which are joined by a space; None for ``text``, or columns of texts.
        features: columns of numbers, or a pattern like ``x_*`` for all columns that begin so; in JSON and Parquet a
            column may hold lists of equally many numbers per row. None without texts for all columns of numbers with no
            other use.
        label: the column with the class of each row. None without ``labels`` for ``labels`` or ``label``, whichever
            exists, a similar name, or the only column whose values repeat.
        labels: one column with a set of labels: a list, also in JSON or as Python writes it, or names between
            separators, where an empty cell is an empty set. Or several columns, or a pattern like ``tag_*``, that hold
            1 for present, 0 for absent, -1 for unknown.
        label_names: the labels in their order, all others are refused; None for those that occur, sorted (by value if
            all are integers). Not for labels in columns, which have the columns' names.
        separator: between the names in a cell of ``labels``; None for ``;``, ``|`` or ``,``, as the first rows show.
        split: the column with the part of each row; None for ``split``, or a column that names parts. Names such as
            ``Training``, ``validation``, ``dev`` and ``TEST`` are read as ``train``, ``val`` and ``test``.
        groups: columns that become ``row_groups``; None for ``source`` if it exists.
        skip_unlabeled: whether rows whose cell of ``label``, or of the one column ``labels``, is empty are left out.
        encoding, delimiter: of text files, as in `shortlist.data.files.table_files.open_table`.

    Returns:
        The dataset; class indices for ``label``, sparse targets for ``labels``.

    Raises:
        InputError: names the file and the line (or row) of what is missing or wrong.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from shortlist.data.formats.tables import read_table
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.csv").write_text("text,labels,split\nred rose,rose;red,train\nold,,test\n")
        ...     flowers = read_table(Path(folder, "a.csv"))
        >>> flowers[0]
        Example(input='red rose', labels=('red', 'rose'), unknown=(), split='train')
    """
    table = open_table(path, encoding=encoding, delimiter=delimiter)
    roles = _roles(
        table,
        label_names,
        text=text,
        features=features,
        label=label,
        labels=labels,
        separator=separator,
        split=split,
        groups=groups,
    )
    if skip_unlabeled:
        table = replace(table, blocks=_labeled_blocks(table, roles.target.columns))
    readers = [roles.inputs, roles.target, roles.parts, *roles.groups.values()]
    for block in table.blocks(list(dict.fromkeys(name for reader in readers for name in reader.columns))):
        for reader in readers:
            reader.add(block)
    return Dataset(
        roles.inputs.finish(),
        *roles.target.finish(),
        row_groups={name: column.codes.groups() for name, column in roles.groups.items()},
        split=roles.parts.codes.groups(first=PARTS) if roles.parts.columns else None,
        name=table.path.name.split(".")[0],
    )


def table_roles(
    path: str | Path, *, encoding: str | None = None, delimiter: str | None = None, **options: Any
) -> ColumnRoles:
    """What `read_table` takes the columns for, with the same options; only the first rows are read.

    Raises:
        InputError: as `read_table`.
    """
    table, names = open_table(path, encoding=encoding, delimiter=delimiter), options.pop("label_names", None)
    options.pop("skip_unlabeled", None)
    _roles(table, names, **options)
    return infer_columns(table, **options)


def named_columns(table: TableFile, names: str | Sequence[str], *, purpose: str) -> list[str]:
    """The columns with these names, each of which must exist; a single name may end in ``*``.

    Raises:
        InputError: names the file, the missing column and its ``purpose``, such as "`features`".
    """
    found, known = [], set(table.columns)
    for name in [names] if isinstance(names, str) else names:
        prefix = name[:-1] if name.endswith("*") and isinstance(names, str) else None
        if prefix is None:
            matching = [name] if name in known else []
        else:
            matching = [column for column in table.columns if column.startswith(prefix)]
        if not matching:
            option = purpose.strip("`")
            raise ChoiceError(
                f"`{table.path}`: has no column {name!r} for {purpose}; it has {column_names(table)}.",
                [{option: column} for column in likely_columns(table, option)],
            )
        found += matching
    return found


def _labeled_blocks(table: TableFile, label: Sequence[str]) -> Callable[[Sequence[str]], Iterator[Block]]:
    """The blocks of a table without the rows whose cell of labels is empty; they must hold the column of labels."""
    if len(label) != 1:
        raise InputError(f"`{table.path}`: `skip_unlabeled` needs one column of labels; got {len(label)}.")

    def blocks(columns: Sequence[str]) -> Iterator[Block]:
        for block in table.blocks(columns):
            cells = [cell if isinstance(cell, list) else [cell] for cell in cell_list(block.columns[label[0]])]
            kept = [row for row, names in enumerate(cells) if any(_name(name) is not None for name in names)]
            values = {
                name: column[kept] if isinstance(column, np.ndarray) else [column[row] for row in kept]
                for name, column in block.columns.items()
            }
            yield block._replace(columns=values, numbers=[block.numbers[row] for row in kept])

    return blocks


class TextColumns:
    """Texts of one or more columns, joined by a space."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._texts: list[str] = []

    def add(self, block: Block) -> None:
        """Read the rows of a block."""
        cells = [cell_list(block.columns[name]) for name in self.columns]
        for row, values in enumerate(zip(*cells, strict=True)):
            for name, value in zip(self.columns, values, strict=True):
                if value is not None and not isinstance(value, str):
                    raise InputError(f"{block.location(row)}: {name!r} must be text; got {value!r:.60}.")
            self._texts.append(" ".join(value for value in values if value))

    def finish(self) -> Inputs:
        """The inputs of all rows."""
        return Texts(self._texts)


class NumberColumns:
    """Numbers of one or more columns, float32.

    Args:
        columns: their names.
        guessed: whether the columns were inferred, so that an error should offer to leave one out.
    """

    def __init__(self, columns: Sequence[str], *, guessed: bool = False) -> None:
        self.columns, self._guessed = columns, guessed
        self._parts: list[np.ndarray] = []

    def add(self, block: Block) -> None:
        """Read the rows of a block."""
        part = np.concatenate([self._numbers(block, name) for name in self.columns], axis=1)
        if self._parts and part.shape[1] != self._parts[0].shape[1]:
            width = self._parts[0].shape[1]
            raise InputError(
                f"{block.location(0)}: must have {width} numbers, like the rows before; got {part.shape[1]}."
            )
        self._parts.append(part)

    def _numbers(self, block: Block, name: str) -> np.ndarray:
        try:
            return _numbers(block, name)
        except InputError as error:
            others = [column for column in self.columns if column != name]
            if not self._guessed or not others:
                raise
            raise ChoiceError(str(error), [{"features": others}]) from error

    def finish(self) -> Inputs:
        """The inputs of all rows."""
        return Features(np.concatenate(self._parts) if self._parts else np.zeros((0, len(self.columns)), np.float32))


class _ClassColumn:
    """The class of each row, by name; with ``asks``, names that look like several labels are refused."""

    def __init__(self, column: str, names: Sequence[str] | None, *, path: Path, asks: bool) -> None:
        self.columns, self._codes, self._path, self._asks = [column], NameCodes(names), path, asks

    def add(self, block: Block) -> None:
        for row, cell in enumerate(cell_list(block.columns[self.columns[0]])):
            name = _name(cell)
            if name is None or not self._codes.allows(name):
                where = f"{block.location(row)}: {self.columns[0]!r}"
                if name is None:
                    choices = [{"skip_unlabeled": True}, *([{"labels": self.columns[0]}] if self._asks else [])]
                    raise ChoiceError(
                        f"{where} must name a class; got an empty cell: such rows can be left out.",
                        choices,
                    )
                raise InputError(f"{where} must be one of `label_names`; got {name!r}.")
            self._codes.add(name)

    def finish(self) -> tuple[Tensor, tuple[str, ...]]:
        codes, names = self._codes.finish()
        separator = several_labels(names) if self._asks else None
        if separator is not None:
            column, listed = self.columns[0], separator == "["
            example = next(name for name in names if listed or separator in name)
            between = "as a list" if listed else f"with {separator!r} between them"
            raise ChoiceError(
                f"`{self._path}`: {column!r} seems to hold several labels per row, {between}, such as {example!r:.60}: "
                f"`labels` must name it if they are sets, or `label` if each is one class.",
                [{"labels": column} | ({} if listed else {"separator": separator}), {"label": column}],
            )
        return torch.from_numpy(codes), names


class _LabelListColumn:
    """The set of labels of each row: a list of names, or names between separators."""

    def __init__(self, column: str, names: Sequence[str] | None, separator: str) -> None:
        self.columns, self._separator, self._sets = [column], separator, LabelSets(names)

    def add(self, block: Block) -> None:
        for row, cell in enumerate(cell_list(block.columns[self.columns[0]])):
            names = [name for name in map(_name, label_names_in(cell, self._separator)) if name is not None]
            for name in names:
                if not self._sets.allows(name):
                    rule = "must hold only `label_names`"
                    raise InputError(f"{block.location(row)}: {self.columns[0]!r} {rule}; got {name!r}.")
            self._sets.add(names)

    def finish(self) -> tuple[Tensor, tuple[str, ...]]:
        return self._sets.finish()


class _LabelColumns:
    """Present and unknown labels of 0/1 columns, stored as pairs of row and label."""

    def __init__(self, columns: Sequence[str], names: Sequence[str]) -> None:
        self.columns, self._names, self._count = columns, tuple(names), 0
        self._rows, self._labels, self._present = array("q"), array("q"), array("b")

    def add(self, block: Block) -> None:
        values = np.concatenate([_numbers(block, name) for name in self.columns], axis=1)
        wrong = np.argwhere(~np.isin(values, (0, 1, -1)))
        if values.shape[1] != len(self.columns) or len(wrong):
            row, column = wrong[0] if len(wrong) else (0, 0)
            name, got = self.columns[min(column, len(self.columns) - 1)], values[row, column]
            raise InputError(f"{block.location(row)}: {name!r} must be 1, 0 or -1 (unknown); got {got:g}.")
        rows, labels = values.nonzero()
        self._rows.frombytes((rows + self._count).astype(np.int64).tobytes())
        self._labels.frombytes(labels.astype(np.int64).tobytes())
        self._present.frombytes((values[rows, labels] > 0).astype(np.int8).tobytes())
        self._count += len(values)

    def finish(self) -> tuple[Tensor, tuple[str, ...]]:
        rows, labels = np.array(self._rows, dtype=np.int64), np.array(self._labels, dtype=np.int64)
        present = np.array(self._present, dtype=bool)
        return sparse_targets(rows, labels, self._count, len(self._names), present=present), self._names


class _NameColumn:
    """A column of names, optionally renamed; or no column."""

    def __init__(self, columns: Sequence[str], *, renamed: Callable[[str], str] = str) -> None:
        self.columns, self.codes, self._renamed = columns, NameCodes(), renamed

    def add(self, block: Block) -> None:
        for column in self.columns:
            for cell in cell_list(block.columns[column]):
                name = _name(cell)
                self.codes.add(name if name is None else self._renamed(name))


class _Roles(NamedTuple):
    """What the columns of a table are for."""

    inputs: TextColumns | NumberColumns
    target: _ClassColumn | _LabelListColumn | _LabelColumns
    parts: _NameColumn
    groups: dict[str, _NameColumn]


def _roles(table: TableFile, label_names: Sequence[str] | None, **given: Any) -> _Roles:
    """The readers of the columns; ``given`` are the arguments of `infer_columns`."""
    if given.get("text") is not None and given.get("features") is not None:
        raise InputError("`text` and `features` must not both be given: a row has one kind of input.")
    if given.get("label") is not None and given.get("labels") is not None:
        raise InputError("`label` and `labels` must not both be given: a row has one class or a set of labels.")
    if given.get("separator") == "":
        raise InputError("`separator` must not be empty.")
    inferred = infer_columns(table, **given)
    roles, guessed = inferred.options, given.get("features") is None
    target = _target_reader(
        table, roles["label"], roles["labels"], label_names, roles["separator"] or ";", inferred.asks
    )
    parts = named_columns(table, [] if roles["split"] is None else [roles["split"]], purpose="`split`")
    groups = {name: _NameColumn([name]) for name in named_columns(table, roles["groups"], purpose="`groups`")}
    if roles["text"] is not None:
        inputs = TextColumns(named_columns(table, roles["text"], purpose="`text`"))
    else:
        inputs = NumberColumns(named_columns(table, roles["features"], purpose="`features`"), guessed=guessed)
    if not inputs.columns:
        raise InputError(f"`{table.path}`: has no column of text or features; it has {column_names(table)}.")
    return _Roles(inputs, target, _NameColumn(parts, renamed=part_name), groups)


def _target_reader(
    table: TableFile,
    label: str | None,
    labels: str | Sequence[str] | None,
    names: Sequence[str] | None,
    separator: str,
    asks: bool,
) -> _ClassColumn | _LabelListColumn | _LabelColumns:
    if label is not None:
        column = named_columns(table, [label], purpose="`label`")[0]
        return _ClassColumn(column, names, path=table.path, asks=asks)
    if isinstance(labels, str) and not labels.endswith("*"):
        return _LabelListColumn(named_columns(table, labels, purpose="`labels`")[0], names, separator)
    if names is not None:
        raise InputError("`label_names` must not be given for labels in columns, which have the columns' names.")
    columns = named_columns(table, labels or (), purpose="`labels`")
    if not columns:
        raise InputError("`labels` must name at least one column; got none.")
    prefix = len(labels) - 1 if isinstance(labels, str) else 0
    return _LabelColumns(columns, [column[prefix:] for column in columns])


def _name(cell: Any) -> str | None:
    """The name in a cell; None if it is empty."""
    if cell is None or cell != cell:  # NaN is a missing cell in Parquet.
        return None
    return str(cell).strip() or None


def _numbers(block: Block, column: str) -> np.ndarray:
    """The numbers of a column, ``(rows, width)`` float32."""
    cells = block.columns[column]
    try:
        if isinstance(cells, list):
            cells = with_points(cells, block.decimal)
            if "_" in "".join(cell for cell in cells if isinstance(cell, str)):
                raise ValueError  # Python reads 1_000 as a number, but nobody else does.
        values = np.asarray(cells, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        _refuse_cell(block, column)
        raise
    with np.errstate(over="ignore"):
        values = values.reshape(len(cells), math.prod(values.shape[1:])).astype(np.float32)
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0][0])
        raise InputError(f"{block.location(row)}: {column!r} must be a finite number; got {cells[row]!r:.60}.")
    return values


def _refuse_cell(block: Block, column: str) -> None:
    """Raise an error for the first cell that is no number, or no list of as many numbers as the first."""
    cells = with_points(cell_list(block.columns[column]), block.decimal)
    width = len(cells[0]) if isinstance(cells[0], list) else None
    for row, cell in enumerate(cells):
        if not all(is_number(value) for value in (cell if isinstance(cell, list) else [cell])):
            raise InputError(f"{block.location(row)}: {column!r} must be a finite number; got {cell!r:.60}.")
        if (len(cell) if isinstance(cell, list) else None) != width:
            rule = "a number" if width is None else f"{width} numbers"
            raise InputError(
                f"{block.location(row)}: {column!r} must be {rule}, like the row before; got {cell!r:.60}."
            )

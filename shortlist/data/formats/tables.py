"""Plain tables: CSV, TSV, JSON lines and Parquet with one row per example, read column by column."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, part_name
from shortlist.data.files.table_files import Block, TableFile, cell_list, open_table
from shortlist.data.files.vocabularies import LabelSets, NameCodes
from shortlist.data.inputs import Features, Inputs, Texts
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError


def read_table(
    path: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    separator: str = ";",
    split: str | None = None,
    groups: Sequence[str] | None = None,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Read a table of texts or numbers with labels.

    The file's ending says what it is: ``.csv``, ``.tsv`` (quoted as in CSV), ``.jsonl`` or ``.ndjson``, all optionally
    followed by ``.gz`` or ``.xz``, and ``.parquet`` (needs the extra ``data``). The argument, never a value, says
    whether a row has one class (``label``) or a set of labels (``labels``). The table is read into memory, numbers as
    float32. Errors count lines of text from 1 and rows of Parquet from 0, like the dataset.

    Args:
        path: the file.
        text: a column, or several, which are joined by a space; None for ``text`` if it exists.
        features: columns of numbers, or a pattern like ``x_*`` for all columns that begin so; in JSON and Parquet a
            column may hold lists of equally many numbers per row. None without texts for all columns with no other use.
        label: the column with the class of each row. None without ``labels`` for ``labels`` or ``label``, whichever
            exists.
        labels: one column with a set of labels: a list, or names between separators, where an empty cell is an empty
            set. Or several columns, or a pattern like ``tag_*``, that hold 1 for present, 0 for absent, -1 for unknown.
        label_names: the labels in their order, all others are refused; None for those that occur, sorted (by value if
            all are integers). Not for labels in columns, which have the columns' names.
        separator: between the names in a cell of ``labels``.
        split: the column with the part of each row; None for ``split`` if it exists. Names such as ``Training``,
            ``validation``, ``dev`` and ``TEST`` are read as ``train``, ``val`` and ``test``.
        groups: columns that become ``row_groups``; None for ``source`` if it exists.
        encoding: of text files.

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
    table = open_table(path, encoding=encoding)
    roles = _roles(
        table,
        text=text,
        features=features,
        label=label,
        labels=labels,
        label_names=label_names,
        separator=separator,
        split=split,
        groups=groups,
    )
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


def input_columns(path: str | Path, *, encoding: str = "utf-8", **options: Any) -> dict[str, list[str]]:
    """The columns that `read_table` takes as inputs with the same options, by the option's name: text or features.

    Raises:
        InputError: as `read_table`; no row is read.
    """
    inputs = _roles(open_table(path, encoding=encoding), **options).inputs
    return {"text" if isinstance(inputs, TextColumns) else "features": list(inputs.columns)}


def named_columns(table: TableFile, names: str | Sequence[str], *, purpose: str) -> list[str]:
    """The columns with these names, each of which must exist; a single name may end in ``*``.

    Raises:
        InputError: names the file, the missing column and its ``purpose``, such as "`features`".
    """
    found = []
    for name in [names] if isinstance(names, str) else names:
        prefix = name[:-1] if name.endswith("*") and isinstance(names, str) else None
        matching = [
            column for column in table.columns if (column == name if prefix is None else column.startswith(prefix))
        ]
        if not matching:
            raise InputError(f"`{table.path}`: has no column {name!r} for {purpose}; it has {_column_names(table)}.")
        found += matching
    return found


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
        guessed: whether the columns are all those with no other use, so that an error should suggest to name them.
    """

    def __init__(self, columns: Sequence[str], *, guessed: bool = False) -> None:
        self.columns, self._guessed = columns, guessed
        self._parts: list[np.ndarray] = []

    def add(self, block: Block) -> None:
        """Read the rows of a block."""
        hint = "; `features` can name the columns of numbers" if self._guessed else ""
        part = np.concatenate([_numbers(block, name, hint) for name in self.columns], axis=1)
        if self._parts and part.shape[1] != self._parts[0].shape[1]:
            width = self._parts[0].shape[1]
            raise InputError(
                f"{block.location(0)}: must have {width} numbers, like the rows before; got {part.shape[1]}."
            )
        self._parts.append(part)

    def finish(self) -> Inputs:
        """The inputs of all rows."""
        return Features(np.concatenate(self._parts) if self._parts else np.zeros((0, len(self.columns)), np.float32))


class _ClassColumn:
    """The class of each row, by name."""

    def __init__(self, column: str, names: Sequence[str] | None) -> None:
        self.columns, self._codes = [column], NameCodes(names)

    def add(self, block: Block) -> None:
        for row, cell in enumerate(cell_list(block.columns[self.columns[0]])):
            name = _name(cell)
            if name is None or not self._codes.allows(name):
                rule = "name a class" if name is None else "be one of `label_names`"
                got = "an empty cell" if name is None else repr(name)
                raise InputError(f"{block.location(row)}: {self.columns[0]!r} must {rule}; got {got}.")
            self._codes.add(name)

    def finish(self) -> tuple[Tensor, tuple[str, ...]]:
        codes, names = self._codes.finish()
        return torch.from_numpy(codes), names


class _LabelListColumn:
    """The set of labels of each row: a list of names, or names between separators."""

    def __init__(self, column: str, names: Sequence[str] | None, separator: str) -> None:
        self.columns, self._separator, self._sets = [column], separator, LabelSets(names)

    def add(self, block: Block) -> None:
        for row, cell in enumerate(cell_list(block.columns[self.columns[0]])):
            listed = cell.split(self._separator) if isinstance(cell, str) else cell
            names = [name for name in map(_name, listed if isinstance(listed, list) else [listed]) if name is not None]
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


def _roles(
    table: TableFile,
    *,
    text: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    separator: str = ";",
    split: str | None = None,
    groups: Sequence[str] | None = None,
) -> _Roles:
    if text is not None and features is not None:
        raise InputError("`text` and `features` must not both be given: a row has one kind of input.")
    if label is not None and labels is not None:
        raise InputError("`label` and `labels` must not both be given: a row has one class or a set of labels.")
    if not separator:
        raise InputError("`separator` must not be empty.")
    if label is None and labels is None:
        found = [name for name in ("labels", "label") if name in table.columns]
        if len(found) != 1:
            raise InputError(
                f"`{table.path}`: `label` or `labels` must name the column of labels; it has {_column_names(table)}."
            )
        label, labels = (found[0], None) if found == ["label"] else (None, found[0])
    target = _target_reader(table, label, labels, label_names, separator)
    split_columns = named_columns(table, _if_exists("split", table) if split is None else [split], purpose="`split`")
    names = named_columns(table, _if_exists("source", table) if groups is None else groups, purpose="`groups`")
    inputs = _input_reader(table, text, features, {*target.columns, *split_columns, *names})
    return _Roles(
        inputs, target, _NameColumn(split_columns, renamed=part_name), {name: _NameColumn([name]) for name in names}
    )


def _target_reader(
    table: TableFile,
    label: str | None,
    labels: str | Sequence[str] | None,
    names: Sequence[str] | None,
    separator: str,
) -> _ClassColumn | _LabelListColumn | _LabelColumns:
    if label is not None:
        return _ClassColumn(named_columns(table, [label], purpose="`label`")[0], names)
    if isinstance(labels, str) and not labels.endswith("*"):
        return _LabelListColumn(named_columns(table, labels, purpose="`labels`")[0], names, separator)
    if names is not None:
        raise InputError("`label_names` must not be given for labels in columns, which have the columns' names.")
    columns = named_columns(table, labels or (), purpose="`labels`")
    if not columns:
        raise InputError("`labels` must name at least one column; got none.")
    prefix = len(labels) - 1 if isinstance(labels, str) else 0
    return _LabelColumns(columns, [column[prefix:] for column in columns])


def _input_reader(
    table: TableFile, text: str | Sequence[str] | None, features: str | Sequence[str] | None, taken: set[str]
) -> TextColumns | NumberColumns:
    if text is None and features is None and "text" in table.columns and "text" not in taken:
        text = "text"
    if text is not None:
        return TextColumns(named_columns(table, text, purpose="`text`"))
    rest = [name for name in table.columns if name and name not in taken]
    columns = named_columns(table, rest if features is None else features, purpose="`features`")
    if not columns:
        raise InputError(f"`{table.path}`: has no column of text or features; it has {_column_names(table)}.")
    return NumberColumns(columns, guessed=features is None)


def _if_exists(name: str, table: TableFile) -> Sequence[str]:
    return (name,) if name in table.columns else ()


def _column_names(table: TableFile) -> str:
    listed = ", ".join(map(repr, table.columns[:12]))
    return listed + (f" and {len(table.columns) - 12} more" if len(table.columns) > 12 else "") or "none"


def _name(cell: Any) -> str | None:
    """The name in a cell; None if it is empty."""
    if cell is None or cell != cell:  # NaN is a missing cell in Parquet.
        return None
    return str(cell).strip() or None


def _numbers(block: Block, column: str, hint: str = "") -> np.ndarray:
    """The numbers of a column, ``(rows, width)`` float32; ``hint`` ends the error for a column that has none."""
    cells = block.columns[column]
    try:
        if isinstance(cells, list) and "_" in "".join(cell for cell in cells if isinstance(cell, str)):
            raise ValueError  # Python reads 1_000 as a number, but nobody else does.
        values = np.asarray(cells, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        _refuse_cell(block, column, hint)
        raise
    with np.errstate(over="ignore"):
        values = values.reshape(len(cells), math.prod(values.shape[1:])).astype(np.float32)
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0][0])
        raise InputError(f"{block.location(row)}: {column!r} must be a finite number; got {cells[row]!r:.60}.")
    return values


def _refuse_cell(block: Block, column: str, hint: str) -> None:
    """Raise an error for the first cell that is no number, or no list of as many numbers as the first."""
    cells = cell_list(block.columns[column])
    width = len(cells[0]) if isinstance(cells[0], list) else None
    for row, cell in enumerate(cells):
        if not all(_is_number(value) for value in (cell if isinstance(cell, list) else [cell])):
            raise InputError(f"{block.location(row)}: {column!r} must be a finite number; got {cell!r:.60}{hint}.")
        if (len(cell) if isinstance(cell, list) else None) != width:
            rule = "a number" if width is None else f"{width} numbers"
            raise InputError(
                f"{block.location(row)}: {column!r} must be {rule}, like the row before; got {cell!r:.60}."
            )


def _is_number(value: Any) -> bool:
    try:
        return "_" not in str(value) and math.isfinite(float(value))
    except (ValueError, TypeError, OverflowError):
        return False

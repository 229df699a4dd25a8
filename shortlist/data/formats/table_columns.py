"""What the columns of a table become: texts, numbers, labels and groups, gathered block by block."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.table_files import Block, cell_list
from shortlist.data.files.vocabularies import LabelSets, NameCodes
from shortlist.data.inputs import Features, Inputs, Texts
from shortlist.data.target_rows import sparse_targets


class TextColumns:
    """Texts of one or more columns, joined by a space."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._texts: list[str] = []

    def add(self, block: Block) -> None:
        """Take the rows of a block."""
        cells = [cell_list(block.columns[name]) for name in self.columns]
        for row, values in enumerate(zip(*cells, strict=True)):
            for name, value in zip(self.columns, values, strict=True):
                if value is not None and not isinstance(value, str):
                    raise ValueError(f"{block.place(row)}: {name!r} must be text; got {value!r:.60}.")
            self._texts.append(" ".join(value for value in values if value))

    def settle(self) -> Inputs:
        """Give the inputs of all rows."""
        return Texts(self._texts)


class NumberColumns:
    """Numbers of one or more columns, float32."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._parts: list[np.ndarray] = []

    def add(self, block: Block) -> None:
        """Take the rows of a block."""
        part = np.concatenate([_numbers(block, name) for name in self.columns], axis=1)
        if self._parts and part.shape[1] != self._parts[0].shape[1]:
            width = self._parts[0].shape[1]
            raise ValueError(f"{block.place(0)}: must have {width} numbers, as the rows before; got {part.shape[1]}.")
        self._parts.append(part)

    def settle(self) -> Inputs:
        """Give the inputs of all rows."""
        return Features(np.concatenate(self._parts) if self._parts else np.zeros((0, len(self.columns)), np.float32))


class ClassColumn:
    """The class of each row, by name."""

    def __init__(self, column: str, names: Sequence[str] | None) -> None:
        self.columns, self._codes = [column], NameCodes(names)

    def add(self, block: Block) -> None:
        """Take the rows of a block."""
        for row, cell in enumerate(cell_list(block.columns[self.columns[0]])):
            name = _name(cell)
            if name is None or not self._codes.allows(name):
                rule = "name a class" if name is None else "be one of `label_names`"
                got = "an empty cell" if name is None else repr(name)
                raise ValueError(f"{block.place(row)}: {self.columns[0]!r} must {rule}; got {got}.")
            self._codes.add(name)

    def settle(self) -> tuple[Tensor, tuple[str, ...]]:
        """Give the labels of all rows, and their names."""
        codes, names = self._codes.settle()
        return torch.from_numpy(codes), names


class LabelListColumn:
    """The set of labels of each row: a list of names, or names between separators."""

    def __init__(self, column: str, names: Sequence[str] | None, separator: str) -> None:
        self.columns, self._separator, self._sets = [column], separator, LabelSets(names)

    def add(self, block: Block) -> None:
        """Take the rows of a block."""
        for row, cell in enumerate(cell_list(block.columns[self.columns[0]])):
            listed = (
                cell.split(self._separator) if isinstance(cell, str) else cell if isinstance(cell, list) else [cell]
            )
            names = [name for name in map(_name, listed) if name is not None]
            for name in names:
                if not self._sets.allows(name):
                    raise ValueError(
                        f"{block.place(row)}: {self.columns[0]!r} must hold `label_names` only; got {name!r}."
                    )
            self._sets.add(names)

    def settle(self) -> tuple[Tensor, tuple[str, ...]]:
        """Give the labels of all rows, and their names."""
        return self._sets.settle()


class LabelColumns:
    """Present and unknown labels of 0/1 columns, kept as pairs."""

    def __init__(self, columns: Sequence[str], names: Sequence[str]) -> None:
        self.columns, self._names, self._count = columns, tuple(names), 0
        self._rows, self._labels, self._present = array("q"), array("q"), array("b")

    def add(self, block: Block) -> None:
        """Take the rows of a block."""
        values = np.concatenate([_numbers(block, name) for name in self.columns], axis=1)
        wrong = np.argwhere(~np.isin(values, (0, 1, -1)))
        if values.shape[1] != len(self.columns) or len(wrong):
            row, column = wrong[0] if len(wrong) else (0, 0)
            name, got = self.columns[min(column, len(self.columns) - 1)], values[row, column]
            raise ValueError(f"{block.place(row)}: {name!r} must be 1, 0 or -1 (unknown); got {got:g}.")
        rows, labels = values.nonzero()
        self._rows.frombytes((rows + self._count).astype(np.int64).tobytes())
        self._labels.frombytes(labels.astype(np.int64).tobytes())
        self._present.frombytes((values[rows, labels] > 0).astype(np.int8).tobytes())
        self._count += len(values)

    def settle(self) -> tuple[Tensor, tuple[str, ...]]:
        """Give the labels of all rows, and their names."""
        rows, labels = np.array(self._rows, dtype=np.int64), np.array(self._labels, dtype=np.int64)
        present = np.array(self._present, dtype=bool)
        return sparse_targets(rows, labels, self._count, len(self._names), present=present), self._names


class NameColumn:
    """A column of names, some of which may have another name here; or no column."""

    def __init__(self, columns: Sequence[str], *, renamed: Callable[[str], str] = str) -> None:
        self.columns, self.codes, self._renamed = columns, NameCodes(), renamed

    def add(self, block: Block) -> None:
        """Take the rows of a block."""
        for column in self.columns:
            for cell in cell_list(block.columns[column]):
                name = _name(cell)
                self.codes.add(name if name is None else self._renamed(name))


def _name(cell: Any) -> str | None:
    """The name in a cell; None if there is none."""
    if cell is None or cell != cell:  # NaN stands for a missing cell in Parquet.
        return None
    return str(cell).strip() or None


class NotNumbersError(ValueError):
    """A column that should hold numbers holds something else, as a name or an id."""


def _numbers(block: Block, column: str) -> np.ndarray:
    """The numbers of a column, ``(rows, width)`` float32."""
    cells = block.columns[column]
    try:
        if isinstance(cells, list) and "_" in "".join(cell for cell in cells if isinstance(cell, str)):
            raise ValueError  # Python reads 1_000 as a number, nobody else does.
        values = np.asarray(cells, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        _refuse_cell(block, column)
        raise
    with np.errstate(over="ignore"):
        values = values.reshape(len(cells), math.prod(values.shape[1:])).astype(np.float32)
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0][0])
        raise ValueError(f"{block.place(row)}: {column!r} must be a finite number; got {cells[row]!r:.60}.")
    return values


def _refuse_cell(block: Block, column: str) -> None:
    """Raise for the first cell that is no number, or no list of as many numbers as the first."""
    cells = cell_list(block.columns[column])
    for row, cell in enumerate(cells):
        listed = cell if isinstance(cell, list) else [cell]
        width = len(cells[0]) if isinstance(cells[0], list) else None
        if not all(_is_number(value) for value in listed):
            raise NotNumbersError(f"{block.place(row)}: {column!r} must be a finite number; got {cell!r:.60}.")
        if (len(cell) if isinstance(cell, list) else None) != width:
            rule = "a number" if width is None else f"{width} numbers"
            raise ValueError(f"{block.place(row)}: {column!r} must be {rule}, as in the row before; got {cell!r:.60}.")


def _is_number(value: Any) -> bool:
    try:
        return "_" not in str(value) and math.isfinite(float(value))
    except (ValueError, TypeError, OverflowError):
        return False

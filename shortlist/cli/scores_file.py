"""Scores of many rows, read in blocks: arrays that are mapped into memory, or tables with a column per label."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.cli.label_file import read_names
from shortlist.data.formats.array_files import ArrayFile, open_arrays
from shortlist.data.formats.table_rows import Block, TableFile, cell_list, csv_records, open_table
from shortlist.data.source_files import need_file
from shortlist.extras import require

ARRAYS = (".npy", ".npz", ".safetensors")
TABLES = (".csv", ".tsv", ".parquet")
# About this many scores are in memory at a time, whatever the number of labels.
BLOCK = 1 << 22
# Averages of several models may pass 1 by a rounding.
_ROUNDING = 1e-6


class ScoreBlock(NamedTuple):
    """Some rows of scores, one after the other."""

    start: int
    scores: Tensor  # (rows, labels), floating
    ids: list[str] | None
    place: Callable[[int], str]  # names the file and a row of the block, for an error
    numbers: Sequence[int] | None = None  # of the rows in their file, where they are a part of it

    @property
    def rows(self) -> range:
        """The numbers of the rows among all."""
        return range(self.start, self.start + len(self.scores))


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores that are not read yet: how many there are, what the labels are called, and how to get them in blocks.

    Args:
        path: for errors.
        from_logits: whether they are logits; else they are probabilities, which is checked.
        num_labels: n.
        names: of the labels, or None.
        read: gives the blocks, unchecked.
        count: gives the number of rows; for text that takes a pass over the file, which is made when it is asked for.
    """

    path: Path
    from_logits: bool
    num_labels: int
    names: tuple[str, ...] | None
    read: Callable[[], Iterator[ScoreBlock]]
    count: Callable[[], int]

    @cached_property
    def num_rows(self) -> int:
        """How many rows there are, at least 1."""
        rows = self.count()
        if rows == 0:
            raise ValueError(f"`{self.path}` holds no rows.")
        return rows

    def blocks(self) -> Iterator[ScoreBlock]:
        """The rows in their order.

        Raises:
            ValueError: names the file and the row of a score that is NaN or infinite (``-inf`` marks an absent label),
                or of a probability outside of [0, 1].
        """
        block = None
        try:
            for block in self.read():
                _check_values(block, self.from_logits)
                yield block
        except OSError as error:
            raise ValueError(f"`{self.path}` cannot be read: {error.strerror or error}.") from error
        if block is None:
            raise ValueError(f"`{self.path}` holds no rows.")


def add_score_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add SCORES and what must be known to read it; ``required`` is the kind of the scores."""
    parser.add_argument(
        "scores", metavar="SCORES", help=f"a row per example, a column per label: {', '.join((*ARRAYS, *TABLES))}"
    )
    kind = parser.add_mutually_exclusive_group(required=required)
    kind.add_argument("--logits", action="store_true", help="the scores are logits")
    kind.add_argument("--probabilities", action="store_true", help="the scores are probabilities")
    parser.add_argument("--key", help="which array of SCORES; not needed when it holds one")
    parser.add_argument("--id", metavar="COLUMN", help="the column of a table that names the rows")
    parser.add_argument(
        "--names", metavar="FILE", help="label names, one per line, in the order of the columns; tables have them"
    )


def scores_of(options: argparse.Namespace) -> Scores:
    """Open what the options of `add_score_options` say."""
    return open_scores(
        options.scores, from_logits=options.logits, key=options.key, id_column=options.id, names=options.names
    )


def open_scores(
    path: str | Path,
    *,
    from_logits: bool,
    key: str | None = None,
    id_column: str | None = None,
    names: str | Path | None = None,
) -> Scores:
    """Open the scores of many rows.

    Args:
        path: ``.npy``, ``.npz`` or ``.safetensors`` with a floating matrix; or ``.csv``, ``.tsv`` (perhaps with ``.gz``
            or ``.xz`` behind) or ``.parquet`` with a column per label, named in the header.
        from_logits: whether they are logits. It is said, never guessed.
        key: which array of a file with several.
        id_column: the column of a table that names the rows.
        names: file with the names of the labels; of a table, they must be those of its header.

    Raises:
        ValueError: names the file, and what is wrong with it.
    """
    path = need_file(path)
    if path.suffix in ARRAYS:
        if id_column is not None:
            raise ValueError(f"--id names a column of a table, and `{path}` is none; got {id_column!r}.")
        found = _open_array(path, key, from_logits)
    elif any(ending in TABLES for ending in path.suffixes[-2:]):
        if key is not None:
            raise ValueError(f"--key names an array of a file, and `{path}` is a table; got {key!r}.")
        found = _open_table(path, id_column, from_logits)
    else:
        raise ValueError(f"`{path}` must end in one of {', '.join((*ARRAYS, *TABLES))}.")
    return found if names is None else _named(found, names)


def _named(scores: Scores, file: str | Path) -> Scores:
    names = tuple(read_names(file))
    if len(names) != scores.num_labels:
        raise ValueError(
            f"`{file}` must name each of the {scores.num_labels} labels of `{scores.path}`; it names {len(names)}."
        )
    for own, other in zip(scores.names or names, names, strict=True):
        if own != other:
            raise ValueError(
                f"`{file}` must have the names of the header of `{scores.path}`; {other!r} is not {own!r}."
            )
    return Scores(scores.path, scores.from_logits, scores.num_labels, names, scores.read, scores.count)


def open_array_file(path: Path, key: str | None, option: str) -> tuple[ArrayFile, str]:
    """The arrays of a file and the name of the chosen one; ``option`` is the one that chooses, for an error."""
    if path.suffix == ".npy":
        if key is not None:
            raise ValueError(f"`{path}` is one array and has none called {key!r}; leave {option} out.")
        # A folder's arrays are opened when they are asked for, so that none but this one is looked at.
        return open_arrays(path.parent), path.stem
    file = open_arrays(path)
    if key is None and len(file.openers) != 1:
        raise ValueError(f"`{path}` must hold one array, or {option} must choose; it holds {file.names()}.")
    return file, next(iter(file.openers)) if key is None else key


def _open_array(path: Path, key: str | None, from_logits: bool) -> Scores:
    file, name = open_array_file(path, key, "--key")
    array = file.array(name)
    place = f"`{path}`" if path.suffix == ".npy" else file.place(name)
    if isinstance(array, np.ndarray) and array.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        raise ValueError(f"{place} must hold floating scores; got {array.dtype}.")
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{place} must have shape (rows, labels); got {tuple(array.shape)}.")
    rows, labels = array.shape
    # Pages of a mapped file count as memory of the process until it is unmapped: each block maps it anew. What a
    # compressed file holds was read as a whole, and is kept.
    held = array if type(array) is np.ndarray else None
    del array

    def read() -> Iterator[ScoreBlock]:
        step = max(1, BLOCK // labels)
        for start in range(0, rows, step):
            part = (file.array(name) if held is None else held)[start : start + step]
            yield ScoreBlock(start, _tensor(part), None, lambda row, start=start: f"{place} row {start + row}")

    return Scores(path, from_logits, labels, None, read, lambda: rows)


def _tensor(part: np.ndarray | Tensor) -> Tensor:
    """A copy in memory, in the byte order of this machine."""
    if isinstance(part, Tensor):
        return part.clone()
    return torch.from_numpy(np.array(part, dtype=part.dtype.newbyteorder("="), order="C"))


def _open_table(path: Path, id_column: str | None, from_logits: bool) -> Scores:
    table = open_table(path)
    if id_column is not None and id_column not in table.columns:
        raise ValueError(f"`{path}` has no column {id_column!r} for --id; it begins with {table.columns[0]!r}.")
    names = tuple(name for name in table.columns if name != id_column)
    if not names:
        raise ValueError(f"`{path}` must have a column for each label; it has none.")
    if "" in names:
        at = table.columns.index("") + 1
        raise ValueError(f"`{path}` column {at} has no name; if it names the rows, say so by --id ''.")

    def read() -> Iterator[ScoreBlock]:
        start = 0
        for block in table.blocks(table.columns):
            values = np.column_stack([_numbers(block, name, id_column) for name in names])
            ids = None if id_column is None else [str(cell) for cell in cell_list(block.columns[id_column])]
            values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
            yield ScoreBlock(start, torch.from_numpy(values), ids, block.place)
            start += len(values)

    return Scores(path, from_logits, len(names), names, read, lambda: _count_rows(table))


def _count_rows(table: TableFile) -> int:
    if table.path.suffix == ".parquet":
        return require("pyarrow.parquet", extra="data").read_metadata(table.path).num_rows
    delimiter = "\t" if ".tsv" in table.path.suffixes[-2:] else ","
    return sum(1 for _ in csv_records(table.path, delimiter)) - 1


def _numbers(block: Block, column: str, id_column: str | None) -> np.ndarray:
    """A column of scores; an empty cell is no score, and NaN is told by its row later."""
    cells = block.columns[column]
    if isinstance(cells, np.ndarray) and cells.ndim == 1 and cells.dtype.kind == "f":
        return cells
    try:
        if isinstance(cells, list) and "_" in "".join(cell for cell in cells if isinstance(cell, str)):
            raise ValueError  # Python reads 1_000 as a number, nobody else does.
        values = np.asarray(cells, dtype=np.float64)
        if values.ndim == 1:
            return values
    except (ValueError, TypeError, OverflowError):
        pass
    row, cell = _first_wrong(cell_list(cells))
    hint = f"; --id {column}, if it names the rows" if id_column is None else ""
    raise ValueError(f"{block.place(row)}: {column!r} must be a number; got {cell!r:.60}{hint}.")


def _first_wrong(cells: Sequence[Any]) -> tuple[int, Any]:
    return next(((row, cell) for row, cell in enumerate(cells) if not _is_number(cell)), (0, cells[0]))


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError, OverflowError):
        return False
    return "_" not in str(cell)


def _check_values(block: ScoreBlock, from_logits: bool) -> None:
    low, high = (float(end) for end in block.scores.aminmax())
    if high < (float("inf") if from_logits else 1 + _ROUNDING) and (from_logits or low >= 0):
        return
    scores = block.scores.double()
    # -inf marks a label that is absent, of either kind of scores.
    wrong = ~(scores < torch.inf)
    rule, hint = "scores must not be NaN or infinite", ""
    if not wrong.any() and not from_logits:
        wrong = (scores > 1 + _ROUNDING) | ((scores < 0) & (scores > -torch.inf))
        rule, hint = "probabilities must lie in [0, 1]", "; logits are told by --logits"
    found = wrong.nonzero()
    if len(found):
        row, label = found[0].tolist()
        raise ValueError(f"{block.place(row)}: {rule}; that of label {label} is {float(scores[row, label]):g}{hint}.")

"""Scores of many rows, read in blocks: arrays, or tables with a column per label."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.cli.label_file import read_names
from shortlist.cli.matrix_file import ARRAYS, HDF, open_array_file, open_matrix
from shortlist.cli.score_table import TABLES, open_score_table
from shortlist.data.files.text_files import need_file

__all__ = ["ARRAYS", "ScoreBlock", "Scores", "add_score_options", "open_array_file", "open_scores", "scores_of"]

# About this many scores are in memory at a time, whatever the number of labels, and at most so many rows.
BLOCK = 1 << 22
_MOST_ROWS = 1 << 15
# Averages of several models may pass 1 by a rounding.
_ROUNDING = 1e-6
_ENDINGS = (*ARRAYS, *HDF, *TABLES)


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
        read: gives the blocks from a row on, unchecked; that row must be the end of an earlier block, or 0.
        count: gives the number of rows; for text that takes a pass over the file, which is made when it is asked for.
    """

    path: Path
    from_logits: bool
    num_labels: int
    names: tuple[str, ...] | None
    read: Callable[[int], Iterator[ScoreBlock]]
    count: Callable[[], int]

    @cached_property
    def num_rows(self) -> int:
        """How many rows there are, at least 1."""
        rows = self.count()
        if rows == 0:
            raise ValueError(f"`{self.path}` holds no rows.")
        return rows

    def blocks(self, start: int = 0) -> Iterator[ScoreBlock]:
        """The rows in their order; with ``start``, the end of a block, those from there on.

        Raises:
            ValueError: names the file and the row of a score that is NaN or infinite (``-inf`` marks an absent label),
                or of a probability outside of [0, 1].
        """
        block = None
        try:
            for block in self.read(start):
                _check_values(block, self.from_logits)
                yield block
        except OSError as error:
            raise ValueError(f"`{self.path}` cannot be read: {error.strerror or error}.") from error
        if block is None and start == 0:
            raise ValueError(f"`{self.path}` holds no rows.")


def add_score_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add SCORES and what must be known to read it; ``required`` is the kind of the scores."""
    parser.add_argument(
        "scores", metavar="SCORES", help=f"a row per example, a column per label: {', '.join(_ENDINGS)}"
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
        path: ``.npy``, ``.npz``, ``.safetensors`` or ``.h5`` with a floating matrix; or ``.csv``, ``.tsv`` (perhaps
            with ``.gz`` or ``.xz`` behind) or ``.parquet`` with a column per label, named in the header.
        from_logits: whether they are logits. It is said, never guessed.
        key: which array of a file with several.
        id_column: the column of a table that names the rows.
        names: file with the names of the labels; of a table, they must be those of its header.

    Raises:
        ValueError: names the file, and what is wrong with it.
    """
    path = need_file(path)
    if path.suffix in (*ARRAYS, *HDF):
        if id_column is not None:
            raise ValueError(f"--id names a column of a table, and `{path}` is none; got {id_column!r}.")
        found = _open_array(path, key, from_logits)
    elif any(ending in TABLES for ending in path.suffixes[-2:]):
        if key is not None:
            raise ValueError(f"--key names an array of a file, and `{path}` is a table; got {key!r}.")
        found = _open_table(path, id_column, from_logits)
    else:
        raise ValueError(f"`{path}` must end in one of {', '.join(_ENDINGS)}.")
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
    return replace(scores, names=names)


def rows_of_block(labels: int) -> int:
    """How many rows of as many scores are read at a time."""
    return max(1, min(_MOST_ROWS, BLOCK // labels))


def _open_array(path: Path, key: str | None, from_logits: bool) -> Scores:
    matrix = open_matrix(path, key)
    rows, labels = matrix.shape

    def read(start: int) -> Iterator[ScoreBlock]:
        for part in matrix.read(start, rows_of_block(labels)):
            yield ScoreBlock(start, part, None, lambda row, start=start: f"{matrix.place} row {start + row}")
            start += len(part)

    return Scores(path, from_logits, labels, None, read, lambda: rows)


def _open_table(path: Path, id_column: str | None, from_logits: bool) -> Scores:
    table = open_score_table(path, id_column)
    names = table.labels

    def read(start: int) -> Iterator[ScoreBlock]:
        for block in table.blocks(start, rows_of_block(len(names))):
            yield ScoreBlock(start, torch.from_numpy(block.values), block.ids, block.place)
            start += len(block.values)

    return Scores(path, from_logits, len(names), names, read, table.count)


def _check_values(block: ScoreBlock, from_logits: bool) -> None:
    # The largest of numbers with NaN among them is NaN, which is below nothing.
    high = float(block.scores.amax())
    if high < (float("inf") if from_logits else 1 + _ROUNDING) and (from_logits or float(block.scores.amin()) >= 0):
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

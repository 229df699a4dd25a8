"""What rows bring besides their scores, such as a group or a weight: read from a file, and handed to the rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist.data.files.table_files import ENDINGS, open_table
from shortlist.data.files.text_files import text_lines
from shortlist.errors import InputError
from shortlist.fingerprint import file_state
from shortlist.predict.scores import ScoreBlock, Scores
from shortlist.sets import SetRule

ROW_OPTIONS = ("groups", "weights")
"""The keywords by which rules take a value for each row."""


def split_column(given: str) -> tuple[str, str | None]:
    """``FILE`` or ``TABLE:COLUMN`` as a file and a column.

    Example:
        >>> split_column("sites.txt"), split_column("plants.csv:site")
        (('sites.txt', None), ('plants.csv', 'site'))
    """
    path, colon, column = given.rpartition(":")
    if colon and not Path(given).exists() and path.removesuffix(".gz").removesuffix(".xz").endswith(ENDINGS):
        return path, column
    return given, None


def read_lines(given: str) -> list[str]:
    """The lines of a text file, or the cells of a column ``TABLE:COLUMN``, one for each row."""
    path, column = split_column(given)
    if column is None:
        return [line.strip() for _, line in text_lines(Path(path))]
    table = open_table(path)
    if column not in table.columns:
        raise InputError(f"`{path}` has no column {column!r}; its first column is {table.columns[0]!r}.")
    return [str(cell).strip() for block in table.blocks([column]) for cell in block.columns[column]]


def read_finite(given: str, *, at_least: float = 0.0) -> list[float]:
    """The numbers of `read_lines`; InputError names the row of one that is infinite or too small."""
    found = []
    for row, cell in enumerate(read_lines(given)):
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if not at_least <= number < math.inf:
            raise InputError(f"`{given}` row {row} must be a finite number, at least {at_least:g}; got {cell!r}.")
        found.append(number)
    return found


def with_row_values(scores: Scores, name: str, given: str) -> Scores:
    r"""Scores whose rows bring a value for the rule.

    Args:
        scores: of any number of rows.
        name: one of `ROW_OPTIONS`.
        given: a file with one value per line, or ``TABLE:COLUMN``; a value for each row that is scored, or, if only
            some of the rows of the data are scored, for each row of the data.

    Raises:
        InputError: names the file and what is wrong with it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> import torch
        >>> from shortlist.predict import tensor_scores
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "sites.txt").write_text("north\nsouth\n")
        ...     scores = tensor_scores(torch.eye(2), from_logits=False)
        ...     print([block.given for block in with_row_values(scores, "groups", f"{folder}/sites.txt").blocks()])
        [{'groups': ['north', 'south']}]
    """
    values: Sequence[Any] = read_finite(given) if name == "weights" else read_lines(given)
    count = scores.num_rows

    def chosen(block: ScoreBlock) -> list[Any]:
        rows = block.rows if len(values) == count else block.numbers
        if rows is None or rows[-1] >= len(values):
            what = name.removesuffix("s")
            raise InputError(f"`{given}` must have one {what} per row of scores, {count}; it has {len(values)}.")
        return [values[row] for row in rows]

    def read(start: int) -> Iterator[ScoreBlock]:
        for block in scores.read(start):
            yield block._replace(given={**block.given, name: chosen(block)})

    def fingerprint(exclude: Iterable[Path]) -> Mapping[str, Any]:
        return {**scores.fingerprint(exclude), name: [given, file_state(split_column(given)[0], exclude=exclude)]}

    if len(values) != count:
        chosen(next(scores.blocks()))  # an error before anything else is done
    return replace(scores, read=read, fingerprint=fingerprint)


def read_row_values(scores: Scores, name: str, given: str) -> list[Any]:
    """The values of all rows, as `with_row_values` gives them to the blocks."""
    return [value for block in with_row_values(scores, name, given).blocks() for value in block.given[name]]


def check_row_values(rule: SetRule | type[SetRule], given: Iterable[str], *, name: str) -> None:
    """Raise InputError unless rows bring what a rule, or fitting one, asks for, and nothing else.

    Args:
        rule: a fitted rule, or the class of one that will be fitted.
        given: which of `ROW_OPTIONS` rows bring.
        name: of the rule, for errors.
    """
    for option in given:
        if option != rule.row_option:
            raise InputError(f"--{option} does not apply to `{name}`, which takes no {option}.")
    wanted = rule.row_option if isinstance(rule, type) else rule.row_argument
    if wanted is not None and wanted not in given:
        raise InputError(f"`{name}` needs --{wanted}: {wanted} of the rows, one per line.")

"""Splits of the extreme-classification text format that stand in files of their own, as numbers of rows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from shortlist.data.files.text_files import text_lines
from shortlist.data.groups import Groups

_DATA = re.compile(r"(.*)[_-]data\.txt(?:\.gz)?", re.IGNORECASE)
_ENDINGS = {"train": "_trsplit.txt", "test": "_tstsplit.txt"}


def fold_files(data: Path) -> dict[str, Path] | None:
    """The files of the split beside a ``Name_data.txt``, ``name_trSplit.txt`` and ``name_tstSplit.txt``; None without.

    Raises:
        ValueError: if there is one of the two.
    """
    name = _DATA.fullmatch(data.name)
    if name is None:
        return None
    beside = {file.name.lower(): file for file in sorted(data.parent.iterdir())}  # Capitals differ where published.
    found = {part: beside.get(name[1].lower() + ending) for part, ending in _ENDINGS.items()}
    files = {part: file for part, file in found.items() if file is not None}
    if len(files) == 1:
        raise ValueError(f"`{data}` must have both files of its split beside it; got `{next(iter(files.values()))}`.")
    return files or None


def read_fold(files: dict[str, Path], fold: int, rows: int) -> Groups:
    """The split in one column of the files.

    Args:
        files: for each part, a file whose lines hold the number of a row, from 1, for each split.
        fold: which column, from 1.
        rows: how many rows there are.

    Returns:
        The part of each row; rows that no file lists have none.
    """
    if isinstance(fold, bool) or not isinstance(fold, int) or fold < 1:
        raise ValueError(f"`fold` must be a whole number from 1; got {fold!r}.")
    part_of = np.full(rows, -1, dtype=np.int64)
    for part, file in enumerate(files.values()):
        width = None
        for number, line in text_lines(file):
            cells = line.split()
            if not cells:
                continue
            place, width = f"`{file}` line {number}", width or len(cells)
            if len(cells) != width:
                raise ValueError(f"{place}: must have {width} numbers, as the lines before; got {len(cells)}.")
            if fold > width:
                raise ValueError(f"{place}: has {width} splits, so `fold` must lie in [1, {width}]; got {fold}.")
            cell = cells[fold - 1]
            row = int(cell) - 1 if cell.isascii() and cell.isdecimal() and len(cell) < 19 else -1
            if not 0 <= row < rows:
                raise ValueError(f"{place}: must be the number of a row, in [1, {rows}]; got {cell!r:.40}.")
            if part_of[row] >= 0:
                where = f"in `{list(files.values())[part_of[row]].name}`"
                raise ValueError(f"{place}: row {row + 1} must be listed once; it is {where}, too.")
            part_of[row] = part
    return Groups(torch.from_numpy(part_of), tuple(files))

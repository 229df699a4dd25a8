"""Rows without labels, for a model to answer to: tables, lines of text, arrays and images, read in blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from shortlist.data.files.table_files import cell_list, open_table
from shortlist.data.files.text_files import need_file, text_lines
from shortlist.data.formats.arrays import FEATURES, array_inputs
from shortlist.data.formats.image_folder import IMAGE_ENDINGS
from shortlist.data.formats.table_columns import NumberColumns, TextColumns
from shortlist.data.formats.tables import named_columns
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.inputs import Features, Inputs, Texts

# Columns that are no features where nobody says which are.
_NO_FEATURES = ("", "label", "labels", "split", "source")
_LINES = 1024
_MAPPED_BYTES = 1 << 24


class InputBlock(NamedTuple):
    """Some rows, one after the other; they may still be read only when they are asked for."""

    inputs: Inputs
    ids: Sequence[str] | None  # what the rows are called
    place: Callable[[int], str]  # names the file and a row of the block as it is counted there, for an error
    numbers: Sequence[int] | None = None  # of the rows, where some are left out


@dataclass(frozen=True, eq=False)
class UnlabelledRows:
    """Rows that are not read yet.

    Args:
        path: for errors.
        blocks: gives them in their order; memory holds a block at a time.
        count: gives their number; for text that takes a pass over the file.
    """

    path: Path
    blocks: Callable[[], Iterator[InputBlock]]
    count: Callable[[], int]


def table_rows(
    path: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    id_column: str | None = None,
    encoding: str = "utf-8",
) -> UnlabelledRows:
    r"""Rows of a table, of which only the named columns are looked at.

    Args:
        path: as `shortlist.data.read_table` takes them.
        text: columns of text, which are joined by a space, as in `shortlist.data.read_table`.
        features: columns of numbers, as there; None without ``text`` for all but ``label``, ``labels``, ``split`` and
            ``source``.
        id_column: the column that names the rows.
        encoding: of text files.

    Raises:
        ValueError: names the file for a column that is not there; on reading, the line or row of what is wrong.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "new.csv").write_text("name,a,b\nowl,1,2\n")
        ...     rows = table_rows(Path(folder, "new.csv"), features=["b", "a"], id_column="name")
        ...     [(block.inputs.batch(torch.tensor([0])), block.ids) for block in rows.blocks()]
        [(tensor([[2., 1.]]), ['owl'])]
    """
    table = open_table(path, encoding=encoding)
    if text is None and features is None:
        features = [name for name in table.columns if name not in (*_NO_FEATURES, id_column)]
    columns = named_columns(table, *(("text", text) if text is not None else ("features", features or ())))
    if not columns:
        raise ValueError(f"`{path}`: has no column of text or features.")
    names = [] if id_column is None else named_columns(table, "id_column", [id_column])

    def blocks() -> Iterator[InputBlock]:
        for block in table.blocks(list(dict.fromkeys([*columns, *names]))):
            reader = NumberColumns(columns) if text is None else TextColumns(columns)
            reader.add(block)
            ids = None if id_column is None else [str(cell) for cell in cell_list(block.columns[id_column])]
            yield InputBlock(reader.settle(), ids, block.place)

    return UnlabelledRows(table.path, blocks, lambda: sum(len(block.numbers) for block in table.blocks(columns[:1])))


def line_rows(path: str | Path, *, encoding: str = "utf-8") -> UnlabelledRows:
    r"""Lines of a text file, each a text; empty ones too, so that rows are lines. ``.gz`` and ``.xz`` are unpacked.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "new.txt").write_text("a rose\n\na daisy\n")
        ...     [block.inputs.texts for block in line_rows(Path(folder, "new.txt")).blocks()]
        [['a rose', '', 'a daisy']]
    """
    need_file(path)

    def blocks() -> Iterator[InputBlock]:
        lines = text_lines(path, encoding=encoding)
        while part := list(islice(lines, _LINES)):
            first = part[0][0]
            yield InputBlock(
                Texts([line for _, line in part]), None, lambda row, first=first: f"`{path}` line {first + row}"
            )

    return UnlabelledRows(Path(path), blocks, lambda: sum(1 for _ in text_lines(path, encoding=encoding)))


def array_rows(path: str | Path, *, features: str | None = None, usual: Sequence[str] = FEATURES) -> UnlabelledRows:
    """Features, sparse features or images in arrays; ``features`` and ``usual`` as in `array_inputs`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/new.npy", np.eye(3, dtype=np.float32))
        ...     rows = array_rows(f"{folder}/new.npy")
        ...     rows.count(), [block.inputs.batch(torch.tensor([1])) for block in rows.blocks()]
        (3, [tensor([[0., 1., 0.]])])
    """
    held: Inputs | None = array_inputs(path, features=features, usual=usual)
    count, step = len(held), len(held)
    if isinstance(held, Features) and isinstance(held.array, np.memmap):
        # Pages of a mapped file count as memory of the process until it is unmapped: each block maps it anew.
        step, held = max(1, _MAPPED_BYTES * count // max(held.array.nbytes, 1)), None

    def blocks() -> Iterator[InputBlock]:
        for start in range(0, count, max(step, 1)):
            inputs = array_inputs(path, features=features, usual=usual) if held is None else held
            part = inputs.take(torch.arange(start, min(start + step, count)))
            yield InputBlock(part, None, lambda row, start=start: f"`{path}` row {start + row}")

    return UnlabelledRows(Path(path), blocks, lambda: count)


def image_rows(path: str | Path, *, size: int | tuple[int, int] | None = None) -> UnlabelledRows:
    """Image files: one, or all in a folder and the folders in it, sorted by path; their paths name the rows.

    Args:
        path: the file or the folder. Hidden ones, and files that do not end like images, are skipped.
        size: as in `ImageFiles`.

    Raises:
        ValueError: names what is not there, or the folder without images.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"`{path}` is not there.")
    folders = [(str(path.parent), [path.name])] if path.is_file() else list(_images_in(path))
    inputs = ImageFiles(PathList(folders), size=size)
    if not len(inputs):
        raise ValueError(f"`{path}` holds no images.")
    root = path.parent if path.is_file() else path
    names = FileNames(inputs, root)
    return UnlabelledRows(
        path, lambda: iter([InputBlock(inputs, names, lambda row: f"`{inputs.path(row)}`")]), lambda: len(inputs)
    )


class FileNames(Sequence[str]):
    """The paths of image files below a folder, made when they are asked for."""

    def __init__(self, files: ImageFiles, root: Path) -> None:
        self._files, self._root = files, root

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._files)

    def __getitem__(self, row: Any) -> Any:
        """The path of one file; with slashes on every system."""
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        path = self._files.path(row)
        return (path.relative_to(self._root) if path.is_relative_to(self._root) else path).as_posix()


def _images_in(root: Path) -> Iterator[tuple[str, list[str]]]:
    def fail(error: OSError) -> None:
        raise ValueError(f"`{error.filename}` cannot be listed: {error.strerror}.") from error

    for folder, inner, files in os.walk(root, onerror=fail):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__MACOSX")))
        yield folder, sorted(name for name in files if name[0] != "." and name.lower().endswith(IMAGE_ENDINGS))

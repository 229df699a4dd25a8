"""Rows without labels, for a model to predict: tables, lines of text, arrays and images, read in blocks."""

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
from shortlist.data.formats.images.image_folder import IMAGE_ENDINGS
from shortlist.data.formats.tables import NumberColumns, TextColumns, named_columns
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.inputs import Features, Inputs, Texts
from shortlist.errors import InputError

_NO_FEATURES = ("", "label", "labels", "split", "source")  # Columns that are never features by default.
_LINES = 1024
_MAPPED_BYTES = 1 << 24


class InputBlock(NamedTuple):
    """Some consecutive rows, which may still be read only on request."""

    inputs: Inputs
    ids: Sequence[str] | None  # the names of the rows
    location: Callable[[int], str]  # the file and a row of the block as it is counted there, for an error
    numbers: Sequence[int] | None = None  # of the rows, if some are left out


@dataclass(frozen=True, eq=False)
class UnlabelledRows:
    """Rows that are not read yet.

    Args:
        path: for errors.
        blocks: gives the rows in their order, one block in memory at a time.
        count: gives their number, which takes a pass over the file for text.
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
    encoding: str | None = None,
    delimiter: str | None = None,
) -> UnlabelledRows:
    r"""Rows of a table; only the named columns are read.

    Args:
        path: a table as in `shortlist.data.read_table`.
        text: columns of text, which are joined by a space, as in `shortlist.data.read_table`.
        features: columns of numbers, as there; None without ``text`` for all but ``label``, ``labels``, ``split`` and
            ``source``.
        id_column: the column that names the rows.
        encoding, delimiter: of text files, as there.

    Raises:
        InputError: names the file and a missing column; on reading, the line or row of what is wrong.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "new.csv").write_text("name,a,b\nowl,1,2\n")
        ...     rows = table_rows(Path(folder, "new.csv"), features=["b", "a"], id_column="name")
        ...     [(block.inputs.batch(torch.tensor([0])), block.ids) for block in rows.blocks()]
        [(tensor([[2., 1.]]), ['owl'])]
    """
    table = open_table(path, encoding=encoding, delimiter=delimiter)
    if text is None and features is None:
        features = [name for name in table.columns if name not in (*_NO_FEATURES, id_column)]
    names, purpose = (features or (), "`features`") if text is None else (text, "`text`")
    columns = named_columns(table, names, purpose=purpose)
    if not columns:
        raise InputError(f"`{path}`: has no column of text or features.")
    id_columns = [] if id_column is None else named_columns(table, [id_column], purpose="the ids of rows")

    def blocks() -> Iterator[InputBlock]:
        for block in table.blocks(list(dict.fromkeys([*columns, *id_columns]))):
            reader = NumberColumns(columns) if text is None else TextColumns(columns)
            reader.add(block)
            ids = None if id_column is None else [str(cell) for cell in cell_list(block.columns[id_column])]
            yield InputBlock(reader.finish(), ids, block.location)

    return UnlabelledRows(table.path, blocks, lambda: sum(len(block.numbers) for block in table.blocks(columns[:1])))


def line_rows(path: str | Path, *, encoding: str = "utf-8") -> UnlabelledRows:
    r"""Lines of a text file, compressed or not, each a text; empty ones too, so that rows are lines.

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
        while chunk := list(islice(lines, _LINES)):
            first = chunk[0][0]
            yield InputBlock(
                Texts([line for _, line in chunk]), None, lambda row, first=first: f"`{path}` line {first + row}"
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
    kept: Inputs | None = array_inputs(path, features=features, usual=usual)
    count, step = len(kept), len(kept)
    if isinstance(kept, Features) and isinstance(kept.array, np.memmap):
        # Pages of a mapped file count as memory of the process until it is unmapped: each block maps it anew.
        step, kept = max(1, _MAPPED_BYTES * count // max(kept.array.nbytes, 1)), None

    def blocks() -> Iterator[InputBlock]:
        for start in range(0, count, max(step, 1)):
            inputs = array_inputs(path, features=features, usual=usual) if kept is None else kept
            part = inputs.take(torch.arange(start, min(start + step, count)))
            yield InputBlock(part, None, lambda row, start=start: f"`{path}` row {start + row}")

    return UnlabelledRows(Path(path), blocks, lambda: count)


def image_rows(path: str | Path, *, size: int | tuple[int, int] | None = None) -> UnlabelledRows:
    """Image files: one, or all below a folder, sorted by path; their paths name the rows.

    Args:
        path: the file or the folder. Hidden files, and files without an image ending, are skipped.
        size: as in `ImageFiles`.

    Raises:
        InputError: names a missing path, or a folder without images.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"`{path}` does not exist.")
    folders = [(str(path.parent), [path.name])] if path.is_file() else list(_images_below(path))
    inputs = ImageFiles(PathList(folders), size=size)
    if not len(inputs):
        raise InputError(f"`{path}` holds no images.")
    names = FileNames(inputs, path.parent if path.is_file() else path)
    return UnlabelledRows(
        path, lambda: iter([InputBlock(inputs, names, lambda row: f"`{inputs.path(row)}`")]), lambda: len(inputs)
    )


class FileNames(Sequence[str]):
    """The paths of image files below a folder, made on request."""

    def __init__(self, files: ImageFiles, root: Path) -> None:
        self._files, self._root = files, root

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._files)

    def __getitem__(self, row: Any) -> Any:
        """The path of one file, with slashes on every system."""
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        path = self._files.path(row)
        return (path.relative_to(self._root) if path.is_relative_to(self._root) else path).as_posix()


def _images_below(root: Path) -> Iterator[tuple[str, list[str]]]:
    def fail(error: OSError) -> None:
        raise InputError(f"`{error.filename}` cannot be listed: {error.strerror}.") from error

    for folder, inner, files in os.walk(root, onerror=fail):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__MACOSX")))
        yield folder, sorted(name for name in files if name[0] != "." and name.lower().endswith(IMAGE_ENDINGS))

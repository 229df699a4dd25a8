"""The text format of the Extreme Classification Repository: its folders, splits, matrices and label names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PART_PATTERN, PARTS, by_part, part_name
from shortlist.data.files.text_files import need_file, text_lines
from shortlist.data.files.vocabularies import distinct_names, numbered_names
from shortlist.data.formats.extreme_rows import (
    Layout,
    RowBlock,
    join_blocks,
    read_layout,
    read_matrix_layout,
    row_blocks,
    row_tensors,
)
from shortlist.data.groups import Groups
from shortlist.data.inputs import SparseRows
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError
from shortlist.tensors import check_size

_PART = re.compile(rf"(?:.*[_-])?({PART_PATTERN})\.txt(?:\.gz)?", re.IGNORECASE)
_DATA = re.compile(r"(.*)[_-]data\.txt(?:\.gz)?", re.IGNORECASE)
_MATRIX = re.compile(r"([a-z]+)_X_Y\.txt(?:\.gz)?", re.IGNORECASE)
_FOLD_ENDINGS = {"train": "_trsplit.txt", "test": "_tstsplit.txt"}
_DTYPES = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


class TextChunk(NamedTuple):
    """Some consecutive rows of a file."""

    first_row: int
    inputs: SparseRows
    targets: Tensor  # (rows, n) sparse CSR


def read_extreme_text(
    path: str | Path,
    *,
    test: str | Path | None = None,
    fold: int | None = None,
    num_features: int | None = None,
    num_labels: int | None = None,
    names_file: str | Path | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dataset:
    r"""Read a dataset of the Extreme Classification Repository.

    The first line is ``rows features labels``; every other line is a row, ``label,label,... index:value index:value
    ...`` with indices from 0. A row without labels begins with a blank (or directly with a feature), an empty line is a
    row without anything, and empty lines after the last row are ignored. Files that end in ``.gz`` are decompressed on
    the fly. Labels and features of a row may come in any order; they are sorted.

    A folder has one of these layouts::

        train.txt, test.txt                    or name_train.txt and so on, optionally with a validation part
        Name_data.txt                          all rows in one file, and the row numbers, from 1, of the training and
        name_trSplit.txt, name_tstSplit.txt    the test rows; each column of these files is a split of its own
        trn_X_Xf.txt, trn_X_Y.txt              features and labels as matrices: ``rows columns`` in the first line, then
        tst_X_Xf.txt, tst_X_Y.txt              ``column:value column:value ...``; labels have the value 1
        Y.txt                                  optionally with these: the name of each label on its own line

    Features of labels (``lbl_X_Xf.txt``, ``Y_Yf.txt``) and raw texts are not read.

    Args:
        path: a file of rows, or a folder. The split files beside a ``name_data.txt`` are read too.
        test: the file of the test rows, which follow those of ``path``.
        fold: which column of the split files, from 1; None for the first, if there are split files.
        num_features, num_labels: for the older layout without a first line, which needs both; elsewhere they must agree
            with the file.
        names_file: a UTF-8 file with the name of each label on its own line; repeated names get the number of the
            label appended. By default labels are called ``0``, ``1`` and so on.
        dtype: of the features, float32 or float64; each value is Python's ``float`` of the text, rounded to this type.

    Returns:
        Sparse features and sparse targets in memory, with a split if there are several files. Rows that a split does
        not list belong to no part.

    Raises:
        InputError: names the file and the line that breaks a rule: another number of rows than stated, an index out of
            bounds or repeated in a row, a malformed or infinite number, a missing colon.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "train.txt").write_text("2 4 3\n0,2 1:0.5 3:2\n 0:1e0\n")
        ...     tags = read_extreme_text(f"{folder}/train.txt")
        >>> tags[0].labels, tags.batch([0, 1]).inputs.to_dense()
        (('0', '2'), tensor([[0.0000, 0.5000, 0.0000, 2.0000],
                             [1.0000, 0.0000, 0.0000, 0.0000]]))

    References:
        Bhatia et al., "The extreme classification repository: multi-label datasets and code", 2016.
    """
    number_type = _number_type(dtype)
    path = Path(path)
    name = path.resolve().name.removesuffix(".gz").removesuffix(".txt")
    matrices = _matrix_files(path) if path.is_dir() else {}
    if matrices:
        for argument, value in (("test", test), ("fold", fold)):
            if value is not None:
                raise InputError(f"`{argument}` must be None for the matrices in `{path}`; got {value!r}.")
        inputs, targets, sizes = _read_matrices(matrices, num_features, num_labels, number_type)
        beside = path / "Y.txt"
        names_file = beside if names_file is None and beside.is_file() else names_file
        names = _label_names(names_file, targets.shape[1], f"`{next(iter(matrices.values())).labels}` line 1")
        return Dataset(inputs, targets, names, split=Groups.of_sizes(sizes, list(matrices)), name=name)
    files = _files(path, test)
    train = next(iter(files.values()))
    folds = _fold_files(train) if len(files) == 1 else None
    if fold is not None and folds is None:
        raise InputError(f"`fold` must be None, since `{path}` has no split files; got {fold!r}.")
    layout = read_layout(train, num_features, num_labels)
    names = _label_names(names_file, layout.num_labels, f"`{train}` line 1")
    blocks: list[RowBlock] = []
    sizes = []
    for file in files.values():
        own = layout if file == train else read_layout(file, layout.num_features, layout.num_labels)
        before = len(blocks)
        blocks.extend(row_blocks(file, own, number_type))
        sizes.append(sum(len(block.counts) for block in blocks[before:]))
    inputs, targets = row_tensors(join_blocks(blocks, layout, number_type), layout)
    split = None if len(files) == 1 else Groups.of_sizes(sizes, list(files))
    if folds is not None:
        split = _read_fold(folds, 1 if fold is None else fold, len(inputs))
    return Dataset(inputs, targets, names, split=split, name=name)


def stream_extreme_text(
    path: str | Path,
    *,
    rows_per_chunk: int = 8192,
    num_features: int | None = None,
    num_labels: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Iterator[TextChunk]:
    r"""Read one file of the Extreme Classification Repository in chunks of rows, in constant memory.

    Args:
        path: a file as in `read_extreme_text`, compressed or not.
        rows_per_chunk: rows of each chunk; the last one may have fewer.
        num_features, num_labels, dtype: as in `read_extreme_text`.

    Yields:
        The number of the first row, the features, and the labels as sparse CSR.

    Raises:
        InputError: as `read_extreme_text`, but only when the bad line is reached, after the chunks before it; too few
            rows show at the end of the file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "all.txt").write_text("3 2 2\n0 1:1\n1 1:2\n0,1 0:3\n")
        ...     for chunk in stream_extreme_text(f"{folder}/all.txt", rows_per_chunk=2):
        ...         chunk.first_row, len(chunk.inputs)
        (0, 2)
        (2, 1)
    """
    check_size("rows_per_chunk", rows_per_chunk, error=InputError)
    number_type = _number_type(dtype)
    path = need_file(path)
    layout = read_layout(path, num_features, num_labels)
    return _chunks(row_blocks(path, layout, number_type), layout, rows_per_chunk, number_type)


def _chunks(blocks: Iterator[RowBlock], layout: Layout, size: int, dtype: np.dtype) -> Iterator[TextChunk]:
    row, waiting = 0, 0
    pending: list[RowBlock] = []
    for block in blocks:
        pending.append(block)
        waiting += len(block.counts)
        if waiting < size:
            continue
        joined = join_blocks(pending, layout, dtype)
        for first in range(0, waiting - size + 1, size):
            yield TextChunk(row, *row_tensors(joined.rows(first, first + size), layout))
            row += size
        pending, waiting = [joined.rows(waiting - waiting % size, waiting)], waiting % size
    if waiting:
        yield TextChunk(row, *row_tensors(join_blocks(pending, layout, dtype), layout))


def _files(path: Path, test: str | Path | None) -> dict[str, Path]:
    """The file of each part, in the order of the parts; a single one has all rows."""
    if not path.is_dir():
        return {"train": need_file(path)} | ({} if test is None else {"test": need_file(test)})
    if test is not None:
        raise InputError(f"`test` must be None if `path` is a folder; got `{test}`.")
    found: dict[str, list[Path]] = {part: [] for part in PARTS}
    whole = []
    for file in sorted(file for file in path.iterdir() if file.is_file()):
        part = _PART.fullmatch(file.name)
        if part:
            found[part_name(part[1])].append(file)
        elif _DATA.fullmatch(file.name):
            whole.append(file)
    if len(whole) == 1 and not any(found.values()):
        return {"train": whole[0]}
    for part, files in found.items():
        if len(files) > 1 or (not files and part != "val"):
            raise InputError(
                f"`{path}` must hold one file that is or ends in _{part}.txt (or .txt.gz); "
                f"got {', '.join(file.name for file in files) or 'none'}."
            )
    return {part: files[0] for part, files in found.items() if files}


def _label_names(names_file: str | Path | None, num_labels: int, where: str) -> tuple[str, ...]:
    if names_file is None:
        return numbered_names(num_labels, where)
    listed = [text for _, text in text_lines(names_file)]
    while len(listed) > num_labels and not listed[-1]:
        listed.pop()
    if len(listed) != num_labels:
        raise InputError(f"`{names_file}` must have a line for each of {num_labels} labels; got {len(listed)}.")
    return distinct_names(listed, range(num_labels))


def _number_type(dtype: torch.dtype) -> np.dtype:
    if dtype not in _DTYPES:
        raise TypeError(f"`dtype` must be torch.float32 or torch.float64; got {dtype}.")
    return _DTYPES[dtype]


def _fold_files(data: Path) -> dict[str, Path] | None:
    """The split files beside a ``Name_data.txt``, ``name_trSplit.txt`` and ``name_tstSplit.txt``; None without them."""
    name = _DATA.fullmatch(data.name)
    if name is None:
        return None
    beside = {file.name.lower(): file for file in sorted(data.parent.iterdir())}  # Published names differ in case.
    found = {part: beside.get(name[1].lower() + ending) for part, ending in _FOLD_ENDINGS.items()}
    files = {part: file for part, file in found.items() if file is not None}
    if len(files) == 1:
        raise InputError(f"`{data}` must have both split files beside it; got `{next(iter(files.values()))}`.")
    return files or None


def _read_fold(files: dict[str, Path], fold: int, rows: int) -> Groups:
    """The split in one column of the split files, whose lines hold one row number, from 1, per split."""
    check_size("fold", fold, error=InputError)
    part_of = np.full(rows, -1, dtype=np.int64)
    for part, file in enumerate(files.values()):
        width = None
        for number, line in text_lines(file):
            cells = line.split()
            if not cells:
                continue
            where, width = f"`{file}` line {number}", width or len(cells)
            if len(cells) != width:
                raise InputError(f"{where}: must have {width} numbers, like the lines before; got {len(cells)}.")
            if fold > width:
                raise InputError(f"{where}: has {width} splits, so `fold` must lie in [1, {width}]; got {fold}.")
            cell = cells[fold - 1]
            row = int(cell) - 1 if cell.isascii() and cell.isdecimal() and len(cell) < 19 else -1
            if not 0 <= row < rows:
                raise InputError(f"{where}: must be the number of a row, in [1, {rows}]; got {cell!r:.40}.")
            if part_of[row] >= 0:
                other = list(files.values())[part_of[row]].name
                raise InputError(f"{where}: row {row + 1} must be listed once; it is also in `{other}`.")
            part_of[row] = part
    return Groups(torch.from_numpy(part_of), tuple(files))


class _MatrixFiles(NamedTuple):
    """The two files of a part."""

    features: Path
    labels: Path


def _matrix_files(folder: Path) -> dict[str, _MatrixFiles]:
    """``trn_X_Xf.txt``, ``trn_X_Y.txt`` and so on, by part and in the order of the parts."""
    named = ((file, _MATRIX.fullmatch(file.name)) for file in sorted(folder.iterdir()) if file.is_file())
    spelled = {file: name[1] for file, name in named if name and part_name(name[1]) in PARTS}
    files = {}
    for part, labels in by_part(((part_name(name), file) for file, name in spelled.items()), f"`{folder}`").items():
        stem = f"{spelled[labels]}_X_Xf.txt"
        packed = folder / f"{stem}.gz"
        files[part] = _MatrixFiles(packed if packed.is_file() else need_file(folder / stem), labels)
    return files


def _read_matrices(
    parts: dict[str, _MatrixFiles], num_features: int | None, num_labels: int | None, dtype: np.dtype
) -> tuple[SparseRows, Tensor, list[int]]:
    """Features and labels of all parts, one after the other, and the number of rows of each."""
    blocks: list[RowBlock] = []
    rows, labels, sizes = [], [], []
    width, label_width = num_features, num_labels
    for files in parts.values():
        layout, label_layout = (read_matrix_layout(file) for file in files)
        width = layout.num_features if width is None else width
        label_width = label_layout.num_features if label_width is None else label_width
        for file, own, expected in zip(files, (layout, label_layout), (width, label_width), strict=True):
            if own.num_features != expected:
                raise InputError(f"`{file}` line 1 says {own.num_features} columns; it must be {expected}.")
        if layout.rows != label_layout.rows:
            raise InputError(f"`{files.labels}` line 1 says {label_layout.rows} rows; it must be {layout.rows}.")
        blocks.extend(row_blocks(files.features, layout, dtype))
        row, label = _read_label_matrix(files.labels, label_layout)
        rows.append(row + sum(sizes))
        labels.append(label)
        sizes.append(layout.rows or 0)
    layout = Layout(None, width or 0, 0, 1)
    inputs, _ = row_tensors(join_blocks(blocks, layout, dtype), layout)
    targets = sparse_targets(np.concatenate(rows), np.concatenate(labels), len(inputs), label_width or 0)
    return inputs, targets, sizes


def _read_label_matrix(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Row and label of each 1 of a matrix."""
    dtype = np.dtype(np.float32)
    block = join_blocks(list(row_blocks(path, layout, dtype)), layout, dtype)
    rows = np.repeat(np.arange(len(block.counts)), block.counts)
    wrong = np.flatnonzero((block.values != 0) & (block.values != 1))
    if len(wrong):
        row, label, value = rows[wrong[0]], block.columns[wrong[0]], block.values[wrong[0]]
        raise InputError(f"`{path}` line {row + 2}: label {label} must have the value 1 or 0; got {value:g}.")
    present = block.values == 1
    return rows[present], block.columns[present].astype(np.int64)

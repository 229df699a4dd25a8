"""The text format of the Extreme Classification Repository: sparse features and sparse labels, a row per line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, SPELLINGS, part_name
from shortlist.data.files.text_files import need_file, text_lines
from shortlist.data.files.vocabularies import number_names
from shortlist.data.formats.extreme_blocks import Layout, read_layout
from shortlist.data.formats.extreme_folds import fold_files, read_fold
from shortlist.data.formats.extreme_lines import RowBlock, join_blocks
from shortlist.data.formats.extreme_matrices import matrix_files, read_matrices
from shortlist.data.formats.extreme_rows import join_rows, row_blocks, row_tensors
from shortlist.data.groups import Groups
from shortlist.data.sparse_rows import SparseRows

_PART = re.compile(
    rf"(?:.*[_-])?({'|'.join(name for names in SPELLINGS.values() for name in names)})\.txt(?:\.gz)?", re.IGNORECASE
)
_DATA = re.compile(r".*[_-]data\.txt(?:\.gz)?", re.IGNORECASE)
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

    The first line is ``rows features labels``; each further line is a row, ``label,label,... index:value index:value
    ...`` with indices from 0. A row without labels begins with a blank (or at once with a feature), an empty line is a
    row without anything, and empty lines after the last row are none. Files that end in ``.gz`` are unpacked on the
    way. Labels and features of a row may come in any order and are sorted.

    A folder holds one of these layouts::

        train.txt, test.txt                    or name_train.txt and so on, perhaps with a part for validation
        Name_data.txt                          all rows, in one file, and which of them, from 1, are for training and
        name_trSplit.txt, name_tstSplit.txt    for testing; each column of these is a split of its own
        trn_X_Xf.txt, trn_X_Y.txt              features and labels as matrices: ``rows columns`` in the first line, then
        tst_X_Xf.txt, tst_X_Y.txt              ``column:value column:value ...``; labels have the value 1
        Y.txt                                  with these, perhaps: the name of each label on a line of its own

    Features of labels (``lbl_X_Xf.txt``, ``Y_Yf.txt``) and raw texts are not read.

    Args:
        path: a file of rows, or a folder. Of a ``name_data.txt``, the split that lies beside it is read, too.
        test: the file of the test rows, which come after those of ``path``.
        fold: which column of the files of splits, from 1; None for the first, if there are such files.
        num_features, num_labels: for the older layout without a first line; both are needed there, and elsewhere they
            must agree with the file.
        names_file: a file with the name of each label on a line of its own, in UTF-8; names that repeat get the number
            of the label appended. By default labels are called ``0``, ``1`` and so on.
        dtype: of the features, float32 or float64; each is what Python's ``float`` makes of the text, rounded to this.

    Returns:
        Sparse features and sparse targets, held in memory; with a split if there are several files. Rows that a split
        does not list have no part.

    Raises:
        ValueError: names file and line where a rule is broken: a row count other than stated, an index out of bounds or
            twice in a row, a broken or infinite number, a missing colon.

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
    matrices = matrix_files(path) if path.is_dir() else {}
    if matrices:
        for argument, value in (("test", test), ("fold", fold)):
            if value is not None:
                raise ValueError(f"`{argument}` must be None for the matrices in `{path}`; got {value!r}.")
        inputs, targets, sizes = read_matrices(matrices, num_features, num_labels, number_type)
        beside = path / "Y.txt"
        names_file = beside if names_file is None and beside.is_file() else names_file
        names = _label_names(names_file, targets.shape[1], f"`{next(iter(matrices.values())).labels}` line 1")
        return Dataset(inputs, targets, names, split=_split(list(matrices), sizes), name=_plain_name(path))
    files = _files(path, test)
    train = next(iter(files.values()))
    folds = fold_files(train) if len(files) == 1 else None
    if fold is not None and folds is None:
        raise ValueError(f"`fold` must be None, since `{path}` has no files of splits; got {fold!r}.")
    layout = read_layout(train, num_features, num_labels)
    names = _label_names(names_file, layout.num_labels, f"`{train}` line 1")
    blocks: list[RowBlock] = []
    sizes = []
    for file in files.values():
        own = layout if file == train else read_layout(file, layout.num_features, layout.num_labels)
        before = len(blocks)
        blocks.extend(row_blocks(file, own, number_type))
        sizes.append(sum(len(block.counts) for block in blocks[before:]))
    inputs, targets = row_tensors(join_rows(blocks, layout, number_type), layout)
    split = None if len(files) == 1 else _split(list(files), sizes)
    if folds is not None:
        split = read_fold(folds, 1 if fold is None else fold, len(inputs))
    return Dataset(inputs, targets, names, split=split, name=_plain_name(path))


def stream_extreme_text(
    path: str | Path,
    *,
    rows_per_chunk: int = 8192,
    num_features: int | None = None,
    num_labels: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Iterator[TextChunk]:
    r"""Read one file of the Extreme Classification Repository some rows at a time, in memory that does not grow.

    Args:
        path: a file as in `read_extreme_text`, ``.gz`` included.
        rows_per_chunk: rows of each chunk but the last, which may have fewer.
        num_features, num_labels, dtype: as in `read_extreme_text`.

    Yields:
        The number of the first row, the features, and the labels as sparse CSR.

    Raises:
        ValueError: as `read_extreme_text`, but only when the bad line is reached: chunks before it have been given, and
            that a file has fewer rows than it states shows at its end.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "all.txt").write_text("3 2 2\n0 1:1\n1 1:2\n0,1 0:3\n")
        ...     for chunk in stream_extreme_text(f"{folder}/all.txt", rows_per_chunk=2):
        ...         chunk.first_row, len(chunk.inputs)
        (0, 2)
        (2, 1)
    """
    if rows_per_chunk < 1:
        raise ValueError(f"`rows_per_chunk` must be at least 1; got {rows_per_chunk}.")
    number_type = _number_type(dtype)
    path = need_file(path)
    layout = read_layout(path, num_features, num_labels)
    return _chunks(row_blocks(path, layout, number_type), layout, rows_per_chunk)


def _chunks(blocks: Iterator[RowBlock], layout: Layout, size: int) -> Iterator[TextChunk]:
    row, waiting = 0, 0
    held: list[RowBlock] = []
    for block in blocks:
        held.append(block)
        waiting += len(block.counts)
        if waiting < size:
            continue
        joined = join_blocks(held)
        for first in range(0, waiting - size + 1, size):
            yield TextChunk(row, *row_tensors(joined.part(first, first + size), layout))
            row += size
        held, waiting = [joined.part(waiting - waiting % size, waiting)], waiting % size
    if waiting:
        yield TextChunk(row, *row_tensors(join_blocks(held), layout))


def _split(parts: list[str], sizes: list[int]) -> Groups:
    return Groups(torch.arange(len(parts)).repeat_interleave(torch.tensor(sizes)), tuple(parts))


def _files(path: Path, test: str | Path | None) -> dict[str, Path]:
    """The file of each part, in their order; a single one has all rows."""
    if not path.is_dir():
        return {"train": need_file(path)} | ({} if test is None else {"test": need_file(test)})
    if test is not None:
        raise ValueError(f"`test` must be None where `path` is a folder; got `{test}`.")
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
            raise ValueError(
                f"`{path}` must hold one file that is or ends in _{part}.txt (or .txt.gz); "
                f"got {', '.join(file.name for file in files) or 'none'}."
            )
    return {part: files[0] for part, files in found.items() if files}


def _label_names(names_file: str | Path | None, num_labels: int, place: str) -> tuple[str, ...]:
    if names_file is None:
        return number_names(num_labels, place)
    listed = [text for _, text in text_lines(names_file, encoding="utf-8-sig")]
    while len(listed) > num_labels and not listed[-1]:
        listed.pop()
    if len(listed) != num_labels:
        raise ValueError(f"`{names_file}` must have a line for each of {num_labels} labels; got {len(listed)}.")
    counts = Counter(listed)
    return tuple(f"{name} ({label})" if counts[name] > 1 else name for label, name in enumerate(listed))


def _number_type(dtype: torch.dtype) -> np.dtype:
    if dtype not in _DTYPES:
        raise TypeError(f"`dtype` must be torch.float32 or torch.float64; got {dtype}.")
    return _DTYPES[dtype]


def _plain_name(path: Path) -> str:
    return path.resolve().name.removesuffix(".gz").removesuffix(".txt")

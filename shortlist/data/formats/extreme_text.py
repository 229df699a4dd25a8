"""The text format of the Extreme Classification Repository: sparse features and sparse labels, a row per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.formats.extreme_blocks import Layout, read_layout, text_blocks
from shortlist.data.formats.extreme_lines import RowBlock, column_type, join_blocks, parse_lines
from shortlist.data.formats.extreme_parse import parse_block
from shortlist.data.groups import Groups
from shortlist.data.source_files import need_file, need_folder, text_lines
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.target_rows import csr

_PART = re.compile(r"(?:.*[_-])?(train|test)\.txt(?:\.gz)?", re.IGNORECASE)
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
    num_features: int | None = None,
    num_labels: int | None = None,
    names: str | Path | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dataset:
    r"""Read a dataset of the Extreme Classification Repository.

    The first line is ``rows features labels``; each further line is a row, ``label,label,... index:value index:value
    ...`` with indices from 0. A row without labels begins with a blank (or at once with a feature), an empty line is a
    row without anything, and empty lines after the last row are none. Files that end in ``.gz`` are unpacked on the
    way. Labels and features of a row may come in any order and are sorted.

    Args:
        path: a file; or a folder with a ``train.txt`` (or ``..._train.txt``) and a ``test.txt`` likewise.
        test: the file of the test rows, which come after those of ``path``.
        num_features, num_labels: for the older layout without a first line; both are needed there, and elsewhere they
            must agree with the file.
        names: a file with the name of each label on a line of its own, in UTF-8; by default labels are called
            ``0``, ``1`` and so on.
        dtype: of the features, float32 or float64; each is what Python's ``float`` makes of the text, rounded to this.

    Returns:
        Sparse features and sparse targets, held in memory; with a split if there are two files.

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
    train, test = _files(path, test)
    layout = read_layout(train, num_features, num_labels)
    parts = [_row_blocks(train, layout, number_type)]
    if test is not None:
        other = read_layout(test, layout.num_features, layout.num_labels)
        parts.append(_row_blocks(test, other, number_type))
    blocks: list[RowBlock] = []
    sizes = []
    for part in parts:
        before = len(blocks)
        blocks.extend(part)
        sizes.append(sum(len(block.counts) for block in blocks[before:]))
    inputs, targets = _tensors(join_blocks(blocks or [_no_rows(layout, number_type)]), layout)
    return Dataset(
        inputs,
        targets,
        _label_names(names, layout.num_labels),
        split=None
        if test is None
        else Groups(torch.arange(2).repeat_interleave(torch.tensor(sizes)), ("train", "test")),
        name=_plain_name(Path(path)),
    )


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
    return _chunks(_row_blocks(path, layout, number_type), layout, rows_per_chunk)


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
            yield TextChunk(row, *_tensors(joined.part(first, first + size), layout))
            row += size
        held, waiting = [joined.part(waiting - waiting % size, waiting)], waiting % size
    if waiting:
        yield TextChunk(row, *_tensors(join_blocks(held), layout))


def _row_blocks(path: Path, layout: Layout, dtype: np.dtype) -> Iterator[RowBlock]:
    """Parsed rows of one file; ValueError for the first bad line and for a wrong count of rows."""
    rows = 0
    bounds = layout.num_features, layout.num_labels, dtype
    for buffer, start, stop in text_blocks(path, layout.header_lines):
        block = parse_block(buffer, start, stop, *bounds)
        line = 1 + layout.header_lines + rows
        if block is None:
            block = parse_lines(buffer[start:stop].tobytes(), *bounds, path=path, line=line)
        if layout.rows is not None and rows + len(block.counts) > layout.rows:
            filled = np.flatnonzero(block.counts + block.label_counts)
            last = int(filled[-1]) + 1 if len(filled) else 0
            if rows + last > layout.rows:
                first = line + int(filled[np.searchsorted(filled, layout.rows - rows)])
                raise ValueError(f"`{path}` line {first}: the first line says {layout.rows} rows; got more.")
            block = block.part(0, layout.rows - rows)
        rows += len(block.counts)
        yield block
    if layout.rows is not None and rows < layout.rows:
        raise ValueError(f"`{path}` ends after {rows} rows; its first line says {layout.rows}.")


def _tensors(block: RowBlock, layout: Layout) -> tuple[SparseRows, Tensor]:
    crow, label_crow = (
        torch.from_numpy(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)]))
        for counts in (block.counts, block.label_counts)
    )
    columns, values = torch.from_numpy(block.columns), torch.from_numpy(block.values)
    inputs = SparseRows(crow, columns, values, layout.num_features)
    labels = torch.from_numpy(block.labels)
    return inputs, csr(label_crow, labels, torch.ones(len(labels)), layout.num_labels)


def _no_rows(layout: Layout, dtype: np.dtype) -> RowBlock:
    none = np.empty(0, dtype=np.int64)
    return RowBlock(none, none, none, none.astype(column_type(layout.num_features)), none.astype(dtype))


def _files(path: str | Path, test: str | Path | None) -> tuple[Path, Path | None]:
    if not Path(path).is_dir():
        return need_file(path), None if test is None else need_file(test)
    folder = need_folder(path)
    if test is not None:
        raise ValueError(f"`test` must be None where `path` is a folder; got `{test}`.")
    found: dict[str, list[Path]] = {"train": [], "test": []}
    for file in sorted(folder.iterdir()):
        part = _PART.fullmatch(file.name)
        if part and file.is_file():
            found[part[1].lower()].append(file)
    for part, files in found.items():
        if len(files) != 1:
            raise ValueError(
                f"`{folder}` must hold one file that is or ends in _{part}.txt (or .txt.gz); "
                f"got {', '.join(file.name for file in files) or 'none'}."
            )
    return found["train"][0], found["test"][0]


def _label_names(names: str | Path | None, num_labels: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(num_labels)))
    listed = [text for _, text in text_lines(names, encoding="utf-8-sig")]
    while len(listed) > num_labels and not listed[-1]:
        listed.pop()
    if len(listed) != num_labels:
        raise ValueError(f"`{names}` must have a line for each of {num_labels} labels; got {len(listed)}.")
    seen: dict[str, int] = {}
    for line, name in enumerate(listed, start=1):
        if seen.setdefault(name, line) != line:
            raise ValueError(f"`{names}` line {line}: label names must differ; {name!r} is also on line {seen[name]}.")
    return tuple(listed)


def _number_type(dtype: torch.dtype) -> np.dtype:
    if dtype not in _DTYPES:
        raise TypeError(f"`dtype` must be torch.float32 or torch.float64; got {dtype}.")
    return _DTYPES[dtype]


def _plain_name(path: Path) -> str:
    return path.resolve().name.removesuffix(".gz").removesuffix(".txt")

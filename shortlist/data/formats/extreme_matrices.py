"""Features and labels of the Extreme Classification Repository as two sparse matrices in text for each part."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from shortlist.data.files.part_names import PARTS, part_name
from shortlist.data.files.text_files import need_file
from shortlist.data.formats.extreme_blocks import Layout, read_matrix_layout
from shortlist.data.formats.extreme_lines import RowBlock
from shortlist.data.formats.extreme_rows import join_rows, row_blocks, row_tensors
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.target_rows import sparse_targets

_MATRIX = re.compile(r"([a-z]+)_X_Y\.txt(?:\.gz)?", re.IGNORECASE)


class MatrixFiles(NamedTuple):
    """The two files of a part."""

    features: Path
    labels: Path


def matrix_files(folder: Path) -> dict[str, MatrixFiles]:
    """The files ``trn_X_Xf.txt`` and ``trn_X_Y.txt`` and their like of each part, in the order of the parts.

    Raises:
        ValueError: for labels without features, or two files for one part.
    """
    found: dict[str, MatrixFiles] = {}
    for labels in sorted(folder.iterdir()):
        name = _MATRIX.fullmatch(labels.name)
        part = part_name(name[1]) if name and labels.is_file() else ""
        if name is None or part not in PARTS:
            continue
        if part in found:
            raise ValueError(f"`{folder}` must hold one file of the part {part!r}; got `{labels.name}` and another.")
        stem = f"{name[1]}_X_Xf.txt"
        packed = folder / f"{stem}.gz"
        found[part] = MatrixFiles(packed if packed.is_file() else need_file(folder / stem), labels)
    return {part: found[part] for part in PARTS if part in found}


def read_matrices(
    parts: dict[str, MatrixFiles], num_features: int | None, num_labels: int | None, dtype: np.dtype
) -> tuple[SparseRows, Tensor, list[int]]:
    """Read all parts, one after the other.

    Args:
        parts: their files.
        num_features, num_labels: what the files must say; None for anything.
        dtype: of the features.

    Returns:
        Features, labels, and how many rows each part has.
    """
    blocks: list[RowBlock] = []
    rows, labels, sizes = [], [], []
    first: tuple[Layout, Layout] | None = None
    for files in parts.values():
        layout, label_layout = (read_matrix_layout(file) for file in files)
        first = first or (layout, label_layout)
        for file, own, like, asked in zip(
            files, (layout, label_layout), first, (num_features, num_labels), strict=True
        ):
            wanted = like.num_features if asked is None else asked
            if own.num_features != wanted:
                raise ValueError(f"`{file}` line 1 says {own.num_features} columns; it must be {wanted}.")
        if layout.rows != label_layout.rows:
            raise ValueError(f"`{files.labels}` line 1 says {label_layout.rows} rows; it must be {layout.rows}.")
        blocks.extend(row_blocks(files.features, layout, dtype))
        row, label = _present(files.labels, label_layout)
        rows.append(row + sum(sizes))
        labels.append(label)
        sizes.append(layout.rows or 0)
    if first is None:
        raise ValueError("`parts` must hold at least one part; got none.")
    inputs, _ = row_tensors(join_rows(blocks, first[0], dtype), first[0])
    joined = np.concatenate(rows), np.concatenate(labels)
    return inputs, sparse_targets(*joined, len(inputs), first[1].num_features), sizes


def _present(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Row and label of each 1 of a matrix."""
    block = join_rows(list(row_blocks(path, layout, np.dtype(np.float32))), layout, np.dtype(np.float32))
    rows = np.repeat(np.arange(len(block.counts)), block.counts)
    wrong = np.flatnonzero((block.values != 0) & (block.values != 1))
    if len(wrong):
        row, label, value = rows[wrong[0]], block.columns[wrong[0]], block.values[wrong[0]]
        raise ValueError(f"`{path}` line {row + 2}: label {label} must have the value 1 or 0; got {value:g}.")
    present = block.values == 1
    return rows[present], block.columns[present].astype(np.int64)

"""Rows of one file of the extreme-classification text format: read block by block, counted, made tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shortlist.data.formats.extreme_blocks import Layout, text_blocks
from shortlist.data.formats.extreme_lines import RowBlock, column_type, join_blocks, parse_lines
from shortlist.data.formats.extreme_parse import parse_block
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.target_rows import csr


def row_blocks(path: Path, layout: Layout, dtype: np.dtype) -> Iterator[RowBlock]:
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


def row_tensors(block: RowBlock, layout: Layout) -> tuple[SparseRows, Tensor]:
    """The features and the labels of some rows."""
    crow, label_crow = (
        torch.from_numpy(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)]))
        for counts in (block.counts, block.label_counts)
    )
    columns, values = torch.from_numpy(block.columns), torch.from_numpy(block.values)
    inputs = SparseRows(crow, columns, values, layout.num_features)
    labels = torch.from_numpy(block.labels)
    return inputs, csr(label_crow, labels, torch.ones(len(labels)), layout.num_labels)


def join_rows(blocks: list[RowBlock], layout: Layout, dtype: np.dtype) -> RowBlock:
    """As `join_blocks`, also of no blocks at all."""
    return join_blocks(blocks or [_no_rows(layout, dtype)])


def _no_rows(layout: Layout, dtype: np.dtype) -> RowBlock:
    none = np.empty(0, dtype=np.int64)
    return RowBlock(none, none, none, none.astype(column_type(layout.num_features)), none.astype(dtype))

"""Rows of the extreme-classification text format, parsed line by line: slow, and exact about what is wrong."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
"""How a value may be written."""

_INDEX = re.compile(rb"\d{1,18}")
_BLANKS = re.compile(rb"[ \t\r]+")


class RowBlock(NamedTuple):
    """Consecutive rows; labels and columns ascend within a row."""

    label_counts: np.ndarray  # (rows,) int64
    labels: np.ndarray  # int64
    counts: np.ndarray  # (rows,) int64, features of each row
    columns: np.ndarray  # int32, or int64 where int32 is too small
    values: np.ndarray

    def part(self, first: int, last: int) -> RowBlock:
        """Rows from ``first`` up to but without ``last``; nothing is copied."""
        a, b = self.label_counts[:first].sum(), self.label_counts[:last].sum()
        c, d = self.counts[:first].sum(), self.counts[:last].sum()
        rows = slice(first, last)
        return RowBlock(
            self.label_counts[rows], self.labels[a:b], self.counts[rows], self.columns[c:d], self.values[c:d]
        )


def join_blocks(blocks: list[RowBlock]) -> RowBlock:
    """Blocks one after the other; empties the list, so that no part is held twice for longer than needed."""
    fields = [list(field) for field in zip(*blocks, strict=True)]
    blocks.clear()
    joined = []
    while fields:
        joined.append(np.concatenate(fields.pop(0)))
    return RowBlock(*joined)


def column_type(num_features: int) -> np.dtype:
    """The smallest of int32 and int64 that numbers so many columns."""
    return np.dtype(np.int32 if num_features <= 2**31 else np.int64)


def parse_lines(
    text: bytes, num_features: int, num_labels: int, dtype: np.dtype, *, path: object, line: int
) -> RowBlock:
    """Parse whole lines one by one, slowly; ValueError names the line, of which the first has the number ``line``."""
    labels: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    label_counts: list[int] = []
    counts: list[int] = []
    for number, content in enumerate(text.removesuffix(b"\n").split(b"\n"), start=line):
        try:
            row_labels, row = _parse_line(content, num_features, num_labels, dtype)
        except ValueError as error:
            raise ValueError(f"`{path}` line {number}: {error}") from None
        labels += sorted(row_labels)
        columns += sorted(row)
        values += [row[column] for column in sorted(row)]
        label_counts.append(len(row_labels))
        counts.append(len(row))
    return RowBlock(
        np.array(label_counts, dtype=np.int64),
        np.array(labels, dtype=np.int64),
        np.array(counts, dtype=np.int64),
        np.array(columns, dtype=column_type(num_features)),
        np.array(values, dtype=np.float64).astype(dtype),
    )


def _parse_line(
    content: bytes, num_features: int, num_labels: int, dtype: np.dtype
) -> tuple[list[int], dict[int, float]]:
    words = [word for word in _BLANKS.split(content) if word]
    labels: list[int] = []
    row: dict[int, float] = {}
    if words and not _BLANKS.match(content) and b":" not in words[0]:
        for word in words.pop(0).split(b","):
            label = _index(word, num_labels, "label")
            if label in labels:
                raise ValueError(f"label {label} must stand once; got it twice.")
            labels.append(label)
    for word in words:
        index, colon, number = word.partition(b":")
        if not colon:
            raise ValueError(f"a feature must be written as index:value; got {_shown(word)}.")
        column = _index(index, num_features, "feature")
        if column in row:
            raise ValueError(f"feature {column} must stand once; got it twice.")
        with np.errstate(over="ignore"):
            if not NUMBER.fullmatch(number) or not np.isfinite(np.dtype(dtype).type(float(number))):
                raise ValueError(f"the value of feature {column} must be a finite {dtype}; got {_shown(number)}.")
        row[column] = float(number)
    return labels, row


def _index(word: bytes, bound: int, of: str) -> int:
    if not _INDEX.fullmatch(word) or int(word) >= bound:
        raise ValueError(f"{of} {_shown(word)} must be a whole number in [0, {bound}).")
    return int(word)


def _shown(word: bytes) -> str:
    return repr(word[:40].decode("ascii", "backslashreplace"))

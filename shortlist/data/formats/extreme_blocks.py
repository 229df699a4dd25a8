"""Files of the extreme-classification text format: the first line, and the rest in stretches of whole lines."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shortlist.data.formats.extreme_parse import LEAD

BLOCK_BYTES = 1 << 19
"""So much text is parsed at once: long enough to forget the cost of a call, short enough for the processor's cache."""

LONGEST_LINE = 1 << 28
"""A file without a line end for so many bytes is of another format."""

_BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*\n?")
_MATRIX_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*\n?")


class Layout(NamedTuple):
    """What the first line says, or the caller in its place."""

    rows: int | None
    num_features: int
    num_labels: int
    header_lines: int


def text_blocks(path: Path, header_lines: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Whole lines but the header: a buffer, and from where to where in it; the next step overwrites them."""
    skip: int | None = header_lines
    with _opened(path) as file:
        raw = bytearray(LEAD + BLOCK_BYTES + 1)  # There is always room for a newline that the file lacks.
        filled, got = LEAD, 1
        while got:
            got = _fill(file, memoryview(raw)[filled:-1], path)
            if not got and filled > LEAD:
                raw[filled], got = 10, 1
            filled += got
            stop = raw.rfind(b"\n", LEAD, filled) + 1
            if stop:
                start = LEAD if skip is None else _after_header(raw, skip)
                skip = None
                if start < stop:
                    yield np.frombuffer(raw, dtype=np.uint8), start, stop
                raw[LEAD : LEAD + filled - stop] = raw[stop:filled]
                filled -= stop - LEAD
            elif filled == len(raw) - 1:
                if len(raw) > LONGEST_LINE:
                    raise ValueError(f"`{path}` has a line of more than {LONGEST_LINE} bytes, so it is no such file.")
                raw = raw + bytearray(len(raw))


def _after_header(raw: bytearray, header_lines: int) -> int:
    if header_lines:
        return raw.index(b"\n", LEAD) + 1
    return LEAD + (len(_BOM) if raw.startswith(_BOM, LEAD) else 0)


def _opened(path: Path) -> BufferedIOBase:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _fill(file: BufferedIOBase, room: memoryview, path: Path) -> int:
    """Read until the room is full or the file is at its end; how many bytes."""
    total = 0
    try:
        while total < len(room):
            got = file.readinto(room[total:])
            if not got:
                break
            total += got
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"`{path}` is damaged: {str(error).rstrip('.')}.") from error
    return total


def read_layout(path: Path, num_features: int | None, num_labels: int | None) -> Layout:
    """The layout of a file of rows; ValueError if its first line and the caller say nothing, or different things."""
    for name, size in (("num_features", num_features), ("num_labels", num_labels)):
        if size is not None and size < 0:
            raise ValueError(f"`{name}` must be at least 0; got {size}.")
    first = _first_line(path)
    header = _HEADER.fullmatch(first)
    if header is None:
        if num_features is None or num_labels is None:
            shown = first[:40].decode("ascii", "backslashreplace").strip()
            raise ValueError(
                f"`{path}` line 1 must hold three whole numbers, of rows, features and labels, unless `num_features` "
                f"and `num_labels` are given; got {shown!r}."
            )
        return Layout(None, num_features, num_labels, 0)
    rows, features, labels = (int(number) for number in header.groups())
    for name, asked, stated in (("features", num_features, features), ("labels", num_labels, labels)):
        if asked is not None and asked != stated:
            raise ValueError(f"`{path}` line 1 says {stated} {name}; it must be {asked}.")
    return Layout(rows, features, labels, 1)


def read_matrix_layout(path: Path) -> Layout:
    """The layout of a sparse matrix: its first line says how many rows and columns, which stand for features."""
    first = _first_line(path)
    header = _MATRIX_HEADER.fullmatch(first)
    if header is None:
        shown = first[:40].decode("ascii", "backslashreplace").strip()
        raise ValueError(f"`{path}` line 1 must hold two whole numbers, of rows and columns; got {shown!r}.")
    return Layout(int(header[1]), int(header[2]), 0, 1)


def _first_line(path: Path) -> bytes:
    """The first line, with its end, or as much of it as may be a header."""
    with _opened(path) as file:
        room = bytearray(200)
        first = bytes(room[: _fill(file, memoryview(room), path)]).removeprefix(_BOM)
    if not first:
        raise ValueError(f"`{path}` is empty.")
    return first[: first.find(b"\n") + 1] or first

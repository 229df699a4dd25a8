"""Rows of the extreme-classification text format, parsed block by block.

A block of whole lines is parsed with array arithmetic. Every byte that is not a digit ends a run of digits; which ends
may be neighbors is a table, so one lookup checks a whole block, and three multiplications in a 64-bit word read eight
digits at once. A value ``12.345`` is the integer 12345 over a power of ten: up to 2^53 both are exact in float64, so
their quotient is what ``float`` gives; the same holds with exponents up to 10^22. The few values that are written in
another way, or have too many digits, are read one by one. A block that breaks a rule is parsed again line by line, to
name the line and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.text_files import DAMAGED, open_binary
from shortlist.data.inputs import SparseRows
from shortlist.data.target_rows import csr
from shortlist.errors import InputError, reason
from shortlist.limits import limit
from shortlist.tensors import check_size

BLOCK_BYTES = 1 << 19  # Parsed at once: large enough to amortize the calls, small enough for the cache.

_LEAD = 24  # Bytes of a buffer before its text, because words are read backward from the end of a number.
_BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*\n?")
_MATRIX_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*\n?")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_INDEX = re.compile(rb"\d{1,18}")
_BLANKS = re.compile(rb"[ \t\r]+")

_NEWLINE, _BLANK, _COMMA, _COLON, _DOT, _MINUS, _EXPONENT, _SIGN, _OTHER = range(9)
_KINDS = 9
_VALID, _ODD, _INVALID = range(3)
_MAX_DIGITS = 19  # of an integer that a 64-bit word holds
_EXACT_DIGITS = 15  # of an integer that float64 holds
_MAX_POWER = 22  # of ten that float64 holds


class Layout(NamedTuple):
    """What the first line states, or the caller in its place."""

    rows: int | None
    num_features: int
    num_labels: int
    header_lines: int


class RowBlock(NamedTuple):
    """Consecutive rows; labels and columns ascend within a row."""

    label_counts: np.ndarray  # (rows,) int64
    labels: np.ndarray  # int64
    counts: np.ndarray  # (rows,) int64, features of each row
    columns: np.ndarray  # int32, or int64 where int32 is too small
    values: np.ndarray

    def rows(self, first: int, last: int) -> RowBlock:
        """Rows from ``first`` up to but not including ``last``; nothing is copied."""
        a, b = self.label_counts[:first].sum(), self.label_counts[:last].sum()
        c, d = self.counts[:first].sum(), self.counts[:last].sum()
        rows = slice(first, last)
        return RowBlock(
            self.label_counts[rows], self.labels[a:b], self.counts[rows], self.columns[c:d], self.values[c:d]
        )


def read_layout(path: Path, num_features: int | None, num_labels: int | None) -> Layout:
    """The layout of a file of rows; the caller's numbers must agree with the first line, or replace it."""
    for name, size in (("num_features", num_features), ("num_labels", num_labels)):
        check_size(name, 0 if size is None else size, at_least=0, error=InputError)
    first = _first_line(path)
    header = _HEADER.fullmatch(first)
    if header is None:
        if num_features is None or num_labels is None:
            raise InputError(
                f"`{path}` line 1 must be three integers, of rows, features and labels, unless `num_features` "
                f"and `num_labels` are given; got {_shown(first.strip())}."
            )
        return Layout(None, num_features, num_labels, 0)
    rows, features, labels = (int(number) for number in header.groups())
    for name, given, stated in (("features", num_features, features), ("labels", num_labels, labels)):
        if given is not None and given != stated:
            raise InputError(f"`{path}` line 1 says {stated} {name}; it must be {given}.")
    return Layout(rows, features, labels, 1)


def read_matrix_layout(path: Path) -> Layout:
    """The layout of a sparse matrix: its first line states rows and columns, which count as features."""
    first = _first_line(path)
    header = _MATRIX_HEADER.fullmatch(first)
    if header is None:
        raise InputError(f"`{path}` line 1 must be two integers, of rows and columns; got {_shown(first.strip())}.")
    return Layout(int(header[1]), int(header[2]), 0, 1)


def row_blocks(path: Path, layout: Layout, dtype: np.dtype) -> Iterator[RowBlock]:
    """Parsed rows of one file; InputError names the first bad line, or a wrong number of rows."""
    rows = 0
    bounds = layout.num_features, layout.num_labels, dtype
    for buffer, start, stop in _text_blocks(path, layout.header_lines):
        block = _parse_block(buffer, start, stop, *bounds)
        line = 1 + layout.header_lines + rows
        if block is None:
            block = _parse_lines(buffer[start:stop].tobytes(), *bounds, path=path, line=line)
        if layout.rows is not None and rows + len(block.counts) > layout.rows:
            filled = np.flatnonzero(block.counts + block.label_counts)
            last = int(filled[-1]) + 1 if len(filled) else 0
            if rows + last > layout.rows:
                first = line + int(filled[np.searchsorted(filled, layout.rows - rows)])
                raise InputError(f"`{path}` line {first}: the first line says {layout.rows} rows; got more.")
            block = block.rows(0, layout.rows - rows)
        rows += len(block.counts)
        yield block
    if layout.rows is not None and rows < layout.rows:
        raise InputError(f"`{path}` ends after {rows} rows; its first line says {layout.rows}.")


def join_blocks(blocks: list[RowBlock], layout: Layout, dtype: np.dtype) -> RowBlock:
    """Consecutive blocks, or none, as one; empties the list, so no array is held twice for longer than needed."""
    if not blocks:
        none = np.empty(0, dtype=np.int64)
        return RowBlock(none, none, none, none.astype(_column_type(layout.num_features)), none.astype(dtype))
    fields = [list(field) for field in zip(*blocks, strict=True)]
    blocks.clear()
    joined = []
    while fields:
        joined.append(np.concatenate(fields.pop(0)))
    return RowBlock(*joined)


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


def _first_line(path: Path) -> bytes:
    """The first line with its end, or as much of it as may be a header."""
    with open_binary(path) as file:
        buffer = bytearray(200)
        first = bytes(buffer[: _fill(file, memoryview(buffer), path)]).removeprefix(_BOM)
    if not first:
        raise InputError(f"`{path}` is empty.")
    return first[: first.find(b"\n") + 1] or first


def _text_blocks(path: Path, header_lines: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Whole lines after the header: a buffer and the range of its text; the next step overwrites them."""
    skip: int | None = header_lines
    with open_binary(path) as file:
        raw = bytearray(_LEAD + BLOCK_BYTES + 1)  # There is always room for a newline that the file lacks.
        filled, got = _LEAD, 1
        while got:
            got = _fill(file, memoryview(raw)[filled:-1], path)
            if not got and filled > _LEAD:
                raw[filled], got = 10, 1
            filled += got
            stop = raw.rfind(b"\n", _LEAD, filled) + 1
            if stop:
                start = _LEAD if skip is None else _after_header(raw, skip)
                skip = None
                if start < stop:
                    yield np.frombuffer(raw, dtype=np.uint8), start, stop
                raw[_LEAD : _LEAD + filled - stop] = raw[stop:filled]
                filled -= stop - _LEAD
            elif filled == len(raw) - 1:
                if len(raw) > limit("line"):  # A file without a line end for so long is of another format.
                    rule = "which no file of this format has"
                    raise InputError(f"`{path}` has a line of more than {limit('line')} bytes, {rule}.")
                raw = raw + bytearray(len(raw))


def _after_header(raw: bytearray, header_lines: int) -> int:
    if header_lines:
        return raw.index(b"\n", _LEAD) + 1
    return _LEAD + (len(_BOM) if raw.startswith(_BOM, _LEAD) else 0)


def _fill(file: IO[bytes], buffer: memoryview, path: Path) -> int:
    """Read until the buffer is full or the file ends; returns the number of bytes."""
    total = 0
    reader: Any = file
    try:
        while total < len(buffer):
            got = reader.readinto(buffer[total:])
            if not got:
                break
            total += got
    except DAMAGED as error:
        raise InputError(f"`{path}` is damaged: {reason(error)}.") from error
    return total


def _column_type(num_features: int) -> np.dtype:
    """The smaller of int32 and int64 that can number so many columns."""
    return np.dtype(np.int32 if num_features <= 2**31 else np.int64)


def _parse_block(
    buffer: np.ndarray, start: int, stop: int, num_features: int, num_labels: int, dtype: np.dtype
) -> RowBlock | None:
    """Parse ``buffer[start:stop]``, whole lines; None if they break a rule or cannot be parsed this way.

    Args:
        buffer: uint8, with at least ``_LEAD`` arbitrary bytes before ``start``.
        start, stop: the range of the text, which ends just after a newline.
        num_features, num_labels: exclusive bounds of the indices.
        dtype: float32 or float64.
    """
    ends = np.flatnonzero((buffer[start:stop] - np.uint8(48)) > 9) + start
    kinds = _KIND.take(buffer.take(ends))
    # A minus after the e of an exponent is not the sign of a number.
    kinds[1:][(kinds[1:] == _MINUS) & (kinds[:-1] == _EXPONENT)] = _SIGN
    sizes, codes, verdict = _classify(ends, kinds, start)
    odd = np.empty(0, dtype=np.int64)
    if verdict == _ODD:
        inner, odd = _inside_values(ends, kinds, np.flatnonzero(_RULE.take(codes)))
        ends, kinds = ends[~inner], kinds[~inner]
        sizes, codes, verdict = _classify(ends, kinds, start)
    if verdict != _VALID:
        return None
    lines = np.flatnonzero(kinds == _NEWLINE)
    at_label, at_colon = np.flatnonzero(_ENDS_LABEL.take(codes)), np.flatnonzero(kinds == _COLON)
    labels = _indices(buffer, ends, sizes, at_label, num_labels)
    columns = _indices(buffer, ends, sizes, at_colon, num_features)
    if labels is None or columns is None:
        return None
    values = _values(buffer, ends, kinds, sizes, at_colon, odd, dtype)
    # The newline itself may end a label.
    label_counts = np.diff(np.searchsorted(at_label, lines, side="right"), prepend=0)
    counts = np.diff(np.searchsorted(at_colon, lines), prepend=0)
    label_order, order = _ascending(labels, label_counts), _ascending(columns, counts)
    if values is None or label_order is None or order is None:
        return None
    columns = columns.astype(_column_type(num_features))
    return RowBlock(label_counts, labels[label_order], counts, columns[order], values[order])


def _classify(ends: np.ndarray, kinds: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Digits before each end; a code of the previous end, this end and whether they are adjacent; the worst rule."""
    sizes = np.diff(ends, prepend=start - 1) - 1
    codes = kinds * np.uint8(2) + (sizes == 0)
    codes[1:] += kinds[:-1] * np.uint8(2 * _KINDS)
    return sizes, codes, int(_RULE.take(codes).max(initial=_VALID))


def _inside_values(ends: np.ndarray, kinds: np.ndarray, odd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which ends lie within values that have an odd end, and the positions of the colons of those values."""
    stops, colons = np.flatnonzero(kinds <= _BLANK), np.flatnonzero(kinds == _COLON)
    position = np.searchsorted(stops, odd)
    before = np.where(position > 0, stops[position - 1], -1)
    colon = np.searchsorted(colons, stops[position]) - 1
    # An odd end outside values stays, and is found invalid at the second look.
    valued = (
        (colon >= 0) & (colons.take(colon, mode="clip") > before) if len(colons) else np.zeros(len(odd), dtype=bool)
    )
    colon, first = np.unique(colon[valued], return_index=True)
    depth = np.zeros(len(ends) + 1, dtype=np.int8)
    depth[colons[colon] + 1] += 1
    depth[stops[position[valued][first]]] -= 1
    return np.cumsum(depth, dtype=np.int8)[:-1] > 0, ends[colons[colon]]


def _indices(
    buffer: np.ndarray, ends: np.ndarray, sizes: np.ndarray, which: np.ndarray, bound: int
) -> np.ndarray | None:
    sizes = sizes[which]
    if sizes.max(initial=0) > _MAX_DIGITS - 1:
        return None
    numbers = _integers(buffer, ends[which], sizes).view(np.int64)
    return numbers if numbers.max(initial=-1) < bound else None


def _values(
    buffer: np.ndarray,
    ends: np.ndarray,
    kinds: np.ndarray,
    sizes: np.ndarray,
    colons: np.ndarray,
    odd: np.ndarray,
    dtype: np.dtype,
) -> np.ndarray | None:
    """The numbers after colons; those at ``odd`` positions and those with many digits are read one by one."""
    first = colons + 1
    minus = np.flatnonzero(kinds[first] == _MINUS) if (kinds == _MINUS).any() else np.empty(0, dtype=np.int64)
    first[minus] += 1
    digits = sizes[first]
    whole = _integers(buffer, ends[first], np.minimum(digits, _MAX_DIGITS))
    pointed: np.ndarray | slice = np.flatnonzero(kinds[first] == _DOT)
    if len(pointed) == len(first):
        pointed = slice(None)  # Nothing to select, which saves a third of the time.
    last = first[pointed] + 1
    places = np.minimum(sizes[last], _MAX_DIGITS)
    digits[pointed] += sizes[last]
    powers = _POWERS.take(places)
    whole[pointed] *= powers
    whole[pointed] += _integers(buffer, ends[last], places)
    exact = whole.astype(np.float64)
    alone = digits > _MAX_DIGITS
    if (kinds == _EXPONENT).any():
        scale = np.zeros(len(first), dtype=np.int64)
        scale[pointed] -= places
        first[pointed] += 1
        scale += _exponents(buffer, ends, kinds, sizes, first)
        alone |= np.abs(scale) > _MAX_POWER
        exact *= _EXACT_POWERS.take(scale, mode="clip")
        exact /= _EXACT_POWERS.take(-scale, mode="clip")
    else:
        exact[pointed] /= powers.astype(np.float64)
    exact[minus] *= -1
    if digits.max(initial=0) > _EXACT_DIGITS:
        # Above 2^53 the result is off by less than 2 units in the last place of float64. That changes its float32
        # only near the midpoint of two float32 numbers, where the lower 29 bits are about 2^28.
        middle = np.abs((exact.view(np.int64) & ((1 << 29) - 1)) - (1 << 28)) <= 4
        alone |= (whole >= 1 << 53) & (middle | (dtype != np.float32))
    alone[np.searchsorted(ends[colons], odd)] = True
    rest = np.flatnonzero(alone)
    if len(rest):
        spelled = _one_by_one(buffer, ends, kinds, colons[rest])
        if spelled is None:
            return None
        exact[rest] = spelled
    with np.errstate(over="ignore"):  # Values that are too large become infinite and are refused.
        values = exact.astype(dtype)
    return values if np.isfinite(values).all() else None


def _exponents(
    buffer: np.ndarray, ends: np.ndarray, kinds: np.ndarray, sizes: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """The exponents of the numbers whose digits end at ``last``; those beyond 10^8 as 10^8."""
    powers = np.zeros(len(last), dtype=np.int64)
    raised = np.flatnonzero(kinds[last] == _EXPONENT)
    at = last[raised] + 1
    signed = kinds[at] == _SIGN
    down = signed & (buffer.take(ends[at]) == ord("-"))
    at += signed
    size = sizes[at]
    stated = _integers(buffer, ends[at], np.minimum(size, 8)).view(np.int64)
    stated[size > 8] = 10**8
    powers[raised] = np.where(down, -stated, stated)
    return powers


def _one_by_one(buffer: np.ndarray, ends: np.ndarray, kinds: np.ndarray, colons: np.ndarray) -> np.ndarray | None:
    stops = np.flatnonzero(kinds <= _BLANK)
    stops = ends[stops[np.searchsorted(stops, colons)]]
    view = buffer.data
    texts = [bytes(view[a:b]) for a, b in zip((ends[colons] + 1).tolist(), stops.tolist(), strict=True)]
    if not all(map(_NUMBER.fullmatch, texts)):
        return None
    return np.array([float(text) for text in texts])


def _integers(buffer: np.ndarray, ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The integers of up to 19 digits that end before ``ends``, uint64."""
    largest = int(sizes.max(initial=0))
    if largest <= 1:
        return (buffer.take(ends - 1) & np.uint8(15)).astype(np.uint64) * (sizes > 0)
    numbers = _eight_digits(buffer, ends, np.minimum(sizes, 8) if largest > 8 else sizes)
    for done in range(8, largest, 8):
        long = np.flatnonzero(sizes > done)
        upper = _eight_digits(buffer, ends[long] - done, np.minimum(sizes[long] - done, 8))
        numbers[long] += upper * np.uint64(10**done)
    return numbers


def _eight_digits(buffer: np.ndarray, ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The integers of up to 8 digits that end before ``ends``: digits are joined to pairs, fours and eights."""
    words = np.ndarray((len(buffer) - 7,), dtype="<u8", buffer=buffer, strides=(1,))
    number = words[ends - 8].astype(np.uint64, copy=False)
    number &= _DIGITS.take(sizes)
    for factor, shift, keep in _JOINS:
        number *= factor
        number >>= shift
        number &= keep
    return number


def _ascending(indices: np.ndarray, counts: np.ndarray) -> np.ndarray | slice | None:
    """The permutation that sorts the indices of each row; None if an index repeats within a row."""
    falls = indices[1:] <= indices[:-1]
    starts = np.cumsum(counts)[:-1]
    falls[starts[(starts > 0) & (starts < len(indices))] - 1] = False
    if not falls.any():
        return slice(None)
    rows = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((indices, rows))
    indices = indices[order]
    return None if ((indices[1:] == indices[:-1]) & (rows[1:] == rows[:-1])).any() else order


def _kind_table() -> np.ndarray:
    table = np.full(256, _OTHER, dtype=np.uint8)
    kinds = {
        "\n": _NEWLINE,
        " \t\r": _BLANK,
        ",": _COMMA,
        ":": _COLON,
        ".": _DOT,
        "-": _MINUS,
        "eE": _EXPONENT,
        "+": _SIGN,
    }
    for characters, kind in kinds.items():
        table[[ord(character) for character in characters]] = kind
    return table


def _rule_table() -> np.ndarray:
    """For the previous end, this end and whether they are adjacent: valid, part of an odd value, or invalid."""
    rule = np.full((_KINDS, _KINDS, 2), _INVALID, dtype=np.uint8)
    rule[_OTHER] = rule[:, _OTHER] = _ODD
    digits, nothing = 0, 1
    stops = [_NEWLINE, _BLANK]
    rule[_NEWLINE, [*stops, _COMMA, _COLON], digits] = _VALID
    rule[_NEWLINE, stops, nothing] = _VALID
    rule[_COMMA, [*stops, _COMMA], digits] = _VALID
    rule[_BLANK, _COLON, digits] = _VALID
    rule[_BLANK, stops, nothing] = _VALID
    for before in (_COLON, _MINUS):
        rule[before, [*stops, _DOT, _EXPONENT], digits] = _VALID
        rule[before, _DOT, nothing] = _ODD
    rule[_COLON, _MINUS, nothing] = _VALID
    rule[_COLON, _SIGN, nothing] = rule[_SIGN, _DOT] = rule[_SIGN, _EXPONENT, digits] = _ODD
    rule[_DOT, [*stops, _EXPONENT], digits] = _VALID
    rule[_DOT, [*stops, _EXPONENT], nothing] = _ODD
    rule[_EXPONENT, stops, digits] = rule[_SIGN, stops, digits] = _VALID
    rule[_EXPONENT, _SIGN, nothing] = _VALID
    return rule.reshape(-1)


def _label_table() -> np.ndarray:
    ends = np.zeros((_KINDS, _KINDS, 2), dtype=bool)
    for before in (_NEWLINE, _COMMA):
        ends[before, [_NEWLINE, _BLANK, _COMMA], 0] = True
    return ends.reshape(-1)


_KIND, _RULE, _ENDS_LABEL = _kind_table(), _rule_table(), _label_table()
_POWERS = np.array([10**power for power in range(_MAX_DIGITS + 1)], dtype=np.uint64)
_EXACT_POWERS = np.array([float(10**power) for power in range(_MAX_POWER + 1)])
# The first of the eight bytes before an end come first in memory: in the low part of a little-endian word.
_DIGITS = np.array([(0x0F0F0F0F0F0F0F0F << 8 * (8 - size)) & 0xFFFFFFFFFFFFFFFF for size in range(9)], dtype=np.uint64)
_JOINS = tuple(
    (np.uint64(ten * 2**bits + 1), np.uint64(bits), np.uint64(keep))
    for ten, bits, keep in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0xFFFFFFFF))
)


def _parse_lines(
    text: bytes, num_features: int, num_labels: int, dtype: np.dtype, *, path: object, line: int
) -> RowBlock:
    """Parse whole lines one by one; InputError names the line. The first one has the number ``line``."""
    labels: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    label_counts: list[int] = []
    counts: list[int] = []
    for number, content in enumerate(text.removesuffix(b"\n").split(b"\n"), start=line):
        row_labels, row = _parse_line(content, num_features, num_labels, dtype, f"`{path}` line {number}")
        labels += sorted(row_labels)
        columns += sorted(row)
        values += [row[column] for column in sorted(row)]
        label_counts.append(len(row_labels))
        counts.append(len(row))
    return RowBlock(
        np.array(label_counts, dtype=np.int64),
        np.array(labels, dtype=np.int64),
        np.array(counts, dtype=np.int64),
        np.array(columns, dtype=_column_type(num_features)),
        np.array(values, dtype=np.float64).astype(dtype),
    )


def _parse_line(
    content: bytes, num_features: int, num_labels: int, dtype: np.dtype, where: str
) -> tuple[list[int], dict[int, float]]:
    words = [word for word in _BLANKS.split(content) if word]
    labels: list[int] = []
    row: dict[int, float] = {}
    if words and not _BLANKS.match(content) and b":" not in words[0]:
        for word in words.pop(0).split(b","):
            label = _index(word, num_labels, f"{where}: label")
            if label in labels:
                raise InputError(f"{where}: label {label} must occur once; got it twice.")
            labels.append(label)
    for word in words:
        index, colon, number = word.partition(b":")
        if not colon:
            raise InputError(f"{where}: a feature must be written as index:value; got {_shown(word)}.")
        column = _index(index, num_features, f"{where}: feature")
        if column in row:
            raise InputError(f"{where}: feature {column} must occur once; got it twice.")
        with np.errstate(over="ignore"):
            if not _NUMBER.fullmatch(number) or not np.isfinite(np.dtype(dtype).type(float(number))):
                rule = f"the value of feature {column} must be a finite {dtype}"
                raise InputError(f"{where}: {rule}; got {_shown(number)}.")
        row[column] = float(number)
    return labels, row


def _index(word: bytes, bound: int, what: str) -> int:
    if not _INDEX.fullmatch(word) or int(word) >= bound:
        raise InputError(f"{what} {_shown(word)} must be an integer in [0, {bound}).")
    return int(word)


def _shown(word: bytes) -> str:
    return repr(word[:40].decode("ascii", "backslashreplace"))

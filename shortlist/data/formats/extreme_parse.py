"""Rows of the extreme-classification text format, parsed many at a time with whole-array arithmetic.

Every byte that is no digit ends a run of digits. What may follow what is a table over neighbouring ends, so that one
look-up checks a whole block, and eight digits are read at once by three multiplications inside a 64-bit word. A value
``12.345`` is the whole number 12345 over a power of ten: up to 2^53 both are exact in float64, so their quotient is
what ``float`` gives; so it is with exponents, up to 10^22. The few values that are written otherwise, or are too long,
are read one by one. Of a block that breaks a rule nothing is said here but that it does: `extreme_lines` then names the
line and the rule.
"""

from __future__ import annotations

import numpy as np

from shortlist.data.formats.extreme_lines import NUMBER, RowBlock, column_type

LEAD = 24
"""Bytes of a buffer before its text, because words are read backwards from the end of a number."""

_NEWLINE, _BLANK, _COMMA, _COLON, _DOT, _MINUS, _EXPONENT, _SIGN, _OTHER = range(9)
_KINDS = 9
_FINE, _ODD, _WRONG = range(3)
_MOST_DIGITS, _EXACT_DIGITS = 19, 15  # of a whole number that a 64-bit word holds, and that float64 holds
_MOST_POWER = 22  # of ten that float64 holds


def parse_block(
    buffer: np.ndarray, start: int, stop: int, num_features: int, num_labels: int, dtype: np.dtype
) -> RowBlock | None:
    """Parse ``buffer[start:stop]``, whole lines; None if anything is amiss, or too odd to be read this way.

    Args:
        buffer: uint8, with at least ``LEAD`` bytes of anything before ``start``.
        start, stop: where the text begins and where, just after a newline, it ends.
        num_features, num_labels: bounds of the indices.
        dtype: float32 or float64.
    """
    ends = np.flatnonzero((buffer[start:stop] - np.uint8(48)) > 9) + start
    kinds = _KIND.take(buffer.take(ends))
    # A minus after the e of an exponent is another thing than one before a number.
    kinds[1:][(kinds[1:] == _MINUS) & (kinds[:-1] == _EXPONENT)] = _SIGN
    sizes, codes, verdict = _look(ends, kinds, start)
    odd = np.empty(0, dtype=np.int64)
    if verdict == _ODD:
        inner, odd = _inside_values(ends, kinds, np.flatnonzero(_RULE.take(codes)))
        ends, kinds = ends[~inner], kinds[~inner]
        sizes, codes, verdict = _look(ends, kinds, start)
    if verdict != _FINE:
        return None
    lines = np.flatnonzero(kinds == _NEWLINE)
    at_label, at_colon = np.flatnonzero(_ENDS_LABEL.take(codes)), np.flatnonzero(kinds == _COLON)
    labels = _indices(buffer, ends, sizes, at_label, num_labels)
    columns = _indices(buffer, ends, sizes, at_colon, num_features)
    if labels is None or columns is None:
        return None
    values = _values(buffer, ends, kinds, sizes, at_colon, odd, dtype)
    # A label may be ended by the newline itself.
    label_counts = np.diff(np.searchsorted(at_label, lines, side="right"), prepend=0)
    counts = np.diff(np.searchsorted(at_colon, lines), prepend=0)
    label_order, order = _ascending(labels, label_counts), _ascending(columns, counts)
    if values is None or label_order is None or order is None:
        return None
    columns = columns.astype(column_type(num_features))
    return RowBlock(label_counts, labels[label_order], counts, columns[order], values[order])


def _look(ends: np.ndarray, kinds: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Digits before each end; a code for the end before, this end, and whether nothing is between; the worst rule."""
    sizes = np.diff(ends, prepend=start - 1) - 1
    codes = kinds * np.uint8(2) + (sizes == 0)
    codes[1:] += kinds[:-1] * np.uint8(2 * _KINDS)
    return sizes, codes, int(_RULE.take(codes).max(initial=_FINE))


def _inside_values(ends: np.ndarray, kinds: np.ndarray, odd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which ends lie within values that have an odd end, and where the colons of those values are."""
    stops, colons = np.flatnonzero(kinds <= _BLANK), np.flatnonzero(kinds == _COLON)
    place = np.searchsorted(stops, odd)
    before = np.where(place > 0, stops[place - 1], -1)
    colon = np.searchsorted(colons, stops[place]) - 1
    # An odd end that belongs to no value stays, and is found wrong at the second look.
    valued = (
        (colon >= 0) & (colons.take(colon, mode="clip") > before) if len(colons) else np.zeros(len(odd), dtype=bool)
    )
    colon, first = np.unique(colon[valued], return_index=True)
    depth = np.zeros(len(ends) + 1, dtype=np.int8)
    depth[colons[colon] + 1] += 1
    depth[stops[place[valued][first]]] -= 1
    return np.cumsum(depth, dtype=np.int8)[:-1] > 0, ends[colons[colon]]


def _indices(
    buffer: np.ndarray, ends: np.ndarray, sizes: np.ndarray, which: np.ndarray, bound: int
) -> np.ndarray | None:
    sizes = sizes[which]
    if sizes.max(initial=0) > _MOST_DIGITS - 1:
        return None
    numbers = _whole_numbers(buffer, ends[which], sizes).view(np.int64)
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
    """The numbers after colons; those at ``odd`` positions, and those of many digits, one by one."""
    first = colons + 1
    minus = np.flatnonzero(kinds[first] == _MINUS) if (kinds == _MINUS).any() else np.empty(0, dtype=np.int64)
    first[minus] += 1
    digits = sizes[first]
    whole = _whole_numbers(buffer, ends[first], np.minimum(digits, _MOST_DIGITS))
    pointed: np.ndarray | slice = np.flatnonzero(kinds[first] == _DOT)
    if len(pointed) == len(first):
        pointed = slice(None)  # Nothing to pick, which spares a third of the time.
    last = first[pointed] + 1
    places = np.minimum(sizes[last], _MOST_DIGITS)
    digits[pointed] += sizes[last]
    powers = _POWERS.take(places)
    whole[pointed] *= powers
    whole[pointed] += _whole_numbers(buffer, ends[last], places)
    exact = whole.astype(np.float64)
    alone = digits > _MOST_DIGITS
    if (kinds == _EXPONENT).any():
        scale = np.zeros(len(first), dtype=np.int64)
        scale[pointed] -= places
        first[pointed] += 1
        scale += _exponents(buffer, ends, kinds, sizes, first)
        alone |= np.abs(scale) > _MOST_POWER
        exact *= _EXACT_POWERS.take(scale, mode="clip")
        exact /= _EXACT_POWERS.take(-scale, mode="clip")
    else:
        exact[pointed] /= powers.astype(np.float64)
    exact[minus] *= -1
    if digits.max(initial=0) > _EXACT_DIGITS:
        # Above 2^53 the result is off by less than 2 units of float64. That changes its float32 only near the middle
        # between two float32, where the lower 29 bits are about 2^28.
        middle = np.abs((exact.view(np.int64) & ((1 << 29) - 1)) - (1 << 28)) <= 4
        alone |= (whole >= 1 << 53) & (middle | (dtype != np.float32))
    alone[np.searchsorted(ends[colons], odd)] = True
    rest = np.flatnonzero(alone)
    if len(rest):
        spelled = _one_by_one(buffer, ends, kinds, colons[rest])
        if spelled is None:
            return None
        exact[rest] = spelled
    with np.errstate(over="ignore"):  # What is too large is infinite, and refused.
        values = exact.astype(dtype)
    return values if np.isfinite(values).all() else None


def _exponents(
    buffer: np.ndarray, ends: np.ndarray, kinds: np.ndarray, sizes: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """The powers of ten that numbers state whose digits go up to ``last``; any beyond 10^8 as something large."""
    powers = np.zeros(len(last), dtype=np.int64)
    raised = np.flatnonzero(kinds[last] == _EXPONENT)
    at = last[raised] + 1
    signed = kinds[at] == _SIGN
    down = signed & (buffer.take(ends[at]) == ord("-"))
    at += signed
    size = sizes[at]
    stated = _whole_numbers(buffer, ends[at], np.minimum(size, 8)).view(np.int64)
    stated[size > 8] = 10**8
    powers[raised] = np.where(down, -stated, stated)
    return powers


def _one_by_one(buffer: np.ndarray, ends: np.ndarray, kinds: np.ndarray, colons: np.ndarray) -> np.ndarray | None:
    stops = np.flatnonzero(kinds <= _BLANK)
    stops = ends[stops[np.searchsorted(stops, colons)]]
    view = buffer.data
    texts = [bytes(view[a:b]) for a, b in zip((ends[colons] + 1).tolist(), stops.tolist(), strict=True)]
    if not all(map(NUMBER.fullmatch, texts)):
        return None
    return np.array([float(text) for text in texts])


def _whole_numbers(buffer: np.ndarray, ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers of up to 19 digits that end before ``ends``, uint64."""
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
    """The numbers of up to 8 digits that end before ``ends``: neighbours are joined to pairs, fours and eights."""
    words = np.ndarray((len(buffer) - 7,), dtype="<u8", buffer=buffer, strides=(1,))
    number = words[ends - 8].astype(np.uint64, copy=False)
    number &= _DIGITS.take(sizes)
    for factor, shift, keep in _JOINS:
        number *= factor
        number >>= shift
        number &= keep
    return number


def _ascending(indices: np.ndarray, counts: np.ndarray) -> np.ndarray | slice | None:
    """What brings the indices of each row into order; None if one stands twice in a row."""
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
    """For the end before, this end and whether there is nothing between: fine, part of an odd value, or wrong."""
    rule = np.full((_KINDS, _KINDS, 2), _WRONG, dtype=np.uint8)
    rule[_OTHER] = rule[:, _OTHER] = _ODD
    digits, nothing = 0, 1
    stops = [_NEWLINE, _BLANK]
    rule[_NEWLINE, [*stops, _COMMA, _COLON], digits] = _FINE
    rule[_NEWLINE, stops, nothing] = _FINE
    rule[_COMMA, [*stops, _COMMA], digits] = _FINE
    rule[_BLANK, _COLON, digits] = _FINE
    rule[_BLANK, stops, nothing] = _FINE
    for before in (_COLON, _MINUS):
        rule[before, [*stops, _DOT, _EXPONENT], digits] = _FINE
        rule[before, _DOT, nothing] = _ODD
    rule[_COLON, _MINUS, nothing] = _FINE
    rule[_COLON, _SIGN, nothing] = rule[_SIGN, _DOT] = rule[_SIGN, _EXPONENT, digits] = _ODD
    rule[_DOT, [*stops, _EXPONENT], digits] = _FINE
    rule[_DOT, [*stops, _EXPONENT], nothing] = _ODD
    rule[_EXPONENT, stops, digits] = rule[_SIGN, stops, digits] = _FINE
    rule[_EXPONENT, _SIGN, nothing] = _FINE
    return rule.reshape(-1)


def _label_table() -> np.ndarray:
    ends = np.zeros((_KINDS, _KINDS, 2), dtype=bool)
    for before in (_NEWLINE, _COMMA):
        ends[before, [_NEWLINE, _BLANK, _COMMA], 0] = True
    return ends.reshape(-1)


_KIND, _RULE, _ENDS_LABEL = _kind_table(), _rule_table(), _label_table()
_POWERS = np.array([10**power for power in range(_MOST_DIGITS + 1)], dtype=np.uint64)
_EXACT_POWERS = np.array([float(10**power) for power in range(_MOST_POWER + 1)])
# Of the eight bytes before an end, the first come first in memory, so in the low part of a little-endian word.
_DIGITS = np.array([(0x0F0F0F0F0F0F0F0F << 8 * (8 - size)) & 0xFFFFFFFFFFFFFFFF for size in range(9)], dtype=np.uint64)
_JOINS = tuple(
    (np.uint64(ten * 2**bits + 1), np.uint64(bits), np.uint64(keep))
    for ten, bits, keep in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0xFFFFFFFF))
)

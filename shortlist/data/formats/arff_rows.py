"""The lower part of ARFF files: rows in full or as pairs of attribute and value, turned into numbers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.data.formats.arff_header import Header, without_comment, words
from shortlist.data.formats.arff_labels import LABEL_VALUES


@dataclass(frozen=True, eq=False)
class ArffRows:
    """The rows of a file: either ``full``, or the three parts of sparse rows."""

    full: np.ndarray | None  # (rows, attributes) float32; labels as 0, 1 and -1, texts left out
    texts: list[str] | None  # if one attribute is text
    counts: np.ndarray  # (rows,) int64
    columns: np.ndarray  # int64, the number of the attribute
    values: np.ndarray  # float32

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.counts) if self.full is None else len(self.full)


class RowReader:
    """Reads rows of one header.

    Args:
        header: the upper part of the file.
        labels: the numbers of the attributes that are labels.
        text: the number of the one attribute that is kept as text; None if there is none.
        missing: stands in for a question mark in a feature; None to refuse it.
    """

    def __init__(self, header: Header, labels: Sequence[int], text: int | None, missing: float | None) -> None:
        self.attributes, self.text, self.missing = header.attributes, text, missing
        self.labels = frozenset(labels)
        self.kept = [at for at in range(len(self.attributes)) if at != text]
        self.converters = [self._converter(at) for at in self.kept]

    def read(self, lines: Iterator[tuple[int, str]], path: object) -> ArffRows:
        """All rows; ValueError names the line that breaks a rule."""
        full: list[np.ndarray] = []
        texts: list[str] = []
        columns, values, counts = array("q"), array("f"), array("q")
        sparse = None
        for number, raw in lines:
            line = without_comment(raw)
            if not line:
                continue
            place = f"`{path}` line {number}"
            if sparse is None:
                sparse = line.startswith("{")
            if sparse != line.startswith("{"):
                raise ValueError(f"{place}: rows must all be in braces or none; got {line[:40]!r}.")
            if sparse:
                places, row = self._sparse_row(line, place)
                columns.extend(places)
                values.extend(self._finite(row, places, place).tolist())
                counts.append(len(places))
            else:
                full.append(self._finite(self._full_row(line, texts, place), self.kept, place))
        if sparse:
            sizes, where = (np.array(part, dtype=np.int64) for part in (counts, columns))
            return ArffRows(None, None, sizes, where, np.array(values, dtype=np.float32))
        none = np.empty(0, dtype=np.int64)
        matrix = np.stack(full) if full else np.empty((0, len(self.converters)), dtype=np.float32)
        return ArffRows(matrix, None if self.text is None else texts, none, none, none.astype(np.float32))

    def _full_row(self, line: str, texts: list[str], place: str) -> list[float]:
        fields = words(line, place)
        if len(fields) != len(self.attributes):
            raise ValueError(f"{place}: a row must have {len(self.attributes)} values; got {len(fields)}.")
        if self.text is not None:
            texts.append(fields.pop(self.text))
            if texts[-1] == "?":
                raise ValueError(f"{place}: the text of attribute {self.attributes[self.text].name!r} is missing.")
        # `float` takes underscores and the digits of every script, which are no numbers here.
        if line.isascii() and "_" not in line:
            try:
                return [convert(field) for convert, field in zip(self.converters, fields, strict=True)]
            except (ValueError, KeyError):
                pass
        return [self._number(at, field, place) for at, field in zip(self.kept, fields, strict=True)]

    def _sparse_row(self, line: str, place: str) -> tuple[list[int], list[float]]:
        if self.text is not None:
            raise ValueError(f"{place}: rows of text must not be in braces; got {line[:40]!r}.")
        if not line.endswith("}") or "{" in line[1:]:
            raise ValueError(f"{place}: a row must end with its brace, without a weight; got {line[-40:]!r}.")
        body = line[1:-1].strip()
        if "'" in body or '"' in body:  # A quoted value may hold a comma.
            flat = words(body, place)
            pairs = [flat[at : at + 2] for at in range(0, len(flat), 2)]
        else:
            pairs = [pair.split() for pair in body.split(",")] if body else []
        row: dict[int, float] = {}
        for pair in pairs:
            if len(pair) != 2 or not (pair[0].isascii() and pair[0].isdigit() and len(pair[0]) < 10):
                raise ValueError(f"{place}: values in braces must be written as number value; got {' '.join(pair)!r}.")
            at = int(pair[0])
            if at >= len(self.attributes):
                raise ValueError(f"{place}: attribute {at} must lie in [0, {len(self.attributes)}).")
            if at in row:
                raise ValueError(f"{place}: attribute {at} must stand once; got it twice.")
            row[at] = self._number(at, pair[1], place)
        places = sorted(row)
        return places, [row[at] for at in places]

    def _converter(self, at: int) -> Callable[[str], float]:
        attribute = self.attributes[at]
        if at in self.labels:
            return LABEL_VALUES.__getitem__
        if attribute.kind == "numeric":
            return float
        return {choice: float(number) for number, choice in enumerate(attribute.choices)}.__getitem__

    def _number(self, at: int, field: str, place: str) -> float:
        """One value, with care; ValueError says what is wrong with it."""
        attribute = self.attributes[at]
        if field == "?" and at not in self.labels and field not in attribute.choices:
            if self.missing is None:
                raise ValueError(f"{place}: attribute {attribute.name!r} is missing, and no `missing` is given for it.")
            return self.missing
        try:
            if attribute.kind == "numeric" and ("_" in field or not field.isascii()):
                raise ValueError(field)
            # The converters of rows in full leave out the text, which rows in braces do not have.
            return self.converters[at - (self.text is not None and at > self.text)](field)
        except (ValueError, KeyError):
            if at in self.labels:
                rule = "0, 1 or ?"
            elif attribute.kind == "numeric":
                rule = "a number"
            else:
                rule = f"one of {', '.join(attribute.choices[:8])}{', ...' if len(attribute.choices) > 8 else ''}"
            raise ValueError(f"{place}: attribute {attribute.name!r} must be {rule}; got {field[:40]!r}.") from None

    def _finite(self, row: list[float], places: Sequence[int], place: str) -> np.ndarray:
        with np.errstate(over="ignore"):  # What is too large for float32 is infinite, and refused.
            numbers = np.array(row, dtype=np.float64).astype(np.float32)
        if not np.isfinite(numbers).all():
            at = int(np.flatnonzero(~np.isfinite(numbers))[0])
            name = self.attributes[places[at]].name
            raise ValueError(f"{place}: attribute {name!r} must be a finite float32; got {row[at]}.")
        return numbers

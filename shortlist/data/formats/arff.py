"""Multi-label ARFF files as Mulan and MEKA write them: header, label list, rows, and the files of a split."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PART_PATTERN, by_part, part_name
from shortlist.data.files.text_files import need_file, text_lines
from shortlist.data.groups import Groups
from shortlist.data.inputs import Features, Inputs, SparseRows, Texts
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError
from shortlist.limits import limit, read_whole

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_WORD = re.compile(rf"""[\s,]*(?:({_QUOTED})|([^\s,'"][^\s,]*))(?=[\s,]|$)""")
_NAME = re.compile(rf"""@attribute\s+(?:({_QUOTED})|([^\s'"{{}}][^\s{{}}]*))\s*(.*)""", re.IGNORECASE)
_COMMENT = re.compile(rf"""((?:{_QUOTED}|[^%'"])*)%.*""")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_NUMERIC = ("numeric", "real", "integer")
_PART = re.compile(rf"(.*?)([-_]?)({PART_PATTERN})([-_].*)?\.arff(\.gz)?", re.IGNORECASE)
_MULAN = "http://mulan.sourceforge.net/labels"
_LABEL_VALUES = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "?": -1.0}  # A question mark is unknown.


def read_arff(
    path: str | Path,
    *,
    labels: str | Path | Sequence[str] | None = None,
    test: str | Path | None = None,
    missing: float | None = None,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Read a multi-label ARFF file, or a train and a test file.

    Mulan lists the labels in an XML file beside the data, ``name.xml``. MEKA states in the name of the relation how
    many of the first attributes are labels (``-C 5``), or of the last (``-C -5``), and may state how many of the first
    rows are for training (``-split-number 391``); its other options are ignored. A label is 0 or 1; ``?`` is unknown.
    Dense rows give dense features, rows in braces sparse ones; a nominal feature becomes the index of its value in the
    declaration, from 0, as in Weka. A file whose only feature is a string gives texts.

    Args:
        path: a file; if it is called ``name-train.arff`` and ``name-test.arff`` exists, both are read, and so is
            ``name-val.arff``. Or a folder with one such group, or with one file.
        labels: an XML file, or the names of the attributes that are labels; by default MEKA's option, else the XML file
            of the same name (without ``-train``), else the only XML file in the folder.
        test: the file of the test rows, with the same attributes.
        missing: the value of ``?`` in a feature; None to refuse it.
        encoding: of the text; older files may need ``latin-1``.

    Returns:
        Float32 features and sparse targets; the labels in the order of the attributes; a split if one is stated.

    Raises:
        InputError: names the file and the line that breaks a rule.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> text = "@relation 'Music: -C 2'\n@attribute sad {0,1}\n@attribute calm {0,1}\n"
        >>> text += "@attribute tempo real\n@data\n"
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "music.arff").write_text(text + "0,1,60.5\n1,?,72\n")
        ...     music = read_arff(f"{folder}/music.arff")
        >>> music[1].labels, music[1].unknown, music[1].input
        (('sad',), ('calm',), tensor([72.]))

    References:
        Tsoumakas et al., "Mulan: a Java library for multi-label learning", 2011; Read et al., "MEKA: a multi-label
        extension to Weka", 2016.
    """
    files = _files(Path(path), None if test is None else Path(test))
    train, *others = files.values()
    header, rows, label_columns = _read(train, labels, missing, encoding, None)
    names, number = list(files), header.option("split-number")
    parts = [rows, *(_read(file, labels, missing, encoding, (header, label_columns, train))[1] for file in others)]
    sizes = [len(part) for part in parts]
    if not others and number is not None:
        if not 0 <= number <= len(rows):
            raise InputError(f"`{train}` has {len(rows)} rows; its relation says {number} of them are for training.")
        names, sizes = ["train", "test"], [number, len(rows) - number]
    features = [column for column in range(len(header.attributes)) if column not in set(label_columns)]
    inputs, targets = _tensors(_joined(parts, list(files.values())), header, features, label_columns, train)
    return Dataset(
        inputs,
        targets,
        tuple(header.attributes[column].name for column in label_columns),
        split=Groups.of_sizes(sizes, names) if len(names) > 1 else None,
        name=header.relation or train.stem,
    )


def _files(path: Path, test: Path | None) -> dict[str, Path]:
    """The file of each part, train first; a single file may hold all of them."""
    if not path.is_dir():
        path = need_file(path)
        return _files_beside(path) if test is None else {"train": path, "test": need_file(test)}
    if test is not None:
        raise InputError(f"`test` must be None if `path` is a folder; got `{test}`.")
    found = sorted(file for file in path.iterdir() if file.name.lower().removesuffix(".gz").endswith(".arff"))
    groups = [group for file in found if len(group := _files_beside(file)) > 1]
    if len(groups) == 1:
        return groups[0]
    if len(found) == 1:
        return {"train": found[0]}
    names = ", ".join(file.name for file in found[:6]) + (", ..." if len(found) > 6 else "")
    raise InputError(f"`{path}` must hold one ARFF file or one pair, -train and -test; got {names or 'none'}.")


def _files_beside(path: Path) -> dict[str, Path]:
    """A train file and the other parts beside it, whose names differ only in the part; else the file alone."""
    own = _PART.fullmatch(path.name)
    if own is None or part_name(own[3]) != "train":
        return {"train": path}
    rest = [(own[group] or "").lower() for group in (1, 2, 4, 5)]
    found = [("train", path)]
    for file in sorted(path.parent.iterdir()):
        other = _PART.fullmatch(file.name)
        if other is None or not file.is_file() or part_name(other[3]) == "train":
            continue
        if [(other[group] or "").lower() for group in (1, 2, 4, 5)] == rest:
            found.append((part_name(other[3]), file))
    return by_part(found, f"`{path.parent}`")


class _Attribute(NamedTuple):
    """A column of the data."""

    name: str
    kind: str  # "numeric", "nominal", "string" or "date"
    choices: tuple[str, ...]  # the values of a nominal one


@dataclass(frozen=True)
class _Header:
    """Everything above the data; ``options`` is what MEKA writes after a colon in the name of the relation."""

    relation: str
    options: str
    attributes: tuple[_Attribute, ...]

    def option(self, name: str) -> int | None:
        """The integer after ``-name``; None if there is none."""
        found = re.search(rf"(?:^|\s)-{name}\s+(-?\d{{1,18}})(?=\s|$)", self.options)
        return int(found[1]) if found else None


def _read(
    path: Path,
    labels: str | Path | Sequence[str] | None,
    missing: float | None,
    encoding: str,
    like: tuple[_Header, list[int], Path] | None,
) -> tuple[_Header, _Rows, list[int]]:
    """Header, rows and label columns of a file, whose header must be ``like`` that of an earlier file."""
    lines = text_lines(path, encoding=encoding)
    header = _read_header(lines, path)
    if like is None:
        columns = _label_columns(path, header, labels)
    else:
        first, columns, other = like
        _check_same_attributes(header.attributes, first.attributes, path, other)
    return header, _RowReader(header, columns, _text_column(path, header, columns), missing).read(lines, path), columns


def _read_header(lines: Iterator[tuple[int, str]], path: Path) -> _Header:
    """Consume the lines up to and including ``@data``."""
    relation, number = "", 0
    attributes: dict[str, _Attribute] = {}
    for number, raw in lines:
        line = _without_comment(raw)
        if not line:
            continue
        keyword = line.split(None, 1)[0].lower()
        where = f"`{path}` line {number}"
        if keyword == "@data":
            if not attributes:
                raise InputError(f"{where}: data must come after at least one attribute; got none.")
            name, _, options = relation.partition(":")
            return _Header(name.strip(), options, tuple(attributes.values()))
        if keyword == "@relation":
            relation = " ".join(_words(line[len(keyword) :], where))
        elif keyword == "@attribute":
            attribute = _attribute(line, where)
            if attribute.name in attributes:
                raise InputError(f"{where}: attribute {attribute.name!r} must be declared once; got it twice.")
            attributes[attribute.name] = attribute
        else:
            raise InputError(f"{where}: must be @relation, @attribute or @data; got {line[:40]!r}.")
    raise InputError(f"`{path}` ends at line {number} without @data, so it is not a complete ARFF file.")


def _attribute(line: str, where: str) -> _Attribute:
    found = _NAME.fullmatch(line)
    if found is None:
        raise InputError(f"{where}: an attribute must be written as @attribute name kind; got {line[:40]!r}.")
    name = found[2] if found[1] is None else _unquoted(found[1])
    kind = found[3].strip()
    if kind.startswith("{"):
        if not kind.endswith("}"):
            raise InputError(f"{where}: the values of attribute {name!r} must end with a brace; got {kind[-40:]!r}.")
        choices = tuple(_words(kind[1:-1], where))
        if len(set(choices)) < len(choices):
            raise InputError(f"{where}: the values of attribute {name!r} must differ; got {kind[:60]!r}.")
        return _Attribute(name, "nominal", choices)
    first = kind.split(None, 1)[0].lower() if kind else ""
    if first in _NUMERIC:
        return _Attribute(name, "numeric", ())
    if first in ("string", "date"):
        return _Attribute(name, first, ())
    rule = "must be numeric, real, integer, string, date or a list in braces"
    raise InputError(f"{where}: attribute {name!r} {rule}; got {kind[:40]!r}.")


def _without_comment(line: str) -> str:
    """The line up to a ``%`` outside quotes, stripped."""
    if "%" in line:
        comment = _COMMENT.fullmatch(line)
        line = comment[1] if comment else line
    return line.strip()


def _words(text: str, where: str) -> list[str]:
    """Words between commas or blanks, with quotes and escapes undone."""
    if "'" not in text and '"' not in text:
        return text.replace(",", " ").split()
    found, position = [], 0
    text = text.rstrip(" \t,")
    while position < len(text):
        word = _WORD.match(text, position)
        if word is None:
            rule = "quotes must open and close around a whole value"
            raise InputError(f"{where}: {rule}; got {text[position : position + 40]!r}.")
        found.append(word[2] if word[1] is None else _unquoted(word[1]))
        position = word.end()
    return found


def _unquoted(word: str) -> str:
    return _ESCAPE.sub(lambda part: chr(int(part[1], 16)) if part[1] else _ESCAPED.get(part[2], part[2]), word[1:-1])


def _label_columns(path: Path, header: _Header, labels: str | Path | Sequence[str] | None) -> list[int]:
    """Ascending indices of the attributes that are labels."""
    count = next((value for value in map(header.option, "Cc") if value is not None), None)
    if labels is None and count is not None:
        if not 0 < abs(count) <= len(header.attributes):
            raise InputError(
                f"`{path}`: -C in the relation must name 1 to {len(header.attributes)} attributes; got {count}."
            )
        first = 0 if count > 0 else len(header.attributes) + count
        columns = list(range(first, first + abs(count)))
    else:
        if labels is None or isinstance(labels, (str, Path)):
            source = _xml_beside(path) if labels is None else need_file(labels)
            names, listed_in = _xml_labels(source), f"`{source}`"
        else:
            names, listed_in = list(labels), "`labels`"
            if not names:
                raise InputError("`labels` must name at least one attribute; got none.")
        index = {attribute.name: column for column, attribute in enumerate(header.attributes)}
        for name in names:
            if name not in index:
                raise InputError(f"{listed_in}: label {name!r} must be an attribute of `{path}`.")
        columns = sorted({index[name] for name in names})
    for column in columns:
        name, kind, choices = header.attributes[column]
        if not (set(choices) <= set(_LABEL_VALUES) - {"?"} if choices else kind == "numeric"):
            shown = ",".join(choices) if choices else kind
            task = "; several classes per target are a multi-output task, not a multi-label one" if choices else ""
            raise InputError(f"`{path}`: label {name!r} must be declared {{0,1}} or numeric; got {shown[:60]}{task}.")
    return columns


def _xml_beside(path: Path) -> Path:
    part = _PART.fullmatch(path.name)
    stems = [path.name.lower().removesuffix(".gz").removesuffix(".arff"), part[1].lower() if part else ""]
    found = sorted(file for file in path.parent.iterdir() if file.suffix.lower() == ".xml")
    for stem in stems:
        for file in found:
            if file.stem.lower() == stem:
                return file
    if len(found) == 1:
        return found[0]
    raise InputError(f"`{path}` states no labels: give `labels`, or put an XML file of the same name beside it.")


def _xml_labels(path: Path) -> list[str]:
    """The names in Mulan's XML list of labels, outer ones before inner ones; document types are refused."""
    names: dict[str, None] = {}
    depth = 0
    parser = expat.ParserCreate(namespace_separator=" ")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        where = f"`{path}` line {parser.CurrentLineNumber}"
        plain = tag.removeprefix(f"{_MULAN} ")
        if plain != ("label" if depth else "labels"):
            raise InputError(f"{where}: must be a list <labels> of <label>; got <{plain[:40]}>.")
        if depth:
            if "name" not in attributes:
                raise InputError(f"{where}: a label must have a name.")
            if attributes["name"] in names:
                raise InputError(f"{where}: label {attributes['name']!r} must be listed once; got it twice.")
            names[attributes["name"]] = None
        depth += 1

    def refuse(*_: Any) -> None:
        raise InputError(f"`{path}` line {parser.CurrentLineNumber}: must not declare a document type or entities.")

    parser.StartElementHandler = begin
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(read_whole(path), True)
    except expat.ExpatError as error:
        raise InputError(f"`{path}` line {error.lineno} is not XML: {expat.ErrorString(error.code)}.") from error
    if not names:
        raise InputError(f"`{path}` must list at least one label.")
    return list(names)


def _text_column(path: Path, header: _Header, labels: list[int]) -> int | None:
    features = [column for column in range(len(header.attributes)) if column not in set(labels)]
    for column in features:
        name, kind, _ = header.attributes[column]
        if kind == "string" and len(features) == 1:
            return column
        if kind in ("string", "date"):
            rule = "must be numeric or nominal, or a string and the only feature"
            raise InputError(f"`{path}`: attribute {name!r} {rule}; got {kind}.")
    return None


def _check_same_attributes(
    found: Sequence[_Attribute], expected: Sequence[_Attribute], path: Path, other: Path
) -> None:
    if len(found) != len(expected):
        raise InputError(f"`{path}` must have the {len(expected)} attributes of `{other}`; got {len(found)}.")
    for column, (one, two) in enumerate(zip(found, expected, strict=True)):
        if one != two:
            raise InputError(f"`{path}`: attribute {column}, {one.name!r}, must be declared as in `{other}`.")


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a file: either ``dense``, or the three arrays of sparse rows."""

    dense: np.ndarray | None  # (rows, attributes) float32; labels as 0, 1 and -1, texts left out
    texts: list[str] | None  # if one attribute is text
    counts: np.ndarray  # (rows,) int64
    columns: np.ndarray  # int64, indices of attributes
    values: np.ndarray  # float32

    def __len__(self) -> int:
        return len(self.counts) if self.dense is None else len(self.dense)


class _RowReader:
    """Reads rows with one header.

    Args:
        header: of the file.
        labels: indices of the attributes that are labels.
        text: index of the attribute that is kept as text; None if there is none.
        missing: replaces a question mark in a feature; None to refuse it.
    """

    def __init__(self, header: _Header, labels: Sequence[int], text: int | None, missing: float | None) -> None:
        self.attributes, self.text, self.missing = header.attributes, text, missing
        self.labels = frozenset(labels)
        self.numeric = [column for column in range(len(self.attributes)) if column != text]
        self.converters = {column: self._converter(column) for column in self.numeric}

    def read(self, lines: Iterator[tuple[int, str]], path: Path) -> _Rows:
        dense: list[np.ndarray] = []
        texts: list[str] = []
        columns, values, counts = array("q"), array("f"), array("q")
        sparse = None
        for number, raw in lines:
            line = _without_comment(raw)
            if not line:
                continue
            where = f"`{path}` line {number}"
            if sparse is None:
                sparse = line.startswith("{")
            if sparse != line.startswith("{"):
                raise InputError(f"{where}: either all rows must be in braces or none; got {line[:40]!r}.")
            if sparse:
                row = self._sparse_row(line, where)
                columns.extend(row)
                values.extend(self._finite(list(row.values()), list(row), where).tolist())
                counts.append(len(row))
            else:
                dense.append(self._finite(self._dense_row(line, texts, where), self.numeric, where))
        if sparse:
            sizes, where_stored = (np.array(part, dtype=np.int64) for part in (counts, columns))
            return _Rows(None, None, sizes, where_stored, np.array(values, dtype=np.float32))
        none = np.empty(0, dtype=np.int64)
        matrix = np.stack(dense) if dense else np.empty((0, len(self.numeric)), dtype=np.float32)
        return _Rows(matrix, None if self.text is None else texts, none, none, none.astype(np.float32))

    def _dense_row(self, line: str, texts: list[str], where: str) -> list[float]:
        fields = _words(line, where)
        if len(fields) != len(self.attributes):
            raise InputError(f"{where}: a row must have {len(self.attributes)} values; got {len(fields)}.")
        if self.text is not None:
            texts.append(fields.pop(self.text))
            if texts[-1] == "?":
                raise InputError(f"{where}: the text of attribute {self.attributes[self.text].name!r} is missing.")
        # `float` accepts underscores and the digits of every script, which are no numbers here.
        if line.isascii() and "_" not in line:
            try:
                return [convert(field) for convert, field in zip(self.converters.values(), fields, strict=True)]
            except (ValueError, KeyError):
                pass
        return [self._number(column, field, where) for column, field in zip(self.numeric, fields, strict=True)]

    def _sparse_row(self, line: str, where: str) -> dict[int, float]:
        """The values of a row by attribute, ascending."""
        if self.text is not None:
            raise InputError(f"{where}: rows of text must not be in braces; got {line[:40]!r}.")
        if not line.endswith("}") or "{" in line[1:]:
            raise InputError(f"{where}: a row must end with its brace, without a weight; got {line[-40:]!r}.")
        body = line[1:-1].strip()
        if "'" in body or '"' in body:  # A quoted value may contain a comma.
            flat = _words(body, where)
            pairs = [flat[start : start + 2] for start in range(0, len(flat), 2)]
        else:
            pairs = [pair.split() for pair in body.split(",")] if body else []
        row: dict[int, float] = {}
        for pair in pairs:
            if len(pair) != 2 or not (pair[0].isascii() and pair[0].isdigit() and len(pair[0]) < 10):
                raise InputError(f"{where}: values in braces must be written as number value; got {' '.join(pair)!r}.")
            column = int(pair[0])
            if column >= len(self.attributes):
                raise InputError(f"{where}: attribute {column} must lie in [0, {len(self.attributes)}).")
            if column in row:
                raise InputError(f"{where}: attribute {column} must occur once; got it twice.")
            row[column] = self._number(column, pair[1], where)
        return dict(sorted(row.items()))

    def _converter(self, column: int) -> Callable[[str], float]:
        if column in self.labels:
            return _LABEL_VALUES.__getitem__
        if self.attributes[column].kind == "numeric":
            return float
        return {choice: float(index) for index, choice in enumerate(self.attributes[column].choices)}.__getitem__

    def _number(self, column: int, field: str, where: str) -> float:
        """One value; the error says what is wrong with it."""
        name, kind, choices = self.attributes[column]
        if field == "?" and column not in self.labels and field not in choices:
            if self.missing is None:
                raise InputError(f"{where}: attribute {name!r} is missing; `missing` can give a value for it.")
            return self.missing
        try:
            if kind == "numeric" and ("_" in field or not field.isascii()):
                raise ValueError(field)
            return self.converters[column](field)
        except (ValueError, KeyError):
            some = f"one of {', '.join(choices[:8])}{', ...' if len(choices) > 8 else ''}"
            rule = "0, 1 or ?" if column in self.labels else "a number" if kind == "numeric" else some
            raise InputError(f"{where}: attribute {name!r} must be {rule}; got {field[:40]!r}.") from None

    def _finite(self, row: list[float], columns: Sequence[int], where: str) -> np.ndarray:
        with np.errstate(over="ignore"):  # Values too large for float32 become infinite and are refused.
            numbers = np.array(row, dtype=np.float64).astype(np.float32)
        if not np.isfinite(numbers).all():
            wrong = int(np.flatnonzero(~np.isfinite(numbers))[0])
            name = self.attributes[columns[wrong]].name
            raise InputError(f"{where}: attribute {name!r} must be a finite float32; got {row[wrong]}.")
        return numbers


def _joined(parts: list[_Rows], files: list[Path]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    filled = [part for part in parts if len(part)] or parts[:1]
    first = filled[0]
    for part, file in zip(parts, files, strict=True):
        if len(part) and (part.dense is None) != (first.dense is None):
            other = files[parts.index(first)]
            raise InputError(f"`{file}`: rows must be in braces exactly if those of `{other}` are.")
    return _Rows(
        None if first.dense is None else np.concatenate([part.dense for part in filled if part.dense is not None]),
        None if first.texts is None else [text for part in filled for text in part.texts or ()],
        *(np.concatenate([getattr(part, name) for part in filled]) for name in ("counts", "columns", "values")),
    )


def _tensors(rows: _Rows, header: _Header, features: list[int], labels: list[int], path: Path) -> tuple[Inputs, Tensor]:
    if rows.dense is None:
        return _sparse_tensors(rows, header, features, labels, path)
    if rows.texts is not None:
        labels = [column - (column > features[0]) for column in labels]  # The text is not among the columns.
        inputs: Inputs = Texts(rows.texts)
    else:
        inputs = Features(torch.from_numpy(np.ascontiguousarray(rows.dense[:, features])))
    stated = rows.dense[:, labels]
    row, label = np.nonzero(stated)
    return inputs, sparse_targets(row, label, len(rows), len(labels), present=stated[row, label] > 0)


def _sparse_tensors(
    rows: _Rows, header: _Header, features: list[int], labels: list[int], path: Path
) -> tuple[Inputs, Tensor]:
    row = np.repeat(np.arange(len(rows)), rows.counts)
    index = np.full(len(header.attributes), -1, dtype=np.int64)
    index[labels] = np.arange(len(labels))
    label = index[rows.columns]
    listed, nonzero = label >= 0, rows.values != 0
    implied_rows, implied_labels = _implied_labels(header, labels, len(rows), row[listed], label[listed], path)
    known = listed & nonzero
    targets = sparse_targets(
        np.concatenate([row[known], implied_rows]),
        np.concatenate([label[known], implied_labels]),
        len(rows),
        len(labels),
        present=np.concatenate([rows.values[known] > 0, np.ones(len(implied_rows), dtype=bool)]),
    )
    index[labels], index[features] = -1, np.arange(len(features))
    column = index[rows.columns]
    kept = (column >= 0) & nonzero
    crow = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=len(rows)))]).astype(np.int64)
    columns, values = column[kept].astype(np.int32), rows.values[kept]
    inputs = SparseRows(torch.from_numpy(crow), torch.from_numpy(columns), torch.from_numpy(values), len(features))
    return inputs, targets


def _implied_labels(
    header: _Header, labels: list[int], num_rows: int, row: np.ndarray, label: np.ndarray, path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Row and label of the labels that sparse rows leave out and yet have.

    A value that a row leaves out is the first one declared, which is 1 for a label declared {1,0}.
    """
    present = [
        i for i, column in enumerate(labels) if [_LABEL_VALUES[x] for x in header.attributes[column].choices[:1]] == [1]
    ]
    if present and num_rows * len(labels) > limit("entries"):
        raise InputError(
            f"`{path}`: label {header.attributes[labels[present[0]]].name!r} must not be declared with 1 first, which "
            f"makes it present where rows leave it out; got too many, {num_rows} rows of {len(labels)} labels."
        )
    implied = np.zeros((num_rows if present else 0, len(labels)), dtype=bool)
    if present:
        implied[:, present] = True
        implied[row, label] = False
    rows, implied_labels = np.nonzero(implied)
    return rows, implied_labels

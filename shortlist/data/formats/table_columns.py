"""What the columns of a table are for, inferred from their names and first rows where nobody said it."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from shortlist.data.files.part_names import PART_PATTERN
from shortlist.data.files.table_files import TableFile, cell_list
from shortlist.errors import ChoiceError

# Usual names of the column of labels, in lower case, the likeliest first; several labels per cell suit the second kind.
_CLASS_NAMES = ("label", "class", "category", "target", "intent", "topic", "species", "genre", "sentiment", "y")
_SET_NAMES = ("labels", "classes", "categories", "targets", "intents", "topics", "genres", "tags", "keywords", "codes")
_ID = re.compile(r"(?:.*[\W_])?(?:id|idx|index|uid|uuid|guid|key|row|nr)", re.IGNORECASE)
_PART = re.compile(PART_PATTERN, re.IGNORECASE)
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?(?:[T ]\d{1,2}:\d{2}\S*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}(?: \d{1,2}:\d{2}\S*)?"
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_QUOTED = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*,?""")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# How many of the pieces of a cell must occur in other cells, too, to count as labels; names contain commas often.
_SEPARATORS = {";": 0.5, "|": 0.5, ",": 0.8}
_MOST_CHOICES = 3


class ColumnRoles(NamedTuple):
    """What the columns of a table are for.

    Attributes:
        options: the options of `shortlist.data.read_table` that say all of it, for this table and others like it.
        remark: what was assumed and what is not used, in a sentence; empty if the table has the usual columns.
        asks: whether cells with several labels are an error, because nobody said that they are classes.
    """

    options: dict[str, Any]
    remark: str
    asks: bool


def infer_columns(
    table: TableFile,
    *,
    text: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    separator: str | None = None,
    split: str | None = None,
    groups: Sequence[str] | None = None,
) -> ColumnRoles:
    """Infer what `shortlist.data.read_table` was not told; the arguments are its own.

    A name such as ``text``, ``label`` or ``split`` decides; otherwise the first rows do: texts differ from row to row,
    labels repeat, dates and row numbers are left out.

    Raises:
        ChoiceError: if several columns could hold the labels, or none.
    """
    columns = _first_rows(table)
    if groups is None:
        groups = ["source"] if "source" in columns else []
    told = {"text": text, "features": features, "label": label, "labels": labels, "split": split}
    told["separator"] = separator
    taken = {name for given in (text, features, label, labels, split, groups) for name in _named(table, given)}
    asks = label is None and labels is None
    if split is None:
        split = "split" if "split" in columns and "split" not in taken else _part_column(columns, taken)
        taken |= _named(table, split)
    if asks:
        label, labels = _label_column(table, columns, taken)
        taken |= _named(table, label) | _named(table, labels)
    if text is None and features is None:
        text, features = _input_columns(columns, taken)
        taken |= _named(table, text) | _named(table, features)
    if separator is None and isinstance(labels, str) and labels in columns:
        separator = _separator(columns[labels])
    options = {"text": text, "features": features, "label": label, "labels": labels, "split": split}
    options["separator"] = separator
    inferred = {role: value for role, value in options.items() if told[role] is None and value is not None}
    unused = [name for name in columns if name not in taken]
    remark = _remark(table, options, inferred, unused)
    named = label or labels
    if asks and isinstance(named, str) and named in columns[named].texts:
        remark += f" The first line seems to be a row, because {named!r} is a label, too{_with_names(table, options)}"
    return ColumnRoles({**options, "groups": tuple(groups)}, remark.strip(), asks)


def likely_columns(table: TableFile, option: str) -> list[str]:
    """The columns that ``text`` or ``label`` may mean, the likeliest first, for an error that offers them."""
    columns = _first_rows(table)
    if option == "text":
        texts = [name for name, column in columns.items() if not (column.numeric or column.lists or column.dates)]
        return sorted(texts, key=lambda name: -columns[name].words)[:_MOST_CHOICES]
    likely = [name for name, column in columns.items() if column.could_be_label] if option == "label" else []
    return likely[:_MOST_CHOICES]


def several_labels(names: Iterable[str]) -> str | None:
    """What seems to separate several labels in the names of classes, ``[`` for lists; None if each is one label.

    Example:
        >>> several_labels(["red;round", "red", "round;small"]), several_labels(["Lung, left", "Lung, right", "Heart"])
        (';', None)
    """
    names = [name.strip() for name in names if name.strip()]
    if names and all(_listed(name) is not None for name in names):
        return "["
    for separator, least in _SEPARATORS.items():
        pieces = [[piece.strip() for piece in name.split(separator)] for name in names]
        uses = Counter(piece for found in pieces for piece in set(found))
        inside = [piece for found in pieces if len(found) > 1 for piece in found if piece]
        if inside and sum(uses[piece] > 1 for piece in inside) >= least * len(inside):
            return separator
    return None


def label_names_in(cell: Any, separator: str) -> list[Any]:
    """The labels in a cell: a list, a list as JSON or Python writes it, or names between separators.

    Example:
        >>> label_names_in('["a", "b"]', ";"), label_names_in("['a', 'b']", ";"), label_names_in("a; b", ";")
        (['a', 'b'], ['a', 'b'], ['a', ' b'])
    """
    if not isinstance(cell, str):
        return cell if isinstance(cell, list) else [cell]
    listed = _listed(cell)
    return cell.split(separator) if listed is None else listed


def with_points(cells: Sequence[Any], decimal: str) -> list[Any]:
    """Cells whose decimal commas, if the table has them, are points."""
    if decimal == ".":
        return list(cells)
    return [
        cell.replace(",", ".") if isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell.strip()) else cell
        for cell in cells
    ]


def is_number(value: Any) -> bool:
    """Whether a cell is a finite number."""
    try:
        # Python reads 1_000 as a number, but nobody else does.
        return "_" not in str(value) and math.isfinite(float(value))
    except (ValueError, TypeError, OverflowError):
        return False


def _is_float(value: Any) -> bool:
    try:
        float(value)
        return True
    except (ValueError, TypeError):
        return False
    except OverflowError:
        return True


def _listed(cell: str) -> list[Any] | None:
    """The labels of a cell that is a list in JSON, or a list, tuple or set of Python or numpy as text."""
    if not cell.lstrip().startswith(tuple(_BRACKETS)):
        return None
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return _python_list(cell.strip())
    return found if isinstance(found, list) and not any(isinstance(one, list | dict) for one in found) else None


def _python_list(cell: str) -> list[str] | None:
    """The quoted texts in brackets, as pandas writes a column of lists, with or without commas."""
    found, position = [], 1
    while (match := _QUOTED.match(cell, position)) is not None:
        text = _unquoted(match[1])
        if text is None:
            return None
        found.append(text)
        position = match.end()
    return found if cell[position:].strip() == _BRACKETS[cell[0]] and (found or cell[0] == "[") else None


def _unquoted(literal: str) -> str | None:
    if "\\" not in literal:
        return literal[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes that Python does not know
            return ast.literal_eval(literal)
    except (ValueError, SyntaxError):
        return None


class _Column:
    """The first cells of a column, without the empty ones."""

    def __init__(self, name: str, cells: Sequence[Any], decimal: str) -> None:
        self.name = name
        self.cells = [cell for cell in with_points(cells, decimal) if cell is not None and cell != "" and cell == cell]
        self.texts = [str(cell).strip() for cell in self.cells]

    @cached_property
    def numeric(self) -> bool:
        """Whether most cells are numbers, finite or not, or lists of them; a column without cells may be anything."""
        flat = [all(map(_is_float, cell)) if isinstance(cell, list) else _is_float(cell) for cell in self.cells]
        return 2 * sum(flat) >= len(flat)

    @cached_property
    def lists(self) -> bool:
        return not self.numeric and all(isinstance(cell, list) for cell in self.cells)

    @cached_property
    def dates(self) -> bool:
        found = sum(_DATE.fullmatch(text) is not None for text in self.texts)
        return not self.lists and found > 0.9 * len(self.texts)

    @cached_property
    def distinct(self) -> int:
        return len(set(self.texts))

    @cached_property
    def repeats(self) -> bool:
        """Whether values recur, as those of labels do."""
        return self.distinct <= max(1, len(self.texts) // 2)

    @cached_property
    def words(self) -> float:
        """Words per cell."""
        return sum(len(text.split()) for text in self.texts) / max(1, len(self.texts))

    @cached_property
    def whole(self) -> bool:
        return self.numeric and all(re.fullmatch(r"-?\d+(?:\.0)?", text) for text in self.texts)

    @cached_property
    def numbers_rows(self) -> bool:
        """Whether the cells only name or count the rows."""
        if _ID.fullmatch(self.name):
            return not self.repeats and self.words < 2
        if not self.whole or len(self.texts) < 8:
            return False
        return all(float(after) - float(before) == 1 for before, after in pairwise(self.texts))

    @cached_property
    def could_be_label(self) -> bool:
        if not self.cells or self.dates or self.numbers_rows:
            return False
        if self.numeric:
            return self.whole and self.distinct <= max(2, len(self.cells) // 5)
        return self.lists or (self.repeats and self.words < 8)


def _first_rows(table: TableFile) -> dict[str, _Column]:
    names = [name for name in table.columns if name]
    block = next(iter(table.blocks(names)), None)
    cells = {} if block is None else {name: cell_list(block.columns[name]) for name in names}
    return {name: _Column(name, cells.get(name, ()), table.decimal) for name in names}


def _named(table: TableFile, given: str | Sequence[str] | None) -> set[str]:
    """The columns that an option names; a name that does not exist is refused when the table is read."""
    if given is None:
        return set()
    if isinstance(given, str):
        return {name for name in table.columns if name == given or (given[-1:] == "*" and name.startswith(given[:-1]))}
    return set(given)


def _part_column(columns: Mapping[str, _Column], taken: set[str]) -> str | None:
    for name, column in columns.items():
        parts = {text.lower() for text in column.texts}
        if name not in taken and len(parts) > 1 and all(map(_PART.fullmatch, parts)):
            return name
    return None


def _label_column(
    table: TableFile, columns: Mapping[str, _Column], taken: set[str]
) -> tuple[str | None, str | Sequence[str] | None]:
    """The option ``label`` or ``labels``."""
    exact = [name for name in ("labels", "label") if name in columns and name not in taken]
    if len(exact) == 1:
        return (exact[0], None) if exact == ["label"] and not columns["label"].lists else (None, exact[0])
    free = {name: column for name, column in columns.items() if name not in taken}
    usual = [name for name in free if name.lower() in (*_CLASS_NAMES, *_SET_NAMES) and not free[name].dates]
    likely = [name for name in usual if free[name].could_be_label] or usual
    if not exact and not likely:
        likely = [name for name, column in free.items() if column.could_be_label and not column.numeric]
        likely = likely or [name for name, column in free.items() if column.could_be_label]
    if len(likely) == 1:
        name = likely[0]
        sets = free[name].lists or name.lower() in _SET_NAMES
        return (None, name) if sets else (name, None)
    flags = [name for name, column in free.items() if column.cells and set(column.texts) <= {"0", "1", "0.0", "1.0"}]
    if not exact and not usual and len(flags) > 1:
        likely = []
    shortest = [name for name in sorted(free, key=lambda name: free[name].words) if not free[name].dates]
    choices: list[dict[str, Any]] = [{"labels": flags}] if len(flags) > 1 else []
    choices += [{"labels" if name in _SET_NAMES else "label": name} for name in exact or likely or shortest]
    raise ChoiceError(
        f"`{table.path}`: `label` or `labels` must name the column of labels; it has {column_names(table)}.",
        choices[:_MOST_CHOICES],
    )


def _input_columns(
    columns: Mapping[str, _Column], taken: set[str]
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """The options ``text`` and ``features``, of which one is None."""
    free = {name: column for name, column in columns.items() if name not in taken}
    if "text" in free:
        return ["text"], None
    useful = {name: column for name, column in free.items() if not column.numbers_rows and not column.dates}
    written = {name: column for name, column in useful.items() if not column.numeric and not column.lists}
    texts = [name for name, column in written.items() if column.words >= 3 or not column.repeats]
    numbers = [name for name, column in useful.items() if column.numeric]
    # Codes and names differ from row to row like texts, but beside sentences or numbers they tell nothing.
    texts = [name for name in texts if written[name].words >= 2] or ([] if numbers else texts)
    if texts:
        return texts, None
    features = numbers or [name for name, column in free.items() if column.numeric]
    if features:
        return None, features
    if written:
        return list(written), None
    # Reading it names the cell that is no number.
    return None, list(useful)


def _separator(column: _Column) -> str:
    if column.lists:
        return ";"
    found = several_labels(dict.fromkeys(column.texts))
    # Cells with a list are recognized one by one.
    return found if found in _SEPARATORS else ";"


def _remark(table: TableFile, options: Mapping[str, Any], inferred: Mapping[str, Any], unused: Sequence[str]) -> str:
    """What was assumed, if the columns do not have the usual names."""
    usual = {"text": ["text"], "label": "label", "labels": "labels", "split": "split", "separator": ";"}
    odd = [role for role, value in inferred.items() if role != "features" and value != usual.get(role)]
    # Columns that are not used matter only if nobody chose the others.
    chosen = "text" not in inferred and "features" not in inferred
    if not odd and not table.assumed and (chosen or not unused):
        return ""
    names = {"text": "text", "features": "numbers", "label": "class", "labels": "labels", "split": "parts"}
    said = [f"{what} from {_quoted(options[role])}" for role, what in names.items() if options[role] is not None]
    said += [f"labels separated by {inferred['separator']!r}"] if "separator" in odd else []
    rest = f" Not used: {_quoted(unused)}." if unused else ""
    return f"`{table.path}` is read as: {', '.join([*said, *table.assumed])}.{rest}"


def _with_names(table: TableFile, options: Mapping[str, Any]) -> str:
    """How to put a line of names above a table without one."""
    if table.delimiter is None or table.path.suffix.lower() not in (".csv", ".tsv"):
        return ": put a line of names above it."
    known = {str(options[role]): role for role in ("label", "labels", "split") if isinstance(options[role], str)}
    texts = options["text"] or []
    names = [
        known.get(name) or ("text" if [name] == texts else f"column{number}")
        for number, name in enumerate(table.columns, 1)
    ]
    line, path = shlex.quote(table.delimiter.join(names)), shlex.quote(str(table.path))
    other = shlex.quote(str(table.path.with_name(f"named-{table.path.name}")))
    return f"; with a line of names above it: (echo {line}; cat {path}) > {other}"


def _quoted(names: str | Sequence[str]) -> str:
    listed = [names] if isinstance(names, str) else list(names)
    rest = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return ", ".join(map(repr, listed[:8])) + rest


def column_names(table: TableFile) -> str:
    """The names of the columns, for an error."""
    listed = ", ".join(map(repr, table.columns[:12]))
    return listed + (f" and {len(table.columns) - 12} more" if len(table.columns) > 12 else "") or "none"

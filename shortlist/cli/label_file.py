"""Label sets from a file: arrays, JSON, or text with one set per line."""

from __future__ import annotations

import json
import re
from pathlib import Path

from shortlist.audit.layer import LabelSets, read_array


def read_names(path: str | Path) -> list[str]:
    """One label name per line, in the order of the layer's rows."""
    names = _lines(Path(path))
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if name in seen:
            raise ValueError(f"`{path}` line {number} repeats the name of line {seen[name]}: {name!r}.")
        seen[name] = number
    return names


def read_label_file(
    path: str | Path, num_labels: int, *, key: str | None = None, names: list[str] | None = None
) -> LabelSets:
    """Read label sets.

    Args:
        path: ``.npz``, ``.npy`` or ``.safetensors`` with labels in a form of ``shortlist.targets``; ``.json`` with a
            list of lists; any other ending is text, one set per line, an empty line for the empty set. Labels are
            separated by commas, semicolons or tabs, or by blanks where a line has none of these.
        num_labels: labels are numbered from 0 to one less than this.
        key: which array of the file.
        names: names of the labels; a file may then use them instead of numbers, and must if some are numbers.

    Raises:
        ValueError: names the file and the line.
    """
    path = Path(path)
    if path.suffix in (".npz", ".npy", ".safetensors"):
        return read_array(path, key)
    number_of = {name: number for number, name in enumerate(names or [])}
    if path.suffix == ".json":
        places = [(f"`{path}` entry {at}", labels) for at, labels in enumerate(_json(path))]
    else:
        places = [(f"`{path}` line {at}", _split(line, number_of)) for at, line in enumerate(_lines(path), start=1)]
    if not places:
        raise ValueError(f"`{path}` holds no label sets.")
    return [_numbers(place, labels, number_of, num_labels) for place, labels in places]


def _json(path: Path) -> list[list[object]]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"`{path}` is not JSON: {error}.") from error
    if not isinstance(content, list) or not all(isinstance(labels, list) for labels in content):
        raise ValueError(f"`{path}` must hold a list of lists of labels.")
    return content


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise ValueError(f"`{path}` is not a file.")
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}` is not text: {error}.") from error


def _split(line: str, number_of: dict[str, int]) -> list[object]:
    if not line:
        return []
    if line in number_of:
        return [line]
    separators = r"[,;\t]" if re.search(r"[,;\t]", line) else r"\s+"
    return [part.strip() for part in re.split(separators, line)]


def _numbers(place: str, labels: list[object], number_of: dict[str, int], num_labels: int) -> list[int]:
    numbers = [_number(place, label, number_of) for label in labels]
    for number in numbers:
        if not 0 <= number < num_labels:
            raise ValueError(f"{place}: labels must lie in [0, {num_labels - 1}]; got {number}.")
    if len(set(numbers)) < len(numbers):
        twice = next(number for at, number in enumerate(numbers) if number in numbers[:at])
        raise ValueError(f"{place}: a label must stand once; {twice} stands twice.")
    return numbers


def _number(place: str, label: object, number_of: dict[str, int]) -> int:
    if isinstance(label, str) and label in number_of:
        return number_of[label]
    if isinstance(label, int) and not isinstance(label, bool):
        return label
    # A number that is no name is a mistake where names are numbers themselves, such as codes.
    codes = any(name.isdigit() for name in number_of)
    if isinstance(label, str) and re.fullmatch(r"-?\d+", label) and not codes:
        return int(label)
    hint = "" if number_of else "; names need a file of names"
    raise ValueError(f"{place}: {label!r} is no label{hint}.")

"""Label names and label sets in files: arrays, JSON, or text with one set per line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shortlist.audit.layer import read_array
from shortlist.errors import InputError
from shortlist.limits import read_whole
from shortlist.targets import from_indices

_ARRAYS = (".npz", ".npy", ".safetensors")


def read_names(path: str | Path) -> list[str]:
    """Read label names, one per line, in the order of the labels."""
    names = _lines(Path(path))
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if name in seen:
            raise InputError(f"`{path}` line {number} repeats the name of line {seen[name]}: {name!r}.")
        seen[name] = number
    return names


def read_label_sets(
    path: str | Path, num_labels: int, *, key: str | None = None, names: list[str] | None = None
) -> np.ndarray | list[list[int]]:
    r"""Read label sets.

    Args:
        path: ``.npz``, ``.npy`` or ``.safetensors`` with labels in a form of ``shortlist.targets``; ``.json`` with a
            list of lists; anything else is text, one set per line, an empty line for the empty set. Labels are
            separated by commas, semicolons or tabs, or by spaces on lines without any of these.
        num_labels: labels are numbered from 0 to one less than this.
        key: which array of the file.
        names: of the labels; the file may then use them instead of numbers, and must if some names are numbers.

    Raises:
        InputError: names the file and the line.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "labels.txt")
        ...     _ = file.write_text("rose, daisy\n\n1\n")
        ...     read_label_sets(file, 2, names=["daisy", "rose"])
        [[1, 0], [], [1]]
    """
    path = Path(path)
    if path.suffix in _ARRAYS:
        return _unambiguous(path, read_array(path, key), num_labels)
    number_of = {name: number for number, name in enumerate(names or [])}
    if path.suffix == ".json":
        rows = [(f"`{path}` entry {at}", labels) for at, labels in enumerate(_json_lists(path))]
    else:
        rows = [(f"`{path}` line {at}", _split(line, number_of)) for at, line in enumerate(_lines(path), start=1)]
    if not rows:
        raise InputError(f"`{path}` holds no label sets.")
    return [_numbers(location, labels, number_of, num_labels) for location, labels in rows]


def _unambiguous(path: Path, labels: Any, num_labels: int) -> Any:
    """Lists as wide as the labels with one more column, if a value tells them from a multi-hot; else InputError."""
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape[1:] != (num_labels,):
        return labels
    if labels.size and np.isin(labels, (0, 1, -1)).all():
        raise InputError(
            f"`{path}` could be a multi-hot or lists of labels, being int64 with values 0, 1 and -1 only: save a "
            "multi-hot as bool, and lists with one more column of -1."
        )
    return from_indices(torch.from_numpy(labels), num_labels).numpy()


def _json_lists(path: Path) -> list[list[object]]:
    try:
        content = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"`{path}` is not JSON: {reason}.") from error
    if not isinstance(content, list) or not all(isinstance(labels, list) for labels in content):
        raise InputError(f"`{path}` must hold a list of lists of labels.")
    return content


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise InputError(f"`{path}` is not a file.")
    try:
        return [line.strip() for line in read_whole(path).decode().splitlines()]
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not text: {error}.") from error


def _split(line: str, number_of: dict[str, int]) -> list[object]:
    if not line:
        return []
    if line in number_of:
        return [line]
    separators = r"[,;\t]" if re.search(r"[,;\t]", line) else r"\s+"
    return [label.strip() for label in re.split(separators, line)]


def _numbers(location: str, labels: list[object], number_of: dict[str, int], num_labels: int) -> list[int]:
    numbers = [_number(location, label, number_of) for label in labels]
    for number in numbers:
        if not 0 <= number < num_labels:
            raise InputError(f"{location}: labels must lie in [0, {num_labels - 1}]; got {number}.")
    if len(set(numbers)) < len(numbers):
        seen: set[int] = set()
        twice = next(number for number in numbers if number in seen or seen.add(number))
        raise InputError(f"{location}: labels must differ; {twice} occurs twice.")
    return numbers


def _number(location: str, label: object, number_of: dict[str, int]) -> int:
    if isinstance(label, str) and label in number_of:
        return number_of[label]
    if isinstance(label, int) and not isinstance(label, bool):
        return label
    # Where names are numbers themselves, such as codes, a number that is no name is a mistake.
    names_are_numbers = any(name.isdigit() for name in number_of)
    if isinstance(label, str) and re.fullmatch(r"-?\d{1,20}", label) and not names_are_numbers:
        return int(label)
    hint = "" if number_of else "; names need a file of names"
    raise InputError(f"{location}: {label!r} is not a label{hint}.")

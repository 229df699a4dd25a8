"""Options of dataset readers as users give them, checked against the reader's own type hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from shortlist.data.dataset import Dataset
from shortlist.data.formats.tables import table_roles
from shortlist.data.opening import FORMATS, open_dataset, recognize_format
from shortlist.errors import InputError
from shortlist.typed_values import read_value


def option_names(read: Callable[..., Any]) -> list[str]:
    """Return the names of the options of a reader: its keyword-only arguments."""
    return [name for name, each in signature(read).parameters.items() if each.kind is each.KEYWORD_ONLY]


def reader_options(given: Mapping[str, Any], read: Callable[..., Any], *, known: Sequence[str] = ()) -> dict[str, Any]:
    """Return options as a reader takes them.

    Text is read as JSON or YAML where the reader takes such a value: a list becomes a tuple. It stays text where the
    reader takes text, such as a column named 5, and becomes a list of one text where it takes only lists.

    Args:
        given: the values by name.
        read: the reader; the types of its keyword arguments say what it takes.
        known: the allowed names; by default those of the reader.

    Raises:
        InputError: names the option that the reader does not have, or whose value it does not take.

    Example:
        >>> def read(path, *, size: int | tuple[int, int] | None = None, text: str | None = None): ...
        >>> reader_options({"size": "[8, 8]", "text": "5"}, read)
        {'size': (8, 8), 'text': '5'}
        >>> reader_options({"size": "wide"}, read)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        shortlist.errors.InputError: reader option `size` must be a whole number or a list of 2, ...; got 'wide'.
    """
    known, hints = known or option_names(read), get_type_hints(read)
    for name in given:
        if name not in known:
            raise InputError(f"reader options must be among {', '.join(known) or 'none'}; got {name!r}.")
    return {name: read_value(value, hints.get(name, Any), f"reader option `{name}`") for name, value in given.items()}


def open_data(
    path: str | Path, *, format: str | None, reader: Mapping[str, Any], tell: Callable[[str], object] | None = None
) -> Dataset:
    """Open a dataset with options that a user gave.

    Args:
        path, format: as in `open_dataset`.
        reader: options of the reader, as in `reader_options`.
        tell: called with a sentence if something was assumed about a table.

    Raises:
        InputError: for options that the reader does not take.
    """
    name, location = recognize_format(path) if format is None else (format, Path(path))
    if name not in FORMATS:
        raise InputError(f"`format` must be one of {', '.join(FORMATS)}; got {name!r}.")
    options = reader_options(reader, FORMATS[name].read)
    remark = table_roles(location, **options).remark if name == "table" and tell is not None else ""
    if remark and tell is not None:
        tell(remark)
    return open_dataset(location, format=name, **options)

"""Options of dataset readers as users give them, checked against the reader's own type hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from shortlist.data.dataset import Dataset
from shortlist.data.opening import FORMATS, open_dataset, recognize_format
from shortlist.errors import InputError
from shortlist.typed_values import describe, matches, read_value, with_tuples


def reader_options(texts: Iterable[str], read: Callable[..., Any]) -> dict[str, Any]:
    """Read options of the form ``NAME=VALUE``.

    A value is read as JSON or YAML where the reader takes such a value: a list becomes a tuple. It stays text where the
    reader takes text, such as a column named 5, and becomes a list of one text where it takes only lists.

    Args:
        texts: what was given.
        read: the reader; the types of its keyword arguments say what it takes.

    Returns:
        The values by name.

    Raises:
        InputError: for text of another form, a repeated or unknown name, or a value that the reader does not take.

    Example:
        >>> def read(path, *, size: int | tuple[int, int] | None = None, text: str | None = None): ...
        >>> reader_options(["size=[8, 8]", "text=5"], read)
        {'size': (8, 8), 'text': '5'}
    """
    given: dict[str, Any] = {}
    for option in texts:
        name, equals, text = option.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--option must look like NAME=VALUE; got {option!r}.")
        if name in ("path", "format"):
            raise InputError(f"--option must not be {name!r}: PATH and --format say that.")
        if name in given:
            raise InputError(f"--option {name} must be given once; it is given twice.")
        hint = get_type_hints(read).get(name)
        if name not in option_names(read):
            raise InputError(f"--option {name} is unknown; options are {', '.join(option_names(read)) or 'none'}.")
        given[name] = read_value(text, Any if hint is None else hint, f"--option {name}")
    return given


def option_names(read: Callable[..., Any]) -> list[str]:
    """Return the names of the options of a reader: its keyword-only arguments."""
    return [name for name, each in signature(read).parameters.items() if each.kind is each.KEYWORD_ONLY]


def check_reader_options(given: Mapping[str, Any], read: Callable[..., Any], *, known: Sequence[str] = ()) -> None:
    """Refuse options that a reader does not have, or whose values have other types than it takes.

    Args:
        given: the values by name, with tuples for lists.
        read: the reader; the types of its keyword arguments say what it takes.
        known: the allowed names; by default those of the reader.

    Raises:
        InputError: names the option.

    Example:
        >>> def read(path, *, size: int | tuple[int, int] | None = None): ...
        >>> check_reader_options({"size": "wide"}, read)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        shortlist.errors.InputError: reader option `size` must be a whole number or a list of 2, ...; got 'wide'.
    """
    known = known or option_names(read)
    for name, value in given.items():
        if name not in known:
            raise InputError(f"reader options must be among {', '.join(known) or 'none'}; got {name!r}.")
        hint = get_type_hints(read).get(name)
        if hint is not None and not matches(hint, value):
            raise InputError(f"reader option `{name}` must be {describe(hint)}; got {value!r:.60}.")


def open_data(path: str | Path, *, format: str | None, reader: Mapping[str, Any]) -> Dataset:
    """Open a dataset with options that a user gave.

    Raises:
        InputError: for options that the reader does not take.
    """
    name, location = recognize_format(path) if format is None else (format, Path(path))
    options = reader_values(reader)
    if name in FORMATS:
        check_reader_options(options, FORMATS[name].read)
    return open_dataset(location, format=name, **options)


def reader_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with tuples for the lists of JSON and YAML."""
    return {name: with_tuples(value) for name, value in given.items()}

"""Options of readers on the command line: texts become the values that the reader says it takes."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

_PLAIN = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a text",
    type(None): "null",
}


def reader_options(texts: Iterable[str], readers: Sequence[Callable[..., Any]]) -> dict[str, Any]:
    """Turn ``NAME=VALUE`` into options.

    A value that is JSON is read as such where a reader takes it: a list becomes a tuple, and a number a text where only
    texts are taken, such as a column named 5. Any other value is a text, or a list of one text where only lists are
    taken. What no reader knows is left to whoever opens the dataset.

    Args:
        texts: what was given on the command line.
        readers: those that may come to read; the types of their keyword arguments say what they take.

    Returns:
        The values by name.

    Raises:
        ValueError: for a text of another form, a name that stands twice, or a value that no reader takes.

    Example:
        >>> from shortlist.cli.data_options import reader_options
        >>> def read(path, *, size: int | tuple[int, int] | None = None, text: str | None = None): ...
        >>> reader_options(["size=[8, 8]", "text=5"], [read])
        {'size': (8, 8), 'text': '5'}
    """
    given: dict[str, Any] = {}
    for option in texts:
        name, equals, text = option.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--option must look like NAME=VALUE; got {option!r}.")
        if name in ("path", "format"):
            raise ValueError(f"--option must not be {name!r}: PATH and --format say that.")
        if name in given:
            raise ValueError(f"--option {name} must stand once; it stands twice.")
        given[name] = _value(name, text, list(dict.fromkeys(_kinds(name, readers))))
    return given


def check_reader_options(given: Mapping[str, Any], read: Callable[..., Any], *, known: Sequence[str] = ()) -> None:
    """Refuse options that a reader does not have, or that are of other types than it takes.

    Args:
        given: the values by name, with tuples for lists.
        read: the reader; the types of its keyword arguments say what it takes.
        known: names that are allowed; those of the reader, if there are none.

    Raises:
        ValueError: names the option.

    Example:
        >>> def read(path, *, size: int | tuple[int, int] | None = None): ...
        >>> check_reader_options({"size": "wide"}, read)
        Traceback (most recent call last):
        ValueError: --reader size must be a whole number or a list of 2, each a whole number or null; got 'wide'.
    """
    known = known or [name for name, one in signature(read).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"--reader must be options among {', '.join(known) or 'none'}; got {name!r}.")
        kinds = list(dict.fromkeys(_kinds(name, [read])))
        if kinds and not any(_fits(kind, value) for kind in kinds):
            wanted = list(dict.fromkeys(_described(kind) for kind in kinds))
            raise ValueError(f"--reader {name} must be {' or '.join(wanted)}; got {value!r:.60}.")


def _kinds(name: str, readers: Sequence[Callable[..., Any]]) -> Iterator[Any]:
    """The types that an option may have, members of unions one by one."""
    for read in readers:
        hint = get_type_hints(read).get(name)
        if hint is not None:
            yield from get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _value(name: str, text: str, kinds: list[Any]) -> Any:
    value = _parsed(text)
    if not kinds:
        return value
    for candidate in (value, text, (text,)):
        if any(_fits(kind, candidate) for kind in kinds):
            return candidate
    wanted = list(dict.fromkeys(_described(kind) for kind in kinds))
    raise ValueError(f"--option {name} must be {' or '.join(wanted)}; got {text!r}.")


def _parsed(text: str) -> Any:
    """A JSON value where the text is one, with tuples for lists; else the text. NaN and infinity are no JSON."""
    try:
        return with_tuples(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def with_tuples(value: Any) -> Any:
    """A value with tuples for lists, which YAML and JSON have no other word for."""
    return tuple(map(with_tuples, value)) if isinstance(value, list) else value


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value is of a type; of a `Literal` any text is, as the reader knows better what to say."""
    if kind in _PLAIN:
        # A bool is an int for Python, and for nobody else.
        return type(value) in {float: (int, float), Path: (str,)}.get(kind, (kind,))
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return isinstance(value, str)
    if not isinstance(value, tuple):
        return False
    if origin is tuple and inside[-1] is not Ellipsis:
        return len(value) == len(inside) and all(map(_fits, inside, value))
    return origin in (tuple, list, Sequence) and all(_fits(inside[0], one) for one in value)


def _described(kind: Any) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, inside))
    if origin is tuple and inside[-1] is not Ellipsis:
        return f"a list of {len(inside)}, each {_described(inside[0])}"
    if origin in (tuple, list, Sequence):
        return f"a list, each {_described(inside[0])}"
    return f"a {getattr(kind, '__name__', kind)}, which no text can be"

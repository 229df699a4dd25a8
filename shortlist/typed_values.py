"""Read values that users give as text, JSON or YAML, and check them against type hints."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.limits import advice, limit

_PLAIN = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a text",
    type(None): "null",
}


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself.

    Example:
        >>> alternatives(int | None)
        (<class 'int'>, <class 'NoneType'>)
    """
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def matches(hint: Any, value: Any) -> bool:
    """Whether a plain value, with tuples for lists, has a type; any text has the type of a `Literal` of texts.

    Example:
        >>> matches(tuple[int, ...], (1, 2)), matches(float, 1), matches(int, True), matches(int | None, None)
        (True, True, False, True)
    """
    kinds = alternatives(hint)
    if len(kinds) > 1:
        return any(matches(kind, value) for kind in kinds)
    if hint is Any:
        return True
    if hint in _PLAIN:
        # In Python a bool is an int; users do not expect that.
        return type(value) in {float: (int, float), Path: (str,)}.get(hint, (hint,))
    origin, inside = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return isinstance(value, str)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    if not isinstance(value, tuple):
        return False
    if origin is tuple and inside[-1] is not Ellipsis:
        return len(value) == len(inside) and all(map(matches, inside, value))
    return origin in (tuple, list, Sequence) and all(matches(inside[0], one) for one in value)


def describe(hint: Any) -> str:
    """Describe a type in words.

    Example:
        >>> describe(int | tuple[int, int] | None)
        'a whole number or a list of 2, each a whole number or null'
    """
    kinds = alternatives(hint)
    if len(kinds) > 1:
        return " or ".join(dict.fromkeys(map(describe, kinds)))
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inside = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, inside))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "an object like '{name: value}'"
    if origin is tuple and inside[-1] is not Ellipsis:
        return f"a list of {len(inside)}, each {describe(inside[0])}"
    if origin in (tuple, list, Sequence):
        return f"a list, each {describe(inside[0])}"
    return f"a {getattr(hint, '__name__', hint)}, which cannot be given as text"


def read_value(value: Any, hint: Any, name: str) -> Any:
    """Convert a user's value to its type: lists become tuples, and text is parsed as JSON or YAML if necessary.

    Args:
        value: text from the command line, or a plain value from a file.
        hint: the type.
        name: the name that the user knows, for error messages.

    Raises:
        InputError: if the value has another type.

    Example:
        >>> read_value("1e-3", float, "--learning_rate"), read_value("[8, 8]", int | tuple[int, int], "--size")
        (0.001, (8, 8))
        >>> read_value("5", str, "--column"), read_value("{width: 2}", dict[str, int], "--encoder_options")
        ('5', {'width': 2})
    """
    candidates = (parse_text(value), value, (value,)) if isinstance(value, str) else (with_tuples(value),)
    for candidate in candidates:
        if matches(hint, candidate):
            return candidate
    raise InputError(f"{name} must be {describe(hint)}; got {value!r:.60}.")


def read_entries(
    texts: Sequence[str], name: str, *, parse: bool = True, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read an object that a user gives as ``NAME=VALUE``, several times, or as a whole in YAML or JSON.

    Args:
        texts: what was given; an entry is added to what came before, and an object replaces it.
        name: the option, for error messages.
        parse: whether a VALUE is parsed as in `read_value`; otherwise it stays text.
        before: what was given elsewhere.

    Raises:
        InputError: for text of another form.

    Example:
        >>> read_entries(["{features: [a, b]}", "label=species"], "--reader")
        {'features': ('a', 'b'), 'label': 'species'}
    """
    found: dict[str, Any] = dict(before or {})
    for text in texts:
        key, equals, value = text.partition("=")
        if equals and re.fullmatch(r"[\w.-]+", key):
            found[key] = parse_text(value) if parse else value
            continue
        given = with_tuples(read_yaml(text, name)) if text.lstrip().startswith("{") else None
        if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
            raise InputError(f"{name} must be NAME=VALUE, or an object like '{{name: value}}'; got {text!r:.80}.")
        found = {key: with_tuples(value) for key, value in given.items()}
    return found


def parse_text(text: str) -> Any:
    """Parse JSON, or else a YAML list or object, with tuples for lists; return any other text unchanged."""
    try:
        # NaN and infinity are not JSON.
        return with_tuples(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        pass
    if text.lstrip().startswith(("{", "[")):
        try:
            return with_tuples(read_yaml(text, "text"))
        except InputError:
            pass
    return text


def read_yaml(text: str, name: str) -> Any:
    """Parse YAML. Numbers like 1e-3 are numbers, as in YAML 1.2. ``name`` is used in error messages.

    Raises:
        InputError: if it is not YAML.
    """
    yaml = require("yaml", extra="train")

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )
    try:
        found = yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise InputError(f"{name} is not YAML: {' '.join(str(error).split())}.") from error
    _check_nodes(found, name)
    return found


def _check_nodes(value: Any, name: str) -> None:
    """Refuse aliases of aliases: a few lines would become more values than memory holds once they are copied."""
    left, waiting = limit("nodes"), [value]
    while waiting and left > 0:
        each = waiting.pop()
        left -= 1
        if isinstance(each, dict | list):
            waiting += each.values() if isinstance(each, dict) else each
    if waiting:
        raise InputError(f"{name} has too many values: {advice('nodes')}.")


def with_tuples(value: Any) -> Any:
    """Return a value with tuples for lists."""
    return tuple(map(with_tuples, value)) if isinstance(value, list | tuple) else value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)

"""JSON documents as dataclasses: a decoder that checks types and ranges, and an encoder."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from shortlist.errors import InputError

T = TypeVar("T")
_Where = tuple[Any, ...]  # Nested pairs (parent, key): cheap to extend, formatted only for errors.
_Decoder = Callable[[Any, _Where], Any]


@dataclass(frozen=True)
class Range:
    """Bounds of a number, used in ``Annotated``; rounding may exceed ``low`` and ``high`` by 1e-9."""

    low: float = -math.inf
    high: float = math.inf
    exclusive: bool = False

    def __contains__(self, value: float) -> bool:
        return value > self.low if self.exclusive else self.low - 1e-9 <= value <= self.high + 1e-9

    def __str__(self) -> str:
        if self.exclusive:
            return f"be above {self.low:g}"
        return f"be at least {self.low:g}" if self.high == math.inf else f"lie in [{self.low:g}, {self.high:g}]"


@dataclass(frozen=True)
class NotEmpty:
    """Marks a list or dict that must not be empty, used in ``Annotated``."""


Count = Annotated[int, Range(low=0)]
Fraction = Annotated[float, Range(low=0, high=1)]
Positive = Annotated[float, Range(low=0, exclusive=True)]


class Record:
    """Base class for the dataclasses of a document.

    A field's name is its JSON key unless its metadata has a ``key``. A field with a default may be absent. Numbers are
    finite, and ``float`` fields keep integers as integers.
    """

    def __getitem__(self, key: str) -> Any:
        """Read a field by its JSON key, as when documents were plain dicts."""
        for field in fields(self):  # pyright: ignore[reportArgumentType]
            if _key(field) == key:
                warnings.warn(f"Use the attribute `{field.name}`, not [{key!r}].", DeprecationWarning, stacklevel=2)
                return getattr(self, field.name)
        raise KeyError(key)


def encode(value: Any) -> Any:
    """Turn records, and lists and dicts of them, into values for `json.dumps`."""
    if isinstance(value, Record):
        return {_key(field): encode(getattr(value, field.name)) for field in fields(value)}  # pyright: ignore[reportArgumentType]
    if isinstance(value, dict):
        return {key: encode(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encode(entry) for entry in value]
    return value


def decode(kind: type[T], value: Any, *, file: str | Path) -> T:
    """Build a record from parsed JSON.

    Args:
        kind: a dataclass that extends `Record`. Unknown keys are ignored.
        value: the result of `json.loads`.
        file: the origin, for error messages.

    Raises:
        InputError: if a value is missing, has the wrong type or is out of range; names the file and the path of the
            first such value.

    Example:
        >>> @dataclass
        ... class Point(Record):
        ...     x: float
        ...     tags: list[str]
        >>> decode(Point, {"x": 1.5, "tags": ["a"]}, file="point.json")
        Point(x=1.5, tags=['a'])
        >>> decode(Point, {"x": 1.5, "tags": ["a", 2]}, file="point.json")
        Traceback (most recent call last):
        shortlist.errors.InputError: `point.json` is damaged: tags[1] must be text; got 2.
    """
    try:
        return _decoder(kind)(value, ())
    except _MismatchError as mismatch:
        raise damaged(file, _path(mismatch.where), mismatch.rule) from None


def damaged(file: str | Path, path: str, rule: str) -> InputError:
    """Return the error for the value at ``path`` of a file, such as ``runs[2].seed``, that violates a rule."""
    return InputError(f"`{file}` is damaged: {path or 'the document'} {rule}.")


def shown(value: Any) -> str:
    """Return a value for an error message, abbreviated if long.

    Example:
        >>> shown(None), shown([1, 2]), shown({"a": 1}), shown("x" * 99)
        ('null', 'a list', 'an object', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'")
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return repr(_short(value)) if isinstance(value, str) else _short(repr(value))


class _MismatchError(Exception):
    def __init__(self, where: _Where, rule: str) -> None:
        super().__init__(rule)
        self.where, self.rule = where, rule


def _key(field: Field[Any]) -> str:
    return field.metadata.get("key", field.name)


def _path(where: _Where) -> str:
    if not where:
        return ""
    parent, key = where
    before = _path(parent)
    if isinstance(key, int):
        return f"{before}[{key}]"
    return f"{before}.{_short(key)}" if before else _short(key)


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= 40 else name[:39] + "…"


@cache
def _decoder(kind: Any) -> _Decoder:
    """Return the function that checks and converts a value of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value, where: value
    if origin is Annotated:
        return _bounded(_decoder(arguments[0]), arguments[1:])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is list:
        return _list(_decoder(arguments[0]))
    if origin is dict:
        return _dict(_decoder(arguments[1]))
    if is_dataclass(kind):
        return _record(kind)
    return {float: _float, int: _int, str: _str, bool: _bool}[kind]


def _float(value: Any, where: _Where) -> float:
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            if math.isfinite(value):
                return value
        except OverflowError:  # An integer with more than 308 digits.
            pass
    raise _MismatchError(where, f"must be a finite number; got {shown(value)}")


def _int(value: Any, where: _Where) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _MismatchError(where, f"must be an integer; got {shown(value)}")
    return value


def _bool(value: Any, where: _Where) -> bool:
    if not isinstance(value, bool):
        raise _MismatchError(where, f"must be true or false; got {shown(value)}")
    return value


def _str(value: Any, where: _Where) -> str:
    if not isinstance(value, str):
        raise _MismatchError(where, f"must be text; got {shown(value)}")
    return value


def _object(value: Any, where: _Where) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _MismatchError(where, f"must be an object; got {shown(value)}")
    return value


def _list(inner: _Decoder) -> _Decoder:
    def check(value: Any, where: _Where) -> list[Any]:
        if not isinstance(value, list):
            raise _MismatchError(where, f"must be a list; got {shown(value)}")
        return [inner(entry, (where, index)) for index, entry in enumerate(value)]

    return check


def _dict(inner: _Decoder) -> _Decoder:
    return lambda value, where: {key: inner(entry, (where, key)) for key, entry in _object(value, where).items()}


def _bounded(inner: _Decoder, bounds: tuple[Range | NotEmpty, ...]) -> _Decoder:
    def check(value: Any, where: _Where) -> Any:
        decoded = inner(value, where)
        for bound in bounds:
            if isinstance(bound, NotEmpty):
                if not decoded:
                    raise _MismatchError(where, "must have at least 1 entry")
            elif decoded not in bound:
                raise _MismatchError(where, f"must {bound}; got {shown(value)}")
        return decoded

    return check


def _literal(allowed: tuple[Any, ...]) -> _Decoder:
    names = ", ".join("null" if each is None else str(each) for each in allowed)

    def check(value: Any, where: _Where) -> Any:
        if isinstance(value, dict | list) or value not in allowed:
            raise _MismatchError(where, f"must be one of {names}; got {shown(value)}")
        return value

    return check


def _union(members: tuple[Any, ...]) -> _Decoder:
    """Decode ``X | None``, or a union of records that differ in the literal of their field ``kind``."""
    others = [member for member in members if member is not types.NoneType]
    if len(others) == 1:
        if get_origin(others[0]) is Literal:
            return _literal((*get_args(others[0]), None))
        inner = _decoder(others[0])
        return lambda value, where: None if value is None else inner(value, where)
    by_kind = {get_args(get_type_hints(member)["kind"])[0]: _decoder(member) for member in others}
    tag = _literal(tuple(by_kind))

    def check(value: Any, where: _Where) -> Any:
        return by_kind[tag(_object(value, where).get("kind"), (where, "kind"))](value, where)

    return check


def _record(kind: Any) -> _Decoder:
    hints = get_type_hints(kind, include_extras=True)
    inner = {field.name: (_key(field), _decoder(hints[field.name]), _required(field)) for field in fields(kind)}

    def check(value: Any, where: _Where) -> Any:
        given: Mapping[str, Any] = _object(value, where)
        values: dict[str, Any] = {}
        for name, (key, decoder, required) in inner.items():
            if key in given:
                values[name] = decoder(given[key], (where, key))
            elif required:
                raise _MismatchError((where, key), "is missing")
        return kind(**values)

    return check


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING

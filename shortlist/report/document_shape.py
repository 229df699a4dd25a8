"""What a JSON document must look like, said in a few words and checked in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], None]
"""Takes a value and the key where it stands; raises ``ValueError`` when it is not what it must be."""


def number(value: Any, key: str) -> None:
    """A finite number; truth values are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise ValueError(f"{key} must be a finite number; got {shown(value)}.")


def share(value: Any, key: str) -> None:
    """A number in [0, 1], but for rounding."""
    number(value, key)
    if not -1e-9 <= value <= 1 + 1e-9:
        raise ValueError(f"{key} must lie in [0, 1]; got {shown(value)}.")


def count(value: Any, key: str) -> None:
    """A whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} must be a whole number from 0; got {shown(value)}.")


def positive(value: Any, key: str) -> None:
    """A number above 0."""
    number(value, key)
    if value <= 0:
        raise ValueError(f"{key} must be above 0; got {shown(value)}.")


def text(value: Any, key: str) -> None:
    """A string."""
    if not isinstance(value, str):
        raise ValueError(f"{key} must be text; got {shown(value)}.")


def anything(value: Any, key: str) -> None:
    """Whatever JSON holds."""


def one_of(*known: str | None) -> Check:
    """One of the values."""

    def check(value: Any, key: str) -> None:
        if isinstance(value, dict | list) or value not in known:
            names = ", ".join("null" if name is None else name for name in known)
            raise ValueError(f"{key} must be one of {names}; got {shown(value)}.")

    return check


def or_null(inner: Check) -> Check:
    """What ``inner`` takes, or null."""

    def check(value: Any, key: str) -> None:
        if value is not None:
            inner(value, key)

    return check


def list_of(inner: Check, *, least: int = 0) -> Check:
    """A list of what ``inner`` takes, of at least so many."""

    def check(value: Any, key: str) -> None:
        if not isinstance(value, list):
            raise ValueError(f"{key} must be a list; got {shown(value)}.")
        if len(value) < least:
            raise ValueError(f"{key} must have at least {least} {'entry' if least == 1 else 'entries'}.")
        for place, entry in enumerate(value):
            inner(entry, f"{key}[{place}]")

    return check


def map_of(inner: Check, *, least: int = 0) -> Check:
    """An object with any keys and values that ``inner`` takes."""

    def check(value: Any, key: str) -> None:
        _object(value, key)
        if len(value) < least:
            raise ValueError(f"{key} must have at least {least} {'entry' if least == 1 else 'entries'}.")
        for name, entry in value.items():
            inner(entry, f"{key}.{_short(name)}")

    return check


def record(**fields: Check) -> Check:
    """An object with these keys; others may stand beside them.

    Example:
        >>> point = record(x=number, y=or_null(number))
        >>> point({"x": 1, "y": None, "z": "more"}, "start")
        >>> point({"x": 1}, "start")
        Traceback (most recent call last):
        ValueError: start.y is missing.
        >>> point({"x": "1", "y": 2}, "start")
        Traceback (most recent call last):
        ValueError: start.x must be a finite number; got '1'.
    """

    def check(value: Any, key: str) -> None:
        _object(value, key)
        for name, inner in fields.items():
            inside = f"{key}.{name}" if key else name
            if name not in value:
                raise ValueError(f"{inside} is missing.")
            inner(value[name], inside)

    return check


def chosen_by(field: str, kinds: Mapping[str, Check]) -> Check:
    """An object whose ``field`` says which of the checks it must pass."""
    known = one_of(*kinds)

    def check(value: Any, key: str) -> None:
        record(**{field: known})(value, key)
        kinds[value[field]](value, key)

    return check


def shown(value: Any) -> str:
    """A value as it may stand in a sentence: long ones in brief.

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


def _object(value: Any, key: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{key or 'the document'} must be an object; got {shown(value)}.")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # A whole number of more than 308 digits.
        return False


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= 40 else name[:39] + "…"

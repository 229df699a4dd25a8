"""The upper part of ARFF files: relation, attributes and their kinds, and how words are quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_WORD = re.compile(rf"""[\s,]*(?:({_QUOTED})|([^\s,'"][^\s,]*))(?=[\s,]|$)""")
_NAME = re.compile(rf"""@attribute\s+(?:({_QUOTED})|([^\s'"{{}}][^\s{{}}]*))\s*(.*)""", re.IGNORECASE)
_COMMENT = re.compile(rf"""((?:{_QUOTED}|[^%'"])*)%.*""")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_NUMERIC = ("numeric", "real", "integer")


class Attribute(NamedTuple):
    """A column of the data."""

    name: str
    kind: str  # "numeric", "nominal", "string" or "date"
    choices: tuple[str, ...]  # of a nominal one


@dataclass(frozen=True)
class Header:
    """Everything above the data; ``options`` is what MEKA writes after a colon in the name of the relation."""

    relation: str
    options: str
    attributes: tuple[Attribute, ...]

    def option(self, name: str) -> int | None:
        """The whole number after ``-name``; None without."""
        found = re.search(rf"(?:^|\s)-{name}\s+(-?\d+)(?=\s|$)", self.options)
        return int(found[1]) if found else None


def read_header(lines: Iterator[tuple[int, str]], path: object) -> Header:
    """Take lines up to and with ``@data``; ValueError names the line that breaks a rule."""
    relation, number = "", 0
    attributes: dict[str, Attribute] = {}
    for number, raw in lines:
        line = without_comment(raw.removeprefix("\ufeff") if number == 1 else raw)
        if not line:
            continue
        keyword = line.split(None, 1)[0].lower()
        place = f"`{path}` line {number}"
        if keyword == "@data":
            if not attributes:
                raise ValueError(f"{place}: data must come after at least one attribute; got none.")
            name, _, options = relation.partition(":")
            return Header(name.strip(), options, tuple(attributes.values()))
        if keyword == "@relation":
            relation = " ".join(words(line[len(keyword) :], place))
        elif keyword == "@attribute":
            attribute = _attribute(line, place)
            if attribute.name in attributes:
                raise ValueError(f"{place}: attribute {attribute.name!r} must stand once; got it twice.")
            attributes[attribute.name] = attribute
        else:
            raise ValueError(f"{place}: must be @relation, @attribute or @data; got {line[:40]!r}.")
    raise ValueError(f"`{path}` ends at line {number} without @data, so it is no whole ARFF file.")


def without_comment(line: str) -> str:
    """The line up to a ``%`` outside quotes, without the blanks around."""
    if "%" in line:
        comment = _COMMENT.fullmatch(line)
        line = comment[1] if comment else line
    return line.strip()


def words(text: str, place: str) -> list[str]:
    """Words between commas or blanks, with quotes and escapes undone; ValueError for a quote that does not close."""
    if "'" not in text and '"' not in text:
        return text.replace(",", " ").split()
    found, at = [], 0
    text = text.rstrip(" \t,")
    while at < len(text):
        word = _WORD.match(text, at)
        if word is None:
            raise ValueError(f"{place}: quotes must open and close around a whole value; got {text[at : at + 40]!r}.")
        found.append(word[2] if word[1] is None else unquoted(word[1]))
        at = word.end()
    return found


def unquoted(word: str) -> str:
    """The content of a quoted word."""
    return _ESCAPE.sub(lambda part: chr(int(part[1], 16)) if part[1] else _ESCAPED.get(part[2], part[2]), word[1:-1])


def _attribute(line: str, place: str) -> Attribute:
    found = _NAME.fullmatch(line)
    if found is None:
        raise ValueError(f"{place}: an attribute must be written as @attribute name kind; got {line[:40]!r}.")
    name = found[2] if found[1] is None else unquoted(found[1])
    kind = found[3].strip()
    if kind.startswith("{"):
        if not kind.endswith("}"):
            raise ValueError(f"{place}: the values of attribute {name!r} must end with a brace; got {kind[-40:]!r}.")
        choices = tuple(words(kind[1:-1], place))
        if len(set(choices)) < len(choices):
            raise ValueError(f"{place}: the values of attribute {name!r} must differ; got {kind[:60]!r}.")
        return Attribute(name, "nominal", choices)
    first = kind.split(None, 1)[0].lower() if kind else ""
    if first in _NUMERIC:
        return Attribute(name, "numeric", ())
    if first in ("string", "date"):
        return Attribute(name, first, ())
    raise ValueError(
        f"{place}: attribute {name!r} must be numeric, real, integer, string, date or a list in braces; "
        f"got {kind[:40]!r}."
    )

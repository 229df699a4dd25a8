"""Records of a JSON file of any size, decoded one by one, whatever the line breaks."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shortlist.data.files.text_files import need_file

CHUNK = 1 << 20
LONGEST = 1 << 25  # Longer records are refused, else all that follows a damaged one would be read as part of it.

_SPACE = re.compile(r"[ \t\r\n]*")
_MEMBER = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_FOLLOWS = re.compile(r"\s*([,}])")


def json_records(path: str | Path, *, key: str, noun: str, encoding: str = "utf-8") -> Iterator[dict[str, Any]]:
    """Yield the records of ``{key: [...]}``, of a plain list or of JSON lines, also in ``.gz``.

    Other keys may stand before and after ``key``; what they hold is skipped.

    Args:
        path: the file.
        key: under which the list stands.
        noun: what a record is called in errors, which number them from 1.
        encoding: of the file.

    Raises:
        ValueError: names the file and the record that is not JSON or in which the file ends.
    """
    path = need_file(path)
    stream = _Stream(path, noun, _pieces(path, encoding))
    if not stream.peek():
        raise ValueError(f"`{path}` is empty.")
    closing = stream.open_list(key)
    while stream.peek() != (closing[:1] or ""):
        if closing and stream.number:
            stream.expect(",")
        yield stream.record()
    if closing:
        stream.expect("]")
    if closing == "]}":
        while stream.peek() == ",":
            stream.skip_member()
        stream.expect("}")
    if stream.peek():
        raise ValueError(f"`{path}`: nothing must follow the list; got {stream.ahead(20)!r}.")


class _Stream:
    """A buffer of decoded text that grows as far as the next record needs."""

    def __init__(self, path: Path, noun: str, pieces: Iterator[str]) -> None:
        self._unit, self._pieces = f"`{path}` {noun}", pieces
        self._buffer, self._place = "", 0
        self._decoder = json.JSONDecoder()
        self.number = 0

    def _grow(self, least: int) -> bool:
        """Append at least so many characters, or all that are left; False at the end of the file."""
        parts = []
        while least > 0 and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            least -= len(piece)
        if parts:
            self._buffer, self._place = "".join([self._buffer[self._place :], *parts]), 0
        return bool(parts)

    def peek(self) -> str:
        """The next character that is no space; "" at the end of the file."""
        while True:
            space = _SPACE.match(self._buffer, self._place)
            self._place = space.end() if space else self._place
            if self._place < len(self._buffer):
                return self._buffer[self._place]
            if not self._grow(1):
                return ""

    def ahead(self, count: int) -> str:
        """Some of the characters that come, for an error."""
        return self._buffer[self._place : self._place + count]

    def open_list(self, key: str) -> str:
        """Step into the list; what must close it, or "" for JSON lines."""
        if self.peek() == "[":
            self._place += 1
            return "]"
        if self.peek() != "{":
            return ""
        begin = self._list_begin(key)
        # Without an answer, the text ends within the object; beyond the longest record, reading it will say so.
        while begin is None and len(self._buffer) - self._place < LONGEST:
            if not self._grow(len(self._buffer) - self._place):
                break
            begin = self._list_begin(key)
        if not begin:
            return ""
        self._place = begin
        return "]}"

    def _list_begin(self, key: str) -> int | None:
        """Where the list under a key of the next object begins; 0 if there is none, None if that does not show."""
        place = self._place + 1
        while (member := _MEMBER.match(self._buffer, place)) is not None:
            place = member.end()
            if member[1] == key and self._buffer[place : place + 1] == "[":
                return place + 1
            try:
                _, place = self._decoder.raw_decode(self._buffer, place)
            except (json.JSONDecodeError, RecursionError):
                return None
            follows = _FOLLOWS.match(self._buffer, place)
            if follows is None or follows[1] == "}":
                return None if follows is None else 0
            place = follows.end()
        return None

    def skip_member(self) -> None:
        """Step over a comma, a key and its value."""
        self.expect(",")
        while True:
            member = _MEMBER.match(self._buffer, self._place)
            try:
                if member is not None:
                    _, end = self._decoder.raw_decode(self._buffer, member.end())
                    if end < len(self._buffer):  # Else a number may go on.
                        self._place = end
                        return
            except (json.JSONDecodeError, RecursionError):
                pass
            held = len(self._buffer) - self._place
            if held >= LONGEST or not self._grow(max(held, 1)):
                got = repr(self.ahead(20)) if self.peek() else "the end of the file"
                raise ValueError(f"{self._unit} {self.number}: a key and a value must follow the list; got {got}.")

    def expect(self, character: str) -> None:
        """Step over a character that must come."""
        if self.peek() != character:
            got = repr(self.ahead(20)) if self.peek() else "the end of the file"
            raise ValueError(f"{self._unit} {self.number} must be followed by {character!r}; got {got}.")
        self._place += 1

    def record(self) -> dict[str, Any]:
        """Decode the next record."""
        self.number += 1
        if self.peek() != "{":
            got = repr(self.ahead(20)) if self.peek() else "the end of the file"
            raise ValueError(f"{self._unit} {self.number}: must be an object with keys; got {got}.")
        found = self._decoded()
        while isinstance(found, Exception):
            held = len(self._buffer) - self._place
            # Doubling keeps the work of decoding again in proportion to the record.
            if held >= LONGEST or not self._grow(held):
                raise ValueError(f"{self._unit} {self.number} is not JSON: {self._reason(found)}.") from found
            found = self._decoded()
        return found

    def _decoded(self) -> dict[str, Any] | Exception:
        try:
            record, self._place = self._decoder.raw_decode(self._buffer, self._place)
        except (json.JSONDecodeError, RecursionError) as error:
            return error
        return record

    def _reason(self, error: Exception) -> str:
        if not isinstance(error, json.JSONDecodeError):
            return "it is nested too deeply"
        cut = error.pos >= len(self._buffer.rstrip()) or error.msg.startswith("Unterminated string")
        return "the file ends in it" if cut and len(self._buffer) < LONGEST else error.msg


def _pieces(path: Path, encoding: str) -> Iterator[str]:
    """The text of a file in pieces, none of them empty."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError as error:
        raise ValueError(f"`encoding` must name an encoding; got {encoding!r}.") from error
    offset, first = 0, True
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            while chunk := file.read(CHUNK):
                text = decoder.decode(chunk)
                if text:
                    yield text.removeprefix("\ufeff") if first else text
                    first = False
                offset += len(chunk)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        at = offset + error.start
        hint = "; another may be named by `encoding`"
        raise ValueError(f"`{path}` near byte {at} is not {encoding} text: {error.reason}{hint}.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"`{path}` is damaged after byte {offset}: {str(error).rstrip('.')}.") from error

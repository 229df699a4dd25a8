"""Records of a JSON file of any size, decoded one by one, whatever the line breaks."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shortlist.data.files.text_files import DAMAGED, need_file, open_binary
from shortlist.errors import InputError, reason
from shortlist.limits import limit

CHUNK = 1 << 20

_SPACE = re.compile(r"[ \t\r\n]*")
_MEMBER = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_FOLLOWS = re.compile(r"\s*([,}])")


def json_records(path: str | Path, *, key: str, noun: str, encoding: str = "utf-8") -> Iterator[dict[str, Any]]:
    """Yield the records of ``{key: [...]}``, of a plain list or of JSON lines, also compressed.

    Args:
        path: the file.
        key: the key of the list; other keys may come before and after it, and are skipped.
        noun: what errors call a record; they count records from 1.
        encoding: of the file.

    Raises:
        InputError: names the file and the record that is not JSON or in which the file ends.
    """
    path = need_file(path)
    stream = _Stream(path, noun, _decoded_chunks(path, encoding))
    if not stream.peek():
        raise InputError(f"`{path}` is empty.")
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
        raise InputError(f"`{path}`: nothing may follow the list; got {stream.ahead()}.")


class _Stream:
    """A buffer of decoded text that grows as far as the next record needs."""

    def __init__(self, path: Path, noun: str, chunks: Iterator[str]) -> None:
        self._unit, self._chunks = f"`{path}` {noun}", chunks
        self._buffer, self._position = "", 0
        self._decoder = json.JSONDecoder()
        self.number = 0
        # Longer records are refused: all that follows a damaged one would be read as part of it.
        self._most = limit("record")

    def _grow(self, least: int) -> bool:
        """Append at least so many characters, or all that are left; False at the end of the file."""
        chunks = []
        while least > 0 and (chunk := next(self._chunks, None)) is not None:
            chunks.append(chunk)
            least -= len(chunk)
        if chunks:
            self._buffer, self._position = "".join([self._buffer[self._position :], *chunks]), 0
        return bool(chunks)

    def peek(self) -> str:
        """The next character that is not a space; "" at the end of the file."""
        while True:
            space = _SPACE.match(self._buffer, self._position)
            self._position = space.end() if space else self._position
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._grow(1):
                return ""

    def ahead(self) -> str:
        """Some of the characters that come next, for an error."""
        return repr(self._buffer[self._position : self._position + 20]) if self.peek() else "the end of the file"

    def open_list(self, key: str) -> str:
        """Step into the list; returns what must close it, or "" for JSON lines."""
        if self.peek() == "[":
            self._position += 1
            return "]"
        if self.peek() != "{":
            return ""
        begin = self._list_begin(key)
        # No answer means that the text ends within the object; beyond the longest record, reading it will say so.
        while begin is None and len(self._buffer) - self._position < self._most:
            if not self._grow(len(self._buffer) - self._position):
                break
            begin = self._list_begin(key)
        if not begin:
            return ""
        self._position = begin
        return "]}"

    def _list_begin(self, key: str) -> int | None:
        """Where the list under a key of the next object begins; 0 if there is none, None if more text is needed."""
        position = self._position + 1
        while (member := _MEMBER.match(self._buffer, position)) is not None:
            position = member.end()
            if member[1] == key and self._buffer[position : position + 1] == "[":
                return position + 1
            try:
                _, position = self._decoder.raw_decode(self._buffer, position)
            except (ValueError, RecursionError):
                return None
            follows = _FOLLOWS.match(self._buffer, position)
            if follows is None or follows[1] == "}":
                return None if follows is None else 0
            position = follows.end()
        return None

    def skip_member(self) -> None:
        """Step over a comma, a key and its value."""
        self.expect(",")
        while True:
            member = _MEMBER.match(self._buffer, self._position)
            try:
                if member is not None:
                    _, end = self._decoder.raw_decode(self._buffer, member.end())
                    if end < len(self._buffer):  # Otherwise a number may continue.
                        self._position = end
                        return
            except (ValueError, RecursionError):
                pass
            held = len(self._buffer) - self._position
            if held >= self._most or not self._grow(max(held, 1)):
                rule = "a key and a value must follow the list"
                raise InputError(f"{self._unit} {self.number}: {rule}; got {self.ahead()}.")

    def expect(self, character: str) -> None:
        """Step over a character that must come next."""
        if self.peek() != character:
            raise InputError(f"{self._unit} {self.number} must be followed by {character!r}; got {self.ahead()}.")
        self._position += 1

    def record(self) -> dict[str, Any]:
        """Decode the next record."""
        self.number += 1
        if self.peek() != "{":
            raise InputError(f"{self._unit} {self.number}: must be an object with keys; got {self.ahead()}.")
        found = self._decode()
        while isinstance(found, Exception):
            held = len(self._buffer) - self._position
            # Doubling keeps the work of decoding again proportional to the record.
            if held >= self._most or not self._grow(held):
                raise InputError(f"{self._unit} {self.number} is not JSON: {self._problem(found)}.") from found
            found = self._decode()
        return found

    def _decode(self) -> dict[str, Any] | Exception:
        try:
            record, self._position = self._decoder.raw_decode(self._buffer, self._position)
        except (ValueError, RecursionError) as error:
            return error
        return record

    def _problem(self, error: Exception) -> str:
        if isinstance(error, RecursionError):
            return "it is nested too deeply"
        if not isinstance(error, json.JSONDecodeError):  # A number of thousands of digits.
            return reason(error)
        cut = error.pos >= len(self._buffer.rstrip()) or error.msg.startswith("Unterminated string")
        return "the file ends in it" if cut and len(self._buffer) < self._most else error.msg


def _decoded_chunks(path: Path, encoding: str) -> Iterator[str]:
    """The text of a file in chunks, none of them empty."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError as error:
        raise InputError(f"`encoding` must be one that Python knows; got {encoding!r}.") from error
    offset, first = 0, True
    try:
        with open_binary(path) as file:
            while chunk := file.read(CHUNK):
                text = decoder.decode(chunk)
                if text:
                    yield text.removeprefix("\ufeff") if first else text
                    first = False
                offset += len(chunk)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        hint = "; `encoding` can name another one"
        near = offset + error.start
        raise InputError(f"`{path}` near byte {near} is not {encoding} text: {error.reason}{hint}.") from error
    except DAMAGED as error:
        raise InputError(f"`{path}` is damaged after byte {offset}: {reason(error)}.") from error

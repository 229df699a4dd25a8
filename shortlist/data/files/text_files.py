"""Files that users bring: found, decompressed and decoded; errors name the file and the line."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from shortlist.errors import InputError, reason
from shortlist.limits import advice, check_unpacked, limit, read_whole

DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
"""What decompressing a damaged file raises."""

_CHUNK = 1 << 20


def need_file(path: str | Path) -> Path:
    """The path, if it is a file; else InputError."""
    path = _nameable(path)
    if not path.is_file():
        raise InputError(f"`{path}` {'is a folder, not a file' if path.is_dir() else 'does not exist'}.")
    return path


def _nameable(path: str | Path) -> Path:
    """The path; InputError if no file can have this name, which may come from the content of another file."""
    path = Path(path)
    try:
        path.exists()
    except OSError as error:
        raise InputError(f"`{str(path)[:200]}…` cannot be a file: {reason(error)}.") from error
    return path


def need_folder(path: str | Path) -> Path:
    """The path, if it is a folder; else InputError."""
    path = _nameable(path)
    if not path.is_dir():
        raise InputError(f"`{path}` {'is a file, not a folder' if path.is_file() else 'does not exist'}.")
    return path


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading; ``.gz`` and ``.xz`` are decompressed on the fly, unless they are bombs."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix.lower())
    return path.open("rb") if opener is None else io.BufferedReader(_Unpacked(path, opener(path, "rb")), 2**16)


class _Unpacked(io.RawIOBase):
    """Decompressed content, counted as it is read."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file, self._packed, self._count = path, file, path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # pyright: ignore[reportAttributeAccessIssue]
        self._count += count
        check_unpacked(self._count, self._packed, f"`{self._path}`")
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def text_lines(path: str | Path, *, encoding: str = "utf-8", keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, decompressed if need be; a byte order mark is skipped.

    Args:
        path: the file.
        encoding: one in which line ends are those of ASCII.
        keep_ends: leave the end of each line in place.

    Raises:
        InputError: names the line at which the file ends early or is not text in this encoding.
    """
    path = need_file(path)
    number = 0
    try:
        with open_binary(path) as file:
            most = limit("line")
            for number, line in enumerate(iter(lambda: file.readline(most + 1), b""), start=1):
                if len(line) > most:
                    raise InputError(f"`{path}` line {number} is too long: {advice('line')} (bytes).")
                text = line.decode(encoding)
                text = text.removeprefix("\ufeff") if number == 1 else text
                yield number, text if keep_ends else text.rstrip("\r\n")
    except LookupError as error:
        raise InputError(f"`encoding` must be one that Python knows; got {encoding!r}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` line {number} is not {encoding} text: {error.reason}.") from error
    except DAMAGED as error:
        raise InputError(f"`{path}` is damaged after line {number}: {reason(error)}.") from error


def detect_encoding(path: Path) -> str:
    """The encoding of a text file: UTF-8 if all of it is, else that of western Windows, of which Latin-1 is a part.

    Raises:
        InputError: for UTF-16, whose lines cannot be read one by one.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with open_binary(path) as file:
            while chunk := file.read(_CHUNK):
                if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise InputError(
                        f"`{path}` is UTF-16 text, which must become UTF-8: "
                        f"iconv -f UTF-16 -t UTF-8 {path.name} > utf8-{path.name}"
                    )
                decoder.decode(chunk)
        decoder.decode(b"", final=True)
        return "utf-8"
    except UnicodeDecodeError:
        return _single_byte_encoding(path)
    except DAMAGED:
        return "utf-8"  # Reading it says where the damage is.


def _single_byte_encoding(path: Path) -> str:
    """The likeliest encoding of text that is not UTF-8, or UTF-8 if only a few of its letters are damaged."""
    letters = valid = 0
    undefined = False
    with open_binary(path) as file:
        for line in file:
            letters += len(re.findall(rb"[\x80-\xff]+", line))
            valid += len(re.findall(rb"[\xc2-\xf4][\x80-\xbf]+", line))
            # Five bytes mean nothing in Windows' alphabet.
            undefined = undefined or re.search(rb"[\x81\x8d\x8f\x90\x9d]", line) is not None
    return "utf-8" if 2 * valid > letters else "latin-1" if undefined else "cp1252"


def read_json(path: str | Path, *, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The content of a JSON file; InputError names the line where it stops being JSON.

    ``object_hook`` replaces each object as it is read, as in `json.loads`.
    """
    path = need_file(path)
    try:
        return json.loads(read_whole(path), object_hook=object_hook)
    except json.JSONDecodeError as error:
        raise InputError(f"`{path}` line {error.lineno} is not JSON: {error.msg}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not UTF-8 text: {error.reason}.") from error
    except ValueError as error:
        raise InputError(f"`{path}` holds a value that cannot be read: {reason(error)}.") from error
    except RecursionError as error:
        raise InputError(f"`{path}` is nested too deeply to be read.") from error


def json_field(record: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """The value of a required key, of the required type; ``where`` names the file and the record in the error."""
    if not isinstance(record, dict):
        raise InputError(f"{where}: must be an object with keys; got {type(record).__name__}.")
    if key not in record:
        raise InputError(f"{where}: has no {key!r}.")
    value = record[key]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(one.__name__ for one in kinds)
        raise InputError(f"{where}: {key!r} must be {wanted}; got {value!r:.60}.")
    return value

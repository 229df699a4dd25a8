"""Files that users bring: found, opened and refused in one sentence that names the file and the row."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def need_file(path: str | Path) -> Path:
    """The path, if it is a file; else ValueError."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"`{path}` {'is a folder, not a file' if path.is_dir() else 'is not there'}.")
    return path


def need_folder(path: str | Path) -> Path:
    """The path, if it is a folder; else ValueError."""
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"`{path}` {'is a file, not a folder' if path.is_file() else 'is not there'}.")
    return path


def text_lines(path: str | Path, *, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line without its end; ``.gz`` and ``.xz`` are unpacked on the way.

    Raises:
        ValueError: names the line at which the file ends early or is not text in this encoding.
    """
    path = need_file(path)
    number = 0
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.decode(encoding).rstrip("\r\n")
                # Spreadsheets put a byte order mark in front.
                yield number, text.removeprefix("\ufeff") if number == 1 else text
    except LookupError as error:
        raise ValueError(f"`encoding` must be one that Python knows; got {encoding!r}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}` line {number} is not {encoding} text: {error.reason}.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise ValueError(f"`{path}` is damaged after line {number}: {error}.") from error


def read_json(path: str | Path) -> Any:
    """The content of a JSON file; ValueError names the line where it stops being JSON."""
    path = need_file(path)
    try:
        return json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise ValueError(f"`{path}` line {error.lineno} is not JSON: {error.msg}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}` is not UTF-8 text: {error.reason}.") from error
    except ValueError as error:
        raise ValueError(f"`{path}` holds a value that cannot be read: {error}.") from error
    except RecursionError as error:
        raise ValueError(f"`{path}` is nested too deeply to be read.") from error


def take(record: Any, key: str, kind: type | tuple[type, ...], place: str) -> Any:
    """The value of a key that must be there and of a type; ``place`` names the file and row for the error."""
    if not isinstance(record, dict):
        raise ValueError(f"{place}: must be an object with keys; got {type(record).__name__}.")
    if key not in record:
        raise ValueError(f"{place}: has no {key!r}.")
    value = record[key]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(one.__name__ for one in kinds)
        raise ValueError(f"{place}: {key!r} must be {wanted}; got {value!r:.60}.")
    return value

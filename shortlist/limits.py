"""How much a file may ask for: every limit on input, in one place. SECURITY.md says which files they make safe.

The environment variable ``SHORTLIST_LIMITS`` changes limits of a process by name::

    SHORTLIST_LIMITS="field=50_000_000 ratio=5000" shortlist fit long-texts.csv --output model
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from shortlist.errors import InputError

VARIABLE = "SHORTLIST_LIMITS"


class Limit(NamedTuple):
    """The default of a limit, and what it counts."""

    default: int
    counts: str


LIMITS = {
    "document": Limit(2**31, "bytes of a JSON, XML, YAML or label file that is read as a whole"),
    "unpacked": Limit(2**30, "bytes that a compressed array or text may always have in memory"),
    "ratio": Limit(200, "beyond that, bytes in memory per byte in the file"),
    "line": Limit(2**28, "bytes of a line of text"),
    "record": Limit(2**25, "characters of a record in a list of JSON objects"),
    "field": Limit(2**23, "characters of a cell in a CSV table"),
    "pixels": Limit(2**30 // 12, "pixels of an image"),
    "labels": Limit(10**7, "labels that have no names"),
    "entries": Limit(2**31, "entries of targets, or pairs of boxes, that a small file can imply"),
    "opcodes": Limit(2**24, "instructions of a pickled CIFAR file"),
    "ancestors": Limit(2**24, "pairs of a node and an ancestor in a taxonomy, of which a long chain of nodes has many"),
    "nodes": Limit(10**6, "values in YAML, aliases counted as often as they occur"),
}


def limit(name: str) -> int:
    """The value of a limit.

    Raises:
        InputError: if ``SHORTLIST_LIMITS`` is not a list of limits.

    Example:
        >>> limit("field")
        8388608
    """
    found = LIMITS[name].default
    for entry in os.environ.get(VARIABLE, "").replace(",", " ").split():
        key, _, value = entry.partition("=")
        try:
            number = int(float(value)) if "e" in value.lower() else int(value)
        except (ValueError, OverflowError):
            number = -1
        if key not in LIMITS or number < 0:
            names = ", ".join(LIMITS)
            raise InputError(f"{VARIABLE} must look like field=50_000_000, with names among {names}; got {entry!r}.")
        found = number if key == name else found
    return found


def advice(name: str) -> str:
    """How to raise a limit, for the end of an error message."""
    return f"at most {limit(name)} are read unless {VARIABLE} raises `{name}`"


def check_unpacked(unpacked: int, packed: int, where: str) -> None:
    """Raise InputError for content that is suspiciously much larger than the file: a decompression bomb.

    Args:
        unpacked: bytes in memory.
        packed: bytes in the file.
        where: names the file.
    """
    if unpacked > limit("unpacked") and unpacked > limit("ratio") * packed:
        rule = f"{packed} compressed bytes become {unpacked} or more, over {limit('ratio')} times as many"
        raise InputError(f"{where} looks like a decompression bomb: {rule}; {VARIABLE} can raise `ratio`.")


def read_whole(path: Path) -> bytes:
    """The content of a file; InputError if it is longer than a document may be, whatever the file system says.

    Raises:
        OSError: if it cannot be read.
    """
    most = limit("document")
    with path.open("rb") as file:
        content = file.read(most + 1) if not path.is_file() or path.stat().st_size > most else file.read()
    if len(content) > most:
        raise InputError(f"`{path}` is too long to be read as a whole: {advice('document')} (bytes).")
    return content

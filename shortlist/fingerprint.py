"""Fingerprints of files, contents, options and versions: work resumes only if they match.

Fingerprints consist of plain JSON values, so they can be saved with the work they belong to and compared later with
`first_difference`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from shortlist import __version__
from shortlist.errors import InputError

_DIGEST_BYTES = 16


class Digest:
    """An incremental 128-bit digest.

    Example:
        >>> found = Digest("features")
        >>> found.update(b"12")
        >>> found.update("3")
        >>> found.hex() == Digest("features123").hex() == digest("features123")
        True
    """

    def __init__(self, content: bytes | memoryview | str = b"") -> None:
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self.update(content)

    def update(self, content: bytes | memoryview | str) -> None:
        """Add content; text is encoded as UTF-8."""
        self._hash.update(content.encode() if isinstance(content, str) else content)

    def bytes(self) -> bytes:
        """The digest as 16 bytes."""
        return self._hash.digest()

    def hex(self) -> str:
        """The digest as 32 hexadecimal digits."""
        return self._hash.hexdigest()


def digest(content: bytes | memoryview | str) -> str:
    """Return the digest of ``content`` as 32 hexadecimal digits.

    Example:
        >>> digest(b"rose") == digest("rose") != digest("tulip")
        True
    """
    return Digest(content).hex()


def digest_values(values: Any) -> str:
    """Return the digest of plain values; the order of a mapping's keys does not matter.

    Example:
        >>> digest_values({"k": 2, "loss": "bce"}) == digest_values({"loss": "bce", "k": 2})
        True
    """
    return digest(json.dumps(values, sort_keys=True))


def digest_file(path: str | Path) -> str:
    """Return the digest of a file's content."""
    found = Digest()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hex()


def file_state(path: str | Path, *, exclude: Iterable[str | Path] = ()) -> dict[str, Any]:
    """Return the path, size and modification time of a file or folder, for data too large to read.

    Args:
        path: a file; a folder, including all files inside; or a name that is not a path, such as a packaged dataset,
            which is used verbatim.
        exclude: files and folders to skip, such as those that the work itself writes.
    """
    path = Path(path)
    if path.is_dir():
        excluded = {os.path.abspath(each) for each in exclude}
        return {"path": os.path.abspath(path), "files": _folder_digest(path, excluded)}
    if not path.exists():
        return {"name": str(path)}
    state = path.stat()
    return {"path": os.path.abspath(path), "size": state.st_size, "changed": state.st_mtime_ns}


def software_versions(*packages: str) -> dict[str, str | None]:
    """Return the versions of shortlist, torch and other packages, without importing them; None if not installed."""
    return {"shortlist": __version__, **{name: _version(name) for name in ("torch", *packages)}}


def first_difference(before: Any, now: Mapping[str, Any]) -> str | None:
    """Describe the first difference between two fingerprints; None if they are equal.

    Args:
        before: a fingerprint read from a file, so it may be anything.
        now: the fingerprint of the current task.

    Example:
        >>> first_difference({"options": {"k": 2}, "data": "a"}, {"options": {"k": 3}, "data": "a"})
        'k was 2 and is 3'
        >>> first_difference({"data": digest("roses")}, {"data": digest("tulips")})
        'data changed'
        >>> first_difference({"shape": [2, 3]}, {"shape": (2, 3)}) is None
        True
    """
    if not isinstance(before, Mapping):
        return "its fingerprint is missing"
    now = json.loads(json.dumps(now))
    for name in (*now, *(name for name in before if name not in now)):
        was, found = before.get(name), now.get(name)
        if was == found and (name in before) == (name in now):
            continue
        if isinstance(found, Mapping) and isinstance(was, Mapping):
            return first_difference(was, found)
        return f"{name} changed" if _is_digest(found) else f"{name} was {was!r} and is {found!r}"
    return None


def check_same(before: Any, now: Mapping[str, Any], *, path: str | Path, what: str = "another run") -> None:
    """Check that existing work, finished or not, belongs to the current task.

    Args:
        before: the fingerprint read from a file, so it may be anything.
        now: the fingerprint of the current task.
        path: the file or folder of the work.
        what: the kind of work, for the message.

    Raises:
        InputError: if the fingerprints differ; the message states the first difference.
    """
    difference = first_difference(before, now)
    if difference is not None:
        raise InputError(f"`{path}` holds {what} ({difference}); choose another folder.")


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 2 * _DIGEST_BYTES and set(value) <= set("0123456789abcdef")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _folder_digest(folder: Path, excluded: set[str]) -> str:
    found = Digest()
    for parent, folders, files in os.walk(os.path.abspath(folder)):
        folders[:] = sorted(name for name in folders if os.path.join(parent, name) not in excluded)
        for name in sorted(files):
            file = os.path.join(parent, name)
            if file not in excluded:
                state = os.stat(file) if os.path.exists(file) else os.lstat(file)
                found.update(os.fsencode(file) + f"\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return found.hex()

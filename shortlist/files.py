"""Files that are written whole or not at all, and JSON documents that name their format."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist.errors import InputError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to ``path`` once it is on the disk.

    If anything goes wrong before, an existing file stays as it is and nothing of the new one is left. Missing folders
    are created.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/note.txt") as partial:
        ...         _ = partial.write_text("whole")
        ...     Path(f"{folder}/note.txt").read_text()
        'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_document(path: str | Path, *, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON document that names its kind under ``format``, and its ``version``.

    Raises:
        InputError: if it cannot be read, or is of another kind or version.
    """
    try:
        content: Any = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"`{path}` cannot be read: {reason}.") from error
    if not isinstance(content, dict) or content.get("format") != kind:
        raise InputError(f"`{path}` is not a {kind}.")
    if content.get("version") != version:
        raise InputError(f"`{path}` has version {content.get('version')}; this release reads {version}.")
    return content


def cache_folder() -> Path:
    """The folder named by ``SHORTLIST_CACHE``, else ``shortlist`` in the user's cache directory."""
    chosen = os.environ.get("SHORTLIST_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "shortlist"

"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a path to write to, and rename it to ``path`` once it is written and on the disk.

    Whatever goes wrong before, the file that was there stays and no part of the new one does. Missing folders are made.

    Example:
        >>> with replacing("/tmp/shortlist-doctest/note.txt") as partial:
        ...     _ = partial.write_text("whole")
        >>> Path("/tmp/shortlist-doctest/note.txt").read_text()
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

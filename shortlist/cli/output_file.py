"""Files that a command writes: refused before the work where that can be known, and never left in part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from shortlist.files import replacing


def check_output(path: str | Path, *inputs: str | Path | None) -> None:
    """Refuse a path that cannot be written, or that is one of the files that are read."""
    path = Path(path)
    for other in inputs:
        if other is not None and path.exists() and Path(other).exists() and path.samefile(other):
            raise ValueError(f"`{path}` is read by this command and must not be its output.")
    if path.is_dir():
        raise ValueError(f"`{path}` cannot be written: it is a folder.")
    # A device would not be written to, but replaced by a file.
    if path.exists() and not path.is_file():
        raise ValueError(f"`{path}` cannot be written: it is not a regular file.")
    folder = next((above for above in path.absolute().parents if above.exists()), Path.cwd())
    _check_place(path, folder)


def check_folder(path: str | Path | None) -> None:
    """Refuse a folder that is a file, or that cannot be written or made; None is no folder, and never refused."""
    if path is None:
        return
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"`{path}` cannot be written: it is not a folder.")
    folder = next(there for there in (path.absolute(), *path.absolute().parents) if there.exists())
    _check_place(path, folder)


def _check_place(path: Path, folder: Path) -> None:
    """Refuse a path that cannot be made inside ``folder``, the nearest one that is there."""
    if not folder.is_dir():
        raise ValueError(f"`{path}` cannot be written: `{folder}` is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"`{path}` cannot be written: `{folder}` does not allow it.")


@contextmanager
def told_folder_failure(folder: str | Path | None) -> Iterator[None]:
    """Name the folder of long work, if there is one, in what the system says of it, such as that the disk is full."""
    try:
        yield
    except OSError as error:
        if folder is None or error.strerror is None:
            raise
        # A system error that names another file, neither inside nor above, is about what is read.
        if error.filename is not None:
            place, whole = Path(error.filename).absolute(), Path(folder).absolute()
            if not place.is_relative_to(whole) and not whole.is_relative_to(place):
                raise
        raise ValueError(f"`{folder}` cannot be written: {error.strerror}.") from error


@contextmanager
def told_failure(path: str | Path) -> Iterator[None]:
    """Turn what the system says about a file that is written into one sentence that names it."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"`{path}` cannot be written: {error.strerror or error}.") from error


@contextmanager
def text_output(path: str | Path) -> Iterator[TextIO]:
    """A text file that is there as a whole when the block ends well, and not at all when it does not."""
    with told_failure(path), replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        yield file

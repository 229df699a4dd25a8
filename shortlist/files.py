"""Atomic file writes, locks, and JSON documents that state their format and version."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from shortlist.errors import InputError, reason
from shortlist.limits import read_whole

try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to ``path`` once the content is on disk.

    If anything fails before that, an existing file stays unchanged and the temporary file is removed. Missing folders
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


@contextmanager
def locked(file: Path, output: str | Path) -> Iterator[None]:
    """Lock out other processes that write ``output`` until the block ends; a lock ends with its process.

    Args:
        file: is locked, and removed at the end; missing folders are created, and removed if they are empty at the end.
        output: what messages name.

    Raises:
        InputError: if another process has the lock.
    """
    created = [folder for folder in file.parent.parents if not folder.exists()]
    handle = _lock(file, output)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)
        # Last, because some file systems keep an open file in its folder.
        with contextlib.suppress(OSError):
            for folder in (file.parent, *created):
                folder.rmdir()


def _lock(file: Path, output: str | Path) -> int | None:
    """Lock a file that is never renamed, and return its descriptor; None if the system has no locks."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        return None
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # Another process just finished and removed the folder.
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise InputError(f"`{output}` is being written by another process.") from error
        except OSError:
            return handle  # A file system without locks.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                return handle
        os.close(handle)  # Another process just removed this file; the next one would lock a new file.


def check_output(path: str | Path, *inputs: str | Path | None) -> None:
    """Raise InputError if a file cannot be written or is one of the ``inputs``; call it before long work."""
    path = Path(path)
    for other in inputs:
        if other is not None and path.exists() and Path(other).exists() and path.samefile(other):
            raise InputError(f"`{path}` is read by this command, so it cannot be its output.")
    if path.is_dir():
        raise InputError(f"`{path}` cannot be written: it is a folder.")
    # The rename would replace a device by a file instead of writing to it.
    if path.exists() and not path.is_file():
        raise InputError(f"`{path}` cannot be written: it is not a regular file.")
    _check_writable(path, next((above for above in path.absolute().parents if above.exists()), Path.cwd()))


def check_folder(path: str | Path | None, *, own: Collection[str] = ()) -> None:
    """Raise InputError if a folder is a file or cannot be written or created; None is ignored.

    Args:
        path: the folder.
        own: patterns of files, at least one of which a folder must hold unless it is empty: others belong to someone
            else. Hidden files do not count.
    """
    if path is None:
        return
    path = Path(path)
    if own and path.is_dir():
        names = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")]
        if names and not any(fnmatch(name, pattern) for name in names for pattern in own):
            raise InputError(f"`{path}` holds other files, such as {min(names)!r}; give a new or empty folder.")
    if path.exists() and not path.is_dir():
        raise InputError(f"`{path}` cannot be written: it is not a folder.")
    _check_writable(path, next(there for there in (path.absolute(), *path.absolute().parents) if there.exists()))


def _check_writable(path: Path, folder: Path) -> None:
    """Raise InputError if ``path`` cannot be created in ``folder``, its nearest existing ancestor."""
    if not folder.is_dir():
        raise InputError(f"`{path}` cannot be written: `{folder}` is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"`{path}` cannot be written: no permission to write in `{folder}`.")


@contextmanager
def writing(path: str | Path | None) -> Iterator[None]:
    """Turn an OSError in the block, such as a full disk, into an InputError that names ``path``, unless it is None.

    An error about another file, such as an input, propagates unchanged.
    """
    try:
        yield
    except OSError as error:
        if path is None or isinstance(error, ChildProcessError | ConnectionError):  # Not about files.
            raise
        if error.filename is not None and not _concerns(Path(os.fsdecode(error.filename)), Path(path)):
            raise
        raise InputError(f"`{path}` cannot be written: {error.strerror or error}.") from error


def _concerns(named: Path, written: Path) -> bool:
    """Whether a file is the output, a temporary file beside it, or a path inside or above it."""
    named, written = named.absolute(), written.absolute()
    if written.is_relative_to(named):
        return True
    if not named.is_relative_to(written.parent):
        return False
    first, name = named.relative_to(written.parent).parts[0], written.name
    return first in (name, f"{name}.partial") or (first.startswith(f".{name}.") and first.endswith(".partial"))


def read_document(path: str | Path, *, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON document that states its ``format`` and ``version``.

    Raises:
        InputError: if it cannot be read or has another format or version.
    """
    try:
        content: Any = json.loads(read_whole(Path(path)))
    except (OSError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else reason(error)
        raise InputError(f"`{path}` cannot be read: {why}.") from error
    if not isinstance(content, dict) or content.get("format") != kind:
        raise InputError(f"`{path}` is not a {kind}.")
    if content.get("version") != version:
        raise InputError(f"`{path}` has version {content.get('version')!r:.40}; this release reads {version}.")
    return content


@contextmanager
def decoding(path: str | Path) -> Iterator[None]:
    """Turn whatever the unexpected values of a document raise into an InputError, one line that names the document."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
        raise InputError(f"`{path}` is damaged: {kind}{reason(error)}.") from error


def cache_folder() -> Path:
    """The folder named by ``SHORTLIST_CACHE``, else ``shortlist`` in the user's cache directory."""
    chosen = os.environ.get("SHORTLIST_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "shortlist"

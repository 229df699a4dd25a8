"""An output that grows row by row beside its place, outlives the process that writes it, and ends up there whole."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from shortlist.files import read_document, replacing

try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None

_FORMAT, _VERSION = "shortlist predict progress", 1
# So much work may be lost to a kill or a power failure.
_SECONDS = 2.0


@dataclass(frozen=True)
class Finished:
    """How far the work got.

    Args:
        rows: that are written.
        size: of the file of rows, in bytes.
        labels: in all sets together.
        empty: sets without labels.
        chance: what decides the ties of the rows that come next, as plain values.
    """

    rows: int = 0
    size: int = 0
    labels: int = 0
    empty: int = 0
    chance: dict[str, Any] | None = None


def partial_folder(output: Path) -> Path:
    """Where rows are until all of them are there."""
    return output.with_name(f"{output.name}.partial")


class PartialOutput:
    """Rows of an output that is not finished; made by `partial_output`.

    Attributes:
        rows_file: holds the rows; what stands after ``finished.size`` does not count.
        finished: how far the work got.
    """

    def __init__(self, output: Path, question: dict[str, Any], file: FileIO) -> None:
        self.rows_file = partial_folder(output) / "rows"
        self._output, self._question, self._file = output, question, file
        self.finished = _kept(output, question) or Finished()
        self._told, self._time = self.finished, time.monotonic()
        if self.finished.rows == 0:
            # Else a kill before the first rows count would leave these rows to the question that was asked before.
            _progress_file(output).unlink(missing_ok=True)
        file.seek(self.finished.size)
        file.truncate()

    def append(self, content: bytes | memoryview) -> None:
        """Write what comes next; it counts when `finish_rows` says so."""
        left = memoryview(content)
        while left:  # A disk that is nearly full takes a part.
            left = left[self._file.write(left) :]

    def finish_rows(self, rows: int, labels: int, empty: int, chance: dict[str, Any] | None) -> None:
        """Count what was appended; every few seconds, see that it outlives the process and the machine's power."""
        done = self.finished
        self.finished = Finished(done.rows + rows, self._file.tell(), done.labels + labels, done.empty + empty, chance)
        if time.monotonic() - self._time >= _SECONDS:
            self.keep()

    def keep(self) -> None:
        """Write down how far the work got, if it got further."""
        if self.finished == self._told:
            return
        # On a full disk, rows that do not count make room for the note of those that do.
        self._file.truncate(self.finished.size)
        os.fsync(self._file.fileno())
        document = {"format": _FORMAT, "version": _VERSION, "question": self._question, **asdict(self.finished)}
        with replacing(_progress_file(self._output)) as partial:
            partial.write_text(json.dumps(document, indent=1) + "\n")
        self._told, self._time = self.finished, time.monotonic()

    def put_in_place(self, convert: Callable[[Path, Path], None] | None = None) -> None:
        """Make the output of all rows: their file itself, or what ``convert`` makes of it at another path."""
        self.keep()
        self._file.close()
        if convert is None:
            self.rows_file.replace(self._output)
            return
        with replacing(self._output) as whole:
            convert(self.rows_file, whole)


@contextmanager
def partial_output(output: Path, question: dict[str, Any], *, resume: bool = False) -> Iterator[PartialOutput]:
    """Begin an output, or go on with one that belongs to the same question; what belongs to another is discarded.

    When the block ends well, with `PartialOutput.put_in_place`, nothing but the output is left. When it does not, what
    is finished stays.

    Args:
        output: where the file will be.
        question: what tells this work from other work, as plain values.
        resume: refuse to begin.

    Raises:
        ValueError: with ``resume`` if there is nothing to go on with; if another process is at work.
    """
    if resume:
        _check_begun(output, question)
    folder = partial_folder(output)
    with _only_process(folder, output):
        if resume:  # Another process may have finished it meanwhile.
            _check_begun(output, question)
        try:
            with _rows_file(folder) as file:
                partial = PartialOutput(output, question, file)
                try:
                    yield partial
                except BaseException:
                    with contextlib.suppress(OSError):  # Such as a full disk, which is being told already.
                        partial.keep()
                    raise
            _clear(folder)
        finally:
            if not _progress_file(output).exists():
                _clear(folder)


def _progress_file(output: Path) -> Path:
    return partial_folder(output) / "progress.json"


def _rows_file(folder: Path) -> FileIO:
    """The file of rows, neither made anew nor cut; without a buffer, so that what is counted is in the file."""
    handle = os.open(folder / "rows", os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    return FileIO(handle, "r+")


def _check_begun(output: Path, question: dict[str, Any]) -> None:
    if _kept(output, question) is None:
        raise ValueError(f"`--resume`: `{output}` holds nothing to go on with.")


def _kept(output: Path, question: dict[str, Any]) -> Finished | None:
    """How far the same question got; None where nothing is there, or something else."""
    rows = partial_folder(output) / "rows"
    try:
        found = read_document(_progress_file(output), kind=_FORMAT, version=_VERSION)
        finished = Finished(**{name: found[name] for name in asdict(Finished())})
        whole = rows.stat().st_size >= finished.size > 0 and finished.rows > 0
    except (ValueError, OSError, KeyError, TypeError):
        return None
    return finished if whole and found.get("question") == json.loads(json.dumps(question)) else None


@contextmanager
def _only_process(folder: Path, output: Path) -> Iterator[None]:
    """Make the folder and keep other processes out until the block ends; then remove the folder if it is empty."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = _lock(folder, output)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / "lock").unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)
        # Last, since some file systems keep a file that is open in its folder.
        with contextlib.suppress(OSError):
            folder.rmdir()


def _lock(folder: Path, output: Path) -> int | None:
    """Lock a file that no rename moves; its descriptor holds the lock. None where the system has no locks."""
    if fcntl is None:
        return None
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # Another process just finished and removed the folder.
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise ValueError(f"`{output}` is being written by another process.") from error
        except OSError:
            return handle  # A file system without locks.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(folder / "lock")):
                return handle
        os.close(handle)  # Another process just removed this file; the next one to come would lock a new one.


def _clear(folder: Path) -> None:
    """Remove the rows and the note of them."""
    with contextlib.suppress(OSError):
        for file in (folder / "progress.json", folder / "rows", *folder.glob(".progress.json.*.partial")):
            file.unlink(missing_ok=True)

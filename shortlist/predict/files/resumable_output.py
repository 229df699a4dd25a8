"""A file that grows row by row beside its final path, survives the process that writes it, and appears there whole."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from shortlist.errors import InputError
from shortlist.files import locked, read_document, replacing
from shortlist.fingerprint import first_difference

_FORMAT, _VERSION = "shortlist predict progress", 2
# At most this much work is lost when the process is killed or the power fails.
_SECONDS = 2.0


@dataclass(frozen=True)
class Finished:
    """How much is written.

    Args:
        rows: how many.
        size: of the file of rows, in bytes.
        labels: in all sets together.
        empty: sets without labels.
        random_state: of the generator that breaks the ties of the following rows, as plain values.
    """

    rows: int = 0
    size: int = 0
    labels: int = 0
    empty: int = 0
    random_state: dict[str, Any] | None = None


def partial_folder(output: Path) -> Path:
    """Return where rows are kept until the output is complete."""
    return output.with_name(f"{output.name}.partial")


class PartialOutput:
    """The rows of an unfinished output; made by `resumable_output`.

    Attributes:
        rows_file: holds the rows; anything after ``finished.size`` does not count.
        finished: how much is written.
    """

    def __init__(self, output: Path, fingerprint: Mapping[str, Any], file: FileIO) -> None:
        self.rows_file = partial_folder(output) / "rows"
        self._output, self._fingerprint, self._file = output, fingerprint, file
        self.finished = _read_progress(output, fingerprint)[0] or Finished()
        self._saved, self._saved_at = self.finished, time.monotonic()
        if self.finished.rows == 0:
            # Otherwise, after a kill before the first rows are counted, these would pass for those of an earlier task.
            _progress_file(output).unlink(missing_ok=True)
        file.seek(self.finished.size)
        file.truncate()

    def append(self, content: bytes | memoryview) -> None:
        """Write content; it counts once `finish_rows` is called."""
        left = memoryview(content)
        while left:  # A disk that is nearly full accepts a part.
            left = left[self._file.write(left) :]

    def finish_rows(self, rows: int, labels: int, empty: int, random_state: dict[str, Any] | None) -> None:
        """Count what was appended; every few seconds, make sure that it survives a crash."""
        done = self.finished
        self.finished = Finished(
            done.rows + rows, self._file.tell(), done.labels + labels, done.empty + empty, random_state
        )
        if time.monotonic() - self._saved_at >= _SECONDS:
            self.save_progress()

    def save_progress(self) -> None:
        """Record how much is written, unless that is recorded already."""
        if self.finished == self._saved:
            return
        # On a full disk, dropping rows that do not count makes room for the record of those that do.
        self._file.truncate(self.finished.size)
        os.fsync(self._file.fileno())
        document = {"format": _FORMAT, "version": _VERSION, "fingerprint": self._fingerprint, **asdict(self.finished)}
        with replacing(_progress_file(self._output)) as partial:
            partial.write_text(json.dumps(document, indent=1) + "\n")
        self._saved, self._saved_at = self.finished, time.monotonic()

    def publish(self, convert: Callable[[Path, Path], None] | None = None) -> None:
        """Turn the rows into the output: the file itself, or what ``convert`` makes of it at another path."""
        self.save_progress()
        self._file.close()
        if convert is None:
            self.rows_file.replace(self._output)
            return
        with replacing(self._output) as whole:
            convert(self.rows_file, whole)


@contextmanager
def resumable_output(output: Path, fingerprint: Mapping[str, Any], *, resume: bool = False) -> Iterator[PartialOutput]:
    """Begin an output, or resume one with the same fingerprint; partial output of any other task is discarded.

    A block that ends with `PartialOutput.publish` leaves nothing but the output. If it fails, what is finished stays.

    Args:
        output: the final path.
        fingerprint: identifies the task, as plain values.
        resume: refuse to begin anew.

    Raises:
        InputError: with ``resume`` if there is nothing to resume; if another process is writing the output.
    """
    if resume:
        _check_resumable(output, fingerprint)
    folder = partial_folder(output)
    with locked(folder / "lock", output):
        if resume:  # Another process may have finished it meanwhile.
            _check_resumable(output, fingerprint)
        try:
            with _open_rows(folder) as file:
                partial = PartialOutput(output, fingerprint, file)
                try:
                    yield partial
                except BaseException:
                    with contextlib.suppress(OSError):  # Such as a full disk, which is the error being raised.
                        partial.save_progress()
                    raise
            _clear(folder)
        finally:
            if not _progress_file(output).exists():
                _clear(folder)


def _progress_file(output: Path) -> Path:
    return partial_folder(output) / "progress.json"


def _open_rows(folder: Path) -> FileIO:
    """Open the file of rows without truncating it, and unbuffered, so that what is counted is in the file."""
    handle = os.open(folder / "rows", os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    return FileIO(handle, "r+")


def _check_resumable(output: Path, fingerprint: Mapping[str, Any]) -> None:
    finished, reason = _read_progress(output, fingerprint)
    if finished is None:
        raise InputError(f"`{output}` cannot be resumed: {reason}.")


def _read_progress(output: Path, fingerprint: Mapping[str, Any]) -> tuple[Finished | None, str]:
    """Return how much of the same task is written; None, and why, if there is nothing to resume."""
    nothing = "there is no partial output"
    try:
        found = read_document(_progress_file(output), kind=_FORMAT, version=_VERSION)
        finished = Finished(**{name: found[name] for name in asdict(Finished())})
        size = (partial_folder(output) / "rows").stat().st_size
        if not (size >= finished.size > 0 and finished.rows > 0):
            return None, nothing
    except (ValueError, OSError, KeyError, TypeError):
        return None, nothing
    difference = first_difference(found.get("fingerprint"), fingerprint)
    return (finished, "") if difference is None else (None, f"the partial output is of another task: {difference}")


def _clear(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for file in (folder / "progress.json", folder / "rows", *folder.glob(".progress.json.*.partial")):
            file.unlink(missing_ok=True)

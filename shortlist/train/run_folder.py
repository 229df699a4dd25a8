"""The files of a run that can go on: its checkpoints, and before the first of them a note that it has begun."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shortlist.files import read_document, replacing
from shortlist.train.checkpoint_files import WholeCheckpoints
from shortlist.train.identity import difference

_FORMAT = "shortlist run"
_VERSION = 1
_SECONDS_BETWEEN_LOOKS = 0.2


class RunFolder:
    """Where a run keeps what it goes on from.

    A run that dies in its first epoch has no checkpoint yet; the note, which holds what was asked for, tells that it
    had begun. It goes when there is a checkpoint.

    Args:
        folder: of the run; its checkpoints are in a folder of it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.last, self.best = self.checkpoints / "last.ckpt", self.checkpoints / "best.ckpt"
        self.begun = self.checkpoints / "begun.json"

    @property
    def has_begun(self) -> bool:
        """Whether a run has begun here."""
        return self.last.is_file() or self.begun.is_file()

    def checkpoint(self, asked: Mapping[str, Any], *, resume: bool) -> dict[str, Any] | None:
        """The last checkpoint of the run that is asked for; None if there is none yet.

        Args:
            asked: of `shortlist.train.identity.run_identity`.
            resume: whether a run must have begun here.

        Raises:
            ValueError: there is another run, a damaged one, or none to go on with.
        """
        if resume and not self.has_begun:
            raise ValueError(f"`resume`: `{self.folder}` holds no run to go on with.")
        if self.last.is_file():
            found = read_checkpoint(self.last)
            self._refuse_other(found.get("asked"), asked)
            return found
        if resume:
            self._refuse_other(self._noted(), asked)
        return None

    def note_begin(self, asked: Mapping[str, Any]) -> None:
        """Write the note, over one that a run before may have left."""
        with replacing(self.begun) as partial:
            partial.write_text(json.dumps({"format": _FORMAT, "version": _VERSION, "asked": asked}))

    def await_begin(self, asked: Mapping[str, Any], *, seconds: float) -> None:
        """Wait for the note of the node that writes.

        A note of something else may be an old one, which that node is about to replace.

        Raises:
            ValueError: it has not come in time, or is of another run.
        """
        end = time.monotonic() + seconds
        while not self.begun.is_file() or self._noted() != asked:
            if time.monotonic() > end:
                if self.begun.is_file():
                    self._refuse_other(self._noted(), asked)
                what = f"`{self.folder}` shows nothing of node 0 after {seconds:.0f} seconds"
                raise ValueError(f"{what}: all nodes must see one folder.")
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def forget_begin(self) -> None:
        """Remove the note once a checkpoint says more."""
        if self.last.is_file():
            self.begun.unlink(missing_ok=True)

    def _noted(self) -> Any:
        return read_document(self.begun, kind=_FORMAT, version=_VERSION).get("asked")

    def _refuse_other(self, before: Any, asked: Mapping[str, Any]) -> None:
        if before != asked:
            raise ValueError(f"`{self.folder}` holds another run ({difference(before, asked)}); choose another folder.")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint; ValueError, in one sentence, if it is damaged."""
    return WholeCheckpoints().load_checkpoint(path)

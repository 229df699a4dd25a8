"""Resuming a run: what identifies it, the files in its folder, and checkpoints that are written atomically."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from shortlist.data import Dataset, frozen_encoder
from shortlist.data.target_rows import label_pairs
from shortlist.errors import InputError
from shortlist.files import read_document, replacing
from shortlist.fingerprint import Digest, check_same
from shortlist.fit_options import FitOptions
from shortlist.train.inputs import settle

_FORMAT = "shortlist run"
_VERSION = 1
_DIGESTED_ROWS = 2048
_POLL_SECONDS = 0.2


def run_fingerprint(dataset: Dataset, options: FitOptions) -> dict[str, Any]:
    """Return what identifies a run, as plain values: its settled options, and a digest of labels, parts and inputs.

    At most 2,048 inputs count, evenly spread, because all of them may be a million files. The number of processes does
    not count: it does not change the result.
    """
    digest = Digest(repr((dataset.inputs.kind, dataset.label_names)))
    if dataset.split is not None:
        digest.update(repr(dataset.split.names).encode() + dataset.split.index.numpy().tobytes())
    for values in label_pairs(dataset.targets, dataset.num_labels):
        digest.update(values.numpy().tobytes())
    rows = torch.linspace(0, len(dataset) - 1, min(len(dataset), _DIGESTED_ROWS), dtype=torch.float64).round().long()
    for content in dataset.inputs.fingerprints(rows):
        digest.update(content)
    plain = {name: value for name, value in settle(options, dataset).to_json().items() if name != "processes"}
    found = {"options": plain, "data": digest.hex(), "rows": len(dataset)}
    # A file of weights may have changed under the same name.
    frozen = frozen_encoder(options.frozen, options.frozen_options).name if options.frozen else None
    return found if frozen is None else {**found, "frozen": frozen}


class RunFolder:
    """The files from which a run resumes.

    A run that dies in its first epoch has no checkpoint yet; ``begun.json``, which holds its fingerprint, shows that it
    had started. It is removed when there is a checkpoint.

    Args:
        folder: of the run; its checkpoints are in a subfolder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.last, self.best = self.checkpoints / "last.ckpt", self.checkpoints / "best.ckpt"
        self.begun = self.checkpoints / "begun.json"
        self.lock = self.checkpoints / ".lock"

    @property
    def has_begun(self) -> bool:
        """Whether a run has started here."""
        return self.last.is_file() or self.begun.is_file()

    def checkpoint(self, fingerprint: Mapping[str, Any], *, resume: bool) -> dict[str, Any] | None:
        """Return the last checkpoint of a run; None if there is none yet.

        Args:
            fingerprint: of `run_fingerprint`.
            resume: whether a run must have started here.

        Raises:
            InputError: if the folder holds another run, a damaged one, or none to resume.
        """
        if resume and not self.has_begun:
            raise InputError(f"`resume`: `{self.folder}` holds no run to resume.")
        if self.last.is_file():
            found = read_checkpoint(self.last)
            check_same(found.get("asked"), fingerprint, path=self.folder)
            return found
        if resume:
            check_same(self._noted(), fingerprint, path=self.folder)
        return None

    def note_begin(self, fingerprint: Mapping[str, Any]) -> None:
        """Note that the run has started."""
        with replacing(self.begun) as partial:
            partial.write_text(json.dumps({"format": _FORMAT, "version": _VERSION, "asked": fingerprint}))

    def await_begin(self, fingerprint: Mapping[str, Any], *, seconds: float) -> None:
        """Wait until node 0 has noted that the run has started; it may first have to replace an older note.

        Raises:
            InputError: if that does not happen in time.
        """
        end = time.monotonic() + seconds
        while not self.begun.is_file() or self._noted() != fingerprint:
            if time.monotonic() > end:
                if self.begun.is_file():
                    check_same(self._noted(), fingerprint, path=self.folder)
                what = f"`{self.folder}` shows nothing from node 0 after {seconds:.0f} seconds"
                raise InputError(f"{what}: all nodes must see one folder.")
            time.sleep(_POLL_SECONDS)

    def forget_begin(self) -> None:
        """Remove the note once there is a checkpoint."""
        if self.last.is_file():
            self.begun.unlink(missing_ok=True)

    def _noted(self) -> Any:
        return read_document(self.begun, kind=_FORMAT, version=_VERSION).get("asked")


class AtomicCheckpoints(TorchCheckpointIO):
    """Lightning's checkpoints, written to another file that is then renamed, and read without unpickling objects."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write tensors and plain values."""
        # To an open file: given a path, torch hides what the system says of a full disk.
        with replacing(path) as partial, partial.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:
                # torch goes on to end its archive, and complains about that.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint; raise InputError if it is damaged or holds other objects."""
        try:
            # torch does not verify the checksums that it writes, so a flipped bit would become a parameter.
            with ZipFile(path) as archive:
                damaged = archive.testzip()
            if not damaged:
                return torch.load(Path(path), map_location=map_location or "cpu", weights_only=True)
            reason = f"its part {damaged} is damaged"
        except Exception as error:
            raise InputError(f"`{path}` cannot be read as a checkpoint: {type(error).__name__}.") from error
        raise InputError(f"`{path}` cannot be read as a checkpoint: {reason}.")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; raise InputError if it is damaged."""
    return AtomicCheckpoints().load_checkpoint(path)

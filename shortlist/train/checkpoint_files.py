"""Checkpoints of a run: whole or not there, and read without unpickling objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from shortlist.files import replacing


class WholeCheckpoints(TorchCheckpointIO):
    """Writes to a file beside, then renames; a run that dies while saving leaves the checkpoint before."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write ``checkpoint``, tensors and plain values only."""
        # To an open file: given a path, torch tells of a full disk by an error of its own.
        with replacing(path) as partial, partial.open("wb") as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint; ValueError, in one sentence, if it is damaged or holds anything but tensors and values."""
        try:
            # torch does not compare the checksums that it writes, so a flipped bit would become a parameter.
            with ZipFile(path) as parts:
                damaged = parts.testzip()
            if damaged:
                raise ValueError(f"its part {damaged} is damaged")
            return torch.load(Path(path), map_location=map_location or "cpu", weights_only=True)
        except Exception as error:
            reason = error if type(error) is ValueError else type(error).__name__
            raise ValueError(f"`{path}` cannot be read as a checkpoint: {reason}.") from error

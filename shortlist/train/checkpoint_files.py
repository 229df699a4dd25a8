"""Checkpoints of a run: whole or not there, and read without unpickling objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from shortlist.files import replacing


class WholeCheckpoints(TorchCheckpointIO):
    """Writes to a file beside, then renames; a run that dies while saving leaves the checkpoint before."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write ``checkpoint``, tensors and plain values only."""
        with replacing(path) as partial:
            torch.save(checkpoint, partial)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint; ValueError, in one sentence, if it is damaged or holds anything but tensors and values."""
        try:
            return torch.load(Path(path), map_location=map_location or "cpu", weights_only=True)
        except Exception as error:
            raise ValueError(f"`{path}` cannot be read as a checkpoint: {type(error).__name__}.") from error

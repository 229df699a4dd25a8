"""Tells how far a training is, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning import Callback, Trainer


class StepProgress(Callback):
    """Calls a function with the share of all steps that is done, in [0, 1].

    A training that stops early jumps to its end, which only the caller knows.

    Args:
        tell: the function.
    """

    def __init__(self, tell: Callable[[float], object]) -> None:
        self.tell = tell

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Tell it after each step."""
        if trainer.is_global_zero:
            self.tell(trainer.global_step / max(int(trainer.estimated_stepping_batches), 1))

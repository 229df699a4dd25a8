"""Tells how far a training is, step by step, and how long it will take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning import Callback, Trainer
from tqdm import tqdm


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


@contextmanager
def share_bar(about: str, *, shown: bool) -> Iterator[Callable[[float], None] | None]:
    """A bar on the standard error that is told which share of the work is done; None if it is not to be shown."""
    if not shown:
        yield None
        return
    layout = "{desc} {percentage:3.0f} % |{bar}| {elapsed}, {remaining} left"
    with tqdm(desc=about, total=1.0, file=sys.stderr, leave=False, bar_format=layout) as bar:

        def tell(share: float) -> None:
            bar.update(share - bar.n)

        yield tell

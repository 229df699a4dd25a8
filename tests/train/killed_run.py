"""Run by test_resume.py: trainings that are killed, each in a process of its own, at moments that hurt."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import torch

from shortlist.train import FitOptions, SetClassifier, fit
from tests.train.small_data import classes, label_sets, quick

EPOCHS = 5
NOISY = {"hidden": [8], "dropout": 0.3}
OPTIONS = {
    "noise and dropout": (
        classes,
        quick(loss="noised_topk", encoder_options=NOISY, epochs=EPOCHS, patience=0, learning_rate=0.03, seed=2),
    ),
    "a loss with parameters": (
        label_sets,
        quick(loss="role", encoder_options=NOISY, epochs=EPOCHS, patience=0, learning_rate=0.03),
    ),
    "two heads and momentum": (
        classes,
        quick(
            loss="average_k",
            encoder_options=NOISY,
            epochs=EPOCHS,
            patience=3,
            optimizer="sgd",
            learning_rate=0.1,
            seed=1,
        ),
    ),
}
"""Data and options by name."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _in_step(epoch: int, index: int) -> Callable[[], None]:
    def prepare() -> None:
        step = SetClassifier.training_step

        def training_step(self: SetClassifier, batch: object, number: int) -> torch.Tensor:
            if (self.current_epoch, number) == (epoch, index):
                _die()
            return step(self, batch, number)  # pyright: ignore

        SetClassifier.training_step = training_step

    return prepare


def _while_writing(name: str, epoch: int) -> Callable[[], None]:
    def prepare() -> None:
        save = torch.save

        def half(content: dict, file: BinaryIO) -> None:
            save(content, file)
            file.flush()
            if content["epoch"] >= epoch and name in Path(file.name).name:
                os.truncate(file.name, Path(file.name).stat().st_size // 2)
                _die()

        torch.save = half

    return prepare


MOMENTS = {
    "in the first epoch": (_in_step(0, 1), None),
    "in a later epoch": (_in_step(3, 1), 2),
    "at the start of an epoch": (_in_step(2, 0), 1),
    "while writing the last checkpoint": (_while_writing("last.ckpt", 2), 1),
    "while writing the best checkpoint": (_while_writing("best.ckpt", 1), 0),
}
"""What to do before a run so that it dies, and the epoch of the last checkpoint that it then leaves."""


def is_slow(name: str, moment: str) -> bool:
    """Whether a case is left to the slow tests."""
    return "noise" not in name and "later" not in moment


def killed(folder: Path, data: Callable, options: FitOptions, prepare: Callable[[], None]) -> int:
    """The signal that ended a run in a process of its own; 0 if it came to its end."""
    child = os.fork()
    if not child:
        prepare()
        fit(data(), options, folder=folder)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    codes = {
        f"{name}, {moment}": killed(Path(sys.argv[1], name, moment), data, options, prepare)
        for name, (data, options) in OPTIONS.items()
        for moment, (prepare, _) in MOMENTS.items()
        if is_slow(name, moment) == (sys.argv[2] == "more")
    }
    sys.stdout.write(json.dumps(codes))

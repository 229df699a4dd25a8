"""Runs that end from within, and comparisons of what they leave."""

from pathlib import Path
from typing import Any

import pytest
import torch

from shortlist.data import Dataset
from shortlist.train import FitOptions, Fitted, SetClassifier, fit
from shortlist.train.checkpoints import AtomicCheckpoints
from tests.train.small_data import classes, quick


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


LONG = quick(epochs=6, patience=0, learning_rate=0.05)


class Cut(Exception):  # noqa: N818
    """Ends a run from within."""


def cut_short(monkeypatch, folder: Path, epoch: int, options: FitOptions = LONG, data: Dataset | None = None) -> None:
    """Leave what a run leaves that dies in an epoch."""
    step = SetClassifier.training_step

    def training_step(self, batch, index):
        if self.current_epoch == epoch:
            raise Cut
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(SetClassifier, "training_step", training_step)
        with pytest.raises(Cut):
            fit(data or classes(), options, folder=folder)


def last(folder: Path) -> dict[str, Any]:
    return AtomicCheckpoints().load_checkpoint(folder / "checkpoints" / "last.ckpt")


def equal(a: Fitted, b: Fitted) -> bool:
    return (
        a.history == b.history
        and a.best_epoch == b.best_epoch
        and same(dict(a.model.state_dict()), dict(b.model.state_dict()))
    )

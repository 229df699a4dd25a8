"""A run that was interrupted, however it was, goes on to the same bits; what is in its folder is whole or refused."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shortlist.data import Dataset
from shortlist.train import FitOptions, Fitted, SetClassifier, checkpoints, fit
from shortlist.train.checkpoints import AtomicCheckpoints, run_fingerprint
from tests.train.killed_run import EPOCHS, MOMENTS, OPTIONS, is_slow
from tests.train.small_data import classes, quick, sparse, with_parts, with_value
from tests.train.test_checkpoints import same

ROOT = Path(__file__).parents[2]
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


def killed(folder: Path, which: str) -> tuple[Path, dict[str, int]]:
    """Folders of killed runs, and the signals that ended them."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.train.killed_run", str(folder), which],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return folder, json.loads(run.stdout)


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> tuple[Path, dict[str, int]]:
    return killed(tmp_path_factory.mktemp("few"), "few")


@pytest.fixture(scope="module")
def more(tmp_path_factory) -> tuple[Path, dict[str, int]]:
    return killed(tmp_path_factory.mktemp("more"), "more")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, tuple[Fitted, Path]]:
    """The same runs without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    return {name: (fit(data(), o, folder=folder / name), folder / name) for name, (data, o) in OPTIONS.items()}


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        pytest.param(name, moment, marks=[pytest.mark.slow] * is_slow(name, moment))
        for name in OPTIONS
        for moment in MOMENTS
    ],
)
def test_a_killed_run_goes_on_to_the_same_bits(request, whole, name, moment):
    folder, codes = request.getfixturevalue("more" if is_slow(name, moment) else "few")
    assert codes[f"{name}, {moment}"] == -9
    folder = folder / name / moment
    epoch = MOMENTS[moment][1]
    for path in (folder / "checkpoints").glob("*.ckpt"):
        AtomicCheckpoints().load_checkpoint(path)
    assert (folder / "checkpoints" / "last.ckpt").exists() == (epoch is not None)
    if epoch is not None:
        reached = last(folder)["epoch"]
        # A better epoch, whose checkpoint is being written, may come later.
        assert reached == epoch or (reached > epoch and "best" in moment)
        assert len(last(folder)["history"]) == reached + 1
    data, options = OPTIONS[name]
    fitted, path = whole[name]
    assert equal(fit(data(), options, folder=folder), fitted)
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "history", "epoch", "global_step"):
        assert same(last(folder)[part], last(path)[part]), part
    assert {entry.name for entry in folder.iterdir()} == {"checkpoints"}


def test_the_killed_runs_are_worth_comparing(whole):
    for fitted, _ in whole.values():
        assert len({entry["train_loss"] for entry in fitted.history}) == len(fitted.history) > 3
    noisy, _ = whole["noise and dropout"]
    assert len(noisy.history) == EPOCHS
    other = fit(classes(), replace(noisy.options, seed=1))
    assert not equal(noisy, other)


def test_the_last_checkpoint_is_written_every_epoch_and_the_best_when_it_is(monkeypatch, tmp_path):
    written = []
    save = AtomicCheckpoints.save_checkpoint

    def noted(self, checkpoint, path, storage_options=None):
        written.append((Path(path).name, checkpoint["epoch"]))
        save(self, checkpoint, path, storage_options)

    monkeypatch.setattr(AtomicCheckpoints, "save_checkpoint", noted)
    fitted = fit(classes(), LONG, folder=tmp_path)
    assert [epoch for name, epoch in written if name == "last.ckpt"] == list(range(6))
    values = [entry[fitted.monitor] for entry in fitted.history]
    records = [epoch for epoch in range(6) if values[epoch] > max(values[:epoch], default=-1)]
    assert [epoch for name, epoch in written if name == "best.ckpt"] == records
    assert len(records) < 6  # else nothing was told apart
    assert fitted.best_epoch == records[-1]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


@pytest.mark.parametrize("options", [LONG, replace(LONG, epochs=40, patience=2)], ids=["all epochs", "early"])
def test_a_run_that_has_ended_is_not_trained_again(monkeypatch, tmp_path, options):
    fitted = fit(classes(), options, folder=tmp_path)
    assert len(fitted.history) == options.epochs if not options.patience else len(fitted.history) < options.epochs

    def training_step(self, batch, index):
        raise AssertionError

    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    assert equal(fit(classes(), options, folder=tmp_path), fitted)


@pytest.mark.parametrize("epoch", [2, 4])
def test_an_interrupted_run_goes_on_in_a_folder_that_was_moved(monkeypatch, tmp_path, epoch):
    cut_short(monkeypatch, tmp_path / "before", epoch)
    shutil.move(tmp_path / "before", tmp_path / "after")
    assert equal(fit(classes(), LONG, folder=tmp_path / "after"), fit(classes(), LONG))
    assert not (tmp_path / "before").exists()


OTHERS = {
    "loss": (classes, replace(LONG, loss="average_k")),
    "rate": (classes, replace(LONG, learning_rate=0.04)),
    "milestones": (classes, replace(LONG, milestones=(0.5,))),
    "epochs": (classes, replace(LONG, epochs=2)),
    "seed": (classes, replace(LONG, seed=1)),
    "rows": (lambda: classes(300), LONG),
    "parts": (lambda: with_parts(classes(), "train", "val"), LONG),
    "labels": (lambda: replace(classes(), targets=(classes().targets + 1) % 7), LONG),
    "features": (lambda: with_value(classes(), 0, 3.0), LONG),
    "kind": (sparse, LONG),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_other_data_or_options_is_refused_and_left_alone(monkeypatch, tmp_path, name):
    cut_short(monkeypatch, tmp_path, 2)
    data, options = OTHERS[name]
    before = {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}
    with pytest.raises(ValueError, match=rf"^`{re.escape(str(tmp_path))}` holds another run \(.*\); .*\.$"):
        fit(data(), options, folder=tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()} == before


def test_the_number_of_processes_does_not_tell_runs_apart():
    data = classes()
    assert run_fingerprint(data, LONG) == run_fingerprint(data, replace(LONG, processes=2))
    assert run_fingerprint(data, LONG) != run_fingerprint(data, replace(LONG, batch_size=32))


@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_a_damaged_checkpoint_is_one_sentence(tmp_path, name, damage):
    fit(classes(), quick(), folder=tmp_path)
    path = tmp_path / "checkpoints" / name
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        # Inside of a tensor, as it is stored.
        content[content.index(last(tmp_path)["state_dict"]["model.head.weight"].numpy().tobytes()) + 5] ^= 64
    path.write_bytes({"cut": content[:-400], "empty": b"", "flipped": content}[damage])
    with pytest.raises(ValueError, match=rf"^`{re.escape(str(path))}` cannot be read as a checkpoint: .*[^.]\.$"):
        fit(classes(), quick(), folder=tmp_path)


def test_a_full_disk_ends_a_run_that_then_goes_on_to_the_same_bits(monkeypatch, tmp_path):
    save = torch.save

    def full(content, file):
        if content["epoch"] == 3:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        save(content, file)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.torch, "save", full)
        with pytest.raises(OSError, match="No space left on device"):
            fit(classes(), LONG, folder=tmp_path)
    assert last(tmp_path)["epoch"] == 2
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert equal(fit(classes(), LONG, folder=tmp_path), fit(classes(), LONG))

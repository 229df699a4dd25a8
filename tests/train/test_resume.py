"""An interrupted run, however it was interrupted, continues to the same bits."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shortlist.errors import InputError
from shortlist.train import Fitted, SetClassifier, checkpoints, fit
from shortlist.train.checkpoints import AtomicCheckpoints, run_fingerprint
from tests.python_process import run_python
from tests.train.interruptions import LONG, cut_short, equal, last, same
from tests.train.killed_run import MOMENTS, OPTIONS, is_slow
from tests.train.small_data import classes, quick, sparse, with_parts, with_value


def killed(folder: Path, which: str) -> tuple[Path, dict[str, int]]:
    """Folders of killed runs, and the signals that ended them."""
    return folder, json.loads(run_python("-m", "tests.train.killed_run", str(folder), which).stdout)


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
def test_a_killed_run_continues_to_the_same_bits(request, whole, name, moment):
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


def test_the_last_checkpoint_is_written_every_epoch_and_the_best_on_improvement(monkeypatch, tmp_path):
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
def test_a_finished_run_is_not_trained_again(monkeypatch, tmp_path, options):
    fitted = fit(classes(), options, folder=tmp_path)
    assert len(fitted.history) == options.epochs if not options.patience else len(fitted.history) < options.epochs

    def training_step(self, batch, index):
        raise AssertionError

    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    assert equal(fit(classes(), options, folder=tmp_path), fitted)


def test_a_run_ended_by_a_full_disk_continues_to_the_same_bits(monkeypatch, tmp_path):
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


def test_an_interrupted_run_continues_in_a_folder_that_was_moved(monkeypatch, tmp_path):
    cut_short(monkeypatch, tmp_path / "before", 4)
    shutil.move(tmp_path / "before", tmp_path / "after")
    assert equal(fit(classes(), LONG, folder=tmp_path / "after"), fit(classes(), LONG))
    assert not (tmp_path / "before").exists()


OTHERS = {
    "options": (classes, replace(LONG, milestones=(0.5,))),
    "rows": (lambda: classes(300), LONG),
    "parts": (lambda: with_parts(classes(), "train", "val"), LONG),
    "labels": (lambda: replace(classes(), targets=(classes().targets + 1) % 7), LONG),
    "features": (lambda: with_value(classes(), 0, 3.0), LONG),
    "kind": (sparse, LONG),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_on_other_data_or_options_has_another_fingerprint(name):
    data, options = OTHERS[name]
    assert run_fingerprint(data(), options) != run_fingerprint(classes(), LONG)


def test_where_a_run_is_computed_does_not_change_its_fingerprint():
    elsewhere = replace(LONG, processes=2, nodes=3, strategy="fsdp")
    assert run_fingerprint(classes(), LONG) == run_fingerprint(classes(), elsewhere)


def test_the_folder_of_another_run_is_refused_and_left_alone(monkeypatch, tmp_path):
    cut_short(monkeypatch, tmp_path, 2)
    before = {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}
    with pytest.raises(InputError, match=rf"^`{re.escape(str(tmp_path))}` holds another run \(seed was 0 and is 1\);"):
        fit(classes(), replace(LONG, seed=1), folder=tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()} == before


@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
def test_a_damaged_checkpoint_is_refused(tmp_path, name):
    fit(classes(), quick(), folder=tmp_path)
    path = tmp_path / "checkpoints" / name
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(InputError, match=rf"^`{re.escape(str(path))}` cannot be read as a checkpoint: .*[^.]\.$"):
        fit(classes(), quick(), folder=tmp_path)

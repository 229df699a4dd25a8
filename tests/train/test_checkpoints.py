"""Checkpoints are written atomically and hold only plain values; a folder says which run has started in it."""

import pickle
import re
import resource
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from shortlist.errors import InputError
from shortlist.train import SetClassifier, checkpoints, fit
from shortlist.train.checkpoints import AtomicCheckpoints, RunFolder
from tests.train.interruptions import LONG, cut_short, same
from tests.train.small_data import classes, quick

FILES = AtomicCheckpoints()


CONTENT = {
    "epoch": 3,
    "rate": 0.25,
    "name": "a run",
    "nothing": None,
    "flags": (True, False),
    "state": {"weight": torch.arange(600.0).reshape(20, 30), "half": torch.ones(3, dtype=torch.bfloat16)},
    "history": [{"loss": 1.5}, {"loss": 1.25}],
}


def refused(path: Path, reason: str = "[^ ].*") -> None:
    with pytest.raises(InputError, match=rf"^`{re.escape(str(path))}` cannot be read as a checkpoint: {reason}\.$"):
        FILES.load_checkpoint(path)


@pytest.fixture
def saved(tmp_path):
    FILES.save_checkpoint(CONTENT, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("torch")])
def test_a_save_that_fails_leaves_the_checkpoint_before(saved, monkeypatch, error):
    whole = saved.read_bytes()

    def half(content: object, file: BinaryIO) -> None:
        file.write(whole[: len(whole) // 2])
        raise error

    monkeypatch.setattr(checkpoints.torch, "save", half)
    with pytest.raises(type(error)):
        FILES.save_checkpoint({"epoch": 4}, saved)
    monkeypatch.undo()
    assert saved.read_bytes() == whole
    assert same(FILES.load_checkpoint(saved), CONTENT)
    assert [entry.name for entry in saved.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("size", [500, 2000, 5000, 100_000])
def test_a_disk_that_takes_no_more_is_what_the_system_says(saved, size):
    """torch then complains about its archive instead."""
    whole, before = saved.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            FILES.save_checkpoint({f"weight {i}": torch.ones(30_000) for i in range(5)}, saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert saved.read_bytes() == whole


def test_a_flipped_bit_is_refused_with_the_damaged_part(saved):
    content = bytearray(saved.read_bytes())
    place = content.index(CONTENT["state"]["weight"].numpy().tobytes())
    content[place + 1002] ^= 1
    saved.write_bytes(content)
    refused(saved, "its part .*data/0 is damaged")


class Trap:
    """Does harm when it is unpickled."""

    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("sprung"),))


def test_a_checkpoint_survives_saving_and_replaces_the_one_before(tmp_path):
    path = tmp_path / "folder" / "of" / "last.ckpt"
    for content in ({"epoch": 2}, CONTENT):
        FILES.save_checkpoint(content, path)
        assert same(FILES.load_checkpoint(path, map_location="cpu", weights_only=False), content)
    assert [entry.name for entry in path.parent.iterdir()] == ["last.ckpt"]


def test_other_and_truncated_files_are_refused(saved, tmp_path):
    whole = saved.read_bytes()
    for content in (whole[:-20], whole[: len(whole) // 2], b"", b"not a checkpoint", b"PK\x03\x04" + bytes(100)):
        saved.write_bytes(content)
        refused(saved)
    refused(tmp_path / "none.ckpt", "FileNotFoundError")
    refused(tmp_path, "IsADirectoryError")


@pytest.mark.parametrize("kind", ["checkpoint", "legacy", "pickle"])
def test_objects_are_not_unpickled(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = Path("trap.ckpt")
    if kind == "pickle":
        path.write_bytes(pickle.dumps({"trap": Trap()}))
    else:
        torch.save({"trap": Trap()}, path, _use_new_zipfile_serialization=kind == "checkpoint")
    for weights_only in (None, False):
        with pytest.raises(InputError, match=r"^`trap.ckpt` cannot be read as a checkpoint: [^ ]*\.$"):
            FILES.load_checkpoint(path, weights_only=weights_only)
    assert not Path("sprung").exists()


def another(folder: Path, message: str) -> Any:
    return pytest.raises(InputError, match=rf"^{re.escape(message.format(folder))}$")


ASKED = {"options": {"k": 2, "rate": 0.1}, "data": "a", "rows": 7}


def test_a_run_that_died_in_its_first_epoch_starts_again(monkeypatch, tmp_path):
    cut_short(monkeypatch, tmp_path, 0)
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == ["begun.json"]
    assert RunFolder(tmp_path).has_begun
    found = fit(classes(), LONG, folder=tmp_path, resume=True)
    assert found.history == fit(classes(), LONG).history
    assert sorted(file.name for file in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


def test_resuming_continues_from_the_last_checkpoint(monkeypatch, tmp_path):
    cut_short(monkeypatch, tmp_path, 3)
    steps, step = [], SetClassifier.training_step

    def training_step(self, batch, index):
        steps.append(self.current_epoch)
        return step(self, batch, index)

    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    fit(classes(), LONG, folder=tmp_path, resume=True)
    assert set(steps) == {3, 4, 5}
    fit(classes(), LONG, folder=tmp_path, resume=True)  # has ended, and is only read
    assert set(steps) == {3, 4, 5}


def test_resuming_needs_a_run_that_has_started(tmp_path):
    folder = tmp_path / "other"
    with another(folder, "`resume`: `{}` holds no run to resume."):
        fit(classes(), quick(), folder=folder, resume=True)
    assert not folder.exists()
    with pytest.raises(InputError, match=r"^`folder` must be given with `resume`; got None\.$"):
        fit(classes(), quick(), resume=True)


def test_another_run_without_a_checkpoint_is_refused_when_resuming_and_otherwise_replaced(monkeypatch, tmp_path):
    cut_short(monkeypatch, tmp_path, 0)
    other = quick(learning_rate=0.04)
    with another(tmp_path, "`{}` holds another run (epochs was 6 and is 1); choose another folder."):
        fit(classes(), other, folder=tmp_path, resume=True)
    assert len(fit(classes(), other, folder=tmp_path).history) == 1


@pytest.mark.parametrize("content", ["{", '{"format": "shortlist run", "version": 9}'])
def test_a_damaged_note_is_refused_when_resuming(tmp_path, content):
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    folder.begun.write_text(content)
    with pytest.raises(InputError, match=rf"^`{re.escape(str(folder.begun))}` [^\n]*\.$"):
        fit(classes(), quick(), folder=tmp_path, resume=True)
    assert len(fit(classes(), quick(), folder=tmp_path).history) == 1


def test_other_nodes_wait_for_node_0(monkeypatch, tmp_path):
    folder, looks = RunFolder(tmp_path), []
    folder.note_begin({**ASKED, "data": "of a run before"})

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            folder.note_begin(ASKED)

    monkeypatch.setattr("shortlist.train.checkpoints.time.sleep", sleep)
    folder.await_begin(ASKED, seconds=60)
    assert len(looks) == 3


def test_a_node_that_sees_nothing_from_node_0_is_refused(tmp_path):
    said = "`{}` shows nothing from node 0 after 0 seconds: all nodes must see one folder."
    with another(tmp_path, said):
        RunFolder(tmp_path).await_begin(ASKED, seconds=0)
    RunFolder(tmp_path).note_begin(ASKED)
    with another(tmp_path, "`{}` holds another run (k was 2 and is 3); choose another folder."):
        RunFolder(tmp_path).await_begin({**ASKED, "options": {"k": 3, "rate": 0.1}}, seconds=0)

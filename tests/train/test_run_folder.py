"""A folder tells whether a run has begun in it, and which."""

import json
import re
from pathlib import Path

import pytest

from shortlist.train import SetClassifier, fit
from shortlist.train.checkpoints import RunFolder, run_fingerprint
from tests.train.small_data import classes, quick
from tests.train.test_resume import LONG, cut_short

ASKED = {"options": {"k": 2, "rate": 0.1}, "data": "a", "rows": 7}


def refused(folder: Path, said: str):
    return pytest.raises(ValueError, match=rf"^{re.escape(said.format(folder))}$")


def test_a_run_that_died_in_its_first_epoch_has_begun_and_starts_anew(monkeypatch, tmp_path):
    cut_short(monkeypatch, tmp_path, 0)
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == ["begun.json"]
    assert RunFolder(tmp_path).has_begun
    found = fit(classes(), LONG, folder=tmp_path, resume=True)
    assert found.history == fit(classes(), LONG).history
    assert sorted(file.name for file in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


def test_resuming_goes_on_from_the_last_checkpoint(monkeypatch, tmp_path):
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


def test_nothing_to_resume_is_one_sentence_and_leaves_nothing(tmp_path):
    folder = tmp_path / "other"
    with refused(folder, "`resume`: `{}` holds no run to resume."):
        fit(classes(), quick(), folder=folder, resume=True)
    assert not folder.exists()
    with pytest.raises(ValueError, match=r"^`folder` must be given with `resume`; got None\.$"):
        fit(classes(), quick(), resume=True)


def test_another_run_that_has_only_begun_is_refused_when_resuming_and_replaced_when_not(monkeypatch, tmp_path):
    cut_short(monkeypatch, tmp_path, 0)
    other = quick(learning_rate=0.04)
    with refused(tmp_path, "`{}` holds another run (epochs was 6 and is 1); choose another folder."):
        fit(classes(), other, folder=tmp_path, resume=True)
    assert len(fit(classes(), other, folder=tmp_path).history) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "shortlist run", "version": 9}'])
def test_a_damaged_note_is_one_sentence(tmp_path, content):
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    folder.begun.write_text(content)
    with pytest.raises(ValueError, match=rf"^`{re.escape(str(folder.begun))}` [^\n]*\.$"):
        fit(classes(), quick(), folder=tmp_path, resume=True)
    assert len(fit(classes(), quick(), folder=tmp_path).history) == 1


def test_what_was_asked_for_is_noted_as_it_is(tmp_path):
    asked = run_fingerprint(classes(), quick(milestones=(0.1, 0.7)))
    RunFolder(tmp_path).note_begin(asked)
    RunFolder(tmp_path).await_begin(asked, seconds=0)
    assert json.loads(RunFolder(tmp_path).begun.read_text())["asked"] == asked


def test_other_nodes_wait_for_the_first(monkeypatch, tmp_path):
    folder, looks = RunFolder(tmp_path), []
    folder.note_begin({**ASKED, "data": "of a run before"})

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            folder.note_begin(ASKED)

    monkeypatch.setattr("shortlist.train.checkpoints.time.sleep", sleep)
    folder.await_begin(ASKED, seconds=60)
    assert len(looks) == 3


def test_a_node_that_sees_nothing_of_the_first_says_so(tmp_path):
    said = "`{}` shows nothing from node 0 after 0 seconds: all nodes must see one folder."
    with refused(tmp_path, said):
        RunFolder(tmp_path).await_begin(ASKED, seconds=0)
    RunFolder(tmp_path).note_begin(ASKED)
    with refused(tmp_path, "`{}` holds another run (k was 2 and is 3); choose another folder."):
        RunFolder(tmp_path).await_begin({**ASKED, "options": {"k": 3, "rate": 0.1}}, seconds=0)


def test_the_note_stays_until_there_is_a_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    folder.note_begin(ASKED)
    folder.forget_begin()
    assert folder.begun.is_file()
    folder.last.write_bytes(b"")
    folder.forget_begin()
    assert not folder.begun.exists()

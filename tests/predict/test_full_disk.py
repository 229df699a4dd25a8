"""``shortlist predict`` on a disk that becomes full keeps the rows that count, or leaves nothing."""

import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.files import replacing
from shortlist.predict import scores as scores_module
from shortlist.predict.files import resumable_output
from shortlist.sets import TopK
from tests.cli.command import command

predict, _ = command("predict")

LOGITS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Seven blocks of rows, and an output that was there before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scores_module, "BLOCK_SCORES", 4 * 8)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    np.save("scores.npy", LOGITS.numpy())
    TopK(2).fit(LOGITS, from_logits=True).save("rule.json")
    Path("sets.jsonl").write_text("before")


def run(capsys) -> tuple[int, str, str]:
    return predict(capsys, "scores.npy", "--logits", "--rule", "rule.json", "-o", "sets.jsonl")


def full_after(monkeypatch, notes: int) -> None:
    """Let the disk be full when the note of progress is written once more than so often."""
    calls = []

    @contextmanager
    def limited(path):
        with replacing(path) as partial:
            calls.append(path)
            if len(calls) > notes:
                partial.write_text('{"format"')
                raise OSError(28, "No space left on device")
            yield partial

    monkeypatch.setattr(resumable_output, "replacing", limited)


@pytest.mark.parametrize("notes", [0, 1, 4])
def test_the_last_note_that_was_written_counts_and_without_one_nothing_stays(notes, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(resumable_output, "_SECONDS", 0.0)
        full_after(patch, notes)
        told = (2, "", "shortlist: `sets.jsonl` cannot be written: No space left on device.\n")
        assert run(capsys) == told
    assert Path("sets.jsonl").read_text() == "before"
    if notes:
        assert sorted(os.listdir("sets.jsonl.partial")) == ["progress.json", "rows"]
    else:
        assert not Path("sets.jsonl.partial").exists()
    before = f" ({8 * notes} of them resumed)" if notes else ""
    assert run(capsys)[1] == f"50 sets{before}, 2 labels on average, none empty: sets.jsonl\n"


def test_a_disk_that_is_still_full_does_not_cost_what_an_earlier_run_finished(capsys, monkeypatch):
    monkeypatch.setattr(resumable_output, "_SECONDS", 0.0)
    for notes in (3, 0):
        with monkeypatch.context() as patch:
            full_after(patch, notes)
            assert run(capsys)[0] == 2
    assert run(capsys)[1].startswith("50 sets (24 of them resumed), ")


def test_rows_that_were_written_in_part_do_not_count_and_those_before_do(capsys, monkeypatch):
    assert run(capsys)[0] == 0
    whole = Path("sets.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    limit = len(b"".join(lines[:40])) + 100  # In the middle of the sixth block.
    monkeypatch.setattr(resumable_output, "_SECONDS", 1e9)  # No note but the one after the failure.
    most, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most[1]))
        code, out, err = run(capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        signal.signal(signal.SIGXFSZ, handler)
    assert (code, out, err) == (2, "", "shortlist: `sets.jsonl` cannot be written: File too large.\n")
    assert Path("sets.jsonl.partial/rows").read_bytes() == b"".join(lines[:40])
    assert run(capsys)[1].startswith("50 sets (40 of them resumed), ")
    assert Path("sets.jsonl").read_bytes() == whole

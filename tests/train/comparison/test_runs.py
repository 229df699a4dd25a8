"""A run on a worker: its files come back, and only finished runs are written."""

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shortlist.comparison_document import RunDetails
from shortlist.train import load_model
from shortlist.train.comparison import runs
from shortlist.train.comparison.runs import RunSpec, finished_run, run, run_on_worker, spec_fingerprint, write_files
from tests.train.small_data import classes, quick


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "runs"


def spec_in(folder: Path | None) -> RunSpec:
    return RunSpec("plain", quick(epochs=2), folder, "test", audit=False)


def plain(details: RunDetails) -> RunDetails:
    return replace(details, seconds=None)


def test_files_come_back_and_make_the_folder_of_a_run(tmp_path, cache):
    data, place = classes(), tmp_path / "there"
    details, files = run_on_worker(data, spec_in(place))
    assert not place.exists()
    assert not cache.exists()
    (place / "checkpoints").mkdir(parents=True)  # Of the same run, interrupted here.
    write_files(place, files)
    assert sorted(path.name for path in place.iterdir()) == sorted(files)
    assert finished_run(data, spec_in(place)) == details
    local = run(data, spec_in(tmp_path / "here"))
    assert plain(local) == plain(details)
    here, there = load_model(tmp_path / "here"), load_model(place)
    torch.testing.assert_close(here.scores(data), there.scores(data), rtol=0, atol=0)


def test_a_disk_that_fills_up_leaves_no_result(tmp_path, cache, monkeypatch):
    data, place = classes(), tmp_path / "there"
    _, files = run_on_worker(data, spec_in(place))
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if "model.json" in path.name:
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_files(place, files)
    assert finished_run(data, spec_in(place)) is None


def test_a_run_continues_where_a_killed_worker_left_it(cache, monkeypatch):
    data, steps, train = classes(), [], runs.run

    def stopped(dataset, asked):
        def step(share: float) -> None:
            steps.append(share)
            if share > 0.9:
                raise KeyboardInterrupt

        return train(dataset, asked, progress=step)

    monkeypatch.setattr(runs, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_on_worker(data, spec_in(None))
    (left,) = (path for path in cache.iterdir() if path.is_dir())
    assert list(left.glob("checkpoints/*"))
    monkeypatch.setattr(runs, "run", lambda *what: train(*what, progress=steps.append))
    del steps[:]
    details, _ = run_on_worker(data, spec_in(None))
    assert min(steps) >= 0.5
    assert details.values == train(data, spec_in(None)).values
    assert not cache.exists()


def test_two_processes_at_the_same_run_do_not_meet(cache):
    data, asked = classes(), spec_in(None)
    with runs._worker_folder(spec_fingerprint(data, asked)) as folder:
        folder.mkdir()
        with folder.with_suffix(".lock").open() as lock, pytest.raises(OSError, match="unavailable"):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        details, _ = run_on_worker(data, asked)
        assert details.values
        assert list(folder.iterdir()) == []


def test_a_worker_that_cannot_write_its_cache_still_runs(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "file"))
    assert run_on_worker(classes(), spec_in(None))[0].values

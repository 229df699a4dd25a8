"""How long a training will take, said before it begins."""

from dataclasses import replace

import pytest
import torch

from shortlist.cli import main
from shortlist.data import AmbiguousWorld
from shortlist.timing import threads
from shortlist.train import FitOptions, compare, estimate, tune
from shortlist.train.estimate import duration_sentence, estimate_seconds

OPTIONS = FitOptions(epochs=4, batch_size=32)


@pytest.fixture
def data():
    return AmbiguousWorld().sample(600, seed=0)


@pytest.fixture
def pace(monkeypatch):
    """A second per row, whatever the machine does."""
    monkeypatch.setattr(estimate, "_seconds_per_row", lambda *_: 1.0)


def test_the_pace_is_that_of_a_few_batches(data):
    assert estimate_seconds(data, OPTIONS, runs=1) > 0
    assert estimate_seconds(data, replace(OPTIONS, batch_size=10_000), runs=1) > 0


def test_runs_and_trials_count_with_their_validation_rows(data, pace):
    train, val = (len(data.part_rows(part)) for part in ("train", "val"))
    run = estimate_seconds(data, OPTIONS, runs=1)
    assert run == pytest.approx(4 * (train + val / 3))
    assert estimate_seconds(data, OPTIONS, runs=3) == pytest.approx(3 * run)
    assert estimate_seconds(data, OPTIONS, runs=1, trials=3, decays=(0.0,)) > 2 * run


def test_finished_trials_need_no_time(data, pace, tmp_path):
    search = {"trials": 3, "decays": (0.0,), "file": tmp_path / "trials.json"}
    tune(data, OPTIONS, **search)
    assert estimate_seconds(data, OPTIONS, runs=0, **search) == pytest.approx(0)


def test_features_of_a_frozen_encoder_are_not_estimated(data, pace):
    assert estimate_seconds(data, replace(OPTIONS, frozen="any"), runs=1) is None


def test_hours_are_hours():
    assert duration_sentence([36_000.0], jobs=2) == "Training will take about 5 hours, or less if runs stop early."


def test_a_comparison_says_it_before_the_work_and_not_for_finished_runs(data, pace, tmp_path):
    said, begun = [], []
    run = {"seeds": [0], "folder": tmp_path, "progress": lambda done, *_: begun.append(done)}

    def tell(sentence):
        said.append((sentence, list(begun)))

    for _ in range(2):
        compare(data, {"a": OPTIONS}, **run, tell=tell)
    [(sentence, before)] = said
    assert sentence.startswith("Training will take about ")
    assert not before


def test_a_comparison_measures_the_pace_with_the_threads_of_a_job(data, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt(torch.get_num_threads())

    monkeypatch.setattr(estimate, "_seconds_per_row", stop)
    with threads(4), pytest.raises(KeyboardInterrupt, match=r"^2$"):
        compare(data, {"a": OPTIONS}, seeds=[0, 1], jobs=2, tell=print)


def test_fit_says_it(pace, tmp_path, capsys):
    options = ["--epochs", "1", "--tune", "0", "--output", str(tmp_path / "model")]
    assert main(["fit", "digits", *options]) == 0
    assert "Training will take about" in capsys.readouterr().err

"""Trials run once, are kept whole, and run again only for other settings or data, or on request."""

import time

import pytest

from shortlist.evidence import Lab, tuned
from shortlist.train.classifier import DivergedError


def trial(settings, root):
    """Twice the seed; fails, diverges or returns NaN if the settings say so."""
    with (root / "calls.txt").open("a") as file:
        file.write("x")
    if settings.get("broken"):
        raise ValueError("broken.")
    if settings.get("rate") == "too high":
        raise DivergedError("the loss is inf.")
    if settings.get("rate") == "nan":
        return {"figure": float("nan")}
    return {"twice": 2 * settings["seed"], "figure": settings.get("rate", 0.0)}


@pytest.fixture
def lab(tmp_path):
    def make(**more):
        return Lab(tmp_path, tmp_path / "figures", tmp_path / "kept", **more)

    (tmp_path / "calls.txt").write_text("")
    return make


def calls(lab) -> int:
    return len((lab.data_root / "calls.txt").read_text())


def test_results_come_in_the_order_of_the_settings_and_are_kept(lab):
    first = lab()
    assert [found["twice"] for found in first.trials(trial, [{"seed": 3}, {"seed": 1}])] == [6, 2]
    again = lab()
    assert [found["twice"] for found in again.trials(trial, [{"seed": 1}, {"seed": 2}])] == [2, 4]
    assert calls(again) == 3


def test_settings_that_come_twice_are_run_once(lab):
    found = lab()
    assert found.trials(trial, [{"seed": 1}, {"seed": 1}]) == [{"twice": 2, "figure": 0.0}] * 2
    assert calls(found) == 1


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        ({}, 1),
        ({"data": {"x": "2"}}, 2),
        ({"since": time.time() + 600}, 2),
        ({"since": 0.0}, 1),
    ],
    ids=["the same", "other data", "kept before the time", "kept after the time"],
)
def test_other_data_and_a_later_time_run_a_trial_again(lab, change, runs):
    lab(data={"x": "1"}).trials(trial, [{"seed": 1}])
    again = lab(**{"data": {"x": "1"}, **change})
    again.trials(trial, [{"seed": 1}])
    assert calls(again) == runs


def test_a_damaged_file_is_run_again(lab):
    first = lab()
    first.trials(trial, [{"seed": 1}])
    (path,) = first.kept.glob("*.json")
    path.write_text(path.read_text()[:40])
    first.trials(trial, [{"seed": 1}])
    assert calls(first) == 2


def test_finished_trials_survive_an_error(lab):
    first = lab()
    with pytest.raises(ValueError, match=r"broken\."):
        first.trials(trial, [{"seed": 1}, {"seed": 2, "broken": True}])
    assert [path.suffix for path in first.kept.iterdir()] == [".json"]
    first.trials(trial, [{"seed": 1}])
    assert calls(first) == 2


def test_progress_reports_what_is_done_and_what_ran_just_now(lab):
    lab().trials(trial, [{"seed": 1}])
    calls = []
    again = lab(tell=lambda done, fresh: calls.append((done, fresh)))
    again.plan(4)
    again.trials(trial, [{"seed": 1}, {"seed": 2}])
    again.trials(trial, [{"seed": 3}, {"seed": 4}])
    assert calls == [(0.25, 0.0), (0.5, 0.25), (0.5, 0.25), (0.75, 0.5), (1.0, 0.75)]


def test_every_candidate_gets_the_same_number_of_tries(lab):
    def settings(name, options, seed):
        return {"seed": seed, **options}

    grids = {"a": [{"rate": 0.1}, {"rate": 0.3}], "b": [{"rate": 0.2}, {"rate": 0.1}]}
    choices = tuned(lab(), trial, grids, settings, figure="figure", seeds=[7])
    assert {name: choice.options for name, choice in choices.items()} == {"a": {"rate": 0.3}, "b": {"rate": 0.2}}
    assert choices["a"].tried == [({"rate": 0.1}, 0.1), ({"rate": 0.3}, 0.3)]
    with pytest.raises(ValueError, match=r"the same number of points for each candidate; got \[1, 2\]"):
        tuned(lab(), trial, {**grids, "c": [{}]}, settings, figure="figure", seeds=[7])


def test_options_that_diverge_or_return_nan_are_never_chosen(lab):
    grids = {"a": [{"rate": "too high"}, {"rate": 0.1}, {"rate": "nan"}]}
    choices = tuned(lab(), trial, grids, lambda _, options, seed: {"seed": seed, **options}, figure="figure", seeds=[7])
    assert choices["a"].options == {"rate": 0.1}


def test_a_final_trial_that_diverges_is_reported_with_its_settings(lab):
    for _ in range(2):  # The second time it is read from the kept trials.
        with pytest.raises(DivergedError, match=r'diverged: \{"seed": 1, "rate": "too high"\}'):
            lab().trials(trial, [{"seed": 1, "rate": "too high"}])
    assert calls(lab()) == 1


def test_a_grid_of_one_point_runs_nothing(lab):
    found = lab()
    choices = tuned(found, trial, {"a": [{"rate": 0.1}], "b": [{}]}, lambda *_: {}, figure="figure", seeds=[7])
    assert (choices["a"].options, choices["a"].tried, calls(found)) == ({"rate": 0.1}, [], 0)

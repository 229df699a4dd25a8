"""Sets of K labels on average: figures of sets, fewer rows, verdicts of the sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import average_k_sensitivity, average_k_trial
from experiments.average_k_sensitivity import swept, within
from experiments.average_k_sizes import shares
from experiments.average_k_trial import fewer_rows, set_figures, trial
from experiments.long_tail_runs import Measured
from shortlist.data import AmbiguousWorld, Dataset


def _world(described: object, root: Path, *, seed: int) -> Dataset:
    return AmbiguousWorld().sample(600, seed=seed)


def _settings(**more: Any) -> dict[str, Any]:
    fit = {"loss": "average_k", "encoder": "linear", "epochs": 1, "k": 3}
    return {
        "data": {},
        "tail": None,
        "rows": 300,
        "ks": [3],
        "fit": fit,
        "seed": 0,
        "part": "val",
        "scores": "own",
        **more,
    }


def test_figures_of_sets_are_by_class_and_by_shot() -> None:
    inside = torch.tensor([[True, False], [True, True], [True, False], [False, False]])
    found = set_figures(inside, torch.tensor([0, 0, 1, 1]), torch.tensor([300, 10]))
    assert (found["rows"], found["many"], found["few"], found["medium"]) == (0.5, 1.0, 0.0, None)
    assert found["training"] == pytest.approx(300 / 310)
    assert found["size"] == 1.0
    assert found["size_by_shot"] == {"many": 1.5, "medium": None, "few": 0.5}
    assert found["histogram"]["rows"][:3] == [0.25, 0.5, 0.25]
    assert found["histogram"]["medium"] == []


def test_fewer_rows_are_training_rows_and_depend_on_the_seed() -> None:
    data = AmbiguousWorld().sample(400, seed=0)
    few = fewer_rows(data, 50, seed=0)
    assert len(few.part("train")) == 50
    assert len(few.part("val")) == len(data.part("val"))
    assert fewer_rows(data, None, seed=0) is data
    assert not torch.equal(few.part("train").targets, fewer_rows(data, 50, seed=1).part("train").targets)


def test_a_trial_gives_sets_of_the_size_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(average_k_trial, "open_data", _world)
    found = trial(_settings(), tmp_path)
    assert found["size3"] == pytest.approx(3, abs=0.05)
    assert 0 <= found["rows3"] <= 1
    assert sum(found["histogram3"]["rows"]) == pytest.approx(1, abs=0.001)


def test_a_run_that_diverges_counts_as_chance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def diverging(settings: object, root: Path) -> dict[str, Any]:
        raise ValueError("the loss is nan in epoch 0, batch 3: no finite step.")

    monkeypatch.setattr(average_k_sensitivity, "trial", diverging)
    monkeypatch.setattr(average_k_sensitivity, "open_data", _world)
    labels = AmbiguousWorld().sample(1, seed=0).num_labels
    assert swept(_settings(), tmp_path) == {"accuracy": 3 / labels, "diverged": 1}


def test_other_errors_of_a_run_are_not_swallowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(settings: object, root: Path) -> dict[str, Any]:
        raise ValueError("`loader` must be another.")

    monkeypatch.setattr(average_k_sensitivity, "trial", failing)
    with pytest.raises(ValueError, match="must be another"):
        swept(_settings(), tmp_path)


@pytest.mark.parametrize(
    ("other", "verdict"),
    [([0.90, 0.91], "holds"), ([0.80, 0.81], "does not hold"), ([0.93, 0.85], "not decidable at this scale")],
)
def test_stable_means_that_the_interval_lies_within_two_points(other: list[float], verdict: str) -> None:
    assert within([0.90, 0.91], other, "α = 1", "10").verdict == verdict


def test_shares_of_sizes_are_sums_of_a_histogram() -> None:
    run = {"histogram5": {"rows": [0.1, 0.2, 0.3, 0.4], "few": []}}
    found = Measured({}, {"average_k": {5: [run]}})
    assert shares(found, "average_k", "rows", 5, 1, 2) == [0.5]
    assert shares(found, "average_k", "few", 5, 1, 2) == []

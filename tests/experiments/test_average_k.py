"""Sets of K labels on average: accuracies and sizes of sets, fewer rows, and runs that diverge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import average_k, average_k_sensitivity
from experiments.average_k import fewer_rows, set_figures, shares, trial
from experiments.average_k_sensitivity import swept
from experiments.long_tail import Measured
from shortlist.data import AmbiguousWorld, Dataset
from shortlist.train.classifier import DivergedError

SETTINGS = {
    "data": {},
    "tail": None,
    "rows": 300,
    "ks": [3],
    "fit": {"loss": "average_k", "encoder": "linear", "epochs": 1, "k": 3},
    "seed": 0,
    "part": "val",
    "scores": "own",
}


def world(described: object, root: Path, *, seed: int) -> Dataset:
    return AmbiguousWorld().sample(600, seed=seed)


def test_results_of_sets_are_by_class_and_by_shot() -> None:
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


def test_a_trial_gives_sets_of_the_requested_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(average_k, "open_data", world)
    found = trial(SETTINGS, tmp_path)
    assert found["size3"] == pytest.approx(3, abs=0.05)
    assert 0 <= found["rows3"] <= 1
    assert sum(found["histogram3"]["rows"]) == pytest.approx(1, abs=0.001)


def test_a_run_that_diverges_counts_as_random_sets_and_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(settings: dict[str, Any], root: Path) -> dict[str, Any]:
        raise settings["error"]

    monkeypatch.setattr(average_k_sensitivity, "trial", failing)
    monkeypatch.setattr(average_k_sensitivity, "open_data", world)
    labels = AmbiguousWorld().sample(1, seed=0).num_labels
    diverged = swept({**SETTINGS, "error": DivergedError("the loss is nan.")}, tmp_path)
    assert diverged == {"accuracy": 3 / labels, "diverged": 1}
    with pytest.raises(ValueError, match="another loader"):
        swept({**SETTINGS, "error": ValueError("another loader")}, tmp_path)


def test_shares_of_sizes_are_sums_of_a_histogram() -> None:
    run = {"histogram5": {"rows": [0.1, 0.2, 0.3, 0.4], "few": []}}
    found = Measured({}, {"average_k": {5: [run]}})
    assert shares(found, "average_k", "rows", 5, 1, 2) == [0.5]
    assert shares(found, "average_k", "few", 5, 1, 2) == []

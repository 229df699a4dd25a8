"""The noised loss by scale and samples: decisions by hand, trials that are asked for, and counted gradients."""

from pathlib import Path

import pytest
import torch

from experiments.noised_loss import counted_coordinates, epsilon_study, fails_to_learn, samples_study, sparsity_study
from shortlist.evidence import Lab
from shortlist.nn import CrossEntropy, NoisedTopK

SETTINGS = {
    "data": {"loader": "cifar100_features"},
    "rows": 10,
    "reference": {"epsilon": 0.2, "samples": 10},
    "grid": {"learning_rate": [0.001, 0.002]},
    "seeds": [0, 1, 2],
    "tuning_seeds": [100],
    "fit": {"loss": "noised_topk", "k": 5, "encoder": "linear", "epochs": 2, "batch_size": 64, "optimizer": "adamw"},
}


class FakeLab(Lab):
    """Computes results from the settings, and remembers what was asked."""

    def attempts(self, trial, settings, *, alone=False):
        self.asked = [*getattr(self, "asked", []), *settings]
        return [self.found(each) for each in settings]

    def found(self, each):
        options, seed = each["fit"]["loss_options"], each["seed"]
        accuracy = 0.2 if options["epsilon"] < 0.01 else 0.9
        better = each["fit"]["learning_rate"] == 0.002
        return {
            "topk": accuracy + 0.001 * (seed % 3) + 0.01 * better,
            "coordinates": 2 + min(options["epsilon"], 2) + 0.001 * (seed % 3),
            "active": 1.0,
            "labels": 100,
        }


@pytest.fixture
def lab(tmp_path: Path, monkeypatch) -> FakeLab:
    monkeypatch.setattr("experiments.presentation.save_figure", lambda figure, path, *, dpi: path)
    return FakeLab(tmp_path, tmp_path / "figures", tmp_path / "kept")


def test_failing_is_relative_to_the_reference():
    good = [0.90, 0.91, 0.90]
    assert fails_to_learn([0.20, 0.15, 0.18], good, fraction=0.5).verdict == "holds"
    assert fails_to_learn([0.80, 0.82, 0.81], good, fraction=0.5).verdict == "does not hold"
    assert fails_to_learn([0.10, 0.80, 0.50], good, fraction=0.5).verdict == "not decidable at this scale"


def test_scales_that_fail_and_scales_that_work_are_distinguished(lab):
    scales = [0.0, 0.001, 0.01, 0.1, 1.0]
    published = {
        "epsilons": scales,
        "accuracy": [19.38, 11.4, 93.36, 94.46, 94.24],
        "reference": 0.1,
        "failing": 0.5,
        "wide_from": 0.01,
        "within": 0.015,
    }
    outcome = epsilon_study({**SETTINGS, "epsilons": scales, "samples": 10}, published, lab)
    assert [claim.finding.verdict for claim in outcome.claims] == ["holds", "holds", "holds"]
    assert outcome.claims[2].published == "from 93.36% to 94.46%"
    assert lab.planned == len(lab.asked) == 5 * (2 + 3)
    assert [row[2] for row in outcome.tables[0].rows] == ["0.002"] * 5


def test_all_numbers_of_samples_use_the_rate_of_the_reference(lab):
    published = {"samples": [1, 3, 100], "accuracy": [94.28, 94.46, 94.52], "few": 3, "within": 0.01}
    outcome = samples_study({**SETTINGS, "samples": [1, 3, 100]}, published, lab)
    assert [claim.finding.verdict for claim in outcome.claims] == ["holds", "holds"]
    assert lab.planned == len(lab.asked) == 2 + 3 * 3
    final = [each for each in lab.asked if each["part"] == "test"]
    assert {each["fit"]["learning_rate"] for each in final} == {0.002}
    assert [each["fit"]["loss_options"] for each in final[::3]] == [{"epsilon": 0.2, "samples": m} for m in (1, 3, 100)]
    assert {(each["noise"], each["rows"]) for each in final} == {(0.0, 10)}


def test_gradients_are_counted_in_one_epoch_at_a_constant_rate(lab):
    published = {"coordinates": 4, "labels": 100, "worth": 0.1, "within": 0.5}
    settings = {**SETTINGS, "epsilons": [0.0, 0.01, 1.0, 100.0], "counted_samples": 3}
    outcome = sparsity_study(settings, published, lab)
    assert [claim.finding.verdict for claim in outcome.claims] == ["holds", "holds"]
    counted = [each["fit"] for each in lab.asked if each["part"] == "train"]
    assert {(fit["epochs"], *fit["milestones"]) for fit in counted} == {(1, 0.999)}
    assert {fit["loss_options"]["samples"] for fit in counted} == {3}


def test_coordinates_are_counted_for_the_noised_loss_alone():
    weight = torch.tensor([[0.0, 3.0, 2.0, 1.0], [9.0, 0.0, 1.0, 2.0]], requires_grad=True)
    target = torch.tensor([0, 0])
    with counted_coordinates() as counts:
        CrossEntropy()(2 * weight, target).backward()
        NoisedTopK(1, epsilon=0.0)(2 * weight, target).backward()
    NoisedTopK(1, epsilon=0.0)(2 * weight, target).backward()
    # The first row has a rival and its own class; the second is beyond the margin.
    assert [count.tolist() for count in counts] == [[2, 0]]

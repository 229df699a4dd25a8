"""Losses under two recipes: what is asked for, measured and decided."""

import pytest

from experiments.losses import Runs, decided, run_recipe, study, trial
from shortlist.evidence import Lab
from tests.experiments.small_data import write_data

SETTINGS = {
    "about": "Toy.",
    "figure": "topk",
    "tables": ["topk", "memorized"],
    "trial": {"data": {"loader": "cifar100_features"}, "rows": 300},
    "conditions": {"p = 0": {}, "p = 0.4": {"noise": 0.4, "fit": {"epochs": 3}}},
    "fit": {"recipe": "paper", "k": 3, "encoder": "mlp", "encoder_options": {"hidden": [32]}, "epochs": 2},
    "recipes": {"paper": {"fit": {"learning_rate": 0.1}}, "tuned": {"grid": {"learning_rate": [0.01, 0.03]}}},
    "candidates": {
        "ce": {"fit": {"loss": "cross_entropy"}},
        "noised": {
            "fit": {"loss": "noised_topk"},
            "paper": {"loss_options.epsilon": 0.2},
            "at": {"p = 0.4": {"loss_options.samples": 3}},
        },
    },
    "seeds": [0, 1],
    "tuning_seeds": [100],
    "claims": [],
}


class FakeLab(Lab):
    """Computes results from the settings, and remembers what was asked."""

    def attempts(self, trial, settings, *, alone=False):
        self.asked = [*getattr(self, "asked", []), *settings]
        return [{"topk": 0.5 + each["fit"]["learning_rate"], "memorized": None} for each in settings]


@pytest.fixture
def lab(tmp_path, monkeypatch) -> FakeLab:
    monkeypatch.setattr("experiments.presentation.save_figure", lambda figure, path, *, dpi: path)
    return FakeLab(tmp_path, tmp_path / "figures", tmp_path / "kept")


def test_the_recipe_of_the_paper_is_not_tuned_and_has_the_options_of_the_paper(lab):
    run_recipe(lab, SETTINGS, "paper")
    assert len(lab.asked) == 2 * 2 * 2
    assert {each["part"] for each in lab.asked} == {"test"}
    assert {each["fit"]["learning_rate"] for each in lab.asked} == {0.1}
    noised = [each for each in lab.asked if each["fit"]["loss"] == "noised_topk"]
    assert [each["fit"]["loss_options"] for each in noised[::2]] == [{"epsilon": 0.2}, {"epsilon": 0.2, "samples": 3}]
    assert {(each.get("noise"), each["fit"]["epochs"]) for each in noised} == {(None, 2), (0.4, 3)}


def test_every_condition_is_tuned_on_validation_rows_with_other_seeds(lab):
    runs = run_recipe(lab, SETTINGS, "tuned")
    tried = [each for each in lab.asked if each["part"] == "val"]
    assert len(tried) == 2 * 2 * 2
    assert {each["seed"] for each in tried} == {100}
    assert {choice.options["learning_rate"] for choice in runs.choices.values()} == {0.03}
    assert not any("epsilon" in each["fit"].get("loss_options", {}) for each in lab.asked)


def test_a_study_decides_under_both_recipes_and_plans_its_trials(lab):
    claim = {"text": "a", "published": "b", "better": "noised", "than": "ce"}
    outcome = study({**SETTINGS, "claims": [claim]}, {}, lab)
    assert lab.planned == len(lab.asked)
    (found,) = outcome.claims
    assert found.paper.headline == found.finding.headline == "holds in 0 of 2"
    assert [table.title for table in outcome.tables][:2] == [
        "Top-k accuracy, the paper's recipe, in percent",
        "Top-k accuracy, tuned per loss, in percent",
    ]


def runs_of(**figures: dict[str, list[float]]) -> Runs:
    """Runs of one figure, from values by candidate and condition."""
    found = {(c, who): [{"topk": v} for v in each] for who, by in figures.items() for c, each in by.items()}
    return Runs({}, found)


HIGH, LOW = [0.84, 0.85, 0.86], [0.80, 0.82, 0.81]
RUNS = runs_of(
    a={"p = 0": HIGH, "p = 0.4": HIGH}, b={"p = 0": HIGH, "p = 0.4": LOW}, c={"p = 0": [0.1] * 3, "p = 0.4": LOW}
)


@pytest.mark.parametrize(
    ("claim", "headline"),
    [
        ({"better": "a", "than": ["b", "c"]}, "holds in 3 of 4"),
        ({"better": "a", "than": "b", "at": ["p = 0.4"]}, "holds"),
        ({"alike": [["a", "b"]]}, "holds in 1 of 2"),
        ({"grows": "a", "over": "b", "along": [0.0, 0.4], "axis": "p ="}, "holds"),
        ({"fails": "c", "below": 0.5, "of": "a"}, "holds in 1 of 2"),
        ({"spread": ["a", "b"], "within": 0.01}, "holds in 1 of 2"),
    ],
)
def test_a_declared_claim_is_decided_in_every_condition(claim, headline):
    assert decided(claim, RUNS, SETTINGS).headline == headline


def test_a_figure_that_some_seed_lacks_decides_nothing():
    claim = {"better": "a", "than": "b", "figure": "few"}
    found = decided(claim, RUNS, SETTINGS)
    assert found.verdict == "not decidable"
    assert found.why == "p = 0: some seed has no rows for average-k accuracy of few-shot classes"


def test_a_trial_measures_sets_by_the_score_of_the_loss_and_what_was_memorized(tmp_path):
    root = write_data(tmp_path)
    settings = {**SETTINGS["trial"], "noise": 0.5, "seed": 0, "part": "test"}
    fit = {**SETTINGS["fit"], "loss": "cross_entropy", "epochs": 30, "learning_rate": 0.1}
    found = trial({**settings, "fit": fit}, root)
    assert found["memorized"] > 0.2
    assert found["learned"] > found["memorized"]
    assert 0 <= found["top1"] <= found["topk"] <= 1
    assert found["average"] == pytest.approx(found["tail"], abs=0.1)


def test_a_trial_of_sets_measures_average_precision(tmp_path):
    root = write_data(tmp_path)
    data = {"loader": "mulan", "name": "yeast"}
    fit = {"loss": "two_way", "k": 2, "encoder": "linear", "epochs": 1}
    found = trial({"data": data, "fit": fit, "seed": 0, "part": "test"}, root)
    assert set(found) == {"by_class", "by_sample", "f1"}
    assert all(0 < value < 1 for value in found.values())

"""The search for a learning rate: equal budgets, a grid that widens, validation rows only, and nothing done twice."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from shortlist.errors import InputError
from shortlist.fit_options import RECIPES
from shortlist.train import FitOptions, evaluate, fit, tune, tuning
from shortlist.train.classifier import DivergedError
from tests.train.small_data import ENCODERS, KINDS, classes, label_sets, quick, with_value


class Trainings:
    """Stands for `fit`: scores peak at one rate, all trainings are noted, and one rate may diverge."""

    def __init__(self, best: float = 1e-3, *, diverges_from: float = float("inf")) -> None:
        self.diverges_from = diverges_from
        self.peak: Callable[[FitOptions], float] = lambda _: best
        self.seen: list[FitOptions] = []
        self.parts: list[dict[str, int]] = []

    def __call__(self, dataset, options, *, progress):
        self.seen.append(options)
        self.parts.append(dict(zip(dataset.split.names, dataset.split.counts().tolist(), strict=True)))
        if options.learning_rate >= self.diverges_from:
            raise DivergedError("the loss is inf.")
        score = 1 - abs(torch.tensor(options.learning_rate / self.peak(options)).log10().item()) / 10
        history = [{"average2_accuracy": score - (options.weight_decay > 1e-3) / 100}]
        progress(1.0)
        return type("Fitted", (), {"history": history, "best_epoch": 0, "monitor": "average2_accuracy"})()


@pytest.fixture
def trainings(monkeypatch):
    def use(*arguments, **options) -> Trainings:
        found = Trainings(*arguments, **options)
        monkeypatch.setattr(tuning, "fit", found)
        return found

    return use


def rates(trials) -> list[float]:
    return list(dict.fromkeys(trial.learning_rate for trial in trials))


def test_the_best_rate_and_decay_are_found_by_fewer_and_longer_trials(trainings):
    calls = trainings(best=3e-3)
    found = tune(classes(), quick(epochs=32, batch_size=None))
    assert (found.options.learning_rate, found.options.weight_decay) == (3e-3, 1e-4)
    trials = found.tuning.trials
    assert [trial.epochs for trial in trials] == [4] * 12 + [8] * 3 + [32] * 2
    assert rates(trials[:12]) == [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2e-3]
    assert rates(trials[12:15]) == [3e-3, 2e-3, 1e-3], "short runs prefer high rates, so the lower ones go on"
    assert rates(trials[15:]) == [3e-3, 1e-3], "the recipe's own rate is in the final"
    assert {options.seed for options in calls.seen} == {0}
    assert found.tuning.monitor == "average2_accuracy"
    assert found.options.epochs == 32, "only rate and decay change"


@pytest.mark.parametrize(("best", "beyond"), [(10.0, [0.3, 1.0, 3.0]), (1e-9, [3e-6, 1e-6, 3e-7])])
def test_the_grid_widens_at_an_edge_within_the_budget(trainings, best, beyond):
    trainings(best=best)
    found = tune(classes(), quick(weight_decay=0.5), trials=12)
    first = rates(found.tuning.trials[:12])
    assert first == [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, *beyond]
    assert {trial.weight_decay for trial in found.tuning.trials} == {0.5}
    assert found.options.learning_rate == beyond[-1]


def test_a_rate_that_is_best_only_in_short_trials_loses_to_that_of_the_recipe(trainings):
    calls = trainings(best=1e-2)
    calls.peak = lambda options: 1e-2 if options.epochs < 32 else 1e-4
    assert tune(classes(), quick(epochs=32)).options.learning_rate == 1e-3


@pytest.mark.parametrize("trials", [1, 2, 5, 6, 7, 12, 25])
def test_every_loss_has_the_same_number_of_trials_wherever_its_best_rate_is(trainings, trials):
    counts = set()
    for best in (1e-9, 3e-4, 1e-3, 1.0):
        trainings(best=best)
        counts.add(len(tune(classes(), quick(), trials=trials).tuning.trials))
    assert len(counts) == 1


def test_only_training_and_validation_rows_are_used_and_few_of_many(trainings, monkeypatch):
    calls = trainings()
    monkeypatch.setattr(tuning, "_MOST_VAL_ROWS", 30)
    tune(classes(2000), quick(epochs=1))
    assert all(parts["test"] == 0 and parts["val"] == 30 for parts in calls.parts)
    assert sorted({parts["train"] for parts in calls.parts}) == [150, 300, 1200]


def test_a_rate_that_diverges_loses_and_all_that_diverge_are_an_error(trainings):
    trainings(best=1.0, diverges_from=3e-3)
    found = tune(classes(), quick())
    assert found.options.learning_rate == 1e-3
    assert {trial.score for trial in found.tuning.trials if trial.learning_rate >= 3e-3} == {None}
    trainings(diverges_from=0.0)
    with pytest.raises(
        InputError, match=r"^`learning_rate`: the loss diverges at all rates that were tried, 0\.0001, "
    ):
        tune(classes(), quick(), trials=4)


def test_finished_trials_are_read_from_the_file_and_those_of_another_search_are_refused(trainings, tmp_path):
    data, file, asked = classes(), tmp_path / "tuning.json", quick(epochs=8)
    whole = trainings()
    wanted = tune(data, asked, file=file)
    assert len(whole.seen) == len(wanted.tuning.trials)
    again = trainings()
    assert tune(data, asked, file=file) == wanted
    assert again.seen == []
    content = json.loads(file.read_text())
    content["trials"] = content["trials"][:5]
    file.write_text(json.dumps(content))
    assert tune(data, asked, file=file) == wanted
    assert len(again.seen) == len(whole.seen) - 5
    for changed, reason in (
        (quick(epochs=8, seed=1), "seed was 0 and is 1"),
        (quick(epochs=8, weight_decay=0.5), "weight_decay was"),
    ):
        with pytest.raises(InputError, match=f"`{file}` holds another search .{reason}"):
            tune(data, changed, file=file)
    with pytest.raises(InputError, match=r"another search .trials was 12 and is 6"):
        tune(data, asked, trials=6, file=file)
    content["trials"][2]["learning_rate"] = -1
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"is damaged: trials\[2\]\.learning_rate must be above 0; got -1\."):
        tune(data, asked, file=file)


def test_progress_rises_to_the_end(trainings):
    trainings()
    told: list[float] = []
    tune(classes(), quick(), trials=5, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_what_does_not_fit_is_refused_before_the_search(trainings):
    calls = trainings()
    with pytest.raises(InputError, match="`trials` must be at least 1; got 0"):
        tune(classes(), trials=0)
    with pytest.raises(InputError, match="`loss` 'cross_entropy' is for one class per row"):
        tune(label_sets(), quick(loss="cross_entropy"))
    assert calls.seen == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_inputs_is_tuned_with_the_same_result_each_time(kind):
    options = quick(epochs=2, encoder_options=ENCODERS[kind])
    first, second = (tune(KINDS[kind](), options, trials=3) for _ in range(2))
    assert first == second
    assert len(rates(first.tuning.trials)) == 3
    assert all(0 <= trial.score <= 1 for trial in first.tuning.trials)


def test_a_trial_is_a_training_with_its_options():
    data, options = classes(), quick(epochs=4, recipe="paper")
    last = tune(data, options, trials=3).tuning.trials[-1]
    assert (last.rows, last.epochs) == (len(data.part_rows("train")), 4)
    given = {"learning_rate": last.learning_rate, "weight_decay": last.weight_decay, "epochs": last.epochs}
    run = fit(data, replace(options, **given))
    assert run.history[-1][run.monitor] == last.score


def test_decays_of_a_recipe_begin_with_its_own():
    for recipe in RECIPES.values():
        assert recipe.decays[0] == recipe.defaults["weight_decay"]
        assert len(set(recipe.decays)) == len(recipe.decays)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["cross_entropy", "lml_nll"])
def test_a_tuned_rate_is_at_least_as_good_as_that_of_the_recipe(loss):
    data = classes(3000)
    options = FitOptions(loss=loss, k=2, epochs=10, recipe="adamw", encoder_options={"hidden": [64]})
    found = tune(data, options)
    assert found.options.learning_rate > 1e-3, "ten short epochs need a higher rate"
    plain, tuned = (evaluate(fit(data, each), data).values["average2_error"] for each in (options, found.options))
    assert tuned <= plain + 0.005


def test_features_that_are_not_finite_are_refused(tmp_path):
    with pytest.raises(InputError, match="must have finite features"):
        tune(with_value(classes(), 3, float("nan")), quick(), trials=2)

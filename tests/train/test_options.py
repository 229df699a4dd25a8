"""Options of a run: values out of range are refused with their name, and plain values survive JSON."""

import re
from dataclasses import replace

import pytest
import torch

from shortlist.errors import InputError
from shortlist.fit_options import RECIPES
from shortlist.train import FitOptions, fit, load_model, save_model
from tests.train.small_data import classes, quick

ASCENDING = "must lie in (0, 1) and be ascending"
REFUSED = [
    ({"epochs": 0}, "`epochs` must be at least 1; got 0."),
    ({"epochs": 1.5}, "`epochs` must be an integer; got 1.5."),
    ({"batch_size": True}, "`batch_size` must be an integer; got True."),
    ({"nodes": 0}, "`nodes` must be at least 1; got 0."),
    ({"k": 0}, "`k` must be above 0 and finite; got 0."),
    ({"k": float("nan")}, "`k` must be above 0 and finite; got nan."),
    ({"k": True}, "`k` must be a number; got True."),
    ({"learning_rate": float("inf")}, "`learning_rate` must be above 0 and finite; got inf."),
    ({"learning_rate": "fast"}, "`learning_rate` must be a number; got 'fast'."),
    ({"weight_decay": float("nan")}, "`weight_decay` must be at least 0 and finite; got nan."),
    ({"recipe": "sgd"}, "`recipe` must be one of adamw, paper; got 'sgd'."),
    ({"keep": "first"}, "`keep` must be one of best, last; got 'first'."),
    ({"loss": None}, "`loss` must be text; got None."),
    ({"patience": -1}, "`patience` must be at least 0 and finite; got -1."),
    ({"loss": ["lml_nll"]}, "`loss` must be text; got ['lml_nll']."),
    ({"loss_options": 3}, "`loss_options` must map names to values; got 3."),
    ({"optimizer": "zzz"}, "`optimizer` must be one of adamw, sgd; got 'zzz'."),
    ({"precision": "8"}, "`precision` must be one of 32-true, bf16-mixed, 16-mixed; got '8'."),
    ({"strategy": "zero"}, "`strategy` must be one of ddp, fsdp; got 'zero'."),
    ({"milestones": "0.5"}, "`milestones` must be a list of numbers; got '0.5'."),
    ({"milestones": [True]}, "`milestones` must be a list of numbers; got True in it."),
    ({"milestones": [0.5, 1]}, f"`milestones` {ASCENDING}; got [0.5, 1]."),
    ({"milestones": [0.5, 0.5]}, f"`milestones` {ASCENDING}; got [0.5, 0.5]."),
    ({"milestones": [float("nan")]}, f"`milestones` {ASCENDING}; got [nan]."),
    ({"augmentation": "zzz"}, "`augmentation` must be crop-flip or empty; got 'zzz'."),
    (
        {"augmentation": "crop-flip", "frozen": "minilm"},
        "`augmentation` must be empty with `frozen` 'minilm', whose features are computed once; got 'crop-flip'.",
    ),
    (
        {"strategy": "fsdp", "precision": "16-mixed"},
        "`precision` must be 32-true or bf16-mixed with `strategy` 'fsdp'; got '16-mixed'.",
    ),
    ({"frozen_options": {"a": 1}}, "`frozen_options` must be empty without `frozen`; got {'a': 1}."),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        FitOptions(**options)


def test_options_that_are_not_given_come_from_the_recipe():
    common, paper = FitOptions().settled("features"), FitOptions(recipe="paper").settled("features")
    assert (common.optimizer, common.milestones, common.patience, common.keep) == ("adamw", (), 5, "best")
    assert (paper.optimizer, paper.learning_rate, paper.weight_decay, paper.batch_size) == ("sgd", 0.1, 1e-4, 64)
    assert (paper.milestones, paper.patience, paper.keep) == ((0.5, 0.75), 0, "last")
    given = FitOptions(recipe="paper", learning_rate=0.5, milestones=(), patience=3).settled("features")
    assert (given.learning_rate, given.milestones, given.patience, given.optimizer) == (0.5, (), 3, "sgd")
    assert given.settled("text") == given, "nothing is left to settle"


def test_every_recipe_settles_the_same_options():
    first, *others = (recipe.defaults for recipe in RECIPES.values())
    assert all(set(each) == set(first) for each in others)
    assert all(set(values) <= set(first) for recipe in RECIPES.values() for values in recipe.by_kind.values())
    assert {name for name, value in vars(FitOptions()).items() if value is None} == set(first)


def test_a_recipe_can_depend_on_the_kind_of_inputs(monkeypatch):
    recipe = replace(RECIPES["adamw"], by_kind={"text": {"epochs": 7}})
    monkeypatch.setitem(RECIPES, "adamw", recipe)
    assert FitOptions().settled("text").epochs == 7
    assert FitOptions(epochs=2).settled("text").epochs == 2
    assert FitOptions().settled("images").epochs == FitOptions(frozen="minilm").settled("text").epochs == 20


def test_few_rows_are_trained_in_smaller_batches_unless_a_size_is_given():
    sizes = [FitOptions().settled("features", rows).batch_size for rows in (0, 1, 127, 256, 600, 1024, 10**6)]
    assert sizes == [128, 16, 16, 32, 64, 128, 128]
    assert FitOptions().settled("text", 1500).batch_size == 128
    assert FitOptions(batch_size=100).settled("features", 50).batch_size == 100
    assert FitOptions(recipe="paper").settled("features", 50).batch_size == 64
    data = classes()
    assert fit(data, FitOptions(epochs=1)).options.batch_size == 16 == len(data.part_rows("train")) // 9


def test_options_survive_json_in_a_saved_model(tmp_path):
    fitted = fit(classes(), quick(milestones=[0.25], loss_options={"weight": torch.tensor([9.0, 1, 1, 1, 1, 1, 1])}))
    kept = load_model(save_model(fitted, tmp_path)).about["options"]
    assert kept["loss_options"] == {"weight": [9, 1, 1, 1, 1, 1, 1]}
    assert FitOptions(**kept).settled("features") == replace(fitted.options, loss_options=kept["loss_options"])
    assert {"nodes", "strategy"}.isdisjoint(kept)
    with pytest.raises(InputError, match=r"^`options` must hold plain values, tensors or arrays: got set\.$"):
        quick(loss_options={"weight": {1.0}}).to_json()

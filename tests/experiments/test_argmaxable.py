"""Studies of output layers: verdicts, counts and steps, and one trial on a few rows."""

import math

import pytest
import torch

from experiments.argmaxable import better_claim, log_steps_saved, none_impossible, some_impossible, steps_until
from experiments.output_layers import (
    Cell,
    Layers,
    counts,
    label_sets,
    layer_trial,
    margins,
    planned,
    refuse_other_heads,
    started,
)
from shortlist.audit import audit
from shortlist.data import Dataset, Features
from shortlist.nn import DFTHead
from tests.experiments.small_data import write_data

FIT = {"loss": "bce", "k": 3, "monitor": "f1@3", "encoder": "bag", "encoder_options": {"dim": 8}, "epochs": 1}
DATA = {"loader": "mulan", "name": "delicious", "dense": False}


def told(impossible, *, undecided=0, by_theorem=0, asked=10):
    possible = asked - impossible - undecided
    return {"argmaxable": possible, "unargmaxable": impossible, "undecided": undecided, "by_theorem": by_theorem}


def layers(**found):
    """Runs of both heads at width 4 from the start ``text``."""
    return Layers(3, {}, {Cell("paper", head, 4): runs for head, runs in found.items()})


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [([1, 5], "holds"), ([0, 5], "not decidable"), ([0, 0], "does not hold")],
)
def test_impossible_sets_must_be_in_every_run(runs, verdict):
    assert some_impossible({"data": [told(each) for each in runs]}).verdict == verdict


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (told(0), "holds"),
        (told(0, undecided=1), "not decidable"),
        (told(0, by_theorem=1), "not decidable"),
        (told(1), "does not hold"),
    ],
)
def test_one_impossible_set_refutes_a_guarantee_and_an_undecided_one_leaves_it_open(run, verdict):
    assert none_impossible({"data": [told(0), run]}).verdict == verdict


def test_a_layer_that_is_worse_on_one_data_set_is_better_in_part():
    low, high = [{"f1": value} for value in (0.1, 0.11, 0.12)], [{"f1": value} for value in (0.3, 0.31, 0.33)]
    better, worse = layers(bottleneck=low, dft=high), layers(bottleneck=high, dft=low)
    alone, both = (better_claim(each, "f1", "paper", "") for each in ({"a": better}, {"a": better, "b": worse}))
    assert (alone.paper.verdict, alone.finding, alone.ours) == ("holds", None, False)
    assert both.paper.headline == "holds in 1 of 2"


def test_steps_are_read_between_epochs_and_are_all_if_the_figure_is_never_reached():
    assert steps_until([0.2, 0.4], 0.1, steps=10) == pytest.approx(5)
    assert steps_until([0.2, 0.4], 0.3, steps=10) == pytest.approx(15)
    assert steps_until([0.2, 0.1], 0.3, steps=10) == 20


def test_half_the_steps_to_the_same_figure_are_a_log_ratio_of_log_2():
    slow, fast = {"curve": [0.2, 0.4], "steps": 10}, {"curve": [0.4, 0.4], "steps": 10}
    found = log_steps_saved(layers(bottleneck=[slow], dft=[fast]), "paper", own=False)
    assert found == pytest.approx([math.log(2)])


def test_sets_larger_than_the_guarantee_are_counted_apart():
    head = DFTHead(4, 12, 1)
    report = audit(head, [[3], [7], [0, 4, 8]], radius=False, jobs=1)
    found = counts(report, most=1)
    assert found["within"] == {"argmaxable": 2, "unargmaxable": 0, "undecided": 0, "by_theorem": 0}
    assert found["beyond"] == {"argmaxable": 0, "unargmaxable": 1, "undecided": 0, "by_theorem": 0}


def test_margins_agree_with_the_exact_radius():
    torch.manual_seed(0)
    weight, sets = torch.randn(9, 3), [[index] for index in range(9)]
    low = audit(weight, sets, jobs=1).radius_bounds[:, 0]
    found = margins(audit(weight, sets, radius=False, jobs=1), most=9)
    assert found == {"sets": 9, "eps": int((low > 1e-8).sum()), "one": int((low >= 1).sum()), "open": 0}


def test_rows_without_labels_ask_nothing_and_repeated_sets_count_again():
    rows = Dataset(Features(torch.zeros(3, 2)), torch.tensor([[2, 0], [-1, -1], [0, 2]]), ("a", "b", "c"))
    assert label_sets(rows) == [[0, 2], [0, 2]]


def test_a_trial_gives_figures_losses_and_an_audit(tmp_path):
    root = write_data(tmp_path)
    fit = {**FIT, "head": "dft", "head_options": {"slack": 4}}
    asked = {"data": DATA, "fit": fit, "seed": 0, "part": "test", "audit": 5, "ranked": 2, "radius": 5}
    found = layer_trial({**asked, "start": "paper"}, root)
    assert 0 <= found["f1"] <= 1
    assert found["losses"][0][0] == 1
    assert len(found["curve"]) == 1
    assert sum(found["audit"]["within"].values()) + sum(found["audit"]["beyond"].values()) == 5
    assert sum(found["audit"]["ranked"].values()) == 2
    with pytest.raises(ValueError, match="`start` must be one of paper, frequencies; got 'zero'"):
        started({**asked, "start": "zero"}, root)


def test_trials_are_counted_before_they_run():
    grid = {"grid": {"learning_rate": [0.1, 0.2]}}
    settings = {"data_sets": {"a": {}, "b": {}}, "candidates": {"bottleneck": grid, "dft": grid}}
    settings |= {"starts": {"paper": [4, 8], "frequencies": [4]}, "seeds": [0, 1], "tuning_seeds": [9]}
    assert planned(settings) == 2 * (2 * 4 + 6 * 2)


def test_other_heads_are_refused():
    with pytest.raises(ValueError, match="`candidates` must be bottleneck and dft; got linear"):
        refuse_other_heads({"candidates": {"linear": {}}})

"""``shortlist evaluate`` with a model: the metrics of its scores on labeled data, matched by label names."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.cli import main
from shortlist.data import open_dataset
from shortlist.predict import model_scores
from shortlist.predict import scores as scores_module
from shortlist.sets import TopK
from shortlist.train import load_model
from tests.cli.command import command
from tests.cli.trained import DATA, NAMES, PARTS, VALUES, write_table

run, refused = command("evaluate")


@pytest.fixture(autouse=True)
def folder(model_folder, monkeypatch):
    """Files, too, come in the blocks of models, so that sums round alike."""
    monkeypatch.setattr(scores_module, "BLOCK_SCORES", 40 * DATA.num_labels)


def figures(capsys, *arguments: str) -> dict:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def of_score_file(capsys, model: str, dataset, target: np.ndarray, *arguments: str) -> dict:
    """What the same command says of the same scores in a file."""
    np.save("scores.npy", load_model(model).scores(dataset).numpy())
    np.save("target.npy", target)
    rule = str(Path(model, "rule.json"))
    return figures(capsys, "scores.npy", "target.npy", "--logits", "--rule", rule, *arguments)


def test_the_metrics_are_those_of_its_scores_in_a_file(capsys):
    test = DATA.part("test")
    found = figures(capsys, "parts", "--data", "parts.csv", "--k", "1", "2")
    assert found == of_score_file(capsys, "parts", test, test.targets.numpy(), "--k", "1", "2")
    assert (found["rows"], found["task"]) == (len(test), "one class")
    sets = open_dataset("sets.npz")
    found = figures(capsys, "sets", "--data", "sets.npz", "--part", "val")
    assert (found["rows"], found["task"]) == (24, "sets of labels")
    assert 0 < found["sets"]["recall"] < 1
    # As a whole, a copy under another name: the parts were drawn for other data.
    values = sets.inputs.batch(torch.arange(len(sets)))[1:]
    np.savez("others.npz", x=values.numpy(), y=sets.targets.to_dense()[1:].bool().numpy())
    others = open_dataset("others.npz")
    found = figures(capsys, "sets", "--data", "others.npz")
    assert found == of_score_file(capsys, "sets", others, others.targets.to_dense().bool().numpy())


def test_the_test_part_of_sets_has_the_metrics_that_training_ended_with(capsys, trained_models):
    wanted, found = trained_models.metrics["sets"], figures(capsys, "sets", "--data", "sets.npz", "--k", "1", "2")
    for name in ("precision", "recall", "ndcg"):
        assert found["at_k"][name]["2"] == pytest.approx(wanted[f"{name}@2"], abs=1e-6)
    assert found["figures"]["map_of_labels"] == pytest.approx(wanted["map"], abs=1e-6)


ONE_CLASS = {
    "parts": "parts.csv",
    "plain": "plain.csv",
    "arrays": "arrays.npz",
    "binary": "arrays.npz",
    "texts": "texts.csv",
    "photos": "photos",
}


@pytest.mark.parametrize("model", ONE_CLASS)
def test_the_test_part_of_classes_has_the_metrics_that_training_ended_with(capsys, trained_models, model):
    wanted, folder = trained_models.metrics[model], "photos-model" if model == "photos" else model
    found = figures(capsys, folder, "--data", ONE_CLASS[model], "--k", "1", "2")
    assert found["at_k"]["top_k_accuracy_micro"]["1"] == pytest.approx(1 - wanted["top1_error"], abs=1e-6)
    assert found["at_k"]["top_k_accuracy_micro"]["2"] == pytest.approx(1 - wanted["top2_error"], abs=1e-6)
    assert found["sets"]["average_size"] == pytest.approx(wanted["average_size"])
    assert found["sets"]["error"] == pytest.approx(wanted["average2_error"], abs=1e-6)


def test_labels_are_matched_by_their_names(capsys):
    write_table("rest.csv", VALUES[1:], species=NAMES[1:])
    wanted = figures(capsys, "arrays", "--data", "rest.csv", "--reader", "{label: species}")
    order = np.random.default_rng(0).permutation(len(DATA.label_names))
    names = np.array([*np.array(DATA.label_names)[order], "zebra"])  # A name that no row has is no fault.
    np.savez("turned.npz", x=VALUES[1:], y=np.argsort(order)[DATA.targets.numpy()[1:]], label_names=names)
    assert figures(capsys, "arrays", "--data", "turned.npz") == wanted
    rows = [row for row, name in enumerate(NAMES) if name in (DATA.label_names[0], DATA.label_names[3])]
    write_table("two.csv", VALUES[rows], species=[NAMES[row] for row in rows])
    found = figures(capsys, "parts", "--data", "two.csv")
    assert (found["rows"], found["labels"], found["labels_that_do_not_occur"]) == (len(rows), 7, 5)


def test_a_label_that_the_model_does_not_know_is_missed_or_refused_with_its_row(capsys):
    names = list(NAMES)
    names[17] = "zebra"
    write_table("unknown.csv", species=names, part=PARTS)
    part = PARTS[17]
    assert main(["evaluate", "parts", "--data", "unknown.csv", "--part", part, "--k", "7", "--json"]) == 0
    found = capsys.readouterr()
    rows = PARTS.count(part)
    # All labels that the model knows are in its first seven.
    accuracy = json.loads(found.out)["at_k"]["top_k_accuracy_micro"]["7"]
    assert accuracy == pytest.approx(1 - 1 / rows)
    assert found.err.startswith("shortlist: the model does not know 1 label of the data")
    sentence = refused(capsys, "parts", "--data", "unknown.csv", "--part", part, "--strict")
    assert sentence == "`unknown.csv` row 17 has the label 'zebra', which `parts` does not know."
    others = next(name for name in ("train", "val", "test") if name != part)
    assert figures(capsys, "parts", "--data", "unknown.csv", "--part", others)["task"] == "one class"


def test_data_without_parts_are_used_whole_and_a_given_rule_replaces_the_models(capsys):
    write_table("whole.csv", VALUES[:30], species=NAMES[:30])
    TopK(3).fit(load_model("parts").scores(DATA), from_logits=True).save("three.json")
    found = figures(capsys, "parts", "--data", "whole.csv", "--rule", "three.json")
    assert (found["rows"], found["sets"]["sizes"]) == (30, {"3": 30})
    assert figures(capsys, "parts", "--data", "whole.csv")["sets"]["sizes"] != {"3": 30}


def test_one_class_can_be_read_as_a_set(capsys):
    assert figures(capsys, "parts", "--data", "parts.csv", "--multi-label")["task"] == "sets of labels"
    sentence = refused(capsys, "sets", "--data", "sets.npz", "--one-class")
    assert sentence.startswith("`sets.npz` row ")
    assert "exactly one label must be positive" in sentence


def test_a_model_runs_once_for_scores_and_sets_unless_memory_is_short(capsys, monkeypatch):
    calls = []
    answers = model_scores._model_scores
    monkeypatch.setattr(model_scores, "_model_scores", lambda *given: calls.append(1) or answers(*given))
    found = figures(capsys, "parts", "--data", "parts.csv")
    once = len(calls)
    monkeypatch.setattr(model_scores, "_MOST_KEPT", 10)
    assert figures(capsys, "parts", "--data", "parts.csv") == found
    assert len(calls) == 3 * once

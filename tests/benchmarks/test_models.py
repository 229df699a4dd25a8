"""The comparison with models of other libraries: it runs without them, and measures and judges by definition."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.models import RESULTS, Scores, main, measure, peer_scores, write_inputs
from benchmarks.models_report import goals, page
from experiments.data import open_data
from shortlist.data import Dataset, Features, Groups
from tests.experiments.small_data import write_data


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.slow
def test_a_comparison_runs_without_an_environment_of_peers(root, tmp_path, capsys):
    output = tmp_path / "models.json"
    output.write_text('{"datasets": {"clinc150": "measured before"}}')
    main(["bibtex", "--data-root", str(root), "--quick", "--output", str(output)])
    found = json.loads(output.read_text())["datasets"]
    assert found["clinc150"] == "measured before"
    models = found["bibtex"]["models"]
    assert models["napkinXC"] == {"reason": "not run"}
    for name in ("shortlist", "shortlist, two_way", "shortlist, lml_nll", "LinearSVC"):
        assert 0 < models[name]["recall@K"] <= 100
    assert "goals met" in capsys.readouterr().out


@pytest.mark.slow
def test_models_that_are_not_measured_again_keep_their_figures(root, tmp_path, capsys):
    output = tmp_path / "models.json"
    words = ["bibtex", "--data-root", str(root), "--quick", "--output", str(output), "--only"]
    main([*words, "LinearSVC"])
    first = json.loads(output.read_text())["datasets"]["bibtex"]
    assert list(first["models"]) == ["LinearSVC"]
    assert first["goals"] == []
    main([*words, "SGD"])
    second = json.loads(output.read_text())["datasets"]["bibtex"]["models"]
    assert list(second) == ["LinearSVC", "SGDClassifier"]
    assert second["LinearSVC"] == first["models"]["LinearSVC"]
    main([*words, "LinearSVC", "--tune", "1"])  # Other figures than those of an untuned run.
    assert list(json.loads(output.read_text())["datasets"]["bibtex"]["models"]) == ["LinearSVC"]


def test_the_page_shows_the_results():
    written = Path(__file__).parents[2] / "docs" / "models.md"
    assert written.read_text() == page(json.loads((RESULTS / "models.json").read_text())["datasets"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "described", "main_metric", "chance"),
    [
        ("LinearSVC", {"loader": "clinc150", "words": None}, "top1", 8),
        ("boosted trees", {"loader": "mulan", "name": "emotions"}, "P@1", 70),
    ],
)
def test_other_models_learn_from_texts_and_tables(root, tmp_path, model, described, main_metric, chance):
    data = open_data(described, root, seed=0)
    scores = peer_scores(model, write_inputs(data, tmp_path), data, sys.executable)
    assert isinstance(scores, Scores)
    assert measure(scores, data, k=3)[main_metric] > chance + 10


def test_a_missing_library_is_named(root, tmp_path):
    if importlib.util.find_spec("napkinxc"):
        pytest.skip("napkinXC is installed here")
    data = open_data({"loader": "mulan", "name": "bibtex", "dense": False}, root, seed=0)
    found = peer_scores("napkinXC", write_inputs(data, tmp_path), data, sys.executable)
    assert found == "not run: napkinxc is not installed"


def test_sets_of_average_size_take_labels_where_scores_are_high():
    targets = torch.tensor([[1.0, 1, 1, 0], [0, 0, 0, 1]] * 3)
    scores = torch.tensor([[9.0, 8.0, 7.0, 0.0], [1.0, 2.0, 3.0, 6.0]] * 3)
    split = Groups.of(["train", "train", "val", "val", "test", "test"])
    data = Dataset(Features(scores), targets, ("a", "b", "c", "d"), split=split)
    found = measure(Scores(scores[2:4], scores[4:], 1.5, 0.25), data, k=2)
    assert found["average"] == 100  # Three labels in the first row, one in the second.
    assert found["recall@K"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert (found["P@1"], found["P@K"], found["size"]) == (100, 75, 2)
    assert (found["train"], found["predict"]) == (1.5, 0.25)


def record(default: dict, loss: dict, peer: dict) -> dict:
    models = {"shortlist": default, "shortlist, lml_nll": loss, "LibMultiLabel tree": peer, "napkinXC": {"reason": "-"}}
    return {"one_class": True, "k": 3, "models": models}


def test_goals_allow_half_a_point_and_ask_for_a_lead_and_no_more_time():
    peer = {"top1": 90.0, "topK": 97.0, "average": 98.0, "train": 3.0, "predict": 1.0}
    near = {"top1": 89.5, "topK": 96.0, "average": 97.0, "train": 2.0, "predict": 2.0}
    ahead = {"top1": 80.0, "topK": 97.5, "average": 90.0, "train": 9.0, "predict": 9.0}
    assert [goal["met"] for goal in goals(record(near, ahead, peer))] == [True, True, True]
    far = {**near, "top1": 89.4, "train": 2.1}
    assert [goal["met"] for goal in goals(record(far, near, peer))] == [False, False, False]
    assert [goal["met"] for goal in goals(record(far, near, {"reason": "not run"}))] == [None, None]

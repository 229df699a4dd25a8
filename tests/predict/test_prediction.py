"""Predictions from Python: tensors and files alike, in memory or into a file that can be resumed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.errors import InputError
from shortlist.predict import (
    calibrate,
    evaluate_sets,
    iterate_sets,
    make_rule,
    open_scores,
    predict_sets,
    read_rule,
    scores,
    tensor_scores,
)
from shortlist.sets import AverageError, PredictionSets, SetRule, TopK

LOGITS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
LABELS = LOGITS.argmax(-1)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    """A folder of its own, and blocks so small that there are several."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scores, "BLOCK_SCORES", 4 * 8)


def test_a_tensor_gives_the_sets_of_a_file():
    np.save("scores.npy", LOGITS.numpy())
    rule = calibrate(tensor_scores(LOGITS, from_logits=True), AverageError(0.2), LABELS)
    of_file = [sets for _, sets in iterate_sets(open_scores("scores.npy", from_logits=True), rule, seed=3)]
    of_tensor = [sets for _, sets in iterate_sets(tensor_scores(LOGITS, from_logits=True), rule, seed=3)]
    assert len(of_file) == len(of_tensor) == 7
    assert PredictionSets.cat(of_file) == PredictionSets.cat(of_tensor)
    assert evaluate_sets(tensor_scores(LOGITS, from_logits=True), rule, LABELS, seed=3).coverage >= 0.8


def test_ids_and_names_of_a_tensor_reach_the_file():
    given = tensor_scores(LOGITS[:2], from_logits=True, names=list("abcd"), ids=["x", "y"])
    summary = predict_sets(given, TopK(4).fit(LOGITS, from_logits=True), "sets.jsonl")
    rows = [json.loads(line) for line in Path("sets.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["x", "y"]
    assert sorted(rows[0]["labels"]) == list("abcd")
    assert (summary.rows, summary.resumed, summary.average_size, summary.empty) == (2, 0, 4.0, 0)


@pytest.mark.parametrize("changed", [False, True])
def test_an_interrupted_call_resumes_only_for_the_same_scores(monkeypatch, changed):
    rule = calibrate(tensor_scores(LOGITS, from_logits=True), AverageError(0.2), LABELS)
    predict, calls = SetRule.predict, []

    def interrupted(rule, *arguments, **options):
        calls.append(rule)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return predict(rule, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SetRule, "predict", interrupted)
        with pytest.raises(KeyboardInterrupt, match="24 rows are kept"):
            predict_sets(tensor_scores(LOGITS, from_logits=True), rule, "sets.csv", seed=1)
    again = tensor_scores(LOGITS + changed, from_logits=True)
    if changed:
        with pytest.raises(InputError, match=r"`sets.csv` cannot be resumed: .* another task: scores"):
            predict_sets(again, rule, "sets.csv", seed=1, resume=True)
    assert predict_sets(again, rule, "sets.csv", seed=1).resumed == (0 if changed else 24)
    whole = predict_sets(again, rule, "other.csv", seed=1)
    assert (whole.rows, whole.resumed) == (50, 0)
    assert Path("sets.csv").read_bytes() == Path("other.csv").read_bytes()
    assert sorted(os.listdir()) == ["other.csv", "sets.csv"]


def test_arguments_that_do_not_fit_are_refused():
    given = tensor_scores(LOGITS, from_logits=True)
    TopK(1).fit(LOGITS[:, :3], from_logits=True).save("narrow.json")
    for call, message in (
        (lambda: tensor_scores(LOGITS[0], from_logits=True), "`scores` must be a floating-point matrix"),
        (lambda: tensor_scores(LOGITS, from_logits=True, names=["a"]), "`names` must have 4 entries; got 1"),
        (lambda: tensor_scores(LOGITS, from_logits=True, ids=["a"]), "`ids` must have 50 entries; got 1"),
        (lambda: read_rule("narrow.json", given), "`narrow.json` is for 3 labels, but `scores` has 4"),
        (lambda: predict_sets(given, TopK(1).fit(LOGITS, from_logits=True), "a.txt"), "`a.txt` must end in .jsonl"),
        (lambda: predict_sets(given, TopK(1).fit(LOGITS, from_logits=True), "a", format="x"), "the format must be one"),
        (lambda: make_rule("top-k", given, k=5), "k must be at most the number of labels, 4; got 5"),
        (lambda: make_rule("average-error", given, alpha=2), "`alpha` must lie strictly between 0 and 1; got 2"),
        (lambda: calibrate(given, AverageError(0.1)), "`labels`"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

"""What is hidden from whom, and the answers of greatest likelihood in a known world."""

from pathlib import Path

import torch

from experiments.candidates import Compared
from experiments.missing_labels import collapse, hidden, hidden_mean, kept, likelihood_answer
from shortlist.data import Dataset, Features, Groups


def full_rows() -> Dataset:
    parts = Groups.of(["train"] * 40 + ["val"] * 40 + ["test"] * 40)
    return Dataset(Features(torch.zeros(120, 2)), torch.ones(120, 5), tuple("abcde"), split=parts)


def of_recall(**figures: list[float]) -> Compared:
    return Compared({}, {who: [{"recall": value} for value in values] for who, values in figures.items()})


def test_training_and_validation_rows_lose_labels_and_test_rows_do_not():
    less = hidden(full_rows(), share=0.5, seed=0)
    for part in ("train", "val"):
        assert 60 < less.label_counts(part).sum() < 140
    assert less.label_counts("test").sum() == 200
    assert [len(less.part_rows(part)) for part in ("train", "val", "test")] == [40, 40, 40]


def test_means_leave_out_what_is_complete_and_the_kept_share_is_paired_by_seed():
    found = {0.0: of_recall(lml=[0.8, 0.4]), 0.5: of_recall(lml=[0.6, 0.4]), 0.9: of_recall(lml=[0.4, 0.1])}
    assert hidden_mean(found, "lml") == [0.5, 0.25]
    assert kept(found, "lml") == [0.5, 0.25]


def test_answers_of_greatest_likelihood_rank_labels_by_the_probability_to_be_observed(tmp_path: Path):
    world = {"num_labels": 8, "dim": 3, "labels_per_row": 2.0}
    found = likelihood_answer({"world": world, "share": 0.5, "seed": 0, "rows": 5, "k": 3}, tmp_path)
    assert min(found["lml"], found["lml_observed"], found["bce"], found["softmax"]) > 0.999
    assert found["distance"] < 0.02


def test_a_model_with_a_hidden_layer_collapses_on_positives_alone(tmp_path: Path):
    world = {"num_labels": 8, "dim": 3, "labels_per_row": 2.0}
    settings = {"world": world, "share": 0.5, "rows": 200, "k": 3, "learning_rate": 0.03, "steps": [0, 100], "seed": 0}
    found = collapse({**settings, "hidden": [16]}, tmp_path)
    assert found["mean_score"][0] < 0.7 < 0.95 < found["mean_score"][-1]

"""Label noise: what a trial trains on, and the verdicts on its results."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.candidates import Compared
from experiments.data import open_data
from experiments.label_noise import (
    alike_study,
    at_each,
    published_gaps,
    published_table,
    setup_words,
    top1_study,
    topk_study,
    trial,
    with_fewer_rows,
)
from experiments.presentation import interval_line, tried_words
from shortlist.evidence import Choice, Finding, Lab
from shortlist.report.chart import candidate_style

FIT = {"loss": "cross_entropy", "k": 2, "encoder": "linear", "epochs": 1, "batch_size": 64, "learning_rate": 0.01}
NAMES = ("plain", "first", "second")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Six well separated classes in two superclasses, in the layout of the features of CIFAR-100."""
    generator = np.random.default_rng(0)
    labels = {"train": np.repeat(np.arange(6), 50), "test": np.repeat(np.arange(6), 10)}
    features = {part: 4 * np.eye(6)[y] + generator.normal(size=(len(y), 6)) for part, y in labels.items()}
    (tmp_path / "cifar100_effnetlite0").mkdir()
    np.savez(
        tmp_path / "cifar100_effnetlite0" / "cifar100_effnetlite0.npz",
        F_train=features["train"].astype(np.float16),
        F_test=features["test"].astype(np.float16),
        y_train=labels["train"],
        y_test=labels["test"],
        fine_to_coarse=np.repeat([0, 1], 3),
        class_names=np.array(list("abcdef")),
    )
    return tmp_path


def test_a_trial_measures_both_accuracies_and_repeats_itself(root):
    settings = {"data": {"loader": "cifar100_features"}, "fit": FIT, "seed": 3, "part": "test", "noise": 0.4, "rows": 0}
    found = trial(settings, root)
    assert set(found) == {"top1", "topk", "learned", "best_epoch"}
    assert 0 <= found["top1"] <= found["topk"] <= 1
    assert trial(settings, root) == found


def test_fewer_rows_leave_the_other_parts_alone(root):
    dataset = open_data({"loader": "cifar100_features"}, root, seed=0)
    fewer = with_fewer_rows(dataset, 40, seed=0)
    assert [len(fewer.part_rows(part)) for part in ("train", "val", "test")] == [40, 30, 60]
    assert torch.equal(fewer.part("val").targets, dataset.part("val").targets)
    assert with_fewer_rows(dataset, 0, seed=0) is dataset
    assert with_fewer_rows(dataset, 10**6, seed=0) is dataset
    rows, other = torch.arange(40), with_fewer_rows(dataset, 40, seed=1)
    assert not torch.equal(fewer.part("train").inputs.batch(rows), other.part("train").inputs.batch(rows))


def test_a_claim_of_no_condition_stays_open():
    assert at_each({}).verdict == "not decidable at this scale"
    one = at_each({"p = 0.1": Finding("holds", "x"), "p = 0.2": Finding("does not hold", "y")})
    assert one == Finding("does not hold", "p = 0.1: x; p = 0.2: y")


def compared_of(**values: Sequence[float]) -> Compared:
    runs = {
        name: [{"topk": value, "top1": value / 2, "learned": 0.5, "best_epoch": 1} for value in each]
        for name, each in values.items()
    }
    return Compared({}, runs)


@pytest.fixture
def studied(monkeypatch, tmp_path: Path):
    """Studies of given results, without training."""
    found = {
        0.0: compared_of(plain=[0.90, 0.91, 0.90], first=[0.90, 0.91, 0.901], second=[0.899, 0.91, 0.90]),
        0.4: compared_of(plain=[0.80, 0.81, 0.80], first=[0.84, 0.85, 0.842], second=[0.84, 0.851, 0.841]),
    }
    monkeypatch.setattr("experiments.label_noise._by_noise", lambda settings, lab: found)
    monkeypatch.setattr("experiments.presentation.save_figure", lambda figure, path, *, dpi: path)
    settings = {
        "data": {"loader": "cifar100_features"},
        "rows": 10,
        "noise": [0.0, 0.4],
        "baseline": "plain",
        "seeds": [0, 1, 2],
        "tuning_seeds": [100],
        "fit": {**FIT, "optimizer": "adamw"},
        "candidates": {name: {} for name in NAMES},
    }
    return settings, Lab(tmp_path, tmp_path / "figures", tmp_path / "kept")


PUBLISHED = {
    "about": "accuracy",
    "noise": [0.0, 0.4],
    "accuracy": {"plain": [94.2, 83.6], "first": [93.3, 87.4], "second": [94.4, 87.8]},
    "half_width": {name: [0.1, 0.2] for name in NAMES},
    "worth": 0.003,
    "best": "second",
    "rival": "first",
    "best_at": [0.0, 0.4],
    "high_noise": [0.4],
    "within": 0.01,
    "words": "nearly identical",
    "ahead": ["second"],
}


def test_losses_that_win_only_under_noise_are_found(studied):
    outcome = topk_study(studied[0], PUBLISHED, studied[1])
    assert [claim.finding.verdict for claim in outcome.claims] == ["holds", "holds", "holds", "does not hold"]
    assert outcome.claims[0].published == "first − plain: -0.9 at p = 0, +3.8 at p = 0.4"
    assert [figure.file for figure in outcome.figures] == ["accuracy.png", "gap.png"]


def test_top_1_claims_use_the_noise_levels_of_the_paper(studied):
    outcome = top1_study(studied[0], PUBLISHED, studied[1])
    assert [claim.finding.verdict for claim in outcome.claims] == ["does not hold", "holds", "holds"]


def test_alike_losses_are_compared_in_pairs_without_the_baseline(studied):
    outcome = alike_study(studied[0], PUBLISHED, studied[1])
    assert outcome.claims[0].text.startswith("First and second ")
    assert [claim.finding.verdict for claim in outcome.claims] == ["holds", "holds"]


def test_published_numbers_become_words_and_cells():
    assert published_gaps(PUBLISHED, "second", "plain", only=[0.4]) == "second − plain: +4.2 at p = 0.4"
    cell = published_table(PUBLISHED).rows[1][3]
    assert (cell.mean, cell.half_width) == pytest.approx((0.878, 0.002))


def test_one_seed_gives_a_band_without_width():
    band, line = interval_line("one", [0.0, 1.0], [[0.5], [0.6]], candidate_style(0))
    assert band.y == band.high == line.y == (0.5, 0.6)


def test_words_name_the_noise_and_what_was_tried(studied):
    assert "Label noise p of 0, 0.4" in setup_words(studied[0])
    assert "abel noise" not in setup_words({**studied[0], "noise": [0.0]})
    points = [{"learning_rate": 0.1, "encoder_options.hidden": hidden} for hidden in ([], [64, 64])]
    choice = Choice(points[1], [(points[0], 0.3), (points[1], 0.4)])
    assert tried_words({"lml": choice, "fixed": Choice({}, [])}, "p = 0, ") == [
        "p = 0, lml: learning rate 0.1; hidden none, 64×64 (30.0 to 40.0% on validation rows); chosen learning rate "
        "0.1, hidden 64×64."
    ]

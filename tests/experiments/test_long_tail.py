"""Long-tailed classes: the tail, the means by shot, the verdicts."""

from __future__ import annotations

import pytest
import torch

from experiments.long_tail import Measured, class_means, decided, macro_study, shot_sizes, tailed, with_margins
from shortlist.data import Dataset, Features, Groups
from shortlist.evidence import Choice, Finding, Lab


def _even(classes: int, rows: int) -> Dataset:
    labels = torch.arange(classes).repeat(rows)
    parts = ["train"] * (classes * rows // 2) + ["val"] * (classes * rows - classes * rows // 2)
    return Dataset(
        Features(torch.zeros(len(labels), 1)), labels, tuple(map(str, range(classes))), split=Groups.of(parts)
    )


def test_without_a_tail_the_data_stay_as_they_are() -> None:
    data = _even(4, 8)
    assert tailed(data, None, seed=0) is data


def test_all_parts_of_a_tail_have_the_same_order_of_classes() -> None:
    thin = tailed(_even(5, 200), {"imbalance": 50, "parts": ["train", "val"]}, seed=3)
    train, val = thin.label_counts("train"), thin.label_counts("val")
    assert train.tolist() == val.tolist()
    assert sorted(train.tolist()) == [2, 5, 14, 38, 100]


def test_a_tail_of_training_rows_leaves_the_other_parts() -> None:
    data = _even(5, 200)
    thin = tailed(data, {"imbalance": 50}, seed=3)
    assert thin.label_counts("val").tolist() == data.label_counts("val").tolist()


def test_a_tail_of_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="`parts` of the tail must be parts of the data; got 'test'"):
        tailed(_even(5, 20), {"imbalance": 5, "parts": ["test"]}, seed=0)


def test_means_are_over_classes_over_rows_and_by_shot() -> None:
    counts, total = torch.tensor([300, 50, 10, 5]), torch.tensor([6, 2, 2, 0])
    found = class_means(torch.tensor([1.0, 0.5, 0.0, float("nan")]), counts, total)
    assert found["macro"] == 0.5
    assert found["rows"] == 0.7
    assert found["training"] == pytest.approx(325 / 360)
    assert (found["few"], found["medium"], found["many"]) == (0.0, 0.5, 1.0)
    assert shot_sizes(counts) == {"few": 2, "medium": 1, "many": 1}


def test_a_shot_without_classes_has_no_mean() -> None:
    assert class_means(torch.tensor([1.0]), torch.tensor([300]), torch.tensor([1]))["few"] is None


def test_the_largest_margin_becomes_margins_of_classes() -> None:
    options = with_margins({"loss_options": {"largest_margin": 0.4, "scale": 30.0}}, torch.tensor([160, 10]))
    assert options["loss_options"]["scale"] == 30.0
    torch.testing.assert_close(options["loss_options"]["margin"], torch.tensor([0.2, 0.4]), check_dtype=False)


def test_a_claim_about_classes_that_are_not_there_is_open() -> None:
    finding = decided([[0.1, 0.2], []], lambda: Finding("holds", ""), "few-shot")
    assert finding == Finding("not decidable", "for some seed no class is few-shot")


def test_rivals_come_in_the_order_of_their_means() -> None:
    runs = {"a": [{"macro3": 0.9}], "b": [{"macro3": 0.5}], "c": [{"macro3": 0.6}]}
    found = Measured({name: Choice({}, []) for name in runs}, {name: {3: each} for name, each in runs.items()})
    assert found.rivals("a", "macro", 3) == ["c", "b"]
    assert found.rivals("c", "macro", 3) == ["a", "b"]


def test_the_study_judges_what_its_trials_give(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    names = ("cross_entropy", "focal", "ldam", "smooth_topk_svm", "noised_topk", "noised_topk_imbalanced")
    level = dict(zip(names, (0.4, 0.41, 0.45, 0.3, 0.4, 0.5), strict=True))

    def given(lab, trial, asked):
        figures = ("macro", "few", "medium", "many", "rows", "training")
        sizes = {"few": 1, "medium": 1, "many": 1}
        return [
            sizes
            | {
                f"{figure}{k}": (0.9 if figure == "many" else level[each["fit"]["loss"]]) + 0.001 * each["seed"]
                for figure in figures
                for k in (1, 3)
            }
            for each in asked
        ]

    monkeypatch.setattr(Lab, "trials", given)
    settings = {
        "data": {"loader": "none"},
        "tail": {"imbalance": 100},
        "ks": [1, 3],
        "shown_ks": [1, 3],
        "tuning_k": 3,
        "seeds": [0, 1],
        "tuning_seeds": [100],
        "fit": {"encoder": "linear", "epochs": 1, "optimizer": "adamw", "batch_size": 8},
        "candidates": {name: {"fit": {"loss": name}, "grid": {"learning_rate": [0.1]}} for name in names},
    }
    outcome = macro_study(settings, {}, Lab(tmp_path, tmp_path, tmp_path))
    assert [claim.finding.verdict for claim in outcome.claims] == ["holds"] * 5
    assert (tmp_path / "by_shot.png").is_file()

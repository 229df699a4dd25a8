"""``shortlist evaluate``: the metrics of the library, as tables and as JSON."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist import functional
from shortlist.metrics import BinnedMeanAveragePrecision, SetCoverage
from shortlist.predict import evaluation
from shortlist.sets import AverageError, PredictionSets, RecallControl
from tests.cli.command import command
from tests.cli.score_files import BLOCK, HOT, LOGITS, PROBS, ROWS, SCORES
from tests.cli.score_files import CLASSES as ALL_CLASSES

run, _ = command("evaluate")

CLASSES = ALL_CLASSES.clamp(max=4)
"""The last label does not occur."""


@pytest.fixture
def folder(score_files) -> Path:
    np.save("classes.npy", CLASSES.numpy())
    return score_files


def figures(capsys, *arguments: str) -> dict:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("kind", SCORES)
def test_one_class_has_the_accuracies_of_the_library(folder, capsys, kind):
    told = figures(capsys, f"{kind}.npy", "classes.npy", f"--{kind}", "--k", "2", "1", "4")
    assert (told["rows"], told["labels"], told["labels_that_do_not_occur"]) == (ROWS, 6, 1)
    assert (told["scores"], told["task"], told["figures"]) == (kind, "one class", {})
    for average in ("micro", "macro"):
        top = {str(k): float(functional.topk_accuracy(SCORES[kind], CLASSES, k, average=average)) for k in (1, 2, 4)}
        assert told["at_k"][f"top_k_accuracy_{average}"] == pytest.approx(top, abs=1e-12)
        mean = {str(k): float(functional.average_k_accuracy(PROBS, CLASSES, k=k, average=average)) for k in (1, 2, 4)}
        assert told["at_k"][f"average_k_accuracy_{average}"] == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_sets_of_labels_have_the_metrics_of_the_library(folder, capsys, kind, threshold):
    extra = [] if threshold is None else ["--threshold", str(threshold)]
    told = figures(capsys, f"{kind}.npy", "hot.npy", f"--{kind}", *extra)
    scores, limit = SCORES[kind], threshold or 0.5
    assert told["task"] == "sets of labels"
    for name in ("precision", "recall", "f1", "ndcg"):
        direct = getattr(functional, f"{name}_at_k")(scores, HOT, (1, 3, 5)).tolist()
        assert list(told["at_k"][name].values()) == pytest.approx(direct, abs=1e-12)
        assert list(told["at_k"][name]) == ["1", "3", "5"]
    answers = scores.sigmoid() if kind == "logits" else scores
    expected = {
        "micro_f1": functional.f1_score(answers, HOT, average="micro", threshold=limit),
        "macro_f1": functional.f1_score(answers, HOT, average="macro", threshold=limit),
        "map_of_rows": functional.average_precision(scores, HOT, by="sample"),
        "map_of_labels": functional.average_precision(scores, HOT),
    }
    assert told["figures"] == pytest.approx({name: float(value) for name, value in expected.items()}, abs=1e-12)


@pytest.mark.parametrize("kind", SCORES)
def test_mean_average_precision_of_many_scores_is_binned_and_bounded(folder, capsys, monkeypatch, kind):
    exact = float(functional.average_precision(SCORES[kind], HOT))
    monkeypatch.setattr(evaluation, "_MOST_KEPT", 1000)
    told = figures(capsys, f"{kind}.npy", "hot.npy", f"--{kind}")["figures"]
    limits = None if kind == "logits" else (0.0, 1.0)
    metric = BinnedMeanAveragePrecision(6, bins=83, limits=limits)
    assert told["map_of_labels"] == pytest.approx(float(metric(SCORES[kind], HOT)), abs=1e-12)
    assert told["map_of_labels_at_least"] <= exact <= told["map_of_labels_at_most"]
    assert "at least" in run(capsys, f"{kind}.npy", "hot.npy", f"--{kind}")[1]


def test_the_sets_of_a_rule_are_measured(folder, capsys):
    rule = AverageError(0.2).fit(LOGITS[:150], CLASSES[:150], from_logits=True)
    rule.save("rule.json")
    told = figures(capsys, "logits.npy", "classes.npy", "--logits", "--rule", "rule.json", "--seed", "7")["sets"]
    generator = torch.Generator().manual_seed(7)  # One true score ties with the threshold: it is the threshold.
    sets = PredictionSets.cat([rule.predict(part, generator=generator) for part in LOGITS.split(BLOCK)])
    sizes = sets.sizes
    assert told["average_size"] == pytest.approx(float(sizes.double().mean()))
    assert told["sizes"] == {str(size): int((sizes == size).sum()) for size in sizes.unique().tolist()}
    assert told["empty"] == int((sizes == 0).sum())
    assert told["coverage"] == pytest.approx(float(SetCoverage()(sets, CLASSES)))
    assert told["error"] == pytest.approx(1 - told["coverage"])
    macro = SetCoverage(average="macro", num_labels=6)
    assert told["macro_coverage"] == pytest.approx(float(macro(sets, CLASSES)))
    RecallControl(0.3).fit(LOGITS, HOT, from_logits=True).save("recall.json")
    told = figures(capsys, "logits.npy", "hot.npy", "--logits", "--rule", "recall.json")["sets"]
    assert told["recall"] >= 0.7
    assert told["rows_without_labels"] == int((~HOT.any(-1)).sum())


def test_unknown_labels_are_neither_right_nor_wrong(folder, capsys):
    hot = HOT.float()
    hot[torch.rand(ROWS, 6, generator=torch.Generator().manual_seed(1)) < 0.2] = -1
    np.save("unknown.npy", hot.numpy())
    told = figures(capsys, "logits.npy", "unknown.npy", "--logits")
    assert told["at_k"]["precision"]["3"] == pytest.approx(float(functional.precision_at_k(LOGITS, hot, 3)))
    assert told["figures"]["map_of_labels"] == pytest.approx(float(functional.average_precision(LOGITS, hot)))


def test_the_form_of_labels_decides_the_task_unless_an_option_does(folder, capsys):
    Path("y.txt").write_text("\n".join(map(str, CLASSES.tolist())))
    np.save("lists.npy", CLASSES.numpy()[:, None])
    for path, option, task in (
        ("y.txt", [], "one class"),
        ("y.txt", ["--multi-label"], "sets of labels"),
        ("lists.npy", [], "sets of labels"),
        ("lists.npy", ["--one-class"], "one class"),
    ):
        assert figures(capsys, "logits.npy", path, "--logits", *option)["task"] == task


def test_tables_show_metrics_and_set_sizes(folder, capsys):
    AverageError(0.2).fit(LOGITS, CLASSES, from_logits=True).save("rule.json")
    code, out, err = run(capsys, "logits.npy", "classes.npy", "--logits", "--rule", "rule.json")
    assert (code, err) == (0, "")
    assert out.startswith(
        f"{ROWS} rows, 6 labels, one class per row\n1 label without a row, left out of macro averages\n"
    )
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    top = functional.topk_accuracy(LOGITS, CLASSES, (1, 3, 5))
    assert cells[0] == ["top-k error, micro", *(f"{100 - 100 * value:.3g}%" for value in top.tolist())]
    assert "of rows have their true label inside" in out
    assert "rows by set size" in out
    code, out, _ = run(capsys, "logits.npy", "hot.npy", "--logits", "--k", "2")
    assert "sets of labels" in out
    assert "mAP of labels" in out
    assert "rows by set size" not in out


def test_without_any_label_there_are_no_numbers_and_json_says_null(folder, capsys):
    np.save("none.npy", np.zeros((ROWS, 6), dtype=bool))
    told = figures(capsys, "logits.npy", "none.npy", "--logits")
    assert told["at_k"]["recall"] == {"1": None, "3": None, "5": None}
    assert "·" in run(capsys, "logits.npy", "none.npy", "--logits")[1]


def test_k_is_at_most_the_number_of_labels_unless_it_was_asked_for(folder, capsys):
    np.save("two.npy", np.array([[0.1, 0.9]], dtype=np.float32))
    np.save("y.npy", np.array([1]))
    assert list(figures(capsys, "two.npy", "y.npy", "--logits")["at_k"]["top_k_accuracy_micro"]) == ["1"]

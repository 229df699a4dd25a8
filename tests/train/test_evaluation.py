"""The metrics of a model are those of its scores; the threshold comes from the validation rows."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from shortlist.errors import InputError
from shortlist.factory import LOSSES, loss_class
from shortlist.metrics import AverageKAccuracy
from shortlist.sets import AverageK
from shortlist.train import evaluate, fit
from shortlist.train.evaluation import metric_names, model_scores, update_metrics
from shortlist.train.saved_model import load_model, save_model
from tests.train.small_data import classes, label_sets, quick, with_value


def shown(loss: str, logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1) if loss_class(loss).link == "softmax" else logits.sigmoid()


@pytest.mark.parametrize("k", [1, 2, 2.5])
@pytest.mark.parametrize("loss", ["cross_entropy", "average_k", "lml_nll"])
def test_the_metrics_of_classes_are_those_of_the_scores(loss, k):
    data = classes()
    fitted = fit(data, quick(loss=loss, k=k))
    found = evaluate(fitted, data)
    val, test = (model_scores(fitted.model, data.part(part), 7) for part in ("val", "test"))
    truth = data.part("test").true_targets
    order = test.argsort(dim=-1, descending=True, stable=True)
    place = (order == truth.unsqueeze(-1)).int().argmax(-1)
    # The threshold lies between the kN-th largest score of all validation rows and the next.
    scores = shown(loss, val).flatten().double().sort(descending=True).values
    m = int(k * len(val))
    threshold = float((scores[m - 1] + scores[m]) / 2)
    inside = shown(loss, test).double() > threshold
    whole = max(1, round(k))
    wanted = {
        "top1_error": float((place >= 1).double().mean()),
        f"top{whole}_error": float((place >= whole).double().mean()),
        f"average{k:g}_error": 1 - float(inside.gather(-1, truth.unsqueeze(-1)).double().mean()),
        "average_size": float(inside.sum(-1).double().mean()),
    }
    assert found.values == pytest.approx(wanted, abs=1e-9)
    assert torch.equal(found.sizes, inside.sum(-1))
    assert found.sizes.dtype == torch.int64


@pytest.mark.parametrize("loss", LOSSES)
def test_training_evaluation_and_the_saved_rule_compare_rows_by_the_score_of_the_loss(loss, tmp_path):
    data = classes()
    fitted = fit(data, quick(loss=loss, k=2, epochs=1))
    logits, truth = model_scores(fitted.model, data.part("val"), 7), data.part("val").true_targets
    scores = shown(loss, logits).double()
    ordered = scores.flatten().sort(descending=True).values
    inside = scores > (ordered[2 * len(scores) - 1] + ordered[2 * len(scores)]) / 2
    accuracy = float(inside.gather(-1, truth.unsqueeze(-1)).double().mean())
    assert fitted.history[-1]["average2_accuracy"] == pytest.approx(accuracy, abs=1e-6)
    found = evaluate(fitted, data, part="val")
    assert 1 - found.values["average2_error"] == pytest.approx(accuracy, abs=1e-6)
    save_model(fitted, tmp_path, rule=found.rule)
    assert load_model(tmp_path).rule.link == loss_class(loss).link


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_the_monitor_makes_the_sets_of_the_rule(link):
    # Rows of very different scales, for which softmax and sigmoid make different sets.
    logits = torch.randn(300, 7, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 8, 300)[:, None] + 2
    target, metric, covered = torch.arange(300) % 7, AverageKAccuracy(2), {}
    for rows in torch.arange(300).split(64):
        update_metrics({"average": metric}, logits[rows], target[rows], link=link)
    for each in ("softmax", "sigmoid"):
        rule = AverageK(2, link=each)
        rule.fit(logits, from_logits=True)
        covered[each] = float(rule(logits).gather(-1, target.unsqueeze(-1)).double().mean())
    assert abs(covered["softmax"] - covered["sigmoid"]) > 0.02
    assert float(metric.compute()) == pytest.approx(covered[link], abs=0.004)


def test_the_metrics_of_sets_are_those_of_the_scores():
    data = label_sets()
    fitted = fit(data, quick(k=2))
    values = evaluate(fitted, data).values
    test = data.part("test")
    hot = test.targets.bool()
    order = model_scores(fitted.model, test, 7).argsort(dim=-1, descending=True, stable=True)
    ranked = hot.gather(-1, order).double()
    assert hot.any(-1).all()
    for k in (1, 2, 5):
        hits = ranked[:, :k].sum(-1)
        precision, recall = float((hits / k).mean()), float((hits / hot.sum(-1)).mean())
        gains = 1 / torch.log2(torch.arange(2, 9, dtype=torch.float64))
        ideal = torch.stack([gains[: min(k, int(size))].sum() for size in hot.sum(-1)])
        assert values[f"precision@{k}"] == pytest.approx(precision)
        assert values[f"recall@{k}"] == pytest.approx(recall)
        assert values[f"f1@{k}"] == pytest.approx(2 * precision * recall / (precision + recall))
        assert values[f"ndcg@{k}"] == pytest.approx(float(((ranked * gains)[:, :k].sum(-1) / ideal).mean()))
    scores = model_scores(fitted.model, test, 7).numpy()
    each = [average_precision_score(hot[:, j].numpy(), scores[:, j]) for j in range(7) if hot[:, j].any()]
    assert values["map"] == pytest.approx(np.mean(each), abs=1e-6)
    assert len(values) == 4 * 3 + 1


@pytest.mark.parametrize("data", [classes, label_sets], ids=["classes", "sets"])
@pytest.mark.parametrize("k", [1, 2.5, 7])
def test_the_names_of_the_metrics_are_known_before(data, k):
    dataset = data()
    names = metric_names(dataset, k)
    assert {*names} == evaluate(fit(dataset, quick(k=k)), dataset).values.keys() - {"average_size"}
    assert len({*names}) == len(names)
    assert names[0] == (f"average{k:g}_error" if data is classes else f"recall@{max(1, round(k))}")


def test_noisy_labels_train_and_true_ones_evaluate():
    data = classes()
    noisy = replace(data, targets=(data.targets + 1) % 7, clean_targets=data.targets)
    fitted = fit(noisy, quick())
    wanted = evaluate(fitted, data).values
    assert evaluate(fitted, noisy).values == wanted
    assert evaluate(fitted, replace(noisy, clean_targets=None)).values != wanted


def test_sets_have_the_requested_size_on_the_rows_of_the_threshold():
    data = classes()
    assert evaluate(fit(data, quick(k=2.5)), data, part="val").values["average_size"] == 2.5


def test_a_part_is_evaluated_alone():
    data = classes()
    fitted = fit(data, quick())
    moved = with_value(data, int(data.part_rows("test")[0]), 1e3)
    assert evaluate(fitted, moved, part="train").values == evaluate(fitted, data, part="train").values
    assert len(evaluate(fitted, data, part="train").sizes) == 144


def test_evaluation_leaves_the_model_and_the_random_generator_alone():
    data = classes()
    fitted = fit(data, quick())
    fitted.model.train()
    torch.manual_seed(7)
    first = evaluate(fitted, data)
    assert torch.equal(torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(7)))
    assert fitted.model.training
    assert evaluate(fitted, data).values == first.values


def test_data_that_cannot_be_evaluated_are_refused():
    fitted = fit(classes(), quick())
    for data, part, message in (
        (classes(), "zzz", "must have a part 'zzz'; it has train, val, test."),
        (replace(classes(), split=None), "test", "must have a part 'val'; it has no parts."),
        (with_value(classes(), 200, torch.nan), "test", "must have finite features; those of row 200 are not."),
    ):
        with pytest.raises(InputError, match=f"^`my.csv` {re.escape(message)}$"):
            evaluate(fitted, data, part=part, data_name="my.csv")


@pytest.mark.parametrize("dataset", [classes(), label_sets()], ids=["classes", "sets"])
def test_many_scores_are_evaluated_in_blocks_with_the_same_result(dataset, monkeypatch):
    fitted = fit(dataset, quick(k=2))
    whole = evaluate(fitted, dataset)
    monkeypatch.setattr("shortlist.train.evaluation._MOST_KEPT", 100)
    monkeypatch.setattr("shortlist.train.evaluation._BLOCK_SCORES", 7 * 13)
    found = evaluate(fitted, dataset)
    assert found.values == pytest.approx({name: value for name, value in whole.values.items() if name != "map"})
    assert found.rule.threshold == pytest.approx(float(whole.rule.threshold), rel=1e-5)
    with pytest.raises(InputError, match=r"^the scores must be at most 2\^26 numbers, rows × labels, to be compared"):
        _ = found.logits

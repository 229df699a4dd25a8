"""A run trains on every kind of inputs, stops, returns the model of its best epoch, and refuses what does not fit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from shortlist.audit import audit
from shortlist.data import Dataset, Features, Groups, ImageFiles, SceneGraphWorld, SparseRows
from shortlist.errors import InputError
from shortlist.functional import average_precision
from shortlist.nn import TwoHead
from shortlist.targets import to_index_lists
from shortlist.train import fit
from shortlist.train.evaluation import model_scores
from shortlist.train.inputs import prepare_inputs
from tests.train.small_data import ENCODERS, KINDS, classes, features, label_sets, quick, sparse, with_parts, with_value

LONG = quick(epochs=6, patience=0, learning_rate=0.05)


def test_a_run_stops_after_as_many_epochs_without_improvement_as_its_patience():
    for patience in (1, 3):
        fitted = fit(classes(), replace(LONG, epochs=60, patience=patience))
        assert len(fitted.history) == fitted.best_epoch + 1 + patience < 60


def test_a_run_without_a_folder_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fit(classes(), quick())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["auto", "average_k"])
def test_every_kind_of_inputs_trains_and_scores_are_finite(kind, loss):
    data = KINDS[kind]()
    options = quick(loss=loss, encoder_options=ENCODERS[kind])
    fitted = fit(data, options)
    assert fitted.plan.kind == ("sparse features" if kind == "text" else kind)
    scores = model_scores(fitted.model, prepare_inputs(data, fitted.plan), data.num_labels)
    assert scores.shape == (len(data), 7)
    assert scores.isfinite().all()
    assert scores.std(0).min() > 0
    assert isinstance(fitted.model.head, TwoHead) == (loss == "average_k")
    assert not fitted.model.training


def test_a_network_with_batch_norm_trains_if_one_row_is_left_over():
    data = classes()
    rows = len(data.part_rows("train"))
    options = quick(encoder="mlp", encoder_options={"hidden": [8], "norm": "batch"}, batch_size=rows - 1)
    assert fit(data, options).history


def test_a_run_learns():
    data = classes(1200)
    fitted = fit(data, quick(epochs=8, learning_rate=0.01, k=2))
    counts = data.label_counts("train")
    assert fitted.history[-1]["train_loss"] < 0.8 * fitted.history[0]["train_loss"]
    assert max(entry["top1_accuracy"] for entry in fitted.history) > 1.3 * float(counts.max() / counts.sum())


@pytest.mark.parametrize("k", [0.5, 2.5, 7])
@pytest.mark.parametrize("data", [classes, label_sets], ids=["classes", "sets"])
def test_answers_may_hold_any_number_of_labels_up_to_all(data, k):
    fitted = fit(data(), quick(k=k))
    wanted = f"average{k:g}_accuracy" if data is classes else f"recall@{max(1, round(k))}"
    assert fitted.monitor == wanted
    assert 0 <= fitted.history[0][wanted] <= 1


def test_the_history_holds_what_the_model_scores_on_the_validation_rows():
    data = classes()
    fitted = fit(data, quick(epochs=3, patience=0))
    val = data.part("val")
    best = model_scores(fitted.model, val, 7).topk(2).indices
    hits = (best == val.targets.unsqueeze(-1)).double()
    found = fitted.history[fitted.best_epoch]
    assert found["top1_accuracy"] == pytest.approx(float(hits[:, 0].mean()), abs=1e-12)
    assert found["top2_accuracy"] == pytest.approx(float(hits.sum(-1).mean()), abs=1e-12)
    assert [entry["epoch"] for entry in fitted.history] == [0, 1, 2]


def test_the_mean_average_precision_of_sets_can_be_monitored(monkeypatch):
    data = label_sets()
    fitted = fit(data, replace(LONG, epochs=3, monitor="map"))
    values = [entry["map"] for entry in fitted.history]
    assert fitted.best_epoch == values.index(max(values))
    val = data.part("val")
    scores = model_scores(fitted.model, val, data.num_labels)
    assert max(values) == pytest.approx(float(average_precision(scores, val.targets)), rel=1e-6)
    monkeypatch.setattr("shortlist.train.evaluation._MOST_KEPT", 100)
    with pytest.raises(
        InputError, match=r"^`monitor` map needs at most 100 validation scores, rows × labels; got 48 × 7"
    ):
        fit(data, quick(monitor="map"))


@pytest.mark.parametrize("monitor", ["top1_accuracy", "top2_accuracy"])
def test_the_best_epoch_is_that_of_the_monitor(monitor):
    fitted = fit(classes(), replace(LONG, monitor=monitor))
    values = [entry[monitor] for entry in fitted.history]
    assert fitted.best_epoch == values.index(max(values))
    assert fitted.monitor == monitor


def test_the_recipe_of_the_papers_trains_to_the_end_and_keeps_the_last_epoch():
    data = classes()
    fitted = fit(data, quick(recipe="paper", epochs=8, batch_size=None, learning_rate=0.5))
    values = [entry[fitted.monitor] for entry in fitted.history]
    assert len(values) == 8
    assert values.index(max(values)) < fitted.best_epoch == 7
    val = data.part("val")
    top = float((model_scores(fitted.model, val, 7).argmax(-1) == val.targets).double().mean())
    assert fitted.history[-1]["top1_accuracy"] == pytest.approx(top, abs=1e-12)
    assert (fitted.options.optimizer, fitted.options.batch_size) == ("sgd", 64)


def test_features_are_standardised_by_the_training_rows_even_far_from_zero():
    data = classes()
    far = replace(data, inputs=Features(features(data).double() + 1e6))
    encoder: Any = fit(far, quick(encoder="linear")).model.encoder
    wanted = features(far.part("train"))
    assert torch.allclose(encoder.mean.double(), wanted.mean(0), rtol=1e-7)
    assert torch.allclose(1 / encoder.factor.double(), wanted.std(0, correction=0), rtol=1e-4)


def test_a_class_that_training_never_sees_is_no_fault():
    data = replace(classes(), targets=classes().targets % 3, clean_targets=None)
    assert fit(data, quick(loss="noised_topk_imbalanced")).history[0]["train_loss"] < 100


def test_image_files_train(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for row in range(12):
        image.new("RGB", (9, 8), (20 * row, 0, 90)).save(tmp_path / f"{row}.png")
    files = ImageFiles([tmp_path / f"{row}.png" for row in range(12)])
    data = with_parts(Dataset(files, torch.arange(12) % 3, ("a", "b", "c")), "train", "val")
    assert fit(data, quick(encoder_options={"width": 2})).plan.shape == (3, 8, 9)


@pytest.mark.parametrize("head", ["bottleneck", "dft"])
def test_the_output_layer_can_be_audited(head):
    data = label_sets()
    options = {"bottleneck": {"bottleneck": 2}, "dft": {"k": 2}}[head]
    fitted = fit(data, quick(loss="lml_nll", head=head, head_options=options))
    sets = to_index_lists(data.part("test").targets, 7)
    report = audit(fitted.model.output_layer, sets, radius=False, jobs=1)
    assert len(report.verdicts) == len(sets)
    if head == "dft":
        small = [verdict for verdict, row in zip(report.verdicts, sets, strict=True) if (row >= 0).sum() <= 2]
        assert set(small) == {"argmaxable"}


def split_by(first: int, second: int = 0) -> Dataset:
    """The given number of rows in each of two parts."""
    part = torch.tensor([0] * first + [1] * second)
    return replace(classes(first + second), split=Groups(part, ("train", "val")))


def sparse_with_infinity() -> Dataset:
    values = features(classes()).flatten().clone()
    values[4 * 150 + 2] = torch.inf
    starts, columns = torch.arange(0, 4 * 240 + 1, 4), torch.arange(4).repeat(240)
    return replace(sparse(), inputs=SparseRows(starts, columns, values, 4))


def without_labels(rows: slice, value: float = 0.0) -> Dataset:
    targets = label_sets().targets.clone()
    targets[rows] = value
    return replace(label_sets(), targets=targets)


REFUSED_DATA: dict[str, tuple[Callable[[], Dataset], str]] = {
    "one label": (
        lambda: replace(classes(), targets=torch.zeros(240, dtype=torch.int64), label_names=("a",), label_groups={}),
        "must have at least 2 labels; got 1.",
    ),
    "no parts": (lambda: replace(classes(), split=None), "must have a part 'train'; it has no parts."),
    "no val": (lambda: with_parts(classes(), "train", "test"), "must have a part 'val'; it has test, train."),
    "empty val": (lambda: split_by(240), "must have rows in the part 'val'; it has none."),
    "NaN": (
        lambda: with_value(with_parts(classes(), "val", "train"), 101, torch.nan),
        "must have finite features; those of row 101 are not.",
    ),
    "infinity": (sparse_with_infinity, "must have finite features; those of row 150 are not."),
    "unknown labels": (
        lambda: without_labels(slice(None), -1.0),
        "must have labels in the part 'train'; no row has one.",
    ),
    "no label in val": (
        lambda: without_labels(slice(144, None)),
        "must have labels in the part 'val'; no row has one.",
    ),
    "pairs of objects": (
        lambda: SceneGraphWorld().sample(20, seed=0),
        "must have features, sparse features, images, text as inputs; got .*.",
    ),
}


@pytest.mark.parametrize("name", REFUSED_DATA)
def test_data_that_cannot_be_used_are_refused_by_the_name_of_their_file(tmp_path, name):
    data, message = REFUSED_DATA[name]
    with pytest.raises(InputError, match=f"^`my.csv` {message[:-1]}\\.$"):
        fit(data(), quick(), folder=tmp_path / "run", data_name="my.csv")
    assert not list(tmp_path.rglob("*.ckpt"))


REFUSED_OPTIONS: dict[str, tuple[Callable[[], Dataset], dict[str, Any], str]] = {
    "k above n": (classes, {"k": 8}, r"`k` must lie in \(0, 7\], the number of labels; got 8."),
    "a class loss on sets": (
        label_sets,
        {"loss": "noised_topk"},
        "`loss` 'noised_topk' is for one class per row; the rows have sets.",
    ),
    "loss": (classes, {"loss": "zzz"}, "`loss` must be one of .*; got 'zzz'."),
    "head": (classes, {"head": "zzz"}, "`head` must be one of .*; got 'zzz'."),
    "loss option": (
        classes,
        {"loss_options": {"zzz": 1}},
        "`loss_options` of 'cross_entropy' must be among .*; got 'zzz'.",
    ),
    "head option": (classes, {"head_options": {"zzz": 1}}, "`head_options` of 'linear' must be among .*; got 'zzz'."),
    "reduction": (
        classes,
        {"loss_options": {"reduction": "none"}},
        "`loss_options` must have reduction 'mean' or 'sum'; got 'none'.",
    ),
    "monitor of classes": (
        classes,
        {"monitor": "recall@5"},
        "`monitor` must be one of average2_accuracy, top2_accuracy, top1_accuracy; got 'recall@5'.",
    ),
    "monitor of sets": (label_sets, {"monitor": "zzz"}, "`monitor` must be one of recall@2, .*; got 'zzz'."),
    "augmentation": (
        classes,
        {"augmentation": "crop-flip"},
        "`augmentation` 'crop-flip' needs images; got features.",
    ),
    "objects": (
        classes,
        {"loss_options": {"weight": object()}},
        "`options` must hold plain values, tensors or arrays: got object.",
    ),
    "divergence": (classes, {"learning_rate": 1e30, "epochs": 3}, "the loss is (nan|inf) in epoch 0, batch 1."),
}


@pytest.mark.parametrize("name", REFUSED_OPTIONS)
def test_options_that_do_not_fit_are_refused(tmp_path, name):
    data, options, message = REFUSED_OPTIONS[name]
    with pytest.raises(InputError, match=f"^{message[:-1]}\\.$"):
        fit(data(), quick(**options), folder=tmp_path / "run")
    assert not list(tmp_path.rglob("*.ckpt"))

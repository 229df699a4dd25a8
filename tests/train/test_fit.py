"""A run trains on every kind of inputs, stops, gives the model of its best epoch, and refuses what does not fit."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shortlist.audit import audit
from shortlist.data import Dataset, Features, Groups, ImageFiles, SceneGraphWorld, SparseRows
from shortlist.errors import InputError
from shortlist.nn import TwoHead
from shortlist.targets import to_index_lists
from shortlist.train import FitOptions, fit
from shortlist.train.evaluation import model_scores
from shortlist.train.inputs import prepare_inputs
from tests.train.small_data import KINDS, classes, features, label_sets, quick, sparse, with_parts, with_value

ROOT = Path(__file__).parents[2]
LONG = quick(epochs=6, patience=0, learning_rate=0.05)


def test_a_run_stops_after_as_many_epochs_without_a_better_value_as_it_is_told():
    for patience in (1, 3):
        fitted = fit(classes(), replace(LONG, epochs=60, patience=patience))
        assert len(fitted.history) == fitted.best_epoch + 1 + patience < 60


def test_a_run_without_a_folder_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fit(classes(), quick())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["auto", "average_k"])
def test_every_kind_of_inputs_trains_and_gives_finite_scores(kind, loss):
    data = KINDS[kind]()
    options = quick(loss=loss, encoder_options={"width": 2} if kind == "images" else {"hidden": [8]})
    fitted = fit(data, options)
    assert fitted.plan.kind == ("sparse features" if kind == "text" else kind)
    scores = model_scores(fitted.model, prepare_inputs(data, fitted.plan), data.num_labels)
    assert scores.shape == (len(data), 7)
    assert scores.isfinite().all()
    assert scores.std(0).min() > 0
    assert isinstance(fitted.model.head, TwoHead) == (loss == "average_k")
    assert not fitted.model.training


def test_image_files_train(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for row in range(12):
        image.new("RGB", (9, 8), (20 * row, 0, 90)).save(tmp_path / f"{row}.png")
    files = ImageFiles([tmp_path / f"{row}.png" for row in range(12)])
    data = with_parts(Dataset(files, torch.arange(12) % 3, ("a", "b", "c")), "train", "val")
    fitted = fit(data, quick(encoder_options={"width": 2}))
    assert fitted.plan.shape == (3, 8, 9)
    assert model_scores(fitted.model, data, 3).isfinite().all()


@pytest.mark.parametrize("kind", ["features", "text"])
@pytest.mark.parametrize(
    "options",
    [
        {"head": "bottleneck", "head_options": {"bottleneck": 2}},
        {"head": "dft", "head_options": {"k": 2}},
        {"head": "bottleneck", "head_options": {"bottleneck": 2}, "loss": "lml_nll"},
    ],
    ids=["bottleneck", "dft", "bottleneck with lml"],
)
def test_the_output_layer_can_be_audited(kind, options):
    data = KINDS[kind]()
    data = replace(data, targets=label_sets().targets, clean_targets=None)
    fitted = fit(data, quick(**options))
    sets = to_index_lists(data.part("test").targets, 7)
    report = audit(fitted.model.output_layer, sets, radius=False, jobs=1)
    assert len(report.verdicts) == len(sets)
    if options["head"] == "dft":
        small = [verdict for verdict, row in zip(report.verdicts, sets, strict=True) if (row >= 0).sum() <= 2]
        assert small
        assert set(small) == {"argmaxable"}


def test_the_predicting_one_of_two_heads_can_be_audited():
    fitted = fit(classes(), quick(loss="average_k", head="bottleneck", head_options={"bottleneck": 1}))
    report = audit(fitted.model.output_layer, [[0], [1, 3], [0, 2, 4]], radius=False, jobs=1)
    assert len(report.verdicts) == 3


def test_a_run_learns():
    data = classes(1200)
    fitted = fit(data, quick(epochs=8, learning_rate=0.01, k=2))
    counts = data.label_counts("train")
    assert fitted.history[-1]["train_loss"] < 0.8 * fitted.history[0]["train_loss"]
    assert max(entry["top1_accuracy"] for entry in fitted.history) > 1.3 * float(counts.max() / counts.sum())


@pytest.mark.parametrize("k", [0.5, 1, 2.5, 7])
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


@pytest.mark.parametrize("monitor", ["top1_accuracy", "top2_accuracy"])
def test_the_best_epoch_is_that_of_the_monitor(monitor):
    fitted = fit(classes(), replace(LONG, monitor=monitor))
    values = [entry[monitor] for entry in fitted.history]
    assert fitted.best_epoch == values.index(max(values))
    assert fitted.monitor == monitor


def test_features_are_standardised_by_the_training_rows_even_far_from_zero():
    data = classes()
    far = replace(data, inputs=Features(features(data).double() + 1e6))
    encoder: Any = fit(far, quick(encoder="linear")).model.encoder
    wanted = features(far.part("train"))
    assert torch.allclose(encoder.mean.double(), wanted.mean(0), rtol=1e-7)
    assert torch.allclose(1 / encoder.factor.double(), wanted.std(0, correction=0), rtol=1e-4)


def test_a_feature_that_never_varies_does_no_harm():
    data = classes()
    constant = features(data).clone()
    constant[:, 2] = 5.0
    fitted = fit(replace(data, inputs=Features(constant)), quick())
    assert torch.isfinite(torch.tensor(fitted.history[0]["train_loss"]))


def nameless(data: Dataset) -> Dataset:
    return replace(data, split=Groups(torch.zeros(len(data), dtype=torch.int64), ("train", "val")))


def hollow(value: float) -> Callable[[], Dataset]:
    """Sets of which nothing is present."""
    return lambda: replace(label_sets(), targets=torch.full((240, 7), value))


def sparse_nan() -> Dataset:
    data = sparse()
    rows: Any = data.inputs
    values = features(classes()).flatten().clone()
    values[4 * 150 + 2] = torch.inf
    starts, columns = torch.arange(0, 4 * 240 + 1, 4), torch.arange(4).repeat(240)
    assert isinstance(rows, SparseRows)
    return replace(data, inputs=SparseRows(starts, columns, values, 4))


REFUSED: dict[str, tuple[Callable[[], Dataset], dict[str, Any], str]] = {
    "one class": (
        lambda: replace(classes(), targets=torch.zeros(240, dtype=torch.int64), label_names=("a",), label_groups={}),
        {},
        "`dataset` must have at least 2 labels; got 1.",
    ),
    "no parts": (lambda: replace(classes(), split=None), {}, "`dataset` must have a part 'train'; it has no parts."),
    "no val": (
        lambda: with_parts(classes(), "train", "test"),
        {},
        "`dataset` must have a part 'val'; it has test, train.",
    ),
    "empty val": (lambda: nameless(classes()), {}, "`dataset` must have rows in the part 'val'; it has none."),
    "empty train": (
        lambda: replace(classes(), split=Groups(torch.ones(240, dtype=torch.int64), ("train", "val"))),
        {},
        "`dataset` must have rows in the part 'train'; it has none.",
    ),
    "NaN in train": (
        lambda: with_value(classes(), 17, torch.nan),
        {},
        "`dataset` must have finite features; those of row 17 are not.",
    ),
    "infinity in val": (
        lambda: with_value(classes(), 150, torch.inf),
        {"encoder": "linear"},
        "`dataset` must have finite features; those of row 150 are not.",
    ),
    "NaN in a row of an unordered split": (
        lambda: with_value(with_parts(classes(), "val", "train"), 101, torch.nan),
        {},
        "`dataset` must have finite features; those of row 101 are not.",
    ),
    "infinity in sparse val": (sparse_nan, {}, "`dataset` must have finite features; those of row 150 are not."),
    "no label": (hollow(0.0), {}, "`dataset` must have labels in the part 'train'; no row has one."),
    "unknown labels": (hollow(-1.0), {}, "`dataset` must have labels in the part 'train'; no row has one."),
    "no label in val": (
        lambda: replace(
            label_sets(), targets=torch.where(torch.arange(240).unsqueeze(-1) < 144, label_sets().targets, 0.0)
        ),
        {},
        "`dataset` must have labels in the part 'val'; no row has one.",
    ),
    "pairs of objects": (
        lambda: SceneGraphWorld().sample(20, seed=0),
        {},
        "`dataset` must have features, sparse features, images, text as inputs; got .*.",
    ),
    "k above n": (classes, {"k": 8}, r"`k` must lie in \(0, 7\], the number of labels; got 8."),
    "a class loss on sets": (
        label_sets,
        {"loss": "noised_topk"},
        "`loss` 'noised_topk' is for one class per row; the rows have sets.",
    ),
    "unknown loss": (classes, {"loss": "zzz"}, "`loss` must be one of .*; got 'zzz'."),
    "unknown head": (classes, {"head": "zzz"}, "`head` must be one of .*; got 'zzz'."),
    "unknown encoder": (classes, {"encoder": "zzz"}, "`encoder` must be one of .*; got 'zzz'."),
    "unknown option of the loss": (classes, {"loss_options": {"zzz": 1}}, "`loss` 'cross_entropy': .*'zzz'."),
    "unknown option of the head": (classes, {"head_options": {"zzz": 1}}, "`head` 'linear': .*'zzz'."),
    "unknown option of the encoder": (classes, {"encoder_options": {"zzz": 1}}, "`encoder` 'mlp': .*'zzz'."),
    "no reduction": (
        classes,
        {"loss_options": {"reduction": "none"}},
        "`loss_options` must have reduction 'mean' or 'sum'; got 'none'.",
    ),
    "unknown monitor of classes": (
        classes,
        {"monitor": "recall@5"},
        "`monitor` must be one of average2_accuracy, top2_accuracy, top1_accuracy; got 'recall@5'.",
    ),
    "unknown monitor of sets": (label_sets, {"monitor": "zzz"}, "`monitor` must be one of recall@2, .*; got 'zzz'."),
    "images wanted by the augmentation": (
        classes,
        {"augmentation": "crop-flip"},
        "`augmentation` 'crop-flip' needs images; got features.",
    ),
    "images wanted": (classes, {"encoder": "cnn"}, "`encoder` 'cnn' needs images; got features."),
    "dense features wanted": (
        sparse,
        {"encoder": "linear"},
        "`encoder` 'linear' needs dense features; use .*.",
    ),
    "sparse features wanted": (classes, {"encoder": "bag"}, "`encoder` 'bag' needs sparse features or text; got .*."),
    "options that are objects": (
        classes,
        {"loss_options": {"weight": object()}},
        "`options` must hold plain values, tensors or arrays: got object.",
    ),
    "steps without end": (
        classes,
        {"learning_rate": 1e30, "epochs": 3},
        "the loss is (nan|inf) in epoch 0, batch 1.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_one_sentence(tmp_path, name):
    data, options, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=f"^{sentence[:-1]}\\.$"):
        fit(data(), quick(**options), folder=tmp_path / "run")
    assert not list(tmp_path.rglob("*.ckpt"))


def test_labels_that_are_missing_are_refused_with_their_row():
    with pytest.raises(ValueError, match=r"^`targets` row 3: label -1 must lie in \[0, 7\)\.$"):
        replace(classes(), targets=classes().targets.index_fill(0, torch.tensor([3]), -1))


def test_a_class_that_training_never_sees_is_no_fault():
    data = replace(classes(), targets=classes().targets % 3, clean_targets=None)
    assert fit(data, quick(loss="noised_topk_imbalanced")).history[0]["train_loss"] < 100


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"epochs": 0}, InputError, "`epochs` must be at least 1; got 0."),
        ({"epochs": 1.5}, InputError, "`epochs` must be an integer; got 1.5."),
        ({"batch_size": 0}, InputError, "`batch_size` must be at least 1; got 0."),
        ({"batch_size": True}, InputError, "`batch_size` must be an integer; got True."),
        ({"processes": 0}, InputError, "`processes` must be at least 1; got 0."),
        ({"words": 0}, InputError, "`words` must be at least 1; got 0."),
        ({"k": 0}, InputError, "`k` must be above 0 and finite; got 0."),
        ({"k": float("nan")}, InputError, "`k` must be above 0 and finite; got nan."),
        ({"learning_rate": -1.0}, InputError, "`learning_rate` must be above 0 and finite; got -1.0."),
        ({"learning_rate": float("inf")}, InputError, "`learning_rate` must be above 0 and finite; got inf."),
        ({"weight_decay": float("nan")}, InputError, "`weight_decay` must be at least 0 and finite; got nan."),
        ({"patience": -1}, InputError, "`patience` must be at least 0 and finite; got -1."),
        ({"seed": -1}, InputError, "`seed` must be at least 0 and finite; got -1."),
        ({"learning_rate": "fast"}, InputError, "`learning_rate` must be a number; got 'fast'."),
        ({"k": True}, InputError, "`k` must be a number; got True."),
        ({"loss": ["lml_nll"]}, InputError, "`loss` must be text; got ['lml_nll']."),
        ({"loss_options": 3}, InputError, "`loss_options` must map names to values; got 3."),
        ({"optimizer": "zzz"}, InputError, "`optimizer` must be one of adamw, sgd; got 'zzz'."),
        ({"precision": "8"}, InputError, "`precision` must be one of 32-true, bf16-mixed, 16-mixed; got '8'."),
        ({"milestones": 0.5}, InputError, "`milestones` must be a list of numbers; got 0.5."),
        ({"milestones": "0.5"}, InputError, "`milestones` must be a list of numbers; got '0.5'."),
        ({"milestones": [True]}, InputError, "`milestones` must be a list of numbers; got True in it."),
        ({"milestones": [0.5, 1]}, InputError, "`milestones` must lie in (0, 1) and be ascending; got [0.5, 1]."),
        ({"milestones": (0.0,)}, InputError, "`milestones` must lie in (0, 1) and be ascending; got [0.0]."),
        ({"milestones": [0.5, 0.5]}, InputError, "`milestones` must lie in (0, 1) and be ascending; got [0.5, 0.5]."),
        ({"milestones": [float("nan")]}, InputError, "`milestones` must lie in (0, 1) and be ascending; got [nan]."),
        ({"augmentation": "zzz"}, InputError, "`augmentation` must be crop-flip or empty; got 'zzz'."),
        (
            {"augmentation": "crop-flip", "frozen": "efficientnet-lite0"},
            ValueError,
            "`augmentation` must be empty with `frozen` 'efficientnet-lite0', whose features are computed once; "
            "got 'crop-flip'.",
        ),
    ],
)
def test_options_out_of_range_are_one_sentence(options, error, sentence):
    with pytest.raises(error, match=f"^{re.escape(sentence)}$"):
        FitOptions(**options)


def test_half_precision_trains():
    fitted = fit(classes(), quick(precision="bf16-mixed"))
    assert all(parameter.dtype == torch.float32 for parameter in fitted.model.parameters())
    assert torch.isfinite(torch.tensor(fitted.history[0]["train_loss"]))


def test_weights_of_classes_may_be_a_tensor_and_count():
    heavy = fit(classes(), quick(loss_options={"weight": torch.tensor([9.0, 1, 1, 1, 1, 1, 1])}))
    assert heavy.history != fit(classes(), quick()).history
    assert heavy.options.to_json()["loss_options"] == {"weight": [9, 1, 1, 1, 1, 1, 1]}

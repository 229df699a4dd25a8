"""Frozen features are computed once, cached, and part of the plan, so a saved model takes raw images and text."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from shortlist.cli import main
from shortlist.data import frozen_features
from shortlist.data.encoders import pretrained
from shortlist.errors import InputError
from shortlist.train import evaluate, export_onnx, fit, load_model, save_model
from shortlist.train.checkpoints import run_fingerprint
from shortlist.train.evaluation import model_scores
from shortlist.train.fit import make_run
from shortlist.train.inputs import PlannedEncoder, prepare_inputs
from tests.train.small_data import KINDS, classes, images, quick, texts


class Channels:
    """Means and deviations of the channels of images; counts the rows that it has seen."""

    takes, dim = "images", 6
    rows: ClassVar[int] = 0

    def __init__(self, *, gain: float = 1.0) -> None:
        if gain <= 0:
            raise ValueError(f"`gain` must be above 0; got {gain}.")
        self.gain, self.name = gain, f"channels, gain {gain:g}"
        torch.rand(3)  # as networks draw parameters before they load them

    def __call__(self, batch: Tensor) -> Tensor:
        type(self).rows += len(batch)
        pixels = batch.double().flatten(2) / 255
        return self.gain * torch.cat([pixels.mean(-1), pixels.std(-1)], -1)


class Lengths:
    """The number in the first word of a text, and its length."""

    takes, dim, name = "text", 2, "lengths"

    def __call__(self, batch: list[str]) -> Tensor:
        return torch.tensor([[float(text[4]), float(len(text))] for text in batch])


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    """Two encoders and an empty cache."""
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(pretrained.FROZEN, "channels", Channels)
    monkeypatch.setitem(pretrained.FROZEN, "lengths", Lengths)
    monkeypatch.setattr(Channels, "rows", 0)
    return tmp_path / "cache"


DATA = {"channels": images, "lengths": texts}


@pytest.mark.parametrize("frozen", DATA)
@pytest.mark.parametrize("encoder", ["auto", "linear"])
def test_a_model_on_frozen_features_takes_raw_inputs(tmp_path, frozen, encoder):
    data = DATA[frozen]()
    fitted = fit(data, quick(frozen=frozen, encoder=encoder, epochs=8, learning_rate=0.05))
    assert (fitted.plan.kind, fitted.plan.words) == ("features", None)
    assert fitted.history[-1]["train_loss"] < 0.9 * fitted.history[0]["train_loss"]  # both tell the class
    found = evaluate(fitted, data)
    saved = load_model(save_model(fitted, tmp_path / "model", rule=found.rule))
    assert saved.plan == fitted.plan
    wanted = model_scores(fitted.model, prepare_inputs(data, fitted.plan), 7)
    assert torch.allclose(saved.scores(data), wanted, atol=1e-5)
    assert torch.allclose(saved.scores(data.subset([5, 3])), wanted[[5, 3]], atol=1e-5)
    assert saved.scores(data.subset([])).shape == (0, 7)
    assert torch.allclose(saved.scores(prepare_inputs(data, fitted.plan)), wanted, atol=1e-5)


def test_a_run_that_died_while_features_were_computed_continues_with_them(monkeypatch):
    data, call = images(), Channels.__call__

    def dying(self: Channels, batch: Tensor) -> Tensor:
        if Channels.rows >= 100:
            raise KeyboardInterrupt
        return call(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Channels, "__call__", dying)
        with pytest.raises(KeyboardInterrupt):
            fit(data, quick(frozen="channels"))
    done = Channels.rows
    assert 100 <= done < len(data)
    again = fit(data, quick(frozen="channels"))
    assert Channels.rows == len(data)
    assert again.history == fit(data, quick(frozen="channels")).history


def test_the_encoder_draws_nothing_that_the_model_would_have_drawn(monkeypatch):
    data = images()
    wanted = fit(
        replace(data, inputs=prepare_inputs(data, make_run(data, quick(frozen="channels"))[1]).inputs), quick()
    )
    assert fit(data, quick(frozen="channels")).history == wanted.history


def test_the_encoder_is_built_only_when_there_is_something_to_encode(monkeypatch):
    data = images()
    fitted = fit(data, quick(frozen="channels"))
    monkeypatch.delitem(pretrained.FROZEN, "channels")
    evaluate(fitted, data)
    with pytest.raises(ValueError, match=r"^`frozen` must be one of .*; got 'channels'\.$"):
        PlannedEncoder(fitted.plan)(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "text": ("text", {"frozen": "channels"}, "`frozen` 'channels' takes images; the dataset has text."),
    "images": ("images", {"frozen": "lengths"}, "`frozen` 'lengths' takes text; the dataset has images."),
    "features": ("features", {"frozen": "channels"}, "`frozen` 'channels' takes images; the dataset has features."),
    "unknown": ("images", {"frozen": "zzz"}, "`frozen` must be one of .*, torchvision:NAME or timm:NAME; got 'zzz'."),
    "option": (
        "images",
        {"frozen": "channels", "frozen_options": {"zzz": 1}},
        "`frozen` 'channels': .* unexpected keyword argument 'zzz'.",
    ),
    "value": ("images", {"frozen": "channels", "frozen_options": {"gain": 0}}, "`gain` must be above 0; got 0."),
    "encoder": ("images", {"frozen": "channels", "encoder": "cnn"}, "`encoder` 'cnn' needs images; got features."),
    "no weights": (
        "images",
        {"frozen": "torchvision:resnet18"},
        "`frozen` 'torchvision:resnet18' needs the option `weights`: a file, or DEFAULT, which is downloaded .*.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_encoders_and_options_that_do_not_fit_are_refused(tmp_path, name):
    kind, options, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=f"^{sentence[:-1]}\\.$"):
        fit(KINDS[kind](), quick(**options), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_saved_model_refuses_inputs_of_another_kind(tmp_path):
    saved = load_model(save_model(fit(images(), quick(frozen="channels")), tmp_path))
    with pytest.raises(ValueError, match=r"^`frozen` 'channels' takes images; the dataset has text\.$"):
        saved.scores(texts())
    with pytest.raises(ValueError, match=r"^`dataset` must have features of shape \(6,\); got features \(4,\)\.$"):
        saved.scores(classes())


def test_only_the_trained_part_is_exported_and_only_when_asked_for(tmp_path, monkeypatch):
    saved = load_model(save_model(fit(images(), quick(frozen="channels", encoder="linear")), tmp_path / "model"))
    sentence = (
        "^`from_features` must be True for a model on features of a frozen encoder, .*; the frozen encoder of `saved` "
        r"is 'channels'\.$"
    )
    with pytest.raises(ValueError, match=sentence):
        export_onnx(saved, tmp_path / "model.onnx")
    plain = load_model(save_model(fit(classes(), quick()), tmp_path / "plain"))
    with pytest.raises(ValueError, match=r"^`from_features` must be .*; the frozen encoder of `saved` is none\.$"):
        export_onnx(plain, tmp_path / "model.onnx", from_features=True)
    onnx, shapes = pytest.importorskip("onnx"), []

    def export(model, arguments, path, **options) -> None:
        shapes.append(tuple(arguments[0].shape))
        onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], [])), path)

    monkeypatch.setattr("torch.onnx.export", export)
    export_onnx(saved, tmp_path / "model.onnx", from_features=True)
    assert shapes == [(2, 6)]


def test_the_command_line_takes_it(capsys, tmp_path):
    model = str(tmp_path / "model")
    options = ["--epochs", "1", "--k", "2", "--tune", "2", "--json", "--frozen", "channels"]
    options += ["--frozen_options", "{gain: 2}"]
    Channels.dim = 2  # Digits are gray.
    try:
        assert main(["fit", "digits", *options, "--encoder", "linear", "--output", model]) == 0
        assert json.loads(capsys.readouterr().out)["epochs"] == 1
        sets = tmp_path / "sets.jsonl"
        assert main(["predict", model, "--data", "digits", "--part", "test", "--output", str(sets)]) == 0
    finally:
        Channels.dim = 6
    assert len(sets.read_text().splitlines()) > 300


def test_features_are_computed_once_and_cached_except_for_new_rows(cache, tmp_path):
    data = images()
    fitted = fit(data, quick(frozen="channels"))
    assert Channels.rows == len(data)
    evaluate(fitted, data)
    fit(data, quick(frozen="channels", loss="average_k", seed=3))
    assert Channels.rows == len(data)
    (file,) = cache.rglob("*.npy")
    load_model(save_model(fitted, tmp_path / "model")).scores(data.subset([1, 2, 3]))
    assert list(cache.rglob("*.npy")) == [file]


def test_options_reach_the_encoder_and_count_in_the_fingerprint():
    data = images()
    loud = quick(frozen="channels", frozen_options={"gain": 7.0})
    _, plan = make_run(data, loud)
    wanted = frozen_features(data, Channels(gain=7.0)).inputs.batch(torch.arange(4))
    assert torch.equal(prepare_inputs(data, plan).inputs.batch(torch.arange(4)), wanted)
    assert run_fingerprint(data, loud) != run_fingerprint(data, quick(frozen="channels"))


def test_an_encoder_that_has_changed_since_training_is_refused(monkeypatch, tmp_path):
    data = images()
    fitted = fit(data, quick(frozen="channels"), folder=tmp_path / "run")
    saved = load_model(save_model(fitted, tmp_path / "model"))

    class Newer(Channels):
        def __init__(self) -> None:
            super().__init__()
            self.name = "channels, version 2"

    monkeypatch.setitem(pretrained.FROZEN, "channels", Newer)
    message = "`frozen` 'channels' must be 'channels, gain 1' as in training; got 'channels, version 2'."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        saved.scores(data)
    with pytest.raises(InputError, match=r"^`.*run` holds another run \(frozen was .*\); choose another folder\.$"):
        fit(data, quick(frozen="channels"), folder=tmp_path / "run")

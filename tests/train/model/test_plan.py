"""Plans of plain values rebuild the same model, and a model is an encoder and a head."""

import json
import re
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from shortlist.data import SparseRows
from shortlist.data.encoders.word_features import HashedWords
from shortlist.factory import BOTTLENECK_WIDTH, HEADS
from shortlist.nn import BottleneckHead, CosineHead, DFTHead, TwoHead
from shortlist.targets import to_index_lists
from shortlist.train import (
    MLP,
    Bag,
    DenseNet,
    FitOptions,
    ModelPlan,
    Plain,
    SetModel,
    SmallCNN,
    Standardised,
    build_model,
)
from shortlist.train.model.plan import ENCODERS, make_plan
from tests.train.small_data import label_sets

SHAPES = {"features": (4,), "sparse features": (6,), "images": (3, 8, 8)}


FITS = {
    "linear": ("features", "sparse features", "images"),
    "mlp": ("features", "sparse features", "images"),
    "bag": ("sparse features",),
    "cnn": ("images",),
    "densenet": ("images",),
}


SMALL = {"mlp": {"hidden": [5]}, "bag": {"dim": 5}, "cnn": {"width": 2}, "densenet": {"depth": 7, "growth": 2}}


def plan_of(kind: str = "features", **options: Any) -> ModelPlan:
    return ModelPlan(kind, SHAPES[kind], **{"num_labels": 7, "loss": "cross_entropy", **options})


def inputs_of(kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if kind == "images":
        return torch.randint(256, (3, *SHAPES[kind]), dtype=torch.uint8, generator=generator)
    if kind == "features":
        return torch.randn(3, 4, generator=generator)
    rows = SparseRows(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 5, 1]), torch.tensor([1.0, 0.5, 2.0]), 6)
    return rows.batch(torch.arange(3))


@pytest.mark.parametrize(("encoder", "kind"), [(encoder, kind) for encoder, kinds in FITS.items() for kind in kinds])
def test_an_encoder_takes_the_inputs_that_it_is_for(encoder, kind):
    torch.manual_seed(0)
    model = build_model(plan_of(kind, encoder=encoder, encoder_options=SMALL.get(encoder, {})))
    logits = model.eval()(inputs_of(kind))
    assert logits.shape == (3, 7)
    assert logits.isfinite().all()


def test_every_encoder_is_tried_here():
    assert FITS.keys() == ENCODERS.keys()


@pytest.mark.parametrize(
    ("encoder", "kind"), [(encoder, kind) for encoder in FITS for kind in SHAPES if kind not in FITS[encoder]]
)
def test_an_encoder_refuses_inputs_of_another_kind(encoder, kind):
    with pytest.raises(ValueError, match=rf"^`encoder` '{encoder}' needs .*\.$"):
        build_model(plan_of(kind, encoder=encoder))


@pytest.mark.parametrize(
    ("kind", "below"), [("features", Standardised), ("sparse features", Bag), ("images", SmallCNN)], ids=list(SHAPES)
)
def test_the_encoder_goes_by_the_inputs_when_none_is_named(kind, below):
    encoder: Any = build_model(plan_of(kind)).encoder
    assert isinstance(encoder.below if isinstance(encoder, MLP) else encoder, below)


def test_options_reach_the_parts():
    model: Any = build_model(
        plan_of(encoder_options={"hidden": (5, 3), "dropout": 0.25}, head="bottleneck", head_options={"bottleneck": 2})
    )
    assert model.encoder.out_features == 3
    assert [layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)] == [0.25, 0.25]
    assert isinstance(model.head, BottleneckHead)
    images: Any = build_model(plan_of("images", encoder="densenet", encoder_options=SMALL["densenet"]))
    assert isinstance(images.encoder, DenseNet)
    assert images.encoder.out_features == 16 + 3 * 2


@pytest.mark.parametrize(("loss", "kind"), [("ldam", CosineHead), ("average_k", TwoHead), ("bce", nn.Linear)])
def test_the_head_goes_by_the_loss_when_none_is_named(loss, kind):
    assert isinstance(build_model(plan_of(loss=loss)).head, kind)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("loss", ["bce", "average_k"])
def test_a_plan_becomes_json_and_back_and_builds_the_same(head, loss):
    options = {"bottleneck": {"bottleneck": 2}, "dft": {"k": 2}}.get(head, {})
    plan = plan_of(
        loss=loss, head=head, head_options=options, encoder_options={"hidden": [5]}, words=HashedWords(ngrams=2)
    )
    again = ModelPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    built = []
    for one in (plan, again):
        torch.manual_seed(3)
        built.append(build_model(one).eval())
    assert torch.equal(built[0](inputs_of("features")), built[1](inputs_of("features")))


@pytest.mark.parametrize(
    ("kind", "encoder", "options", "sentence"),
    [
        ("features", "mlp", {"hidden": [0]}, "`hidden` must be an integer of at least 1; got 0."),
        ("features", "mlp", {"hidden": [2.5]}, "`hidden` must be an integer of at least 1; got 2.5."),
        ("features", "mlp", {"hidden": 5}, "`hidden` must be a list of sizes, .*; got 5."),
        ("sparse features", "mlp", {"hidden": []}, "`hidden` must be a list of sizes, .*; got []."),
        ("features", "mlp", {"dropout": 1.0}, "`dropout` must lie in [0, 1); got 1.0."),
        ("sparse features", "bag", {"dim": 0}, "`dim` must be an integer of at least 1; got 0."),
        ("images", "densenet", {"growth": 0}, "`growth` must be an integer of at least 1; got 0."),
        ("images", "densenet", {"depth": 8}, "`depth` must be 3 m + 4 with an integer m >= 1; got 8."),
        ("features", "mlp", {"zzz": 1}, "`encoder` 'mlp': _mlp() got an unexpected keyword argument 'zzz'."),
        ("features", "zzz", {}, "`encoder` must be one of .*; got 'zzz'."),
    ],
)
def test_options_that_make_no_encoder_are_one_sentence(kind, encoder, options, sentence):
    pattern = re.escape(sentence).replace(r"\.\*", ".*")
    with pytest.raises(ValueError, match=f"^{pattern}$"):
        build_model(plan_of(kind, encoder=encoder, encoder_options=options))


class Net(nn.Module):
    """A network of another library."""

    num_features = 3

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))


def test_a_model_whose_parameters_are_loaded_does_not_ask_for_weights(monkeypatch):
    asked = []
    module: Any = ModuleType("timm")
    module.create_model = lambda name, num_classes, pretrained: asked.append(pretrained) or Net()
    monkeypatch.setitem(sys.modules, "timm", module)
    plan = plan_of("images", encoder="timm:net", encoder_options={"weights": "DEFAULT"})
    build_model(plan)
    build_model(plan, with_weights=False)
    assert asked == [True, False]
    for kind, shape, reason in (
        ("features", (4,), "needs images; got features"),
        ("images", (4, 8, 8), r"needs images of 1 or 3 channels; got shape \(4, 8, 8\)"),
    ):
        with pytest.raises(ValueError, match=rf"^`encoder` 'timm:net' {reason}\.$"):
            build_model(ModelPlan(kind, shape, 7, "bce", encoder="timm:net"))


MODELS = {
    "linear": lambda: torch.nn.Linear(4, 9),
    "cosine": lambda: CosineHead(4, 9),
    "bottleneck": lambda: BottleneckHead(4, 9, 2),
    "dft": lambda: DFTHead(4, 9, 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_head_returns_one_output_and_two_return_two_of_which_the_first_predicts(name):
    torch.manual_seed(0)
    inputs = inputs_of("features")
    model = SetModel(Plain((4,)), MODELS[name]())
    (logits,) = model.outputs(inputs.half())
    assert (logits.shape, logits.dtype) == ((3, 9), torch.float32)
    assert torch.equal(logits, model(inputs.half()))
    assert model.output_layer is model.head
    model = SetModel(Plain((4,)), TwoHead(MODELS[name](), MODELS[name]()))
    logits, proposals = model.outputs(inputs)
    assert torch.equal(logits, model(inputs))
    assert not torch.equal(logits, proposals)
    assert model.output_layer is model.head.prediction
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_prediction_does_not_run_the_proposing_head():
    class Refuses(torch.nn.Module):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    assert SetModel(Plain((4,)), TwoHead(MODELS["linear"](), Refuses()))(inputs_of("features")).shape == (3, 9)


def test_a_dft_head_is_by_default_as_large_as_the_largest_set_and_as_wide_as_a_bottleneck():
    data = label_sets()
    largest = int((to_index_lists(data.part("train").targets, 7) >= 0).sum(1).max())
    chosen = make_plan(data, FitOptions(head="dft"), loss="bce").head_options
    assert chosen == {"k": min(largest, 3), "slack": BOTTLENECK_WIDTH}
    given = make_plan(data, FitOptions(head="dft", head_options={"k": 1, "slack": 2}), loss="bce").head_options
    assert given == {"k": 1, "slack": 2}


def test_few_rows_get_one_hidden_layer_that_drops_half_of_its_units(monkeypatch):
    data = label_sets()
    few = make_plan(data, FitOptions(), loss="bce")
    assert few.encoder_options == {"hidden": [512], "dropout": 0.5}
    given = make_plan(data, FitOptions(encoder_options={"dropout": 0.1}), loss="bce")
    assert given.encoder_options == {"hidden": [512], "dropout": 0.1}
    assert make_plan(data, FitOptions(encoder="linear"), loss="bce").encoder_options == {}
    monkeypatch.setattr("shortlist.train.model.plan._FEW_ROWS", len(data.part_rows("train")))
    assert make_plan(data, FitOptions(), loss="bce").encoder_options == {}

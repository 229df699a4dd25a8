"""A model described by names and numbers, so that it can be saved as JSON and built again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import nn

from shortlist.data.encoders.backbones import LIBRARIES, check_images, load_backbone
from shortlist.recipes import current_name, make_head
from shortlist.train.densenet import DenseNet
from shortlist.train.encoders import MLP, Bag, Plain, SmallCNN, Standardised
from shortlist.train.model import SetModel


@dataclass(frozen=True)
class ModelPlan:
    """What a model is made of.

    Args:
        kind: of the inputs: ``features``, ``sparse features`` or ``images``; texts become sparse features.
        shape: of one row.
        num_labels: n.
        loss: the name of the loss that trains it; some want a head of their own.
        encoder: one of `ENCODERS`, ``auto``, or ``torchvision:NAME`` or ``timm:NAME``.
        head: one of ``shortlist.recipes.HEADS``, or ``auto``.
        encoder_options, head_options: what to give them beyond the sizes.
        words: how texts become sparse features: ``num_features`` and ``ngrams`` of `shortlist.data.hashed_words`.
        frozen: how images or texts become features: ``encoder`` and ``options`` of `shortlist.data.frozen_encoder`, the
            kind that it ``takes``, and the ``name`` by which it tells its features from others.

    Example:
        >>> plan = ModelPlan("features", (8,), 10, loss="cross_entropy", encoder_options={"hidden": [16]})
        >>> build_model(plan)(torch.zeros(2, 8)).shape
        torch.Size([2, 10])
    """

    kind: str
    shape: tuple[int, ...]
    num_labels: int
    loss: str
    encoder: str = "auto"
    head: str = "auto"
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    head_options: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, int] | None = None
    frozen: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ModelPlan:
        """The plan of plain values; TypeError for keys that it does not have."""
        plan = cls(**{**content, "shape": tuple(content["shape"])})
        return replace(plan, loss=current_name(plan.loss, warn=False))


def build_model(plan: ModelPlan, *, with_weights: bool = True) -> SetModel:
    """The model of a plan, with parameters drawn anew.

    Args:
        plan: what it is made of.
        with_weights: whether an encoder of another library starts at the ``weights`` that its options name; False where
            parameters are loaded afterwards, so that nothing has to be downloaded for them.
    """
    if not with_weights and _is_backbone(plan.encoder):
        options = {name: value for name, value in plan.encoder_options.items() if name != "weights"}
        plan = replace(plan, encoder_options=options)
    encoder = _encoder(plan)
    size = encoder.out_features
    if not isinstance(size, int):
        raise TypeError(f"`encoder` {plan.encoder!r} must say its `out_features`; got {type(size).__name__}.")
    return SetModel(
        encoder, make_head(plan.head, size, plan.num_labels, loss=plan.loss, options=dict(plan.head_options))
    )


def _linear(plan: ModelPlan) -> nn.Module:
    if plan.kind == "sparse features":
        raise ValueError("`encoder` 'linear' needs dense features; for sparse ones there is 'bag'.")
    return _dense(plan)


def _mlp(plan: ModelPlan, *, hidden: list[int] | tuple[int, ...] = (256, 256), dropout: float = 0.1) -> nn.Module:
    if not isinstance(hidden, list | tuple) or (plan.kind == "sparse features" and not hidden):
        raise ValueError(f"`hidden` must be a list of sizes, with at least one for sparse features; got {hidden!r}.")
    for size in hidden:
        _check_size("hidden", size)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ValueError(f"`dropout` must lie in [0, 1); got {dropout!r}.")
    below = Bag(plan.shape[0], hidden[0]) if plan.kind == "sparse features" else _dense(plan)
    return MLP(below, hidden, dropout=dropout)  # pyright: ignore[reportArgumentType]


def _bag(plan: ModelPlan, *, dim: int = 256) -> nn.Module:
    if plan.kind != "sparse features":
        raise ValueError(f"`encoder` 'bag' needs sparse features or texts; got {plan.kind}.")
    _check_size("dim", dim)
    return Bag(plan.shape[0], dim)


def _cnn(plan: ModelPlan, *, width: int = 32) -> nn.Module:
    _check_size("width", width)
    return SmallCNN(_channels(plan), width=width)


def _densenet(plan: ModelPlan, *, depth: int = 40, growth: int = 40) -> nn.Module:
    _check_size("depth", depth)
    _check_size("growth", growth)
    return DenseNet(_channels(plan), depth=depth, growth=growth)


ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    "bag": _bag,
    "cnn": _cnn,
    "densenet": _densenet,
}


def _encoder(plan: ModelPlan) -> nn.Module:
    name = plan.encoder
    if name == "auto":
        name = {"images": "cnn"}.get(plan.kind, "mlp")
    if _is_backbone(name):
        return _backbone(plan)
    if name not in ENCODERS:
        known = ", ".join(ENCODERS)
        raise ValueError(f"`encoder` must be one of {known}, torchvision:NAME or timm:NAME; got {name!r}.")
    try:
        return ENCODERS[name](plan, **plan.encoder_options)
    except TypeError as error:
        raise ValueError(f"`encoder` {name!r}: {error}.") from error


def _dense(plan: ModelPlan) -> nn.Module:
    size = Plain(plan.shape).out_features
    return Standardised(torch.zeros(size), torch.ones(size))


def _check_size(name: str, size: Any) -> None:
    if type(size) is not int or size < 1:
        raise ValueError(f"`{name}` must be a whole number, at least 1; got {size!r}.")


def _channels(plan: ModelPlan) -> int:
    if plan.kind != "images":
        raise ValueError(f"`encoder` {plan.encoder!r} needs images; got {plan.kind}.")
    return plan.shape[0]


def _is_backbone(encoder: str) -> bool:
    return encoder.partition(":")[0] in LIBRARIES and ":" in encoder


def _backbone(plan: ModelPlan) -> nn.Module:
    _channels(plan)
    backbone = load_backbone(plan.encoder, argument="encoder", **plan.encoder_options)
    check_images(backbone, plan.shape, name=plan.encoder, argument="encoder")
    return backbone

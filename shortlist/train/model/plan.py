"""A model described by names and numbers, so that it can be saved as JSON and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.data import Dataset, Texts, frozen_encoder
from shortlist.data.encoders.backbones import LIBRARIES, check_images, load_backbone
from shortlist.data.encoders.hugging_face import PREFIX, TextTransformer, Tokens, load_network, read_config
from shortlist.data.encoders.word_features import HashedWords, TfidfWords, word_features
from shortlist.data.inputs import TextEncoder
from shortlist.data.target_rows import label_pairs
from shortlist.errors import InputError
from shortlist.factory import BOTTLENECK_WIDTH, current_name, loss_class, make_head
from shortlist.fit_options import FitOptions
from shortlist.formatting import format_count
from shortlist.nn import TwoHead
from shortlist.train.model.encoders import MLP, DenseNet, Norm, Plain, SmallCNN, Standardised
from shortlist.train.model.sparse_layers import Bag, SparseLinear, UnitRows

_HASHED_COLUMNS = 2**16
_TFIDF: dict[str, Any] = {"num_features": 100_000, "ngrams": 2}
# In short texts each word counts, and so does what it shares with others; in long ones words say enough, and their
# characters would multiply the cost.
_CHARACTERS, _SHORT_TEXT = (3, 5), 30
# Hidden units on sparse features: thousands of labels do not fit into a narrow layer.
_NARROW, _WIDE, MANY_LABELS = 256, 768, 2000
# Few rows are memorized by two hidden layers: one that drops half of its units raises recall by two points (the average
# of yeast, scene, emotions, enron and medical, held-out rows of train).
_FEW_ROWS, _FEW_ROWS_MLP = 4000, {"hidden": [512], "dropout": 0.5}


class SetModel(nn.Module):
    """An encoder followed by a head.

    Args:
        encoder: maps a batch of inputs to features ``(B, out_features)``.
        head: maps features to logits ``(B, n)``; a `TwoHead` returns two of them.

    Example:
        >>> import torch
        >>> from shortlist.train import Plain, SetModel
        >>> model = SetModel(Plain((4,)), TwoHead.linear(4, 10))
        >>> model(torch.zeros(2, 4)).shape, len(model.outputs(torch.zeros(2, 4)))
        (torch.Size([2, 10]), 2)
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, inputs: Any) -> Tensor:
        """Return the logits for prediction."""
        features = self.encoder(inputs)
        return self.output_layer(features)

    def outputs(self, inputs: Any) -> tuple[Tensor, ...]:
        """Return all outputs of the head, in the order in which losses take them."""
        outputs = self.head(self.encoder(inputs))
        return outputs if isinstance(outputs, tuple) else (outputs,)

    @property
    def output_layer(self) -> nn.Module:
        """The layer that computes the logits for prediction, which is what an audit examines."""
        return self.head.prediction if isinstance(self.head, TwoHead) else self.head


@dataclass(frozen=True)
class ModelPlan:
    """The parts of a model.

    Args:
        kind: of the inputs: ``features``, ``sparse features``, ``images`` or ``tokens``; text becomes sparse features,
            or the tokens of a transformer.
        shape: of one row.
        num_labels: n.
        loss: the name of the loss that trains it; some need a head of their own.
        encoder: one of `ENCODERS`, ``auto``, ``torchvision:NAME``, ``timm:NAME`` or ``hf:NAME``.
        head: one of ``shortlist.factory.HEADS``, or ``auto``.
        encoder_options, head_options: keyword arguments besides the sizes.
        words: how text becomes sparse features or tokens.
        frozen: how images or text become features: ``encoder`` and ``options`` of `shortlist.data.frozen_encoder`, the
            kind of inputs that it ``takes``, and its ``name``, which identifies its features.

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
    words: TextEncoder | None = None
    frozen: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        words = None if self.words is None else self.words.to_json()
        return {**asdict(replace(self, words=None)), "shape": list(self.shape), "words": words}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ModelPlan:
        """Rebuild a plan; raise TypeError for unknown keys."""
        words = content.get("words")
        words = None if words is None else word_features(words)
        plan = cls(**{**content, "shape": tuple(content["shape"]), "words": words})
        return replace(plan, loss=current_name(plan.loss, warn=False))


def make_plan(dataset: Dataset, options: FitOptions, *, loss: str, data_name: str = "dataset") -> ModelPlan:
    """Plan the model for a dataset: on its inputs, on the words of its text, or on frozen features.

    Args:
        dataset, options: what the model is for.
        loss: the name of the loss.
        data_name: what messages call the dataset, such as its file.

    Raises:
        InputError: if the frozen encoder takes other inputs.
    """
    kind, words, frozen = dataset.inputs.kind, None, None
    chosen, chosen_options = options.encoder, dict(options.encoder_options)
    if options.frozen:
        encoder = frozen_encoder(options.frozen, options.frozen_options)
        if encoder.takes != kind:
            raise InputError(f"`frozen` {options.frozen!r} takes {encoder.takes}; the dataset has {kind}.")
        frozen = {"encoder": options.frozen, "options": dict(options.frozen_options)}
        frozen |= {"takes": encoder.takes, "name": encoder.name}
        kind, shape = "features", (encoder.dim,)
    elif kind == "text" and chosen.startswith(PREFIX):
        tokens = {name: chosen_options.pop(name) for name in ("max_tokens",) if name in chosen_options}
        words = Tokens.of(chosen, **tokens)
        kind, shape = "tokens", (words.width,)
    elif kind == "text":
        words = fit_words(dataset, options, data_name=data_name)
        kind, shape = "sparse features", (words.width,)
    else:
        words, shape = getattr(dataset.inputs, "words", None), row_shape(dataset)
    if chosen.startswith(PREFIX):
        # The configuration is kept, so that a saved model can be rebuilt without the files of the name.
        chosen_options = {"weights": "DEFAULT", **chosen_options, "config": read_config(chosen)}
    if kind in ("features", "sparse features"):
        chosen = "mlp" if chosen == "auto" else chosen
        # Without these an encoder is built as in models that were saved before the options existed.
        chosen_options = {**(_usual_mlp(dataset, kind) if chosen == "mlp" else {}), **chosen_options}
    return ModelPlan(
        kind,
        shape,
        dataset.num_labels,
        loss,
        encoder=chosen,
        head=options.head,
        encoder_options=chosen_options,
        head_options=_head_options(dataset, options),
        words=words,
        frozen=frozen,
    )


def _usual_mlp(dataset: Dataset, kind: str) -> Mapping[str, Any]:
    if kind == "sparse features":
        width = _WIDE if dataset.num_labels >= MANY_LABELS else _NARROW
        return {"hidden": [width], "dropout": 0.3, "bag": False}
    return _FEW_ROWS_MLP if len(dataset.part_rows("train")) < _FEW_ROWS else {}


def fit_words(dataset: Dataset, options: FitOptions, *, data_name: str = "dataset") -> TextEncoder:
    """Return how text becomes sparse features, with a vocabulary of the training rows if it needs one.

    Raises:
        InputError: for options that do not fit, or training rows without words.
    """
    given, texts = dict(options.text_options), dataset.inputs
    if not isinstance(texts, Texts):
        raise TypeError(f"`dataset` must have texts as inputs; got {texts.kind}.")
    try:
        if options.text == "hashed":
            return HashedWords(**{"num_features": _HASHED_COLUMNS, **given})
        train = texts.batch(dataset.part_rows("train"))
        short = sum(len(text.split()) for text in train) <= _SHORT_TEXT * len(train)
        words = TfidfWords.fit(train, **{**_TFIDF, "characters": _CHARACTERS if short else (), **given})
    except (TypeError, ValueError) as error:
        raise InputError(f"`text_options` of {options.text!r}: {str(error).rstrip('.')}.") from error
    if not words.width:
        count = format_count(len(train), "training row")
        raise InputError(f"`{data_name}` must have words that occur in several training rows; it has {count}.")
    return words


def text_rows(dataset: Dataset, words: TextEncoder) -> Dataset:
    """Return the dataset with sparse features instead of texts."""
    return replace(dataset, inputs=words.rows(dataset.inputs.batch(torch.arange(len(dataset)))))


def _head_options(dataset: Dataset, options: FitOptions) -> Mapping[str, Any]:
    """Return the user's options; a DFT head is by default as in its paper.

    It can output every set as large as those in training, and it has as many learned columns as a bottleneck head, on
    top of the fixed ones. The fixed columns alone are far too few to rank the labels well.
    """
    if options.head != "dft":
        return options.head_options
    chosen: dict[str, Any] = {"slack": BOTTLENECK_WIDTH}
    if "k" not in options.head_options:
        rows, _, present = label_pairs(dataset.part("train").targets, dataset.num_labels)
        largest = int(torch.bincount(rows[present]).max())
        chosen["k"] = min(largest, (dataset.num_labels - 1) // 2)
    return {**chosen, **options.head_options}


def row_shape(dataset: Dataset) -> tuple[int, ...]:
    """Return the shape of a row; files whose shape is unknown before they are read count with the first row."""
    shape = getattr(dataset.inputs, "shape", None)
    if shape is None:
        shape = dataset.inputs.batch(torch.arange(min(len(dataset), 1))).shape[1:]
    return tuple(shape)


def build_model(plan: ModelPlan, *, with_weights: bool = True) -> SetModel:
    """Build the model of a plan, with new random parameters.

    Args:
        plan: the parts.
        with_weights: whether an encoder of another library starts at the ``weights`` in its options; False if
            parameters are loaded afterwards, so that nothing is downloaded.
    """
    if not with_weights and _is_backbone(plan.encoder):
        options = {name: value for name, value in plan.encoder_options.items() if name != "weights"}
        plan = replace(plan, encoder_options=options)
    encoder = _encoder(plan)
    size = encoder.out_features
    if not isinstance(size, int):
        raise TypeError(f"`encoder` {plan.encoder!r} must have an integer `out_features`; got {type(size).__name__}.")
    if isinstance(encoder, UnitRows):
        return SetModel(encoder, _sparse_head(plan))
    return SetModel(
        encoder, make_head(plan.head, size, plan.num_labels, loss=plan.loss, options=dict(plan.head_options))
    )


def _sparse_head(plan: ModelPlan) -> nn.Module:
    wanted = loss_class(plan.loss)
    head = wanted.head if plan.head == "auto" else plan.head
    if head != "linear" or plan.head_options:
        raise InputError(
            f"`encoder` 'linear' needs a linear head without options for sparse features; use 'bag' for {head!r}."
        )
    heads = [SparseLinear(plan.shape[0], plan.num_labels) for _ in range(wanted.num_heads)]
    return heads[0] if wanted.num_heads == 1 else TwoHead(*heads)


def _linear(plan: ModelPlan) -> nn.Module:
    return UnitRows(plan.shape[0]) if plan.kind == "sparse features" else _dense(plan)


def _mlp(
    plan: ModelPlan,
    *,
    hidden: list[int] | tuple[int, ...] = (256, 256),
    dropout: float = 0.1,
    norm: Norm = "layer",
    bag: bool = True,
) -> nn.Module:
    """Hidden layers; on sparse features, ``bag`` puts a `Bag` below the first one instead of making it the first."""
    if not isinstance(hidden, list | tuple) or (plan.kind == "sparse features" and not hidden):
        raise InputError(f"`hidden` must be a list of sizes, with at least one for sparse features; got {hidden!r}.")
    for size in hidden:
        _check_size("hidden", size)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise InputError(f"`dropout` must lie in [0, 1); got {dropout!r}.")
    if norm not in ("layer", "batch"):
        raise InputError(f"`norm` must be layer or batch; got {norm!r}.")
    if plan.kind == "sparse features":
        return MLP(Bag(plan.shape[0], hidden[0]), hidden, dropout=dropout, norm=norm, below_is_linear=not bag)
    return MLP(_dense(plan), hidden, dropout=dropout, norm=norm)  # pyright: ignore[reportArgumentType]


def _bag(plan: ModelPlan, *, dim: int = 256) -> nn.Module:
    if plan.kind != "sparse features":
        raise InputError(f"`encoder` 'bag' needs sparse features or text; got {plan.kind}.")
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
        raise InputError(f"`encoder` must be one of {known}, torchvision:NAME, timm:NAME or hf:NAME; got {name!r}.")
    try:
        return ENCODERS[name](plan, **plan.encoder_options)
    except TypeError as error:
        raise InputError(f"`encoder` {name!r}: {error}.") from error


def _dense(plan: ModelPlan) -> nn.Module:
    size = Plain(plan.shape).out_features
    return Standardised(torch.zeros(size), torch.ones(size))


def _check_size(name: str, size: Any) -> None:
    if type(size) is not int or size < 1:
        raise InputError(f"`{name}` must be an integer of at least 1; got {size!r}.")


def _channels(plan: ModelPlan) -> int:
    if plan.kind != "images":
        raise InputError(f"`encoder` {plan.encoder!r} needs images; got {plan.kind}.")
    return plan.shape[0]


def _is_backbone(encoder: str) -> bool:
    return encoder.partition(":")[0] in LIBRARIES and ":" in encoder


def _backbone(plan: ModelPlan) -> nn.Module:
    if plan.kind == "tokens":
        return _text_transformer(plan, **plan.encoder_options)
    _channels(plan)
    backbone = load_backbone(plan.encoder, argument="encoder", **plan.encoder_options)
    check_images(backbone, plan.shape, name=plan.encoder, argument="encoder")
    return backbone


def _text_transformer(plan: ModelPlan, *, config: Mapping[str, Any], weights: str | None = None) -> nn.Module:
    return TextTransformer(load_network(plan.encoder, weights=weights, config=config))

"""A model in a folder: parameters, plan, label names and the set rule; whole, and read without pickles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.data import Dataset
from shortlist.extras import require
from shortlist.files import read_document, replacing
from shortlist.sets import load_rule
from shortlist.sets.rule import SetRule
from shortlist.train.fit import Fitted
from shortlist.train.model import SetModel
from shortlist.train.plan import ModelPlan, build_model
from shortlist.train.prepared_inputs import PlannedEncoder, prepared
from shortlist.train.scores import model_scores, row_shape

_FORMAT = "shortlist model"
_VERSION = 1


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A model that answers: what `load_model` gives.

    ``about`` holds how it was trained: options, the metric that was watched, the best epoch, and the numbers of all.
    """

    model: SetModel
    plan: ModelPlan
    label_names: tuple[str, ...]
    rule: SetRule | None
    about: dict[str, Any]

    @cached_property
    def _encoder(self) -> PlannedEncoder:
        return PlannedEncoder(self.plan)

    def scores(self, dataset: Dataset, *, batch_size: int = 1024) -> Tensor:
        """Logits of all rows, ``(N, n)``; texts are hashed and features of a frozen encoder computed as in training.

        Raises:
            ValueError: for inputs of another kind or shape than the model was trained on.
        """
        dataset = prepared(dataset, self.plan, on_demand=self._encoder)
        shape = row_shape(dataset) if dataset.inputs.kind == self.plan.kind else ()
        if (dataset.inputs.kind, shape) != (self.plan.kind, self.plan.shape):
            raise ValueError(
                f"`dataset` must have {self.plan.kind} of shape {self.plan.shape}; got {dataset.inputs.kind} {shape}."
            )
        return model_scores(self.model, dataset, self.plan.num_labels, batch_size=batch_size)


def save_model(
    fitted: Fitted, folder: str | Path, *, rule: SetRule | None = None, source: Mapping[str, Any] | None = None
) -> Path:
    """Write a model to a folder.

    ``model.json`` is written last and names the content of the parameters, so that a folder that was written halfway is
    refused instead of loaded.

    Args:
        fitted: of `fit`.
        folder: made if it is not there; the files of an older model are replaced.
        rule: a fitted set rule that belongs to the model.
        source: how the data were read, as plain values; kept in ``about``, so that new data can be read alike.

    Returns:
        The folder.
    """
    folder = Path(folder)
    tensors = {name: value.contiguous() for name, value in fitted.model.state_dict().items()}
    content = require("safetensors.torch", extra="train").save(tensors)
    with replacing(folder / "model.safetensors") as partial:
        partial.write_bytes(content)
    if rule is not None:
        rule.save(folder / "rule.json")
    else:
        (folder / "rule.json").unlink(missing_ok=True)
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "plan": fitted.plan.to_json(),
        "label_names": list(fitted.label_names),
        "has_rule": rule is not None,
        "parameters": blake2b(content, digest_size=16).hexdigest(),
        "about": {
            "options": fitted.options.to_json(),
            "monitor": fitted.monitor,
            "best_epoch": fitted.best_epoch,
            "history": fitted.history,
            **({} if source is None else {"source": dict(source)}),
        },
    }
    with replacing(folder / "model.json") as partial:
        partial.write_text(json.dumps(document, indent=1))
    return folder


def load_model(folder: str | Path) -> SavedModel:
    """Read a model that `save_model` wrote.

    Raises:
        ValueError: in one sentence, if the folder is damaged, incomplete or of another kind.
    """
    folder = Path(folder)
    document = read_document(folder / "model.json", kind=_FORMAT, version=_VERSION)
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ValueError(f"`{path}` is not there.")
    content = path.read_bytes()
    if blake2b(content, digest_size=16).hexdigest() != document.get("parameters"):
        raise ValueError(f"`{path}` is not the one that `{folder / 'model.json'}` belongs to.")
    try:
        plan = ModelPlan.from_json(document["plan"])
        names = tuple(document["label_names"])
        model = build_model(plan, with_weights=False)
        model.load_state_dict(require("safetensors.torch", extra="train").load(content))
    except Exception as error:
        # Whatever a document may hold: plans of other types, parameters of another model, no safetensors at all.
        reason = " ".join(str(error).split()).rstrip(".:")
        raise ValueError(f"`{folder}` cannot be built: {type(error).__name__} {reason}.") from error
    if len(names) != plan.num_labels:
        raise ValueError(f"`{folder}` must have a name for each of {plan.num_labels} labels; it has {len(names)}.")
    model.eval()
    rule = load_rule(folder / "rule.json") if document.get("has_rule") else None
    if rule is not None and rule.num_labels != plan.num_labels:
        raise ValueError(f"`{folder / 'rule.json'}` is for {rule.num_labels} labels; the model has {plan.num_labels}.")
    return SavedModel(model, plan, names, rule, document.get("about", {}))


class _Answer(nn.Module):
    """Logits, and the mask of the set if there is a rule."""

    def __init__(self, saved: SavedModel) -> None:
        super().__init__()
        self.model, self.rule = saved.model, saved.rule

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        logits = self.model(inputs)
        return (logits,) if self.rule is None else (logits, self.rule(logits))


def export_onnx(saved: SavedModel, path: str | Path, *, from_features: bool = False) -> Path:
    """Write a model as ONNX: ``inputs`` to ``logits`` and, with a set rule, to the mask ``sets``.

    Args:
        saved: of `load_model`; its inputs must be dense features or images, for ONNX has no sparse ones.
        path: the file.
        from_features: for a model on frozen features, which cannot be exported as a whole: whether to export the part
            that was trained, whose ``inputs`` are these features.

    Returns:
        The path.

    Raises:
        ValueError: for a model of sparse inputs, and for one on frozen features without ``from_features``.
    """
    if (saved.plan.frozen is not None) != from_features:
        frozen = "none" if saved.plan.frozen is None else repr(saved.plan.frozen["encoder"])
        raise ValueError(
            "`from_features` must be True for a model on features of a frozen encoder, of which only the part behind "
            f"them is exported, and False for others; the frozen encoder of `saved` is {frozen}."
        )
    if saved.plan.kind not in ("features", "images"):
        raise ValueError(f"`saved` must take features or images to be exported; it takes {saved.plan.kind}.")
    dtype = torch.uint8 if saved.plan.kind == "images" else torch.float32
    answer = _Answer(saved).eval()
    names = ["logits"] if saved.rule is None else ["logits", "sets"]
    with replacing(path) as partial:
        torch.onnx.export(
            answer,
            (torch.zeros(2, *saved.plan.shape, dtype=dtype),),
            str(partial),
            input_names=["inputs"],
            output_names=names,
            dynamic_shapes=({0: torch.export.Dim("rows")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return Path(path)

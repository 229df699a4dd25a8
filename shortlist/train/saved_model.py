"""A model in a folder: parameters, plan, names, calibration and set rule; written atomically, read without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.calibration import Calibrator, load_calibrator
from shortlist.comparison_document import FILE_NAME as COMPARISON
from shortlist.data import Dataset
from shortlist.data.encoders.hugging_face import Tokens
from shortlist.data.encoders.word_features import TfidfWords
from shortlist.errors import InputError, reason
from shortlist.extras import require
from shortlist.files import read_document, replacing
from shortlist.fingerprint import Digest, digest, digest_file
from shortlist.sets import load_rule
from shortlist.sets.rule import SetRule
from shortlist.train.card.facts import Measured
from shortlist.train.card.folder import FACTS, keep_report, recorded_facts, write_card
from shortlist.train.evaluation import model_scores
from shortlist.train.fit import Fitted
from shortlist.train.inputs import PlannedEncoder, prepare_inputs
from shortlist.train.model.plan import ModelPlan, SetModel, build_model, row_shape
from shortlist.train.model.sparse_layers import with_dense_inputs

_FORMAT = "shortlist model"
_VERSION = 1
_WORDS = "words.json"
CALIBRATION = "calibration.json"


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A model for prediction, as `load_model` returns it.

    ``about`` says how it was trained: options, the monitored metric, the best epoch, and the metrics of all epochs.
    """

    model: SetModel
    plan: ModelPlan
    label_names: tuple[str, ...]
    rule: SetRule | None
    about: dict[str, Any]
    calibrator: Calibrator | None = None

    @cached_property
    def _encoder(self) -> PlannedEncoder:
        return PlannedEncoder(self.plan)

    def scores(self, dataset: Dataset, *, batch_size: int = 1024, name: str = "dataset") -> Tensor:
        """Return the logits of all rows, ``(N, n)``, calibrated if the model is; text and images become features as in
        training.

        Args:
            dataset: the rows; labels are ignored.
            batch_size: rows at a time.
            name: what messages call the dataset, such as its file.

        Raises:
            InputError: if inputs have another kind or shape than in training.
        """
        dataset = prepare_inputs(dataset, self.plan, on_demand=self._encoder)
        shape = row_shape(dataset) if dataset.inputs.kind == self.plan.kind else ()
        if (dataset.inputs.kind, shape) != (self.plan.kind, self.plan.shape):
            raise InputError(
                f"`{name}` must have {self.plan.kind} of shape {self.plan.shape}; got {dataset.inputs.kind} {shape}."
            )
        logits = model_scores(self.model, dataset, self.plan.num_labels, batch_size=batch_size)
        return logits if self.calibrator is None else self.calibrator.calibrated_logits(logits)


def save_model(
    fitted: Fitted | SavedModel,
    folder: str | Path,
    *,
    rule: SetRule | None = None,
    source: Mapping[str, Any] | None = None,
    measured: Measured | None = None,
) -> Path:
    """Write a model to a folder, with a card, ``README.md``, in the format of the Hugging Face Hub.

    ``model.json`` is written last and has a digest of the parameters, so a half-written folder is refused.

    Args:
        fitted: of `fit`, or of `load_model`.
        folder: created if necessary; the files of an older model are replaced.
        rule: a fitted set rule for the model.
        source: how the data were read, as plain values; kept in ``about``, so that new data can be read alike.
        measured: what the card says of data and figures, and the audit's certificates, of
            `shortlist.train.card.facts.measured`; those of a loaded model are kept by default.

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
    calibrator = fitted.calibrator if isinstance(fitted, SavedModel) else None
    if calibrator is not None:
        calibrator.save(folder / CALIBRATION)
    else:
        (folder / CALIBRATION).unlink(missing_ok=True)
    keep_report(folder, None if measured is None else measured.report)
    parameters = digest(content)
    about = dict(fitted.about) if isinstance(fitted, SavedModel) else _about(fitted)
    if source is not None:
        about["source"] = dict(source)
    if measured is not None:
        about[FACTS] = recorded_facts(measured.facts, parameters=parameters, rule=folder / "rule.json")
    about["options"] = _without_places(about.get("options", {}))
    plan = _without_places(fitted.plan.to_json())
    if isinstance(fitted.plan.words, TfidfWords | Tokens):
        # A vocabulary is larger than everything else in the document.
        words = json.dumps(plan["words"])
        with replacing(folder / _WORDS) as partial:
            partial.write_text(words)
        plan["words"] = {"file": _WORDS, "digest": digest(words.encode())}
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "plan": plan,
        "label_names": list(fitted.label_names),
        "has_rule": rule is not None,
        "has_calibration": calibrator is not None,
        "parameters": parameters,
        "about": about,
    }
    write_card(folder, document)
    with replacing(folder / "model.json") as partial:
        partial.write_text(json.dumps(document, indent=1))
    return folder


def _without_places(described: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the names, not the folders, of an encoder and of the weights that it started with: others may see them."""
    found = dict(described)
    if "encoder" in found:
        found["encoder"] = _without_folder(found["encoder"])
    for name in ("encoder_options", "frozen_options"):
        weights = found.get(name, {}).get("weights")
        if isinstance(weights, str):
            found[name] = {**found[name], "weights": _without_folder(weights)}
    return found


def _without_folder(name: str) -> str:
    library, colon, place = name.rpartition(":")
    is_path = place.startswith(("~", ".")) or Path(place).is_absolute() or Path(place).exists()
    return f"{library}{colon}{Path(place).name}" if is_path else name


def _about(fitted: Fitted) -> dict[str, Any]:
    return {
        "options": fitted.options.to_json(),
        "monitor": fitted.monitor,
        "best_epoch": fitted.best_epoch,
        "history": fitted.history,
    }


def load_model(folder: str | Path, *, mapped: bool = False) -> SavedModel:
    """Read a model that `save_model` wrote.

    Args:
        folder: of the model.
        mapped: leave the parameters in the file and map it into memory, which processes that load the same model share.
            The file must then stay as it is, as when another one replaces it under its name.

    Raises:
        InputError: if the folder is damaged, incomplete or something else.
    """
    folder = Path(folder)
    if (folder / COMPARISON).is_file() and not (folder / "model.json").exists():
        models = sorted(str(file.parent) for file in folder.glob("*/model.json"))
        such = f", such as `{models[0]}`" if models else ""
        raise InputError(f"`{folder}` is a comparison: name one of its models{such}.")
    document = read_document(folder / "model.json", kind=_FORMAT, version=_VERSION)
    path = folder / "model.safetensors"
    if not path.is_file():
        raise InputError(f"`{path}` does not exist.")
    content = None if mapped else path.read_bytes()
    if (digest_file(path) if content is None else digest(content)) != document.get("parameters"):
        raise InputError(f"`{path}` does not belong to `{folder / 'model.json'}`.")
    try:
        plan = ModelPlan.from_json(_with_words(document["plan"], folder))
        names = tuple(document["label_names"])
        model = build_model(plan, with_weights=False)
        tensors = require("safetensors.torch", extra="train")
        # Assigned tensors stay in the mapped file; otherwise they would be copied into those of the new model.
        state = tensors.load_file(path) if content is None else tensors.load(content)
        model.load_state_dict(state, assign=mapped)
    except Exception as error:
        # A document may hold anything: other types, parameters of another model, something other than safetensors.
        raise InputError(f"`{folder}` cannot be built: {type(error).__name__} {reason(error)}.") from error
    if len(names) != plan.num_labels:
        raise InputError(f"`{folder}` must have a name for each of {plan.num_labels} labels; it has {len(names)}.")
    model.eval()
    rule = load_rule(folder / "rule.json") if document.get("has_rule") else None
    if rule is not None and rule.num_labels != plan.num_labels:
        raise InputError(f"`{folder / 'rule.json'}` is for {rule.num_labels} labels; the model has {plan.num_labels}.")
    calibrator = load_calibrator(folder / CALIBRATION) if document.get("has_calibration") else None
    if calibrator is not None and calibrator.num_labels != plan.num_labels:
        raise InputError(
            f"`{folder / CALIBRATION}` is for {calibrator.num_labels} labels; the model has {plan.num_labels}."
        )
    return SavedModel(model, plan, names, rule, document.get("about", {}), calibrator)


def _with_words(plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the plan with the vocabulary that is in a file of its own."""
    words = plan.get("words")
    if not isinstance(words, dict) or "file" not in words:
        return plan
    # Only this file, whatever name the document gives.
    content = (folder / _WORDS).read_bytes()
    if digest(content) != words.get("digest"):
        raise InputError(f"`{folder / _WORDS}` does not belong to `{folder / 'model.json'}`")
    return {**plan, "words": json.loads(content)}


def parameters_digest(saved: SavedModel) -> str:
    """Identify what scores depend on: parameters and calibration. An export states it, so that an old one is found."""
    found = Digest()
    for module in (saved.model, saved.calibrator):
        found.update(type(module).__name__)
        if module is not None:
            for name, value in sorted({**dict(module.named_parameters()), **dict(module.named_buffers())}.items()):
                found.update(f"{name} {value.dtype} {tuple(value.shape)}")
                found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hex()


class _Answer(nn.Module):
    """Returns logits, calibrated if the model is, and, with a rule, the mask of the set."""

    def __init__(self, saved: SavedModel) -> None:
        super().__init__()
        self.model, self.rule, self.calibrator = with_dense_inputs(saved.model), saved.rule, saved.calibrator

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        logits = self.model(inputs)
        logits = logits if self.calibrator is None else self.calibrator.calibrated_logits(logits)
        return (logits,) if self.rule is None else (logits, self.rule(logits))


def export_onnx(saved: SavedModel, path: str | Path, *, from_features: bool = False) -> Path:
    """Write a model as ONNX, from ``inputs`` to ``logits``, calibrated if it is, and, with a rule, the mask ``sets``.

    Sparse features are dense ``inputs``, because ONNX has no sparse ones. The file states label names and, for a model
    of texts, its vocabulary as metadata: `shortlist.predict.OnnxModel` answers texts with nothing else.

    Args:
        saved: of `load_model`.
        path: the file.
        from_features: for a model on frozen features, which cannot be exported as a whole: export the part that was
            trained, whose ``inputs`` are these features.

    Returns:
        The path.

    Raises:
        InputError: for a head of clusters, or if ``from_features`` is missing for a model on frozen features.
        MissingExtraError: without the extra ``onnx``.
    """
    if (saved.plan.frozen is not None) != from_features:
        frozen = "none" if saved.plan.frozen is None else repr(saved.plan.frozen["encoder"])
        raise InputError(
            "`from_features` must be True for a model on features of a frozen encoder, of which only the trained part "
            f"is exported, and False for others; the frozen encoder of `saved` is {frozen}."
        )
    if saved.plan.head == "clusters":
        raise InputError("`saved` must have a head other than clusters to be exported: ONNX has no beam search.")
    require("onnxscript", extra="onnx")
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
        _describe(partial, saved)
    return Path(path)


def _describe(path: Path, saved: SavedModel) -> None:
    """Write what the graph alone does not tell into the metadata of an ONNX file."""
    onnx = require("onnx", extra="onnx")
    graph = onnx.load(str(path))
    about = {"label_names": json.dumps(saved.label_names), "parameters": parameters_digest(saved)}
    if saved.plan.words is not None:
        about["words"] = json.dumps(saved.plan.words.to_json())
    onnx.helper.set_model_props(graph, about)
    onnx.save(graph, str(path))

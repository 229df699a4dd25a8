"""The models of a service: found in folders, loaded once, with their rules and the engine that computes scores."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shortlist.data import Features, Inputs, SparseRows, Texts
from shortlist.errors import InputError
from shortlist.extras import MissingExtraError
from shortlist.factory import loss_class
from shortlist.predict import RULES, OnnxModel, Scores, tensor_scores
from shortlist.predict.calibration import kind_of
from shortlist.predict.model_scores import row_scores
from shortlist.sets import SetRule, load_rule
from shortlist.train import load_model
from shortlist.train.data_source import saved_source
from shortlist.train.saved_model import parameters_digest

Engine = Literal["auto", "torch", "onnx"]
_SEEDED = re.compile(r"(.+)-(\d+)")


def model_folders(path: str | Path) -> list[Path]:
    """The folders of models at a path: itself, or those of a comparison, one of each candidate (its first seed).

    Raises:
        InputError: if there is none.
    """
    path = Path(path)
    if (path / "model.json").is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"`{path}` is not the folder of a model or a comparison.")
    found: dict[str, tuple[int, Path]] = {}
    for file in path.glob("*/model.json"):
        seeded = _SEEDED.fullmatch(file.parent.name)
        candidate, seed = (seeded[1], int(seeded[2])) if seeded else (file.parent.name, 0)
        found[candidate] = min(found.get(candidate, (seed, file.parent)), (seed, file.parent))
    if not found:
        raise InputError(f"`{path}` holds no model: `shortlist fit` or `shortlist compare` writes some.")
    return [folder for _, folder in sorted(found.values(), key=lambda each: each[1])]


class ServedModel:
    """A model that answers requests.

    Args:
        name: unique among the models of the service; requests name it, never its folder.
        folder: of the model.
        engine: what computes scores. ``auto`` takes ONNX runtime where the folder holds an export of the model as it is
            now, ``model.onnx``, and torch otherwise.

    Attributes:
        saved: the model; its parameters stay in the file, which processes share.
        source: how its data were read.
        rules: the fitted rules of its folder by name.
        rule: the one that it answers with by default; None if it has none.
    """

    def __init__(self, name: str, folder: Path, *, engine: Engine = "auto") -> None:
        self.name, self.folder = name, folder
        self.saved = load_model(folder, mapped=True)
        self.source = saved_source(self.saved, folder)
        self.rule: SetRule | None = None
        self.rules: dict[str, SetRule] = {}
        self.read_rules()
        self._onnx = None if engine == "torch" else self._exported(required=engine == "onnx")

    @property
    def kind(self) -> str:
        """What a row is: text, features, sparse features, images or object pairs."""
        return self.source.kind

    @property
    def takes(self) -> str:
        """The same as requests name it: features may be sparse."""
        return "features" if self.kind == "sparse features" else self.kind

    @property
    def engine(self) -> str:
        """What computes its scores."""
        return "torch" if self._onnx is None else "onnx"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        return self.saved.label_names

    @property
    def link(self) -> Any:
        """How logits become probabilities that can be compared between rows."""
        return loss_class(self.saved.plan.loss).link

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row; empty for texts, and for images that a frozen encoder takes in any size."""
        if self.kind == "text" or (self.kind == "images" and self.saved.plan.frozen is not None):
            return ()
        return self.saved.plan.shape

    @property
    def columns(self) -> list[str] | None:
        """The names of the features, if the model was trained on a table that has them."""
        return list(self.source.columns.get("features", ())) or None

    @property
    def one_class(self) -> bool:
        """Whether rows have one class each, or sets of labels."""
        kind = self.source.one_class
        return self.link == "softmax" if kind is None else kind

    @property
    def is_writable(self) -> bool:
        """Whether a rule can be saved into the folder."""
        return os.access(self.folder, os.W_OK)

    def read_rules(self) -> None:
        """Read the rules of the folder, again after one was saved; not those that need groups or weights of rows."""
        files = {name: self.folder / "rules" / f"{name}.json" for name in RULES}
        found = {name: load_rule(file) for name, file in files.items() if file.is_file()}
        self.rules = {name: rule for name, rule in found.items() if rule.row_argument is None}
        document = json.loads((self.folder / "model.json").read_text())
        usual = load_rule(self.folder / "rule.json") if document.get("has_rule") else None
        self.rule = usual if usual is not None and usual.row_argument is None else None
        if self.rule is not None:
            self.rules.setdefault(kind_of(self.rule), self.rule)

    def scores(self, inputs: Inputs) -> Scores:
        """The logits of rows, as `shortlist predict` computes them, or as ONNX runtime does."""
        if self._onnx is None:
            return row_scores(self.saved, inputs, self.source)
        logits = self._onnx.run(self._exported_inputs(inputs))["logits"]
        return tensor_scores(torch.from_numpy(logits), from_logits=True, names=self.labels)

    def read_features(self, rows: Sequence[Sequence[float]]) -> Inputs:
        """Rows of numbers, in the order of training, as inputs.

        Raises:
            InputError: names a row with another number of features.
        """
        width = int(np.prod(self.shape))
        for at, row in enumerate(rows):
            if len(row) != width:
                raise InputError(f"`features` must have {width} numbers per row; row {at} has {len(row)}.")
        values = torch.from_numpy(np.asarray(rows, dtype=np.float64).reshape(len(rows), *self.shape)).float()
        if self.kind == "features":
            return Features(values)
        at, columns = values.nonzero(as_tuple=True)
        crow = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(at, minlength=len(rows)).cumsum(0)])
        return SparseRows(crow, columns, values[at, columns], width)

    def _exported_inputs(self, inputs: Inputs) -> Any:
        rows = inputs.batch(torch.arange(len(inputs)))
        if isinstance(inputs, Texts):
            return rows
        if isinstance(rows, Tensor) and rows.layout == torch.sparse_csr:
            rows = rows.to_dense()
        if rows.is_floating_point() and not bool(rows.isfinite().all()):
            raise InputError("features must be finite.")
        return rows.numpy()

    def _exported(self, *, required: bool) -> OnnxModel | None:
        """The model's export; None if there is none for its present parameters and calibration, or no runtime."""
        file = self.folder / "model.onnx"
        if not file.is_file():
            if required:
                raise InputError(f"`{self.folder}` has no model.onnx: `shortlist export {self.folder}` writes it.")
            return None
        try:
            found = OnnxModel(file)
        except MissingExtraError:
            if required:
                raise
            return None
        if found.parameters != parameters_digest(self.saved) or self.saved.plan.frozen is not None:
            if required:
                raise InputError(f"`{file}` is not an export of the whole model as it is now: export it again.")
            return None
        return found


def open_models(paths: Iterable[str | Path], *, engine: Engine = "auto") -> dict[str, ServedModel]:
    """Load the models at some paths, by unique names: those of their folders, numbered where they repeat.

    Raises:
        InputError: names a folder that holds no model, or a damaged one.
    """
    found: dict[str, ServedModel] = {}
    for folder in dict.fromkeys(folder.resolve() for path in paths for folder in model_folders(path)):
        name, number = folder.name, 2
        while name in found:
            name, number = f"{folder.name}-{number}", number + 1
        found[name] = ServedModel(name, folder, engine=engine)
    return found

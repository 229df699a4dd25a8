"""Answers of an exported model: onnxruntime runs the graph, and the file itself holds vocabulary and label names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shortlist.data.encoders.word_features import word_features
from shortlist.data.files.text_files import need_file
from shortlist.errors import InputError
from shortlist.extras import require


class OnnxModel:
    """A model that `shortlist.train.export_onnx` or ``shortlist export`` wrote.

    Args:
        path: the file.

    Raises:
        InputError: if the file is no model of shortlist.
        MissingExtraError: if onnxruntime is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        runtime, path = require("onnxruntime", extra="onnx"), need_file(path)
        try:
            self.session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            about = self.session.get_modelmeta().custom_metadata_map
            self.label_names: tuple[str, ...] = tuple(json.loads(about["label_names"]))
            self.parameters = about.get("parameters")
            self.words = word_features(json.loads(about["words"])) if "words" in about else None
        except Exception as error:  # onnxruntime has many, and a file may hold anything.
            raise InputError(
                f"`{path}` is not a model that `shortlist export` wrote: {type(error).__name__}."
            ) from error
        self.has_rule = "sets" in [output.name for output in self.session.get_outputs()]

    def run(self, inputs: Sequence[str] | np.ndarray) -> dict[str, np.ndarray]:
        """Return ``logits``, ``(rows, n)``, and, if the model has a rule, the mask ``sets``.

        Args:
            inputs: texts, for a model of texts; otherwise an array of features or images.
        """
        if self.words is not None and not isinstance(inputs, np.ndarray):
            rows = self.words.rows(list(inputs))
            inputs = rows.batch(torch.arange(len(rows))).to_dense().numpy()
        names = [output.name for output in self.session.get_outputs()]
        found: list[Any] = self.session.run(names, {"inputs": np.asarray(inputs)})
        return dict(zip(names, found, strict=True))

    def predict(self, inputs: Sequence[str] | np.ndarray) -> list[list[str]]:
        """Return the labels of each row's set, best first; ``inputs`` as in `run`."""
        if not self.has_rule:
            raise InputError("the model has no set rule: `shortlist calibrate` adds one before the export.")
        found = self.run(inputs)
        order = np.argsort(-found["logits"], axis=1, kind="stable")
        return [
            [self.label_names[label] for label in labels if found["sets"][row, label]]
            for row, labels in enumerate(order.tolist())
        ]

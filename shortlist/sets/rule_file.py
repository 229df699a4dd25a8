"""Set rules as JSON: versioned, with exact numbers, and no code inside."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist.files import read_document, replacing
from shortlist.sets.average_error import AverageError
from shortlist.sets.average_k import AverageK
from shortlist.sets.class_conditional import ClassConditional
from shortlist.sets.per_label import PerLabelThreshold
from shortlist.sets.pointwise_error import PointwiseError
from shortlist.sets.recall_control import RecallControl
from shortlist.sets.rule import SetRule
from shortlist.sets.top_k import TopK

_FORMAT = "shortlist set rule"
_VERSION = 1
_KINDS = {
    kind.__name__: kind
    for kind in (TopK, AverageK, AverageError, PointwiseError, ClassConditional, RecallControl, PerLabelThreshold)
}
_DTYPES = {"float64": torch.float64, "int64": torch.int64}


def save_rule(rule: SetRule, path: str | Path) -> None:
    """Write a fitted rule."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "kind": type(rule).__name__,
        "options": {**rule.options(), "link": rule.link, "min_size": rule.min_size},
        "from_logits": rule.from_logits,
        "num_labels": rule.num_labels,
        "fitted": {name: _encode(buffer) for name, buffer in rule.named_buffers()},
        "evidence": rule.evidence,
    }
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=1))


def load_rule(path: str | Path) -> SetRule:
    """Read a rule that ``save`` wrote.

    Args:
        path: the JSON file.

    Returns:
        The fitted rule, of the class that it was saved from.

    Raises:
        ValueError: one sentence, when the file is damaged, of another kind or of a newer version.
    """
    content = read_document(path, kind=_FORMAT, version=_VERSION)
    if not isinstance(content.get("kind"), str) or content["kind"] not in _KINDS:
        raise ValueError(f"`{path}` holds a rule of unknown kind {content.get('kind')!r}.")
    try:
        return _decode(content)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"`{path}` is damaged: {type(error).__name__} {error}.") from error


def _decode(content: dict[str, Any]) -> SetRule:
    rule = _KINDS[content["kind"]](**content["options"])
    buffers = {name: _decode_buffer(value) for name, value in content["fitted"].items()}
    if buffers.keys() != dict(rule.named_buffers()).keys():
        raise ValueError(f"thresholds {sorted(buffers)} do not belong to this kind")
    if not isinstance(content["from_logits"], bool) or type(content["num_labels"]) is not int:
        raise TypeError("`from_logits` or `num_labels` is missing")
    if content["num_labels"] < max(1, rule.min_size):
        raise ValueError(f"`num_labels` is {content['num_labels']}")
    for name, buffer in buffers.items():
        if buffer.ndim and buffer.shape != (content["num_labels"],):
            raise ValueError(f"`{name}` has shape {tuple(buffer.shape)} for {content['num_labels']} labels")
        setattr(rule, name, buffer)
    rule.set_extra_state(
        {
            "from_logits": content["from_logits"],
            "num_labels": content["num_labels"],
            "evidence": dict(content["evidence"]),
            "fitted": True,
        }
    )
    return rule


def _encode(buffer: Tensor) -> dict[str, Any]:
    """Values as Python writes them, which read back the same; JSON has no infinity, so that is a word."""
    values = [value if math.isfinite(value) else str(value) for value in buffer.reshape(-1).tolist()]
    return {"dtype": str(buffer.dtype).removeprefix("torch."), "shape": list(buffer.shape), "values": values}


def _decode_buffer(value: dict[str, Any]) -> Tensor:
    dtype = _DTYPES[value["dtype"]]
    numbers = [float(entry) if isinstance(entry, str) else entry for entry in value["values"]]
    if not all(isinstance(entry, int | float) for entry in numbers):
        raise ValueError("a threshold is not a number")
    return torch.tensor(numbers, dtype=dtype).reshape(value["shape"])

"""The file format of fitted set rules: versioned JSON with exact numbers and no executable code."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.errors import InputError
from shortlist.files import read_document, replacing

_FORMAT = "shortlist set rule"
_VERSION = 1
_DTYPES = {"float64": torch.float64, "int64": torch.int64}


class RuleDocument(NamedTuple):
    """The contents of a rule file.

    Attributes:
        kind: name of the rule's class.
        options: arguments of its constructor; of a dataclass, the name of its class, ``kind``, and its fields.
        from_logits: whether the rule interprets scores as logits.
        num_labels: n.
        buffers: the fitted tensors by name.
        evidence: the constraint and what fitting achieved.
        precision: in which scores are compared; None in files of the first versions, which do not say.
    """

    kind: str
    options: dict[str, Any]
    from_logits: bool
    num_labels: int
    buffers: dict[str, Tensor]
    evidence: dict[str, Any]
    precision: torch.dtype | None = None


def write_rule(path: str | Path, document: RuleDocument) -> None:
    """Write a rule file."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "kind": document.kind,
        "options": document.options,
        "from_logits": document.from_logits,
        "precision": None if document.precision is None else str(document.precision).removeprefix("torch."),
        "num_labels": document.num_labels,
        "fitted": {name: _encode_buffer(buffer) for name, buffer in document.buffers.items()},
        "evidence": document.evidence,
    }
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=1, default=_encode_option))


def read_rule(path: str | Path) -> RuleDocument:
    """Read and check a rule file.

    Raises:
        InputError: if the file is damaged, of another kind, or of another version.
    """
    content = read_document(path, kind=_FORMAT, version=_VERSION)
    try:
        return _decode(content)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        raise InputError(f"`{path}` is damaged: {type(error).__name__} {error}.") from error


def _decode(content: dict[str, Any]) -> RuleDocument:
    num_labels, from_logits = content["num_labels"], content["from_logits"]
    if not isinstance(from_logits, bool) or type(num_labels) is not int:
        raise TypeError("`from_logits` must be true or false and `num_labels` an integer")
    buffers = {name: _decode_buffer(value) for name, value in content["fitted"].items()}
    for name, buffer in buffers.items():
        if buffer.isnan().any():
            raise ValueError(f"`{name}` must not be NaN, which no score reaches")
    options, evidence = dict(content["options"]), dict(content["evidence"])
    precision = content.get("precision")
    if precision is not None:
        precision = {"float32": torch.float32, "float64": torch.float64}[precision]
    return RuleDocument(str(content["kind"]), options, from_logits, num_labels, buffers, evidence, precision)


def _encode_option(option: Any) -> dict[str, Any]:
    """An option that is not a plain value: the name of its dataclass, and the fields."""
    return {"kind": type(option).__name__, **{f.name: getattr(option, f.name) for f in fields(option)}}


def _encode_buffer(buffer: Tensor) -> dict[str, Any]:
    """Numbers in Python's repr, which round-trips exactly; infinity, which JSON lacks, as a string."""
    values = [value if math.isfinite(value) else str(value) for value in buffer.reshape(-1).tolist()]
    return {"dtype": str(buffer.dtype).removeprefix("torch."), "shape": list(buffer.shape), "values": values}


def _decode_buffer(value: dict[str, Any]) -> Tensor:
    numbers = [float(entry) if isinstance(entry, str) else entry for entry in value["values"]]
    if not all(isinstance(entry, int | float) for entry in numbers):
        raise ValueError("a threshold is not a number")
    return torch.tensor(numbers, dtype=_DTYPES[value["dtype"]]).reshape(value["shape"])

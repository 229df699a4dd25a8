"""The file format of fitted set rules: versioned JSON with exact numbers and no executable code."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.files import decoding, read_document, replacing
from shortlist.fitted.tensor_json import decode_tensor, encode_tensor

_FORMAT = "shortlist set rule"
_VERSION = 1


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
    with replacing(path) as partial:
        partial.write_text(json.dumps(encode_rule(document), indent=1, default=encode_option))


def encode_rule(document: RuleDocument) -> dict[str, Any]:
    """The contents of a rule file as plain values; a rule that holds another has these of it among its options."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "kind": document.kind,
        "options": document.options,
        "from_logits": document.from_logits,
        "precision": None if document.precision is None else str(document.precision).removeprefix("torch."),
        "num_labels": document.num_labels,
        "fitted": {name: encode_tensor(buffer) for name, buffer in document.buffers.items()},
        "evidence": document.evidence,
    }


def read_rule(path: str | Path) -> RuleDocument:
    """Read and check a rule file.

    Raises:
        InputError: if the file is damaged, of another kind, or of another version.
    """
    content = read_document(path, kind=_FORMAT, version=_VERSION)
    with decoding(path):
        return decode_rule(content)


def decode_rule(content: dict[str, Any]) -> RuleDocument:
    """The inverse of `encode_rule`, checked."""
    num_labels, from_logits = content["num_labels"], content["from_logits"]
    if not isinstance(from_logits, bool) or type(num_labels) is not int:
        raise TypeError("`from_logits` must be true or false and `num_labels` an integer")
    buffers = {name: decode_tensor(value, name) for name, value in content["fitted"].items()}
    options, evidence = dict(content["options"]), dict(content["evidence"])
    precision = content.get("precision")
    if precision is not None:
        precision = {"float32": torch.float32, "float64": torch.float64}[precision]
    return RuleDocument(str(content["kind"]), options, from_logits, num_labels, buffers, evidence, precision)


def encode_option(option: Any) -> dict[str, Any]:
    """An option that is not a plain value: the name of its dataclass, and the fields."""
    return {"kind": type(option).__name__, **{f.name: getattr(option, f.name) for f in fields(option)}}

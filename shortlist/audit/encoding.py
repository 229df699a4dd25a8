"""Decisions and matrices as JSON values, exact to the last bit."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from shortlist.audit.certificates import Certificate, Combination, Theorem, Witness
from shortlist.audit.decide import Decision
from shortlist.audit.system import Array

VERDICTS = ("argmaxable", "unargmaxable", "undecided")


def encode_decision(decision: Decision) -> dict[str, Any]:
    """A decision as JSON values; Python writes floats so that they read back the same."""
    return {
        "verdict": decision.verdict,
        "radius": [_number(decision.low), _number(decision.high)],
        "certificate": _encode_certificate(decision.certificate),
        "reason": decision.reason,
    }


def decode_decision(value: dict[str, Any]) -> Decision:
    """The inverse of `encode_decision`; ValueError, KeyError or TypeError when the value is none."""
    low, high = (math.inf if bound is None else float(bound) for bound in value["radius"])
    if value["verdict"] not in VERDICTS:
        raise ValueError(f"unknown verdict {value['verdict']!r}")
    return Decision(value["verdict"], _decode_certificate(value["certificate"]), low, high, str(value["reason"]))


def _encode_certificate(certificate: Certificate | None) -> dict[str, Any] | None:
    if isinstance(certificate, Witness):
        return {"kind": "witness", "vector": certificate.vector.tolist()}
    if isinstance(certificate, Combination):
        return {
            "kind": "combination",
            "rows": certificate.rows.tolist(),
            "weights": certificate.weights.tolist(),
            "residual": certificate.residual,
            "proof": certificate.proof,
        }
    if isinstance(certificate, Theorem):
        return {
            "kind": "theorem",
            "k": certificate.k,
            "sign_changes": certificate.sign_changes,
            "log10_radius": _number(certificate.log10_radius),
        }
    return None


def _decode_certificate(value: dict[str, Any] | None) -> Certificate | None:
    if value is None:
        return None
    if value["kind"] == "witness":
        return Witness(np.array(value["vector"], dtype=np.float64))
    if value["kind"] == "combination":
        rows, weights = np.array(value["rows"], dtype=np.int64), np.array(value["weights"], dtype=np.float64)
        return Combination(rows, weights, float(value["residual"]), str(value["proof"]))
    if value["kind"] == "theorem":
        exponent = value["log10_radius"]
        return Theorem(int(value["k"]), int(value["sign_changes"]), -math.inf if exponent is None else float(exponent))
    raise ValueError(f"unknown certificate {value['kind']!r}")


def _number(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def encode_array(array: Array | None) -> dict[str, Any] | None:
    """An array as text, in single precision where that loses nothing."""
    if array is None:
        return None
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    small = single if (single == array).all() else array
    data = np.ascontiguousarray(small, dtype=small.dtype.newbyteorder("<"))
    return {"dtype": small.dtype.name, "shape": list(array.shape), "base64": base64.b64encode(data.tobytes()).decode()}


def decode_array(value: dict[str, Any] | None) -> Array | None:
    """The inverse of `encode_array`."""
    if value is None:
        return None
    if value["dtype"] not in ("float32", "float64"):
        raise ValueError(f"unknown type of numbers {value['dtype']!r}")
    data = np.frombuffer(
        base64.b64decode(value["base64"], validate=True), dtype=np.dtype(value["dtype"]).newbyteorder("<")
    )
    return data.reshape(value["shape"]).astype(np.float64)

"""Certificates of verdicts: their types, solver-free checks, and file format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from shortlist.audit.exact import to_integers, vanishing_weights
from shortlist.audit.system import UNDERFLOW, UNIT_ROUNDOFF, Array, Indices, System

VERDICTS = ("argmaxable", "unargmaxable", "undecided")

# A proof that no vector exists must hold for every layer whose entries differ from the given ones by at most this
# fraction of the largest entry in their row. Entries are rounded themselves, so a region thinner than that cannot be
# ruled out. A Fourier matrix computed from plain cosines of angles up to 2πk has errors of about this size.
_PERTURBATION = 2.0**-44
_SMALLEST = 5e-324


@dataclass(frozen=True)
class Witness:
    """A feature vector for which the layer outputs exactly this set.

    Attributes:
        vector: ``(d,)``; in top-k mode, one extra entry (minus the threshold) is added to every logit.
    """

    vector: Array


@dataclass(frozen=True)
class ExactWitness:
    """A vector of integers for which the layer, as stored, outputs exactly this set in exact arithmetic.

    Its region is too thin, or too far out, for any float64 vector that the search tries.

    Attributes:
        vector: the features up to a positive factor. With a bias the last entry is the denominator of the others.
    """

    vector: tuple[int, ...]


@dataclass(frozen=True)
class Combination:
    """A positive combination of signed rows that vanishes, so no vector is on the right side of all of them.

    Attributes:
        rows: the labels involved; the index ``num_labels`` denotes the bias row.
        weights: positive weights of these rows, scaled to unit norm; they sum to one.
        residual: norm of the computed combination, close to zero.
        proof: ``"interval"`` if a positive solution provably exists for every matrix within rounding of this one,
            ``"exact"`` if rational arithmetic shows that a combination of exactly these rows is zero.
    """

    rows: Indices
    weights: Array
    residual: float
    proof: str


@dataclass(frozen=True)
class Theorem:
    """The layer contains the truncated Fourier matrix of degree ``k``, so the number of sign changes decides.

    Sets with at most ``2k`` cyclic sign changes, including all sets of at most k labels, are argmaxable. If the layer
    has no other columns, all other sets are unargmaxable. This is a statement about the exact matrix, not about its
    rounded entries.

    Attributes:
        k: the degree.
        sign_changes: the number of cyclic sign changes of this set.
        log10_radius: log10 of the radius that the trigonometric polynomial with these signs achieves in exact
            arithmetic; minus infinity if the set is not argmaxable.
    """

    k: int
    sign_changes: int
    log10_radius: float


Certificate = Witness | ExactWitness | Combination | Theorem


@dataclass(frozen=True)
class Multipliers:
    """Positive weights on labels that bound the radius of every ball in a set's region from above."""

    rows: Indices
    weights: Array


class Decision(NamedTuple):
    """A verdict, its proof, certified bounds on the radius with the proof of the upper one, and, if undecided, why."""

    verdict: str
    certificate: Certificate | None
    low: float
    high: float
    reason: str
    multipliers: Multipliers | None = None


def is_witness(system: System, signs: Array, vector: Array) -> bool:
    r"""Whether all signs are right despite rounding: :math:`s_i r_i \cdot v > (D + 2)\,u\,|r_i| \cdot |v|`."""
    if vector.shape != (system.features.shape[1],) or not np.isfinite(vector).all():
        return False
    direction, rows = system.to_direction(vector), system.homogeneous
    size = rows.shape[1]
    values = signs * (rows @ direction)
    # The product of the norms is a cheap bound on |r|·|v|. Compute the exact bound only for rows where it is
    # inconclusive.
    bounds = (size + 3) * UNIT_ROUNDOFF * np.linalg.norm(direction) * system.homogeneous_norms
    close = np.flatnonzero(values <= bounds + size * UNDERFLOW)
    bounds[close] = (size + 2) * UNIT_ROUNDOFF * (np.abs(rows[close]) @ np.abs(direction))
    return bool((values > bounds + size * UNDERFLOW).all())


def is_exact_witness(system: System, signs: Array, vector: tuple[int, ...]) -> bool:
    """Whether all signs are right in exact arithmetic on the layer's entries."""
    if len(vector) != system.augmented.shape[1]:
        return False
    rows = (to_integers(sign * row) for sign, row in zip(signs, system.augmented, strict=True))
    return all(sum(map(mul, row, vector)) > 0 for row in rows)


def combine(system: System, signs: Array, support: Indices) -> Combination | None:
    """The vanishing combination of these rows, if one exists and is provably positive."""
    if len(support) == system.rows.shape[1] + 1 > 1:
        weights, proof = _interval_weights(signs[support, None] * system.rows[support]), "interval"
        weights = None if weights is None else np.maximum(np.ldexp(weights, -system.row_shifts[support]), _SMALLEST)
    else:
        weights, proof = None, "exact"
    if weights is None:
        weights, proof = _exact_weights(system, signs, support), "exact"
    if weights is None:
        return None
    support, weights = support[weights > 0], weights[weights > 0]
    norms = system.homogeneous_norms[support]
    safe = np.where(norms > 0, norms, 1.0)
    weights = weights * safe
    weights = np.maximum(weights / weights.sum(), _SMALLEST)
    unit = signs[support, None] * system.homogeneous[support] / safe[:, None]
    return Combination(support, weights, float(np.linalg.norm(weights @ unit)), proof)


def is_combination(system: System, signs: Array, certificate: Combination) -> bool:
    """Whether recomputing the proof from the certificate's rows succeeds with the same weights."""
    support, weights = certificate.rows, certificate.weights
    if support.shape != weights.shape or len(support) == 0 or len(np.unique(support)) < len(support):
        return False
    if support.min() < 0 or support.max() >= len(signs) or not (weights > 0).all():
        return False
    again = combine(system, signs, support)
    if again is None or again.proof != certificate.proof or len(again.rows) != len(support):
        return False
    return bool(np.abs(again.weights - weights).max() <= 1e-6) and abs(again.residual - certificate.residual) <= 1e-12


def _exact_weights(system: System, signs: Array, support: Indices) -> Array | None:
    """Weights for which the rows of ``homogeneous`` sum to zero in rational arithmetic, from the layer's entries."""
    weights = vanishing_weights(signs[support, None] * system.augmented[support][:, system.kept])
    if weights is None:
        return None
    exponents = system.row_exponents[support].tolist()
    lowest = min(exponents)
    scaled = [weight * 2 ** (exponent - lowest) for weight, exponent in zip(weights, exponents, strict=True)]
    total = sum(scaled)
    # A positive weight that underflows is still positive.
    return np.array([max(float(weight / total), _SMALLEST) if weight else 0.0 for weight in scaled])


def _interval_weights(rows: Array) -> Array | None:
    r"""Prove that :math:`\sum_i \lambda_i r_i = 0,\ \sum_i \lambda_i = 1` has a positive solution, for all rows nearby.

    With an approximate inverse R of the system's matrix M and :math:`\|I - RM\| \le \alpha < 1`, the solution differs
    from an approximate one by at most :math:`t + \|t\| \alpha / (1 - \alpha)`, where t bounds R times the residual.
    """
    size = len(rows)
    matrix = np.vstack([rows.T, np.ones(size)])
    try:
        inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    # Larger entries could overflow in the products below; no such system passes the test of alpha.
    if not np.abs(inverse).max() < 2.0**100:
        return None
    solution = inverse[:, -1]
    relative = (size + 4) * UNIT_ROUNDOFF
    magnitude = np.abs(inverse)
    # The largest entry of each row lies in [1/2, 1), so the perturbation also covers underflow. The ones are exact.
    entries = np.abs(matrix)
    change = np.full(size, _PERTURBATION)
    change[-1] = 0.0
    defect = np.abs(np.eye(size) - inverse @ matrix) + relative * (magnitude @ entries) + (magnitude @ change)[:, None]
    alpha = 1.01 * defect.sum(axis=1).max()
    if not alpha < 0.5:
        return None
    right = np.zeros(size)
    right[-1] = 1.0
    total = np.abs(solution).sum()
    residual = np.abs(right - matrix @ solution) + relative * (entries @ np.abs(solution) + right) + change * total
    error = 1.01 * (magnitude @ residual)
    bound = error + error.max() * alpha / (1.0 - alpha)
    return solution if (solution > bound).all() else None


def encode_decision(decision: Decision) -> dict[str, Any]:
    """A decision as JSON values; Python's float repr round-trips exactly."""
    bound = decision.multipliers
    return {
        "verdict": decision.verdict,
        "radius": [_finite(decision.low), _finite(decision.high)],
        "certificate": _encode_certificate(decision.certificate),
        "multipliers": None if bound is None else {"rows": bound.rows.tolist(), "weights": bound.weights.tolist()},
        "reason": decision.reason,
    }


def decode_decision(value: dict[str, Any]) -> Decision:
    """The inverse of `encode_decision`.

    Raises:
        ValueError, KeyError, TypeError: if the value is not an encoded decision.
    """
    low, high = (math.inf if bound is None else float(bound) for bound in value["radius"])
    if value["verdict"] not in VERDICTS:
        raise ValueError(f"unknown verdict {value['verdict']!r}")
    bound = value["multipliers"]
    multipliers = None if bound is None else Multipliers(*_rows_and_weights(bound))
    certificate = _decode_certificate(value["certificate"])
    return Decision(value["verdict"], certificate, low, high, str(value["reason"]), multipliers)


def _encode_certificate(certificate: Certificate | None) -> dict[str, Any] | None:
    if isinstance(certificate, Witness):
        return {"kind": "witness", "vector": certificate.vector.tolist()}
    if isinstance(certificate, ExactWitness):
        # In hexadecimal: Python refuses to write or read decimal integers of more than 4300 digits.
        return {"kind": "exact witness", "vector": [hex(value) for value in certificate.vector]}
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
            "log10_radius": _finite(certificate.log10_radius),
        }
    return None


def _decode_certificate(value: dict[str, Any] | None) -> Certificate | None:
    if value is None:
        return None
    if value["kind"] == "witness":
        return Witness(np.array(value["vector"], dtype=np.float64))
    if value["kind"] == "exact witness":
        return ExactWitness(tuple(int(digits, 16) for digits in value["vector"]))
    if value["kind"] == "combination":
        return Combination(*_rows_and_weights(value), float(value["residual"]), str(value["proof"]))
    if value["kind"] == "theorem":
        exponent = value["log10_radius"]
        return Theorem(int(value["k"]), int(value["sign_changes"]), -math.inf if exponent is None else float(exponent))
    raise ValueError(f"unknown certificate {value['kind']!r}")


def _rows_and_weights(value: dict[str, Any]) -> tuple[Indices, Array]:
    return np.array(value["rows"], dtype=np.int64), np.array(value["weights"], dtype=np.float64)


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None

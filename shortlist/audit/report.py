"""The result of an audit: verdicts, radii and certificates; how they are verified and saved."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.audit.certificates import (
    VERDICTS,
    Certificate,
    Combination,
    Decision,
    ExactWitness,
    Multipliers,
    Theorem,
    Witness,
    decode_decision,
    encode_decision,
    is_combination,
    is_exact_witness,
    is_witness,
)
from shortlist.audit.decide import theorem_holds, theorem_radius
from shortlist.audit.radius import radius_above, radius_below
from shortlist.audit.system import Array, Indices, System
from shortlist.files import decoding, read_document, replacing
from shortlist.fingerprint import digest_values

_FORMAT = "shortlist audit report"
# Version 1 had no proofs of the upper bounds on radii.
_VERSION = 2
_SURVIVAL_TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
_BLOCK = 1 << 24


class SizeRow(NamedTuple):
    """Verdict counts of the sets of one size, and the smallest radius of the argmaxable ones."""

    size: int
    argmaxable: int
    unargmaxable: int
    undecided: int
    smallest_radius: float


@dataclass(frozen=True)
class AuditReport:
    """Verdicts on label sets, in the order in which they were passed to the audit.

    Attributes:
        system: the layer and the mode.
        label_sets: the sorted labels of each set.
        decisions: verdict, certificate, radius bounds and reason for each set.
        names: label names, or None.
        survives: for each floating dtype, the share of argmaxable sets whose witness keeps its signs when layer and
            vector are rounded to that dtype; empty if no set is argmaxable.
    """

    system: System
    label_sets: list[Indices]
    decisions: list[Decision]
    names: list[str] | None
    survives: dict[str, float]

    def __len__(self) -> int:
        return len(self.decisions)

    @property
    def verdicts(self) -> NDArray[np.str_]:
        """``(sets,)`` of ``"argmaxable"``, ``"unargmaxable"`` or ``"undecided"``."""
        return np.array([decision.verdict for decision in self.decisions], dtype="<U12")

    @property
    def radius_bounds(self) -> Array:
        """``(sets, 2)``: certified lower and upper bounds on the radius. Both are 0 for unargmaxable sets."""
        return np.array([(decision.low, decision.high) for decision in self.decisions]).reshape(-1, 2)

    @property
    def radii(self) -> Array:
        """``(sets,)``: the Chebyshev radius achieved, with features bounded by 1e4; NaN if undecided."""
        return np.where(self.verdicts == "undecided", np.nan, self.radius_bounds[:, 0])

    @property
    def centres(self) -> Array:
        """``(sets, d)``: the vectors that achieve the radii, NaN if there is none; one extra column in top-k mode."""
        centres = np.full((len(self), self.system.features.shape[1]), np.nan)
        for index, certificate in enumerate(self.certificates):
            if isinstance(certificate, Witness):
                centres[index] = certificate.vector
        return centres

    @property
    def certificates(self) -> list[Certificate | None]:
        """The proof of each verdict; None if undecided."""
        return [decision.certificate for decision in self.decisions]

    @property
    def reasons(self) -> list[str]:
        """Why each set is undecided; empty otherwise."""
        return [decision.reason for decision in self.decisions]

    def counts(self) -> dict[str, int]:
        """Number of sets with each verdict."""
        return {verdict: int(np.count_nonzero(self.verdicts == verdict)) for verdict in VERDICTS}

    def table(self) -> list[SizeRow]:
        """One row per set size, ascending."""
        sizes = np.array([len(labels) for labels in self.label_sets], dtype=np.int64)
        verdicts, radii = self.verdicts, self.radii
        rows = []
        for size in np.unique(sizes):
            here = sizes == size
            number = {verdict: int(np.count_nonzero(verdicts[here] == verdict)) for verdict in VERDICTS}
            argmaxable = radii[here & (verdicts == "argmaxable")]
            smallest = float(argmaxable.min()) if len(argmaxable) else float("nan")
            rows.append(SizeRow(int(size), **number, smallest_radius=smallest))
        return rows

    def worst(self, count: int = 5) -> list[int]:
        """Positions of the worst sets: unargmaxable, then undecided, then by ascending radius."""
        if count < 0:
            raise ValueError(f"`count` must be at least 0; got {count}.")
        rank = {"unargmaxable": 0, "undecided": 1, "argmaxable": 2}
        order = sorted(
            range(len(self)),
            key=lambda index: (
                rank[self.decisions[index].verdict],
                self.decisions[index].low,
                len(self.label_sets[index]),
                index,
            ),
        )
        return order[:count]

    def labels_of(self, index: int) -> list[str]:
        """Names of the labels in one set, or their indices if there are no names."""
        return [self.name_of(label) for label in self.label_sets[index].tolist()]

    def name_of(self, label: int) -> str:
        """Name of a label, or its index if there are no names."""
        return str(label) if self.names is None else self.names[label]

    def verify(self) -> list[int]:
        """Verify every certificate from scratch, without a solver, and return the positions of those that fail.

        This checks the signs of every witness and the radius that it achieves, the positivity of every combination,
        and for the theorem the columns of the layer, the sign changes of the set and the radius of its polynomial.
        The upper bound on each radius is checked with the weights that prove it.
        """
        wrong, seen = [], {}
        for index, (labels, decision) in enumerate(zip(self.label_sets, self.decisions, strict=True)):
            key = (labels.tobytes(), id(decision))
            if key not in seen:
                seen[key] = self._holds(labels, decision)
            if not seen[key]:
                wrong.append(index)
        return wrong

    def _holds(self, labels: Indices, decision: Decision) -> bool:
        """Whether the certificate proves the verdict and the lower bound of the radius, and its weights the upper."""
        verdict, certificate, low, high, _, multipliers = decision
        signs = self.system.signs(labels)
        if isinstance(certificate, Witness):
            if verdict != "argmaxable" or not is_witness(self.system, signs, certificate.vector):
                return False
            achieved = radius_below(self.system, signs, certificate.vector)
        elif isinstance(certificate, ExactWitness):
            if verdict != "argmaxable" or not is_exact_witness(self.system, signs, certificate.vector):
                return False
            achieved = 0.0
        elif isinstance(certificate, Theorem):
            if not theorem_holds(self.system, labels, verdict, certificate):
                return False
            achieved = theorem_radius(certificate)
        elif isinstance(certificate, Combination):
            if verdict != "unargmaxable" or not is_combination(self.system, signs, certificate):
                return False
            achieved = 0.0
        else:
            if verdict != "undecided":
                return False
            achieved = 0.0
        if not (low <= achieved * (1 + 1e-12) and low <= high):
            return False
        if verdict == "unargmaxable":
            return high == 0
        return self._are_multipliers(multipliers) and radius_above(self.system, signs, multipliers) <= high * (
            1 + 1e-12
        )

    def _are_multipliers(self, multipliers: Multipliers | None) -> bool:
        """Whether these are positive weights on labels that sum to one."""
        if multipliers is None:
            return True
        rows, weights = multipliers.rows, multipliers.weights
        return bool(
            rows.shape == weights.shape == (len(rows),)
            and len(rows)
            and rows.min() >= 0
            and rows.max() < self.system.num_labels
            and (weights >= 0).all()
            and abs(weights.sum() - 1) <= len(rows) * 2.0**-52
        )

    def digest(self) -> str:
        """The digest of layer, sets, verdicts and certificates: equal for a report that was saved and loaded.

        Example:
            >>> from shortlist.audit import audit
            >>> layer = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
            >>> audit(layer, [[0, 2]]).digest() == audit(layer, [[0, 2]]).digest() != audit(layer, [[2]]).digest()
            True
        """
        return digest_values(self._content())

    def save(self, path: str | Path) -> None:
        """Write the report and the layer as one JSON file."""
        with replacing(path) as partial:
            partial.write_text(json.dumps(self._content()))

    def _content(self) -> dict[str, Any]:
        system = self.system
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "mode": system.mode,
            "weight": _encode_array(system.weight),
            "bias": _encode_array(system.bias),
            "dft": system.dft,
            "names": self.names,
            "sets": [
                {"labels": labels.tolist(), **encode_decision(decision)}
                for labels, decision in zip(self.label_sets, self.decisions, strict=True)
            ],
        }

    @classmethod
    def load(cls, path: str | Path) -> AuditReport:
        """Read a report written by `save`.

        Raises:
            InputError: if the file is damaged, of another kind, or of another version.
        """
        content = read_document(path, kind=_FORMAT, version=_VERSION)
        with decoding(path):
            return cls._decode(content)

    @classmethod
    def _decode(cls, content: dict[str, Any]) -> AuditReport:
        weight, bias = _decode_array(content["weight"]), _decode_array(content["bias"])
        if weight is None or weight.ndim != 2 or content["mode"] not in ("sign", "top-k"):
            raise ValueError("there is no layer")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError("bias and weight differ in length")
        names = content["names"]
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise ValueError("`names` must be a list of texts")
        if names is not None and len(names) != len(weight):
            raise ValueError(f"there are {len(names)} names for {len(weight)} labels")
        sets = [_labels(entry["labels"], len(weight)) for entry in content["sets"]]
        decisions = [decode_decision(entry) for entry in content["sets"]]
        system = System(weight, bias, content["mode"], content["dft"])
        # Shares and counts follow from the sets and their certificates, so the file does not state them.
        return cls(system, sets, decisions, names, measure_survival(system, sets, decisions))


def _labels(values: Sequence[int], num_labels: int) -> Indices:
    for value in values:
        if type(value) is not int or not 0 <= value < num_labels:
            raise ValueError(f"labels must be whole numbers in [0, {num_labels}); got {str(value)[:40]}")
    return np.array(values, dtype=np.int64)


def _encode_array(array: Array | None) -> dict[str, Any] | None:
    """An array in base64, in single precision if that is exact."""
    if array is None:
        return None
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    small = single if (single == array).all() else array
    data = np.ascontiguousarray(small, dtype=small.dtype.newbyteorder("<"))
    return {"dtype": small.dtype.name, "shape": list(array.shape), "base64": base64.b64encode(data.tobytes()).decode()}


def _decode_array(value: dict[str, Any] | None) -> Array | None:
    """The inverse of `_encode_array`."""
    if value is None:
        return None
    if value["dtype"] not in ("float32", "float64"):
        raise ValueError(f"unknown dtype {value['dtype']!r}")
    data = np.frombuffer(
        base64.b64decode(value["base64"], validate=True), dtype=np.dtype(value["dtype"]).newbyteorder("<")
    )
    return data.reshape(value["shape"]).astype(np.float64)


def measure_survival(system: System, sets: list[Indices], decisions: list[Decision]) -> dict[str, float]:
    """Share of the argmaxable sets whose witness keeps its signs when layer and vector are rounded to each dtype.

    A set certified by the theorem or by integers counts as lost: no known float64 vector keeps its signs. The shares
    describe these particular vectors; other vectors in the same regions may do better.
    """
    witnesses = [
        (labels, decision.certificate.vector)
        for labels, decision in zip(sets, decisions, strict=True)
        if decision.verdict == "argmaxable"
        and isinstance(decision.certificate, Witness)
        and decision.certificate.vector.shape == (system.features.shape[1],)
    ]
    total = sum(decision.verdict == "argmaxable" for decision in decisions)
    if total == 0:
        return {}
    rows = max(1, _BLOCK // system.num_labels)
    survivors = dict.fromkeys(_SURVIVAL_TYPES, 0)
    for start in range(0, len(witnesses), rows):
        labels, vectors = zip(*witnesses[start : start + rows], strict=True)
        positive = torch.from_numpy(np.stack([system.signs(each)[: system.num_labels] > 0 for each in labels]))
        for name, dtype in _SURVIVAL_TYPES.items():
            logits = torch.from_numpy(np.stack(vectors)).to(dtype) @ torch.from_numpy(system.features).to(dtype).T
            if system.bias is not None:
                logits = logits + torch.from_numpy(system.bias).to(dtype)
            survivors[name] += int(torch.where(positive, logits > 0, logits < 0).all(dim=1).sum())
    return {name: count / total for name, count in survivors.items()}

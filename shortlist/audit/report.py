"""The answer of an audit: verdicts, radii and certificates, with their checks, saved whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist.audit.bounds import radius_below
from shortlist.audit.certificates import Certificate, Theorem, Witness, holds
from shortlist.audit.decide import Decision
from shortlist.audit.encoding import VERDICTS, decode_array, decode_decision, encode_array, encode_decision
from shortlist.audit.fourier import theorem_holds, theorem_radius
from shortlist.audit.system import Array, Indices, System
from shortlist.files import read_document, replacing

_FORMAT = "shortlist audit report"
_VERSION = 1


class SizeRow(NamedTuple):
    """One line of the table: sets of one size, how many of each verdict, the smallest radius of the argmaxable ones."""

    size: int
    argmaxable: int
    unargmaxable: int
    undecided: int
    smallest_radius: float


@dataclass(frozen=True)
class AuditReport:
    """Verdicts on label sets, in the order in which they were asked.

    Attributes:
        system: the layer and the question.
        label_sets: sorted labels of each set.
        decisions: verdict, certificate, bounds of the radius and reason of each set.
        names: of the labels, or None.
        survives: for each floating type, the share of argmaxable sets whose witness keeps its signs when layer
            and vector are rounded to it; empty when no set is argmaxable.
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
        """``(sets, 2)``: the radius lies between these, certified. Both are 0 for unargmaxable sets."""
        return np.array([(decision.low, decision.high) for decision in self.decisions]).reshape(-1, 2)

    @property
    def radii(self) -> Array:
        """``(sets,)``: Chebyshev radius with features bounded by 1e4, as achieved; NaN where undecided."""
        return np.where(self.verdicts == "undecided", np.nan, self.radius_bounds[:, 0])

    @property
    def centres(self) -> Array:
        """``(sets, d)``: the vectors that achieve the radii; NaN where there is none. One more column in top-k mode."""
        centres = np.full((len(self), self.system.features.shape[1]), np.nan)
        for index, certificate in enumerate(self.certificates):
            if isinstance(certificate, Witness):
                centres[index] = certificate.vector
        return centres

    @property
    def certificates(self) -> list[Certificate | None]:
        """What proves each verdict; None where undecided."""
        return [decision.certificate for decision in self.decisions]

    @property
    def reasons(self) -> list[str]:
        """Why a set is undecided; empty otherwise."""
        return [decision.reason for decision in self.decisions]

    def counts(self) -> dict[str, int]:
        """How many sets have each verdict."""
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
        """Positions of the sets to look at first: impossible ones, then undecided ones, then the thinnest."""
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
        """Names of the labels of one set, or their numbers."""
        return [self.name_of(label) for label in self.label_sets[index].tolist()]

    def name_of(self, label: int) -> str:
        """Name of a label, or its number."""
        return str(label) if self.names is None else self.names[label]

    def verify(self) -> list[int]:
        """Check every certificate from scratch, without a solver; return the positions of those that fail.

        Checked are the signs of every witness and the radius that it achieves, the positivity of every combination,
        and for the theorem the columns of the layer, the sign changes of the set and the radius of its polynomial.
        Upper bounds of the radii of argmaxable sets were certified when they were computed; their proof is not stored.
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
        if not holds(self.system, labels, decision.verdict, decision.certificate):
            return False
        if isinstance(decision.certificate, Witness):
            reached = radius_below(self.system, self.system.signs(labels), decision.certificate.vector)
        elif isinstance(decision.certificate, Theorem):
            if not theorem_holds(self.system, labels, decision.certificate):
                return False
            reached = theorem_radius(decision.certificate)
        else:
            reached = 0.0
        if decision.verdict == "unargmaxable" and decision.high != 0:
            return False
        return decision.low <= reached * (1 + 1e-12) and decision.low <= decision.high

    def save(self, path: str | Path) -> None:
        """Write the whole report, the layer included, as one JSON file."""
        system = self.system
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "mode": system.mode,
            "weight": encode_array(system.weight),
            "bias": encode_array(system.bias),
            "dft": system.dft,
            "names": self.names,
            "survives": self.survives,
            "counts": self.counts(),
            "sets": [
                {"labels": labels.tolist(), **encode_decision(decision)}
                for labels, decision in zip(self.label_sets, self.decisions, strict=True)
            ],
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content))

    @classmethod
    def load(cls, path: str | Path) -> AuditReport:
        """Read a report that `save` wrote.

        Raises:
            ValueError: one sentence, when the file is damaged, of another kind or of a newer version.
        """
        content = read_document(path, kind=_FORMAT, version=_VERSION)
        try:
            return cls._decode(content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"`{path}` is damaged: {type(error).__name__} {error}.") from error

    @classmethod
    def _decode(cls, content: dict[str, Any]) -> AuditReport:
        weight, bias = decode_array(content["weight"]), decode_array(content["bias"])
        if weight is None or weight.ndim != 2 or content["mode"] not in ("sign", "top-k"):
            raise ValueError("no layer")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError("bias and weight do not fit")
        names = content["names"]
        if names is not None and len(names) != len(weight):
            raise ValueError(f"{len(names)} names do not fit {len(weight)} rows")
        sets = [_labels(entry["labels"], len(weight)) for entry in content["sets"]]
        decisions = [decode_decision(entry) for entry in content["sets"]]
        survives = {str(name): float(share) for name, share in content["survives"].items()}
        system = System(weight, bias, content["mode"], content["dft"])
        return cls(system, sets, decisions, names, survives)


def _labels(values: Sequence[int], num_labels: int) -> Indices:
    labels = np.array(values, dtype=np.int64)
    if labels.ndim != 1 or (len(labels) and not (labels.min() >= 0 and labels.max() < num_labels)):
        raise ValueError(f"labels {values} do not fit {num_labels} rows")
    return labels

"""Can a model's output layer ever answer with a set? The verdict, its proof in plain words, and the nearest set."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shortlist.audit.certificates import Combination, Decision, ExactWitness, Theorem, Witness
from shortlist.audit.decide import decide
from shortlist.audit.layer import read_system
from shortlist.audit.report import AuditReport
from shortlist.audit.run import single_threaded
from shortlist.audit.system import Mode, System
from shortlist.errors import InputError
from shortlist.formatting import format_count
from shortlist.serve.models import ServedModel
from shortlist.train.card.layer_audit import audited_layer

# The search for the nearest set ends after so many audits, or seconds.
_MOST_AUDITS, _MOST_SECONDS = 1000, 2.0
_NAMED = 6

Labels = tuple[int, ...]


class Nearest(NamedTuple):
    """A set that the layer can answer; ``proved`` says that none differs in fewer labels from the one asked for."""

    labels: Labels
    proved: bool


class Auditor:
    """Audits of the output layer of one model, which is read once for each mode.

    Args:
        model: the model.
    """

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._systems: dict[Mode, System] = {}
        self._lock = threading.Lock()

    def audit(self, labels: Sequence[int], *, mode: Mode = "top-k") -> dict[str, Any]:
        """The verdict on a set, its certificate in plain words, and the nearest set that the layer can answer.

        Args:
            labels: different numbers of labels, in any order.
            mode: ``top-k``, whether exactly these labels can have the largest scores, or ``sign``, whether exactly
                these can have positive ones.

        Raises:
            InputError: for a head without a matrix of all labels.
        """
        with self._lock, single_threaded():
            system = self._system(mode)
            wanted = tuple(sorted(labels))
            decision = decide_set(system, wanted)
            nearest = None if decision.verdict == "argmaxable" else nearest_set(system, wanted)
        names = self._model.labels
        added = [] if nearest is None else [names[label] for label in nearest.labels if label not in wanted]
        removed = [] if nearest is None else [names[label] for label in wanted if label not in nearest.labels]
        return {
            "verdict": decision.verdict,
            "mode": mode,
            "labels": [names[label] for label in wanted],
            "certificate": self._certificate(system, wanted, decision),
            "nearest": None
            if nearest is None
            else {
                "labels": [names[label] for label in nearest.labels],
                "added": added,
                "removed": removed,
                "proved": nearest.proved,
            },
        }

    def _system(self, mode: Mode) -> System:
        if mode not in self._systems:
            layer = audited_layer(self._model.saved.model.output_layer)
            if layer is None:
                raise InputError(f"`{self._model.name}` has a head of clusters, which has no matrix of all labels.")
            self._systems[mode] = read_system(layer, None, mode=mode, key=None, dft=None).prepare()
        return self._systems[mode]

    def _certificate(self, system: System, labels: Labels, decision: Decision) -> dict[str, Any]:
        found, names = decision.certificate, self._model.labels
        report = AuditReport(system, [_indices(labels)], [decision], None, {})
        inside = outside = ()
        if isinstance(found, Combination):
            involved = found.rows[found.rows < system.num_labels].tolist()
            inside = [names[label] for label in involved if label in labels]
            outside = [names[label] for label in involved if label not in labels]
        return {
            "kind": "none" if found is None else type(found).__name__,
            "words": explain(system, labels, decision, inside, outside),
            "inside": list(inside),
            "outside": list(outside),
            "verified": found is not None and not report.verify(),
        }


def decide_set(system: System, labels: Labels) -> Decision:
    """The verdict on one set."""
    return decide(system, _indices(labels), radius=False)


def nearest_set(
    system: System, wanted: Labels, *, most: int = _MOST_AUDITS, seconds: float = _MOST_SECONDS
) -> Nearest | None:
    """The set nearest to one that the layer cannot answer, by the number of labels added and removed.

    A combination of rows that vanishes rules out every set that agrees with it on these rows, so the answer changes at
    least one of its labels. Changing the heaviest one again and again leads to a set that the layer can answer; as many
    changes as possible are undone. Then sets with fewer changes are tried, one label of each combination after the
    other: if all are ruled out, or one is found, that proves the nearest set.
    """
    search = _Search(system, frozenset(wanted), most, time.monotonic() + seconds)
    found = [each for only_remove in (True, False) if (each := search.descend(only_remove=only_remove)) is not None]
    best = min(found, key=lambda each: len(each ^ search.first), default=None)
    better, proved = search.exhaust(None if best is None else len(best ^ search.first))
    best = best if better is None else better
    return None if best is None else Nearest(tuple(sorted(best)), proved)


class _Search:
    """A search among sets near ``first``, with so many audits until some time."""

    def __init__(self, system: System, first: frozenset[int], most: int, until: float) -> None:
        self.first, self._system, self._most, self._until = first, system, most, until
        self._known: dict[frozenset[int], Decision] = {}

    @property
    def _is_over(self) -> bool:
        return len(self._known) >= self._most or time.monotonic() > self._until

    def decide(self, labels: frozenset[int]) -> Decision:
        """The verdict on a set."""
        if labels not in self._known:
            self._known[labels] = decide_set(self._system, tuple(sorted(labels)))
        return self._known[labels]

    def involved(self, labels: frozenset[int]) -> list[int] | None:
        """The labels of which one must change, heaviest first; None without a combination that says so."""
        certificate = self.decide(labels).certificate
        if not isinstance(certificate, Combination):
            return None
        rows = certificate.rows[np.argsort(-certificate.weights)]
        return rows[rows < self._system.num_labels].tolist()

    def descend(self, *, only_remove: bool) -> frozenset[int] | None:
        """Change the heaviest label until the layer can answer, then undo what need not be changed."""
        current = self.first
        while self.decide(current).verdict != "argmaxable":
            changes = [
                label
                for label in self.involved(current) or sorted(current)
                if label not in current ^ self.first and (label in current or not only_remove)
            ]
            if not changes or self._is_over:
                return None
            current = current ^ {changes[0]}
        for label in sorted(current ^ self.first):
            if not self._is_over and self.decide(current ^ {label}).verdict == "argmaxable":
                current = current ^ {label}
        return current

    def exhaust(self, distance: int | None) -> tuple[frozenset[int] | None, bool]:
        """Try all sets with fewer than ``distance`` changes: the first that is found, and whether none is nearer."""
        waiting, seen, complete = deque([self.first]), {self.first}, True
        while waiting:
            current = waiting.popleft()
            changed = len(current ^ self.first)
            if distance is not None and changed >= distance:
                return None, complete
            if self._is_over:
                return None, False
            if self.decide(current).verdict == "argmaxable":
                return current, complete
            rows = self.involved(current)
            complete = complete and rows is not None
            for label in rows or ():
                if (following := current ^ {label}) not in seen:
                    seen.add(following)
                    waiting.append(following)
        return None, complete


def explain(system: System, labels: Labels, decision: Decision, inside: Sequence[str], outside: Sequence[str]) -> str:
    """What a certificate says, for readers who do not know the method."""
    found, goal = decision.certificate, _goal(system.mode, len(labels))
    if isinstance(found, Witness | ExactWitness):
        exact = "in exact arithmetic" if isinstance(found, ExactWitness) else "rounding included"
        return (
            f"There are features for which {goal}. They were found, and the scores of all {system.num_labels:,} labels "
            f"were computed from them and checked, {exact}. Whether an input leads to such features is not known."
        )
    if isinstance(found, Combination):
        return f"There are no features for which {goal}. {_balance(system.mode, inside, outside)}"
    if isinstance(found, Theorem):
        runs, most = format_count(found.sign_changes // 2, "run"), found.k
        can = "so there are" if decision.verdict == "argmaxable" else "so there are no"
        return (
            f"The labels of the set form {runs} of neighbors in the order of the labels. The layer's Fourier columns "
            f"of degree {most} separate up to {most}, {can} features for which {goal}. This holds for exact numbers; "
            "rounding may prevent it."
        )
    return f"Neither such features nor a proof that there are none were found: {decision.reason or 'unknown'}."


def _goal(mode: Mode, size: int) -> str:
    if mode == "top-k":
        if size == 0:
            return "no label is above a threshold"
        return f"exactly {'this label scores' if size == 1 else f'these {size} labels score'} above all others"
    if size == 0:
        return "all labels get negative scores"
    which = "this label gets a positive score" if size == 1 else f"these {size} labels get positive scores"
    return f"exactly {which}, and all others negative ones"


def _balance(mode: Mode, inside: Sequence[str], outside: Sequence[str]) -> str:
    """Why scores that the layer ties to each other cannot be on opposite sides."""
    if not inside or not outside:
        side = "positive" if inside else "negative"
        return f"Whatever the input, the scores of {_listed(inside or outside)} are not all {side}."
    what, end = (
        ("average", "be above the latter") if mode == "top-k" else ("sum", "be positive and the latter negative")
    )
    return (
        f"The layer ties the scores of some labels together: whatever the input, a weighted {what} of the scores of "
        f"{_listed(inside)} is never larger than a weighted {what} of those of {_listed(outside)}, which are not in "
        f"the set. So the former cannot all {end}."
    )


def _listed(names: Sequence[str]) -> str:
    shown = [f"“{name}”" for name in names[:_NAMED]]
    if len(names) > _NAMED:
        return f"{', '.join(shown)} and {len(names) - _NAMED} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _indices(labels: Labels) -> Any:
    return np.array(labels, dtype=np.int64)

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
_MOST_AUDITS, _MOST_SECONDS = 400, 4.0
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
    least one of its labels. Breadth first, the search changes one after the other, and proves the nearest set.
    Where that would take too long, labels are ranked by the scores that the rows of the set have in common.
    """
    until, waiting, seen = time.monotonic() + seconds, deque([frozenset(wanted)]), {frozenset(wanted)}
    first, audits, complete = frozenset(wanted), 0, True
    while waiting and audits < most and time.monotonic() < until:
        current = waiting.popleft()
        decision = decide_set(system, tuple(sorted(current)))
        audits += 1
        if decision.verdict == "argmaxable" and current != first:
            return Nearest(tuple(sorted(current)), complete)
        if not isinstance(decision.certificate, Combination):
            complete = False  # Nothing tells which labels to change.
            continue
        rows = decision.certificate.rows[np.argsort(-decision.certificate.weights)]
        for label in rows[rows < system.num_labels].tolist():
            changed = current ^ {label}
            if changed not in seen:
                seen.add(changed)
                waiting.append(changed)
    return _ranked(system, wanted)


def _ranked(system: System, wanted: Labels) -> Nearest | None:
    """The best labels for the least-squares features of the set: of the sets of such labels, the nearest one."""
    signs = system.signs(_indices(wanted))
    emphasis = max(2.0, 0.1 * len(signs) / max(1, len(wanted)))
    features = np.where(signs > 0, emphasis - 1.0, -1.0) @ system.least_squares
    order = np.argsort(-(system.unit @ features))
    order = order[order < system.num_labels]
    hits = np.isin(order, wanted).cumsum()
    sizes = np.arange(1, len(order) + 1)
    # Removed labels are those not reached, added ones those that are reached and not wanted.
    for at in np.argsort(len(wanted) + sizes - 2 * hits, kind="stable")[:8].tolist():
        labels = tuple(sorted(order[: at + 1].tolist()))
        if decide_set(system, labels).verdict == "argmaxable":
            return Nearest(labels, False)
    return None


def explain(system: System, labels: Labels, decision: Decision, inside: Sequence[str], outside: Sequence[str]) -> str:
    """What a certificate says, for readers who do not know the method."""
    found, top = decision.certificate, system.mode == "top-k"
    goal = "score above all others" if top else "get positive scores, and all others negative ones"
    these = (
        "no label" if not labels else f"exactly {'this label' if len(labels) == 1 else f'these {len(labels)} labels'}"
    )
    if isinstance(found, Witness | ExactWitness):
        exact = ", in exact arithmetic" if isinstance(found, ExactWitness) else ", rounding included"
        return (
            f"There are features for which {these} {goal}. They were found, and the scores of all "
            f"{system.num_labels:,} labels were computed from them and checked{exact}. Whether inputs lead to such "
            "features is not known."
        )
    if isinstance(found, Combination):
        return f"No features at all make {these} {goal}. {_balance(top, inside, outside)}"
    if isinstance(found, Theorem):
        runs, most = found.sign_changes // 2, found.k
        can = decision.verdict == "argmaxable"
        return (
            f"The labels of the set form {format_count(runs, 'run')} of neighbors in the order of the labels. The "
            f"layer's Fourier columns of degree {most} can separate up to {most} runs, so {these} "
            f"{'can' if can else 'can never'} {goal}. This holds for exact numbers; rounding may prevent it."
        )
    return f"Neither a proof nor features were found: {decision.reason or 'the search gave up'}."


def _balance(top: bool, inside: Sequence[str], outside: Sequence[str]) -> str:
    """Why scores that are tied to each other cannot be on opposite sides."""
    if not inside or not outside:
        which = _listed(inside or outside)
        side = "positive" if inside else "negative"
        return f"The layer ties the scores of {which} together: whatever the input, they are not all {side}."
    what = "average" if top else "sum"
    return (
        f"The layer ties labels together: whatever the input, a fixed weighted {what} of the scores of "
        f"{_listed(inside)} is never larger than one of the scores of {_listed(outside)}, which are not in the set. "
        f"So the former cannot all {'be above' if top else 'be positive and'} the latter"
        f"{'.' if top else ' all negative.'}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = [f"“{name}”" for name in names[:_NAMED]]
    if len(names) > _NAMED:
        return f"{', '.join(shown)} and {len(names) - _NAMED} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _indices(labels: Labels) -> Any:
    return np.array(labels, dtype=np.int64)

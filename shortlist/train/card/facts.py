"""What a model card states beyond the model's own files: data, figures with intervals, measured sets, and an audit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shortlist import __version__
from shortlist.data import Dataset
from shortlist.data.target_rows import label_pairs
from shortlist.extras import require
from shortlist.metrics.accuracy import FEW
from shortlist.train.card.layer_audit import audit_layer
from shortlist.train.evaluation import Evaluation
from shortlist.train.inputs import is_one_class
from shortlist.train.model.plan import SetModel
from shortlist.typed_json import Count, Fraction, Record

if TYPE_CHECKING:
    from shortlist.audit import AuditReport

_MOST_NAMED = 5
# Neither a mean over rows nor a share, so the interval of a share does not apply.
_WITHOUT_INTERVAL = ("map", "average_size")


@dataclass(frozen=True)
class DataFacts(Record):
    """The data: ``rows`` by part; how many labels have no training row, some of them, and how many have few.

    ``changed`` says that training labels were changed on purpose; the figures are about the true ones.
    """

    name: str
    one_class: bool
    labels: Count
    labels_per_row: float
    rows: dict[str, Count]
    unseen: Count
    unseen_names: list[str]
    rare: Count
    changed: bool


@dataclass(frozen=True)
class Figure(Record):
    """A metric with its 95% interval, None where there is none."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class SetFacts(Record):
    """What the sets of a rule are like on rows that it was not fitted on.

    ``rule`` is the digest of the rule's file: figures of a former rule say nothing about a new one. ``coverage`` is the
    share of a row's true labels in its set, averaged over rows.
    """

    rule: str
    fitted_on: str
    coverage: Fraction
    low: Fraction
    high: Fraction
    average_size: float
    empty: Fraction


@dataclass(frozen=True)
class AuditFacts(Record):
    """An audit of the output layer: ``sets`` of the ``distinct`` label sets of ``data`` were decided.

    ``digest`` is that of the certificates, which `AuditReport.digest` computes again; ``impossible`` names some sets.
    """

    mode: str
    data: str
    sets: Count
    distinct: Count
    argmaxable: Count
    unargmaxable: Count
    undecided: Count
    digest: str
    impossible: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class CardFacts(Record):
    """What a card states beyond the model's own files.

    ``parameters`` is the digest of the measured parameters; ``part`` and ``rows`` tell the measured rows. Without an
    audit, ``not_audited`` says why there is none.
    """

    parameters: str
    made_by: str
    data: DataFacts
    part: str
    rows: Count
    figures: list[Figure]
    sets: SetFacts | None
    audit: AuditFacts | None = None
    not_audited: str | None = None


class Measured(NamedTuple):
    """The facts of a card, whose digests `save_model` fills in, and the report of the audit, if there is one."""

    facts: CardFacts
    report: AuditReport | None


def measured(
    model: SetModel,
    dataset: Dataset,
    evaluation: Evaluation,
    *,
    part: str = "test",
    most_sets: int | None = None,
) -> Measured:
    """Collect what a card states about a model and its data.

    Args:
        model: that was evaluated.
        dataset: with its parts.
        evaluation: of the model on ``part``.
        part: which part.
        most_sets: audit up to this many label sets, whatever it takes; by default as many as are decided in a moment.
    """
    rows = dataset.part(part)
    found = audit_layer(model, rows, most_sets=most_sets)
    counted = _rows_with_labels(rows)
    facts = CardFacts(
        parameters="",
        made_by=__version__,
        data=_data(dataset),
        part=part,
        rows=len(rows),
        figures=_figures(evaluation.values, counted),
        sets=_sets(evaluation, counted),
        audit=None if found.report is None else audit_facts(found.report, data=part, distinct=found.distinct),
        not_audited=found.reason,
    )
    return Measured(facts, found.report)


def audit_facts(report: AuditReport, *, data: str, distinct: int) -> AuditFacts:
    """Summarize an audit.

    Args:
        report: in the mode of the audit.
        data: whose label sets were audited.
        distinct: how many there are.
    """
    return AuditFacts(
        mode=report.system.mode,
        data=data,
        sets=len(report),
        distinct=distinct,
        **report.counts(),
        digest=report.digest(),
        impossible=impossible_sets(report, _MOST_NAMED),
    )


def impossible_sets(report: AuditReport, most: int) -> list[list[str]]:
    """The names of the labels of some sets that can never be answered."""
    found = [index for index in report.worst(most) if report.verdicts[index] == "unargmaxable"]
    return [report.labels_of(index) for index in found]


def share_interval(share: float, rows: int) -> tuple[float, float]:
    """The 95% interval of a share, by Clopper and Pearson.

    It also holds a mean over rows of values in [0, 1], such as precision, and then it is on the safe side: no values
    with this mean vary more than zeros and ones.

    Example:
        >>> [round(end, 3) for end in share_interval(0.0, 10)], [round(end, 3) for end in share_interval(0.25, 100)]
        ([0.0, 0.308], [0.169, 0.347])
    """
    inverse = require("scipy.special", extra="train").betaincinv
    hits = min(max(share, 0.0), 1.0) * rows
    misses = rows - hits
    low = float(inverse(hits, misses + 1, 0.025)) if hits > 0 else 0.0
    high = float(inverse(hits + 1, misses, 0.975)) if misses > 0 else 1.0
    return low, high


def _data(dataset: Dataset) -> DataFacts:
    split, counts = dataset.split, dataset.label_counts("train")
    unseen = (counts == 0).nonzero().squeeze(-1)
    return DataFacts(
        name=dataset.name or "data",
        one_class=is_one_class(dataset),
        labels=dataset.num_labels,
        labels_per_row=int(dataset.label_counts().sum()) / max(len(dataset), 1),
        rows={} if split is None else dict(zip(split.names, split.counts().tolist(), strict=True)),
        unseen=len(unseen),
        unseen_names=[str(dataset.label_names[label]) for label in unseen[:_MOST_NAMED].tolist()],
        rare=int(((counts > 0) & (counts < FEW)).sum()),
        changed=dataset.clean_targets is not None,
    )


def _figures(values: Mapping[str, float], rows: int) -> list[Figure]:
    found = []
    for name, value in values.items():
        if not math.isfinite(value):  # No row of the part has a label.
            continue
        ends = (None, None) if name in _WITHOUT_INTERVAL else share_interval(value, rows)
        found.append(Figure(name, value, *ends))
    return found


def _sets(evaluation: Evaluation, rows: int) -> SetFacts | None:
    sets = evaluation.sets
    if not math.isfinite(sets.coverage):
        return None
    low, high = share_interval(sets.coverage, rows)
    return SetFacts("", "val", sets.coverage, low, high, sets.average_size, sets.empty)


def _rows_with_labels(rows: Dataset) -> int:
    """How many rows count in the metrics: those with a known positive label."""
    at, _, present = label_pairs(rows.true_targets, rows.num_labels)
    return len(at[present].unique())

"""The document of a comparison, ``comparison.json``, written by `shortlist.train` and read by `shortlist.report`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from warnings import warn

from shortlist.errors import InputError
from shortlist.files import read_document, replacing
from shortlist.typed_json import Count, Fraction, NotEmpty, Positive, Range, Record, damaged, decode, encode, shown

FORMAT = "shortlist comparison"
VERSION = 2
FILE_NAME = "comparison.json"

Task = Literal["one class", "sets"]
Better = Literal["lower", "higher"]
Question = Literal["rule", "loss", "head"]
"""What a comparison is about: how scores become sets, which loss trains them, or which output layer."""


@dataclass(frozen=True)
class ErrorCurves(Record):
    """Error of each set rule by average set size; ``errors[rule]`` is as long as ``sizes``."""

    sizes: list[float]
    errors: dict[str, list[Fraction | None]]


@dataclass(frozen=True)
class SizeResult(Record):
    """The sets of one requested average size K.

    ``error`` is the error of the average-K rule, and ``top_error`` that of the top-K rule, None for a fractional K. The
    histogram counts rows by set size: all rows under ``all``, and under each shot group those whose rarest label is in
    it.
    """

    average_size: float
    error: Fraction
    empty: Fraction
    top_error: Fraction | None
    error_by_shot: dict[str, Fraction | None]
    top_error_by_shot: dict[str, Fraction | None] | None
    histogram: dict[str, list[float]]


@dataclass(frozen=True)
class ClassAccuracy(Record):
    """Number of training rows of each label, and how often the sets of its rows contain it; None without such rows."""

    count: list[Count]
    accuracy: list[Fraction | None]


@dataclass(frozen=True)
class Confusion(Record):
    """A label that is no true one and outranks a true one, and in what share of the rows of that one."""

    label: str
    share: Fraction


@dataclass(frozen=True)
class LabelSets(Record):
    """The sets of the rows of single labels, in the order of the document's ``labels``.

    ``recall`` and ``size`` have one list for each K of the document: how often these sets contain the label, and how
    large they are on average. ``confused`` lists what most often outranks it.
    """

    recall: list[list[Fraction]]
    size: list[list[float]]
    confused: list[list[Confusion]]


@dataclass(frozen=True)
class CalibrationBin(Record):
    """Mean predicted probability and observed frequency of the (row, label) pairs in a bin."""

    predicted: float | None
    observed: float | None
    pairs: Count


@dataclass(frozen=True)
class Calibration(Record):
    """A reliability diagram with its error, and the usual measures, which older documents lack.

    ``top_error`` and ``adaptive_error`` are expected calibration errors of the best label, in bins of equal width and
    of equal mass. ``brier`` is the mean over all known labels.
    """

    bins: list[CalibrationBin]
    error: float | None
    top_error: float | None = None
    adaptive_error: float | None = None
    brier: float | None = None


@dataclass(frozen=True)
class ErrorControl(Record):
    """Conformal sets, calibrated on the validation rows to miss a share ``alpha`` of the true labels.

    ``error`` is the share that they miss in the evaluated rows.
    """

    alpha: Fraction
    error: Fraction
    average_size: float


@dataclass(frozen=True)
class RuleFigures(Record):
    """A rule on validation rows that it was not fitted on: labels per row, and the share of true labels it misses.

    ``worst_class`` is the share in the class that is missed most, None if every class has few rows.
    """

    rule: str
    size: float
    missed: Fraction
    worst_class: Fraction | None


@dataclass(frozen=True)
class RuleAdvice(Record):
    """Which rule to take for a goal, why, and how the others did."""

    goal: str
    best: str
    reason: str
    rules: list[RuleFigures]


@dataclass(frozen=True)
class GroupAnswers(Record):
    """Answers that name one label or one group of labels each, and the sets of K labels on average by their groups.

    Attributes:
        groups: the kinds of groups, from the coarsest.
        alpha, error: how often the true label may be outside of the named node, and how often it is.
        named: the share of answers by what they name.
        precision, recall: hierarchical, of the sets of K labels on average.
    """

    groups: list[str]
    alpha: Fraction
    error: Fraction
    named: dict[str, Fraction]
    precision: Fraction | None
    recall: Fraction | None


@dataclass(frozen=True)
class SetFindings(Record):
    """What a report shows about one score matrix; ``by_k`` has one entry for each K of the document.

    ``recalibrated`` is the calibration after temperature scaling on the validation rows.
    """

    curves: ErrorCurves
    by_k: list[SizeResult]
    classes: ClassAccuracy
    calibration: Calibration
    error_control: ErrorControl | None = None
    labels: LabelSets | None = None
    recalibrated: Calibration | None = None
    advice: list[RuleAdvice] = field(default_factory=list)
    groups: GroupAnswers | None = None


@dataclass(frozen=True)
class AuditCounts(Record):
    """Audited label sets of one size."""

    size: Count
    argmaxable: Count
    unargmaxable: Count
    undecided: Count


@dataclass(frozen=True)
class AuditSummary(Record):
    """How many label sets of the evaluated rows a model can never output; ``worst`` names some of them.

    ``features`` is the width of the audited layer, and ``parameters`` counts what it learns.
    """

    mode: Literal["sign", "top-k"]
    sets: Count
    argmaxable: Count
    unargmaxable: Count
    undecided: Count
    labels: Count
    features: Count
    by_size: list[AuditCounts]
    worst: list[list[str]]
    seconds: float | None = None
    parameters: Count | None = None


@dataclass(frozen=True)
class Answer(Record):
    """The best labels of a row with their scores, and the size of its set for each K of the document."""

    labels: list[str]
    scores: list[float | None]
    sizes: list[Count]


@dataclass(frozen=True, kw_only=True)
class RunResult(Record):
    """What every run reports: the selected epoch, its duration, its metrics by epoch, and its sets."""

    best_epoch: float | None
    seconds: float | None
    monitor: str | None
    history: list[dict[str, float | None]]
    sets: SetFindings


@dataclass(frozen=True, kw_only=True)
class Run(RunResult):
    """A run in the document; ``values`` by metric."""

    seed: Count
    values: dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class RunDetails(RunResult):
    """A finished run as stored in its folder; ``answers`` are the predictions for the example rows."""

    values: dict[str, float]
    loss: str
    answers: list[Answer]
    audit: AuditSummary | None


@dataclass(frozen=True)
class MeanInterval(Record):
    """Mean over seeds and half the width of its 95% interval; None with one seed."""

    mean: float | None
    half_width: float | None


@dataclass(frozen=True)
class Tie(Record):
    """A candidate that cannot be told from the best one.

    ``difference`` is its mean difference to the best, paired by seed; ``seeds`` is how many seeds would tell the two
    apart if differences kept varying like this, None for more than 100 or if one seed says nothing about that.
    """

    name: str
    difference: MeanInterval
    seeds: Count | None


@dataclass(frozen=True)
class Standing(Record):
    """The best candidate in a metric, and those that cannot be told from it."""

    metric: str
    best: str
    value: MeanInterval
    ties: list[Tie]


@dataclass(frozen=True)
class Trial(Record):
    """A short training in the search for a learning rate; ``score`` is None if it diverged."""

    learning_rate: Positive
    weight_decay: Annotated[float, Range(low=0)]
    rows: Count
    epochs: Count
    score: float | None


@dataclass(frozen=True)
class Tuning(Record):
    """The learning rate and weight decay that were found on validation rows, by the metric ``monitor``, and how."""

    monitor: str
    learning_rate: Positive
    weight_decay: Annotated[float, Range(low=0)]
    trials: Annotated[list[Trial], NotEmpty()]


@dataclass(frozen=True)
class Candidate(Record):
    """One way to train.

    ``intervals`` by metric; ``audit`` of the first seed's model; ``differences`` to the baseline of the document by
    metric, paired by seed; ``recipe`` is None if unknown, ``tuning`` if the learning rate was
    given.
    """

    about: str
    options: dict[str, Any]
    intervals: dict[str, MeanInterval]
    runs: Annotated[list[Run], NotEmpty()]
    audit: AuditSummary | None
    recipe: str | None = None
    differences: dict[str, MeanInterval] = field(default_factory=dict)
    tuning: Tuning | None = None


@dataclass(frozen=True)
class TextInput(Record):
    """An example's text."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class ImageInput(Record):
    """An example's image, as PNG in base64."""

    png: str
    kind: Literal["image"] = "image"


@dataclass(frozen=True)
class FeatureInput(Record):
    """An example's first features."""

    values: list[float | None]
    kind: Literal["features"] = "features"


ExampleInput = TextInput | ImageInput | FeatureInput


@dataclass(frozen=True)
class Example(Record):
    """A row of the evaluated part, its true labels and the answer of each candidate.

    ``rarest`` has the training rows of its rarest true label, if it has one.
    """

    row: Count
    input: ExampleInput
    truth: list[str]
    answers: dict[str, Answer]
    rarest: Count | None = None


@dataclass(frozen=True)
class Provenance(Record):
    """Versions, date, duration in seconds and number of threads."""

    shortlist: str
    torch: str
    python: str
    date: str
    seconds: float
    threads: Count | None = None


@dataclass(frozen=True)
class ShotGroup(Record):
    """Labels with a similar number of training rows, and the evaluated rows whose rarest label is one of them."""

    name: str
    about: str
    labels: Count
    rows: Count


@dataclass(frozen=True)
class DataSummary(Record):
    """The data: ``parts`` has the rows of each part, ``evaluated`` is the part that was evaluated."""

    name: str
    kind: str
    task: Task
    labels: Count
    labels_per_row: float
    parts: dict[str, Count]
    evaluated: str
    shots: list[ShotGroup]


@dataclass(frozen=True)
class LabelRows(Record):
    """A label, and how many training rows and evaluated rows have it."""

    name: str
    training: Count
    evaluated: Count


@dataclass(frozen=True)
class MetricInfo(Record):
    """A metric and whether lower or higher values are better; None if neither is."""

    name: str
    better: Better | None


@dataclass(frozen=True)
class Optimum(Record):
    """What the true probabilities achieve."""

    values: dict[str, float | None]
    sets: SetFindings


@dataclass(frozen=True)
class ComparisonDocument(Record):
    """Everything that a report shows about a comparison.

    Attributes:
        made, commands: how the document was created, and the commands to reproduce it.
        data: the data.
        k, ks: the requested average set size, and all sizes that were evaluated, ascending; ``k`` is one of them.
        target, metrics: the deciding metric, and all metrics.
        best: for each metric, the best candidate and those that do not differ significantly from it.
        optimum: the optimum under the true probabilities, if known.
        candidates: by name.
        examples: some rows with all answers.
        title: the user's name for the comparison; None for that of the data.
        questions: what the page shows about the comparison at its top; empty for all that it answers.
        baseline: the candidate with the usual loss, cross-entropy or BCE, that the others are compared with, if any.
        labels: the most frequent labels of the evaluated rows, which the `LabelSets` of every run are about.
        standings: who is best in the target; if that is an error at K, one entry for each K of ``ks``, else one.
    """

    made: Provenance
    commands: list[str]
    data: DataSummary
    k: Positive
    ks: Annotated[list[Positive], NotEmpty()]
    target: str
    metrics: Annotated[list[MetricInfo], NotEmpty()] = field(metadata={"key": "figures"})
    best: dict[str, Annotated[list[str], NotEmpty()]]
    optimum: Optimum | None
    candidates: Annotated[dict[str, Candidate], NotEmpty()]
    examples: list[Example]
    title: str | None = None
    questions: list[Question] = field(default_factory=list)
    baseline: str | None = None
    labels: list[LabelRows] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"format": FORMAT, "version": VERSION, **encode(self)}

    @classmethod
    def from_json(cls, content: Any, *, file: str | Path = FILE_NAME) -> ComparisonDocument:
        """Check the content of a file and build the document; see `read_comparison`."""
        document = decode(cls, content, file=file)
        _check_names(document, file)
        _check_lengths(document, file)
        return document


def run_folder(name: str, seed: int) -> str:
    """Return the folder of a run, beside the document, in which its model is saved."""
    return f"{name}-{seed}"


def comparison_file(path: str | Path) -> Path:
    """Return the path of the document in a folder; any other path is the document itself.

    Raises:
        InputError: if the path does not exist or the folder contains no document.
    """
    path = Path(path)
    if path.is_dir():
        file = path / FILE_NAME
        if not file.is_file():
            raise InputError(f"`{path}` holds no {FILE_NAME}; `shortlist compare --output {path}` writes one.")
        return file
    if not path.exists():
        raise InputError(f"`{path}` does not exist.")
    return path


def read_comparison(path: str | Path) -> ComparisonDocument:
    """Read a document and check all of it.

    Args:
        path: the folder that ``shortlist compare --output`` wrote, or the ``comparison.json`` in it.

    Raises:
        InputError: if a value is missing, has the wrong type, is out of range, or contradicts the rest of the document;
            or if the file is not a comparison of this version. The message names the file and the path of the value.
    """
    file = comparison_file(path)
    return ComparisonDocument.from_json(read_document(file, kind=FORMAT, version=VERSION), file=file)


def write_comparison(document: ComparisonDocument | Mapping[str, Any], folder: str | Path) -> Path:
    """Write a document as ``comparison.json`` in a folder, atomically."""
    path = Path(folder) / FILE_NAME
    if not isinstance(document, ComparisonDocument):
        warn("Pass a `ComparisonDocument`, not a dict.", DeprecationWarning, stacklevel=2)
        document = ComparisonDocument.from_json(document, file=path)
    with replacing(path) as partial:
        partial.write_text(json.dumps(document.to_json(), allow_nan=False))
    return path


def _check_names(document: ComparisonDocument, file: str | Path) -> None:
    """Check that names of metrics, candidates and parts refer to existing ones."""

    def known(name: str, names: Iterable[str], path: str) -> None:
        if name not in (names := list(names)):
            raise damaged(file, path, f"names {shown(name)}, which is not among {', '.join(names[:12])}")

    metrics = [metric.name for metric in document.metrics]
    known(document.target, metrics, "target")
    for metric, names in document.best.items():
        known(metric, metrics, "best")
        for name in names:
            known(name, document.candidates, f"best.{metric}")
    if document.target not in document.best:
        raise damaged(file, f"best.{document.target}", "is missing")
    for name, candidate in document.candidates.items():
        for metric in metrics:
            path = f"candidates.{name}.intervals.{metric}"
            if metric not in candidate.intervals:
                raise damaged(file, path, "is missing")
            if name in document.best.get(metric, ()) and candidate.intervals[metric].mean is None:
                raise damaged(file, f"{path}.mean", "must be a number; it is among the best")
    for index, example in enumerate(document.examples):
        for name in example.answers:
            known(name, document.candidates, f"examples[{index}].answers")
    if document.baseline is not None:
        known(document.baseline, document.candidates, "baseline")
    known(document.data.evaluated, document.data.parts, "data.evaluated")
    for index, standing in enumerate(document.standings):
        for name in (standing.best, *(tie.name for tie in standing.ties)):
            known(name, document.candidates, f"standings[{index}]")


def _check_lengths(document: ComparisonDocument, file: str | Path) -> None:
    """Check that parallel lists have the same length."""

    def same(entries: list[Any], others: list[Any], path: str, other: str) -> None:
        if len(entries) != len(others):
            raise damaged(file, path, f"must be as long as {other}, {len(others)}; got {len(entries)}")

    ks, labels = document.ks, document.data.labels
    if len(document.standings) > 1:
        same(document.standings, ks, "standings", "ks")
    if document.k not in ks:
        raise damaged(file, "ks", f"must contain k, {document.k}")
    if ks != sorted(set(ks)):
        raise damaged(file, "ks", "must be ascending")
    found = {} if document.optimum is None else {"optimum.sets": document.optimum.sets}
    for name, candidate in document.candidates.items():
        found |= {f"candidates.{name}.runs[{i}].sets": run.sets for i, run in enumerate(candidate.runs)}
    for path, sets in found.items():
        same(sets.by_k, ks, f"{path}.by_k", "ks")
        for rule, errors in sets.curves.errors.items():
            same(errors, sets.curves.sizes, f"{path}.curves.errors.{rule}", f"{path}.curves.sizes")
        for key, values in (("count", sets.classes.count), ("accuracy", sets.classes.accuracy)):
            if len(values) != labels:
                rule = f"must have one entry for each of {labels} labels; got {len(values)}"
                raise damaged(file, f"{path}.classes.{key}", rule)
        if sets.labels is not None:
            for key in ("recall", "size"):
                by_k = getattr(sets.labels, key)
                same(by_k, ks, f"{path}.labels.{key}", "ks")
                for index, values in enumerate(by_k):
                    same(values, document.labels, f"{path}.labels.{key}[{index}]", "labels")
            same(sets.labels.confused, document.labels, f"{path}.labels.confused", "labels")
        for index, entry in enumerate(sets.by_k):
            if "all" not in entry.histogram:
                raise damaged(file, f"{path}.by_k[{index}].histogram.all", "is missing")
    for index, example in enumerate(document.examples):
        for name, answer in example.answers.items():
            path = f"examples[{index}].answers.{name}"
            same(answer.scores, answer.labels, f"{path}.scores", "labels")
            same(answer.sizes, ks, f"{path}.sizes", "ks")

"""The tables of a comparison as the page shows them: metrics, sets at every K, settings, rules and groups of labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from shortlist.comparison_document import (
    Candidate,
    ComparisonDocument,
    GroupAnswers,
    MetricInfo,
    RuleAdvice,
    SetFindings,
)
from shortlist.formatting import format_duration, format_number, format_percent
from shortlist.report.comparison.cards import error_at_size
from shortlist.report.comparison.winners import MetricFormat, listed, mean_of_known, metric_title, shown_name

_BEST, _TIE = "★", "☆"
MARKS = {_BEST: "best", _TIE: "not significantly different from the best"}
"""The marks of cells, in words."""


class Column(NamedTuple):
    """The head of a column; ``target`` marks the deciding metric."""

    title: str
    details: str
    target: bool


class Cell(NamedTuple):
    """A value; ``gap`` is its distance to the optimum."""

    text: str
    sort_value: str
    mark: str
    gap: str


class Row(NamedTuple):
    """A candidate: its name, breakable after each part, and what it is."""

    name_parts: list[str]
    about: str
    cells: list[Cell]


class Table(NamedTuple):
    """The metrics of all candidates."""

    about: str
    columns: list[Column]
    rows: list[Row]
    optimum: list[str] | None


class CandidateTable(NamedTuple):
    """Figures of candidates, means over seeds: each row has a name and one cell for each column."""

    about: str
    columns: list[str]
    rows: list[list[str]]


class TableAtK(NamedTuple):
    """The sets of each candidate, and of the optimum; each cell has a text for every K."""

    columns: list[Column]
    rows: list[list[list[str]]]
    optimum: list[list[str]] | None


def comparison_table(document: ComparisonDocument) -> Table:
    """The table of metrics, with marks for the best and its ties."""
    formats = {metric.name: MetricFormat(document, metric.name) for metric in document.metrics}
    columns = [_column(metric, formats[metric.name], document.target) for metric in document.metrics]
    rows = [_row(document, name, formats) for name in document.candidates]
    optimum = None
    if document.optimum is not None:
        optimum = [each.value(document.optimum.values.get(name)) for name, each in formats.items()]
    return Table(_about_table(document), columns, rows, optimum)


def calibration_table(document: ComparisonDocument) -> CandidateTable | None:
    """The usual measures of calibration before and after temperature scaling; None for older documents."""
    measures = {"ECE": "top_error", "adaptive ECE": "adaptive_error", "Brier score": "brier"}
    rows = []
    for name, candidate in document.candidates.items():
        stages = zip(*((run.sets.calibration, run.sets.recalibrated) for run in candidate.runs), strict=True)
        means = [
            [_mean([getattr(each, field, None) for each in stage]) for field in measures.values()] for stage in stages
        ]
        rows.append([name, *(" → ".join(pair) for pair in zip(*means, strict=True))])
    if all(cell == "– → –" for row in rows for cell in row[1:]):
        return None
    about = (
        "As trained → after temperature scaling on the validation rows; 0 is best. ECE compares the probability of the "
        "best label with how often it is true, in 15 bins of equal width, or (adaptive) with equally many rows. The "
        "Brier score is the mean squared error of all probabilities."
    )
    return CandidateTable(about, list(measures), rows)


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return format_number(sum(known) / len(known)) if known else "–"


def _about_table(document: ComparisonDocument) -> str:
    seeds = max(len(candidate.runs) for candidate in document.candidates.values())
    sentences = ["Mean over seeds ± half-width of its 95% interval." if seeds > 1 else "One seed per candidate."]
    sentences.append(f"Measured on {document.data.parts[document.data.evaluated]:,} rows that no model was trained on.")
    if len(document.candidates) > 1:
        ties = any(len(names) > 1 for names in document.best.values())
        tie = f"; {_TIE} does not differ significantly from it" if ties else ""
        sentences.append(f"{_BEST} is the best of its column{tie}.")
    directions = {metric.better for metric in document.metrics}
    arrows = {"lower": "↓ lower is better.", "higher": "↑ higher is better."}
    sentences += [words for direction, words in arrows.items() if direction in directions]
    if document.optimum is not None:
        sentences.append("Small numbers: the distance to the optimum, which knows the exact probabilities.")
    return " ".join(sentences)


def _column(metric: MetricInfo, wording: MetricFormat, target: str) -> Column:
    arrow = {"lower": "↓", "higher": "↑", None: ""}[metric.better]
    unit = wording.unit or ("labels" if metric.name == "average_size" else "")
    details = ["target"] if metric.name == target else []
    details += [f"{unit} {arrow}".strip()] if unit or arrow else []
    return Column(metric_title(metric.name), " · ".join(details), metric.name == target)


def _row(document: ComparisonDocument, name: str, formats: dict[str, MetricFormat]) -> Row:
    candidate = document.candidates[name]
    cells = []
    for metric, wording in formats.items():
        interval, best = candidate.intervals[metric], document.best.get(metric, [])
        mark = "" if len(document.candidates) == 1 or name not in best else _BEST if name == best[0] else _TIE
        optimum = None if document.optimum is None else document.optimum.values.get(metric)
        gap = ""
        if optimum is not None and interval.mean is not None and metric != "average_size":
            gap = wording.difference(interval.mean - optimum)
        sort_value = "" if interval.mean is None else repr(float(interval.mean))
        cells.append(Cell(wording.interval(interval.mean, interval.half_width), sort_value, mark, gap))
    about = "" if candidate.about.removeprefix("loss ") == shown_name(name) else shown_name(candidate.about)
    if candidate.recipe is not None and len(recipes(document)) > 1:
        about = f"{about}, recipe {candidate.recipe}".removeprefix(", ")
    # Long names may break after underscores.
    parts = shown_name(name).split("_")
    return Row([f"{part}_" for part in parts[:-1]] + parts[-1:], about, cells)


def recipes(document: ComparisonDocument) -> list[str]:
    """The recipes by which the candidates were trained, in their order; older documents do not name them."""
    found = (candidate.recipe for candidate in document.candidates.values())
    return list(dict.fromkeys(shown_name(recipe) for recipe in found if recipe is not None))


_AT_K = (
    Column("labels per answer", "on average", False),
    Column("missing", "fitted threshold · % ↓", False),
    Column("missing at equal size", "exactly K on average · % ↓", False),
    Column("missing with K each", "the best K labels · % ↓", False),
    Column("no answer", "empty sets · %", False),
)


def table_at_k(document: ComparisonDocument) -> TableAtK:
    """Achieved sizes, and errors with the fitted threshold and at equal size, for every K."""
    found = [[run.sets for run in each.runs] for each in document.candidates.values()]
    optimum = None if document.optimum is None else _cells_at_k(document, [document.optimum.sets])
    return TableAtK(list(_AT_K), [_cells_at_k(document, sets) for sets in found], optimum)


def _cells_at_k(document: ComparisonDocument, sets: list[SetFindings]) -> list[list[str]]:
    columns: list[list[float | None]] = [[], [], [], [], []]
    for at, k in enumerate(document.ks):
        results = [each.by_k[at] for each in sets]
        columns[0].append(mean_of_known([each.average_size for each in results]))
        columns[1].append(mean_of_known([each.error for each in results]))
        columns[2].append(mean_of_known(error_at_size(sets, "average-k", k) or ()))
        columns[3].append(mean_of_known([each.top_error for each in results]))
        columns[4].append(mean_of_known([each.empty for each in results]))
    sizes, *shares = columns
    texts = [["–" if size is None else f"{size:.2f}" for size in sizes]]
    return texts + [["–" if share is None else f"{100 * share:.1f}" for share in column] for column in shares]


def differing_options(document: ComparisonDocument) -> list[tuple[str, list[str]]]:
    """The options in which candidates differ, with the value of each candidate."""
    options = [dict(all_options(candidate)) for candidate in document.candidates.values()]
    keys = dict.fromkeys(key for each in options for key in each if key != "training time")
    values = {key: [each.get(key, "–") for each in options] for key in keys}
    return [(key, each) for key, each in values.items() if len(set(each)) > 1]


def all_options(candidate: Candidate) -> list[tuple[str, str]]:
    """The options, seeds and training time of a candidate, in words."""
    rows = [(name, json.dumps(value, ensure_ascii=False)) for name, value in candidate.options.items()]
    rows.append(("seeds", ", ".join(str(run.seed) for run in candidate.runs)))
    seconds = [run.seconds for run in candidate.runs if run.seconds is not None]
    return rows + ([("training time", format_duration(sum(seconds)))] if seconds else [])


class RuleTable(NamedTuple):
    """The rules for a goal, the recommended one, and why; each row has a rule and its figures."""

    goal: str
    best: str
    reason: str
    columns: list[str]
    rows: list[list[str]]


def rule_tables(document: ComparisonDocument, name: str) -> list[RuleTable]:
    """The advice for the first seed of a candidate, one table for each goal; older documents have none."""
    return [_rule_table(advice) for advice in document.candidates[name].runs[0].sets.advice]


def _rule_table(advice: RuleAdvice) -> RuleTable:
    columns = ["rule", "labels per row", "missed", "worst class"]
    rows = [
        [shown_name(each.rule), f"{each.size:.2f}", _percent(each.missed), _percent(each.worst_class)]
        for each in advice.rules
    ]
    kept = [at for at in range(len(columns)) if any(row[at] != "–" for row in rows)]
    return RuleTable(
        shown_name(advice.goal),
        shown_name(advice.best),
        shown_name(advice.reason),
        [columns[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
    )


def group_table(document: ComparisonDocument) -> CandidateTable | None:
    """Answers by group of all candidates, means over seeds; None if the data have no groups or for older documents."""
    found = {
        name: groups
        for name, each in document.candidates.items()
        if (groups := [run.sets.groups for run in each.runs if run.sets.groups is not None])
    }
    if not found:
        return None
    first = next(iter(found.values()))[0]
    about = (
        f"Answers that name one label, or else the most specific {listed(first.groups, 'or')} that holds the true "
        f"label in all but {first.alpha:.0%} of the rows, by a rule fitted on the validation rows. Hierarchical "
        f"precision and recall are those of sets of {document.k:g} labels on average: a wrong label of the right "
        'group counts in part. An answer of "anything" says that the model is not sure of any group.'
    )
    named = list(first.named)
    columns = ["missed", *named, "hierarchical precision", "hierarchical recall"]
    return CandidateTable(about, columns, [[name, *_group_cells(groups, named)] for name, groups in found.items()])


def _group_cells(groups: Sequence[GroupAnswers], named: Sequence[str]) -> list[str]:
    def mean(values: Sequence[float | None]) -> str:
        return _percent(mean_of_known(values))

    shares = [mean([each.named.get(what) for each in groups]) for what in named]
    precision, recall = ([getattr(each, key) for each in groups] for key in ("precision", "recall"))
    return [mean([each.error for each in groups]), *shares, mean(precision), mean(recall)]


def _percent(share: float | None) -> str:
    return "–" if share is None else format_percent(share, 1)

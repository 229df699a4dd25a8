"""The report as one self-contained HTML file, rendered by Jinja from ``page.html.jinja`` and the templates it uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.comparison_document import (
    Answer,
    AuditSummary,
    Candidate,
    ComparisonDocument,
    MetricInfo,
    Provenance,
    SetFindings,
)
from shortlist.extras import require
from shortlist.files import replacing
from shortlist.fingerprint import software_versions
from shortlist.formatting import format_count, format_duration, format_number
from shortlist.report.cards import Card, error_at_size, fitted_where, result_card
from shortlist.report.chart import Panel, candidate_style
from shortlist.report.chart_data import chart_data
from shortlist.report.comparison_charts import comparison_panels
from shortlist.report.highlights import Highlight, highlight_panel, highlights_by_k, loss_sentence
from shortlist.report.next_steps import next_steps
from shortlist.report.winners import (
    MetricFormat,
    audit_sentence,
    comparison_title,
    metric_title,
    shown_name,
    summary_sentence,
)

# The page must look the same offline and must not phone home, so not even scripts may fetch anything.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_CONTENTS = {
    "at-k": "Sets at K",
    "comparison": "Comparison",
    "error-versus-size": "Error versus size",
    "set-sizes": "Set sizes",
    "error-by-shot": "Error by shot",
    "accuracy-by-count": "Labels",
    "examples": "Examples",
    "calibration": "Calibration",
    "audits": "Audit",
    "learning-rates": "Learning rates",
    "training": "Training",
    "reproduce": "How to reproduce",
}
_SCRIPTS = ("chart.js", "labels.js", "examples.js", "page.js")
_PARTS = {"train": "training rows", "val": "validation rows", "test": "test rows"}
_BEST, _TIE = "★", "☆"
_MARKS = {_BEST: "best", _TIE: "not significantly different from the best"}
_MAX_BUTTONS = 5
_MOST_LISTED = 12
_TEXT_LENGTH = 600
_MAX_FEATURE_BARS = 160


def write_report(
    documents: Sequence[ComparisonDocument], path: str | Path, *, folders: Sequence[Path] | None = None
) -> Path:
    """Write the report of comparisons, atomically.

    Args:
        documents: from `shortlist.comparison_document.read_comparison`; each becomes a section of the page.
        path: the file.
        folders: where the comparisons and their models are kept, for the commands on the page.

    Returns:
        ``path``.

    Raises:
        ValueError: if there is no comparison.
        ImportError: if jinja2 is not installed.
    """
    path = Path(path)
    page = report_page(documents, folders=folders)
    with replacing(path) as partial:
        # JSON may contain lone surrogates, which UTF-8 cannot encode.
        partial.write_bytes(page.encode("utf-8", "replace"))
    return path


def report_page(documents: Sequence[ComparisonDocument], *, folders: Sequence[Path] | None = None) -> str:
    """The page as text; see `write_report`."""
    if not documents:
        raise ValueError("`documents` must contain at least one comparison.")
    markup = require("markupsafe", extra="report").Markup
    places = folders or [None] * len(documents)
    jobs = [
        _job(document, folder, number, len(documents))
        for number, (document, folder) in enumerate(zip(documents, places, strict=True), start=1)
    ]
    verdicts = [(job.title, sentence) for job in jobs if (sentence := loss_sentence(job.document)) is not None]
    panels = [[*map(highlight_panel, job.highlights), *job.panels.values()] for job in jobs]
    return _template().render(
        jobs=jobs,
        verdicts=verdicts,
        steps=next_steps(documents),
        policy=_POLICY,
        version=software_versions()["shortlist"],
        data=chart_data(documents, panels),
        styles=markup(_resource("page.css")),
        scripts=[markup(_resource(name)) for name in _SCRIPTS],
    )


@cache
def _template() -> Any:
    jinja2 = require("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {
        "shown_name": shown_name,
        "enumerated": lambda values: list(enumerate(values)),
        "audit_sentence": audit_sentence,
        "missed_labels": _missed_labels,
        "score": _score,
        "split_text": _split_text,
    }
    environment.globals |= {
        "candidate_style": candidate_style,
        "feature_bars": _feature_bars,
        "format_count": format_count,
        "marks": _MARKS,
        "max_buttons": _MAX_BUTTONS,
        "most_listed": _MOST_LISTED,
    }
    return environment.get_template("page.html.jinja")


def _resource(name: str) -> str:
    return resources.files("shortlist.report").joinpath(name).read_text(encoding="utf-8")


class _Column(NamedTuple):
    title: str
    details: str
    target: bool


class _Cell(NamedTuple):
    text: str
    sort_value: str
    mark: str
    gap: str


class _Row(NamedTuple):
    name_parts: list[str]
    about: str
    cells: list[_Cell]


class _TableAtK(NamedTuple):
    """The sets of each candidate, and of the optimum; each cell has a text for every K."""

    columns: list[_Column]
    rows: list[list[list[str]]]
    optimum: list[list[str]] | None


class _Table(NamedTuple):
    about: str
    columns: list[_Column]
    rows: list[_Row]
    optimum: list[str] | None


@dataclass(frozen=True)
class _Job:
    """One comparison, as the template shows it."""

    id: str
    document: ComparisonDocument
    title: str
    card: Card
    highlights: list[list[Highlight]]
    panels: dict[str, Panel]
    eyebrow: str
    summary: str
    facts: list[tuple[str, str]]
    contents: list[tuple[str, str]]
    table: _Table
    table_at_k: _TableAtK
    fitted: str
    k: str
    k_index: int
    winner: str
    candidate_index: dict[str, int]
    audited: dict[str, AuditSummary]
    provenance: str
    differing: list[tuple[str, list[str]]]
    options: list[tuple[str, list[tuple[str, str]]]]


def _job(document: ComparisonDocument, folder: Path | None, number: int, jobs: int) -> _Job:
    data, k = document.data, f"{document.k:g}"
    panels = {panel.name: panel for panel in comparison_panels(document)}
    audited = {name: each.audit for name, each in document.candidates.items() if each.audit is not None}
    task = "one true label per row" if data.task == "one class" else "several labels per row"
    words = [f"Job {number} of {jobs}"] if jobs > 1 else []
    words += [shown_name(data.name)] if document.title is not None else []
    facts = [(_PARTS.get(part, f"{shown_name(part)} rows"), f"{rows:,}") for part, rows in data.parts.items()]
    facts += [("labels", f"{data.labels:,}"), ("labels per row", format_number(data.labels_per_row)), ("K", k)]
    recipes = _recipes(document)
    facts += [("recipe" if len(recipes) == 1 else "recipes", ", ".join(recipes))] if recipes else []
    sections = {"at-k", "comparison", "reproduce", *panels}
    sections |= {"examples"} if document.examples else set()
    sections |= {"audits"} if audited else set()
    sections |= {"training"} if {"training-loss", "watched-metric"} & set(panels) else set()
    return _Job(
        id=f"job-{number}",
        document=document,
        title=comparison_title(document),
        card=result_card(document, folder),
        highlights=highlights_by_k(document),
        panels=panels,
        eyebrow=" · ".join([*words, shown_name(data.kind), task]),
        summary=summary_sentence(document),
        facts=facts,
        contents=[(anchor, title) for anchor, title in _CONTENTS.items() if anchor in sections],
        table=_table(document),
        table_at_k=_table_at_k(document),
        fitted=fitted_where(document),
        k=k,
        k_index=document.ks.index(document.k),
        winner=document.best[document.target][0],
        candidate_index={name: index for index, name in enumerate(document.candidates)},
        audited=audited,
        provenance=_provenance(document.made),
        differing=_differing_options(document),
        options=[(name, _options(candidate)) for name, candidate in document.candidates.items()],
    )


def _differing_options(document: ComparisonDocument) -> list[tuple[str, list[str]]]:
    """The options in which candidates differ, with the value of each candidate."""
    options = [dict(_options(candidate)) for candidate in document.candidates.values()]
    keys = dict.fromkeys(key for each in options for key in each if key != "training time")
    values = {key: [each.get(key, "–") for each in options] for key in keys}
    return [(key, each) for key, each in values.items() if len(set(each)) > 1]


def _recipes(document: ComparisonDocument) -> list[str]:
    """The recipes by which the candidates were trained, in their order; older documents do not name them."""
    found = (candidate.recipe for candidate in document.candidates.values())
    return list(dict.fromkeys(shown_name(recipe) for recipe in found if recipe is not None))


def _table(document: ComparisonDocument) -> _Table:
    formats = {metric.name: MetricFormat(document, metric.name) for metric in document.metrics}
    columns = [_column(metric, formats[metric.name], document.target) for metric in document.metrics]
    rows = [_row(document, name, formats) for name in document.candidates]
    optimum = None
    if document.optimum is not None:
        optimum = [each.value(document.optimum.values.get(name)) for name, each in formats.items()]
    return _Table(_about_table(document), columns, rows, optimum)


_AT_K = (
    _Column("labels per answer", "on average", False),
    _Column("missing", "fitted threshold · % ↓", False),
    _Column("missing at equal size", "exactly K on average · % ↓", False),
    _Column("missing with K each", "the best K labels · % ↓", False),
    _Column("no answer", "empty sets · %", False),
)


def _table_at_k(document: ComparisonDocument) -> _TableAtK:
    found = [[run.sets for run in each.runs] for each in document.candidates.values()]
    optimum = None if document.optimum is None else _cells_at_k(document, [document.optimum.sets])
    return _TableAtK(list(_AT_K), [_cells_at_k(document, sets) for sets in found], optimum)


def _cells_at_k(document: ComparisonDocument, sets: list[SetFindings]) -> list[list[str]]:
    def mean(values: Sequence[float | None] | None) -> float | None:
        known = [value for value in values or () if value is not None]
        return sum(known) / len(known) if known else None

    columns: list[list[float | None]] = [[], [], [], [], []]
    for at, k in enumerate(document.ks):
        results = [each.by_k[at] for each in sets]
        columns[0].append(mean([each.average_size for each in results]))
        columns[1].append(mean([each.error for each in results]))
        columns[2].append(mean(error_at_size(sets, "average-k", k)))
        columns[3].append(mean([each.top_error for each in results]))
        columns[4].append(mean([each.empty for each in results]))
    sizes, *shares = columns
    texts = [["–" if size is None else f"{size:.2f}" for size in sizes]]
    return texts + [["–" if share is None else f"{100 * share:.1f}" for share in column] for column in shares]


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


def _column(metric: MetricInfo, wording: MetricFormat, target: str) -> _Column:
    arrow = {"lower": "↓", "higher": "↑", None: ""}[metric.better]
    unit = wording.unit or ("labels" if metric.name == "average_size" else "")
    details = ["target"] if metric.name == target else []
    details += [f"{unit} {arrow}".strip()] if unit or arrow else []
    return _Column(metric_title(metric.name), " · ".join(details), metric.name == target)


def _row(document: ComparisonDocument, name: str, formats: dict[str, MetricFormat]) -> _Row:
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
        cells.append(_Cell(wording.interval(interval.mean, interval.half_width), sort_value, mark, gap))
    about = "" if candidate.about.removeprefix("loss ") == shown_name(name) else shown_name(candidate.about)
    if candidate.recipe is not None and len(_recipes(document)) > 1:
        about = f"{about}, recipe {candidate.recipe}".removeprefix(", ")
    # Long names may break after underscores.
    parts = shown_name(name).split("_")
    return _Row([f"{part}_" for part in parts[:-1]] + parts[-1:], about, cells)


def _provenance(made: Provenance) -> str:
    try:
        date = datetime.fromisoformat(made.date).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        date = shown_name(made.date)
    threads = "" if made.threads is None else f", {format_count(made.threads, 'thread')}"
    versions = f"shortlist {made.shortlist}, torch {made.torch}, Python {made.python}"
    return f"Made on {date} in {format_duration(made.seconds)} with {versions}{threads}."


def _options(candidate: Candidate) -> list[tuple[str, str]]:
    rows = [(name, json.dumps(value, ensure_ascii=False)) for name, value in candidate.options.items()]
    rows.append(("seeds", ", ".join(str(run.seed) for run in candidate.runs)))
    seconds = [run.seconds for run in candidate.runs if run.seconds is not None]
    return rows + ([("training time", format_duration(sum(seconds)))] if seconds else [])


class _Missed(NamedTuple):
    label: str
    rank: int
    hidden: bool


def _missed_labels(truth: Sequence[str], answer: Answer, size: int) -> list[_Missed]:
    """The true labels with their ranks among the listed ones (-1 if unlisted), hidden unless the set misses them."""
    listed, missed = answer.labels, []
    for label in truth:
        rank = listed.index(label) if label in listed else -1
        # Labels beyond the listed ones are not known to be missed.
        missed.append(_Missed(label, rank, hidden=rank < size if rank >= 0 else size > len(listed)))
    return missed


def _score(score: float) -> str:
    """A score with two decimals.

    Example:
        >>> _score(0.614), _score(0.0004), _score(-3.14159), _score(1234.5)
        ('0.61', '< 0.01', '-3.14', '1234')
    """
    if 0 < score < 0.01:
        return "< 0.01"
    return f"{score:.2f}" if abs(score) < 1000 else f"{score:.0f}"


def _split_text(text: str) -> tuple[str, str]:
    """The beginning of a text, cut at a space, and the rest."""
    text = text.strip()
    if len(text) <= _TEXT_LENGTH:
        return text, ""
    cut = text.rfind(" ", _TEXT_LENGTH - 80, _TEXT_LENGTH)
    cut = cut if cut > 0 else _TEXT_LENGTH
    return text[:cut], text[cut:].strip()


class _FeatureBars(NamedTuple):
    path: str
    width: int
    caption: str


def _feature_bars(values: Sequence[float | None]) -> _FeatureBars:
    """Features as bars around 0, the path of a drawing 100 high; if there are many, the largest magnitude per bin."""
    known = [0.0 if value is None else value for value in values]
    if len(known) > _MAX_FEATURE_BARS:
        edges = [len(known) * bar // _MAX_FEATURE_BARS for bar in range(_MAX_FEATURE_BARS + 1)]
        known = [max(known[first:last], key=abs) for first, last in pairwise(edges)]
    low, high = min(0.0, *known), max(0.0, *known)
    scale = 100 / ((high - low) or 1.0)
    bars = [(scale * (high - max(value, 0)), max(scale * abs(value), 0.5)) for value in known]
    path = "".join(f"M{at}.5 {top:.0f}v{height:.1f}" for at, (top, height) in enumerate(bars))
    return _FeatureBars(path, len(known), f"{len(values):,} features from {min(known):.3g} to {max(known):.3g}")

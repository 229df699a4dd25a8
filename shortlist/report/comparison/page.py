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

from shortlist.comparison_document import Answer, AuditSummary, ComparisonDocument, Provenance
from shortlist.extras import require
from shortlist.files import replacing
from shortlist.fingerprint import software_versions
from shortlist.formatting import format_count, format_duration, format_number
from shortlist.report.chart import INK, Axis, Chart, Panel, Series, candidate_style
from shortlist.report.comparison.cards import Card, fitted_where, next_steps, result_card
from shortlist.report.comparison.charts import comparison_panels
from shortlist.report.comparison.highlights import Highlight, highlight_panel, highlights_by_k, loss_sentence
from shortlist.report.comparison.single_labels import label_table
from shortlist.report.comparison.tables import (
    MARKS,
    CandidateTable,
    RuleTable,
    Table,
    TableAtK,
    all_options,
    calibration_table,
    comparison_table,
    differing_options,
    group_table,
    recipes,
    rule_tables,
    table_at_k,
)
from shortlist.report.comparison.winners import audit_sentence, comparison_title, shown_name, summary_sentence

# The page must look the same offline and must not phone home, so not even scripts may fetch anything.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_CONTENTS = {
    "at-k": "Sets at K",
    "comparison": "Comparison",
    "rules": "Rules",
    "groups": "Answers by group",
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
_STYLES = ("theme.css", "page.css")
_SCRIPTS = ("chart.js", "labels.js", "examples.js", "page.js")
_PARTS = {"train": "training rows", "val": "validation rows", "test": "test rows"}
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
    jobs = [
        _job(document, folder, number, len(documents))
        for number, (document, folder) in enumerate(
            zip(documents, folders or [None] * len(documents), strict=True), start=1
        )
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
        styles=markup("".join(_resource(name) for name in _STYLES)),
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
        "marks": MARKS,
        "max_buttons": _MAX_BUTTONS,
        "most_listed": _MOST_LISTED,
    }
    return environment.get_template("page.html.jinja")


def _resource(name: str) -> str:
    return resources.files("shortlist.report.comparison").joinpath(name).read_text(encoding="utf-8")


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
    table: Table
    table_at_k: TableAtK
    rule_tables: list[RuleTable]
    group_table: CandidateTable | None
    calibration_table: CandidateTable | None
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
    named = recipes(document)
    facts += [("recipe" if len(named) == 1 else "recipes", ", ".join(named))] if named else []
    sections = {"at-k", "comparison", "reproduce", *panels}
    rules, groups = rule_tables(document, winner := document.best[document.target][0]), group_table(document)
    sections |= {"rules"} if rules else set()
    sections |= {"groups"} if groups is not None else set()
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
        table=comparison_table(document),
        table_at_k=table_at_k(document),
        rule_tables=rules,
        group_table=groups,
        calibration_table=calibration_table(document),
        fitted=fitted_where(document),
        k=k,
        k_index=document.ks.index(document.k),
        winner=winner,
        candidate_index={name: index for index, name in enumerate(document.candidates)},
        audited=audited,
        provenance=_provenance(document.made),
        differing=differing_options(document),
        options=[(name, all_options(candidate)) for name, candidate in document.candidates.items()],
    )


def _provenance(made: Provenance) -> str:
    try:
        date = datetime.fromisoformat(made.date).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        date = shown_name(made.date)
    threads = "" if made.threads is None else f", {format_count(made.threads, 'thread')}"
    versions = f"shortlist {made.shortlist}, torch {made.torch}, Python {made.python}"
    return f"Made on {date} in {format_duration(made.seconds)} with {versions}{threads}."


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


def chart_data(documents: Sequence[ComparisonDocument], panels: Sequence[Sequence[Panel]]) -> dict[str, Any]:
    """The data that the page's script draws, as plain JSON.

    Charts of neighboring K share most of their series, so equal lists, series and axes are stored once.

    Returns:
        ``jobs``: for each comparison its ``ks``, their ``names``, the index ``start`` of the requested K, by panel the
        ``choices`` and the numbers of their ``charts``, and ``labels``, see `label_table`. ``charts`` refer to
        ``series`` and ``axes`` by number, and series to ``looks`` and ``lists``.
    """
    lists, looks, series, axes = _Pool(), _Pool(), _Pool(), _Pool()

    def content(chart: Chart) -> dict[str, Any]:
        return {
            "series": [series.number(_series(each, lists, looks)) for each in chart.series],
            "x": axes.number(_axis(chart.x)),
            "y": axes.number(_axis(chart.y)),
            "guides": [[each.label, each.x] for each in chart.references],
            "note": chart.note,
        }

    charts: list[dict[str, Any]] = []
    jobs = []
    for document, own_panels in zip(documents, panels, strict=True):
        by_panel: dict[str, Any] = {}
        for panel in own_panels:
            numbers = []
            for choice in panel.charts.values():
                numbers.append(list(range(len(charts), len(charts) + len(choice))))
                charts += [content(chart) for chart in choice]
            by_panel[panel.name] = {"choices": list(panel.charts), "charts": numbers}
        ks, names = document.ks, [f"{k:g}" for k in document.ks]
        labels = label_table(document, lambda values: lists.number(_rounded(values)))
        start = ks.index(document.k)
        jobs.append({"ks": ks, "names": names, "start": start, "panels": by_panel, "labels": labels})
    pools = {"lists": lists.members, "looks": looks.members, "series": series.members, "axes": axes.members}
    return {"ink": INK, "jobs": jobs, "charts": charts, **pools}


class _Pool:
    """Stores equal items once."""

    def __init__(self) -> None:
        self.members: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, member: Any) -> int:
        number = self._numbers.setdefault(json.dumps(member), len(self.members))
        if number == len(self.members):
            self.members.append(member)
        return number


def _series(series: Series, lists: _Pool, looks: _Pool) -> dict[str, Any]:
    style = series.style
    look = {
        "name": " ".join(series.name.split()),
        "group": " ".join((series.group or series.name).split()),
        "kind": series.kind,
        "color": style.color,
        "marker": style.marker,
        "dash": style.dash,
        "legend": series.in_legend,
        "marked": series.marked and style.marker != "none",
        "faint": series.faint,
    }
    facts = {
        "look": looks.number(look),
        "x": lists.number(_rounded(series.x)),
        "y": lists.number(_rounded(series.y)),
        "high": lists.number(_rounded(series.high)) if series.high else None,
        "sizes": lists.number(_rounded(series.sizes)) if series.sizes else None,
        "notes": lists.number(list(series.notes)) if series.notes else None,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _axis(axis: Axis) -> dict[str, Any]:
    facts = {
        "label": axis.label,
        "scale": axis.scale,
        "percent": axis.percent,
        "whole": axis.whole,
        "limits": axis.limits and list(axis.limits),
        "names": list(axis.names),
        "words": list(axis.words),
    }
    return {key: value for key, value in facts.items() if value}


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    """Four digits: more than a screen shows, and a small file."""
    return [None if value is None else _short(float(f"{value:.4g}")) for value in values]


def _short(value: float) -> float:
    return int(value) if value == int(value) else value

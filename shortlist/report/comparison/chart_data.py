"""Charts as plain JSON for the page's own script, with everything that several of them share stored once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shortlist.comparison_document import ComparisonDocument
from shortlist.report.chart import INK, Axis, Chart, Panel, Series
from shortlist.report.comparison.single_labels import label_table


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

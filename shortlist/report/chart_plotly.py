"""Charts as plain dicts that Plotly draws in the page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from shortlist.report.chart import Axis, Chart, Reference, Series, Style

_POINT_SIZE = 8
_MAX_MARKERS = 9


def plotly_chart(chart: Chart) -> dict[str, Any]:
    """The traces and the layout of a chart as plain JSON.

    The page draws title and legend, because it knows its own width.

    Example:
        >>> from shortlist.report.chart import candidate_style
        >>> line = Series("a < b", "line", (1.0, 2.0), (0.25, None), candidate_style(0))
        >>> drawn = plotly_chart(Chart("", Axis("size"), Axis("error", percent=True), (line,)))
        >>> drawn["data"][0]["name"], drawn["data"][0]["y"]
        ('a &lt; b', [0.25, None])
        >>> drawn["layout"]["yaxis"]["tickformat"]
        '.2~%'
    """
    layout: dict[str, Any] = {"xaxis": _axis(chart.x), "yaxis": _axis(chart.y)}
    xs = [x for series in chart.series for x in series.x]
    if chart.x.whole and xs and max(xs) - min(xs) < 8:
        layout["xaxis"]["dtick"] = 1
    if chart.y.scale == "linear" and chart.y.limits is None:
        layout["yaxis"]["rangemode"] = "tozero"
    if chart.references:
        layout["shapes"] = [_guide(reference) for reference in chart.references]
        layout["annotations"] = [_guide_label(each) for each in chart.references if each.x is not None]
    return {"data": [_trace(series, chart) for series in chart.series], "layout": layout}


def _axis(axis: Axis) -> dict[str, Any]:
    drawn: dict[str, Any] = {"title": {"text": _plain(axis.label)}}
    if axis.scale == "log":
        drawn["type"] = "log"
    if axis.scale == "names":
        drawn |= {"tickvals": list(range(len(axis.names))), "ticktext": [_plain(name) for name in axis.names]}
        drawn["range"] = [-0.5, len(axis.names) - 0.5]
    if axis.percent:
        drawn["tickformat"] = ".2~%"
    elif axis.whole:
        drawn["tickformat"] = ",d"
    elif axis.scale != "names":
        drawn["tickformat"] = ",.4~r"
    if axis.limits is not None:
        drawn["range"] = list(axis.limits)
    return drawn


def _trace(series: Series, chart: Chart) -> dict[str, Any]:
    style = series.style
    trace: dict[str, Any] = {
        "type": "bar" if series.kind == "bars" else "scatter",
        "name": _plain(series.name),
        "legendgroup": _plain(series.group or series.name),
        "showlegend": series.in_legend,
    }
    if series.kind == "band":
        return trace | _band(series)
    trace |= {"x": _rounded(series.x), "y": _rounded(series.y)}
    if series.kind == "bars":
        # Hatching distinguishes bars of a repeated color, as dashes distinguish lines.
        hatched = {"pattern": {"shape": "/", "fillmode": "overlay", "size": 5}} if style.dash != "solid" else {}
        trace["marker"] = {"color": style.color, **hatched}
    elif series.kind == "points":
        trace["mode"] = "markers"
        trace["marker"] = _marker(style) | {"size": _rounded(series.sizes) if series.sizes else _POINT_SIZE + 3}
        if series.faint:
            trace["marker"] |= {"opacity": 0.45, "line": {"width": 0}}
    else:
        trace["mode"] = "lines+markers" if series.marked and style.marker != "none" else "lines"
        trace["line"] = {"color": style.color, "dash": style.dash, "width": 2}
        trace["marker"] = _marker(style) | {"size": _POINT_SIZE, "maxdisplayed": _MAX_MARKERS}
        if series.faint:
            trace["opacity"] = 0.45
    if series.notes:
        trace["text"] = [_plain(note) for note in series.notes]
        trace["hovertemplate"] = "%{text}<extra>%{fullData.name}</extra>"
        if series.kind == "bars":
            trace["textposition"] = "none"  # Plotly would also print the text on the bar.
    else:
        x = "%{x:.1%}" if chart.x.percent else "%{x}" if chart.x.scale == "names" else "%{x:.3~g}"
        y = "%{y:.1%}" if chart.y.percent else "%{y:.4~g}"
        trace["hovertemplate"] = f"{x}: {y}<extra>%{{fullData.name}}</extra>"
    return trace


def _band(series: Series) -> dict[str, Any]:
    """A closed outline: along the lower edge and back along the upper one."""
    edges = [
        (x, low, high)
        for x, low, high in zip(series.x, series.y, series.high, strict=True)
        if low is not None and high is not None
    ]
    red, green, blue = (int(series.style.color[at : at + 2], 16) for at in (1, 3, 5))
    return {
        "x": _rounded([x for x, _, _ in edges] + [x for x, _, _ in reversed(edges)]),
        "y": _rounded([low for _, low, _ in edges] + [high for _, _, high in reversed(edges)]),
        "mode": "lines",
        "fill": "toself",
        "line": {"width": 0, "color": series.style.color},
        "fillcolor": f"rgba({red},{green},{blue},0.16)",
        "hoverinfo": "skip",
    }


def _marker(style: Style) -> dict[str, Any]:
    return {"color": style.color, "symbol": "circle" if style.marker == "none" else style.marker}


def _guide(reference: Reference) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "line", "layer": "below", "line": {"width": 1.5, "dash": "dot"}}
    if reference.x is None:
        return shape | {"x0": 0, "y0": 0, "x1": 1, "y1": 1}
    return shape | {"x0": reference.x, "x1": reference.x, "yref": "paper", "y0": 0, "y1": 1}


def _guide_label(reference: Reference) -> dict[str, Any]:
    text = _plain(reference.label)
    return {"text": text, "x": reference.x, "yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False}


def _plain(text: str) -> str:
    """Escaped, because Plotly interprets some HTML in every text, and names come from users."""
    return html.escape(" ".join(text.split()), quote=False)


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    """Five digits: more than a screen shows, and a small file."""
    return [None if value is None else float(f"{value:.5g}") for value in values]

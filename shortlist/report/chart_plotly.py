"""Charts as plain dicts that Plotly draws in a page."""

from __future__ import annotations

import html
from typing import Any

from shortlist.report.chart import Axis, Chart, Reference, Series, Style

_POINT = 8
_MOST_MARKERS = 9


def plotly_chart(chart: Chart) -> dict[str, Any]:
    """The traces and the layout of a chart, of plain JSON.

    Title and legend are left to the page, which knows how wide it is.

    Example:
        >>> from shortlist.report.chart import candidate_style
        >>> line = Series("a < b", "line", (1.0, 2.0), (0.25, None), candidate_style(0))
        >>> drawn = plotly_chart(Chart("", Axis("size"), Axis("error", percent=True), (line,)))
        >>> drawn["data"][0]["name"], drawn["data"][0]["y"]
        ('a &lt; b', [0.25, None])
        >>> drawn["layout"]["yaxis"]["tickformat"]
        '.2~%'
    """
    layout: dict[str, Any] = {"xaxis": _axis(chart.x, chart), "yaxis": _axis(chart.y, None)}
    shapes = [_line(reference) for reference in chart.references]
    if shapes:
        layout["shapes"] = shapes
        layout["annotations"] = [_label(one) for one in chart.references if one.x is not None]
    return {"data": [_trace(series, chart) for series in chart.series], "layout": layout}


def _axis(axis: Axis, chart: Chart | None) -> dict[str, Any]:
    found: dict[str, Any] = {"title": {"text": _words(axis.label)}}
    if axis.scale == "log":
        found["type"] = "log"
    if axis.scale == "names":
        places = list(range(len(axis.names)))
        found |= {"tickvals": places, "ticktext": [_words(name) for name in axis.names]}
        found["range"] = [-0.5, len(axis.names) - 0.5]
    if axis.percent:
        found["tickformat"] = ".2~%"
    elif axis.whole:
        found["tickformat"] = ",d"
        xs = [x for series in chart.series for x in series.x] if chart is not None else []
        if xs and max(xs) - min(xs) < 8:
            found["dtick"] = 1
    elif axis.scale != "names":
        found["tickformat"] = ",.4~r"
    if axis.limits is not None:
        found["range"] = list(axis.limits)
    elif chart is None and axis.scale == "linear":
        found["rangemode"] = "tozero"
    return found


def _trace(series: Series, chart: Chart) -> dict[str, Any]:
    style = series.style
    trace: dict[str, Any] = {
        "type": "bar" if series.kind == "bars" else "scatter",
        "name": _words(series.name),
        "legendgroup": _words(series.group or series.name),
        "showlegend": series.in_legend,
    }
    if series.kind == "band":
        return trace | _band(series)
    trace |= {"x": _rounded(series.x), "y": _rounded(series.y)}
    if series.kind == "bars":
        # Colours that come again are told apart by hatching, as lines are by dashes.
        hatched = {"pattern": {"shape": "/", "fillmode": "overlay", "size": 5}} if style.dash != "solid" else {}
        trace["marker"] = {"color": style.colour, **hatched}
    elif series.kind == "points":
        trace["mode"] = "markers"
        trace["marker"] = _marker(style) | {"size": _rounded(series.sizes) if series.sizes else _POINT + 3}
        if series.faint:
            trace["marker"] |= {"opacity": 0.45, "line": {"width": 0}}
    else:
        trace["mode"] = "lines+markers" if series.marked and style.marker != "none" else "lines"
        trace["line"] = {"color": style.colour, "dash": style.dash, "width": 2}
        trace["marker"] = _marker(style) | {"size": _POINT, "maxdisplayed": _MOST_MARKERS}
        if series.faint:
            trace["opacity"] = 0.45
    if series.notes:
        trace["text"] = [_words(note) for note in series.notes]
        # Words beside a bar would be printed on it, too.
        trace |= {"hovertemplate": "%{text}<extra>%{fullData.name}</extra>", "textposition": "none"}
        if series.kind != "bars":
            del trace["textposition"]
    else:
        x, y = ("%{x:.3~g}", "%{y:.1%}" if chart.y.percent else "%{y:.4~g}")
        x = "%{x:.1%}" if chart.x.percent else "%{x}" if chart.x.scale == "names" else x
        trace["hovertemplate"] = f"{x}: {y}<extra>%{{fullData.name}}</extra>"
    return trace


def _band(series: Series) -> dict[str, Any]:
    """A closed outline: along the lower edge and back along the upper one."""
    edges = [
        (x, low, high)
        for x, low, high in zip(series.x, series.y, series.high, strict=True)
        if low is not None and high is not None
    ]
    return {
        "x": _rounded([x for x, _, _ in edges] + [x for x, _, _ in reversed(edges)]),
        "y": _rounded([low for _, low, _ in edges] + [high for _, _, high in reversed(edges)]),
        "mode": "lines",
        "fill": "toself",
        "line": {"width": 0, "color": series.style.colour},
        "fillcolor": _transparent(series.style.colour),
        "hoverinfo": "skip",
    }


def _marker(style: Style) -> dict[str, Any]:
    return {"color": style.colour, "symbol": "circle" if style.marker == "none" else style.marker}


def _line(reference: Reference) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "line", "layer": "below", "line": {"width": 1.5, "dash": "dot"}}
    if reference.x is None:
        return shape | {"x0": 0, "y0": 0, "x1": 1, "y1": 1}
    return shape | {"x0": reference.x, "x1": reference.x, "yref": "paper", "y0": 0, "y1": 1}


def _label(reference: Reference) -> dict[str, Any]:
    return {
        "text": _words(reference.label),
        "x": reference.x,
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "showarrow": False,
    }


def _words(text: str) -> str:
    """Plotly reads a part of HTML in all texts; what users name things must stay as it is."""
    return html.escape(" ".join(text.split()), quote=False)


def _rounded(values: Any) -> list[float | None]:
    """Five digits are more than a screen shows, and keep the file small."""
    return [None if value is None else float(f"{value:.5g}") for value in values]


def _transparent(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"

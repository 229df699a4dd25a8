"""Charts as matplotlib figures, for files."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from shortlist.extras import require
from shortlist.report.chart import INK, Axis, Chart
from shortlist.report.dataset_examples import drawable, shorten
from shortlist.report.saving import new_figure

_WIDTH, _HEIGHT, _SIDE = 7.2, 4.4, 5.0
_PALE = "#6b7280"
_GRID = "#e5e7eb"
_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "triangle-down": "v",
    "x": "X",
    "cross": "P",
    "star": "*",
    "none": "",
}
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_LEGEND_ROW = 0.27
_LETTERS = 110  # of a line of legend, with the room of markers
_MOST_MARKERS = 9
_FEW_DECADES = 3.5


def draw_chart(chart: Chart) -> Any:
    """Draw a chart, with its title, its legend below and its note.

    Args:
        chart: what to draw.

    Returns:
        A matplotlib figure, for `shortlist.report.saving.save_figure`.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    square = any(reference.x is None for reference in chart.references)
    names = [shorten(series.name, 40) for series in chart.series if series.in_legend]
    letters = _LETTERS * (_SIDE / _WIDTH if square else 1)
    columns = max(1, min(len(names), int(letters // (max(map(len, names), default=1) + 7))))
    rows = -(-len(names) // columns)
    note = _lines(chart.note)
    below = _LEGEND_ROW * (rows + 0.8 * len(note))
    figure = new_figure(_SIDE if square else _WIDTH, (_SIDE if square else _HEIGHT) + below)
    axis = figure.subplots()
    handles = _draw_series(axis, chart)
    _set_axis(axis, axis.xaxis, "x", chart.x)
    _set_axis(axis, axis.yaxis, "y", chart.y)
    for reference in chart.references:
        if reference.x is None:
            axis.plot([0, 1], [0, 1], color=_PALE, linestyle=":", linewidth=1.2, zorder=1)
        else:
            axis.axvline(reference.x, color=_PALE, linestyle=":", linewidth=1.2, zorder=1)
            place = {"xy": (reference.x, 1), "xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            axis.annotate(drawable(reference.label), xytext=(0, 3), ha="center", color=_PALE, fontsize=9, **place)
    axis.set_title(shorten(chart.title, 80), fontsize=12, color=INK, pad=16, loc="left", parse_math=False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_PALE)
    axis.tick_params(colors=_PALE, labelsize=9)
    axis.grid(axis="y", color=_GRID, linewidth=0.8, zorder=0)
    axis.set_axisbelow(True)
    if note:
        axis.set_xlabel("\n".join([axis.get_xlabel(), *note]), parse_math=False)
    _write_legend(figure, handles, names, -(-len(names) // max(rows, 1)))
    return figure


def _draw_series(axis: Any, chart: Chart) -> list[Any]:
    bars = [series for series in chart.series if series.kind == "bars"]
    handles = []
    for series in chart.series:
        style = series.style
        y = [math.nan if value is None else value for value in series.y]
        if series.kind == "band":
            high = [math.nan if value is None else value for value in series.high]
            axis.fill_between(series.x, y, high, color=style.colour, alpha=0.16, linewidth=0, zorder=2)
            continue
        if series.kind == "bars":
            width = _bar_width(chart) / len(bars)
            shift = (bars.index(series) - (len(bars) - 1) / 2) * width
            handle = axis.bar([x + shift for x in series.x], y, width=0.92 * width, color=style.colour, zorder=3)
            for bar in handle:
                bar.set(hatch="" if style.dash == "solid" else "////", edgecolor="white", linewidth=0)
        elif series.kind == "points":
            area = [size**2 / 2 for size in series.sizes] or 55
            marker = _MARKERS[style.marker] or "o"
            alpha = 0.35 if series.faint else 1
            colours = {"color": style.colour, "alpha": alpha, "linewidths": 0}
            handle = axis.scatter(series.x, y, s=area, marker=marker, zorder=4, **colours)
        else:
            shown = {"marker": _MARKERS[style.marker] or None, "markersize": 6} if series.marked else {}
            shown |= {"markevery": max(1, -(-len(y) // _MOST_MARKERS)), "alpha": 0.45 if series.faint else 1}
            dash = _DASHES[style.dash]
            (handle,) = axis.plot(series.x, y, color=style.colour, linestyle=dash, linewidth=1.8, zorder=3, **shown)
        if series.in_legend:
            handles.append(handle)
    return handles


def _bar_width(chart: Chart) -> float:
    """Of all bars at one x: most of the least distance between neighbours."""
    places = sorted({x for series in chart.series if series.kind == "bars" for x in series.x})
    return 0.84 * min((right - left for left, right in pairwise(places)), default=1.0)


def _set_axis(axis: Any, side: Any, name: str, about: Axis) -> None:
    ticker = require("matplotlib.ticker", extra="report")
    side.set_label_text(drawable(about.label), color=INK, fontsize=10, parse_math=False)
    if about.scale == "log":
        axis.set(**{f"{name}scale": "log"})
        low, high = axis.get_xlim() if name == "x" else axis.get_ylim()
        # Over several decades powers of ten are enough, and more would run into one another.
        several = ticker.LogLocator(subs=(1,) if high > 10**_FEW_DECADES * low else (1, 2, 5), numticks=12)
        side.set_major_locator(several if high > 10 * low else ticker.MaxNLocator(6, integer=about.whole))
        side.set_minor_formatter(ticker.NullFormatter())
    if about.scale == "names":
        names = [shorten(label, 24) for label in about.names]
        side.set_ticks(range(len(names)), names, parse_math=False)
        axis.set(**{f"{name}lim": (-0.5, len(names) - 0.5)})
    elif about.percent:
        side.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    elif about.whole and about.scale == "linear":
        side.set_major_locator(ticker.MaxNLocator(integer=True))
    if about.scale != "names" and not about.percent:
        side.set_major_formatter(
            ticker.FuncFormatter(lambda value, _: f"{value:,.5g}" if value < 1e5 else f"{value:g}")
        )
    if about.limits is not None:
        axis.set(**{f"{name}lim": about.limits})
    elif name == "y" and about.scale == "linear":
        low, high = axis.get_ylim()
        axis.set_ylim(min(0.0, low) if low < 0 and not about.percent else 0.0, high if high > 0 else 1.0)


def _write_legend(figure: Any, handles: list[Any], names: list[str], columns: int) -> None:
    if not handles:
        return
    # Placeholders first: a legend would leave out a name that begins with an underscore.
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    legend = figure.legend(handles, ["name"] * len(names), **place)
    for entry, label in zip(legend.get_texts(), names, strict=True):
        entry.set_text(label)
        entry.set_parse_math(False)


def _lines(note: str) -> list[str]:
    """The note in lines of the figure's width."""
    words, lines = drawable(note).split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [line for line in lines if line]

"""Charts as matplotlib figures, and figures as files."""

from __future__ import annotations

import math
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

from shortlist.extras import require
from shortlist.files import replacing
from shortlist.report.chart import INK, Axis, Chart

_WIDTH, _HEIGHT, _SIDE = 7.2, 4.4, 5.0
PALE = "#6b7280"
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
_LEGEND_CHARACTERS = 110  # per row, including room for markers
_MAX_MARKERS = 9
_FEW_DECADES = 3.5


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure with this size in inches.

    It has no global state: no window, no backend, nothing to close.
    """
    return require("matplotlib.figure", extra="report").Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: str | Path, *, dpi: int = 150) -> Path:
    """Write ``figure`` atomically.

    Args:
        figure: a matplotlib figure.
        path: the file; its suffix chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are created.
        dpi: dots per inch of a bitmap.

    Returns:
        ``path``. If writing fails, an existing file is left unchanged.
    """
    path = Path(path)
    with replacing(path) as partial:
        figure.savefig(partial, format=path.suffix.lstrip(".") or "png", dpi=dpi)
    return path


def style_axis(axis: Any, *, grid: str = "y", ticks: int = 9) -> None:
    """The look of all plots: no frame, pale axes and ticks, and grid lines across ``grid`` axes behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(PALE)
    axis.tick_params(colors=PALE, labelsize=ticks)
    axis.grid(axis=grid, color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)


def draw_chart(chart: Chart) -> Any:
    """Draw a chart with its title, note and legend.

    Args:
        chart: what to draw.

    Returns:
        A matplotlib figure; see `save_figure`.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    width, height = (_SIDE, _SIDE) if chart.square else (_WIDTH, _HEIGHT)
    names = [shorten(series.name, 40) for series in chart.series if series.in_legend]
    per_row = _LEGEND_CHARACTERS * width / _WIDTH // (max(map(len, names), default=1) + 7)
    rows = -(-len(names) // max(1, min(len(names), int(per_row))))
    note = textwrap.wrap(drawable(chart.note), 100)
    figure = new_figure(width, height + _LEGEND_ROW * (rows + 0.8 * len(note)))
    axis = figure.subplots()
    handles = _draw_series(axis, chart)
    _set_axis(axis, axis.xaxis, "x", chart.x)
    _set_axis(axis, axis.yaxis, "y", chart.y)
    for reference in chart.references:
        if reference.x is None:
            axis.plot([0, 1], [0, 1], color=PALE, linestyle=":", linewidth=1.2, zorder=1)
        else:
            axis.axvline(reference.x, color=PALE, linestyle=":", linewidth=1.2, zorder=1)
            anchor = {"xy": (reference.x, 1), "xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            axis.annotate(drawable(reference.label), xytext=(0, 3), ha="center", color=PALE, fontsize=9, **anchor)
    axis.set_title(shorten(chart.title, 80), fontsize=12, color=INK, pad=16, loc="left", parse_math=False)
    style_axis(axis)
    if note:
        axis.set_xlabel("\n".join([axis.get_xlabel(), *note]), parse_math=False)
    _write_legend(figure, handles, names, columns=-(-len(names) // max(rows, 1)))
    return figure


def _draw_series(axis: Any, chart: Chart) -> list[Any]:
    """Draw all series; returns the handles of those in the legend."""
    bars = [series for series in chart.series if series.kind == "bars"]
    handles = []
    for series in chart.series:
        style = series.style
        y = [math.nan if value is None else value for value in series.y]
        if series.kind == "band":
            high = [math.nan if value is None else value for value in series.high]
            axis.fill_between(series.x, y, high, color=style.color, alpha=0.16, linewidth=0, zorder=2)
            continue
        if series.kind == "bars":
            width = _bar_width(chart) / len(bars)
            shift = (bars.index(series) - (len(bars) - 1) / 2) * width
            handle = axis.bar([x + shift for x in series.x], y, width=0.92 * width, color=style.color, zorder=3)
            for bar in handle:
                bar.set(hatch="" if style.dash == "solid" else "////", edgecolor="white", linewidth=0)
        elif series.kind == "points":
            area = [size**2 / 2 for size in series.sizes] or 55
            marker = _MARKERS[style.marker] or "o"
            look = {"color": style.color, "alpha": 0.35 if series.faint else 1, "linewidths": 0}
            handle = axis.scatter(series.x, y, s=area, marker=marker, zorder=4, **look)
        else:
            look = {"marker": _MARKERS[style.marker] or None, "markersize": 6} if series.marked else {}
            look |= {"markevery": max(1, -(-len(y) // _MAX_MARKERS)), "alpha": 0.45 if series.faint else 1}
            dash = _DASHES[style.dash]
            (handle,) = axis.plot(series.x, y, color=style.color, linestyle=dash, linewidth=1.8, zorder=3, **look)
        if series.in_legend:
            handles.append(handle)
    return handles


def _bar_width(chart: Chart) -> float:
    """The width of all bars at one x: most of the smallest distance between neighbors."""
    xs = sorted({x for series in chart.series if series.kind == "bars" for x in series.x})
    return 0.84 * min((right - left for left, right in pairwise(xs)), default=1.0)


def _set_axis(axis: Any, side: Any, name: str, described: Axis) -> None:
    ticker = require("matplotlib.ticker", extra="report")
    side.set_label_text(drawable(described.label), color=INK, fontsize=10, parse_math=False)
    if described.scale == "log":
        axis.set(**{f"{name}scale": "log"})
        low, high = axis.get_xlim() if name == "x" else axis.get_ylim()
        # Over several decades, only powers of ten fit.
        several = ticker.LogLocator(subs=(1,) if high > 10**_FEW_DECADES * low else (1, 2, 5), numticks=12)
        side.set_major_locator(several if high > 10 * low else ticker.MaxNLocator(6, integer=described.whole))
        side.set_minor_formatter(ticker.NullFormatter())
    if described.scale == "names":
        names = [shorten(label, 24) for label in described.names]
        side.set_ticks(range(len(names)), names, parse_math=False)
        axis.set(**{f"{name}lim": (-0.5, len(names) - 0.5)})
    elif described.percent:
        side.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    else:
        if described.whole and described.scale == "linear":
            side.set_major_locator(ticker.MaxNLocator(integer=True))
        side.set_major_formatter(
            ticker.FuncFormatter(lambda value, _: f"{value:,.5g}" if value < 1e5 else f"{value:g}")
        )
    if described.limits is not None:
        axis.set(**{f"{name}lim": described.limits})
    elif name == "y" and described.scale == "linear":
        low, high = axis.get_ylim()
        axis.set_ylim(min(0.0, low) if low < 0 and not described.percent else 0.0, high if high > 0 else 1.0)


def _write_legend(figure: Any, handles: list[Any], names: list[str], *, columns: int) -> None:
    if not handles:
        return
    # Placeholders first: matplotlib leaves out names that begin with an underscore.
    look = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    legend = figure.legend(handles, ["name"] * len(names), **look)
    for entry, label in zip(legend.get_texts(), names, strict=True):
        entry.set_text(label)
        entry.set_parse_math(False)


def wrap(text: str, width: int, lines: int) -> str:
    """The text in at most ``lines`` lines of ``width`` drawable characters; longer text ends in an ellipsis.

    Example:
        >>> wrap("a red rose in the garden", 10, 2).splitlines()
        ['a red rose', 'in the …']
    """
    text = drawable(text)[: 2 * width * lines]  # Wrapping a whole book to show its first page would be slow.
    return "\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …", break_on_hyphens=False))


def shorten(text: str, width: int) -> str:
    """The text in one line of at most ``width`` drawable characters; longer text ends in an ellipsis.

    Example:
        >>> shorten("a red rose", 6)
        'a red…'
    """
    text = drawable(text)
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def drawable(text: str) -> str:
    r"""The text in one line, with a box for each character that the font lacks; matplotlib would warn about each.

    Example:
        >>> drawable("rose\t花")
        'rose ▯'
    """
    fonts = require("matplotlib.font_manager", extra="report")
    known = fonts.get_font(fonts.findfont(fonts.FontProperties())).get_charmap()
    return "".join(character if ord(character) in known else "▯" for character in one_line(text))


def one_line(text: str) -> str:
    r"""The text with single spaces for line breaks, tabs and unprintable characters.

    Example:
        >>> one_line(" red\n\trose ")
        'red rose'
    """
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())

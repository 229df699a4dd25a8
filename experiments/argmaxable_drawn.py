"""Pictures of output layers: a row of panels, one for each data set, with one legend for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.extras import require
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import new_figure, save_figure
from shortlist.train.comparison import Interval

_MARKERS = ("o", "s", "D", "^")
_DASHES = {"text": "-", "frequencies": "--"}
_PLACES = {"bottleneck": 0, "dft": 1}
_LEAST_WIDTH = 7.6  # Room for a legend of two columns.


class Line(NamedTuple):
    """Intervals of a figure along an axis, for one head and one start; ``name`` is for the legend."""

    name: str
    start: str
    head: str
    x: Sequence[float]
    y: Sequence[Interval]


def draw_panels(
    path: Path,
    panels: Mapping[str, Sequence[Line]],
    *,
    title: str,
    x: str,
    y: str,
    percent: bool = True,
    log: bool = False,
    widths: bool = True,
) -> Path:
    """Draw lines with their 95% bands.

    Args:
        path: where to write.
        panels: by title of the panel, its lines.
        title: of the whole.
        x, y: what the axes measure.
        percent: values are shares.
        log: a logarithmic y axis.
        widths: x are widths, marked on a logarithmic axis; else steps.
    """
    ticker = require("matplotlib.ticker", extra="report")
    figure = new_figure(max(3.9 * len(panels) + 0.6, _LEAST_WIDTH), 4.4)
    figure.suptitle(title, fontsize=12, color=INK)
    handles: dict[str, Any] = {}
    for axis, (name, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for line in lines:
            handles[line.name] = _draw_line(axis, line, marked=widths, log=log)
        axis.set_title(name, fontsize=10, color=INK)
        axis.set_xlabel(x, fontsize=9)
        if log:
            axis.set_yscale("log")
        elif lines:
            axis.set_ylim(bottom=0)
        if percent:
            axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
        if widths:
            _mark_widths(axis, sorted({place for line in lines for place in line.x}))
        _plain(axis)
    figure.axes[0].set_ylabel(y, fontsize=9)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save_figure(figure, path, dpi=110)


def draw_bars(path: Path, bars: Mapping[str, Mapping[str, Interval]], *, title: str, y: str) -> Path:
    """Draw groups of bars with their 95% intervals: ``bars[name][group]``."""
    figure = new_figure(7.4, 4.4)
    axis = figure.subplots()
    axis.set_title(title, fontsize=12, color=INK, loc="left")
    groups = list(dict.fromkeys(group for each in bars.values() for group in each))
    wide = 0.8 / max(len(bars), 1)
    for place, (name, each) in enumerate(bars.items()):
        at = [groups.index(group) + (place - (len(bars) - 1) / 2) * wide for group in each]
        means = [found.mean for found in each.values()]
        halves = [found.half_width for found in each.values()]
        color = candidate_style(place).color
        axis.bar(at, means, 0.9 * wide, yerr=halves, color=color, label=name, capsize=3, error_kw={"ecolor": INK})
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylabel(y, fontsize=10)
    _plain(axis)
    figure.legend(loc="outside lower center", ncols=min(len(bars), 2), frameon=False, fontsize=9)
    return save_figure(figure, path, dpi=110)


def _draw_line(axis: Any, line: Line, *, marked: bool, log: bool) -> Any:
    place = _PLACES[line.head]
    color, dash = candidate_style(place).color, _DASHES.get(line.start, ":")
    means = [each.mean for each in line.y]
    # An interval that reaches 0 has no place on a logarithmic axis.
    low = [max(each.mean - each.half_width, each.mean / 4 if log else -math.inf) for each in line.y]
    high = [each.mean + each.half_width for each in line.y]
    marker = _MARKERS[place] if marked else None
    axis.fill_between(line.x, low, high, color=color, alpha=0.14, linewidth=0)
    return axis.plot(line.x, means, dash, color=color, marker=marker, markersize=5, linewidth=1.7)[0]


def _mark_widths(axis: Any, places: Sequence[float]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(places, [f"{place:g}" for place in places])
    axis.minorticks_off()


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)

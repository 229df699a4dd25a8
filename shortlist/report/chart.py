"""A chart as data, independent of the backend: chart.js draws it in the page, matplotlib in files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

INK = "#1b1f24"
"""The color of text, axes and ground truth; light on pages with a dark background."""

# Okabe and Ito: distinguishable with every kind of color vision. Black is INK; the yellow is darkened for white paper.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E6E6E", "#B5A500")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star")

Dash = Literal["solid", "dash", "dot", "dashdot"]


@dataclass(frozen=True)
class Style:
    """The style of one candidate, the same in every chart."""

    color: str
    marker: str = "circle"
    dash: Dash = "solid"


OPTIMUM = Style(INK, marker="none")


def candidate_style(index: int) -> Style:
    """The style of a candidate; starting with the ninth, colors repeat with other dashes and markers.

    Example:
        >>> candidate_style(0)
        Style(color='#0072B2', marker='circle', dash='solid')
        >>> candidate_style(8)
        Style(color='#0072B2', marker='square', dash='dash')
    """
    cycle, color = divmod(index, len(_COLORS))
    dashes: tuple[Dash, ...] = ("solid", "dash", "dashdot", "dot")
    return Style(_COLORS[color], _MARKERS[(color + cycle) % len(_MARKERS)], dashes[cycle % len(dashes)])


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        label: what it measures, with the unit.
        scale: ``"linear"``, ``"log"``, or ``"names"`` for the words in ``names``.
        percent: values are fractions and are written as percentages.
        whole: only whole numbers are written.
        limits: the smallest and the largest value shown; None to fit the data.
        names: the words at 0, 1, ....
        words: what a tooltip calls the positions of the series, if they have none of their own in ``names``.
    """

    label: str
    scale: Literal["linear", "log", "names"] = "linear"
    percent: bool = False
    whole: bool = False
    limits: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """Points drawn in one style.

    Args:
        name: its entry in the legend.
        kind: ``"line"``, ``"points"``, ``"bars"`` (side by side at each x), or ``"band"`` between ``y`` and ``high``.
        x: the positions.
        y: the values; None leaves a gap.
        style: color, marker, dash.
        high: the upper edge of a band.
        sizes: the width of each point in pixels; empty for the default size.
        notes: a short text per point, shown on hover; empty for its coordinates.
        group: series with the same group are shown and hidden together; the name if empty.
        in_legend: False if another series represents this one in the legend.
        marked: a line with markers.
        faint: drawn as background.
    """

    name: str
    kind: Literal["line", "points", "bars", "band"]
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    style: Style
    high: tuple[float | None, ...] = ()
    sizes: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    group: str = ""
    in_legend: bool = True
    marked: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Reference:
    """A thin guide line: vertical at ``x``, or the diagonal if ``x`` is None."""

    label: str
    x: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart: axes, series and guide lines.

    Example:
        >>> line = Series("lml", "line", (1.0, 2.0), (0.3, 0.1), candidate_style(0))
        >>> chart = Chart("Error", Axis("labels per answer"), Axis("error", percent=True), (line,))
        >>> [series.name for series in chart.series]
        ['lml']
    """

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()
    note: str = ""

    @property
    def square(self) -> bool:
        """Whether both axes share one scale, as charts with a diagonal do."""
        return any(reference.x is None for reference in self.references)


@dataclass(frozen=True)
class Panel:
    """A section of the report that shows one of several charts at a time.

    Args:
        name: for files and anchors: letters, digits and hyphens.
        title: the heading.
        about: what the chart shows and how to read it.
        charts: by choice, one chart, or one for each K of the slider.
        choose: the label of the choice, such as ``"Rule"``; unused if ``charts`` has one entry.
        log: whether the reader may switch the y axis between linear and logarithmic.
        wide: whether the chart takes the full width.
    """

    name: str
    title: str
    about: str
    charts: dict[str, tuple[Chart, ...]] = field(default_factory=dict)
    choose: str = ""
    log: bool = False
    wide: bool = False

    def at(self, choice: str, k_index: int) -> Chart:
        """The chart of a choice at a K of the slider."""
        charts = self.charts[choice]
        return charts[min(k_index, len(charts) - 1)]

"""One description of a chart, for the page and for files: what is drawn, not how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

INK = "#1b1f24"
"""Text, axes and what is known for certain; a page on dark ground draws it light."""

# Okabe and Ito: told apart with every kind of colour vision. Black is INK; the yellow is darkened for white ground.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E6E6E", "#B5A500")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star")

Dash = Literal["solid", "dash", "dot", "dashdot"]


@dataclass(frozen=True)
class Style:
    """How one candidate is drawn, the same in every chart."""

    colour: str
    marker: str = "circle"
    dash: Dash = "solid"


OPTIMUM = Style(INK, marker="none")


def candidate_style(place: int) -> Style:
    """The style of the candidate at a place; from the ninth on colours come again, dashed and with other markers.

    Example:
        >>> candidate_style(0)
        Style(colour='#0072B2', marker='circle', dash='solid')
        >>> candidate_style(8)
        Style(colour='#0072B2', marker='square', dash='dash')
    """
    turn, colour = divmod(place, len(_COLOURS))
    dashes: tuple[Dash, ...] = ("solid", "dash", "dashdot", "dot")
    return Style(_COLOURS[colour], _MARKERS[(colour + turn) % len(_MARKERS)], dashes[turn % len(dashes)])


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        label: what it measures, with the unit.
        scale: ``"linear"``, ``"log"``, or ``"names"`` for words in the order of ``names``.
        percent: values are shares and are written as percent.
        whole: only whole numbers are written.
        limits: the least and the greatest value shown; None for what the data need.
        names: the words at 0, 1, ....
    """

    label: str
    scale: Literal["linear", "log", "names"] = "linear"
    percent: bool = False
    whole: bool = False
    limits: tuple[float, float] | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """What is drawn in one style.

    Args:
        name: as it stands in the legend.
        kind: ``"line"``, ``"points"``, ``"bars"`` (side by side at each x), or ``"band"`` between ``y`` and ``high``.
        x: where.
        y: how much; None leaves a gap.
        style: colour, marker, dash.
        high: the upper edge of a band.
        sizes: how wide each point is, in pixels; empty for the usual size.
        notes: a few words for each point, shown when it is pointed at; empty for its coordinates.
        group: what is shown and hidden together; the name if empty.
        in_legend: False for what the legend names by another series.
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
    """A thin line that is no data: upright at ``x``, or the diagonal when ``x`` is None."""

    label: str
    x: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart: axes, series and lines to read it by.

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


@dataclass(frozen=True)
class Panel:
    """A place of the report that shows one chart at a time.

    Args:
        name: for files and anchors: letters, digits and hyphens.
        title: the heading.
        about: one sentence: what is seen, and how to read it.
        charts: by choice: one chart, or one for each K of the slider.
        choose: what is chosen, such as ``"Rule"``; there is no choice with one entry of ``charts``.
        log: the reader may switch the y axis between linear and logarithmic.
        wide: takes the whole width.
    """

    name: str
    title: str
    about: str
    charts: dict[str, tuple[Chart, ...]] = field(default_factory=dict)
    choose: str = ""
    log: bool = False
    wide: bool = False

    def at(self, choice: str, place: int) -> Chart:
        """The chart of a choice at the K of that place."""
        charts = self.charts[choice]
        return charts[min(place, len(charts) - 1)]

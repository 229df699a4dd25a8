"""How large sets are that hold K labels on average (figure 5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.average_k import measured, setup_words
from experiments.average_k_trial import LARGEST_SIZE
from experiments.long_tail import SHOTS
from experiments.long_tail_runs import Measured, decided, told_choices
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, beats
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval

# The text speaks of what is seen in a histogram; a point of all rows is about the least that can be.
WORTH = 0.01
_SHOWN = 20
_CE, _OURS = "cross_entropy", "average_k"


def size_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 5.4: sizes with cross-entropy and with the average-K loss, and by shot."""
    found, k, over = measured(lab, settings), settings["tuning_k"], settings["population"]
    one = [shares(found, name, over, k, 1, 1) for name in (_CE, _OURS)]
    some = [shares(found, name, over, k, 2, 4) for name in (_OURS, _CE)]
    claims = [
        Claim(
            "Cross-entropy gives more sets of one label than the average-K loss.",
            "a histogram without figures",
            beats(one[0], one[1], names=(f"sets of one: {_CE}", _OURS), worth=WORTH),
        ),
        Claim(
            "The average-K loss gives more sets of two to four labels than cross-entropy.",
            "a histogram without figures",
            beats(some[0], some[1], names=(f"sets of 2 to 4: {_OURS}", _CE), worth=WORTH),
        ),
        Claim(
            "With the average-K loss sets are larger for medium-shot than for many-shot classes, and larger again for "
            "few-shot classes.",
            "a histogram without figures; few-shot sets go up to about 50 labels",
            all_of([_larger(found, k, "medium", "many"), _larger(found, k, "few", "medium")]),
        ),
    ]
    save_figure(draw_chart(_loss_chart(found, over, k)), lab.figures / "sizes.png", dpi=110)
    save_figure(draw_chart(_shot_chart(found, k)), lab.figures / "sizes_by_shot.png", dpi=110)
    figures = [
        Figure("sizes.png", f"Share of test rows by the size of their set, {k} labels on average; means over seeds."),
        Figure("sizes_by_shot.png", "The same with the average-K loss, by how many training rows the true class has."),
    ]
    tables = [_table(found, k, over)]
    return Outcome(setup_words(settings, found), claims, tables, figures, told_choices(found.choices))


def shares(found: Measured, name: str, rows: str, k: int, first: int, last: int) -> list[float]:
    """The share of sets from one size to another, for each seed; empty if there are no such rows."""
    histograms = [run[f"histogram{k}"][rows] for run in found.found[name][k]]
    return [sum(histogram[first : last + 1]) for histogram in histograms] if all(histograms) else []


def _sizes(found: Measured, name: str, k: int, shot: str) -> list[float]:
    values = [run[f"size_by_shot{k}"][shot] for run in found.found[name][k]]
    return [] if None in values else values


def _larger(found: Measured, k: int, larger: str, smaller: str) -> Finding:
    groups = [_sizes(found, _OURS, k, shot) for shot in (larger, smaller)]
    names = (f"size, {larger}-shot", f"{smaller}-shot")
    return decided(
        groups,
        lambda: beats(groups[0], groups[1], names=names, worth=0.1, unit="labels"),
        f"{larger}- or {smaller}-shot",
    )


def _loss_chart(found: Measured, over: str, k: int) -> Chart:
    series = [_bars(found, name, over, k, place, name.replace("_", " ")) for place, name in enumerate((_CE, _OURS))]
    return _chart("Sizes of sets by loss", series)


def _shot_chart(found: Measured, k: int) -> Chart:
    series = [_bars(found, _OURS, shot, k, place, f"{shot}-shot classes") for place, shot in enumerate(SHOTS)]
    return _chart("Sizes of sets by training rows of the class, average-K loss", series)


def _bars(found: Measured, name: str, rows: str, k: int, place: int, shown: str) -> Series:
    """Shares of sizes from 0; the last bar holds all that are larger."""
    each = [shares(found, name, rows, k, size, size) for size in range(_SHOWN)]
    each.append(shares(found, name, rows, k, _SHOWN, LARGEST_SIZE))
    y = tuple(sum(values) / len(values) if values else None for values in each)
    return Series(shown, "bars", tuple(map(float, range(_SHOWN + 1))), y, candidate_style(place))


def _chart(title: str, series: Sequence[Series]) -> Chart:
    names = (*map(str, range(_SHOWN)), f"{_SHOWN}+")
    x = Axis("labels in the set", scale="names", names=names)
    return Chart(title, x, Axis("share of rows", percent=True), tuple(series))


def _table(found: Measured, k: int, over: str) -> Table:
    parts = {"none": (0, 0), "one": (1, 1), "2 to 4": (2, 4), "5 to 9": (5, 9), "10 and more": (10, LARGEST_SIZE)}
    rows = []
    for name in (_CE, _OURS):
        for group in (over, *SHOTS):
            values = [shares(found, name, group, k, *sizes) for sizes in parts.values()]
            shown = "all rows" if group == over else f"{group}-shot"
            rows.append([f"{name}, {shown}", *(Interval.of(each) if each else None for each in values)])
    return Table(f"Share of sets by size, {k} labels on average, %", ["loss and rows", *parts], rows, percent=True)

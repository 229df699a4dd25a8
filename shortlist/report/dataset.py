"""A picture of a dataset: labels per row, frequencies, Lorenz curve, parts, shots, groups and examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.data import Dataset
from shortlist.data.summary import DatasetSummary, GroupStructure
from shortlist.data.tally import Tally
from shortlist.extras import require
from shortlist.report.dataset_examples import draw_examples, example_rows, shorten
from shortlist.report.saving import new_figure

_INK, _MARK, _FILL, _PALE = "#264653", "#b5651d", "#2a9d8f", "#777777"
_LINES = ("-", "--", "-.", ":")
_COLOURS = (_INK, _MARK, _FILL, "#8d5a97")
_WIDTH = 13.5
_MOST_BARS = 40
_FEW_LABELS = 30


def draw_dataset(summary: DatasetSummary, dataset: Dataset | None = None, *, examples: int = 12, seed: int = 0) -> Any:
    """Draw the figures of a dataset and, if the dataset is given, some of its rows.

    Args:
        summary: from `shortlist.data.summary.summarise`.
        dataset: the same dataset, for examples; None for none.
        examples: how many rows, chosen by chance.
        seed: for the choice; the same seed shows the same rows.

    Returns:
        A matplotlib figure, for `shortlist.report.saving.save_figure`.
    """
    if examples < 0:
        raise ValueError(f"`examples` must be at least 0; got {examples}.")
    rows = [] if dataset is None else example_rows(len(dataset), examples, seed=seed)
    columns, height = (4, 2.1) if summary.inputs == "text" else (6, 2.6)
    if summary.inputs in ("features", "sparse features") and not _is_matrix(summary):
        height = 1.8
    grid = height * -(-len(rows) // columns)
    figure = new_figure(_WIDTH, 7.4 + (grid + 0.4 if rows else 0))
    panels = figure
    if dataset is not None and rows:
        panels, below = figure.subfigures(2, 1, height_ratios=(7.4, grid + 0.4))
        below.suptitle(_examples_title(summary, len(rows)), fontsize=11)
        draw_examples(below, dataset, rows, columns=columns)
    panels.suptitle(_title(summary), fontsize=13, parse_math=False)
    axes = panels.subplots(2, 3).flat
    _draw_cardinality(axes[0], summary)
    _draw_frequencies(axes[1], summary)
    _draw_lorenz(axes[2], summary)
    _draw_parts(axes[3], summary)
    _draw_shots(axes[4], summary)
    _draw_groups(axes[5], summary)
    return figure


def _title(summary: DatasetSummary) -> str:
    shape = "" if not summary.input_shape else f" ({' × '.join(map(str, summary.input_shape))})"
    name = shorten(summary.name, 60)
    return f"{name}{': ' if name else ''}{summary.rows:,} rows of {summary.inputs}{shape}, {summary.labels:,} labels"


def _examples_title(summary: DatasetSummary, count: int) -> str:
    scale = {"features": "; brighter is larger", "sparse features": "; brighter is larger (absolute)"}
    return f"{count} rows by chance{scale.get(summary.inputs, '')}"


def _is_matrix(summary: DatasetSummary) -> bool:
    shape = summary.input_shape or ()
    return len(shape) == 2 and min(shape) > 1


def _draw_cardinality(axis: Any, summary: DatasetSummary) -> None:
    """How many rows have how many labels."""
    tally = summary.labels_per_row
    step = max(1, -(-(tally.maximum - tally.minimum + 1) // _MOST_BARS))
    starts = np.arange(tally.minimum, tally.maximum + 1, step)
    bins = (np.array(tally.values, dtype=np.int64) - tally.minimum) // step
    heights = np.bincount(bins, weights=np.array(tally.times, dtype=np.float64), minlength=len(starts))
    middle = starts + (step - 1) / 2
    axis.bar(middle, heights, width=0.85 * step, color=_INK)
    axis.axvline(tally.mean, color=_MARK, linestyle=":", linewidth=1.4)
    # Room above the bars, so that the note stands on white.
    axis.set(xlim=(starts[0] - max(1, step), starts[-1] + step + 0.5), ylim=(0, max(1.0, 1.18 * heights.max())))
    right = tally.mean < (starts[0] + starts[-1]) / 2 + 1e-9
    note = f"  mean {tally.mean:.3g}  "
    axis.text(tally.mean, 1.12 * heights.max(), note, color=_MARK, ha="left" if right else "right", va="center")
    xlabel = "labels per row" if step == 1 else f"labels per row (bars of {step} values)"
    _finish(axis, "Labels per row", xlabel, "rows", whole="xy")


def _draw_frequencies(axis: Any, summary: DatasetSummary) -> None:
    """Rows of each label, from the most to the least frequent."""
    tally = summary.rows_per_label
    seen = Tally(*_above_zero(tally))
    counts, times = np.array(seen.values[::-1], dtype=np.int64), np.array(seen.times[::-1], dtype=np.int64)
    last = times.cumsum()
    if summary.labels <= _FEW_LABELS:
        axis.bar(np.arange(1, seen.members + 1), np.repeat(counts, times), width=0.85, color=_INK)
        axis.set_xlim(0.3, max(1, summary.labels) + 0.7)
    elif len(counts):
        ranks = np.stack([last - times + 1, last], axis=1).ravel()
        axis.plot(ranks, np.repeat(counts, 2), color=_INK, linewidth=2)
        axis.set(xscale="log", xlim=(0.9, 1.15 * summary.labels))
        if seen.maximum > 10 * seen.minimum:
            axis.set(yscale="log", ylim=(0.8 * seen.minimum, 2 * seen.maximum))
        else:
            axis.set_ylim(0, 1.15 * seen.maximum)
    if summary.never_seen.count:
        _note(axis, f"{summary.never_seen.count:,} labels never seen", 0.97, 0.95, ha="right")
    log = "y" if axis.get_yscale() == "log" else ""
    _finish(axis, "Frequency of the labels", "rank of the label", "rows with the label", whole="xy", log=log)


def _draw_lorenz(axis: Any, summary: DatasetSummary) -> None:
    """Which share of the label entries the rarest labels hold."""
    x, y = (100 * np.array(side) for side in zip(*summary.lorenz, strict=True))
    axis.fill_between(x, x, y, color=_FILL, alpha=0.15, linewidth=0)
    axis.plot([0, 100], [0, 100], color=_PALE, linewidth=1, linestyle="--")
    axis.plot(x, y, color=_INK, linewidth=2)
    for share, held in summary.tails:
        if share == 0.8 and summary.rows_per_label.total:
            axis.plot([80, 80, 100], [0, 100 * held, 100 * held], color=_MARK, linewidth=1.2, linestyle=":")
            axis.plot(80, 100 * held, "o", color=_MARK)
            _note(axis, f"the rarest 80 % hold {percent(held)}", 0.04, 0.80, colour=_MARK)
    _note(axis, f"Gini {summary.gini:.3f}", 0.04, 0.93)
    axis.set(xlim=(0, 100), ylim=(0, 101))
    _finish(axis, "Lorenz curve", "labels, rarest first (%)", "share of all label entries (%)")


def _draw_parts(axis: Any, summary: DatasetSummary) -> None:
    """Rows of each part of the split."""
    bars = [(part.name, part.rows, f"{part.rows:,} ({part.labels_per_row:.3g} per row)") for part in summary.parts]
    rest = summary.rows_without_part if summary.parts else summary.rows
    if rest or not bars:
        bars.append(("no part" if summary.parts else "all rows", rest, f"{rest:,}"))
    _bars(axis, bars[:10])
    _finish(axis, "Rows by part" if summary.parts else "Rows (no split)", "rows (labels per row in brackets)", "")


def _draw_shots(axis: Any, summary: DatasetSummary) -> None:
    """Labels by their number of training examples."""
    title, xlabel = "Labels by training examples", "labels (share of the label entries in brackets)"
    if summary.training is None:
        _note(axis, "the split has no part `train`", 0.5, 0.5, ha="center")
        axis.set(xticks=[], yticks=[])
        return _finish(axis, title, xlabel, "")
    entries = max(1, sum(shot.entries for shot in summary.training.shots))
    _bars(
        axis,
        [
            (shot_name(shot.low, shot.high, shot.name), shot.labels, f"{shot.labels:,} ({percent(shot.entries / entries)})")
            for shot in summary.training.shots
        ],
    )
    if summary.training.never.count:
        few, never = summary.training.shots[0].labels, summary.training.never.count
        axis.barh([0], [never], height=0.7, color="none", edgecolor="white", hatch="////", linewidth=0)
        _note(axis, f"hatched: {never:,} without any of {few:,}", 0.97, 0.03, ha="right", va="bottom")
    return _finish(axis, title, xlabel, "")


def _draw_groups(axis: Any, summary: DatasetSummary) -> None:
    """Sizes of groups: by name if there is one partition, by rank if there are several; else the commonest labels."""
    kinds = [(group, "labels") for group in summary.label_groups] + [(group, "rows") for group in summary.row_groups]
    kinds = [(group, of) for group, of in kinds if group.groups]
    if not kinds:
        _bars(axis, [(name, count, f"{count:,}") for name, count in summary.most_frequent])
        return _finish(axis, "Most frequent labels", "rows with the label", "")
    if len(kinds) == 1:
        group, of = kinds[0]
        _bars(axis, [(name, size, f"{size:,}") for name, size in group.largest])
        title = f"{shorten(group.name, 24)}: {group.groups:,} groups" + (", the largest" if group.groups > 10 else "")
        return _finish(axis, title, f"{of} in the group", "")
    for number, (group, of) in enumerate(kinds[:8]):
        _draw_ranks(axis, group, of, _COLOURS[number % 4], _LINES[number // 4 if of == "labels" else 1 + number // 4])
    axis.set(xscale="log", yscale="log")
    axis.margins(y=0.12)
    axis.legend(frameon=False, fontsize=8)
    return _finish(axis, "Sizes of groups", "rank of the group", "members", whole="xy", log="xy")


def _draw_ranks(axis: Any, group: GroupStructure, of: str, colour: str, line: str) -> None:
    times = np.array(group.sizes.times[::-1], dtype=np.int64)
    last = times.cumsum()
    ranks = np.stack([last - times + 1, last], axis=1).ravel()
    label = f"{shorten(group.name, 20)}: {group.groups:,} groups of {of}".replace("$", r"\$")
    marker = "o" if group.groups <= 12 else None
    sizes = np.repeat(group.sizes.values[::-1], 2)
    axis.plot(ranks, sizes, color=colour, linestyle=line, marker=marker, markersize=4, label=label)


def _bars(axis: Any, bars: list[tuple[str, int, str]]) -> None:
    """Bars from left to right with a name before and a figure behind; the first on top."""
    places = np.arange(len(bars))
    axis.barh(places, [value for _, value, _ in bars], height=0.7, color=_INK)
    most = max([value for _, value, _ in bars], default=0)
    for place, (_, value, text) in enumerate(bars):
        axis.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(places, [shorten(name, 26) for name, _, _ in bars], parse_math=False)
    # Few bars stay as thick as many would be; figures behind the bars need room.
    axis.set(ylim=(max(4.5, len(bars) - 0.5), -0.5), xlim=(0, 1.45 * max(1, most)))


def shot_name(low: int, high: int | None, name: str) -> str:
    """Few, medium or many with the numbers of training examples that are meant."""
    return f"{name}: > {low - 1}" if high is None else f"{name}: {low}-{high}" if low else f"{name}: < {high + 1}"


def percent(share: float) -> str:
    """A share for people: three digits, and never 0 % or 100 % unless it is."""
    if 0 < share < 1e-4:
        return "< 0.01 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{100 * share:.3g} %"


def _note(axis: Any, text: str, x: float, y: float, *, ha: str = "left", va: str = "top", colour: str = _INK) -> None:
    axis.text(x, y, text, transform=axis.transAxes, ha=ha, va=va, color=colour, fontsize=9)


def _finish(axis: Any, title: str, xlabel: str, ylabel: str, *, whole: str = "x", log: str = "") -> None:
    ticker = require("matplotlib.ticker", extra="report")
    axis.set_title(title, fontsize=11, parse_math=False)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    for name, side in (("x", axis.xaxis), ("y", axis.yaxis)):
        if name not in whole or (name == "y" and not ylabel):
            continue
        side.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else ""))
        if side.get_scale() == "linear":
            side.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True))
            side.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        else:
            side.set_minor_formatter(ticker.NullFormatter())
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#e5e5e5", linewidth=0.7, axis="both" if ylabel else "x")
    axis.set_axisbelow(True)

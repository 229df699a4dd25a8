"""A dataset at a glance: labels per row, label frequencies, Lorenz curve, parts, shots, groups and examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.data import Dataset
from shortlist.data.summary.statistics import DatasetSummary
from shortlist.data.summary.tally import Tally
from shortlist.extras import require
from shortlist.formatting import format_count, format_number, format_percent
from shortlist.report.chart_matplotlib import new_figure, shorten, style_axis
from shortlist.report.dataset_examples import draw_examples, example_rows

_INK, _MARK, _FILL, _PALE = "#264653", "#b5651d", "#2a9d8f", "#777777"
_LINES = ("-", "--", "-.", ":")
_COLORS = (_INK, _MARK, _FILL, "#8d5a97")
_WIDTH = 13.5
_MAX_BARS = 40
_FEW_LABELS = 30


def draw_dataset(summary: DatasetSummary, dataset: Dataset | None = None, *, examples: int = 12, seed: int = 0) -> Any:
    """Draw the statistics of a dataset and, if the dataset is given, random rows of it.

    Args:
        summary: from `shortlist.data.summarise`.
        dataset: the same dataset, to show examples; None shows none.
        examples: how many random rows.
        seed: the same seed shows the same rows.

    Returns:
        A matplotlib figure; see `shortlist.report.chart_matplotlib.save_figure`.

    Raises:
        ValueError: if ``examples`` is negative.
        ImportError: if matplotlib is not installed.

    Example:
        >>> from shortlist.data import Dataset, Features
        >>> from shortlist.data.summary import summarise
        >>> flowers = Dataset(Features(torch.eye(3)), torch.tensor([0, 1, 1]), ("daisy", "clover"))
        >>> figure = draw_dataset(summarise(flowers), flowers, examples=2)
        >>> len(figure.subfigs)  # the statistics, and the examples below
        2
    """
    if examples < 0:
        raise ValueError(f"`examples` must be at least 0; got {examples}.")
    rows = [] if dataset is None else example_rows(len(dataset), examples, seed=seed)
    columns, height = (4, 2.2) if summary.inputs == "text" else (6, 2.6)
    if summary.inputs in ("features", "sparse features") and not _is_matrix(summary):
        height = 1.5
    grid = height * -(-len(rows) // columns)
    figure = new_figure(_WIDTH, 7.4 + (grid + 0.4 if rows else 0))
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
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
    rows, labels = format_count(summary.rows, "row"), format_count(summary.labels, "label")
    name = f"{shorten(summary.name, 60)}: " if summary.name else ""
    return f"{name}{rows} of {summary.inputs}{shape}, {labels}"


def _examples_title(summary: DatasetSummary, count: int) -> str:
    key = {
        "features": "; brighter is larger",
        "sparse features": "; brighter is larger (absolute values)",
        "object pairs": "; subjects are dark, objects orange",
    }
    return f"{format_count(count, 'row')} at random{key.get(summary.inputs, '')}"


def _is_matrix(summary: DatasetSummary) -> bool:
    shape = summary.input_shape or ()
    return len(shape) == 2 and min(shape) > 1


def _draw_cardinality(axis: Any, summary: DatasetSummary) -> None:
    """Histogram of the number of labels per row."""
    tally = summary.labels_per_row
    bins = tally.bins(_MAX_BARS) or [(0, 0, 0)]
    step = bins[0][1] - bins[0][0] + 1
    middle = [(first + last) / 2 for first, last, _ in bins]
    heights = [count for _, _, count in bins]
    axis.bar(middle, heights, width=0.85 * step, color=_INK)
    # Room for the note above the bars; a single bar does not fill the panel.
    side = 0.8 * step if len(bins) > 1 else 1.5
    axis.set(xlim=(middle[0] - side, middle[-1] + side), ylim=(0, max(1.0, 1.18 * max(heights))))
    if summary.rows:
        axis.axvline(tally.mean, color=_MARK, linestyle=":", linewidth=1.4)
        ha = "left" if tally.mean <= (middle[0] + middle[-1]) / 2 else "right"
        axis.text(
            tally.mean, 1.12 * max(heights), f"  mean {format_number(tally.mean)}  ", color=_MARK, ha=ha, va="center"
        )
    xlabel = "labels per row" if step == 1 else f"labels per row (bins of {step})"
    _finish(axis, "Labels per row", xlabel, "rows", whole="xy")


def _draw_frequencies(axis: Any, summary: DatasetSummary) -> None:
    """Rows of each label, from the most to the least frequent."""
    tally = summary.rows_per_label
    first = 1 if tally.minimum == 0 else 0
    seen = Tally(tally.values[first:], tally.times[first:])
    if summary.labels <= _FEW_LABELS:
        counts = np.repeat(np.array(seen.values[::-1], dtype=np.int64), seen.times[::-1])
        axis.bar(np.arange(1, seen.members + 1), counts, width=0.85, color=_INK)
        side = 0.7 if summary.labels > 1 else 1.5
        axis.set(xlim=(1 - side, max(1, summary.labels) + side), ylim=(0, max(1.0, 1.1 * seen.maximum)))
    elif seen.members:
        axis.plot(*_by_rank(seen), color=_INK, linewidth=2)
        axis.set(xscale="log", xlim=(0.9, 1.15 * summary.labels))
        if seen.maximum > 10 * seen.minimum:
            axis.set(yscale="log", ylim=(0.8 * seen.minimum, 2 * seen.maximum))
        else:
            axis.set_ylim(0, 1.15 * seen.maximum)
    if summary.never_seen.count:
        _note(axis, f"{format_count(summary.never_seen.count, 'label')} never seen", 0.97, 0.95, ha="right")
    _finish(axis, "Label frequencies", "rank of the label", "rows with the label", whole="xy")


def _draw_lorenz(axis: Any, summary: DatasetSummary) -> None:
    """The share of all label entries that belong to the rarest labels."""
    x, y = (100 * np.array(side) for side in zip(*summary.lorenz, strict=True))
    axis.fill_between(x, x, y, color=_FILL, alpha=0.15, linewidth=0)
    axis.plot([0, 100], [0, 100], color=_PALE, linewidth=1, linestyle="--")
    axis.plot(x, y, color=_INK, linewidth=2)
    for share, held in summary.tails:
        if share == 0.8 and summary.rows_per_label.total:
            axis.plot([80, 80, 100], [0, 100 * held, 100 * held], color=_MARK, linewidth=1.2, linestyle=":")
            axis.plot(80, 100 * held, "o", color=_MARK)
            _note(axis, f"the rarest 80% have {format_percent(held)}", 0.04, 0.80, color=_MARK)
    _note(axis, f"Gini {summary.gini:.3f}", 0.04, 0.93)
    axis.set(xlim=(0, 100), ylim=(0, 101))
    _finish(axis, "Lorenz curve", "labels, rarest first (%)", "share of all label entries (%)", whole="")


def _draw_parts(axis: Any, summary: DatasetSummary) -> None:
    """Rows of each part of the split."""
    bars = [
        (part.name, part.rows, f"{part.rows:,} ({format_number(part.labels_per_row)} per row)")
        for part in summary.parts
    ]
    rest = summary.rows_without_part if summary.parts else summary.rows
    if rest or not bars:
        bars.append(("no part" if summary.parts else "all rows", rest, f"{rest:,}"))
    _bars(axis, bars[:10])
    if summary.parts:
        _finish(axis, "Rows by part", "rows (labels per row in parentheses)", "")
    else:
        _finish(axis, "Rows (no split)", "rows", "")


def _draw_shots(axis: Any, summary: DatasetSummary) -> None:
    """Labels by their number of training rows."""
    title, xlabel = "Labels by training rows", "labels (share of all label entries in parentheses)"
    if summary.training is None:
        _note(axis, "the split has no part `train`", 0.5, 0.5, ha="center")
        axis.set_axis_off()
        axis.set_title(title, fontsize=11)
        return
    entries = max(1, sum(shot.entries for shot in summary.training.shots))
    _bars(
        axis,
        [
            (
                shot_name(shot.low, shot.high, shot.name),
                shot.labels,
                f"{shot.labels:,} ({format_percent(shot.entries / entries)})",
            )
            for shot in summary.training.shots
        ],
    )
    if summary.training.never.count:
        never = summary.training.never.count
        axis.barh([0], [never], height=0.7, color="none", edgecolor="white", hatch="////", linewidth=0)
        _note(
            axis, f"hatched: {format_count(never, 'label')} without training rows", 0.97, 0.03, ha="right", va="bottom"
        )
    _finish(axis, title, xlabel, "")


def _draw_groups(axis: Any, summary: DatasetSummary) -> None:
    """Group sizes: by name for one partition, by rank for several; without groups, the most frequent labels."""
    kinds = [(group, "labels") for group in summary.label_groups] + [(group, "rows") for group in summary.row_groups]
    kinds = [(group, of) for group, of in kinds if group.groups]
    if not kinds:
        _bars(axis, [(name, count, f"{count:,}") for name, count in summary.most_frequent])
        return _finish(axis, "Most frequent labels", "rows with the label", "")
    if len(kinds) == 1:
        group, of = kinds[0]
        _bars(axis, [(name, size, f"{size:,}") for name, size in group.largest])
        title = f"{shorten(group.name, 24)}: {format_count(group.groups, 'group')}"
        title += ", the largest" if group.groups > 10 else ""
        return _finish(axis, title, f"{of} in the group", "")
    for number, (group, of) in enumerate(kinds[:8]):
        dash = _LINES[number // 4 if of == "labels" else 1 + number // 4]
        label = f"{shorten(group.name, 20)}: {format_count(group.groups, 'group')} of {of}".replace("$", r"\$")
        look = {"marker": "o" if group.groups <= 12 else None, "markersize": 4, "linestyle": dash, "label": label}
        axis.plot(*_by_rank(group.sizes), color=_COLORS[number % 4], **look)
    axis.set(xscale="log", yscale="log")
    axis.margins(y=0.12)
    axis.legend(frameon=False, fontsize=8)
    return _finish(axis, "Group sizes", "rank of the group", "members", whole="xy")


def _by_rank(tally: Tally) -> tuple[np.ndarray, np.ndarray]:
    """Ranks and values in descending order, as a step line with both ends of each step."""
    times = np.array(tally.times[::-1], dtype=np.int64)
    last = times.cumsum()
    return np.stack([last - times + 1, last], axis=1).ravel(), np.repeat(tally.values[::-1], 2)


def _bars(axis: Any, bars: list[tuple[str, int, str]]) -> None:
    """Horizontal bars with a name on the left and a number on the right; the first on top."""
    positions = np.arange(len(bars))
    axis.barh(positions, [value for _, value, _ in bars], height=0.7, color=_INK)
    most = max([value for _, value, _ in bars], default=0)
    for position, (_, value, text) in enumerate(bars):
        axis.annotate(text, (value, position), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(positions, [shorten(name, 30) for name, _, _ in bars], parse_math=False, fontsize=8)
    # Keep bars the same thickness even if there are few, and leave room for the numbers on the right.
    axis.set(ylim=(max(3.5, len(bars) - 0.5), -0.5), xlim=(0, 1.6 * max(1, most)))


def shot_name(low: int, high: int | None, name: str) -> str:
    """The name of a shot group with its range of training rows.

    Args:
        low: the smallest number of training rows.
        high: the largest; None for no limit.
        name: of the group.

    Example:
        >>> shot_name(0, 19, "few"), shot_name(20, 100, "medium"), shot_name(101, None, "many")
        ('few: < 20', 'medium: 20-100', 'many: > 100')
    """
    return f"{name}: > {low - 1}" if high is None else f"{name}: {low}-{high}" if low else f"{name}: < {high + 1}"


def _note(axis: Any, text: str, x: float, y: float, *, ha: str = "left", va: str = "top", color: str = _INK) -> None:
    axis.text(x, y, text, transform=axis.transAxes, ha=ha, va=va, color=color, fontsize=9)


def _finish(axis: Any, title: str, xlabel: str, ylabel: str, *, whole: str = "x") -> None:
    ticker = require("matplotlib.ticker", extra="report")
    axis.set_title(title, fontsize=11, parse_math=False)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    for name, side in (("x", axis.xaxis), ("y", axis.yaxis)):
        if name not in whole or (name == "y" and not ylabel):
            continue
        side.set_major_formatter(ticker.FuncFormatter(lambda value, _: _tick(value)))
        if side.get_scale() == "linear":
            side.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        else:
            side.set_minor_formatter(ticker.NullFormatter())
    style_axis(axis, grid="both" if ylabel else "x")


def _tick(value: float) -> str:
    """A whole number in few characters; empty for other numbers, which are not counts."""
    if value < 0 or value != round(value):
        return ""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.0f}"

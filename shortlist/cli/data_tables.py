"""The output of ``shortlist data inspect``: a table of statistics, text bars and a few examples."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from shortlist.cli.console import bars, console, grid, name_value_grid, text
from shortlist.data import Dataset
from shortlist.data.summary import DatasetSummary, EqualRows, GroupStructure, Names, Tally
from shortlist.formatting import format_count, format_number, format_percent
from shortlist.report.chart_matplotlib import one_line
from shortlist.report.dataset import shot_name
from shortlist.report.dataset_examples import describe_input, describe_labels, read_example

_MOST_BARS = 10
_BAR_WIDTH = 20
_FEW = 5
_LONGEST_NAME = 60
_LONGEST_CONTENT = 1000
_COMMON_SHARE = 0.98


def print_summary(summary: DatasetSummary, dataset: Dataset, rows: list[int]) -> None:
    """Print the statistics of a dataset and some of its rows.

    Args:
        summary: the dataset's summary.
        dataset: the dataset, for examples.
        rows: rows to choose from; a few are shown.
    """
    screen = console()
    screen.print(_heading(summary))
    lines = [(name, _text(line, "yellow" if alarming else "")) for name, line, alarming in _statistics(summary)]
    screen.print(name_value_grid(lines))
    if summary.rows:
        screen.print()
        screen.print(_charts(summary, screen.encoding))
    if rows:
        few = min(_FEW, len(rows))
        screen.print()
        screen.print(_text(f"{format_count(few, 'random row')}", "bold"))
        screen.print(_examples(dataset, [rows[place * len(rows) // few] for place in range(few)]))


def _text(content: str, style: str = "", **options: Any) -> Any:
    """Return text without control characters, which labels and inputs may contain."""
    return text(one_line(content), style, **options)


def _heading(summary: DatasetSummary) -> Any:
    shape = "" if not summary.input_shape else f" ({' × '.join(map(str, summary.input_shape))})"
    name = f"{summary.name}: " if summary.name else ""
    rows, labels = format_count(summary.rows, "row"), format_count(summary.labels, "label")
    return _text(f"{name}{rows} of {summary.inputs}{shape}, {labels}", "bold green")


def _statistics(summary: DatasetSummary) -> Iterator[tuple[str, str, bool]]:
    """Yield name, text, and whether it deserves attention."""
    per_row, per_label = summary.labels_per_row, summary.rows_per_label
    yield "rows", _parts(summary), False
    yield "targets", summary.target_form, False
    yield (
        "labels per row",
        f"{_spread(per_row)}; density {format_percent(summary.density)}; "
        f"{format_count(summary.rows_without_labels, 'row')} without a label",
        False,
    )
    yield "label sets", f"{summary.label_sets:,} different", False
    yield "rows per label", _spread(per_label), False
    if per_label.total:
        yield "most frequent", _with_counts(summary.most_frequent), False
        yield "least frequent", _with_counts(summary.least_frequent), False
        tails = ", ".join(f"{format_percent(share)} hold {format_percent(held)}" for share, held in summary.tails)
        yield "tail", f"the rarest {tails} of all label entries; Gini {summary.gini:.3f}", False
        head = f"{summary.half:,} most frequent labels" if summary.half > 1 else "most frequent label"
        yield "head", f"half of all label entries belong to the {head}", False
    yield "never seen", _names(summary.never_seen), summary.never_seen.count > 0
    yield from _training(summary)
    for group in summary.label_groups:
        yield group.name, _group(group, "label"), False
    for group in summary.row_groups:
        yield group.name, _group(group, "row"), False
    yield from _gaps(summary)
    yield "equal inputs", *_equal(summary.duplicates, bool(summary.parts))


def _parts(summary: DatasetSummary) -> str:
    # Show it only if there are several parts, which may differ.
    several = summary.labels_per_row.minimum < summary.labels_per_row.maximum
    texts = [
        f"{part.name} {part.rows:,}" + (f" ({format_number(part.labels_per_row)} labels per row)" if several else "")
        for part in summary.parts
    ]
    if summary.rows_without_part:
        texts.append(f"in no part {summary.rows_without_part:,}")
    return f"{summary.rows:,}{': ' if texts else ', not split'}{', '.join(texts)}"


def _training(summary: DatasetSummary) -> Iterator[tuple[str, str, bool]]:
    training = summary.training
    if training is None:
        yield "training", "the split has no part `train`", True
        return
    if summary.parts:
        yield "never in train", _names(training.never), training.never.count > summary.never_seen.count
        yield "only in test", _names(summary.only_in_test), summary.only_in_test.count > 0
    if training.imbalance is not None:
        where = "train" if summary.parts else "all rows"
        yield "imbalance", f"{format_number(training.imbalance)} : 1, most to least frequent label of {where}", False


def _gaps(summary: DatasetSummary) -> Iterator[tuple[str, str, bool]]:
    unknown, changed = summary.unknown, summary.changed
    entries = "1 entry" if unknown.entries == 1 else f"{unknown.entries:,} entries"
    text = (
        f"{entries} ({format_percent(unknown.share)} of all) in {format_count(unknown.rows, 'row')}"
        if unknown.entries
        else "none"
    )
    yield "unknown labels", text, False
    if changed is not None:
        edits = f"{changed.added:,} labels added, {changed.removed:,} removed or hidden"
        text = f"{format_count(changed.rows, 'row')}: {edits}"
        yield "changed labels", text, False


def _equal(found: EqualRows | None, split: bool) -> tuple[str, bool]:
    if found is None:
        return "not looked for", False
    if not found.groups:
        return "none", False
    first = " = ".join(str(row) for row in found.first[0][:_FEW])
    texts = [f"{found.rows:,} rows in {format_count(found.groups, 'group')} (such as {first})"]
    if split:
        leak = f"{format_count(found.leaked_rows, 'row')} outside of train also inside"
        texts.append(f"{format_count(found.across_parts, 'group')} across parts, {leak}")
    texts.append(f"{format_count(found.different_labels, 'group')} with different labels")
    return "; ".join(texts), found.across_parts > 0 or found.different_labels > 0


def _names(names: Names) -> str:
    if not names.count:
        return "none"
    shown = ", ".join(map(_brief, names.first[:_FEW]))
    return f"{format_count(names.count, 'label')}: {shown}{', …' if names.count > _FEW else ''}"


def _with_counts(pairs: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{_brief(name)} ({count:,})" for name, count in pairs[:_FEW])


def _brief(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _group(group: GroupStructure, of: str) -> str:
    sizes = group.sizes
    spread = f"{_range(sizes.minimum, sizes.maximum, of)} (mean {format_number(sizes.mean)})"
    text = f"{format_count(group.groups, 'group')} of {spread}"
    if group.rows is not None:
        text += f", {_range(group.rows.minimum, group.rows.maximum, 'row')} each"
    if group.largest:
        text += f"; largest {_with_counts(group.largest[:3])}"
    if group.without:
        text += f"; {format_count(group.without, of)} in none"
    if group.across_parts is not None:
        text += f"; {group.across_parts:,} in several parts"
    return text


def _spread(tally: Tally) -> str:
    # The median of integers is an integer or a half-integer.
    median = f"{tally.median:,.1f}".removesuffix(".0")
    return f"mean {format_number(tally.mean)}, median {median}, from {tally.minimum:,} to {tally.maximum:,}"


def _range(low: int, high: int, noun: str) -> str:
    return format_count(high, noun) if low == high else f"{low:,} to {format_count(high, noun)}"


def _charts(summary: DatasetSummary, encoding: str) -> Any:
    cardinality = [
        (f"{low:,}" if low == high else f"{low:,}-{high:,}", count)
        for low, high, count in _bins(summary.labels_per_row)
    ]
    shown = lambda counts: bars(counts, encoding=encoding, width=_BAR_WIDTH, padding=1)
    both = grid(padding=4)
    if summary.training is None:
        both.add_row(_text("rows by number of labels", "bold"))
        both.add_row(shown(cardinality))
        return both
    shots = [(shot_name(shot.low, shot.high, shot.name), shot.labels) for shot in summary.training.shots]
    both.add_row(_text("rows by number of labels", "bold"), _text("labels by training examples", "bold"))
    both.add_row(shown(cardinality), shown(shots))
    return both


def _bins(tally: Tally) -> list[tuple[int, int, int]]:
    """Return ranges of equal width; the few rows with very many labels share the last one."""
    reached = list(accumulate(tally.times))
    common = bisect_left(reached, _COMMON_SHARE * tally.members) + 1
    bins = Tally(tally.values[:common], tally.times[:common]).bins(_MOST_BARS - 1)
    first = bins[-1][1] + 1
    rest = [(value, times) for value, times in zip(tally.values, tally.times, strict=True) if value >= first]
    # A number just above the common ones may fall into the last range, which extends to its full width.
    last = sum(times for value, times in zip(tally.values, tally.times, strict=True) if bins[-1][0] <= value < first)
    bins[-1] = (bins[-1][0], min(bins[-1][1], tally.maximum), last)
    return [*bins, (first, tally.maximum, sum(times for _, times in rest))] if rest else bins


def _examples(dataset: Dataset, rows: list[int]) -> Any:
    found = grid()
    found.expand = True
    found.add_column(justify="right", no_wrap=True)
    found.add_column(no_wrap=True)
    found.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
    found.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
    for row in rows:
        shown = read_example(dataset, row)
        if shown.example is None:
            # The reason follows a file name, which may be long, so wrap it instead of truncating it.
            reason = _text(
                f"cannot be read: {shown.reason}"[:_LONGEST_CONTENT], "yellow", no_wrap=False, overflow="fold"
            )
            found.add_row(_text(f"{row:,}"), "", reason, "")
            continue
        example = shown.example
        labels = _text(describe_labels(example), "green")
        # Truncate long texts before measuring them, which would be slow for a book.
        content = _text(describe_input(dataset, example)[:_LONGEST_CONTENT])
        found.add_row(_text(f"{row:,}"), _text(example.split or ""), content, labels)
    return found

"""Single labels in a report: recall by training rows as a chart, and everything about each as the data of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shortlist.comparison_document import ComparisonDocument, LabelSets
from shortlist.formatting import format_count, format_percent
from shortlist.report.chart import OPTIMUM, Axis, Chart, Panel, Series, Style, candidate_style
from shortlist.report.comparison.winners import shown_name

# Recall and size of each label, K and candidate take about nine bytes of the page.
_MOST_ENTRIES = 45_000
_MOST_CONFUSIONS = 2
_MEAN_BINS = 10
_POINT = 7.0


def number_of_labels(document: ComparisonDocument) -> int:
    """How many labels the page shows: the most frequent ones of the evaluated rows, as many as a small file holds."""
    return min(len(document.labels), _MOST_ENTRIES // (len(document.ks) * len(document.candidates)))


def _means(seeds: list[LabelSets | None], field: str, most: int, decimals: int) -> np.ndarray:
    """Means over seeds, ``(ks, labels)``."""
    values = [np.array(getattr(each, field), dtype=float)[:, :most] for each in seeds if each is not None]
    return np.round(np.mean(values, axis=0), decimals)


def _candidates(document: ComparisonDocument) -> Iterator[tuple[str, Style, list[LabelSets | None]]]:
    for index, (name, candidate) in enumerate(document.candidates.items()):
        yield shown_name(name), candidate_style(index), [run.sets.labels for run in candidate.runs]
    if document.optimum is not None and document.optimum.sets.labels is not None:
        yield "optimum", OPTIMUM, [document.optimum.sets.labels]


def label_panel(document: ComparisonDocument) -> Panel | None:
    """Recall of each label by its training rows: points of one candidate, and the mean lines of all."""
    most = number_of_labels(document)
    if not most or any(run.sets.labels is None for each in document.candidates.values() for run in each.runs):
        return None
    counts = np.array([label.training for label in document.labels[:most]], dtype=float)
    names = tuple(shown_name(label.name) for label in document.labels[:most])
    found = [(name, style, _means(seeds, "recall", most, 2)) for name, style, seeds in _candidates(document)]
    x = Axis("training rows of the label", scale="log", whole=True)
    y = Axis("rows whose set contains the label", percent=True, limits=(-0.03, 1.03))
    charts: dict[str, tuple[Chart, ...]] = {}
    indices = range(len(document.ks))
    lines = [tuple(_mean_line(each, counts, k_index) for each in found) for k_index in indices]
    for name, style, recall in found:
        if len(found) > 1 and style is OPTIMUM:
            continue
        # Two candidates share a shown name if theirs differ only in white space.
        key = name if name not in charts else f"{name} ({len(charts) + 1})"
        sizes = (_POINT,) * most
        clouds = [
            Series(name, "points", tuple(counts), tuple(row), style, (), sizes, names, in_legend=False, faint=True)
            for row in recall.tolist()
        ]
        charts[key] = tuple(
            Chart(
                f"Recall of labels at K = {document.ks[at]:g}, points of {name}",
                x,
                y,
                (clouds[at], *lines[at]),
                note=_left_out(document, counts, recall[at]),
            )
            for at in indices
        )
    about = (
        "Each point is a label: its number of training rows, and the share of its test rows whose set contains it at "
        "the K of the slider. Lines are means over labels with similar numbers of training rows."
    )
    return Panel("accuracy-by-count", "Single labels", about, charts, choose="Points of", wide=True)


def _mean_line(found: tuple[str, Style, np.ndarray], counts: np.ndarray, k_index: int) -> Series:
    """Means in bins of equal width on the logarithmic axis."""
    name, style, recall = found
    use = counts > 0
    x, y = np.log(counts[use]), recall[k_index][use]
    if not len(x):
        return Series(name, "line", (), (), style, marked=True)
    width = max((x.max() - x.min()) / _MEAN_BINS, 1e-9)
    bins = np.minimum(((x - x.min()) / width).astype(int), _MEAN_BINS - 1)
    occupied = np.unique(bins)
    centers = tuple(float(np.exp(x[bins == each].mean())) for each in occupied)
    return Series(name, "line", centers, tuple(float(y[bins == each].mean()) for each in occupied), style, marked=True)


def _left_out(document: ComparisonDocument, counts: np.ndarray, recall: np.ndarray) -> str:
    """The labels that the chart cannot show."""
    sentences, unseen = [], counts == 0
    if len(counts) < document.data.labels:
        rest = document.data.labels - len(counts)
        sentences.append(f"Not shown: {format_count(rest, 'label')} with fewer test rows, or none.")
    if unseen.any():
        mean = format_percent(float(recall[unseen].mean()), 1)
        sentences.append(f"Not shown: {format_count(int(unseen.sum()), 'label')} without training rows, recall {mean}.")
    return " ".join(sentences)


def label_table(document: ComparisonDocument, store: Callable[[list[Any]], int]) -> dict[str, Any] | None:
    """The data of the page's table of labels.

    Args:
        document: the comparison.
        store: keeps a list and returns its number; recall is also drawn by the chart.

    Returns:
        ``names``, ``training`` and ``evaluated`` rows of each label, and for each candidate by K the numbers of the
        lists ``recall`` and ``size``, and ``confused``: pairs of a percentage and a position among the names, followed
        by those of the ``others``. None if the document has no labels.
    """
    most = number_of_labels(document)
    if not most:
        return None
    names = [shown_name(label.name) for label in document.labels[:most]]
    others: list[str] = []
    position = {name: at for at, name in enumerate(names)}

    def place(name: str) -> int:
        if name not in position:
            position[name] = most + len(others)
            others.append(name)
        return position[name]

    candidates = []
    for candidate in document.candidates.values():
        seeds = [run.sets.labels for run in candidate.runs]
        if seeds[0] is None:
            return None
        confused = [
            [[round(100 * each.share), place(shown_name(each.label))] for each in some[:_MOST_CONFUSIONS]]
            for some in seeds[0].confused[:most]
        ]
        candidates.append(
            {
                "recall": [store(row) for row in _means(seeds, "recall", most, 2).tolist()],
                "size": [store(row) for row in _means(seeds, "size", most, 1).tolist()],
                "confused": confused,
            }
        )
    return {
        "names": names,
        "others": others,
        "training": [label.training for label in document.labels[:most]],
        "evaluated": [label.evaluated for label in document.labels[:most]],
        "candidates": candidates,
    }

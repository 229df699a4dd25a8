"""The chart of single labels: how often each is in its sets, against how many training rows it had."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.formatting import format_count
from shortlist.report.chart import OPTIMUM, Axis, Chart, Panel, Series
from shortlist.report.figure_words import k_words, share_words
from shortlist.report.set_charts import findings

_MOST_POINTS = 3000
_BINS = 10
_GRID = 60
_SMALLEST, _LARGEST = 6.0, 22.0


def class_panel(document: dict[str, Any]) -> Panel:
    """Points per label of a chosen candidate, and the mean line of every candidate."""
    found = [(name, style, *_labels(seeds)) for name, style, seeds in findings(document)]
    lines = tuple(
        Series(name, "line", *_mean_line(counts, accuracy), style, marked=True)
        for name, style, counts, accuracy in found
    )
    k = k_words(document["k"])
    charts = {}
    for name, style, counts, accuracy in found:
        if len(found) > 1 and style is OPTIMUM:
            continue
        x, y, sizes, notes = _points(counts, accuracy)
        cloud = Series(name, "points", x, y, style, sizes=sizes, notes=notes, in_legend=False, faint=True)
        # Two candidates may be shown by one name when theirs differ in spaces only.
        key = name if name not in charts else f"{name} ({len(charts) + 1})"
        charts[key] = (
            Chart(
                f"Accuracy of labels at K = {k}, points of {name}",
                Axis("training rows of the label", scale="log", whole=True),
                Axis("rows whose set holds the label", percent=True, limits=(-0.03, 1.03)),
                (cloud, *lines),
                note=_note(counts, accuracy),
            ),
        )
    about = (
        "Each point is a label (larger points are several at one place): how many training rows it had, and in which "
        f"share of its test rows the set of K = {k} holds it. Lines are means over labels with about as many rows."
    )
    return Panel("accuracy-by-count", "Accuracy of single labels", about, charts, choose="Points of", wide=True)


def _labels(seeds: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Training rows, and accuracy as the mean over seeds; NaN for a label without test rows."""
    counts = np.array(seeds[0]["classes"]["count"], dtype=float)
    accuracy = np.array(
        [[np.nan if value is None else value for value in sets["classes"]["accuracy"]] for sets in seeds], dtype=float
    ).reshape(len(seeds), -1)
    there = (~np.isnan(accuracy)).sum(0)
    total = np.nansum(accuracy, 0)
    return counts, np.where(there > 0, total / np.maximum(there, 1), np.nan)


def _mean_line(counts: np.ndarray, accuracy: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means in bins of equal width on the logarithmic axis."""
    use = (counts > 0) & ~np.isnan(accuracy)
    x, y = np.log(counts[use]), accuracy[use]
    if not len(x):
        return (), ()
    width = max((x.max() - x.min()) / _BINS, 1e-9)
    bins = np.minimum(((x - x.min()) / width).astype(int), _BINS - 1)
    there = np.unique(bins)
    centres = tuple(float(np.exp(x[bins == one].mean())) for one in there)
    return centres, tuple(float(y[bins == one].mean()) for one in there)


def _points(
    counts: np.ndarray, accuracy: np.ndarray
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], tuple[str, ...]]:
    """Labels at one place are one point; when there are still too many, near ones are joined on a grid."""
    use = (counts > 0) & ~np.isnan(accuracy)
    x, y = counts[use], np.round(accuracy[use], 4)
    if not len(x):
        return (), (), (), ()
    keys = np.stack([x, y], axis=1)
    if len(np.unique(keys, axis=0)) > _MOST_POINTS:
        span = np.log(x)
        width = max((span.max() - span.min()) / _GRID, 1e-9)
        keys = np.stack([np.floor((span - span.min()) / width), np.floor(y * _GRID)], axis=1)
    _, place, labels = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    place = place.reshape(-1)
    xs = np.exp(np.bincount(place, np.log(x)) / labels)
    ys = np.bincount(place, y) / labels
    sizes = np.minimum(_SMALLEST * np.sqrt(labels), _LARGEST)
    notes = [
        f"{format_count(int(number), 'label')}, {format_count(round(at), 'training row')}: {share_words(value)}"
        for number, at, value in zip(labels, xs, ys, strict=True)
    ]
    return tuple(xs.tolist()), tuple(ys.tolist()), tuple(sizes.tolist()), tuple(notes)


def _note(counts: np.ndarray, accuracy: np.ndarray) -> str:
    """What the chart cannot show."""
    absent = np.isnan(accuracy)
    unseen = (counts == 0) & ~absent
    parts = []
    if absent.any():
        parts.append(f"{format_count(int(absent.sum()), 'label')} without test rows left out.")
    if unseen.any():
        share = share_words(float(accuracy[unseen].mean()))
        parts.append(f"{format_count(int(unseen.sum()), 'label')} without training rows left out; accuracy {share}.")
    return " ".join(parts)

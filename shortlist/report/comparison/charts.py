"""The charts of a comparison, in the order of the report, and their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shortlist.comparison_document import AuditCounts, Calibration, ComparisonDocument, SetFindings, ShotGroup
from shortlist.formatting import format_count, format_number, format_percent
from shortlist.report.chart import OPTIMUM, Axis, Chart, Dash, Panel, Reference, Series, Style, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.report.comparison.rate_chart import rate_panel
from shortlist.report.comparison.single_labels import label_panel
from shortlist.report.comparison.winners import AUDITED, mean_of_known, metric_title, shown_name

_SUFFIXES = (".png", ".svg")
_RULES = {"average-k": "average-K", "top-k": "top-K", "aps": "APS"}  # in the order in which they are offered
_RULE_DASHES: dict[str, Dash] = {"average-k": "solid", "top-k": "dash", "aps": "dot"}
_MAX_SIZE_BARS, _MAX_AUDIT_BARS = 32, 40
_MAX_BAR_SERIES = 5
_TAIL = 0.005
_LOG_SCALE_RATIO = 20


def comparison_panels(document: ComparisonDocument) -> list[Panel]:
    """All panels of a comparison for which the document has data, in the order of the report."""
    panels = [
        error_panel(document),
        size_panel(document),
        shot_panel(document),
        label_panel(document),
        calibration_panel(document),
        audit_panel(document),
        rate_panel(document),
        *training_panels(document),
    ]
    return [panel for panel in panels if panel is not None and panel.charts]


def draw_figures(
    documents: Mapping[str, ComparisonDocument],
    folder: str | Path,
    *,
    progress: Callable[[str], object] | None = None,
) -> list[Path]:
    """Draw every chart at the requested K, as PNG and SVG.

    Args:
        documents: comparisons, by a name for their files.
        folder: where to write; created if necessary.
        progress: called with the name of each chart before it is drawn.

    Returns:
        The files, in the order of the report.
    """
    written: list[Path] = []
    taken: set[str] = set()
    for job, document in documents.items():
        k_index = document.ks.index(document.k)
        for panel in comparison_panels(document):
            for choice in panel.charts:
                words = [job] if len(documents) > 1 else []
                words += [panel.name, choice] if len(panel.charts) > 1 else [panel.name]
                name = _unused_name("-".join(words), taken)
                if progress is not None:
                    progress(name)
                figure = draw_chart(panel.at(choice, k_index))
                written += [save_figure(figure, Path(folder) / f"{name}{suffix}") for suffix in _SUFFIXES]
    return written


def _unused_name(words: str, taken: set[str]) -> str:
    """A file name of letters, digits and hyphens that is not taken; users' names may contain anything."""
    base = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:80] or "figure"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name


def _findings(document: ComparisonDocument, *, optimum: bool = True) -> Iterator[tuple[str, Style, list[SetFindings]]]:
    """Name, style and findings per seed of each candidate; then of the optimum, if it is known and wanted."""
    for index, (name, candidate) in enumerate(document.candidates.items()):
        yield shown_name(name), candidate_style(index), [run.sets for run in candidate.runs]
    if optimum and document.optimum is not None:
        yield "optimum", OPTIMUM, [document.optimum.sets]


def _most_seeds(document: ComparisonDocument) -> int:
    return max(len(candidate.runs) for candidate in document.candidates.values())


def _padded(values: Sequence[float], pad: float = 0.0) -> tuple[float, float]:
    """Axis limits around the values."""
    room = 0.06 * (max(values) - min(values)) + pad
    return min(values) - room, max(values) + room


def error_panel(document: ComparisonDocument) -> Panel:
    """Error by the size of the sets, for each rule and for all of them, with the K of the slider marked."""
    known = {rule for _, _, seeds in _findings(document) for sets in seeds for rule in sets.curves.errors}
    rules = [rule for rule in _RULES if rule in known] + sorted(known - set(_RULES))
    charts = {_RULES.get(rule, rule): tuple(_error_charts(document, [rule])) for rule in rules}
    if len(rules) > 1:
        charts["all"] = tuple(_error_charts(document, rules))
    about = (
        "How often a true label is missing from the answer, by the average number of labels per answer. Lower is "
        "better. The vertical line marks the K of the slider."
    )
    if _most_seeds(document) > 1:
        about += " Lines are means over seeds; bands span the seeds."
    if document.optimum is not None:
        about += " No model can beat the optimum except by luck."
    return Panel("error-versus-size", "Error versus set size", about, charts, choose="Rule", log=True, wide=True)


def _error_charts(document: ComparisonDocument, rules: list[str]) -> Iterator[Chart]:
    several = len(rules) > 1
    lines = [line for rule in rules for line in _error_lines(document, rule, several=several)]
    title = "Error versus set size, " + ("all rules" if several else f"{_RULES.get(rules[0], rules[0])} rule")
    dashes = {"solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dotted"}
    keys = [f"{_RULES.get(rule, rule)} {dashes[_RULE_DASHES.get(rule, 'dashdot')]}" for rule in rules]
    note = f"Lines: {', '.join(keys)}." if several else ""
    values = [value for line in lines for value in (*line.y, *line.high) if value is not None]
    # From 0, unless that would squeeze all lines into the upper half.
    limits = None if not values or min(values) < 0.5 * max(values) else _padded(values, 0.002)
    x, y = Axis("labels per answer, on average"), Axis("true labels missing", percent=True, limits=limits)
    for k_index, k in enumerate(document.ks):
        points = () if several else _error_points(document, rules[0], k_index)
        yield Chart(title, x, y, (*lines, *points), (Reference(f"K = {k:g}", x=k),), note)


def _error_lines(document: ComparisonDocument, rule: str, *, several: bool) -> Iterator[Series]:
    for name, style, seeds in _findings(document):
        sizes = tuple(seeds[0].curves.sizes)
        errors = [
            sets.curves.errors[rule]
            for sets in seeds
            if rule in sets.curves.errors and tuple(sets.curves.sizes) == sizes
        ]
        if not errors:
            continue
        columns = list(zip(*errors, strict=True))
        style = replace(style, dash=_RULE_DASHES.get(rule, "dashdot")) if several else style
        if len(errors) > 1 and not several:
            known = [[value for value in column if value is not None] for column in columns]
            low = tuple(min(column) if column else None for column in known)
            high = tuple(max(column) if column else None for column in known)
            yield Series(name, "band", sizes, low, style, high, in_legend=False)
        means = tuple(mean_of_known(column) for column in columns)
        yield Series(name, "line", sizes, means, style, in_legend=not several or rule == "average-k", marked=True)


def _error_points(document: ComparisonDocument, rule: str, k_index: int) -> Iterator[Series]:
    """What the rule achieved at the K of the slider, with the threshold from the validation rows."""
    if rule not in ("average-k", "top-k"):
        return
    for name, style, seeds in _findings(document):
        results = [sets.by_k[k_index] for sets in seeds]
        if rule == "average-k":
            x, y = (
                mean_of_known([result.average_size for result in results]),
                mean_of_known([result.error for result in results]),
            )
        else:
            x, y = document.ks[k_index], mean_of_known([result.top_error for result in results])
        if x is not None and y is not None:
            note = f"{x:.3g} labels on average, {format_percent(y, 1)} missing"
            yield Series(name, "points", (x,), (y,), style, notes=(note,), in_legend=False)


def size_panel(document: ComparisonDocument) -> Panel:
    """The distribution of set sizes, over all rows and by shot."""
    shots = document.data.shots
    results = [result for _, _, seeds in _findings(document) for sets in seeds for result in sets.by_k]
    groups = ["all"]
    if len(shots) > 1:
        groups += [shot.name for shot in shots if any(sum(each.histogram.get(shot.name, ())) > 0 for each in results)]
    indices = range(len(document.ks))
    charts = {group: tuple(_size_chart(document, group, k_index) for k_index in indices) for group in groups}
    about = "Set sizes under the average-K rule: confident rows get few labels, ambiguous rows get many."
    if len(shots) > 1:
        described = [f"{shown_name(shot.name)} ({shown_name(shot.about)})" for shot in shots]
        about += f" A row belongs to the shot group of its rarest true label: {', '.join(described)}."
    return Panel("set-sizes", "Set sizes", about, charts, choose="Rows")


def _size_chart(document: ComparisonDocument, group: str, k_index: int) -> Chart:
    found: list[tuple[str, Style, np.ndarray]] = []
    for name, style, seeds in _findings(document):
        histograms = [sets.by_k[k_index].histogram.get(group, []) for sets in seeds]
        total = np.zeros(max(map(len, histograms), default=0))
        for histogram in histograms:
            total[: len(histogram)] += histogram
        if total.sum() > 0:
            found.append((name, style, total / total.sum()))
    centers, words, binned = _binned_sizes([fractions for _, _, fractions in found])
    as_bars = len(found) <= _MAX_BAR_SERIES
    series = [
        Series(
            name,
            "bars" if as_bars else "line",
            centers,
            tuple(fractions.tolist()),
            style,
            marked=not as_bars,
        )
        for (name, style, _), fractions in zip(found, binned, strict=True)
    ]
    k = document.ks[k_index]
    title = f"Set sizes at K = {k:g}" + ("" if group == "all" else f", {shown_name(group)} shot")
    x, y = Axis("labels in the answer", whole=True, words=tuple(words)), Axis("rows", percent=True)
    return Chart(title, x, y, tuple(series), (Reference(f"K = {k:g}", x=k),))


def _binned_sizes(fractions: list[np.ndarray]) -> tuple[tuple[float, ...], list[str], list[np.ndarray]]:
    """Sizes in bins of equal width, few enough to draw; the last bin takes the long tail."""
    longest = max(map(len, fractions), default=1)
    full = [np.pad(each, (0, longest - len(each))) for each in fractions]
    # The largest size that more than a few rows of any candidate reach.
    top = max((int(np.nonzero(each[::-1].cumsum()[::-1] > _TAIL)[0][-1]) for each in full), default=0)
    step = -(-(top + 1) // _MAX_SIZE_BARS)
    starts = np.arange(0, top + 1, step)
    ends = np.minimum(starts + step - 1, top)
    words = [
        format_count(first, "label") if first == last else f"{first:,} to {last:,} labels"
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    if longest > top + 1:
        words[-1] = f"{int(starts[-1]):,} labels or more"
    centers = tuple(float(start) + (step - 1) / 2 for start in starts)
    return centers, words, [np.add.reduceat(each, starts) for each in full]


def shot_panel(document: ComparisonDocument) -> Panel | None:
    """Error by shot at the K of the slider; None if the labels are not grouped."""
    if len(document.data.shots) < 2:
        return None
    rules = ["average-K"]
    if any(result.top_error is not None for _, _, seeds in _findings(document) for result in seeds[0].by_k):
        rules.append("top-K")
    indices = range(len(document.ks))
    charts = {rule: tuple(_shot_chart(document, k_index, rule) for k_index in indices) for rule in rules}
    about = (
        "How often the true label is missing, for labels with many and with few training rows. A method that handles "
        "the long tail has short bars on the right, too."
    )
    return Panel("error-by-shot", "Error by shot", about, charts, choose="Rule")


def _shot_chart(document: ComparisonDocument, k_index: int, rule: str) -> Chart:
    shots = document.data.shots
    names = _shot_names(shots)
    series = []
    for name, style, seeds in _findings(document):
        results = [sets.by_k[k_index] for sets in seeds]
        if rule == "average-K":
            overall, by_shot = [each.error for each in results], [each.error_by_shot for each in results]
        else:
            overall, by_shot = [each.top_error for each in results], [each.top_error_by_shot or {} for each in results]
        values = [
            mean_of_known(overall),
            *(mean_of_known([found.get(shot.name) for found in by_shot]) for shot in shots),
        ]
        x = tuple(map(float, range(len(values))))
        series.append(Series(name, "bars", x, tuple(values), style))
    k = document.ks[k_index]
    empty = all(value is None for each in series for value in each.y)
    note = f"The {rule} rule needs a whole K; {k:g} is not." if empty else ""
    x, y = Axis("labels by training rows", scale="names", names=names), Axis("true labels missing", percent=True)
    return Chart(f"Error by shot at K = {k:g}, {rule} rule", x, y, tuple(series), note=note)


def _shot_names(shots: Sequence[ShotGroup]) -> tuple[str, ...]:
    return ("all", *(shown_name(shot.name) for shot in shots))


def calibration_panel(document: ComparisonDocument) -> Panel:
    """How often labels are true, by the probability that the model gave them."""
    trained = {name: [sets.calibration for sets in seeds] for name, _, seeds in _findings(document, optimum=False)}
    scaled = {
        name: [sets.recalibrated for sets in seeds if sets.recalibrated is not None]
        for name, _, seeds in _findings(document, optimum=False)
    }
    charts = {"as trained": (_calibration_chart(document, trained),)}
    if any(scaled.values()):
        charts["after temperature scaling"] = (_calibration_chart(document, scaled),)
    about = (
        "On the dotted diagonal, predicted probabilities match observed frequencies; below it, the model is "
        "overconfident. Next to each name is its calibration error: the probability in the wrong bin per true label "
        "(0 is best). Losses that only rank labels, such as two-way and average-K, do not promise probabilities."
    )
    if len(charts) > 1:
        about += " Temperature scaling divides the logits by one number, fitted on the validation rows."
    if _most_seeds(document) > 1:
        about += " Lines show the first seed; errors are means over seeds."
    return Panel("calibration", "Calibration", about, charts, choose="Probabilities")


def _calibration_chart(document: ComparisonDocument, found: Mapping[str, Sequence[Calibration]]) -> Chart:
    series = []
    for name, style, _ in _findings(document, optimum=False):
        if not found[name]:
            continue
        points = [
            (each.predicted, each.observed, each.pairs)
            for each in found[name][0].bins
            if each.pairs and each.predicted is not None and each.observed is not None
        ]
        error = mean_of_known([each.error for each in found[name]])
        legend = name if error is None else f"{name}: {format_number(error)}"
        predicted, observed = tuple(each[0] for each in points), tuple(each[1] for each in points)
        notes = tuple(
            f"predicted {format_percent(said, 1)}, observed {format_percent(true, 1)} of {pairs:,} pairs"
            for said, true, pairs in points
        )
        series.append(Series(legend, "line", predicted, observed, style, notes=notes, group=name, marked=True))
    x = Axis("predicted probability of a label", percent=True, limits=(-0.02, 1.02))
    y = Axis("how often the label is true", percent=True, limits=(-0.02, 1.02))
    return Chart("Calibration", x, y, tuple(series), (Reference("calibrated"),))


def training_panels(document: ComparisonDocument) -> list[Panel]:
    """The training loss and the monitored metric by epoch."""
    monitors = {run.monitor for candidate in document.candidates.values() for run in candidate.runs}
    monitor = next(iter(monitors)) if len(monitors) == 1 else None
    metric = metric_title(monitor) if monitor else "monitored metric"
    losses, monitored = _history(document, "train_loss"), _history(document, None)
    epochs = Axis("epoch", whole=all(epoch == int(epoch) for each in (*losses, *monitored) for epoch in each.x))
    panels = []
    if any(series.x for series in losses):
        values = [value for series in losses for value in series.y if value is not None]
        log = min(values) > 0 and max(values) > _LOG_SCALE_RATIO * min(values)
        about = "The loss on the training rows by epoch. Losses have different scales: compare shapes, not values."
        chart = Chart("Training loss", epochs, Axis("training loss", scale="log" if log else "linear"), losses)
        panels.append(Panel("training-loss", "Training loss", about, {"all": (chart,)}, log=True))
    if any(series.x for series in monitored):
        about = (
            f"The {metric} on the validation rows by epoch, one line per seed; the marker is the epoch whose model was "
            "kept. If a line still rises at its end, train for more epochs."
        )
        values = [value for series in monitored for value in series.y if value is not None]
        # An axis from 0 would hide the differences at the end of training.
        limits = _padded(values) if min(values) < max(values) else None
        chart = Chart("Monitored metric", epochs, Axis(metric, limits=limits), monitored)
        panels.append(Panel("watched-metric", "Monitored metric", about, {"all": (chart,)}))
    return panels


def _history(document: ComparisonDocument, key: str | None) -> tuple[Series, ...]:
    """A line per seed; for the monitored metric of each run, which is ``key`` None, also its best epoch as a point."""
    series = []
    for index, (name, candidate) in enumerate(document.candidates.items()):
        style, name = candidate_style(index), shown_name(name)
        for seed_index, run in enumerate(candidate.runs):
            field = key or run.monitor or ""
            points = [
                (epoch, value)
                for row in run.history
                if (epoch := row.get("epoch")) is not None and (value := row.get(field)) is not None
            ]
            x, y = tuple(epoch for epoch, _ in points), tuple(value for _, value in points)
            first = seed_index == 0
            series.append(Series(name, "line", x, y, style, in_legend=first, faint=not first))
            best = [point for point in points if point[0] == run.best_epoch]
            if best and key is None:
                epoch, value = best[0]
                note = f"epoch {epoch:g}, seed {run.seed}: {value:.4g}"
                series.append(Series(name, "points", (epoch,), (value,), style, notes=(note,), in_legend=False))
    return tuple(series)


def audit_panel(document: ComparisonDocument) -> Panel | None:
    """The share of label sets of each size that a layer can never output; None if it can output all."""
    series = []
    modes = set()
    for index, (name, candidate) in enumerate(document.candidates.items()):
        if candidate.audit is None:
            continue
        modes.add(candidate.audit.mode)
        rows = [row for row in candidate.audit.by_size if _audited(row)]
        notes = tuple(
            f"{row.unargmaxable:,} of {_audited(row):,} sets of {row.size}"
            + (f", {row.undecided:,} undecided" if row.undecided else "")
            for row in rows
        )
        x, y = tuple(float(row.size) for row in rows), tuple(row.unargmaxable / _audited(row) for row in rows)
        kind = "bars" if len(rows) <= _MAX_AUDIT_BARS else "line"
        series.append(Series(shown_name(name), kind, x, y, candidate_style(index), notes=notes))
    if not any(fraction for each in series for fraction in each.y):
        return None
    act = AUDITED[modes.pop()] if len(modes) == 1 else "output"
    title = f"Sets that can never be {act}"
    about = f"The share of the label sets of each size that no input produces; without a bar, all can be {act}."
    x, y = Axis("labels in the set", whole=True), Axis(f"sets that can never be {act}", percent=True)
    return Panel("audit", title, about, {"all": (Chart(title, x, y, tuple(series)),)}, wide=True)


def _audited(row: AuditCounts) -> int:
    return row.argmaxable + row.unargmaxable + row.undecided

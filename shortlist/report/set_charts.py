"""Charts of the sets: their error against their size, how large they are, and how they serve rare labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.report.chart import OPTIMUM, Axis, Chart, Dash, Panel, Reference, Series, Style, candidate_style
from shortlist.report.figure_words import RULES, k_words, share_words, shown_name

_DASHES: dict[str, Dash] = {"average-k": "solid", "top-k": "dash", "aps": "dot"}
_MOST_BARS = 32
_MOST_SERIES_OF_BARS = 5
_TAIL = 0.005


def findings(document: dict[str, Any], *, optimum: bool = True) -> Iterator[tuple[str, Style, list[dict[str, Any]]]]:
    """Name, style and findings by seed of each candidate, and of the optimum where it is known.

    Args:
        document: the comparison.
        optimum: whether the optimum counts.

    Returns:
        The optimum last, as of one seed.
    """
    for place, (name, candidate) in enumerate(document["candidates"].items()):
        yield shown_name(name), candidate_style(place), [run["sets"] for run in candidate["runs"]]
    if optimum and document["optimum"] is not None:
        yield "optimum", OPTIMUM, [document["optimum"]["sets"]]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is there; None of nothing.

    Example:
        >>> mean([1.0, None, 2.0]), mean([None])
        (1.5, None)
    """
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def error_panel(document: dict[str, Any]) -> Panel:
    """Error against the size of the sets, for each rule and for all of them, with the K of the slider marked."""
    known = {rule for _, _, seeds in findings(document) for sets in seeds for rule in sets["curves"]["errors"]}
    rules = [rule for rule in RULES if rule in known] + sorted(known - set(RULES))
    charts = {RULES.get(rule, rule): tuple(_error_charts(document, [rule])) for rule in rules}
    if len(rules) > 1:
        charts["all"] = tuple(_error_charts(document, rules))
    seeds = max(len(candidate["runs"]) for candidate in document["candidates"].values())
    bands = " Lines are means over seeds, bands span the seeds." if seeds > 1 else ""
    best = " Below the line of the optimum no model can be but by chance." if document["optimum"] is not None else ""
    about = (
        "How often a true label is missing from the answer, against how many labels an answer has on average: lower is "
        f"better. The upright line is the K of the slider.{bands}{best}"
    )
    return Panel("error-versus-size", "Error versus set size", about, charts, choose="Rule", log=True, wide=True)


def _error_charts(document: dict[str, Any], rules: list[str]) -> Iterator[Chart]:
    lines = [line for rule in rules for line in _error_lines(document, rule, several=len(rules) > 1)]
    used = [RULES.get(rule, rule) for rule in rules]
    title = f"Error versus set size, {used[0]} rule" if len(rules) == 1 else "Error versus set size, all rules"
    dashes = {"solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dotted"}
    keys = [f"{RULES.get(rule, rule)} {dashes[_DASHES.get(rule, 'dashdot')]}" for rule in rules]
    note = f"Lines: {', '.join(keys)}." if len(rules) > 1 else ""
    limits = _limits([value for line in lines for value in (*line.y, *line.high) if value is not None])
    for place, k in enumerate(document["ks"]):
        points = [] if len(rules) > 1 else _error_points(document, rules[0], place)
        yield Chart(
            title,
            Axis("labels per answer, on average"),
            Axis("true labels missing", percent=True, limits=limits),
            (*lines, *points),
            (Reference(f"K = {k_words(k)}", x=k),),
            note,
        )


def _limits(values: list[float]) -> tuple[float, float] | None:
    """From 0, unless that would squeeze all lines into the upper half."""
    if not values or min(values) < 0.5 * max(values):
        return None
    room = 0.06 * (max(values) - min(values)) + 0.002
    return min(values) - room, min(1.0, max(values)) + room


def _error_lines(document: dict[str, Any], rule: str, *, several: bool) -> Iterator[Series]:
    for name, style, seeds in findings(document):
        sizes = seeds[0]["curves"]["sizes"]
        errors = [
            sets["curves"]["errors"][rule]
            for sets in seeds
            if rule in sets["curves"]["errors"] and sets["curves"]["sizes"] == sizes
        ]
        if not errors:
            continue
        columns = list(zip(*errors, strict=True))
        look = replace(style, dash=_DASHES.get(rule, "dashdot")) if several else style
        if len(errors) > 1 and not several:
            there = [[value for value in column if value is not None] for column in columns]
            low = tuple(min(column) if column else None for column in there)
            high = tuple(max(column) if column else None for column in there)
            yield Series(name, "band", tuple(sizes), low, look, high, in_legend=False)
        values = tuple(mean(column) for column in columns)
        yield Series(
            name, "line", tuple(sizes), values, look, in_legend=not several or rule == "average-k", marked=True
        )


def _error_points(document: dict[str, Any], rule: str, place: int) -> Iterator[Series]:
    """What the rule came to at the K of the slider, with its threshold of the validation rows."""
    if rule not in ("average-k", "top-k"):
        return
    for name, style, seeds in findings(document):
        entries = [sets["by_k"][place] for sets in seeds]
        if rule == "average-k":
            x, y = mean([entry["average_size"] for entry in entries]), mean([entry["error"] for entry in entries])
        else:
            x, y = document["ks"][place], mean([entry["top_error"] for entry in entries])
        if x is not None and y is not None:
            note = f"{x:.3g} labels on average, {share_words(y)} missing"
            yield Series(name, "points", (x,), (y,), style, notes=(note,), in_legend=False)


def size_panel(document: dict[str, Any]) -> Panel:
    """How many labels the answers have, over all rows and by shot."""
    shots = document["data"]["shots"]
    parts = (
        ["all", *(shot["name"] for shot in shots if _has_rows(document, shot["name"]))] if len(shots) > 1 else ["all"]
    )
    charts = {part: tuple(_size_chart(document, part, place) for place in range(len(document["ks"]))) for part in parts}
    about = (
        "The share of rows by how many labels their answer has under the average-K rule: sure rows get few, doubtful "
        "ones many." + (f" {_shots_sentence(shots)}" if len(shots) > 1 else "")
    )
    return Panel("set-sizes", "How large the sets are", about, charts, choose="Rows")


def _has_rows(document: dict[str, Any], part: str) -> bool:
    entries = (entry for _, _, seeds in findings(document) for sets in seeds for entry in sets["by_k"])
    return any(sum(entry["histogram"].get(part, ())) > 0 for entry in entries)


def _shots_sentence(shots: list[dict[str, Any]]) -> str:
    parts = [f"{shown_name(shot['name'])} ({shown_name(shot['about'])})" for shot in shots]
    return f"Rows belong to the shot of their rarest true label: {', '.join(parts)}."


def _size_chart(document: dict[str, Any], part: str, place: int) -> Chart:
    found: list[tuple[str, Style, np.ndarray]] = []
    for name, style, seeds in findings(document):
        rows = [sets["by_k"][place]["histogram"].get(part, []) for sets in seeds]
        total = np.zeros(max(map(len, rows), default=0))
        for one in rows:
            total[: len(one)] += one
        if total.sum() > 0:
            found.append((name, style, total / total.sum()))
    middles, words, binned = _bars([shares for _, _, shares in found])
    as_bars = len(found) <= _MOST_SERIES_OF_BARS
    series = [
        Series(
            name,
            "bars" if as_bars else "line",
            middles,
            tuple(float(value) for value in shares),
            style,
            notes=tuple(f"{word}: {share_words(value)} of rows" for word, value in zip(words, shares, strict=True)),
            marked=not as_bars,
        )
        for (name, style, _), shares in zip(found, binned, strict=True)
    ]
    k = document["ks"][place]
    title = f"Set sizes at K = {k_words(k)}" + ("" if part == "all" else f", {shown_name(part)} shot")
    x = Axis("labels in the answer", whole=True)
    return Chart(title, x, Axis("rows", percent=True), tuple(series), (Reference(f"K = {k_words(k)}", x=k),))


def _bars(shares: list[np.ndarray]) -> tuple[tuple[float, ...], list[str], list[np.ndarray]]:
    """Sizes joined to few enough bars of equal width; the last holds the tail that would squeeze the rest."""
    longest = max(map(len, shares), default=1)
    full = [np.pad(one, (0, longest - len(one))) for one in shares]
    # The largest size that more than a few rows of any candidate reach.
    top = max((int(np.nonzero(one[::-1].cumsum()[::-1] > _TAIL)[0][-1]) for one in full), default=0)
    step = -(-(top + 1) // _MOST_BARS)
    starts = np.arange(0, top + 1, step)
    ends = np.minimum(starts + step - 1, top)
    words = [
        f"{first:,} label{'' if first == 1 else 's'}" if first == last else f"{first:,} to {last:,} labels"
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    if longest > top + 1:
        words[-1] = f"{int(starts[-1]):,} labels or more"
    middles = tuple(float(start) + (step - 1) / 2 for start in starts)
    return middles, words, [np.add.reduceat(one, starts) for one in full]


def shot_panel(document: dict[str, Any]) -> Panel | None:
    """Error by shot at the K of the slider; None when the labels are not divided."""
    shots = document["data"]["shots"]
    if len(shots) < 2:
        return None
    places = range(len(document["ks"]))
    charts = {"average-K": tuple(_shot_chart(document, place, "error", "average-K") for place in places)}
    if any(entry["top_error"] is not None for _, _, seeds in findings(document) for entry in seeds[0]["by_k"]):
        charts["top-K"] = tuple(_shot_chart(document, place, "top_error", "top-K") for place in places)
    about = (
        "How often the true label is missing, for labels with many and with few training rows: a method that serves "
        "the long tail has short bars on the right, too."
    )
    return Panel("error-by-shot", "Error by shot", about, charts, choose="Rule")


def _shot_chart(document: dict[str, Any], place: int, key: str, rule: str) -> Chart:
    shots = document["data"]["shots"]
    series = []
    for name, style, seeds in findings(document):
        entries = [sets["by_k"][place] for sets in seeds]
        inside = [entry[f"{key}_by_shot"] or {} for entry in entries]
        values = [mean([entry[key] for entry in entries])]
        values += [mean([found.get(shot["name"]) for found in inside]) for shot in shots]
        notes = [f"{part}: {_missing(value)}" for part, value in zip(_parts(shots), values, strict=True)]
        series.append(
            Series(name, "bars", tuple(map(float, range(len(values)))), tuple(values), style, notes=tuple(notes))
        )
    k = k_words(document["ks"][place])
    empty = all(value is None for one in series for value in one.y)
    note = f"{rule} needs a whole K; {k} is none." if empty else ""
    names = Axis("labels by their training rows", scale="names", names=_parts(shots))
    y = Axis("true labels missing", percent=True)
    return Chart(f"Error by shot at K = {k}, {rule} rule", names, y, tuple(series), note=note)


def _parts(shots: list[dict[str, Any]]) -> tuple[str, ...]:
    return ("all", *(shown_name(shot["name"]) for shot in shots))


def _missing(value: float | None) -> str:
    return "no rows" if value is None else f"{share_words(value)} missing"

"""How comparisons under label noise are shown: tables, figures, and the words beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.candidates import Compared
from shortlist.evidence import Choice, Figure, Table
from shortlist.report.chart import Axis, Chart, Series, Style, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval

ByNoise = Mapping[float, Compared]


def listed(rates: Sequence[float]) -> str:
    """Numbers in words."""
    return ", ".join(f"{rate:g}" for rate in rates)


def published_gaps(
    published: Mapping[str, Any], name: str, other: str, *, ends: bool = False, only: Sequence[float] | None = None
) -> str:
    """Differences between two columns of the published table, in words."""
    rates, columns = published["noise"], published["accuracy"]
    told = [
        f"{mine - others:+.1f} at p = {rate:g}"
        for rate, mine, others in zip(rates, columns[name], columns[other], strict=True)
        if only is None or rate in only
    ]
    return f"{name} − {other}: " + ", ".join([told[0], told[-1]] if ends else told)


def published_row(published: Mapping[str, Any], k: int) -> str:
    """A row of the published table, in words."""
    at = published["ks"].index(k)
    return ", ".join(f"{name} {values[at]:g}" for name, values in published["accuracy"].items())


def published_table(published: Mapping[str, Any]) -> Table:
    """The published table, with its own intervals."""
    first, rows = ("p", published["noise"]) if "noise" in published else ("k", published["ks"])
    names, half = list(published["accuracy"]), published["half_width"]
    cells = [
        [f"{row:g}", *(Interval(published["accuracy"][name][at] / 100, half[name][at] / 100) for name in names)]
        for at, row in enumerate(rows)
    ]
    digits = published.get("digits", 1)
    return Table(f"Published: {published['about']}", [first, *names], cells, percent=True, digits=digits)


def accuracy_table(found: ByNoise, figure: str, title: str) -> Table:
    """One figure of all candidates, a row for each level of noise."""
    names = list(next(iter(found.values())).found)
    rows = [[f"{rate:g}", *(Interval.of(each.figure(name, figure)) for name in names)] for rate, each in found.items()]
    return Table(title, ["p", *names], rows, percent=True)


def learned_table(found: ByNoise) -> Table:
    """How much of the training labels, noisy ones among them, the kept models give back."""
    note = "Noisy labels count as they are; a share above that of clean labels means that noise was learned by heart."
    table = accuracy_table(found, "learned", "Training rows whose label comes first, in percent")
    return Table(table.title, table.columns, table.rows, percent=True, note=note)


def interval_line(name: str, x: Sequence[float], values: Sequence[Sequence[float]], style: Style) -> list[Series]:
    """A band of 95% intervals and the line of means; one list of values over seeds for each x."""
    found = [Interval.of(each) for each in values]
    # With one seed there is no interval: the band has no width.
    width = [0.0 if each.half_width != each.half_width else each.half_width for each in found]
    low = tuple(each.mean - half for each, half in zip(found, width, strict=True))
    high = tuple(each.mean + half for each, half in zip(found, width, strict=True))
    means = tuple(each.mean for each in found)
    return [
        Series(name, "band", tuple(x), low, style, high, in_legend=False),
        Series(name, "line", tuple(x), means, style, marked=True),
    ]


def room_around(series: Sequence[Series]) -> tuple[float, float]:
    """Limits of an axis of shares that show all of the series, with a little room."""
    values = [value for each in series for value in (*each.y, *each.high) if value is not None]
    room = 0.06 * (max(values) - min(values)) + 0.002
    return min(values) - room, max(values) + room


def accuracy_figure(found: ByNoise, figure: str, title: str, path: Path) -> Figure:
    """A line for each candidate against the noise."""
    names = list(next(iter(found.values())).found)
    series = [
        line
        for place, name in enumerate(names)
        for line in interval_line(
            name, list(found), [each.figure(name, figure) for each in found.values()], candidate_style(place)
        )
    ]
    y = Axis("accuracy", percent=True, limits=room_around(series))
    save_figure(draw_chart(Chart(title, Axis("label noise p"), y, tuple(series))), path, dpi=110)
    return Figure(path.name, f"{title} against the probability of a noisy training label; bands are 95% intervals.")


def gap_figure(gaps: Mapping[str, Mapping[float, list[float]]], base: str, k: int, path: Path) -> Figure:
    """A line for each candidate, as a difference to the baseline."""
    series = [
        line
        for place, (name, by_noise) in enumerate(gaps.items(), start=1)
        for line in interval_line(name, list(by_noise), list(by_noise.values()), candidate_style(place))
    ]
    rates = tuple(next(iter(gaps.values())))
    zero = Series(base, "line", rates, (0.0,) * len(rates), candidate_style(0))
    y = Axis(f"top-{k} accuracy minus that of {base}", percent=True, limits=room_around([*series, zero]))
    title = f"What top-k losses gain over {base}"
    save_figure(draw_chart(Chart(title, Axis("label noise p"), y, (zero, *series))), path, dpi=110)
    return Figure(path.name, f"Difference to {base}, paired by seed, in percentage points; bands are 95% intervals.")


def setup_words(
    settings: Mapping[str, Any],
    *,
    chosen: str = "for each loss and each condition",
    measured: str = "measured on test rows",
) -> str:
    """What was trained, in one paragraph.

    Args:
        settings: of the study.
        chosen: what options were chosen for.
        measured: what was done with the seeds.
    """
    fit, data = settings["fit"], settings["data"]
    source = data.get("loader") or data.get("open")
    rows = f"{settings['rows']} training rows, drawn for each seed" if settings["rows"] else "all training rows"
    noise = f"label noise p of {listed(settings['noise'])} within superclasses; " if max(settings["noise"]) else ""
    size = ", ".join(f"{name} {value}" for name, value in fit.get("encoder_options", {}).items())
    return (
        f"Data {source}, {rows}; {noise}validation and test labels are the true ones. Encoder {fit['encoder']}"
        f"{f' ({size})' if size else ''}, at most {fit['epochs']} epochs of batches of {fit['batch_size']}, "
        f"{fit['optimizer']}; the epoch with the best top-k accuracy on validation rows is kept. Options are chosen "
        f"{chosen} on validation rows with seeds {listed(settings['tuning_seeds'])}, then seeds "
        f"{listed(settings['seeds'])} are {measured}."
    )


def tried_words(settings: Mapping[str, Any], choices: Mapping[str, Mapping[str, Choice]]) -> list[str]:
    """The grids, what was chosen from them, and the limits of the setting; by condition and candidate."""
    told = []
    for name, each in settings["candidates"].items():
        chosen = [f"{where}: {_chosen(by_name[name])}" for where, by_name in choices.items()]
        told.append(f"For {name}, {grid_words(each.get('grid', {}))}; chosen at {'; '.join(chosen)}.")
    return [*told, *limits_words(settings)]


def grid_words(grid: Mapping[str, Sequence[Any]]) -> str:
    """The values that were tried.

    Example:
        >>> grid_words({"learning_rate": [0.001, 0.002], "loss_options.epsilon": [1.0]})
        'learning rate 0.001, 0.002 and epsilon 1'
    """
    return " and ".join(f"{_plain(name)} {listed(values)}" for name, values in grid.items())


def limits_words(settings: Mapping[str, Any]) -> list[str]:
    """What this scale cannot show, as the settings say it."""
    return [settings["limits"]] if settings.get("limits") else []


def _chosen(choice: Choice) -> str:
    edges = choice.edges()
    told = (f"{_plain(name)} {value:g}{' (at the edge)' * (name in edges)}" for name, value in choice.options.items())
    return ", ".join(told) or "nothing to choose"


def _plain(option: str) -> str:
    return option.rpartition(".")[2].replace("_", " ")


def plain_values(found: ByNoise) -> dict[str, Any]:
    """The figures of every seed."""
    return {f"{rate:g}": {name: list(runs) for name, runs in each.found.items()} for rate, each in found.items()}

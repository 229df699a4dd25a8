"""How much the average-K loss depends on its weight α and on the batch size (figures 5.5 and 5.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.average_k_trial import trial
from experiments.candidates import grid_points, merged
from experiments.data import open_data
from experiments.long_tail_runs import told_choices
from shortlist.evidence import Choice, Claim, Figure, Finding, Lab, Outcome, Table, all_of, beats, tuned
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval

# Figure 5.5 has an axis from 20 to 100 %, on which two points are not seen, and a fall of five or more is.
STABLE = 0.02
SHARP = 0.05
# Figure 5.6 shows differences of about half a point.
WORTH = 0.005
_CE, _OURS = "cross_entropy", "average_k"
_DIVERGED = "no finite step"

By = dict[str, dict[float, list[float]]]


def swept(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Average-K accuracy of one run; a run whose loss ceases to be finite counts as sets drawn by chance."""
    k = settings["ks"][0]
    try:
        accuracy = trial(settings, root)[f"rows{k}"]
    except ValueError as error:
        if _DIVERGED not in str(error):
            raise
        return {"accuracy": k / open_data(settings["data"], root, seed=0).num_labels, "diverged": 1}
    return {"accuracy": accuracy, "diverged": 0}


def alpha_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 5.5: α over seven powers of ten."""
    alphas = [float(alpha) for alpha in settings["alphas"]]
    choices, by, diverged = _sweep(lab, settings, alphas, lambda alpha, rate: {"loss_options.alpha": alpha})
    found, (low, high) = by[_OURS], published["stable"]
    stable = {alpha: values for alpha, values in found.items() if low <= alpha <= high}
    base = float(settings["tuning_at"])
    claims = [
        Claim(
            f"For α from {low:g} to {high:g} accuracy is at most 2 points below that of α = {base:g}.",
            "a curve without figures, flat on an axis from 20 to 100 %",
            all_of([within(found[base], values, f"α = {base:g}", f"{alpha:g}") for alpha, values in stable.items()]),
        ),
        Claim(
            f"It falls sharply, by 5 points and more, at the largest α ({max(found):g}).",
            "a curve without figures; the text says that it drops sharply",
            _sharp_fall(found[base], found[max(found)], (f"α = {base:g}", f"{max(found):g}")),
        ),
    ]
    words = f"Accuracy by α; the other options are those chosen for α = {settings['tuning_at']:g}."
    chart = _chart("Average-K accuracy by α", Axis("α", scale="log"), by, settings["ks"][0])
    return _outcome(lab, settings, chart, "alpha.png", words, claims, choices, by, diverged)


def batch_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 5.6: batch sizes, with a rate in proportion."""
    sizes, base = [float(size) for size in settings["batch_sizes"]], float(settings["tuning_at"])

    def options(size: float, rate: float) -> dict[str, Any]:
        return {"batch_size": int(size), "learning_rate": rate * size / base}

    choices, by, diverged = _sweep(lab, settings, sizes, options)
    falls = {name: _minus(by[name][base], by[name][max(sizes)]) for name in by}
    claims = [
        Claim(
            "Both losses lose accuracy when batches become too small.",
            "a curve without figures",
            all_of(
                [
                    beats(
                        values[base],
                        values[min(sizes)],
                        names=(f"{name}, batches of {base:g}", f"{min(sizes):g}"),
                        worth=WORTH,
                    )
                    for name, values in by.items()
                ]
            ),
        ),
        Claim(
            f"The average-K loss loses less than cross-entropy from batches of {base:g} to the largest.",
            "a curve without figures",
            beats(falls[_CE], falls[_OURS], names=(f"fall to {max(sizes):g}: {_CE}", _OURS), worth=WORTH),
        ),
    ]
    words = f"Accuracy by batch size; the learning rate is the one chosen for {base:g}, in proportion to the size."
    chart = _chart("Average-K accuracy by batch size", Axis("rows of a batch", scale="log"), by, settings["ks"][0])
    return _outcome(lab, settings, chart, "batch_size.png", words, claims, choices, by, diverged)


def _sweep(
    lab: Lab,
    settings: Mapping[str, Any],
    places: Sequence[float],
    options: Callable[[float, float], Mapping[str, Any]],
) -> tuple[dict[str, Choice], By, int]:
    """Choose the rate of each candidate at ``tuning_at``, then train at all places: by candidate and place."""
    candidates, base = settings["candidates"], float(settings["tuning_at"])

    def asked(name: str, point: Mapping[str, Any], place: float, seed: int, part: str) -> dict[str, Any]:
        at = options(place, point["learning_rate"])
        fit = merged(settings["fit"], candidates[name]["fit"], point, at, {"k": settings["ks"][0]})
        about = {key: settings[key] for key in ("data", "tail", "rows", "ks", "scores")}
        return {**about, "fit": fit, "seed": seed, "part": part}

    grids = {name: grid_points(candidate["grid"]) for name, candidate in candidates.items()}
    finals = [(name, place, seed) for name in candidates for place in places for seed in settings["seeds"]]
    lab.plan(sum(map(len, grids.values())) * len(settings["tuning_seeds"]) + len(finals))
    choices = tuned(
        lab,
        swept,
        grids,
        lambda name, point, seed: asked(name, point, base, seed, "val"),
        figure="accuracy",
        seeds=settings["tuning_seeds"],
    )
    results = lab.trials(
        swept, [asked(name, choices[name].options, place, seed, "test") for name, place, seed in finals]
    )
    by: By = {name: {place: [] for place in places} for name in candidates}
    for (name, place, _), values in zip(finals, results, strict=True):
        by[name][place].append(values["accuracy"])
    return choices, by, sum(values["diverged"] for values in results)


def within(best: Sequence[float], other: Sequence[float], best_name: str, name: str) -> Finding:
    """Whether a figure is at most `STABLE` below the best one: all of the interval must be."""
    gap = Interval.of(_minus(best, other))
    low, high = gap.mean - gap.half_width, gap.mean + gap.half_width
    verdict = HOLDS if high <= STABLE else FAILS if low > STABLE else OPEN
    return Finding(verdict, f"{best_name} − {name} = {100 * gap.mean:+.2f} ± {100 * gap.half_width:.2f} points")


def _sharp_fall(best: Sequence[float], last: Sequence[float], names: tuple[str, str]) -> Finding:
    """Whether the fall is at least `SHARP`: all of the interval must be, and fails if all of it is below."""
    gap = Interval.of(_minus(best, last))
    low, high = gap.mean - gap.half_width, gap.mean + gap.half_width
    verdict = HOLDS if low >= SHARP else FAILS if high < SHARP else OPEN
    return Finding(
        verdict, f"{names[0]} − {names[1]} = {100 * gap.mean:+.2f} ± {100 * gap.half_width:.2f} points (asked: 5)"
    )


def _minus(ours: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(ours, other, strict=True)]


def _chart(title: str, x: Axis, by: By, k: int) -> Chart:
    series = []
    for place, (name, found) in enumerate(by.items()):
        intervals, at, style = [Interval.of(values) for values in found.values()], tuple(found), candidate_style(place)
        low = tuple(each.mean - each.half_width for each in intervals)
        high = tuple(each.mean + each.half_width for each in intervals)
        series.append(Series(name, "band", at, low, style, high, in_legend=False))
        means = tuple(each.mean for each in intervals)
        series.append(Series(name.replace("_", " "), "line", at, means, style, marked=True))
    lowest = min(value for each in series for value in each.y)
    limits = (max(0.0, lowest - 0.03), 1.0)
    return Chart(title, x, Axis(f"average-{k} accuracy", percent=True, limits=limits), tuple(series))


def _outcome(
    lab: Lab,
    settings: Mapping[str, Any],
    chart: Chart,
    file: str,
    words: str,
    claims: Sequence[Claim],
    choices: Mapping[str, Choice],
    by: By,
    diverged: int,
) -> Outcome:
    save_figure(draw_chart(chart), lab.figures / file, dpi=110)
    fit, data = settings["fit"], settings["data"]
    rows = f"{settings['rows']:,} training rows of " if settings["rows"] else ""
    setup = (
        f"Data {rows}{data.get('loader', data.get('open'))}. Encoder {fit['encoder']}, {fit['epochs']} epochs of "
        f"{fit['optimizer']}; {len(settings['seeds'])} seeds. {words} Accuracy is that of test rows, at the best "
        "epoch and with the threshold of validation rows; the text shows validation rows."
    )
    table_rows = [[f"{name}, {place:g}", Interval.of(values)] for name in by for place, values in by[name].items()]
    note = f"{diverged} runs diverged and count as sets drawn by chance." if diverged else ""
    table = Table(f"{chart.title}, %", [f"loss, {chart.x.label}", "accuracy"], table_rows, percent=True, note=note)
    caption = f"{words} Lines are means over seeds, bands their 95% intervals."
    return Outcome(setup, claims, [table], [Figure(file, caption)], told_choices(choices), {"accuracy": by})

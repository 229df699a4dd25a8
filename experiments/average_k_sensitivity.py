"""Sensitivity of the average-K loss to its weight α and to the batch size (sets, figures 5.5 and 5.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.average_k import trial
from experiments.candidates import count_runs, merged, tuned_runs
from experiments.data import open_data
from experiments.presentation import data_words, differences, fit_words, interval_line, saved, tried_words
from shortlist.evidence import Choice, Claim, Lab, Outcome, Table, all_of, at_least, at_most, beats
from shortlist.report.chart import Axis, Chart, candidate_style
from shortlist.train.classifier import DivergedError
from shortlist.train.comparison import Interval

# Figure 5.5 has an axis from 20 to 100%, on which one sees a drop of five points but not of two.
STABLE = 0.02
SHARP = 0.05
# Figure 5.6 shows differences of about half a point.
WORTH = 0.005
_CE, _OURS = "cross_entropy", "average_k"

By = dict[str, dict[float, list[float]]]


def swept(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Average-K accuracy of one run; a run that diverges counts as random sets."""
    k = settings["ks"][0]
    try:
        accuracy = trial(settings, root)[f"rows{k}"]
    except DivergedError:
        return {"accuracy": k / open_data(settings["data"], root, seed=0).num_labels, "diverged": 1}
    return {"accuracy": accuracy, "diverged": 0}


def alpha_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 5.5: α over seven orders of magnitude."""
    alphas = [float(alpha) for alpha in settings["alphas"]]
    choices, by, diverged = _sweep(lab, settings, alphas, lambda alpha, rate: {"loss_options.alpha": alpha})
    found, (low, high) = by[_OURS], published["stable"]
    stable = {alpha: values for alpha, values in found.items() if low <= alpha <= high}
    base = float(settings["tuning_at"])
    claims = [
        Claim(
            f"For α from {low:g} to {high:g} accuracy is at most 2 points below that of α = {base:g}.",
            "a curve without numbers, flat on an axis from 20 to 100%",
            all_of(
                [
                    at_most(differences(found[base], values), STABLE, name=f"α = {base:g} − {alpha:g}", unit="points")
                    for alpha, values in stable.items()
                ]
            ),
        ),
        Claim(
            f"It drops sharply, by at least 5 points, at the largest α ({max(found):g}).",
            "a curve without numbers; the paper says that it drops sharply",
            at_least(
                differences(found[base], found[max(found)]),
                SHARP,
                name=f"α = {base:g} − {max(found):g}",
                unit="points",
            ),
        ),
    ]
    words = f"Accuracy by α; all other options are those chosen for α = {base:g}."
    chart = _chart("Average-K accuracy by α", Axis("α", scale="log"), by, settings["ks"][0])
    return _outcome(lab, settings, chart, "alpha.png", words, claims, choices, by, diverged)


def batch_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 5.6: batch sizes, with proportional learning rates."""
    sizes, base = [float(size) for size in settings["batch_sizes"]], float(settings["tuning_at"])

    def options(size: float, rate: float) -> dict[str, Any]:
        return {"batch_size": int(size), "learning_rate": rate * size / base}

    choices, by, diverged = _sweep(lab, settings, sizes, options)
    drops = {name: differences(by[name][base], by[name][max(sizes)]) for name in by}
    claims = [
        Claim(
            "Both losses lose accuracy when batches become too small.",
            "a curve without numbers",
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
            "a curve without numbers",
            beats(drops[_CE], drops[_OURS], names=(f"drop at {max(sizes):g}: {_CE}", _OURS), worth=WORTH),
        ),
    ]
    words = f"Accuracy by batch size; the learning rate is that chosen for {base:g}, scaled by the batch size."
    chart = _chart("Average-K accuracy by batch size", Axis("batch size", scale="log"), by, settings["ks"][0])
    return _outcome(lab, settings, chart, "batch_size.png", words, claims, choices, by, diverged)


def _sweep(
    lab: Lab,
    settings: Mapping[str, Any],
    values: Sequence[float],
    options: Callable[[float, float], Mapping[str, Any]],
) -> tuple[dict[str, Choice], By, int]:
    """Choose the learning rate of each candidate at ``tuning_at``, then train with all swept values.

    Returns:
        The choices, accuracies by candidate and value, and the number of runs that diverged.
    """
    candidates = settings["candidates"]

    def asked(name: str, point: Mapping[str, Any], value: float, seed: int, part: str) -> dict[str, Any]:
        at = options(value, point["learning_rate"])
        fit = merged(settings["fit"], candidates[name]["fit"], point, at, {"k": settings["ks"][0]})
        about = {key: settings[key] for key in ("data", "tail", "rows", "ks", "scores")}
        return {**about, "fit": fit, "seed": seed, "part": part}

    conditions = {name: list(values) for name in candidates}
    lab.plan(count_runs(settings, conditions))
    choices, found = tuned_runs(
        lab,
        swept,
        settings,
        asked,
        figure="accuracy",
        conditions=conditions,
        tuning_condition=float(settings["tuning_at"]),
    )
    by = {
        name: {value: [run["accuracy"] for run in runs] for value, runs in by_value.items()}
        for name, by_value in found.items()
    }
    diverged = sum(run["diverged"] for by_value in found.values() for runs in by_value.values() for run in runs)
    return choices, by, diverged


def _chart(title: str, x: Axis, by: By, k: int) -> Chart:
    series = []
    for index, (name, found) in enumerate(by.items()):
        series += interval_line(name.replace("_", " "), list(found), list(found.values()), candidate_style(index))
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
    rows = f"{settings['rows']:,} training rows of " if settings["rows"] else ""
    setup = (
        f"Data: {rows}{data_words(settings['data'])}. {fit_words(settings)} {words} Accuracy is measured on test rows, "
        "at the best epoch and with the threshold from validation rows; the paper shows validation rows."
    )
    table_rows = [[f"{name}, {at:g}", Interval.of(values)] for name in by for at, values in by[name].items()]
    note = f"{diverged} runs diverged and count as random sets." if diverged else ""
    table = Table(f"{chart.title}, %", [f"loss, {chart.x.label}", "accuracy"], table_rows, percent=True, note=note)
    caption = f"{words} Lines are means over seeds, bands their 95% intervals."
    return Outcome(setup, claims, [table], [saved(chart, lab, file, caption)], tried_words(choices), {"accuracy": by})

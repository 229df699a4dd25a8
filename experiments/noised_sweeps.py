"""The scale and the number of the draws of the noised top-k loss: tables 4.2 and 4.3 of the text on sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.candidates import Compared, compared, count_trials, grid_points, merged
from experiments.noise_shown import grid_words, interval_line, limits_words, room_around, setup_words
from experiments.noise_trial import trial
from experiments.topk_noise import at_each
from shortlist.evidence import Choice, Claim, Figure, Finding, Lab, Outcome, Table, alike, tuned
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN
from shortlist.report.chart import Axis, Chart, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval


def epsilon_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.2: accuracy against the scale of the noise, the rate chosen for each scale with the same budget."""
    names = {float(epsilon): f"ε = {epsilon:g}" for epsilon in settings["epsilons"]}
    candidates = {
        name: {
            "fit": {"loss_options": {"epsilon": epsilon, "samples": settings["samples"]}},
            "grid": settings["grid"],
        }
        for epsilon, name in names.items()
    }
    asked = {**settings, "candidates": candidates}
    lab.plan(count_trials(asked))
    found = compared(lab, trial, asked, figure="topk", noise=0.0, rows=int(settings["rows"]))
    values = {epsilon: found.figure(name, "topk") for epsilon, name in names.items()}
    told = dict(zip(map(float, published["epsilons"]), published["accuracy"], strict=True))
    rows = [
        [f"{epsilon:g}", Interval.of(each), _rate(found, names[epsilon]), _share(told.get(epsilon))]
        for epsilon, each in values.items()
    ]
    title = f"Top-{settings['fit']['k']} accuracy against the scale ε of the noise"
    return Outcome(
        setup_words({**settings, "noise": [0.0]}, chosen="for each ε"),
        _epsilon_claims(values, told, published),
        [
            Table(
                f"{title}, in percent",
                ["ε", "ours, test rows", "learning rate chosen", "published, best on validation rows"],
                rows,
                percent=True,
                digits=2,
            )
        ],
        [named_figure(title, "scale ε of the noise", values, lab.figures / "accuracy.png")],
        [f"Every ε, 0 among them, had the same grid: {grid_words(settings['grid'])}.", *limits_words(settings)],
        {f"{epsilon:g}": found.found[name] for epsilon, name in names.items()},
    )


def _epsilon_claims(
    values: Mapping[float, Sequence[float]], told: Mapping[float, float], published: Mapping[str, Any]
) -> list[Claim]:
    reference, share = float(published["reference"]), float(published["failing"])
    tiny = [epsilon for epsilon in values if 0 < epsilon < published["wide_from"]]
    wide = {epsilon: each for epsilon, each in values.items() if epsilon >= published["wide_from"]}
    best = told[reference]
    failed = {e: fails_to_learn(values[e], values[reference], share=share) for e in (0.0, *tiny)}
    words = ", ".join(f"{told[epsilon]:g}% at {epsilon:g}" for epsilon in tiny if epsilon in told)
    spread = [told[epsilon] for epsilon in wide if epsilon in told]
    return [
        Claim(
            f"Without noise, ε = 0, the model fails to learn: less than {100 * share:g}% of the accuracy at ε = "
            f"{reference:g}.",
            f"{told[0.0]:g}% at ε = 0, {best:g}% at ε = {reference:g}",
            failed[0.0],
        ),
        Claim(
            f"Too little noise, 0 < ε < {published['wide_from']:g}, fails to learn, too.",
            words,
            at_each({f"ε = {e:g}": failed[e] for e in tiny}),
        ),
        Claim(
            f"All ε from {published['wide_from']:g} on do about as well: within {100 * published['within']:g} points.",
            f"from {min(spread):g}% to {max(spread):g}%",
            spread_within(wide, published["within"], name="the spread over ε"),
        ),
    ]


def samples_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.3: accuracy against the number of draws, all with the rate that was chosen for the text's number."""
    counts = [int(count) for count in settings["samples"]]
    lab.plan(tuning_trials(settings) + len(counts) * len(settings["seeds"]))
    choice = reference_choice(settings, lab)
    order = [(count, seed) for count in counts for seed in settings["seeds"]]
    results = lab.trials(trial, [asked_of(settings, choice.options, seed, "test", samples=m) for m, seed in order])
    runs: dict[float, list[dict[str, Any]]] = {count: [] for count in counts}
    for (count, _), result in zip(order, results, strict=True):
        runs[count].append(result)
    values = {count: [run["topk"] for run in each] for count, each in runs.items()}
    told = dict(zip(published["samples"], published["accuracy"], strict=True))
    title = f"Top-{settings['fit']['k']} accuracy against the number M of draws"
    rows = [[f"{count:g}", Interval.of(each), _share(told.get(count))] for count, each in values.items()]
    columns = ["M", "ours, test rows", "published, best on validation rows"]
    return Outcome(
        setup_words({**settings, "noise": [0.0]}, chosen=reference_words(settings)),
        _samples_claims(values, told, published),
        [Table(f"{title}, in percent", columns, rows, percent=True, digits=2)],
        [named_figure(title, "number M of draws", values, lab.figures / "accuracy.png")],
        rates_tried(settings, choice),
        {f"{count:g}": each for count, each in runs.items()},
    )


def _samples_claims(
    values: Mapping[float, Sequence[float]], told: Mapping[float, float], published: Mapping[str, Any]
) -> list[Claim]:
    few, most, within = published["few"], max(values), published["within"]
    return [
        Claim(
            f"The number of draws hardly matters: all M lie within {100 * within:g} points.",
            f"from {min(told.values()):g}% to {max(told.values()):g}%",
            spread_within(values, within, name="the spread over M"),
        ),
        Claim(
            f"A few draws suffice: M = {few} gives what M = {most:g} gives.",
            f"{told[few]:g}% at M = {few}, {told[max(told)]:g}% at M = {max(told):g}",
            alike(values[few], values[most], names=(f"M = {few}", f"M = {most:g}"), within=within),
        ),
    ]


def fails_to_learn(values: Sequence[float], reference: Sequence[float], *, share: float) -> Finding:
    """Whether accuracies lie below a share of those of a reference, seed by seed.

    Args:
        values, reference: one accuracy per seed, in the same order.
        share: what is less than this share of the reference counts as failing.

    Example:
        >>> fails_to_learn([0.1, 0.12], [0.9, 0.9], share=0.5).verdict
        'holds'
    """
    found = Interval.of([value - share * other for value, other in zip(values, reference, strict=True)])
    low, high = found.mean - found.half_width, found.mean + found.half_width
    verdict = HOLDS if high < 0 else FAILS if low >= 0 else OPEN
    bound = share * Interval.of(reference).mean
    told = f"{100 * (bound + found.mean):.1f} ± {100 * found.half_width:.1f}%"
    return Finding(verdict, f"accuracy {told} (failing: below {100 * bound:.1f}%)")


def spread_within(values: Mapping[float, Sequence[float]], within: float, *, name: str) -> Finding:
    """Whether the greatest and the least accuracy over conditions differ by no more than ``within``, seed by seed.

    The spread of several noisy figures is never 0, so this errs against the claim.

    Example:
        >>> spread_within({1.0: [0.80, 0.81], 2.0: [0.805, 0.812]}, 0.05, name="spread").verdict
        'holds'
    """
    found = Interval.of([max(seed) - min(seed) for seed in zip(*values.values(), strict=True)])
    low, high = found.mean - found.half_width, found.mean + found.half_width
    verdict = HOLDS if high <= within else FAILS if low > within else OPEN
    told = f"{100 * found.mean:.2f} ± {100 * found.half_width:.2f} points"
    return Finding(verdict, f"{name} is {told} (asked: at most {100 * within:g})")


def tuning_trials(settings: Mapping[str, Any]) -> int:
    """How many trials `reference_choice` runs."""
    return len(grid_points(settings["grid"])) * len(settings["tuning_seeds"])


def reference_choice(settings: Mapping[str, Any], lab: Lab) -> Choice:
    """The options that validation rows choose for the text's own scale and number of draws, ``reference``."""
    points = {"reference": grid_points(settings["grid"])}
    return tuned(
        lab,
        trial,
        points,
        lambda _, options, seed: asked_of(settings, options, seed, "val"),
        figure="topk",
        seeds=settings["tuning_seeds"],
    )["reference"]


def asked_of(
    settings: Mapping[str, Any], options: Mapping[str, Any], seed: int, part: str, **loss_options: Any
) -> dict[str, Any]:
    """Settings of a trial on clean labels: the loss of ``reference``, but for the ``loss_options`` that are given."""
    fit = merged(settings["fit"], {"loss_options": {**settings["reference"], **loss_options}}, options)
    return {
        "data": settings["data"],
        "fit": fit,
        "seed": seed,
        "part": part,
        "noise": 0.0,
        "rows": int(settings["rows"]),
    }


def reference_words(settings: Mapping[str, Any]) -> str:
    """What the options were chosen for."""
    return f"once, for ε = {settings['reference']['epsilon']:g} and M = {settings['reference']['samples']},"


def rates_tried(settings: Mapping[str, Any], choice: Choice) -> list[str]:
    """The grid of the reference and what was chosen."""
    best = grid_words({name: [value] for name, value in choice.options.items()})
    words = f"The grid was {grid_words(settings['grid'])}, tried {reference_words(settings)} and {best} was chosen."
    return [words, *limits_words(settings)]


def named_figure(
    title: str, along: str, values: Mapping[float, Sequence[float]], path: Path, *, percent: bool = True
) -> Figure:
    """A line of means with a band of intervals; conditions stand side by side, whatever lies between them."""
    places = [float(place) for place in range(len(values))]
    series = interval_line("mean over seeds", places, list(values.values()), candidate_style(0))
    x = Axis(along, scale="names", names=tuple(f"{each:g}" for each in values))
    y = (
        Axis("accuracy on test rows", percent=True, limits=room_around(series))
        if percent
        else Axis("coordinates that are not 0")
    )
    save_figure(draw_chart(Chart(title, x, y, tuple(series))), path, dpi=110)
    return Figure(path.name, f"{title}; the band is the 95% interval over seeds.")


def _rate(found: Compared, name: str) -> str:
    return f"{found.choices[name].options['learning_rate']:g}"


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100

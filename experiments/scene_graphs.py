"""Predicate classification: a softmax for each pair of objects against losses over all relations of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.candidates import Compared, compared, count_trials
from experiments.scene_graph_model import KS, MODES
from experiments.scene_graph_trial import COLUMNS, best_ranking, trial
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, at_least, beats
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import new_figure, save_figure
from shortlist.train.comparison import Interval

BASE, LML, TRUNCATED = "softmax", "LML-20", "Ent-20"
WORTH = 0.005  # Half of a point: the text counts 0.8 points as an improvement.
WITHIN = 0.01  # A point: the text calls models competitive that differ by less.
TRAINING_GAIN = 0.05  # The text reads "5-10%" from its figures.
_RATES = (
    "Learning rates are those that validation images chose; where they differ, a part of the gain on training images "
    "may come from the rate."
)
_HEADINGS = ("trained by", *(f"{mode} R@{k}" for mode, k in COLUMNS))


def best_validation(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Recalls of the validation images at the best epoch, for joint losses with room for 20, 50 and 100 relations."""
    lab.plan(count_trials(settings))
    runs = compared(lab, trial, settings, figure="chosen_by")
    text = published["recall"]
    claims = [
        Claim(
            f"On validation images, LML with k = 20 has a higher {mode} recall than a softmax for each pair.",
            _gaps(text, LML, BASE, mode),
            _ahead(runs, LML, BASE, "val", mode),
        )
        for mode in MODES
    ]
    names = ("LML-20", "LML-50", "LML-100")
    trained_for = [
        no_worse(
            runs.figure(LML, f"val_{mode}_{k}"), runs.figure(name, f"val_{mode}_{k}"), f"{mode} R@{k}", (LML, name)
        )
        for name, k in zip(names[1:], KS[1:], strict=True)
        for mode in MODES
    ]
    claims.append(
        Claim(
            "LML that is trained with k = 20 has no lower R@50 and R@100 than LML that is trained with these k.",
            _side(text, names, "unconstrained"),
            all_of(trained_for),
        )
    )
    claims.append(
        Claim(
            "The truncated entropy with k = 20 has a higher recall of validation images than the softmax, both ways.",
            f"{_gaps(text, TRUNCATED, BASE, MODES[0])}; {_gaps(text, TRUNCATED, BASE, MODES[1])}",
            all_of([_ahead(runs, TRUNCATED, BASE, "val", mode) for mode in MODES]),
        )
    )
    tables = [_ours("Recall of validation images at the best epoch, ours", runs, "val"), _theirs(text, "validation")]
    return Outcome(_setup(settings), claims, tables, tried=_tried(runs, settings), values=_values(runs, ("val",)))


def on_test_images(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Recalls of the test images, at the epoch that validation images chose."""
    world = "world" in settings["data"]
    lab.plan(count_trials(settings) + world * len(settings["seeds"]))
    runs = compared(lab, trial, settings, figure="chosen_by")
    limits: list[dict[str, Any]] = []
    if world:
        asked = [{"data": settings["data"], "seed": seed, "images": 300} for seed in settings["seeds"]]
        limits = lab.trials(best_ranking, asked)
    text = published["recall"]
    improved = [
        beats(
            runs.figure(LML, f"test_constrained_{k}"),
            runs.figure(BASE, f"test_constrained_{k}"),
            names=(f"R@{k}: {LML}", BASE),
            worth=WORTH,
        )
        for k in KS[1:]
    ]
    claims = [
        Claim(
            "On test images, LML has a higher constrained R@50 and R@100 than the softmax (R@20 is the same).",
            _gaps(text, LML, BASE, "constrained"),
            all_of(improved),
        ),
        Claim(
            "On test images, LML has a slightly lower unconstrained recall than the softmax.",
            _gaps(text, LML, BASE, "unconstrained"),
            _ahead(runs, BASE, LML, "test", "unconstrained"),
        ),
        Claim(
            "On test images, LML has a higher unconstrained recall than the truncated entropy.",
            _gaps(text, LML, TRUNCATED, "unconstrained"),
            _ahead(runs, LML, TRUNCATED, "test", "unconstrained"),
        ),
    ]
    tables = [_ours("Recall of test images, ours", runs, "test", limits), _theirs(text, "test")]
    values = _values(runs, ("test", "val", "train"))
    return Outcome(_setup(settings), claims, tables, tried=_tried(runs, settings), values=values)


def progress(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Recalls of training and validation images after each epoch, in the ``mode`` of the settings."""
    mode = settings["mode"]
    lab.plan(count_trials(settings))
    runs = compared(lab, trial, settings, figure="chosen_by")
    claims = _gain_claims(runs, mode, published["gain"])
    file = f"{mode}.png"
    save_figure(_drawn_progress(runs, mode), lab.figures / file, dpi=110)
    caption = (
        f"{mode.capitalize()} recall after each epoch: means over seeds above; below, gains over the softmax with 95% "
        "intervals of differences paired by seed. Solid: training images; dashed: validation images."
    )
    table = _ours("Recall of training images after the last epoch, ours", runs, "last_train")
    return Outcome(
        _setup(settings),
        claims,
        [table, _ours("Recall of validation images after the last epoch, ours", runs, "last_val")],
        [Figure(file, caption)],
        [*_tried(runs, settings), _RATES],
        _values(runs, ("last_train", "last_val")),
    )


def _gain_claims(runs: Compared, mode: str, words: Mapping[str, str]) -> list[Claim]:
    """What the joint losses gain over the softmax after the last epoch, on training and on validation images."""
    methods = {LML: "LML", TRUNCATED: "the truncated entropy"}
    figures = {part: [f"last_{part}_{mode}_{k}" for k in KS] for part in ("train", "val")}
    claims = [
        Claim(
            f"After as many epochs, {method} has a higher {mode} recall of training images than the softmax.",
            words["train"],
            _ahead(runs, name, BASE, "last_train", mode),
        )
        for name, method in methods.items()
    ]
    reached = [
        at_least(_gain(runs, name, figure), TRAINING_GAIN, name=f"R@{k}: {name} − {BASE}")
        for name in methods
        for k, figure in zip(KS, figures["train"], strict=True)
    ]
    text = f"The gain of both in the {mode} recall of training images is at least 5 points."
    claims.append(Claim(text, words["train"], all_of(reached)))
    for name, method in methods.items():
        less = [
            beats(
                _gain(runs, name, train),
                _gain(runs, name, val),
                names=(f"R@{k}: gain on training", "gain on validation images"),
                worth=WORTH,
            )
            for k, train, val in zip(KS, figures["train"], figures["val"], strict=True)
        ]
        text = f"The {mode} recall gains more by {method} on training than on validation images."
        claims.append(Claim(text, words["val"], all_of(less)))
    return claims


def no_worse(ours: Sequence[float], other: Sequence[float], what: str, names: tuple[str, str]) -> Finding:
    """Whether the first is at most `WITHIN` below the second, seed by seed."""
    gap = [a - b for a, b in zip(ours, other, strict=True)]
    return at_least(gap, -WITHIN, name=f"{what}: {names[0]} − {names[1]}")


def _ahead(runs: Compared, name: str, other: str, part: str, mode: str) -> Finding:
    """Whether a candidate is ahead at every K."""
    figures = [f"{part}_{mode}_{k}" for k in KS]
    return all_of(
        [
            beats(runs.figure(name, figure), runs.figure(other, figure), names=(f"R@{k}: {name}", other), worth=WORTH)
            for k, figure in zip(KS, figures, strict=True)
        ]
    )


def _gain(runs: Compared, name: str, figure: str) -> list[float]:
    return [a - b for a, b in zip(runs.figure(name, figure), runs.figure(BASE, figure), strict=True)]


def _gaps(text: Mapping[str, Sequence[float]], name: str, other: str, mode: str) -> str:
    """Published differences in points, such as ``+1.8, +1.7, +1.5 points``."""
    places = [i for i, (each, _) in enumerate(COLUMNS) if each == mode]
    gaps = ", ".join(f"{text[name][i] - text[other][i]:+.1f}" for i in places)
    return f"{mode} {name} − {other} at 20, 50, 100: {gaps} points"


def _side(text: Mapping[str, Sequence[float]], names: Sequence[str], mode: str) -> str:
    """Published R@50 and R@100 of several models."""
    places = [i for i, (each, k) in enumerate(COLUMNS) if each == mode and k != KS[0]]
    return f"{mode} R@50 and R@100: " + ", ".join(
        f"{name} {' and '.join(f'{text[name][i]:.1f}' for i in places)}" for name in names
    )


def _ours(title: str, runs: Compared, part: str, limits: Sequence[Mapping[str, float]] = ()) -> Table:
    rows: list[list[Any]] = [
        [name, *(Interval.of(runs.figure(name, f"{part}_{mode}_{k}")) for mode, k in COLUMNS)] for name in runs.found
    ]
    note = "Means over seeds with 95% intervals; verdicts rest on differences paired by seed."
    if limits:
        rows.append(["best possible", *(Interval.of([each[f"{mode}_{k}"] for each in limits]) for mode, k in COLUMNS)])
        note += " The last row ranks by the true probabilities, on other images of the same worlds."
    return Table(f"{title} (%)", _HEADINGS, rows, percent=True, note=note)


def _theirs(text: Mapping[str, Sequence[float]], part: str) -> Table:
    rows = [[name, *(value / 100 for value in values)] for name, values in text.items()]
    return Table(f"Recall of {part} images of Visual Genome, in the text (%)", _HEADINGS, rows, percent=True)


def _setup(settings: Mapping[str, Any]) -> str:
    data, fit, count = settings["data"], settings["fit"], len(settings["seeds"])
    model = (
        f"The model sees classes and boxes of a pair but no pixels: embeddings, geometry, one hidden layer of "
        f"{fit['width']}, and a table by classes that starts from log-frequencies. {fit['optimizer']}, {fit['epochs']} "
        f"epochs of {fit['batch_size']} images a step; {count} seeds; learning rate chosen on validation images by the "
        "mean of all six recalls, which also chooses the epoch."
    )
    if "world" not in data:
        return f"Visual Genome, objects and boxes given (PredCls). {model}"
    world = data["world"]
    low, high = world["objects_per_image"]
    return (
        f"A synthetic world for each seed: {data['images']} images of {low} to {high} objects, {world['num_objects']} "
        f"classes, {world['num_predicates']} predicates, {world['relations_per_pair']} relations per pair on average "
        f"and often several; written in the layout of Visual Genome and read back. No relation is wrong or missing, "
        f"unlike in the data of the text. {model}"
    )


def _tried(runs: Compared, settings: Mapping[str, Any]) -> list[str]:
    seeds = len(settings["tuning_seeds"])
    return [
        f"{name}: chose {_told(choice.options)} out of "
        + "; ".join(f"{_told(options)} → {100 * figure:.1f}%" for options, figure in choice.tried)
        + f" (mean validation recall, {seeds} other seed{'s' * (seeds != 1)})."
        for name, choice in runs.choices.items()
    ]


def _told(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in options.items()) or "no options"


def _values(runs: Compared, parts: Sequence[str]) -> dict[str, Any]:
    figures = [f"{part}_{mode}_{k}" for part in parts for mode, k in COLUMNS]
    return {name: {figure: runs.figure(name, figure) for figure in figures} for name in runs.found}


def _drawn_progress(runs: Compared, mode: str) -> Any:
    """Recall above, its gain over the softmax below, a column for each K; training solid, validation dashed."""
    figure = new_figure(10.0, 6.2)
    axes = figure.subplots(2, len(KS), sharex=True, sharey="row")
    for column, k in enumerate(KS):
        for place, name in enumerate(runs.found):
            for part, dash in (("train", "-"), ("val", "--")):
                _draw_curve(axes[:, column], runs, name, part, COLUMNS.index((mode, k)), place, dash)
        axes[0, column].set_title(f"R@{k}", fontsize=10, color=INK, loc="left")
        axes[1, column].axhline(0, color=candidate_style(0).color, linewidth=1.2)
        axes[1, column].set_xlabel("epoch", color=INK)
        axes[1, column].xaxis.get_major_locator().set_params(integer=True)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#e5e7eb", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=9)
    axes[0, 0].set_ylabel(f"{mode} recall (%)", color=INK)
    axes[1, 0].set_ylabel("gain over softmax (points)", color=INK)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(runs.found), frameon=False)
    return figure


def _draw_curve(axes: Any, runs: Compared, name: str, part: str, at: int, place: int, dash: str) -> None:
    """One figure of one candidate after each epoch: its mean, and its gain with the interval of paired differences."""
    curves, base = (
        [[100 * epoch[at] for epoch in found["curves"][part]] for found in runs.found[each]] for each in (name, BASE)
    )
    x = range(1, len(curves[0]) + 1)
    color, label = candidate_style(place).color, f"{name}, {'training' if part == 'train' else 'validation'}"
    means = [Interval.of(values).mean for values in zip(*curves, strict=True)]
    axes[0].plot(x, means, dash, color=color, linewidth=1.8, label=label)
    if name == BASE:
        return
    gains = [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(curves, base, strict=True)]
    found = [Interval.of(values) for values in zip(*gains, strict=True)]
    axes[1].plot(x, [each.mean for each in found], dash, color=color, linewidth=1.8)
    edges = ([each.mean + sign * each.half_width for each in found] for sign in (-1, 1))
    axes[1].fill_between(x, *edges, color=color, alpha=0.14, linewidth=0)

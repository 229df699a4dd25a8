"""Scene graphs: a softmax per pair against losses over all relations of an image (LML, tables 1-2, figures 5-6)."""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from experiments.candidates import Compared, compared, count_trials
from experiments.data import open_data
from experiments.presentation import DPI, differences, mean, tried_words
from experiments.scene_graph_model import KS, MODES, GraphFit, Scenes, epochs, recalls, write_visual_genome
from shortlist.data import Dataset, SceneGraphWorld, read_visual_genome
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, at_least, beats
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import new_figure, save_figure, style_axis
from shortlist.train.comparison import Interval

COLUMNS = tuple((mode, k) for mode in MODES for k in KS)
BASE, LML, TRUNCATED = "softmax", "LML-20", "Ent-20"
WORTH = 0.005  # Half a point: the paper calls 0.8 points an improvement.
WITHIN = 0.01  # One point: the paper calls models competitive that differ by less.
TRAINING_GAIN = 0.05  # The paper reads "5-10%" from its figures.
_RATES = (
    "Learning rates are chosen on validation images; where they differ, part of the gain on training images may come "
    "from the rate."
)
_HEADINGS = ("trained with", *(f"{mode} R@{k}" for mode, k in COLUMNS))


def open_graphs(described: Mapping[str, Any], root: Path, *, seed: int) -> Dataset:
    """Open scene graphs from files, or sample them from a synthetic world, write them as files and read these.

    Args:
        described: as in `experiments.data.open_data`; or ``world``, options of `SceneGraphWorld`, ``images``, their
            number, ``test``, the fraction for testing, and ``reader``, options of `read_visual_genome`.
        root: where the data are.
        seed: of the world and its samples.
    """
    if "world" not in described:
        return open_data(described, root, seed=seed)
    return _sampled(json.dumps(dict(described), sort_keys=True), seed)


@cache
def _sampled(key: str, seed: int) -> Dataset:
    described = json.loads(key)
    split = (1 - described["test"], 0.0, described["test"])
    graphs = SceneGraphWorld(**described["world"], seed=seed).sample(described["images"], seed=seed, split=split)
    with tempfile.TemporaryDirectory() as folder:
        return read_visual_genome(write_visual_genome(graphs, Path(folder)), **described["reader"])


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train one model and keep the epoch with the best mean of all validation recalls.

    Returns:
        ``chosen_by``, that mean; ``val_MODE_K`` and ``train_MODE_K`` at that epoch; ``last_val_MODE_K`` and
        ``last_train_MODE_K``; ``curves`` with all epochs; ``test_MODE_K`` if ``part`` is ``test``.
    """
    dataset = open_graphs(settings["data"], root, seed=settings["seed"])
    fit = GraphFit(**settings["fit"])
    best, found, curves = -math.inf, {}, {"train": [], "val": []}
    model = kept = None
    for at, (model, train, val) in enumerate(epochs(dataset, fit, seed=settings["seed"]), start=1):
        now = {"train": train, "val": val}
        for part, values in now.items():
            curves[part].append([round(values[f"{mode}_{k}"], 5) for mode, k in COLUMNS])
        score = sum(val.values()) / len(val)
        if kept is None or score > best:
            best, kept = score, copy.deepcopy(model)
            found = {"chosen_by": score, "epoch": at, **_named(now, "")}
        found |= _named(now, "last_")
    if settings["part"] == "test" and kept is not None:
        found |= _named({"test": recalls(kept, Scenes(dataset, "test"), fit)}, "")
    return {**found, "curves": curves}


def _named(parts: Mapping[str, Mapping[str, float]], prefix: str) -> dict[str, float]:
    return {f"{prefix}{part}_{name}": value for part, values in parts.items() for name, value in values.items()}


def best_ranking(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """The recalls of the true probabilities, which no model can exceed except by luck."""
    world = SceneGraphWorld(**settings["data"]["world"], seed=settings["seed"])
    images = settings["images"]
    values = {mode: world.bayes_recall(KS, constrained=mode == MODES[0], num_images=images).value for mode in MODES}
    return {f"{mode}_{k}": value for mode in MODES for k, value in zip(KS, values[mode].tolist(), strict=True)}


def best_validation(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Validation recalls at the best epoch, for joint losses of k = 20, 50 and 100 relations."""
    lab.plan(count_trials(settings))
    runs = compared(lab, trial, settings, figure="chosen_by")
    paper = published["recall"]
    claims = [
        Claim(
            f"On validation images, LML with k = 20 has a higher {mode} recall than a softmax per pair.",
            _gaps(paper, LML, BASE, mode),
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
            "LML trained with k = 20 has no lower R@50 and R@100 than LML trained with these k.",
            _side(paper, names, "unconstrained"),
            all_of(trained_for),
        )
    )
    claims.append(
        Claim(
            "The truncated entropy with k = 20 has higher validation recalls than the softmax, in both modes.",
            f"{_gaps(paper, TRUNCATED, BASE, MODES[0])}; {_gaps(paper, TRUNCATED, BASE, MODES[1])}",
            all_of([_ahead(runs, TRUNCATED, BASE, "val", mode) for mode in MODES]),
        )
    )
    tables = [_ours("Validation recall at the best epoch, ours", runs, "val"), _published_table(paper, "validation")]
    return Outcome(_setup(settings), claims, tables, tried=tried_words(runs.choices), values=_values(runs, ("val",)))


def on_test_images(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Test recalls at the epoch chosen on validation images."""
    world = "world" in settings["data"]
    lab.plan(count_trials(settings) + world * len(settings["seeds"]))
    runs = compared(lab, trial, settings, figure="chosen_by")
    limits: list[dict[str, Any]] = []
    if world:
        asked = [{"data": settings["data"], "seed": seed, "images": 300} for seed in settings["seeds"]]
        limits = lab.trials(best_ranking, asked)
    paper = published["recall"]
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
            _gaps(paper, LML, BASE, "constrained"),
            all_of(improved),
        ),
        Claim(
            "On test images, LML has a slightly lower unconstrained recall than the softmax.",
            _gaps(paper, LML, BASE, "unconstrained"),
            _ahead(runs, BASE, LML, "test", "unconstrained"),
        ),
        Claim(
            "On test images, LML has a higher unconstrained recall than the truncated entropy.",
            _gaps(paper, LML, TRUNCATED, "unconstrained"),
            _ahead(runs, LML, TRUNCATED, "test", "unconstrained"),
        ),
    ]
    tables = [_ours("Test recall, ours", runs, "test", limits), _published_table(paper, "test")]
    values = _values(runs, ("test", "val", "train"))
    return Outcome(_setup(settings), claims, tables, tried=tried_words(runs.choices), values=values)


def progress(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Training and validation recalls after each epoch, in the ``mode`` of the settings."""
    mode = settings["mode"]
    lab.plan(count_trials(settings))
    runs = compared(lab, trial, settings, figure="chosen_by")
    claims = _gain_claims(runs, mode, published["gain"])
    file = f"{mode}.png"
    save_figure(_drawn_progress(runs, mode), lab.figures / file, dpi=DPI)
    caption = (
        f"{mode.capitalize()} recall after each epoch: means over seeds above; below, gains over the softmax with 95% "
        "intervals, paired by seed. Solid: training images; dashed: validation images."
    )
    table = _ours("Training recall after the last epoch, ours", runs, "last_train")
    return Outcome(
        _setup(settings),
        claims,
        [table, _ours("Validation recall after the last epoch, ours", runs, "last_val")],
        [Figure(file, caption)],
        [*tried_words(runs.choices), _RATES],
        _values(runs, ("last_train", "last_val")),
    )


def _gain_claims(runs: Compared, mode: str, words: Mapping[str, str]) -> list[Claim]:
    """Gains of the joint losses over the softmax after the last epoch, on training and validation images."""
    methods = {LML: "LML", TRUNCATED: "the truncated entropy"}
    figures = {part: [f"last_{part}_{mode}_{k}" for k in KS] for part in ("train", "val")}
    claims = [
        Claim(
            f"After the same number of epochs, {method} has a higher {mode} training recall than the softmax.",
            words["train"],
            _ahead(runs, name, BASE, "last_train", mode),
        )
        for name, method in methods.items()
    ]
    reached = [
        at_least(_gain(runs, name, figure), TRAINING_GAIN, name=f"R@{k}: {name} − {BASE}", unit="points")
        for name in methods
        for k, figure in zip(KS, figures["train"], strict=True)
    ]
    text = f"Both gain at least 5 points in {mode} training recall."
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
        text = f"In {mode} recall, {method} gains more on training than on validation images."
        claims.append(Claim(text, words["val"], all_of(less)))
    return claims


def no_worse(ours: Sequence[float], other: Sequence[float], what: str, names: tuple[str, str]) -> Finding:
    """Whether the first is at most `WITHIN` below the second, paired by seed."""
    return at_least(differences(ours, other), -WITHIN, name=f"{what}: {names[0]} − {names[1]}", unit="points")


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
    return differences(runs.figure(name, figure), runs.figure(BASE, figure))


def _gaps(paper: Mapping[str, Sequence[float]], name: str, other: str, mode: str) -> str:
    """Published differences in points."""
    columns = [i for i, (each, _) in enumerate(COLUMNS) if each == mode]
    gaps = ", ".join(f"{paper[name][i] - paper[other][i]:+.1f}" for i in columns)
    return f"{mode} {name} − {other} at 20, 50, 100: {gaps} points"


def _side(paper: Mapping[str, Sequence[float]], names: Sequence[str], mode: str) -> str:
    """Published R@50 and R@100 of several models."""
    columns = [i for i, (each, k) in enumerate(COLUMNS) if each == mode and k != KS[0]]
    return f"{mode} R@50 and R@100: " + ", ".join(
        f"{name} {' and '.join(f'{paper[name][i]:.1f}' for i in columns)}" for name in names
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


def _published_table(paper: Mapping[str, Sequence[float]], part: str) -> Table:
    rows = [[name, *(value / 100 for value in values)] for name, values in paper.items()]
    return Table(f"{part.capitalize()} recall on Visual Genome, published (%)", _HEADINGS, rows, percent=True)


def _setup(settings: Mapping[str, Any]) -> str:
    data, fit, count = settings["data"], settings["fit"], len(settings["seeds"])
    model = (
        f"The model sees the classes and boxes of a pair but no pixels: embeddings, geometry, a hidden layer of "
        f"{fit['width']} units, and a table by classes that starts at log-frequencies. {fit['epochs']} epochs of "
        f"{fit['optimizer']}, batches of {fit['batch_size']} images; {count} seeds. The mean of all six validation "
        "recalls chooses the learning rate and the epoch."
    )
    if "world" not in data:
        return f"Visual Genome, objects and boxes given (PredCls). {model}"
    world = data["world"]
    low, high = world["objects_per_image"]
    return (
        f"A synthetic world per seed: {data['images']} images of {low} to {high} objects, {world['num_objects']} "
        f"classes, {world['num_predicates']} predicates, {world['relations_per_pair']} relations per pair on average, "
        f"often several; written in the format of Visual Genome and read from it. Unlike in the paper's data, no "
        f"relation is wrong or missing. {model}"
    )


def _values(runs: Compared, parts: Sequence[str]) -> dict[str, Any]:
    figures = [f"{part}_{mode}_{k}" for part in parts for mode, k in COLUMNS]
    return {name: {figure: runs.figure(name, figure) for figure in figures} for name in runs.found}


def _drawn_progress(runs: Compared, mode: str) -> Any:
    """Recall above, its gain over the softmax below, a column per K; training solid, validation dashed."""
    figure = new_figure(10.0, 6.2)
    axes = figure.subplots(2, len(KS), sharex=True, sharey="row")
    for column, k in enumerate(KS):
        for index, name in enumerate(runs.found):
            for part, dash in (("train", "-"), ("val", "--")):
                _draw_curve(axes[:, column], runs, name, part, COLUMNS.index((mode, k)), index, dash)
        axes[0, column].set_title(f"R@{k}", fontsize=10, color=INK, loc="left")
        axes[1, column].axhline(0, color=candidate_style(0).color, linewidth=1.2)
        axes[1, column].set_xlabel("epoch", color=INK)
        axes[1, column].xaxis.get_major_locator().set_params(integer=True)
    for axis in axes.flat:
        style_axis(axis)
    axes[0, 0].set_ylabel(f"{mode} recall (%)", color=INK)
    axes[1, 0].set_ylabel("gain over softmax (points)", color=INK)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(runs.found), frameon=False)
    return figure


def _draw_curve(axes: Any, runs: Compared, name: str, part: str, at: int, index: int, dash: str) -> None:
    """One recall of one candidate by epoch: its mean, and its gain with the interval of paired differences."""
    curves, base = (
        [[100 * epoch[at] for epoch in found["curves"][part]] for found in runs.found[each]] for each in (name, BASE)
    )
    x = range(1, len(curves[0]) + 1)
    color, label = candidate_style(index).color, f"{name}, {'training' if part == 'train' else 'validation'}"
    means = [mean(values) for values in zip(*curves, strict=True)]
    axes[0].plot(x, means, dash, color=color, linewidth=1.8, label=label)
    if name == BASE:
        return
    gains = [differences(*pair) for pair in zip(curves, base, strict=True)]
    found = [Interval.of(values) for values in zip(*gains, strict=True)]
    axes[1].plot(x, [each.mean for each in found], dash, color=color, linewidth=1.8)
    edges = ([each.mean + sign * each.half_width for each in found] for sign in (-1, 1))
    axes[1].fill_between(x, *edges, color=color, alpha=0.14, linewidth=0)

"""Losses compared under two recipes, the paper's and one tuned for each loss: trial, runs, verdicts of the claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.candidates import Run, grid_points, merged, trained
from experiments.long_tail import tailed
from experiments.presentation import differences, interval_line, limits_around, saved, tried_words
from shortlist.data import Dataset, label_noise
from shortlist.data.draws import Draws
from shortlist.evidence import (
    Choice,
    Claim,
    Figure,
    Finding,
    Lab,
    Outcome,
    Table,
    alike,
    all_of,
    at_most,
    beats,
    grows,
    tuned,
)
from shortlist.evidence.verdicts import OPEN
from shortlist.factory import loss_class
from shortlist.functional import average_precision, f1_at_k, topk_accuracy
from shortlist.report.chart import Axis, Chart, candidate_style
from shortlist.targets import to_class_indices
from shortlist.train.comparison import Interval
from shortlist.train.comparison.findings import Shots
from shortlist.train.evaluation import evaluate_scores
from shortlist.train.inputs import is_one_class

RECIPES = {"paper": "the paper's recipe", "tuned": "tuned per loss"}
FIGURES = {
    "top1": "Top-1 accuracy",
    "topk": "Top-k accuracy",
    "average": "Average-k accuracy",
    "few": "Average-k accuracy of few-shot classes",
    "many": "Average-k accuracy of many-shot classes",
    "tail": "Average-k accuracy, classes weighted by their training rows",
    "single": "Sets of one label",
    "few_size": "Mean size of the sets of few-shot classes",
    "many_size": "Mean size of the sets of many-shot classes",
    "learned": "Training rows whose label, right or wrong, is ranked first",
    "memorized": "Training rows with a wrong label that is ranked first",
    "by_class": "mAP by class",
    "by_sample": "mAP by sample",
    "f1": "F1@k",
}
"""What trials measure. All are fractions but the mean sizes."""
_IN_LABELS = ("few_size", "many_size")


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train one model and measure a part with its true labels.

    Args:
        settings: those of `experiments.candidates.trained`; ``part``; ``rows``, how many training rows to keep, 0 for
            all; ``noise``, the probability that a training label is resampled within its superclass; ``tail`` as in
            `experiments.long_tail.tailed`.
        root: where the data are.

    Returns:
        `FIGURES`: for one class per row all but the last three, for sets the last three. Sets of k labels on average
        have the threshold of the validation rows and the score that the loss states.
    """
    run = trained(settings, root, change=lambda dataset: _changed(dataset, settings))
    rows, logits = run.dataset.part(settings["part"]), run.logits(settings["part"])
    if not is_one_class(run.dataset):
        labels, k = rows.true_targets, max(1, round(settings["fit"]["k"]))
        found = {f"by_{by}": float(average_precision(logits, labels, by=by)) for by in ("class", "sample")}
        return {**found, "f1": float(f1_at_k(logits, labels, k))}
    counts, k = run.dataset.label_counts("train"), settings["fit"]["k"]
    link = loss_class(run.fitted.plan.loss).link
    found = evaluate_scores(run.logits("val"), logits, rows, k=k, link=link)
    classes = to_class_indices(rows.true_targets, len(counts))
    return {
        "top1": float(topk_accuracy(logits, classes, 1)),
        "topk": float(topk_accuracy(logits, classes, max(1, round(k)))),
        **_of_sets(found.rule(logits), classes, counts),
        **_memory(run),
    }


def _changed(dataset: Dataset, settings: Mapping[str, Any]) -> Dataset:
    seed = int(settings["seed"])
    dataset = tailed(dataset, settings.get("tail"), seed=seed)
    train, rows = dataset.part_rows("train"), int(settings.get("rows", 0))
    if 0 < rows < len(train):
        removed = torch.zeros(len(dataset), dtype=torch.bool)
        removed[train[torch.from_numpy(Draws(seed, "fewer rows").order(len(train))[rows:].copy())]] = True
        dataset = dataset.subset((~removed).nonzero().flatten())
    rate = float(settings.get("noise", 0.0))
    return label_noise(dataset, rate, seed=seed) if rate else dataset


def _of_sets(sets: Tensor, classes: Tensor, counts: Tensor) -> dict[str, float | None]:
    """Accuracy and sizes of the sets ``(N, n)`` for the true ``classes``; by shot, None without such a class."""
    n, sizes = len(counts), sets.sum(-1)
    hit, total = sets.gather(-1, classes[:, None])[:, 0].double(), torch.bincount(classes, minlength=n)
    of_class = torch.bincount(classes, hit, minlength=n) / total.clamp(min=1)
    shots, occurs = Shots.of_counts(counts), total > 0
    found: dict[str, float | None] = {"average": float(hit.mean()), "single": float((sizes == 1).double().mean())}
    weight = counts * occurs
    found["tail"] = float((of_class * weight).sum() / weight.sum())
    for name in ("few", "many"):
        mine = (shots.of_label == shots.names.index(name)) & occurs
        rows = mine[classes]
        found[name] = float(of_class[mine].mean()) if mine.any() else None
        found[f"{name}_size"] = float(sizes[rows].double().mean()) if rows.any() else None
    return found


def _memory(run: Run) -> dict[str, float | None]:
    """How much of the training labels the model knows by heart."""
    train, n = run.dataset.part("train"), run.dataset.num_labels
    given, true = (to_class_indices(each, n) for each in (train.targets, train.true_targets))
    first, wrong = run.logits("train").argmax(-1) == given, given != true
    return {
        "learned": float(first.double().mean()),
        "memorized": float(first[wrong].double().mean()) if wrong.any() else None,
    }


class Runs(NamedTuple):
    """The runs of one recipe, by condition and candidate: choices, and the results of every seed."""

    choices: dict[tuple[str, str], Choice]
    found: dict[tuple[str, str], list[dict[str, Any]]]

    def figure(self, condition: str, candidate: str, name: str) -> list[float] | None:
        """One figure per seed; None if some seed lacks it."""
        values = [each[name] for each in self.found[condition, candidate] if each.get(name) is not None]
        return values if len(values) == len(self.found[condition, candidate]) else None


def run_recipe(lab: Lab, settings: Mapping[str, Any], recipe: str) -> Runs:
    """Run all candidates under all conditions; options of the recipe ``tuned`` are chosen for each condition.

    Args:
        lab: runs the trials.
        settings: ``trial``, settings of every trial; ``conditions`` by name, with settings and ``fit`` options;
            ``fit``; ``factory`` by name, each with ``fit`` and, if tuned, a ``grid``; ``candidates`` by name, each with
            ``fit``, ``paper`` (options of the paper), ``grid`` (over that of the recipe) and ``at`` (options by
            condition); ``figure``, the score that decides on validation rows; ``seeds`` and ``tuning_seeds``.
        recipe: one of `RECIPES`.
    """
    candidates, described = settings["candidates"], settings["recipes"][recipe]
    choices: dict[tuple[str, str], Choice] = {}

    def asked(condition: str, name: str, options: Mapping[str, Any], seed: int, part: str) -> dict[str, Any]:
        chosen = dict(settings["conditions"][condition] or {})
        fits = (settings["fit"], described.get("fit", {}), chosen.pop("fit", {}), candidates[name].get("fit", {}))
        own = merged(
            candidates[name].get("paper", {}) if recipe == "paper" else {},
            candidates[name].get("at", {}).get(condition, {}),
        )
        return {**settings["trial"], **chosen, "fit": merged(*fits, own, options), "seed": seed, "part": part}

    for condition in settings["conditions"]:
        grids = {
            name: grid_points({**described["grid"], **each.get("grid", {})}) if recipe == "tuned" else [{}]
            for name, each in candidates.items()
        }
        found = tuned(
            lab,
            trial,
            grids,
            lambda name, options, seed, condition=condition: asked(condition, name, options, seed, "val"),
            figure=settings["figure"],
            seeds=settings["tuning_seeds"],
        )
        choices |= {(condition, name): choice for name, choice in found.items()}
    order = [(condition, name, seed) for condition, name in choices for seed in settings["seeds"]]
    results = lab.trials(trial, [asked(c, name, choices[c, name].options, seed, "test") for c, name, seed in order])
    values: dict[tuple[str, str], list[dict[str, Any]]] = {key: [] for key in choices}
    for (condition, name, _), each in zip(order, results, strict=True):
        values[condition, name].append(each)
    return Runs(choices, values)


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Run every recipe and decide the claims under each.

    Args:
        settings: those of `run_recipe`; ``claims``, see `decided`; ``tables``, the figures to show.
        published: ``about`` and ``values``, by candidate one number per condition, in percent.
        lab: runs the trials.
    """
    lab.plan(_count(settings))
    runs = {recipe: run_recipe(lab, settings, recipe) for recipe in settings["recipes"]}
    claims = [
        Claim(
            claim["text"],
            claim["published"],
            decided(claim, runs["tuned"], settings) if "tuned" in runs else None,
            paper=decided(claim, runs["paper"], settings) if "paper" in runs else None,
            ours=bool(claim.get("ours")),
        )
        for claim in settings["claims"]
    ]
    shown = settings.get("tables", [settings["figure"]])
    tables = [_table(name, recipe, runs[recipe], settings) for name in shown for recipe in runs]
    tables += [_published_table(published, settings)] if published else []
    return Outcome(
        _setup(settings),
        claims,
        tables,
        [_chart(recipe, each, settings, lab) for recipe, each in runs.items()],
        [sentence for condition in settings["conditions"] for sentence in _tried(condition, runs)],
        {recipe: {f"{c}, {name}": each for (c, name), each in found.found.items()} for recipe, found in runs.items()},
    )


def decided(claim: Mapping[str, Any], runs: Runs, settings: Mapping[str, Any]) -> Finding:
    """The verdict of a declared claim, condition by condition.

    Args:
        claim: one of ``better`` with ``than`` (a candidate or a list each); ``alike``, pairs; ``grows`` with ``over``,
            candidates whose lead grows with the numbers of ``along``, one per condition; ``fails`` with ``of``,
            candidates below the fraction ``below`` of another; ``spread``, candidates that are all within ``within``;
            ``more`` with ``less``, two figures of one candidate.
            Also ``figure``, ``at`` (names of conditions), ``worth`` and ``within``.
        runs: of one recipe.
        settings: with the defaults of ``figure``, ``worth`` and ``within``.
    """
    name = claim.get("figure", claim.get("more", settings["figure"]))
    conditions = claim.get("at", list(settings["conditions"]))
    limits = {key: claim.get(key, settings.get(key, default)) for key, default in (("worth", 0.002), ("within", 0.01))}
    unit = "labels" if name in _IN_LABELS else "points"
    try:
        if "grows" in claim:
            along = dict(zip(settings["conditions"], claim["along"], strict=True))
            return all_of(
                _growths(claim, {along[each]: each for each in conditions}, runs, name, limits["worth"], unit)
            )
        found = [(each, finding) for each in conditions for finding in _at(claim, each, runs, name, limits, unit)]
    except _MissingError as error:
        return Finding(OPEN, str(error))
    if len(settings["conditions"]) == 1:
        return all_of([finding for _, finding in found])
    return all_of([Finding(finding.verdict, f"{condition}: {finding.why}") for condition, finding in found])


class _MissingError(Exception):
    """Some seed lacks a figure."""


def _values(runs: Runs, condition: str, candidate: str, name: str) -> list[float]:
    found = runs.figure(condition, candidate, name)
    if found is None:
        raise _MissingError(f"{condition}: some seed has no rows for {FIGURES[name].lower()}")
    return found


def _growths(
    claim: Mapping[str, Any], conditions: Mapping[float, str], runs: Runs, name: str, worth: float, unit: str
) -> list[Finding]:
    """Whether the leads of candidates over another one grow."""
    base, found = claim["over"], []
    for who in _listed(claim["grows"]):
        gaps = {
            place: differences(_values(runs, condition, who, name), _values(runs, condition, base, name))
            for place, condition in conditions.items()
        }
        found.append(grows(gaps, name=f"{who} − {base}", along=claim["axis"], worth=worth, unit=unit))
    return found


def _at(
    claim: Mapping[str, Any], condition: str, runs: Runs, name: str, limits: Mapping[str, float], unit: str
) -> Iterator[Finding]:
    """The verdicts of a claim in one condition."""

    def values(who: str, figure: str = name) -> list[float]:
        return _values(runs, condition, who, figure)

    worth, within = limits["worth"], limits["within"]
    if "better" in claim:
        for one in _listed(claim["better"]):
            for other in _listed(claim["than"]):
                yield beats(values(one), values(other), names=(one, other), worth=worth, unit=unit)
    elif "alike" in claim:
        for one, other in claim["alike"]:
            yield alike(values(one), values(other), names=(one, other), within=within, unit=unit)
    elif "fails" in claim:
        bound = [claim["below"] * value for value in values(claim["of"])]
        for who in _listed(claim["fails"]):
            yield beats(bound, values(who), names=(f"{claim['below']:g} × {claim['of']}", who), unit=unit)
    elif "more" in claim:
        more, less = claim["more"], claim["less"]
        names = (FIGURES[more].lower(), FIGURES[less].lower())
        yield beats(values(claim["of"], more), values(claim["of"], less), names=names, worth=worth, unit=unit)
    else:
        by_seed = zip(*(values(who) for who in claim["spread"]), strict=True)
        yield at_most([max(each) - min(each) for each in by_seed], within, name="largest difference", unit=unit)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _count(settings: Mapping[str, Any]) -> int:
    """How many trials a study runs."""
    conditions, candidates, final = len(settings["conditions"]), settings["candidates"], len(settings["seeds"])
    total = conditions * len(candidates) * final * len(settings["recipes"])
    if "tuned" in settings["recipes"]:
        shared = settings["recipes"]["tuned"]["grid"]
        points = sum(len(grid_points({**shared, **each.get("grid", {})})) for each in candidates.values())
        total += conditions * points * len(settings["tuning_seeds"])
    return total


def _setup(settings: Mapping[str, Any]) -> str:
    words = f"{settings['about']} Options of all runs: {_option_words(settings['fit'])}."
    for name, each in settings["recipes"].items():
        grid = {key: ", ".join(map(str, tried)) for key, tried in each.get("grid", {}).items()}
        own = {**each.get("fit", {}), **grid}
        words += f" {RECIPES[name].capitalize()}: {_option_words(own) or 'as above'}."
    if "tuned" in settings["recipes"]:
        figure = FIGURES[settings["figure"]]
        words += f" All grids have the same size. {figure} on validation rows decides, for each condition."
    return f"{words} {len(settings['seeds'])} seeds."


def _option_words(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key.replace('_', ' ')} {f'({_option_words(value)})' if isinstance(value, Mapping) else value}"
        for key, value in options.items()
    )


def _table(name: str, recipe: str, runs: Runs, settings: Mapping[str, Any]) -> Table:
    conditions, in_labels = list(settings["conditions"]), name in _IN_LABELS

    def cell(condition: str, candidate: str) -> Interval | None:
        values = runs.figure(condition, candidate, name)
        return None if values is None else Interval.of(values)

    rows = [[who, *(cell(condition, who) for condition in conditions)] for who in settings["candidates"]]
    title = f"{FIGURES[name]}, {RECIPES[recipe]}, in {'labels' if in_labels else 'percent'}"
    return Table(title, ["loss", *conditions], rows, percent=not in_labels, digits=2)


def _published_table(published: Mapping[str, Any], settings: Mapping[str, Any]) -> Table:
    rows = [[name, *(f"{value:g}" for value in values)] for name, values in published["values"].items()]
    columns = [str(each) for each in published.get("columns", settings["conditions"])]
    return Table(f"Published: {published['about']}", ["loss", *columns], rows)


def _chart(recipe: str, runs: Runs, settings: Mapping[str, Any], lab: Lab) -> Figure:
    """The deciding figure of every candidate, by condition; by candidate if there is one condition."""
    conditions, candidates, name = list(settings["conditions"]), list(settings["candidates"]), settings["figure"]
    by_candidate = len(conditions) == 1
    places = tuple(candidates if by_candidate else conditions)
    lines = (
        {name: [(conditions[0], who) for who in candidates]}
        if by_candidate
        else {who: [(condition, who) for condition in conditions] for who in candidates}
    )
    series = [
        each
        for index, (line, keys) in enumerate(lines.items())
        for each in interval_line(
            line,
            [float(at) for at in range(len(keys))],
            [runs.figure(*key, name) or [] for key in keys],
            candidate_style(index),
        )
    ]
    title = f"{FIGURES[name]}, {RECIPES[recipe]}"
    chart = Chart(
        title,
        Axis("", scale="names", names=places),
        Axis(FIGURES[name], percent=True, limits=limits_around(series)),
        tuple(series),
    )
    return saved(chart, lab, f"{recipe}.png", f"{title}; bands are 95% intervals over seeds.")


def _tried(condition: str, runs: Mapping[str, Runs]) -> list[str]:
    if "tuned" not in runs:
        return []
    choices = {name: choice for (each, name), choice in runs["tuned"].choices.items() if each == condition}
    return tried_words(choices, f"{condition}, ")

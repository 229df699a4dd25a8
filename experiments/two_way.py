"""The two-way loss against other losses for label sets: mean average precision (two-way, tables B and C)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.candidates import Compared, compared, count_trials, grid_points, trained
from experiments.presentation import file_name, fit_words, mean, saved, tried_words
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of, beats
from shortlist.functional import average_precision
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.train.comparison import Interval

FIGURES = {"by_class": "mAP by class", "by_sample": "mAP by sample"}


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train once; mean average precision of a part by class and by sample, without unknown labels."""
    run = trained(settings, root)
    logits, labels = run.logits(settings["part"]), run.dataset.part(settings["part"]).true_targets
    return {
        "by_class": float(average_precision(logits, labels)),
        "by_sample": float(average_precision(logits, labels, by="sample")),
        "best_epoch": run.fitted.best_epoch,
    }


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Compare the candidates on every dataset.

    Args:
        settings: those of `experiments.candidates.compared`, with ``datasets`` (by name, each with ``data`` and its own
            ``fit`` options) instead of ``data``; ``worth`` and ``within``, the smallest difference worth having and the
            largest between similar values; ``claims``, see `decided`.
        published: ``where``, the data and network of the paper; ``figures``, by candidate, both values in percent.
        lab: runs the trials.
    """
    datasets = settings["datasets"]
    lab.plan(count_trials(settings, conditions=len(datasets)))
    found = {name: on_dataset(lab, settings, described) for name, described in datasets.items()}
    claims = [
        Claim(claim["text"], published_figures(claim, published), decided(claim, found, settings))
        for claim in settings["claims"]
    ]
    return Outcome(
        _setup(settings),
        claims,
        [_table(name, each, published) for name, each in found.items()],
        [_chart(figure, found, lab) for figure in FIGURES],
        [sentence for name, each in found.items() for sentence in tried_words(each.choices, f"{name}, ")],
        {name: dict(each.found) for name, each in found.items()},
    )


def on_dataset(lab: Lab, settings: Mapping[str, Any], described: Mapping[str, Any]) -> Compared:
    """Compare the candidates on one dataset; options are chosen by mAP by class."""
    fit = {**settings["fit"], **described.get("fit", {})}
    return compared(lab, trial, {**settings, "data": described["data"], "fit": fit}, figure="by_class")


def decided(claim: Mapping[str, Any], found: Mapping[str, Compared], settings: Mapping[str, Any]) -> Finding:
    """A claim about two or more candidates, which must hold on every dataset.

    Args:
        claim: ``better`` and ``than``, a candidate and a list of others; or ``alike`` with a pair. ``figure`` defaults
            to ``by_class``.
        found: by dataset.
        settings: with ``worth`` and ``within``.
    """
    figure, parts = claim.get("figure", "by_class"), []
    for name, each in found.items():
        if "alike" in claim:
            pairs, decide, limit = [tuple(claim["alike"])], alike, {"within": settings["within"]}
        else:
            pairs, decide, limit = (
                [(claim["better"], other) for other in claim["than"]],
                beats,
                {"worth": settings["worth"]},
            )
        for one, other in pairs:
            part = decide(each.figure(one, figure), each.figure(other, figure), names=(one, other), **limit)
            parts.append(Finding(part.verdict, f"{name}: {part.why} ({part.verdict})"))
    return all_of(parts)


def published_figures(claim: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """The numbers of the paper for the candidates of a claim, in words."""
    figure = claim.get("figure", "by_class")
    names = claim.get("alike") or [claim["better"], *claim["than"]]
    figures = published["figures"]
    known = [f"{name} {figures[name][figure]:g}" for name in names if name in figures]
    lacking = [name for name in names if name not in figures]
    words = f"{FIGURES[figure]} on {published['where']}: {', '.join(known)}" if known else ""
    if lacking:
        words += f"{'; ' if words else ''}not published:  {', '.join(lacking)}"
    return words


def _setup(settings: Mapping[str, Any]) -> str:
    points = max(len(grid_points(each.get("grid", {}))) for each in settings["candidates"].values())
    return (
        f"Data: {', '.join(settings['datasets'])}. {fit_words(settings)} All losses share the network; the epoch is "
        "chosen by recall on validation rows. Learning rate and loss parameters are chosen from "
        f"{points} points for every loss by mAP by class on validation rows split off from the training part (seeds "
        f"{settings['tuning_seeds']}). The final seeds have their own splits and are evaluated on the test part."
    )


def _table(name: str, found: Compared, published: Mapping[str, Any]) -> Table:
    rows = []
    for who in found.found:
        paper = published["figures"].get(who, {})
        ours = [Interval.of(found.figure(who, figure)) for figure in FIGURES]
        rows.append([who, *ours, *(paper[figure] / 100 if figure in paper else None for figure in FIGURES)])
    columns = ["loss", *FIGURES.values(), *(f"{title} (paper)" for title in FIGURES.values())]
    note = f"The numbers of the paper are for {published['where']}; only their order can be compared."
    return Table(f"Mean average precision on {name}, in percent", columns, rows, percent=True, digits=2, note=note)


def _chart(figure: str, found: Mapping[str, Compared], lab: Lab) -> Figure:
    """Means by dataset as bars."""
    names, series = tuple(found), []
    candidates = list(next(iter(found.values())).found)
    for index, who in enumerate(candidates):
        means = tuple(mean(found[name].figure(who, figure)) for name in names)
        series.append(Series(who, "bars", tuple(map(float, range(len(names)))), means, candidate_style(index)))
    title = FIGURES[figure]
    chart = Chart(
        f"{title} on test rows, mean over seeds",
        Axis("", scale="names", names=names),
        Axis(title, percent=True),
        tuple(series),
    )
    caption = f"{title} of every loss on every dataset, mean over seeds; the tables have the intervals."
    return saved(chart, lab, file_name(figure), caption)

"""The two-way loss against other losses of sets: mean average precision by class and by sample (002 tables B and C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.candidates import Compared, compared, count_trials, grid_points
from experiments.runs import trained
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of, beats
from shortlist.functional import average_precision
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval

FIGURES = {"by_class": "mAP by class", "by_sample": "mAP by sample"}


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train once; mean average precision by class and by sample of the rows of ``part``, unknown labels left out."""
    run = trained(settings, root)
    logits, labels = run.logits(settings["part"]), run.dataset.part(settings["part"]).true_targets
    return {
        "by_class": float(average_precision(logits, labels)),
        "by_sample": float(average_precision(logits, labels, by="sample")),
        "best_epoch": run.fitted.best_epoch,
    }


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Compare the candidates on every data set.

    Args:
        settings: those of `experiments.candidates.compared` with ``datasets`` (by name, each with ``data`` and what its
            runs have of their own in ``fit``) in the place of ``data``; ``worth`` and ``within``, the least difference
            worth having and the largest between figures that are alike; ``claims``, see `decided`.
        published: ``where``, the data and network of the text; ``figures``, by candidate, both figures in percent.
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
        setup_words(settings),
        claims,
        [_table(name, each, published) for name, each in found.items()],
        [_chart(figure, found, lab) for figure in FIGURES],
        [chosen_words(name, each) for name, each in found.items()],
        {name: dict(each.found) for name, each in found.items()},
    )


def on_dataset(lab: Lab, settings: Mapping[str, Any], described: Mapping[str, Any]) -> Compared:
    """Choose by the figure by class on validation rows of one data set, then train every candidate with all seeds."""
    fit = {**settings["fit"], **described.get("fit", {})}
    return compared(lab, trial, {**settings, "data": described["data"], "fit": fit}, figure="by_class")


def decided(claim: Mapping[str, Any], found: Mapping[str, Compared], settings: Mapping[str, Any]) -> Finding:
    """A claim about two or more candidates, which must be true of every data set.

    Args:
        claim: ``better`` and ``than``, a candidate and a list of others; or ``alike`` with a pair. ``figure`` is
            ``by_class`` unless it says otherwise.
        found: by data set.
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
    """The figures of the text for the candidates of a claim, in words."""
    figure = claim.get("figure", "by_class")
    names = claim.get("alike") or [claim["better"], *claim["than"]]
    figures = published["figures"]
    known = [f"{name} {figures[name][figure]:g}" for name in names if name in figures]
    lacking = [name for name in names if name not in figures]
    words = f"{FIGURES[figure]} on {published['where']}: {', '.join(known)}" if known else ""
    if lacking:
        words += f"{'; ' if words else ''}no figure at hand for {', '.join(lacking)}"
    return words


def setup_words(settings: Mapping[str, Any]) -> str:
    """One paragraph about data, budget and choices."""
    points = max(len(_points(each)) for each in settings["candidates"].values())
    fit = settings["fit"]
    return (
        f"Data: {', '.join(settings['datasets'])}. Network: {fit.get('encoder', 'auto')} "
        f"{dict(fit.get('encoder_options', {}))}, at most {fit['epochs']} epochs of batches of {fit['batch_size']}, "
        "the same for every loss; the epoch is chosen by recall on validation rows. Learning rate and the parameters "
        f"of the loss: {points} points for every loss, chosen by mAP by class on validation rows cut from the training "
        f"part (seeds {settings['tuning_seeds']}). Then {len(settings['seeds'])} other seeds, each with a split of its "
        "own into training and validation rows, measured on the test part."
    )


def chosen_words(name: str, found: Compared) -> str:
    """What was tried for each candidate on one data set, and what was chosen."""
    parts = []
    for who, choice in found.choices.items():
        figures = [value for _, value in choice.tried] or [float("nan")]
        low, high = min(figures), max(figures)
        options = ", ".join(
            f"{key.split('.')[-1]} {value:g}{', at the edge' if key in choice.edges() else ''}"
            for key, value in choice.options.items()
        )
        parts.append(f"{who}: {options} (validation {100 * low:.1f} to {100 * high:.1f})")
    return f"{name}: {len(next(iter(found.choices.values())).tried)} points each; chosen {'; '.join(parts)}."


def _points(candidate: Mapping[str, Any]) -> Sequence[Any]:
    return grid_points(candidate.get("grid", {}))


def _table(name: str, found: Compared, published: Mapping[str, Any]) -> Table:
    rows = []
    for who in found.found:
        text = published["figures"].get(who, {})
        ours = [Interval.of(found.figure(who, figure)) for figure in FIGURES]
        rows.append([who, *ours, *(text[figure] / 100 if figure in text else None for figure in FIGURES)])
    columns = ["loss", *FIGURES.values(), *(f"{title} (text)" for title in FIGURES.values())]
    note = f"The figures of the text are for {published['where']}; only their order can be compared."
    return Table(f"Mean average precision on {name}, percent", columns, rows, percent=True, digits=2, note=note)


def _chart(figure: str, found: Mapping[str, Compared], lab: Lab) -> Figure:
    """Means by data set as bars, with the points of all seeds."""
    names, series = tuple(found), []
    candidates = list(next(iter(found.values())).found)
    for place, who in enumerate(candidates):
        means = tuple(Interval.of(found[name].figure(who, figure)).mean for name in names)
        series.append(Series(who, "bars", tuple(map(float, range(len(names)))), means, candidate_style(place)))
    title = FIGURES[figure]
    chart = Chart(
        f"{title} on test rows, mean over seeds",
        Axis("", scale="names", names=names),
        Axis(title, percent=True),
        tuple(series),
    )
    file = f"{figure.replace('_', '-')}.png"
    save_figure(draw_chart(chart), lab.figures / file, dpi=110)
    return Figure(file, f"{title} of every loss on every data set, mean over seeds; the tables have the intervals.")

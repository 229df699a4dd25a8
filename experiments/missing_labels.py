"""Recall when labels are hidden from training: LML likelihood, BCE, softmax (000 proposition 2, corollary 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from experiments.candidates import Compared, compared, count_trials
from experiments.missing_labels_world import collapse, likelihood_answer
from experiments.runs import trained
from experiments.two_way import chosen_words
from shortlist.data import Dataset, Groups, hide_labels
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, at_least, beats, grows
from shortlist.functional import recall_at_k
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval

Found = Mapping[float, Compared]
"""What was found for each hidden share."""


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train with a share of the present labels hidden; recall at k of the rows of ``part``.

    Validation rows lose labels as training rows do, for they are cut from them; test rows have all of theirs.
    ``positives_only`` in ``fit`` makes every label of a training row that was not observed unknown.
    """
    fit = dict(settings["fit"])
    only = bool(fit.pop("positives_only", False))
    change = partial(hidden, share=settings["share"], seed=settings["seed"], positives_only=only)
    run = trained({**settings, "fit": fit}, root, change=change)
    part, k = run.dataset.part(settings["part"]), int(fit["k"])
    logits = run.logits(settings["part"])
    labels = part.targets if settings["part"] == "val" else part.true_targets
    counts = run.dataset.label_counts("train").double()
    return {
        "recall": float(recall_at_k(logits, labels, k)),
        "frequent": float(recall_at_k(counts.expand(len(part), -1).clone(), labels, k)),
        "chance": k / run.dataset.num_labels,
        "mean_score": float(logits.sigmoid().mean()),
        "above_half": float((logits > 0).double().mean()),
    }


def hidden(dataset: Dataset, *, share: float, seed: int, positives_only: bool) -> Dataset:
    """Hide labels of training and validation rows; with ``positives_only`` no training row has known negatives."""
    parts = dataset.split
    if parts is None:
        raise ValueError("`dataset` must have parts; it has none.")
    names = [parts.names[at] if at >= 0 else "" for at in parts.index.tolist()]
    together = Groups.of(["train" if name == "val" else name for name in names])
    less = replace(hide_labels(replace(dataset, split=together), share, seed=seed), split=parts)
    if not positives_only:
        return less
    targets = less.targets.to_dense().clone()
    rows = less.part_rows("train")
    targets[rows] = torch.where(targets[rows] > 0, 1.0, -1.0)
    return replace(less, targets=targets)


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Compare losses as a growing share of the present labels is hidden, and test the proposition where it can be.

    Args:
        settings: those of `experiments.candidates.compared` with ``datasets`` (by name, each with ``data`` and what its
            runs have of their own in ``fit``); ``shares``; ``positives_only``, a candidate of its own that is trained
            at the one share ``collapse_share``; ``answers`` and ``collapse``, of `experiments.missing_labels_world`;
            ``worth``, the least difference of recall worth having.
        published: ``collapse`` and ``proposition``, what the text says, in a few words.
        lab: runs the trials.
    """
    alone = {**settings, "candidates": {"positives only": settings["positives_only"]}}
    computed = len(settings["seeds"]) * (len(settings["answers"]["conditions"]) + 1)
    trained_ones = count_trials(settings, conditions=len(settings["shares"])) + count_trials(alone)
    lab.plan(len(settings["datasets"]) * trained_ones + computed)
    answers, falls = _computed(settings, lab)
    found: dict[str, Found] = {}
    only: dict[str, Compared] = {}
    for name, described in settings["datasets"].items():
        own = {"data": described["data"], "fit": {**settings["fit"], **described.get("fit", {})}}
        found[name] = {
            share: compared(lab, trial, {**settings, **own}, figure="recall", share=share)
            for share in settings["shares"]
        }
        only[name] = compared(lab, trial, {**alone, **own}, figure="recall", share=settings["collapse_share"])
    claims = [
        *_proposition(answers, published),
        *_recall_claims(found, settings, published),
        *_collapse_claims(only, falls, settings, published),
    ]
    return Outcome(
        _setup(settings),
        claims,
        [_answer_table(answers), *(_recall_table(name, each) for name, each in found.items()), _only_table(only)],
        [*(_recall_chart(name, each, lab) for name, each in found.items()), _fall_chart(falls, settings, lab)],
        [chosen_words(f"{name}, {share:g} hidden", each) for name, by in found.items() for share, each in by.items()]
        + [chosen_words(f"{name}, positives only", each) for name, each in only.items()],
        {
            "recall": {
                n: {str(s): {w: c.figure(w, "recall") for w in c.found} for s, c in by.items()}
                for n, by in found.items()
            },
            "positives only": {name: each.found["positives only"] for name, each in only.items()},
            "answers": answers,
            "collapse": falls,
        },
    )


def _computed(settings: Mapping[str, Any], lab: Lab) -> tuple[dict[str, list[Any]], list[Any]]:
    """The answers of greatest likelihood by condition, and the likelihood of positives alone; all seeds."""
    seeds, about = settings["seeds"], settings["answers"]
    answers = {}
    for name, condition in about["conditions"].items():
        world = {**about["world"], "rarity": condition["rarity"]}
        shared = {"world": world, "share": condition["share"], "rows": about["rows"], "k": about["k"]}
        answers[name] = lab.trials(likelihood_answer, [{**shared, "seed": seed} for seed in seeds])
    return answers, lab.trials(collapse, [{**settings["collapse"], "seed": seed} for seed in seeds])


def _proposition(answers: Mapping[str, Sequence[Any]], published: Mapping[str, Any]) -> list[Claim]:
    """The corollary, about observed labels, and the proposition, about true ones."""
    claims = []
    for key, whose in (("lml_observed", "observed"), ("lml", "true")):
        parts = [
            at_least([each[key] for each in runs], 0.999, name=f"{name}: recall over the best possible")
            for name, runs in answers.items()
        ]
        text = f"The k largest logits of the LML answer of greatest likelihood find {whose} labels as well as can be."
        claims.append(Claim(text, published["proposition"], all_of(parts)))
    return claims


def hidden_mean(found: Found, who: str) -> list[float]:
    """Recall of a candidate, for each seed the mean over all shares above 0."""
    columns = [each.figure(who, "recall") for share, each in found.items() if share > 0]
    return [sum(values) / len(values) for values in zip(*columns, strict=True)]


def kept(found: Found, who: str) -> list[float]:
    """For each seed, recall at the largest share as a share of that with nothing hidden."""
    first, last = found[min(found)].figure(who, "recall"), found[max(found)].figure(who, "recall")
    return [end / start for start, end in zip(first, last, strict=True)]


def _recall_claims(
    found: Mapping[str, Found], settings: Mapping[str, Any], published: Mapping[str, Any]
) -> list[Claim]:
    """Higher with hidden labels, more so the more are hidden, and a slower fall: against each rival, on all data."""
    higher, growing, slower = [], [], []
    rivals = [name for name in settings["candidates"] if name != "lml"]
    for name, by in found.items():
        for rival in rivals:
            names, worth = ("lml", rival), settings["worth"]
            gaps = {
                share: [a - b for a, b in zip(each.figure("lml", "recall"), each.figure(rival, "recall"), strict=True)]
                for share, each in by.items()
            }
            parts = (
                beats(hidden_mean(by, "lml"), hidden_mean(by, rival), names=names, worth=worth),
                grows(gaps, name=f"lml − {rival}", along="hidden share", worth=worth),
                beats(kept(by, "lml"), kept(by, rival), names=("share kept by lml", f"by {rival}"), worth=worth),
            )
            for part, into in zip(parts, (higher, growing, slower), strict=True):
                into.append(Finding(part.verdict, f"{name}: {part.why} ({part.verdict})"))
    text = published["recall"]
    return [
        Claim("With hidden labels, LML has a higher recall at k than BCE and softmax.", text, all_of(higher)),
        Claim("Its lead grows with the hidden share.", text, all_of(growing)),
        Claim("It keeps more of the recall that it has with nothing hidden.", text, all_of(slower)),
    ]


def _collapse_claims(
    only: Mapping[str, Compared], falls: Sequence[Any], settings: Mapping[str, Any], published: Mapping[str, Any]
) -> list[Claim]:
    """All scores near 1, and recall no better than that of the most frequent labels."""
    scores = [at_least([each["mean_score"][-1] for each in falls], 0.9, name="known world: mean score")]
    empty = [
        beats(
            [each["frequent"] for each in falls],
            [each["recall"][-1] for each in falls],
            names=("known world: most frequent labels", "positives only"),
            worth=settings["worth"],
        )
    ]
    for name, each in only.items():
        figures = {key: each.figure("positives only", key) for key in ("mean_score", "recall", "frequent")}
        scores.append(at_least(figures["mean_score"], 0.9, name=f"{name}: mean score"))
        names = (f"{name}: most frequent labels", "positives only")
        empty.append(beats(figures["frequent"], figures["recall"], names=names, worth=settings["worth"]))
    text = published["collapse"]
    return [
        Claim(
            "BCE on observed positives alone drives the scores of all labels to 1 (mean at least 0.9).",
            text,
            all_of(scores),
        ),
        Claim("Its answers then tell nothing: the most frequent labels have a higher recall.", text, all_of(empty)),
    ]


def _setup(settings: Mapping[str, Any]) -> str:
    fit = settings["fit"]
    return (
        f"Data: {', '.join(settings['datasets'])}; {fit.get('encoder', 'auto')} models, batches of "
        f"{fit['batch_size']}. Each present label of training and validation rows is hidden with the same probability, "
        "and then looks absent; test rows have all their labels. Learning rate and temperature are chosen for each "
        f"share by recall of what is observed in validation rows; {len(settings['seeds'])} other seeds are measured on "
        "test rows. The proposition itself is computed in worlds of known probabilities, with free logits for every "
        "row."
    )


def _answer_table(answers: Mapping[str, Sequence[Any]]) -> Table:
    names = ("lml", "bce", "softmax")
    rows = [[name, *(Interval.of([each[who] for each in runs]) for who in names)] for name, runs in answers.items()]
    note = "With free logits, all three rank labels by the probability to be observed, so LML has no lead in theory."
    title = "Recall of the k largest over the best possible, answers of greatest expected likelihood, percent"
    return Table(title, ["known world", *names], rows, percent=True, digits=2, note=note)


def _recall_table(name: str, found: Found) -> Table:
    names = list(next(iter(found.values())).found)
    rows = [
        [f"{share:g}", *(Interval.of(each.figure(who, "recall")) for who in names)] for share, each in found.items()
    ]
    return Table(
        f"Recall at k of true labels on {name}, percent", ["hidden share", *names], rows, percent=True, digits=2
    )


def _only_table(only: Mapping[str, Compared]) -> Table:
    keys = {
        "recall": "recall",
        "frequent": "most frequent labels",
        "chance": "chance",
        "mean_score": "mean score",
        "above_half": "labels above one half",
    }
    rows = [[name, *(Interval.of(each.figure("positives only", key)) for key in keys)] for name, each in only.items()]
    return Table("BCE on observed positives alone, percent", ["data", *keys.values()], rows, percent=True, digits=2)


def _recall_chart(name: str, found: Found, lab: Lab) -> Figure:
    shares, series = tuple(map(float, found)), []
    for at, who in enumerate(next(iter(found.values())).found):
        every = [Interval.of(each.figure(who, "recall")) for each in found.values()]
        low, high = (tuple(i.mean + sign * i.half_width for i in every) for sign in (-1, 1))
        style = candidate_style(at)
        series.append(Series(who, "band", shares, low, style, high=high, in_legend=False))
        series.append(Series(who, "line", shares, tuple(i.mean for i in every), style, marked=True))
    axes = Axis("share of present labels hidden", percent=True), Axis("recall at k of true labels", percent=True)
    file = f"{''.join(c if c.isalnum() else '-' for c in name.lower())}.png"
    save_figure(
        draw_chart(Chart(f"Recall on {name} with hidden labels", *axes, tuple(series))), lab.figures / file, dpi=110
    )
    return Figure(
        file, f"Recall at k on {name} as labels are hidden from training; bands are 95% intervals over seeds."
    )


def _fall_chart(falls: Sequence[Any], settings: Mapping[str, Any], lab: Lab) -> Figure:
    steps = tuple(float(max(step, 1)) for step in settings["collapse"]["steps"])
    titles = {"mean_score": "mean score of all labels", "recall": "recall at k"}
    series = []
    for at, (key, title) in enumerate(titles.items()):
        means = tuple(Interval.of(list(values)).mean for values in zip(*(each[key] for each in falls), strict=True))
        series.append(Series(title, "line", steps, means, candidate_style(at), marked=True))
    frequent = Interval.of([each["frequent"] for each in falls]).mean
    series.append(
        Series("recall of the most frequent labels", "line", steps, (frequent,) * len(steps), candidate_style(2))
    )
    axes = Axis("step of training", scale="log"), Axis("share", percent=True)
    chart = Chart("BCE on observed positives alone, known world", *axes, tuple(series))
    save_figure(draw_chart(chart), lab.figures / "positives-only.png", dpi=110)
    return Figure(
        "positives-only.png",
        "Scores and recall while only observed positives are fitted, the start drawn at step 1; mean over seeds.",
    )

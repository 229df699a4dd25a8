"""Recall with hidden labels: LML likelihood, BCE and softmax (LML, proposition 2, corollary 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from experiments.candidates import Compared, compared, count_trials, trained
from experiments.presentation import differences, file_name, interval_line, mean, saved, tried_words
from shortlist.data import Dataset, Groups, MultiLabelWorld, hide_labels
from shortlist.data.worlds.expected_shares import expected_shares
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, at_least, beats, grows
from shortlist.functional import bce, constrained_softmax, lml, log_lml, recall_at_k
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.train.comparison import Interval

Expected = Callable[[Tensor], Tensor]


def likelihood_answer(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """For rows of a world, the logits that maximize the expected likelihood of the observed labels, without a model.

    Returns, by loss, the expected recall of true labels of the k largest logits relative to the best possible;
    ``lml_observed``, the same for observed labels; and ``distance``, the largest between the LML solution and
    min(1, t c), where c is the probability of being observed.
    """
    world = _world(settings)
    rows = world.sample(settings["rows"], seed=settings["seed"], split=None)
    x = rows.inputs.batch(torch.arange(len(rows))).double()
    seen, k = world.observed_probabilities(x), settings["k"]
    shares = expected_shares(seen)
    losses: dict[str, Expected] = {
        "lml": lambda z: -(seen * log_lml(z, k)).sum(),
        "bce": lambda z: binary_cross_entropy_with_logits(z, seen, reduction="sum"),
        "softmax": lambda z: -(shares * z.log_softmax(-1)).sum(),
    }
    gains = expected_shares(world.probabilities(x))
    best = gains.topk(k).values.sum()
    answers = {name: _minimized(loss, seen) for name, loss in losses.items()}
    found = {name: float(gains.gather(-1, z.topk(k).indices).sum() / best) for name, z in answers.items()}
    observed = shares.gather(-1, answers["lml"].topk(k).indices).sum() / shares.topk(k).values.sum()
    capped = constrained_softmax(seen.log(), k)
    return {**found, "lml_observed": float(observed), "distance": float((lml(answers["lml"], k) - capped).abs().max())}


def _minimized(loss: Expected, like: Tensor) -> Tensor:
    point = torch.zeros_like(like).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point], max_iter=200, tolerance_grad=1e-7, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def value() -> Tensor:
        optimizer.zero_grad()
        total = loss(point)
        total.backward()
        return total

    optimizer.step(value)
    return point.detach()


def collapse(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Maximize the likelihood of the observed positives alone, with a sigmoid per label.

    ``hidden`` has the sizes of the hidden layers; none for a linear model.

    Returns, after each of ``steps``, the mean score of all labels on test rows, the fraction above one half, and recall
    at k; also the recall of the k most frequent labels.
    """
    torch.manual_seed(settings["seed"])
    world, k = _world(settings), settings["k"]
    data = world.sample(settings["rows"], seed=settings["seed"], split=(0.5, 0.0, 0.5))
    train, test = data.part("train"), data.part("test")
    x, x_test = (part.inputs.batch(torch.arange(len(part))) for part in (train, test))
    present = train.targets.to_dense()
    target = torch.where(present > 0, 1.0, -1.0)
    model = torch.nn.Sequential()
    for size, wider in pairwise([world.dim, *settings["hidden"]]):
        model.extend([torch.nn.Linear(size, wider), torch.nn.ReLU()])
    model.append(torch.nn.Linear([world.dim, *settings["hidden"]][-1], world.num_labels))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    found: dict[str, Any] = {"mean_score": [], "above_half": [], "recall": []}
    for step in range(max(settings["steps"]) + 1):
        if step in settings["steps"]:
            with torch.no_grad():
                logits = model(x_test)
            found["mean_score"].append(float(logits.sigmoid().mean()))
            found["above_half"].append(float((logits > 0).double().mean()))
            found["recall"].append(float(recall_at_k(logits, test.true_targets, k)))
        optimizer.zero_grad()
        bce(model(x), target).backward()
        optimizer.step()
    frequent = present.sum(0).expand(len(test), -1).clone()
    return {**found, "frequent": float(recall_at_k(frequent, test.true_targets, k))}


def _world(settings: dict[str, Any]) -> MultiLabelWorld:
    return MultiLabelWorld(**settings["world"], missing=settings["share"], seed=settings["seed"])


Found = Mapping[float, Compared]
"""Results by hidden fraction."""


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train with a fraction of the positive labels hidden; evaluate recall at k on ``part``.

    Validation rows lose labels like training rows, from which they are split off; test rows keep all labels.
    """
    change = partial(hidden, share=settings["share"], seed=settings["seed"])
    run = trained(settings, root, change=change)
    part, k = run.dataset.part(settings["part"]), int(settings["fit"]["k"])
    logits = run.logits(settings["part"])
    labels = part.targets if settings["part"] == "val" else part.true_targets
    return {"recall": float(recall_at_k(logits, labels, k))}


def hidden(dataset: Dataset, *, share: float, seed: int) -> Dataset:
    """Hide labels of training and validation rows."""
    parts = dataset.split
    if parts is None:
        raise ValueError("`dataset` must be split into parts.")
    names = [parts.names[at] if at >= 0 else "" for at in parts.index.tolist()]
    together = Groups.of(["train" if name == "val" else name for name in names])
    return replace(hide_labels(replace(dataset, split=together), share, seed=seed), split=parts)


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Compare losses as more positive labels are hidden, and test the proposition in known worlds.

    Args:
        settings: those of `experiments.candidates.compared`, with ``datasets`` (by name, each with ``data`` and its own
            ``fit`` options); ``shares``, the hidden fractions; ``answers``, the settings of `likelihood_answer`;
            ``worth``, the smallest difference of recall worth having.
        published: ``recall`` and ``proposition``, what the paper says, in a few words.
        lab: runs the trials.
    """
    computed = len(settings["seeds"]) * len(settings["answers"]["conditions"])
    lab.plan(len(settings["datasets"]) * count_trials(settings, conditions=len(settings["shares"])) + computed)
    answers = _answers(settings, lab)
    found: dict[str, Found] = {}
    for name, described in settings["datasets"].items():
        own = {"data": described["data"], "fit": {**settings["fit"], **described.get("fit", {})}}
        found[name] = {
            share: compared(lab, trial, {**settings, **own}, figure="recall", share=share)
            for share in settings["shares"]
        }
    claims = [*_proposition(answers, published), *_recall_claims(found, settings, published)]
    return Outcome(
        _setup(settings),
        claims,
        [_answer_table(answers), *(_recall_table(name, each) for name, each in found.items())],
        [_recall_chart(name, each, lab) for name, each in found.items()],
        [
            sentence
            for name, by in found.items()
            for share, each in by.items()
            for sentence in tried_words(each.choices, f"{name}, {share:g} hidden, ")
        ],
        {
            "recall": {
                n: {str(s): {w: c.figure(w, "recall") for w in c.found} for s, c in by.items()}
                for n, by in found.items()
            },
            "answers": answers,
        },
    )


def _answers(settings: Mapping[str, Any], lab: Lab) -> dict[str, list[Any]]:
    """The maximum-likelihood solutions by condition, for all seeds."""
    seeds, about = settings["seeds"], settings["answers"]
    answers = {}
    for name, condition in about["conditions"].items():
        world = {**about["world"], "rarity": condition["rarity"]}
        shared = {"world": world, "share": condition["share"], "rows": about["rows"], "k": about["k"]}
        answers[name] = lab.trials(likelihood_answer, [{**shared, "seed": seed} for seed in seeds])
    return answers


def _proposition(answers: Mapping[str, Sequence[Any]], published: Mapping[str, Any]) -> list[Claim]:
    """The corollary about observed labels, and the proposition about true ones."""
    claims = []
    for key, whose in (("lml_observed", "observed"), ("lml", "true")):
        parts = [
            at_least([each[key] for each in runs], 0.999, name=f"{name}: recall relative to the best possible")
            for name, runs in answers.items()
        ]
        text = f"The k largest logits of the maximum-likelihood LML solution have the best recall of {whose} labels."
        claims.append(Claim(text, published["proposition"], all_of(parts)))
    return claims


def hidden_mean(found: Found, who: str) -> list[float]:
    """Recall of a candidate, per seed the mean over all hidden fractions above 0."""
    columns = [each.figure(who, "recall") for share, each in found.items() if share > 0]
    return [sum(values) / len(values) for values in zip(*columns, strict=True)]


def kept(found: Found, who: str) -> list[float]:
    """Recall at the largest hidden fraction relative to nothing hidden, per seed."""
    first, last = found[min(found)].figure(who, "recall"), found[max(found)].figure(who, "recall")
    return [end / start for start, end in zip(first, last, strict=True)]


def _recall_claims(
    found: Mapping[str, Found], settings: Mapping[str, Any], published: Mapping[str, Any]
) -> list[Claim]:
    """Higher recall, a growing lead and a slower decline with hidden labels: against each rival, on all data."""
    higher, growing, slower = [], [], []
    rivals = [name for name in settings["candidates"] if name != "lml"]
    for name, by in found.items():
        for rival in rivals:
            names, worth = ("lml", rival), settings["worth"]
            gaps = {
                share: differences(each.figure("lml", "recall"), each.figure(rival, "recall"))
                for share, each in by.items()
            }
            parts = (
                beats(hidden_mean(by, "lml"), hidden_mean(by, rival), names=names, worth=worth),
                grows(gaps, name=f"lml − {rival}", along="hidden fraction", worth=worth),
                beats(kept(by, "lml"), kept(by, rival), names=("fraction kept by lml", f"by {rival}"), worth=worth),
            )
            for part, into in zip(parts, (higher, growing, slower), strict=True):
                into.append(Finding(part.verdict, f"{name}: {part.why}"))
    text = published["recall"]
    return [
        Claim("With hidden labels, LML has a higher recall at k than BCE and softmax.", text, all_of(higher)),
        Claim("Its lead grows with the hidden fraction.", text, all_of(growing)),
        Claim("It keeps a larger fraction of its recall without hidden labels.", text, all_of(slower)),
    ]


def collapse_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Train on observed positives alone, with and without a hidden layer.

    Args:
        settings: ``models``, the sizes of hidden layers by name; the other settings of `collapse`; ``within_steps``, by
            when scores must be near 1; ``seeds``.
        published: ``words`` of the paper.
        lab: runs the trials.
    """
    shared = {key: settings[key] for key in ("world", "share", "rows", "k", "learning_rate", "steps")}
    asked = [
        {**shared, "hidden": sizes, "seed": seed} for sizes in settings["models"].values() for seed in settings["seeds"]
    ]
    runs, count = lab.trials(collapse, asked), len(settings["seeds"])
    falls = {name: runs[at * count : (at + 1) * count] for at, name in enumerate(settings["models"])}
    soon = settings["steps"].index(settings["within_steps"])
    scores = [
        at_least([each["mean_score"][soon] for each in found], 0.9, name=f"{name}: mean score")
        for name, found in falls.items()
    ]
    empty = [
        beats(
            [each["frequent"] for each in found],
            [each["recall"][-1] for each in found],
            names=(f"{name}: recall of the most frequent labels", "of the model"),
        )
        for name, found in falls.items()
    ]
    text = "BCE on observed positives alone drives the scores of all labels to 1"
    claims = [
        Claim(
            f"{text} (mean at least 0.9 after {settings['within_steps']} steps).", published["words"], all_of(scores)
        ),
        Claim("Its sets are then worse than the most frequent labels.", published["words"], all_of(empty)),
    ]
    rows = [
        [f"{name}, {step} steps", *(Interval.of([each[key][at] for each in found]) for key in ("mean_score", "recall"))]
        for name, found in falls.items()
        for at, step in enumerate(settings["steps"])
    ]
    frequent = 100 * mean([each["frequent"] for found in falls.values() for each in found])
    note = f"The most frequent labels have a recall of {frequent:.1f}%."
    return Outcome(
        f"A world with known probabilities, {settings['rows']} rows, half of the positives hidden; Adam at "
        f"{settings['learning_rate']:g}; {count} seeds.",
        claims,
        [
            Table(
                "BCE on observed positives alone, in percent",
                ["model", "mean score", "recall at k"],
                rows,
                True,
                1,
                note,
            )
        ],
        [_fall_chart(name, found, settings, lab) for name, found in falls.items()],
        values=falls,
    )


def _setup(settings: Mapping[str, Any]) -> str:
    fit = settings["fit"]
    return (
        f"Data: {', '.join(settings['datasets'])}; {fit.get('encoder', 'auto')} models, batches of "
        f"{fit['batch_size']}. Each positive label of training and validation rows is hidden with the same probability "
        "and then looks negative; test rows keep all labels. Learning rate and temperature are chosen for each "
        f"fraction by recall of the observed labels of validation rows; {len(settings['seeds'])} other seeds are "
        "evaluated on test rows. The proposition itself is computed in worlds of known probabilities, with free logits "
        "for every row."
    )


def _answer_table(answers: Mapping[str, Sequence[Any]]) -> Table:
    names = ("lml", "bce", "softmax")
    rows = [[name, *(Interval.of([each[who] for each in runs]) for who in names)] for name, runs in answers.items()]
    note = "With free logits, all three rank labels by the probability of being observed, so LML has no lead in theory."
    title = "Recall of the k largest logits relative to the best possible, maximum expected likelihood, in percent"
    return Table(title, ["known world", *names], rows, percent=True, digits=2, note=note)


def _recall_table(name: str, found: Found) -> Table:
    names = list(next(iter(found.values())).found)
    rows = [
        [f"{share:g}", *(Interval.of(each.figure(who, "recall")) for who in names)] for share, each in found.items()
    ]
    return Table(
        f"Recall at k of true labels on {name}, in percent", ["hidden fraction", *names], rows, percent=True, digits=2
    )


def _recall_chart(name: str, found: Found, lab: Lab) -> Figure:
    shares, series = tuple(map(float, found)), []
    for at, who in enumerate(next(iter(found.values())).found):
        series += interval_line(
            who, shares, [each.figure(who, "recall") for each in found.values()], candidate_style(at)
        )
    axes = Axis("hidden fraction of positive labels", percent=True), Axis("recall at k of true labels", percent=True)
    chart = Chart(f"Recall on {name} with hidden labels", *axes, tuple(series))
    caption = f"Recall at k on {name} as training labels are hidden; bands are 95% intervals over seeds."
    return saved(chart, lab, file_name(name), caption)


def _fall_chart(name: str, falls: Sequence[Any], settings: Mapping[str, Any], lab: Lab) -> Figure:
    steps = tuple(float(max(step, 1)) for step in settings["steps"])
    titles = {"mean_score": "mean score of all labels", "recall": "recall at k"}
    series = []
    for at, (key, title) in enumerate(titles.items()):
        means = tuple(mean(values) for values in zip(*(each[key] for each in falls), strict=True))
        series.append(Series(title, "line", steps, means, candidate_style(at), marked=True))
    frequent = mean([each["frequent"] for each in falls])
    series.append(
        Series("recall of the most frequent labels", "line", steps, (frequent,) * len(steps), candidate_style(2))
    )
    axes = Axis("training step", scale="log"), Axis("share", percent=True)
    chart = Chart(f"BCE on observed positives alone, {name}", *axes, tuple(series))
    caption = (
        "Scores and recall while fitting observed positives alone, with the start drawn at step 1; means over seeds."
    )
    return saved(chart, lab, file_name(name), caption)

"""Build the document of a comparison: everything that its report shows."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

import torch
from torch import Tensor

from shortlist import __version__
from shortlist.comparison_document import (
    Candidate,
    ComparisonDocument,
    DataSummary,
    MeanInterval,
    MetricInfo,
    Optimum,
    Provenance,
    Question,
    Run,
    RunResult,
    ShotGroup,
    Standing,
    Tie,
)
from shortlist.data import Dataset
from shortlist.fit_options import FitOptions
from shortlist.train.comparison.candidates import Comparison
from shortlist.train.comparison.examples import picked_examples
from shortlist.train.comparison.findings import (
    Shots,
    fitted_rules,
    label_rows,
    positive_pairs,
    rarest_shot,
    set_findings,
    size_grid,
)
from shortlist.train.comparison.intervals import AVERAGE_SIZE, Interval, best_candidates, better, seeds_to_tell
from shortlist.train.evaluation import evaluate_scores, metric_names
from shortlist.train.inputs import is_one_class, row_batches

_USUAL_LOSSES = ("cross_entropy", "bce")
_ERROR_AT_K = re.compile(r"(average|top)[0-9.]+_error")
_ERROR_FIELDS = {"average": "error", "top": "top_error"}


def comparison_document(
    comparison: Comparison,
    dataset: Dataset,
    *,
    target: str,
    part: str = "test",
    exact: Callable[[Any], Tensor] | None = None,
    commands: Sequence[str] = (),
    seconds: float = 0.0,
    title: str | None = None,
    questions: Sequence[Question] = (),
) -> ComparisonDocument:
    """Build the document of a comparison.

    Args:
        comparison, dataset, part: the result and the arguments of `shortlist.train.compare`. All candidates have the
            same ``k``.
        target: the metric that decides.
        exact: maps a batch of inputs to the true probabilities of the labels, where they are known; they are evaluated
            like a model, on the same rows.
        commands: how to reproduce it.
        seconds: how long it took.
        title: the name of the comparison on its page; None for that of the data.
        questions: what the page shows at its top; empty for all that the comparison answers.

    Returns:
        What `shortlist.report` reads, and `shortlist.train.write_comparison` writes.
    """
    k = next(iter(comparison.options.values())).k
    names = metric_names(dataset, k) + ([AVERAGE_SIZE] if is_one_class(dataset) else [])
    baseline = _baseline(comparison)
    ks = size_grid(k, dataset.num_labels)
    first_answers = {name: next(iter(details.values())).answers for name, details in comparison.details.items()}
    return ComparisonDocument(
        made=Provenance(
            shortlist=__version__,
            torch=str(torch.__version__),
            python=platform.python_version(),
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=round(seconds, 1),
            threads=torch.get_num_threads(),
        ),
        commands=list(commands),
        data=_data(dataset, part),
        k=k,
        ks=ks,
        target=target,
        metrics=[MetricInfo(name, better(name)) for name in names],
        best={name: comparison.best(name) for name in names if better(name) is not None},
        optimum=None if exact is None else _optimum(dataset, part, exact, k),
        candidates={name: _candidate(comparison, name, names, baseline) for name in comparison.options},
        examples=picked_examples(first_answers, dataset, part, at_k=ks.index(k)),
        title=title,
        questions=list(questions),
        baseline=baseline,
        labels=label_rows(dataset, part),
        standings=_standings(comparison, target, k, ks),
    )


def _data(dataset: Dataset, part: str) -> DataSummary:
    rows, counts = dataset.part(part), dataset.label_counts("train")
    at, labels = positive_pairs(rows)
    shots = Shots.of_counts(counts)
    of_row = rarest_shot(shots, at, labels, len(rows))
    split = dataset.split
    sizes = {} if split is None else dict(zip(split.names, split.counts().tolist(), strict=True))
    return DataSummary(
        name=dataset.name or "data",
        kind=dataset.inputs.kind,
        task="one class" if is_one_class(dataset) else "sets",
        labels=dataset.num_labels,
        labels_per_row=int(dataset.label_counts().sum()) / max(len(dataset), 1),
        parts=sizes,
        evaluated=part,
        shots=[
            ShotGroup(name, about, labels=int((shots.of_label == code).sum()), rows=int((of_row == code).sum()))
            for code, (name, about) in enumerate(zip(shots.names, shots.about, strict=True))
            if bool((shots.of_label[labels] == code).any())
        ],
    )


def _optimum(dataset: Dataset, part: str, exact: Callable[[Any], Tensor], k: float) -> Optimum:
    """Evaluate the true probabilities, as the logits that the link maps to them."""
    one_class = is_one_class(dataset)

    def logits(of: str) -> Tensor:
        rows = dataset.part(of)
        blocks = [exact(rows.inputs.batch(some)) for some in row_batches(len(rows))]
        # A tiny number stands for 0, which has no logarithm.
        probs = torch.cat(blocks).double().clamp(min=1e-300)
        return probs.log() if one_class else probs.log() - torch.log1p(-probs.clamp(max=1 - 1e-16))

    rows = dataset.part(part)
    found = evaluate_scores(logits("val"), logits(part), rows, k=k, link="softmax" if one_class else "sigmoid")
    rules = fitted_rules(found, size_grid(k, dataset.num_labels))
    sets = set_findings(found, rows, dataset.part("val"), dataset.label_counts("train"), rules, k=k)
    return Optimum(dict(found.values), sets)


def _standings(comparison: Comparison, target: str, k: float, ks: Sequence[float]) -> list[Standing]:
    """Rank the candidates by the target.

    Args:
        comparison: the runs.
        target: the deciding metric.
        k, ks: the requested size, and all that were evaluated.

    Returns:
        One entry for each of ``ks`` if the target is the error of a rule at ``k``, otherwise one in all.
    """
    match = _ERROR_AT_K.fullmatch(target)
    if match is None or not target.startswith(f"{match[1]}{k:g}_"):
        return [_standing(_values(comparison, target), target)]
    found = []
    for at, size in enumerate(ks):
        if size == k:
            found.append(_standing(_values(comparison, target), target))
            continue
        values = {
            name: {seed: getattr(run.sets.by_k[at], _ERROR_FIELDS[match[1]]) for seed, run in runs.items()}
            for name, runs in comparison.details.items()
        }
        found.append(_standing(values, f"{match[1]}{size:g}_error"))
    return found


def _mean_interval(found: Interval) -> MeanInterval:
    """Return an interval as it stands in a document, with None for NaN."""
    return MeanInterval(found.mean, None if math.isnan(found.half_width) else found.half_width)


def _values(comparison: Comparison, metric: str) -> dict[str, dict[int, float]]:
    return {name: {seed: run[metric] for seed, run in runs.items()} for name, runs in comparison.runs.items()}


def _standing(values: Mapping[str, Mapping[int, float]], metric: str) -> Standing:
    best, *others = best_candidates(values, lower=better(metric) == "lower")
    ties = []
    for name in others:
        gap = Interval.of([values[name][seed] - values[best][seed] for seed in values[best]])
        ties.append(Tie(name, _mean_interval(gap), seeds_to_tell(gap, len(values[best]))))
    return Standing(metric, best, _mean_interval(Interval.of(list(values[best].values()))), ties)


def _baseline(comparison: Comparison) -> str | None:
    """Return the first candidate with the usual loss, if there is one."""
    losses = {name: next(iter(runs.values())).loss for name, runs in comparison.details.items()}
    return next((name for name, loss in losses.items() if loss in _USUAL_LOSSES), None)


def _candidate(comparison: Comparison, name: str, metrics: Sequence[str], baseline: str | None) -> Candidate:
    details, options = comparison.details[name], comparison.options[name]
    shared = [each.name for each in fields(RunResult)]
    first = next(iter(details.values()))

    def interval(metric: str) -> MeanInterval:
        return _mean_interval(comparison.interval(name, metric))

    def difference(metric: str) -> MeanInterval:
        values, usual = comparison.runs[name], comparison.runs[baseline or name]
        return _mean_interval(Interval.of([values[seed][metric] - usual[seed][metric] for seed in values]))

    return Candidate(
        about=_about(first.loss, options),
        recipe=options.recipe,
        tuning=comparison.tunings.get(name),
        options=options.to_json(),
        intervals={metric: interval(metric) for metric in metrics},
        runs=[
            Run(seed=seed, values=dict(run.values), **{key: getattr(run, key) for key in shared})
            for seed, run in details.items()
        ],
        audit=first.audit,
        differences={} if baseline in (None, name) else {metric: difference(metric) for metric in metrics},
    )


def _about(loss: str, options: FitOptions) -> str:
    """Describe the loss, and encoder and head if they were chosen."""
    words = [f"loss {loss}"]
    for what, name, extra in (
        ("encoder", options.encoder, options.encoder_options),
        ("head", options.head, options.head_options),
        ("frozen", options.frozen, options.frozen_options),
    ):
        inside = ", ".join(f"{key} {value}" for key, value in extra.items())
        if name not in ("auto", "") or inside:
            words.append(f"{what} {name}" + (f" ({inside})" if inside else ""))
    return ", ".join(words)

"""Sets of K labels on average: the average-K loss against other losses (sets, tables 5.1 and 5.2, figure 5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.candidates import Run, merged
from experiments.data import open_data
from experiments.long_tail import (
    SHOTS,
    Measured,
    best_of_all,
    class_means,
    decided,
    measured,
    shot_sizes,
    tail_words,
    tailed,
)
from experiments.presentation import data_words, differences, fit_words, interval_line, saved, tried_words, tuning_words
from shortlist.data import Dataset
from shortlist.evidence import Claim, Finding, Lab, Outcome, Table, alike, all_of, beats, grows
from shortlist.metrics import SetCoverage
from shortlist.recipes import loss_class
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.sets import AverageK
from shortlist.sets.scores import Link
from shortlist.targets import to_class_indices
from shortlist.train import FitOptions, fit
from shortlist.train.comparison import Interval
from shortlist.train.comparison.findings import Shots

# The smallest difference that the paper mentions: noised is 0.15 points above cross-entropy for K = 10.
WORTH = 0.0015
# Next to cross-entropy, the paper calls 0.12 points (assume negative, table 5.1) good and 0.71 (ROLE) a lag.
SIMILAR = 0.005
# Few-shot accuracies differ by 2 to 29 points.
SHOT_WORTH = 0.01
_CE, _OURS, _NOISED = "cross_entropy", "average_k", "noised_topk"
_AN, _EPR, _ROLE = "assume_negative", "expected_positive", "role"
# The paper describes a histogram; one point of all rows is about the least that one can see.
SIZE_WORTH = 0.01
_SHOWN = 20
LARGEST_SIZE = 60
"""Larger sets share the last bin of a histogram."""


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train a model, fit the threshold of each K on validation rows, and evaluate one part.

    Args:
        settings: ``data``, ``fit``, ``seed``, ``part``; ``ks``, the average set sizes; ``tail`` as in
            `experiments.long_tail.tailed`; ``rows``, how many training rows to keep, None for all; ``scores`` of the
            rule: ``softmax`` of the logits for every loss, or the loss's ``own`` link.
        root: where the data are.

    Returns:
        For each K, the means of `class_means` of average-K accuracy (``rowsK``, ``macroK``, ...), ``sizeK``, the mean
        set size, and ``histogramK``, the fraction of rows with each size, by shot and over all. ``own_rowsK`` and
        ``own_trainingK`` are accuracies with the loss's own link.
    """
    seed = int(settings["seed"])
    dataset = tailed(open_data(settings["data"], root, seed=seed), settings["tail"], seed=seed)
    dataset = fewer_rows(dataset, settings["rows"], seed=seed)
    run = Run(fit(dataset, FitOptions(**{**settings["fit"], "seed": seed})), dataset)
    val_logits, part = run.logits("val"), settings["part"]
    logits = val_logits if part == "val" else run.logits(part)
    classes = to_class_indices(dataset.part(part).true_targets, dataset.num_labels)
    counts = dataset.label_counts("train")
    found: dict[str, Any] = dict(shot_sizes(counts))
    own = loss_class(run.fitted.plan.loss).link
    if settings["scores"] not in ("softmax", "own"):
        raise ValueError(f"`scores` must be softmax or own; got {settings['scores']!r}.")
    link: Link = "softmax" if settings["scores"] == "softmax" else own
    for k in settings["ks"]:
        values = set_figures(_sets(val_logits, logits, k, link), classes, counts)
        same = values if link == own else set_figures(_sets(val_logits, logits, k, own), classes, counts)
        values |= {f"own_{name}": same[name] for name in ("rows", "training")}
        found |= {f"{name}{k}": value for name, value in values.items()}
    return found


def fewer_rows(dataset: Dataset, rows: int | None, *, seed: int) -> Dataset:
    """A random subset of the training rows; other parts are unchanged."""
    train = dataset.part_rows("train")
    if rows is None or len(train) <= rows:
        return dataset
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    keep = torch.ones(len(dataset), dtype=torch.bool)
    keep[train[order[rows:]]] = False
    return dataset.subset(keep.nonzero().squeeze(-1))


def _sets(val_logits: Tensor, logits: Tensor, k: float, link: Link) -> Tensor:
    rule = AverageK(k, link=link)
    rule.fit(val_logits, from_logits=True)
    return rule(logits)


def set_figures(inside: Tensor, classes: Tensor, counts: Tensor) -> dict[str, Any]:
    """Accuracy and sizes of sets.

    Args:
        inside: ``(N, n)`` bool, which labels are in the set of a row.
        classes: ``(N,)``, the true ones.
        counts: ``(n,)``, training rows of each class.
    """
    coverage = SetCoverage(average="macro", num_labels=len(counts))
    coverage.update(inside, classes)
    sizes, total = inside.sum(-1), torch.bincount(classes, minlength=len(counts))
    means = class_means(coverage.by_class(), counts, total)
    shots = Shots.of_counts(counts)
    groups = {name: shots.of_label[classes] == index for index, name in enumerate(shots.names)}
    # Classes are weighted by their training rows, as on rows with the same long tail.
    weight = (counts / total.clamp(min=1))[classes]
    histograms = {name: _histogram(sizes[rows], weight[rows]) for name, rows in groups.items()}
    histograms |= {"rows": _histogram(sizes, torch.ones_like(weight)), "training": _histogram(sizes, weight)}
    by_shot = {name: float(sizes[rows].double().mean()) if rows.any() else None for name, rows in groups.items()}
    return {**means, "size": float(sizes.double().mean()), "size_by_shot": by_shot, "histogram": histograms}


def _histogram(sizes: Tensor, weight: Tensor) -> list[float]:
    """The fraction of each size from 0; empty without rows."""
    if len(sizes) == 0 or float(weight.sum()) == 0:
        return []
    counted = torch.bincount(sizes.clamp(max=LARGEST_SIZE), weight.double(), minlength=LARGEST_SIZE + 1)
    return [round(share, 5) for share in (counted / counted.sum()).tolist()]


def _measured(lab: Lab, settings: Mapping[str, Any]) -> Measured:
    candidates, ks = settings["candidates"], list(settings["ks"])

    def asked(name: str, options: Mapping[str, Any], k: int, seed: int, part: str) -> dict[str, Any]:
        fit = merged(settings["fit"], candidates[name].get("fit", {}), options, {"k": k})
        about = {key: settings[key] for key in ("data", "tail", "rows", "scores")}
        measured_ks = [k] if candidates[name].get("per_k") or part == "val" else ks
        return {**about, "ks": measured_ks, "fit": fit, "seed": seed, "part": part}

    return measured(lab, trial, settings, asked, figure="rows")


def balanced_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 5.1: classes of equal size."""
    found, k, over = _measured(lab, settings), settings["tuning_k"], settings["population"]
    claims = [
        Claim(
            f"The average-K loss has the best average-{k} accuracy.",
            "97.35%; cross-entropy, the next, 96.83%",
            _best(found, over, k),
        ),
        Claim(
            "Assuming that all other labels are negative does about as well as cross-entropy.",
            "96.71 against 96.83%",
            alike(found.values(_AN, over, k), found.values(_CE, over, k), names=(f"{_AN}@{k}", _CE), within=SIMILAR),
        ),
        Claim(
            "Expected positives and ROLE lag behind cross-entropy.",
            "95.88 and 96.12% against 96.83%",
            all_of([_better(found, _CE, other, over, k) for other in (_EPR, _ROLE)]),
        ),
        Claim(
            "The noised top-K loss is below cross-entropy.",
            "96.32 against 96.83%",
            _better(found, _CE, _NOISED, over, k),
        ),
    ]
    return Outcome(
        setup=_setup(settings, found),
        claims=claims,
        tables=[_balanced_table(settings, found, published)],
        tried=tried_words(found.choices),
        values={"runs": _without_histograms(found)},
    )


def tail_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 5.2: a long tail, and K from small to large."""
    found, ks, over = _measured(lab, settings), settings["ks"], settings["population"]
    high, low = [k for k in ks if k > min(ks)], min(ks)
    large = [k for k in ks if k >= settings["large_k"]]
    claims = [
        Claim(
            "The average-K loss has a higher average-K accuracy than cross-entropy for every K.",
            "90.34, 93.81, 96.42, 98.23% against 89.63, 92.64, 95.11, 97.11% for K = 2, 3, 5, 10",
            all_of([_better(found, _OURS, _CE, over, k) for k in ks]),
        ),
        Claim(
            f"It is the best of all losses for K above {low}, and about as good as the noised loss for K = {low}.",
            "the next are noised with 93.60, 95.75, 97.26% for K = 3, 5, 10; for K = 2 noised has 90.48%",
            all_of(
                [
                    *(_best(found, over, k) for k in high),
                    _close(found, _OURS, _NOISED, over, low),
                ]
            ),
        ),
        Claim(
            "On few-shot classes its gain over cross-entropy grows with K, and is large for large K.",
            "−3.3, +2.0, +20.4, +29.2 points for K = 2, 3, 5, 10",
            _few_shot_gain(found, ks, large),
        ),
        Claim(
            "Assume-negative and expected-positive losses are below cross-entropy for every K.",
            "85.41, 90.15, 93.88, 96.86% and 86.30, 90.49, 93.63, 95.99%",
            all_of([_better(found, _CE, other, over, k) for other in (_AN, _EPR) for k in ks]),
        ),
        Claim(
            "The noised top-K loss is above cross-entropy for every K.",
            "90.48, 93.60, 95.75, 97.26% against 89.63, 92.64, 95.11, 97.11%",
            all_of([_better(found, _NOISED, _CE, over, k) for k in ks]),
        ),
    ]
    caption = "Average-K accuracy of each loss minus that of cross-entropy; means over seeds."
    return Outcome(
        setup=_setup(settings, found),
        claims=claims,
        tables=[_tail_table(settings, found, published, k) for k in ks],
        figures=[saved(_gain_chart(found, ks, over), lab, "gains.png", caption)],
        tried=tried_words(found.choices),
        values={"runs": _without_histograms(found)},
    )


def _best(found: Measured, figure: str, k: int) -> Finding:
    return best_of_all([_better(found, _OURS, other, figure, k) for other in found.rivals(_OURS, figure, k)])


def _better(found: Measured, ours: str, other: str, figure: str, k: int, *, worth: float = WORTH) -> Finding:
    groups = [found.values(name, figure, k) for name in (ours, other)]
    what = figure if figure in SHOTS else "average"
    names = (f"{what}-{k}: {ours}" if what == "average" else f"{what}@{k}: {ours}", other)
    return decided(groups, lambda: beats(groups[0], groups[1], names=names, worth=worth), f"{figure}-shot")


def _close(found: Measured, ours: str, other: str, figure: str, k: int) -> Finding:
    groups = [found.values(name, figure, k) for name in (ours, other)]
    return alike(groups[0], groups[1], names=(f"average-{k}: {ours}", other), within=SIMILAR)


def _few_shot_gain(found: Measured, ks: Sequence[int], large: Sequence[int]) -> Finding:
    groups = [found.values(name, "few", k) for name in (_OURS, _CE) for k in ks]

    def decide() -> Finding:
        pairs = zip(ks, groups[: len(ks)], groups[len(ks) :], strict=True)
        gaps = {float(k): differences(ours, other) for k, ours, other in pairs}
        growth = grows(gaps, name="few-shot gain", along="K =", worth=SHOT_WORTH)
        return all_of([growth, *(_better(found, _OURS, _CE, "few", k, worth=SHOT_WORTH) for k in large)])

    return decided(groups, decide, "few-shot")


def _gain_chart(found: Measured, ks: Sequence[int], over: str) -> Chart:
    series = []
    for index, name in enumerate(name for name in found.found if name != _CE):
        gains = [differences(found.values(name, over, k), found.values(_CE, over, k)) for k in ks]
        points = [[100 * gain for gain in each] for each in gains]
        series += interval_line(name.replace("_", " "), list(map(float, ks)), points, candidate_style(index))
    x, y = Axis("K, labels per set on average", whole=True), Axis("accuracy minus that of cross-entropy, points")
    return Chart("Average-K accuracy against cross-entropy", x, y, tuple(series))


def _balanced_table(settings: Mapping[str, Any], found: Measured, published: Mapping[str, Any]) -> Table:
    k, over = settings["tuning_k"], settings["population"]
    rows = [
        [
            name,
            Interval.of(found.values(name, over, k)),
            Interval.of(found.values(name, f"own_{over}", k)),
            f"{found.found[name][k][0][f'size{k}']:.2f}",
            Interval(published[name][0] / 100, published[name][1] / 100),
        ]
        for name in found.found
    ]
    note = (
        "A loss's own scores are sigmoids if it treats labels separately, else the softmax. Set sizes are those on the "
        "test rows of the first seed."
    )
    columns = ["loss", f"average-{k} accuracy", "with its own scores", "labels per set", "paper"]
    return Table(f"Average-{k} accuracy, %", columns, rows, percent=True, digits=2, note=note)


def _tail_table(settings: Mapping[str, Any], found: Measured, published: Mapping[str, Any], k: int) -> Table:
    rows = []
    for name in found.found:
        over = settings["population"]
        groups = [found.values(name, figure, k) for figure in (over, *SHOTS, f"own_{over}")]
        paper = published.get(name, {}).get(k)
        rows.append(
            [
                name,
                *(Interval.of(values) if values else None for values in groups),
                Interval(paper[0] / 100, paper[1] / 100) if paper else None,
                " / ".join(f"{value:.2f}" for value in paper[2:]) if paper else None,
            ]
        )
    columns = ["loss", "all", *SHOTS, "all, with its own scores", "paper: all", "paper: few / medium / many"]
    return Table(f"Average-{k} accuracy, %", columns, rows, percent=True, digits=2)


def _without_histograms(found: Measured) -> dict[str, Any]:
    def kept(run: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in run.items() if not key.startswith("histogram")}

    return {name: {k: [kept(run) for run in runs] for k, runs in by_k.items()} for name, by_k in found.found.items()}


def _setup(settings: Mapping[str, Any], found: Measured) -> str:
    data = tail_words(settings, found) if settings["tail"] else f"Data {data_words(settings['data'])}."
    softmax = ", the softmax of the logits for all losses, as in the paper" if settings["scores"] == "softmax" else ""
    tuning = tuning_words(found.choices, f"average-{settings['tuning_k']} accuracy")
    words = f"{data} {fit_words(settings)} Thresholds come from validation scores{softmax}. {tuning}"
    if settings["population"] == "training":
        words += (
            " All test rows are evaluated; accuracy over all is the mean over classes weighted by their training rows, "
            "as on test rows with the same long tail."
        )
    return words


def size_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 5.4: set sizes with cross-entropy and with the average-K loss, and by shot."""
    found, k, over = _measured(lab, settings), settings["tuning_k"], settings["population"]
    one = [shares(found, name, over, k, 1, 1) for name in (_CE, _OURS)]
    some = [shares(found, name, over, k, 2, 4) for name in (_OURS, _CE)]
    claims = [
        Claim(
            "Cross-entropy gives more sets of one label than the average-K loss.",
            "a histogram without numbers",
            beats(one[0], one[1], names=(f"sets of one: {_CE}", _OURS), worth=SIZE_WORTH),
        ),
        Claim(
            "The average-K loss gives more sets of two to four labels than cross-entropy.",
            "a histogram without numbers",
            beats(some[0], some[1], names=(f"sets of 2 to 4: {_OURS}", _CE), worth=SIZE_WORTH),
        ),
        Claim(
            "With the average-K loss, sets are larger for medium-shot than for many-shot classes, and larger still for "
            "few-shot classes.",
            "a histogram without numbers; few-shot sets go up to about 50 labels",
            all_of([_larger(found, k, "medium", "many"), _larger(found, k, "few", "medium")]),
        ),
    ]
    caption = f"Share of test rows by the size of their set, {k} labels on average; means over seeds."
    by_shot = "The same for the average-K loss, by the number of training rows of the true class."
    figures = [
        saved(_loss_chart(found, over, k), lab, "sizes.png", caption),
        saved(_shot_chart(found, k), lab, "sizes_by_shot.png", by_shot),
    ]
    tables = [_table(found, k, over)]
    return Outcome(_setup(settings, found), claims, tables, figures, tried_words(found.choices))


def shares(found: Measured, name: str, rows: str, k: int, first: int, last: int) -> list[float]:
    """The fraction of sets with sizes from ``first`` to ``last``, per seed; empty if there are no such rows."""
    histograms = [run[f"histogram{k}"][rows] for run in found.found[name][k]]
    return [sum(histogram[first : last + 1]) for histogram in histograms] if all(histograms) else []


def _sizes(found: Measured, name: str, k: int, shot: str) -> list[float]:
    values = [run[f"size_by_shot{k}"][shot] for run in found.found[name][k]]
    return [] if None in values else values


def _larger(found: Measured, k: int, larger: str, smaller: str) -> Finding:
    groups = [_sizes(found, _OURS, k, shot) for shot in (larger, smaller)]
    names = (f"size, {larger}-shot", f"{smaller}-shot")
    return decided(
        groups,
        lambda: beats(groups[0], groups[1], names=names, worth=0.1, unit="labels"),
        f"{larger}- or {smaller}-shot",
    )


def _loss_chart(found: Measured, over: str, k: int) -> Chart:
    series = [_bars(found, name, over, k, index, name.replace("_", " ")) for index, name in enumerate((_CE, _OURS))]
    return _chart("Set sizes by loss", series)


def _shot_chart(found: Measured, k: int) -> Chart:
    series = [_bars(found, _OURS, shot, k, index, f"{shot}-shot classes") for index, shot in enumerate(SHOTS)]
    return _chart("Set sizes by training rows of the class, average-K loss", series)


def _bars(found: Measured, name: str, rows: str, k: int, index: int, shown: str) -> Series:
    """Fractions by size from 0; the last bar takes all larger sets."""
    each = [shares(found, name, rows, k, size, size) for size in range(_SHOWN)]
    each.append(shares(found, name, rows, k, _SHOWN, LARGEST_SIZE))
    y = tuple(sum(values) / len(values) if values else None for values in each)
    return Series(shown, "bars", tuple(map(float, range(_SHOWN + 1))), y, candidate_style(index))


def _chart(title: str, series: Sequence[Series]) -> Chart:
    names = (*map(str, range(_SHOWN)), f"{_SHOWN}+")
    x = Axis("labels in the set", scale="names", names=names)
    return Chart(title, x, Axis("share of rows", percent=True), tuple(series))


def _table(found: Measured, k: int, over: str) -> Table:
    parts = {"none": (0, 0), "one": (1, 1), "2 to 4": (2, 4), "5 to 9": (5, 9), "10 or more": (10, LARGEST_SIZE)}
    rows = []
    for name in (_CE, _OURS):
        for group in (over, *SHOTS):
            values = [shares(found, name, group, k, *sizes) for sizes in parts.values()]
            shown = "all rows" if group == over else f"{group}-shot"
            rows.append([f"{name}, {shown}", *(Interval.of(each) if each else None for each in values)])
    return Table(f"Share of sets by size, {k} labels on average, %", ["loss and rows", *parts], rows, percent=True)

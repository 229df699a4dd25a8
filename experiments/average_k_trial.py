"""One model whose sets hold K labels on average: how often the class is inside, by shot, and how large sets are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.data import open_data
from experiments.long_tail_trial import class_means, shot_sizes, tailed
from experiments.runs import Run
from shortlist.data import Dataset
from shortlist.metrics import SetCoverage
from shortlist.recipes import loss_class
from shortlist.sets import AverageK
from shortlist.sets.scores import Link
from shortlist.targets import to_class_indices
from shortlist.train import FitOptions, fit
from shortlist.train.comparison.findings import Shots

LARGEST_SIZE = 60
"""Sets of at least this size share the last place of a histogram."""


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train, fit the threshold of each K on validation rows, and measure the rows of one part.

    Args:
        settings: ``data``, ``fit``, ``seed``, ``part``; ``ks``, the sizes to measure; ``tail`` as in
            `experiments.long_tail_trial.tailed`; ``rows``, how many training rows to keep, None for all; ``scores``,
            what compares rows: ``softmax`` of the logits whatever the loss, or ``own``, what suits the loss.
        root: where data are.

    Returns:
        For each K the means of `class_means` of average-K accuracy (``rowsK``, ``macroK``, ...), ``sizeK``, the mean
        size of sets over rows, and ``histogramK``, the share of rows with each size by shot and over all. ``own_rowsK``
        and ``own_trainingK`` are accuracies with scores that suit the loss.
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
    """The dataset with at most that many training rows, drawn with the seed."""
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
    """Figures of sets.

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
    groups = {name: shots.of_label[classes] == place for place, name in enumerate(shots.names)}
    # Each class weighs as much as it has training rows, so that the mean is that of rows with the tail of training.
    weight = (counts / total.clamp(min=1))[classes]
    histograms = {name: _histogram(sizes[rows], weight[rows]) for name, rows in groups.items()}
    histograms |= {"rows": _histogram(sizes, torch.ones_like(weight)), "training": _histogram(sizes, weight)}
    by_shot = {name: float(sizes[rows].double().mean()) if rows.any() else None for name, rows in groups.items()}
    return {**means, "size": float(sizes.double().mean()), "size_by_shot": by_shot, "histogram": histograms}


def _histogram(sizes: Tensor, weight: Tensor) -> list[float]:
    """The share of each size from 0; empty without rows."""
    if len(sizes) == 0 or float(weight.sum()) == 0:
        return []
    counted = torch.bincount(sizes.clamp(max=LARGEST_SIZE), weight.double(), minlength=LARGEST_SIZE + 1)
    return [round(share, 5) for share in (counted / counted.sum()).tolist()]

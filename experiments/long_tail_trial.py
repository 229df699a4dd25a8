"""One model trained on long-tailed classes: top-K accuracy over rows, over classes, and by shot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.data import open_data
from experiments.runs import Run
from shortlist.data import Dataset, Groups, long_tail
from shortlist.functional import margins_from_counts
from shortlist.functional.metrics.accuracy import class_hits
from shortlist.train import FitOptions, fit
from shortlist.train.comparison.findings import Shots


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train, and measure the rows of one part.

    Args:
        settings: ``data``, ``fit``, ``seed``, ``part``; ``tail`` as in `tailed`; ``ks``, the sizes to measure. The loss
            option ``largest_margin`` becomes margins by class.
        root: where data are.

    Returns:
        For each K ``macroK``, ``fewK``, ``mediumK``, ``manyK``: means over classes; ``rowsK``, the mean over rows;
        ``trainingK``, the mean over classes weighted by their training rows. Besides ``few``, ``medium``, ``many``: how
        many classes each has. None is what has no class.
    """
    seed = int(settings["seed"])
    dataset = tailed(open_data(settings["data"], root, seed=seed), settings["tail"], seed=seed)
    counts = dataset.label_counts("train")
    run = Run(fit(dataset, FitOptions(**{**with_margins(settings["fit"], counts), "seed": seed})), dataset)
    rows = dataset.part(settings["part"])
    ks = [min(int(k), dataset.num_labels) for k in settings["ks"]]
    hits, total = class_hits(run.logits(settings["part"]), rows.true_targets, ks).by_class(dataset.num_labels)
    found: dict[str, Any] = dict(shot_sizes(counts))
    for place, k in enumerate(settings["ks"]):
        means = class_means(hits[:, place] / total, counts, total)
        found |= {f"{name}{k}": value for name, value in means.items()}
    return found


def tailed(dataset: Dataset, tail: Mapping[str, Any] | None, *, seed: int) -> Dataset:
    """Rows thinned out to a long tail whose order of classes is drawn with the seed; as they are without ``tail``.

    Args:
        dataset: one class per row.
        tail: ``imbalance``, how many times the largest class is larger than the smallest; ``parts``, which ones are
            thinned, with the same order of classes in all (``train`` alone if not given).
        seed: of order and rows.
    """
    if not tail:
        return dataset
    for part in tail.get("parts", ("train",)):
        # `long_tail` thins what is called train, so the part takes that name for a while.
        swapped = long_tail(_swapped(dataset, part), tail["imbalance"], order="random", seed=seed)
        dataset = _swapped(swapped, part)
    return dataset


def _swapped(dataset: Dataset, part: str) -> Dataset:
    split = dataset.split
    if split is None or part not in split.names:
        raise ValueError(f"`parts` of the tail must be parts of the data; got {part!r}.")
    other = {part: "train", "train": part}
    return replace(dataset, split=Groups(split.index, tuple(other.get(name, name) for name in split.names)))


def with_margins(options: Mapping[str, Any], counts: Tensor) -> dict[str, Any]:
    """Options of a run whose ``largest_margin`` has become one margin for each class, the rarer the larger."""
    loss_options = dict(options.get("loss_options", {}))
    if "largest_margin" in loss_options:
        loss_options["margin"] = margins_from_counts(counts, largest=loss_options.pop("largest_margin"))
    return {**options, "loss_options": loss_options}


def shot_sizes(counts: Tensor) -> dict[str, int]:
    """How many classes have few, medium and many training rows."""
    shots = Shots.of_counts(counts)
    return {name: int((shots.of_label == place).sum()) for place, name in enumerate(shots.names)}


def class_means(by_class: Tensor, counts: Tensor, total: Tensor) -> dict[str, float | None]:
    """Means of a figure of classes, in the ways that the tables show.

    Args:
        by_class: ``(n,)``, the figure; whatever it is for classes without rows.
        counts: ``(n,)``, training rows of each class.
        total: ``(n,)``, rows that were measured.

    Returns:
        ``macro``, over classes with rows; ``few``, ``medium`` and ``many`` of these; ``rows`` and ``training``,
        weighted by the rows that were measured and by those of training. None where there is no such class.

    Example:
        >>> class_means(torch.tensor([1.0, 0.0]), torch.tensor([300, 100]), torch.tensor([1, 1]))["training"]
        0.75
    """
    shots, occurs = Shots.of_counts(counts), total > 0
    one = torch.ones_like(total)
    weights = {"macro": one, "rows": total, "training": counts}
    weights |= {name: one * (shots.of_label == place) for place, name in enumerate(shots.names)}
    values = by_class.double().where(occurs, 0.0)
    means = {
        name: float((values * weight * occurs).sum() / (weight * occurs).sum()) for name, weight in weights.items()
    }
    return {name: None if math.isnan(mean) else mean for name, mean in means.items()}

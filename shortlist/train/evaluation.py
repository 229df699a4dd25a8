"""What a model is worth: its errors on rows that it has never seen, with sets of the size that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.data import Dataset
from shortlist.metrics import MeanAveragePrecision
from shortlist.sets import AverageK
from shortlist.targets import to_class_indices
from shortlist.train.fit import Fitted
from shortlist.train.recipes import link_of
from shortlist.train.scores import (
    is_one_class,
    metric_values,
    model_scores,
    prepared,
    refuse_unusable,
    run_metrics,
    update_metrics,
)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures by name, and the rule that made the sets.

    For one class per row ``values`` holds ``top1_error``, ``topK_error`` and ``averageK_error``: how often the class is
    missing among the best, among the K best, and in sets of K labels on average; and ``average_size``, what that
    average came to on these rows. For sets, precision, recall, F1 and nDCG at several sizes, and ``map``, the mean
    average precision of the labels that occur. ``sizes``, ``(rows,)`` int64, are those of the sets.
    """

    values: dict[str, float]
    rule: AverageK
    sizes: Tensor


def figure_names(dataset: Dataset, k: float) -> list[str]:
    """The figures of `evaluate` that can be better or worse, the one of the size that is asked for first."""
    metrics = run_metrics(one_class=is_one_class(dataset), num_labels=dataset.num_labels, k=k)
    if is_one_class(dataset):
        return [name.replace("accuracy", "error") for name in reversed(metrics)]
    sizes: tuple[int, ...] = metrics["ranking"]._ks  # pyright: ignore[reportAssignmentType]
    whole = max(1, min(round(k), dataset.num_labels))
    names = [f"{name}@{size}" for name in ("recall", "precision", "f1", "ndcg") for size in sizes]
    return [f"recall@{whole}", *(name for name in names if name != f"recall@{whole}"), "map"]


def evaluate(fitted: Fitted, dataset: Dataset, *, part: str = "test") -> Evaluation:
    """Evaluate a model on a part of the data; the threshold of its sets comes from the part ``val``.

    Args:
        fitted: of `shortlist.train.fit`.
        dataset: the data that it was trained on, with its split. Labels are the true ones, not the noisy ones.
        part: which part.

    Example:
        >>> from shortlist.data import AmbiguousWorld
        >>> from shortlist.train import FitOptions, evaluate, fit
        >>> data = AmbiguousWorld().sample(2000, seed=0)
        >>> sorted(evaluate(fit(data, FitOptions(epochs=1)), data).values)
        ['average3_error', 'average_size', 'top1_error', 'top3_error']
    """
    if fitted.plan.words is not None:
        dataset = prepared(dataset, **fitted.plan.words)
    refuse_unusable(dataset, ("val", part))
    k, n, link = fitted.options.k, dataset.num_labels, link_of(fitted.plan.loss)
    rule = AverageK(k, link=link)
    rule.fit(model_scores(fitted.model, dataset.part("val"), n), from_logits=True)
    rows = dataset.part(part)
    logits = model_scores(fitted.model, rows, n)
    inside = rule(logits)
    metrics = run_metrics(one_class=is_one_class(rows), num_labels=n, k=k)
    if is_one_class(rows):
        metrics = {name: metric for name, metric in metrics.items() if name.startswith("top")}
    else:
        metrics["map"] = MeanAveragePrecision()
    update_metrics(metrics, logits, rows.true_targets, link=link)
    values = metric_values(metrics)
    if is_one_class(rows):
        values = {name.replace("accuracy", "error"): 1 - value for name, value in values.items()}
        classes = to_class_indices(rows.true_targets, n)
        hit = inside.gather(-1, classes.unsqueeze(-1))
        values[f"average{k:g}_error"] = 1 - float(hit.double().mean())
        values["average_size"] = float(inside.sum(-1).double().mean())
    return Evaluation(values, rule, inside.sum(-1).to(torch.int64))

"""What a model is worth: its errors on rows that it has never seen, with sets of the size that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.data import Dataset
from shortlist.metrics import MeanAveragePrecision
from shortlist.recipes import loss_class
from shortlist.sets import AverageK
from shortlist.sets.scores import Link
from shortlist.targets import to_class_indices
from shortlist.train.fit import Fitted
from shortlist.train.prepared_inputs import prepared
from shortlist.train.scores import (
    is_one_class,
    metric_values,
    model_scores,
    refuse_unusable,
    run_metrics,
    update_metrics,
)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures by name, and what they were made of.

    For one class per row ``values`` holds ``top1_error``, ``topK_error`` and ``averageK_error``: how often the class is
    missing among the best, among the K best, and in sets of K labels on average; and ``average_size``, what that
    average came to on these rows. For sets, precision, recall, F1 and nDCG at several sizes, and ``map``, the mean
    average precision of the labels that occur. ``rule`` makes the sets; ``logits``, ``(rows, n)``, are of the rows that
    were evaluated, and ``val_logits`` of those that the rule was fitted on.
    """

    values: dict[str, float]
    rule: AverageK
    logits: Tensor
    val_logits: Tensor

    @property
    def sizes(self) -> Tensor:
        """Those of the sets, ``(rows,)`` int64."""
        return self.rule(self.logits).sum(-1).to(torch.int64)


def figure_names(dataset: Dataset, k: float) -> list[str]:
    """The figures of `evaluate` that can be better or worse, the one of the size that is asked for first."""
    metrics = run_metrics(one_class=is_one_class(dataset), num_labels=dataset.num_labels, k=k)
    if is_one_class(dataset):
        return [name.replace("accuracy", "error") for name in reversed(metrics)]
    sizes: tuple[int, ...] = metrics["ranking"]._ks  # pyright: ignore[reportAssignmentType]
    whole = max(1, min(round(k), dataset.num_labels))
    families = ("recall", "precision", "f1", "ndcg")
    others = [f"{name}@{size}" for name in families for size in sizes if size != whole]
    return [*(f"{name}@{whole}" for name in families), "map", *others]


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
    dataset = prepared(dataset, fitted.plan)
    refuse_unusable(dataset, ("val", part))
    rows = dataset.part(part)
    val_logits, logits = (model_scores(fitted.model, each, dataset.num_labels) for each in (dataset.part("val"), rows))
    return evaluate_scores(val_logits, logits, rows, k=fitted.options.k, link=loss_class(fitted.plan.loss).link)


def evaluate_scores(val_logits: Tensor, logits: Tensor, rows: Dataset, *, k: float, link: Link) -> Evaluation:
    """Evaluate scores, whatever they come from; see `evaluate`.

    Args:
        val_logits: of the rows that the threshold is fitted on.
        logits: ``(N, n)``, of the rows to evaluate.
        rows: these.
        k: how many labels the sets hold on average.
        link: how logits become scores that compare rows.
    """
    n, one_class = rows.num_labels, is_one_class(rows)
    rule = AverageK(k, link=link)
    rule.fit(val_logits, from_logits=True)
    metrics = run_metrics(one_class=one_class, num_labels=n, k=k)
    if one_class:
        metrics = {name: metric for name, metric in metrics.items() if name.startswith("top")}
    else:
        metrics["map"] = MeanAveragePrecision()
    update_metrics(metrics, logits, rows.true_targets, link=link)
    values = metric_values(metrics)
    if one_class:
        values = {name.replace("accuracy", "error"): 1 - value for name, value in values.items()}
        inside, classes = rule(logits), to_class_indices(rows.true_targets, n)
        values[f"average{k:g}_error"] = 1 - float(inside.gather(-1, classes.unsqueeze(-1)).double().mean())
        values["average_size"] = float(inside.sum(-1).double().mean())
    return Evaluation(values, rule, logits, val_logits)

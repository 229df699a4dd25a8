"""Metrics of a model on rows that it was not trained on, with sets of the requested size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from shortlist.data import Dataset
from shortlist.metrics import AverageKAccuracy, MeanAveragePrecision, RankingMetrics, TopKAccuracy
from shortlist.sets import AverageK
from shortlist.sets.scores import Link
from shortlist.targets import to_class_indices
from shortlist.train.inputs import is_one_class, row_batches

_FAMILIES = ("recall", "precision", "f1", "ndcg")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics by name, and the scores behind them.

    For one class per row ``values`` has ``top1_error``, ``topK_error`` and ``averageK_error``: how often the class is
    not the first, not among the first K, and not in sets of K labels on average; and ``average_size``, the average size
    on these rows. For sets it has precision, recall, F1 and nDCG at several sizes, and ``map``, the mean average
    precision over the labels that occur. ``rule`` makes the sets; ``logits``, ``(rows, n)``, belong to the evaluated
    rows, and ``val_logits`` to those that the rule was fitted on.
    """

    values: dict[str, float]
    rule: AverageK
    logits: Tensor
    val_logits: Tensor

    @property
    def sizes(self) -> Tensor:
        """The sizes of the sets, ``(rows,)`` int64."""
        return self.rule(self.logits).sum(-1).to(torch.int64)


def evaluate_scores(val_logits: Tensor, logits: Tensor, rows: Dataset, *, k: float, link: Link) -> Evaluation:
    """Evaluate scores, wherever they come from; see `shortlist.train.evaluate`.

    Args:
        val_logits: of the rows that the threshold is fitted on.
        logits: ``(N, n)``, of the rows to evaluate.
        rows: these rows.
        k: the average size of the sets.
        link: maps logits to scores that are comparable between rows.
    """
    n, one_class = rows.num_labels, is_one_class(rows)
    rule = AverageK(k, link=link)
    rule.fit(val_logits, from_logits=True)
    metrics = watched_metrics(one_class=one_class, num_labels=n, k=k)
    if one_class:
        metrics = {name: metric for name, metric in metrics.items() if name.startswith("top")}
    else:
        metrics["map"] = MeanAveragePrecision()
    update_metrics(metrics, logits, rows.true_targets, link=link)
    values = metric_values(metrics)
    if one_class:
        values = {_error_name(name): 1 - value for name, value in values.items()}
        sets, classes = rule(logits), to_class_indices(rows.true_targets, n)
        values[f"average{k:g}_error"] = 1 - float(sets.gather(-1, classes.unsqueeze(-1)).double().mean())
        values["average_size"] = float(sets.sum(-1).double().mean())
    return Evaluation(values, rule, logits, val_logits)


def metric_names(dataset: Dataset, k: float) -> list[str]:
    """Return the metrics of `shortlist.train.evaluate` that can be better or worse, those at size ``k`` first."""
    if is_one_class(dataset):
        metrics = watched_metrics(one_class=True, num_labels=dataset.num_labels, k=k)
        return [_error_name(name) for name in reversed(metrics)]
    whole, sizes = _whole_size(k, dataset.num_labels), _ranking_sizes(k, dataset.num_labels)
    others = [f"{name}@{size}" for name in _FAMILIES for size in sizes if size != whole]
    return [*(f"{name}@{whole}" for name in _FAMILIES), "map", *others]


def monitor_names(*, one_class: bool, num_labels: int, k: float) -> list[str]:
    """Return the metrics that a run can monitor, the default first."""
    if one_class:
        return list(reversed(watched_metrics(one_class=True, num_labels=num_labels, k=k)))
    sizes = _ranking_sizes(k, num_labels)
    default = f"recall@{min(sizes, key=lambda size: abs(size - k))}"
    names = [f"{name}@{size}" for name in ("precision", "recall", "f1", "ndcg") for size in sizes]
    return [default, *(name for name in names if name != default)]


def watched_metrics(*, one_class: bool, num_labels: int, k: float) -> dict[str, Metric]:
    """Return the metrics of a validation epoch, for sets of about ``k`` labels."""
    whole = _whole_size(k, num_labels)
    if one_class:
        return {
            "top1_accuracy": TopKAccuracy(1),
            f"top{whole}_accuracy": TopKAccuracy(whole),
            f"average{k:g}_accuracy": AverageKAccuracy(k),
        }
    return {"ranking": RankingMetrics(_ranking_sizes(k, num_labels))}


def update_metrics(metrics: Mapping[str, Metric], logits: Tensor, target: Tensor, *, link: str) -> None:
    """Update all metrics with a batch.

    Args:
        metrics: of `watched_metrics`.
        logits: ``(B, n)``.
        target: labels in any form.
        link: maps logits to scores that are comparable between rows, which an average size needs. A sigmoid keeps the
            order of all logits, so it is not applied.
    """
    for metric in metrics.values():
        compares_rows = isinstance(metric, AverageKAccuracy) and link == "softmax"
        metric.update(logits.softmax(-1) if compares_rows else logits, target)


def metric_values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Return the values of all metrics by name; a metric with several values names them itself."""
    values: dict[str, float] = {}
    for name, metric in metrics.items():
        value = metric.compute()
        values |= {key: float(x) for key, x in value.items()} if isinstance(value, dict) else {name: float(value)}
    return values


@torch.no_grad()
def model_scores(model: nn.Module, dataset: Dataset, num_labels: int, *, batch_size: int = 1024) -> Tensor:
    """Return the logits of all rows, ``(N, n)`` float32, in evaluation mode."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    scores = torch.empty(len(dataset), num_labels)
    for rows in row_batches(len(dataset), batch_size):
        scores[rows] = model(dataset.inputs.batch(rows).to(device)).float().cpu()
    model.train(was_training)
    return scores


def _whole_size(k: float, num_labels: int) -> int:
    return max(1, min(round(k), num_labels))


def _ranking_sizes(k: float, num_labels: int) -> list[int]:
    return sorted({1, min(5, num_labels), _whole_size(k, num_labels)})


def _error_name(accuracy: str) -> str:
    return accuracy.removesuffix("accuracy") + "error"

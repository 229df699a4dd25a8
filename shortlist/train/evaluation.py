"""Metrics of a model on rows that it was not trained on, with sets of the requested size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from shortlist.data import Dataset
from shortlist.data.target_rows import take_rows
from shortlist.errors import InputError
from shortlist.metrics import AverageKAccuracy, MeanAveragePrecision, RankingMetrics, SetCoverage, SetSize, TopKAccuracy
from shortlist.sets import AverageK
from shortlist.sets.rule import Draw
from shortlist.sets.scores import Link, apply_link
from shortlist.train.inputs import is_one_class, row_batches

_FAMILIES = ("recall", "precision", "f1", "ndcg")


# Up to this many scores are kept: comparisons look at them again, and mean average precision needs them all at once.
_MOST_KEPT = 1 << 26
# Otherwise about this many are in memory at a time.
_BLOCK_SCORES = 1 << 22


class SetQuality(NamedTuple):
    """The sets of a rule: their coverage, average size, and the share of them that are empty.

    Coverage is the share of a row's true labels in its set, averaged over rows; NaN without true labels.
    """

    coverage: float
    average_size: float
    empty: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics by name, and the scores behind them.

    For one class per row ``values`` has ``top1_error``, ``topK_error`` and ``averageK_error``: how often the class is
    not the first, not among the first K, and not in sets of K labels on average; and ``average_size``, the average size
    on these rows. For sets it has precision, recall, F1 and nDCG at several sizes, and ``map``, the mean average
    precision over the labels that occur. ``rule`` makes the sets, which ``sets`` describes; ``logits``, ``(rows, n)``,
    belong to the evaluated rows, and ``val_logits`` to those that the rule was fitted on. With more than 2²⁶ of them
    scores are evaluated block by block; then there is no ``map``, and reading them is an error.
    """

    values: dict[str, float]
    rule: AverageK
    sets: SetQuality
    scores: tuple[Tensor, Tensor] | None

    @property
    def val_logits(self) -> Tensor:
        """The scores of the validation rows."""
        return self._kept()[0]

    @property
    def logits(self) -> Tensor:
        """The scores of the evaluated rows."""
        return self._kept()[1]

    @property
    def sizes(self) -> Tensor:
        """The sizes of the sets, ``(rows,)`` int64."""
        return self.rule(self.logits).sum(-1).to(torch.int64)

    def _kept(self) -> tuple[Tensor, Tensor]:
        if self.scores is None:
            raise InputError("the scores must be at most 2^26 numbers, rows × labels, to be compared; there are more.")
        return self.scores


def evaluate_model(model: nn.Module, val: Dataset, rows: Dataset, *, k: float, link: Link) -> Evaluation:
    """Evaluate a model; see `shortlist.train.evaluate`.

    Args:
        model: maps a batch of inputs to logits.
        val: the rows that the threshold is fitted on.
        rows: the rows to evaluate.
        k: the average size of the sets.
        link: maps logits to scores that are comparable between rows.
    """
    if max(len(val), len(rows)) * rows.num_labels <= _MOST_KEPT:
        val_logits, logits = (model_scores(model, each, each.num_labels) for each in (val, rows))
        return evaluate_scores(val_logits, logits, rows, k=k, link=link)
    return Evaluation(*_evaluate(score_blocks(model, val), score_blocks(model, rows), rows, k, link), None)


def evaluate_scores(val_logits: Tensor, logits: Tensor, rows: Dataset, *, k: float, link: Link) -> Evaluation:
    """Evaluate scores, wherever they come from; see `shortlist.train.evaluate`.

    Args:
        val_logits: of the rows that the threshold is fitted on.
        logits: ``(N, n)``, of the rows to evaluate.
        rows: these rows.
        k: the average size of the sets.
        link: maps logits to scores that are comparable between rows.
    """
    values, rule, sets = _evaluate([val_logits], [logits], rows, k, link)
    if not is_one_class(rows):
        values["map"] = float(MeanAveragePrecision()(logits, rows.true_targets))
    return Evaluation(values, rule, sets, (val_logits, logits))


def _evaluate(
    val_blocks: Iterable[Tensor], blocks: Iterable[Tensor], rows: Dataset, k: float, link: Link
) -> tuple[dict[str, float], AverageK, SetQuality]:
    one_class, rule, draw, start = is_one_class(rows), AverageK(k, link=link), Draw(), 0
    for block in val_blocks:
        rule.partial_fit(block, from_logits=True)
    rule.finish()
    metrics = watched_metrics(one_class=one_class, num_labels=rows.num_labels, k=k)
    if one_class:
        metrics = {name: metric for name, metric in metrics.items() if name.startswith("top")}
    coverage, size = SetCoverage(), SetSize(rows.num_labels)
    for block in blocks:
        target = take_rows(rows.true_targets, torch.arange(start, start + len(block)))
        start += len(block)
        update_metrics(metrics, block, target, link=link)
        sets = rule.predict(block, draw=draw)
        coverage.update(sets, target)
        size.update(sets)
    values = metric_values(metrics)
    quality = SetQuality(
        float(coverage.compute()), float(size.compute()), int(size.histogram[0]) / max(int(size.histogram.sum()), 1)
    )
    if one_class:
        values = {_error_name(name): 1 - value for name, value in values.items()}
        values[f"average{k:g}_error"] = 1 - quality.coverage
        values["average_size"] = quality.average_size
    return values, rule, quality


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
    return [default, *(name for name in names if name != default), "map"]


def check_monitor_rows(monitor: str, num_rows: int, num_labels: int) -> None:
    """Raise InputError if a run cannot monitor mean average precision, which ranks all validation rows at once."""
    if monitor == "map" and num_rows * num_labels > _MOST_KEPT:
        rule = f"`monitor` map needs at most {_MOST_KEPT:,} validation scores, rows × labels"
        raise InputError(f"{rule}; got {num_rows:,} × {num_labels:,}.")


def watched_metrics(*, one_class: bool, num_labels: int, k: float, monitor: str = "") -> dict[str, Metric]:
    """Return the metrics of a validation epoch, for sets of about ``k`` labels; that of ``monitor`` is among them."""
    whole = _whole_size(k, num_labels)
    if one_class:
        return {
            "top1_accuracy": TopKAccuracy(1),
            f"top{whole}_accuracy": TopKAccuracy(whole),
            f"average{k:g}_accuracy": AverageKAccuracy(k),
        }
    # Only if asked for: it keeps all scores of the validation rows.
    ranked = {"map": MeanAveragePrecision()} if monitor == "map" else {}
    return {"ranking": RankingMetrics(_ranking_sizes(k, num_labels)), **ranked}


def update_metrics(metrics: Mapping[str, Metric], logits: Tensor, target: Tensor, *, link: Link) -> None:
    """Update all metrics with a batch.

    Args:
        metrics: of `watched_metrics`.
        logits: ``(B, n)``.
        target: labels in any form.
        link: maps logits to scores that are comparable between rows, which an average size needs: the ones by which
            the set rule makes its sets.
    """
    for metric in metrics.values():
        compares_rows = isinstance(metric, AverageKAccuracy)
        metric.update(apply_link(logits, link) if compares_rows else logits, target)


def metric_values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Return the values of all metrics by name; a metric with several values names them itself."""
    values: dict[str, float] = {}
    for name, metric in metrics.items():
        value = metric.compute()
        values |= {key: float(x) for key, x in value.items()} if isinstance(value, dict) else {name: float(value)}
    return values


def model_scores(model: nn.Module, dataset: Dataset, num_labels: int, *, batch_size: int = 1024) -> Tensor:
    """Return the logits of all rows, ``(N, n)`` float32, in evaluation mode."""
    scores, start = torch.empty(len(dataset), num_labels), 0
    for block in score_blocks(model, dataset, batch_size=batch_size):
        scores[start : start + len(block)] = block
        start += len(block)
    return scores


def score_blocks(model: nn.Module, dataset: Dataset, *, batch_size: int = 1024) -> Iterator[Tensor]:
    """Yield the logits of all rows in evaluation mode, about four million at a time, float32 on the CPU."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    try:
        for rows in row_batches(len(dataset), max(1, min(batch_size, _BLOCK_SCORES // dataset.num_labels))):
            with torch.no_grad():
                logits = model(dataset.inputs.batch(rows).to(device)).float().cpu()
            yield logits
    finally:
        model.train(was_training)


def _whole_size(k: float, num_labels: int) -> int:
    return max(1, min(round(k), num_labels))


def _ranking_sizes(k: float, num_labels: int) -> list[int]:
    return sorted({1, min(5, num_labels), _whole_size(k, num_labels)})


def _error_name(accuracy: str) -> str:
    return accuracy.removesuffix("accuracy") + "error"

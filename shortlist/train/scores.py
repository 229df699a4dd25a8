"""Which metrics a run watches, and the scores of a model on many rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from shortlist.data import Dataset
from shortlist.metrics import AverageKAccuracy, RankingMetrics, TopKAccuracy
from shortlist.targets import TargetForm, target_form

_ROWS = 1024


def is_one_class(dataset: Dataset) -> bool:
    """Whether rows have one class each, by the type of the labels."""
    return target_form(dataset.targets, dataset.num_labels) is TargetForm.CLASS_INDICES


def row_shape(dataset: Dataset) -> tuple[int, ...]:
    """The shape of a row; of the first one, where inputs are files that do not tell before they are read."""
    shape = getattr(dataset.inputs, "shape", None)
    if shape is None:
        shape = dataset.inputs.batch(torch.arange(min(len(dataset), 1))).shape[1:]
    return tuple(shape)


def run_metrics(*, one_class: bool, num_labels: int, k: float) -> dict[str, Metric]:
    """Metrics by name, for answers of about ``k`` labels."""
    whole = max(1, min(round(k), num_labels))
    if one_class:
        return {
            "top1_accuracy": TopKAccuracy(1),
            f"top{whole}_accuracy": TopKAccuracy(whole),
            f"average{k:g}_accuracy": AverageKAccuracy(k),
        }
    return {"ranking": RankingMetrics(sorted({1, min(5, num_labels), whole}))}


def metric_values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """The values of all metrics by name; a metric with several values names them itself."""
    values: dict[str, float] = {}
    for name, metric in metrics.items():
        value = metric.compute()
        values |= {key: float(x) for key, x in value.items()} if isinstance(value, dict) else {name: float(value)}
    return values


def update_metrics(metrics: Mapping[str, Metric], logits: Tensor, target: Tensor, *, link: str) -> None:
    """Show a batch to all metrics; an average size compares rows, so that is shown scores that do.

    Args:
        metrics: of `run_metrics`.
        logits: ``(B, n)``.
        target: labels in any form.
        link: the `link` of the loss. A sigmoid keeps the order of all logits, so they are shown as is.
    """
    for metric in metrics.values():
        comparing = isinstance(metric, AverageKAccuracy) and link == "softmax"
        metric.update(logits.softmax(-1) if comparing else logits, target)


def refuse_unusable(dataset: Dataset, parts: Sequence[str]) -> None:
    """Raise ValueError for a part that is missing, or has features that are not finite; reads all of its rows."""
    refuse_missing(dataset, parts)
    if dataset.inputs.kind in ("features", "sparse features"):
        for part in parts:
            for rows in dataset.part_rows(part).split(_ROWS):
                _refuse_not_finite(dataset.inputs.batch(rows), rows)


def refuse_missing(dataset: Dataset, parts: Sequence[str]) -> None:
    """Raise ValueError for a part that is not there, has no rows, or no labels."""
    there = () if dataset.split is None else dataset.split.names
    for part in parts:
        if part not in there:
            raise ValueError(f"`dataset` must have a part {part!r}; it has {', '.join(there) or 'no parts'}.")
        if not len(dataset.part_rows(part)):
            raise ValueError(f"`dataset` must have rows in the part {part!r}; it has none.")
        if not int(dataset.label_counts(part).sum()):
            raise ValueError(f"`dataset` must have labels in the part {part!r}; no row has one.")


def _refuse_not_finite(inputs: Tensor, rows: Tensor) -> None:
    if inputs.layout == torch.sparse_csr:
        bad = (~inputs.values().isfinite()).nonzero().flatten()
        first = torch.searchsorted(inputs.crow_indices(), bad[:1], right=True) - 1
    else:
        first = (~inputs.flatten(1).isfinite().all(1)).nonzero().flatten()[:1]
    if len(first):
        raise ValueError(f"`dataset` must have finite features; row {int(rows[first[0]])} has not.")


def batches_of(num_rows: int, size: int = _ROWS) -> Iterator[Tensor]:
    """Row numbers in their order, in batches."""
    yield from torch.arange(num_rows).split(size) if num_rows else ()


@torch.no_grad()
def model_scores(model: nn.Module, dataset: Dataset, num_labels: int, *, batch_size: int = _ROWS) -> Tensor:
    """Logits of all rows, ``(N, n)`` float32, in evaluation mode; the mode is as before afterwards."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    scores = torch.empty(len(dataset), num_labels)
    for rows in batches_of(len(dataset), batch_size):
        scores[rows] = model(dataset.inputs.batch(rows).to(device)).float().cpu()
    model.train(was_training)
    return scores

"""How good scores are, measured block by block with the metrics of the library."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.cli.row_progress import watched_blocks
from shortlist.cli.scores_file import Scores
from shortlist.cli.true_labels import labels_of
from shortlist.extras import require

# Up to this many scores, mean average precision is exact: it must keep all of them.
_MOST_KEPT = 1 << 26
_MOST_BINS, _FEWEST_BINS = 1000, 20


class ScoreFigures(NamedTuple):
    """Values at each k by name, and single values by name."""

    at_k: dict[str, list[float]]
    single: dict[str, float]
    absent: int  # labels that do not occur


def measure_classes(scores: Scores, target: Tensor, ks: list[int], link: str) -> ScoreFigures:
    """Top-k and average-k accuracy.

    Args:
        scores: of all rows.
        target: the class of each row.
        ks: how many labels.
        link: how logits become probabilities, which compare rows: ``softmax`` or ``sigmoid``.
    """
    from shortlist.metrics import AverageKAccuracy, TopKAccuracy

    metrics = require("torchmetrics", extra="metrics")
    micro, macro = TopKAccuracy(ks), TopKAccuracy(ks, average="macro", num_labels=scores.num_labels)
    # The two averages of one k have one state, which the collection keeps once.
    averages = [
        metrics.MetricCollection(
            {name: AverageKAccuracy(k=k, num_rows=scores.num_rows, average=name) for name in ("micro", "macro")}
        )
        for k in ks
    ]
    with watched_blocks(scores, "measuring scores") as blocks:
        for block in blocks:
            labels = labels_of(target, block)
            micro.update(block.scores, labels)
            macro.update(block.scores, labels)
            # One threshold for all rows compares scores between rows, as only probabilities can be.
            compared = _probabilities(block.scores, link) if scores.from_logits else block.scores
            for average in averages:
                average.update(compared, labels)
    found = [average.compute() for average in averages]
    # torchmetrics gives a single value without its axis.
    at_k = {
        "top_k_accuracy_micro": micro.compute().reshape(-1).tolist(),
        "top_k_accuracy_macro": macro.compute().reshape(-1).tolist(),
        "average_k_accuracy_micro": [float(values["micro"]) for values in found],
        "average_k_accuracy_macro": [float(values["macro"]) for values in found],
    }
    return ScoreFigures(at_k, {}, len(macro.absent))


def measure_label_sets(scores: Scores, target: Tensor, ks: list[int], threshold: float) -> ScoreFigures:
    """Precision, recall, F1 and nDCG at k, F1 of labels above a threshold of probability, mean average precision."""
    from shortlist.metrics import MacroF1, MeanAveragePrecision, MicroF1, RankingMetrics

    n = scores.num_labels
    ranking, by_row, by_label = RankingMetrics(ks), MeanAveragePrecision("sample"), _by_label(scores)
    micro, macro = MicroF1(threshold=threshold), MacroF1(n, threshold=threshold)
    with watched_blocks(scores, "measuring scores") as blocks:
        for block in blocks:
            labels = labels_of(target, block)
            for metric in (ranking, by_row, by_label):
                metric.update(block.scores, labels)
            probabilities = _probabilities(block.scores, "sigmoid") if scores.from_logits else block.scores
            micro.update(probabilities, labels)
            macro.update(probabilities, labels)
    values = {name: float(value) for name, value in ranking.compute().items()}
    at_k = {name: [values[f"{name}@{k}"] for k in ks] for name in ("precision", "recall", "f1", "ndcg")}
    single = {
        "micro_f1": float(micro.compute()),
        "macro_f1": float(macro.compute()),
        "map_of_rows": float(by_row.compute()),
        "map_of_labels": float(by_label.compute()),
    }
    if not isinstance(by_label, MeanAveragePrecision):
        low, high = by_label.bounds
        single |= {"map_of_labels_at_least": float(low), "map_of_labels_at_most": float(high)}
    return ScoreFigures(at_k, single, len(macro.absent))


def _by_label(scores: Scores) -> Any:
    """Mean average precision over labels: exact, or with two bounds where not all scores can be kept."""
    from shortlist.metrics import BinnedMeanAveragePrecision, MeanAveragePrecision

    if scores.num_rows * scores.num_labels <= _MOST_KEPT:
        return MeanAveragePrecision()
    bins = max(_FEWEST_BINS, min(_MOST_BINS, (_MOST_KEPT // 2) // scores.num_labels))
    return BinnedMeanAveragePrecision(scores.num_labels, bins=bins, limits=None if scores.from_logits else (0.0, 1.0))


def _probabilities(logits: Tensor, link: str) -> Tensor:
    """As the rules of ``shortlist.sets`` read logits: -inf stays, and is in no set."""
    work = logits.double() if logits.dtype == torch.float64 else logits.float()
    values = work.softmax(-1) if link == "softmax" else work.sigmoid()
    return torch.where(work == -torch.inf, -torch.inf, values)

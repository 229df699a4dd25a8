"""Metrics and set rules on a device: whether scores stay there, and what they cost beside ``torch.topk``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from benchmarks.device_cases import Batch, K
from benchmarks.device_cost import count
from shortlist import functional as F
from shortlist.sets import AverageError, AverageK, ClassConditional, PointwiseError, RecallControl, SetRule, TopK

GOAL = 3.0
"""Bytes as multiples of ``torch.topk``, which reads the scores once."""

METRICS: dict[str, Callable[[Tensor, Batch], object]] = {
    "precision_at_k": lambda x, batch: F.precision_at_k(x, batch.lists, K),
    "recall_at_k": lambda x, batch: F.recall_at_k(x, batch.lists, K),
    "ndcg_at_k": lambda x, batch: F.ndcg_at_k(x, batch.lists, K),
    "topk_accuracy": lambda x, batch: F.topk_accuracy(x, batch.target("class"), K),
    "f1_score, k": lambda x, batch: F.f1_score(x, batch.lists, k=K),
    "average_k_accuracy": lambda x, batch: F.average_k_accuracy(x, batch.target("class"), k=K),
}
RULES: dict[str, Callable[[], SetRule]] = {
    "TopK": lambda: TopK(K),
    "AverageK": lambda: AverageK(K),
    "AverageError": lambda: AverageError(0.1),
    "PointwiseError": lambda: PointwiseError(0.1),
    "ClassConditional": lambda: ClassConditional(0.1),
    "RecallControl": lambda: RecallControl(0.1),
}


def rules_and_metrics(rows: int, labels: int) -> list[dict[str, Any]]:
    """One line per metric, and per rule for its mask, its sets and its fit; on the meta device."""
    batch = Batch(rows, labels)
    x = batch.logits.detach()
    unit = count(lambda: x.topk(K), wide=batch.wide).bytes
    found = [_line(name, batch, unit, lambda metric=metric: metric(x, batch)) for name, metric in METRICS.items()]
    small = Batch(200, labels, "cpu")
    for name, make in RULES.items():
        rule = make().fit(small.logits.detach(), _labels(name, small), from_logits=True).to("meta")
        found.append(_line(f"{name}, mask", batch, unit, lambda rule=rule: rule(x)))
        found.append(_line(f"{name}, predict", batch, unit, lambda rule=rule: rule.predict(x)))
        found.append(
            _line(
                f"{name}, fit",
                batch,
                unit,
                lambda make=make, name=name: make().fit(x, _labels(name, batch), from_logits=True),
            )
        )
    return found


def _labels(rule: str, batch: Batch) -> Tensor:
    return batch.lists if rule == "RecallControl" else batch.target("class")


def _line(name: str, batch: Batch, unit: int, step: Callable[[], object]) -> dict[str, Any]:
    """What the step costs; the entries that leave the device say whether scores do."""
    entry: dict[str, Any] = {"step": name, "goal": GOAL}
    try:
        cost = count(step, wide=batch.wide)
    except Exception as error:  # the step needs values, which meta tensors have not
        return entry | {"needs_values": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    if cost.wide_reads:  # what follows runs on the host, on values that the meta device has not
        return entry | {"scores_leave": True}
    return entry | {
        "kernels": cost.kernels,
        "multiple": cost.bytes / unit,
        "float64": cost.wide_float64,
        "host_reads": cost.host_reads,
        "scores_leave": False,
    }

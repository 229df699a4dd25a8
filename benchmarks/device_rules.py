"""Metrics and set rules on a device: whether scores stay there, and what they cost beside ``torch.topk``.

Metrics are counted on the meta device. Rules read what they return, so they are counted on CPU tensors that take the
code of accelerators, with true labels that score high, as those of a trained model do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.device_cases import POSITIVES, Batch, K
from benchmarks.device_cost import Cost, count
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
ACTIONS = ("mask", "predict", "fit")


@dataclass(frozen=True)
class RuleStep:
    """What a rule does with logits or with probabilities."""

    rule: str
    action: str
    from_logits: bool

    def __str__(self) -> str:
        return f"{self.rule}, {self.action}, {'logits' if self.from_logits else 'probabilities'}"

    def run(self, batch: Batch) -> Callable[[], object]:
        """The step, with a rule that was fitted on other rows."""
        x, y, make = self._scores(batch), self._labels(batch), RULES[self.rule]
        if self.action == "fit":
            return lambda: make().fit(x, y, from_logits=self.from_logits)
        small = Batch(200, batch.labels, "cpu")
        rule = make().fit(self._scores(small), self._labels(small), from_logits=self.from_logits).to(batch.device)
        return (lambda: rule(x)) if self.action == "mask" else (lambda: rule.predict(x))

    def cost(self, rows: int, labels: int) -> Cost:
        """Its cost on values, by the code of accelerators; the same in every run."""
        with mock.patch.dict(os.environ, {"SHORTLIST_KERNELS": "device"}), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            batch = Batch(rows, labels, "cpu")
            return count(self.run(batch), wide=batch.wide)

    def _scores(self, batch: Batch) -> Tensor:
        x = batch.logits.detach()
        return x if self.from_logits else x.softmax(-1)

    def _labels(self, batch: Batch) -> Tensor:
        best = batch.logits.detach().topk(POSITIVES).indices
        return best if self.rule == "RecallControl" else best[:, 0].contiguous()


STEPS = [RuleStep(rule, action, logits) for rule in RULES for action in ACTIONS for logits in (True, False)]


def unit(rows: int, labels: int) -> int:
    """The bytes of ``torch.topk``."""
    x = Batch(rows, labels).normal()
    return count(lambda: x.topk(K), wide=x.numel()).bytes


def metric_cost(name: str, rows: int, labels: int) -> Cost:
    """What a metric costs, on the meta device."""
    batch = Batch(rows, labels)
    x = batch.logits.detach()
    METRICS[name](x, batch)  # makes the labels
    return count(lambda: METRICS[name](x, batch), wide=batch.wide)


def rules_and_metrics(rows: int, labels: int) -> list[dict[str, Any]]:
    """One line per metric, and per rule for its mask, its sets and its fit."""
    costs = {name: metric_cost(name, rows, labels) for name in METRICS}
    costs |= {str(step): step.cost(rows, labels) for step in STEPS}
    return [
        {
            "step": name,
            "goal": GOAL,
            "kernels": cost.kernels,
            "multiple": cost.bytes / unit(rows, labels),
            "float64": cost.wide_float64,
            "host_reads": cost.host_reads,
            "scores_leave": cost.wide_reads > 0,
        }
        for name, cost in costs.items()
    ]

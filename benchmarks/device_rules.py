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
from shortlist import sets
from shortlist.sets import SetRule
from shortlist.taxonomy import Taxonomy, taxonomy_from_groups

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
RULES: dict[str, Callable[[int], SetRule]] = {
    "TopK": lambda n: sets.TopK(K),
    "AverageK": lambda n: sets.AverageK(K),
    "AverageError": lambda n: sets.AverageError(0.1),
    "PointwiseError": lambda n: sets.PointwiseError(0.1),
    "SplitConformal, SAPS": lambda n: sets.SplitConformal(0.1, score=sets.SAPS(0.1)),
    "SplitConformal, Margin": lambda n: sets.SplitConformal(0.1, score=sets.Margin()),
    "SplitConformal, Entropy": lambda n: sets.SplitConformal(0.1, score=sets.Entropy()),
    "ClassConditional": lambda n: sets.ClassConditional(0.1),
    "RankCalibrated": lambda n: sets.RankCalibrated(0.1),
    "PValues": lambda n: sets.PValues(0.1),
    "CovariateShift": lambda n: sets.CovariateShift(0.1),
    "LabelShift": lambda n: sets.LabelShift(0.1),
    "GroupConditional": lambda n: sets.GroupConditional(0.1),
    "AdaptiveConformal": lambda n: sets.AdaptiveConformal(0.1),
    "OnlineConformal": lambda n: sets.OnlineConformal(0.1),
    "OnlineAverageK": lambda n: sets.OnlineAverageK(K),
    "DeepestNode": lambda n: sets.DeepestNode(0.1, genera(n)),
    "CheapestCover": lambda n: sets.CheapestCover(0.1, genera(n)),
    "SelectiveAnswers": lambda n: sets.SelectiveAnswers(0.4),
    "NoneOfThese": lambda n: sets.NoneOfThese(0.1),
    "ExpectedUtility": lambda n: sets.ExpectedUtility(sets.u65),
    "ExpectedF": lambda n: sets.ExpectedF(),
    "RecallControl": lambda n: sets.RecallControl(0.1),
    "RiskControl": lambda n: sets.RiskControl(sets.false_discovery_rate, 0.5, 0.1),
    "PerLabelThreshold": lambda n: sets.PerLabelThreshold("f1"),
}
OF_LABEL_SETS = ("ExpectedF", "RecallControl", "RiskControl", "PerLabelThreshold")
ACTIONS = ("mask", "predict", "fit")


def genera(labels: int) -> Taxonomy:
    """Genera of four labels, in families of ten genera."""
    groups = {"family": [f"f{i // 40}" for i in range(labels)], "genus": [f"g{i // 4}" for i in range(labels)]}
    return taxonomy_from_groups([str(i) for i in range(labels)], groups)


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
        x, y, rule = self._scores(batch), self._labels(batch), RULES[self.rule](batch.labels)
        if self.action == "fit":
            return lambda: rule.fit(x, y, from_logits=self.from_logits)
        small = Batch(200, batch.labels, "cpu")
        rule.fit(self._scores(small), self._labels(small), from_logits=self.from_logits).to(batch.device)
        return (lambda: rule(x)) if self.action == "mask" else (lambda: rule.predict(x))

    def cost(self, rows: int, labels: int) -> Cost:
        """Its cost on values, by the code of accelerators; the same in every run."""
        with mock.patch.dict(os.environ, {"SHORTLIST_KERNELS": "device"}), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            batch = Batch(rows, labels, "cpu")
            return count(self.run(batch), wide=batch.wide)

    def _scores(self, batch: Batch) -> Tensor:
        x = batch.logits.detach()
        if self.rule in OF_LABEL_SETS:
            x = x - 6  # a few true labels in each row
        return x if self.from_logits else x.softmax(-1)

    def _labels(self, batch: Batch) -> Tensor:
        best = batch.logits.detach().topk(POSITIVES).indices
        return best if self.rule in OF_LABEL_SETS else best[:, 0].contiguous()


STEPS = [
    RuleStep(rule, action, logits)
    for rule in RULES
    for action in ACTIONS
    for logits in (True, False)
    if logits or rule != "NoneOfThese"  # which is fitted on logits
    if action != "mask" or rule != "ExpectedF"  # without reading values it takes a square number of steps
]


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

"""What metrics and set rules cost on an accelerator: counts by the code of accelerators, which never vary."""

import pytest

from benchmarks.device_cases import Batch
from benchmarks.device_cost import count
from benchmarks.device_rules import GOAL, METRICS, RULES, STEPS, RuleStep, metric_cost, unit
from shortlist.sets.rule import _concrete_rules

ROWS, LABELS = 256, 1000
UNIT = unit(ROWS, LABELS)

F1_AT_K = 10.0
FROM_LOGITS = {"mask": 5.3, "predict": 3.9, "fit": 3.5}
"""The link takes 2, comparing 1.25, and listing what is inside 0.25; a mask must leave absent labels out, too."""
ABOVE_GOAL: dict[str, dict[str, float]] = {
    "TopK": {"mask": 7.7},
    "AverageK": {"mask": 6.8, "predict": 4.1},
    "PointwiseError": {"mask": 135, "predict": 135, "fit": 101},
    "SplitConformal, SAPS": {"mask": 135, "predict": 135, "fit": 101},
    "SplitConformal, Margin": {"mask": 13.7, "predict": 14.5, "fit": 7.6},
    "SplitConformal, Entropy": {"mask": 17.1, "predict": 18.0, "fit": 16.4},
    "RankCalibrated": {"mask": 25.5, "predict": 21.0, "fit": 12.8},
    "CovariateShift": {"mask": 5.3},
    "GroupConditional": {"mask": 5.3},
    "OnlineAverageK": {"fit": 16.9},
    "DeepestNode": {"mask": 58.5, "predict": 91, "fit": 53},
    "CheapestCover": {"mask": 33.6, "predict": 34, "fit": 8.0},
    "SelectiveAnswers": {"mask": 5.8, "predict": 10.1, "fit": 6.4},
    "NoneOfThese": {"mask": 4.8, "predict": 8.1},
    "ExpectedUtility": {"mask": 42.5, "predict": 50.5, "fit": 4.5},
    "ExpectedF": {"predict": 6500, "fit": 6.5},
    "RecallControl": {"predict": 5.0, "fit": 4.3},
    "RiskControl": {"predict": 5.0, "fit": 51.2},
    "PerLabelThreshold": {"predict": 5.0, "fit": 9.2},
}
"""Multiples of ``torch.topk`` that are not within the goal, from logits or from probabilities, which must not grow."""
FLOAT64 = {
    "PointwiseError": 21,
    "SplitConformal, SAPS": 22,
    "DeepestNode": 14,
    "ExpectedUtility": 10,
    "ExpectedF": 1975,
    "RiskControl": 10,
}
"""Kernels on wide float64 tensors: sums that must be exact or the same on every device, and utilities."""
ON_THE_CPU = {"RiskControl, fit": 2, "PerLabelThreshold, fit": 2, "DeepestNode, predict": 8}
"""Wide tensors that are read: counts of all thresholds, scores to be sorted, and sets of most of the labels."""


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_reads_nothing_and_stays_within_its_goal_or_its_known_cost(name):
    cost = metric_cost(name, ROWS, LABELS)
    assert cost.bytes <= (F1_AT_K if name == "f1_score, k" else GOAL) * UNIT, cost.bytes_of.most_common(5)
    assert (cost.host_reads, cost.uploads, cost.wide_float64, cost.wide_reads) == (0, 0, 0, 0)
    assert cost.kernels <= 70


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_rule_keeps_scores_where_they_are_and_stays_within_its_goal_or_its_known_cost(step: RuleStep):
    cost = step.cost(ROWS, LABELS)
    usual = FROM_LOGITS[step.action] if step.from_logits else GOAL
    limit = ABOVE_GOAL.get(step.rule, {}).get(step.action, usual)
    assert cost.bytes <= limit * UNIT, (cost.bytes / UNIT, cost.bytes_of.most_common(5))
    assert cost.wide_reads <= ON_THE_CPU.get(f"{step.rule}, {step.action}", 0)
    assert cost.wide_float64 <= FLOAT64.get(step.rule, 0)
    assert cost.host_reads == 0 or step.action != "mask"
    assert cost.host_reads <= 25 or step.action != "predict"


def test_every_rule_is_counted():
    names = {step.rule.split(",")[0] for step in STEPS}
    assert {rule.__name__ for rule in _concrete_rules()} <= names


READING = {"RecallControl", "RiskControl", "PerLabelThreshold", "SelectiveAnswers", "CheapestCover"}
"""Sets of labels are listed on the CPU, and a bisection ends when all rows are done."""


def test_batches_are_added_to_a_fit_without_reading_the_accelerator(monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "device")
    batch = Batch(64, 50, "cpu")
    for name, make in RULES.items():
        if name not in READING:
            rule = make(batch.labels)
            rule.partial_fit(batch.logits, batch.target("class"), from_logits=True)
            cost = count(
                lambda rule=rule: rule.partial_fit(batch.logits, batch.target("class"), from_logits=True),
                wide=batch.wide,
            )
            assert (cost.host_reads, cost.wide_reads) == (0, 0), name

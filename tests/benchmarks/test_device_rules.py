"""What metrics and set rules cost on an accelerator: counts by the code of accelerators, which never vary."""

import pytest

from benchmarks.device_rules import GOAL, METRICS, STEPS, RuleStep, metric_cost, unit

ROWS, LABELS = 256, 1000
UNIT = unit(ROWS, LABELS)

ABOVE_GOAL = {
    "f1_score, k": 10.0,
    "TopK, mask, logits": 9.7,
    "TopK, mask, probabilities": 9.7,
    "TopK, predict, logits": 3.5,
    "AverageK, mask, logits": 6.8,
    "AverageK, predict, logits": 4.3,
    "AverageK, predict, probabilities": 3.4,
    "AverageError, mask, logits": 5.2,
    "AverageError, predict, logits": 3.8,
    "ClassConditional, mask, logits": 5.2,
    "ClassConditional, predict, logits": 3.9,
    "ClassConditional, fit, logits": 3.3,
    "RecallControl, mask, logits": 5.2,
    "RecallControl, predict, logits": 5.2,
    "RecallControl, predict, probabilities": 3.1,
    "RecallControl, fit, logits": 4.3,
}
"""Multiples of ``torch.topk`` that are not within the goal yet, which must not grow; the link alone takes 2."""
POINTWISE, POINTWISE_FLOAT64 = 135.0, 23
"""The sums and the hash of `PointwiseError` are exact, which takes wide float64 tensors."""


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_reads_nothing_and_stays_within_its_goal_or_its_known_cost(name):
    cost = metric_cost(name, ROWS, LABELS)
    assert cost.bytes <= ABOVE_GOAL.get(name, GOAL) * UNIT, cost.bytes_of.most_common(5)
    assert (cost.host_reads, cost.uploads, cost.wide_float64, cost.wide_reads) == (0, 0, 0, 0)
    assert cost.kernels <= 70


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_rule_keeps_scores_where_they_are_and_stays_within_its_goal_or_its_known_cost(step: RuleStep):
    cost = step.cost(ROWS, LABELS)
    pointwise = step.rule == "PointwiseError"
    limit = POINTWISE if pointwise else ABOVE_GOAL.get(str(step), GOAL)
    assert cost.bytes <= limit * UNIT, (cost.bytes / UNIT, cost.bytes_of.most_common(5))
    assert cost.wide_reads == 0
    assert cost.wide_float64 <= (POINTWISE_FLOAT64 if pointwise else 0)
    assert cost.host_reads == 0 or step.action != "mask"


def test_batches_are_added_to_a_fit_without_reading_the_accelerator(monkeypatch):
    from benchmarks.device_cases import Batch
    from benchmarks.device_cost import count
    from benchmarks.device_rules import RULES

    monkeypatch.setenv("SHORTLIST_KERNELS", "device")
    batch = Batch(64, 50, "cpu")
    for name, make in RULES.items():
        if name != "RecallControl":  # its sets of labels are listed on the CPU
            rule = make()
            rule.partial_fit(batch.logits, batch.target("class"), from_logits=True)
            cost = count(
                lambda rule=rule: rule.partial_fit(batch.logits, batch.target("class"), from_logits=True),
                wide=batch.wide,
            )
            assert (cost.host_reads, cost.wide_reads) == (0, 0), name

"""What rules fitted on the validation rows do: advice, answers by group, calibration after temperature scaling."""

from dataclasses import replace

import pytest
import torch

from shortlist.data import AmbiguousWorld, Dataset, Groups
from shortlist.functional import brier_score, calibration_error
from shortlist.sets import AverageK, DeepestNode, MissGoal, SizeGoal, choose_rule
from shortlist.train.comparison.reliability import label_reliability, recalibrated
from shortlist.train.comparison.rule_findings import group_answers, rule_advice
from shortlist.train.evaluation import Evaluation, evaluate_scores
from tests.train.comparison.test_findings import SETS, found, of_targets

WORLD = AmbiguousWorld(4, (2, 4), dim=4)


@pytest.fixture(scope="module")
def measured() -> tuple[Evaluation, Dataset, Dataset]:
    """Overconfident logits, the evaluated rows and the validation rows."""
    val, test = (WORLD.sample(1500, seed=seed, split=None) for seed in (1, 2))
    logits = [3 * WORLD.probabilities(each.batch(range(1500)).inputs).log() for each in (val, test)]
    return evaluate_scores(*logits, test, k=2, link="softmax"), test, val


def test_advice_is_that_of_choose_rule_on_the_validation_rows(measured):
    evaluation, _, val = measured
    size, error = rule_advice(evaluation, val)
    probs = evaluation.val_logits.softmax(-1)
    for advice, goal in ((size, SizeGoal(2)), (error, MissGoal(0.1))):
        choice = choose_rule(probs, val.targets, goal=goal, from_logits=False, one_class=True)
        assert (advice.best, advice.reason) == (choice.best, choice.reason)
        assert [each.missed for each in advice.rules] == [each.missed for each in choice.figures]
    assert [each.rule for each in size.rules] == ["top-k", "average-k"]


def test_answers_by_group_miss_as_promised_and_say_what_they_name(measured):
    evaluation, test, val = measured
    rule = AverageK(2).fit(evaluation.val_logits.softmax(-1), from_logits=False)
    groups = group_answers(evaluation, test, val, rule)
    assert groups.groups == ["superclass"]
    assert abs(groups.error - 0.1) < 3 * (0.1 * 0.9 / 1500 * 2) ** 0.5
    assert sum(groups.named.values()) == pytest.approx(1)
    deepest = DeepestNode(0.1, test.taxonomy()).fit(evaluation.val_logits.softmax(-1), val.targets, from_logits=False)
    named = deepest.predict_nodes(evaluation.logits.softmax(-1), generator=torch.Generator().manual_seed(0)).labels
    assert groups.named["one label"] == (named < test.num_labels).double().mean()
    assert groups.precision is not None
    assert groups.recall is not None
    assert groups.precision < groups.recall  # Two labels for one, most of them of the right group.


@pytest.mark.parametrize("case", ["no groups", "groups that overlap", "sets of labels"])
def test_without_nested_groups_of_one_class_there_are_no_such_answers(measured, case):
    evaluation, test, val = measured
    rule = AverageK(2).fit(evaluation.val_logits.softmax(-1), from_logits=False)
    if case == "no groups":
        test = replace(test, label_groups={})
    elif case == "groups that overlap":
        halves = Groups.of([f"half {label % 2}" for label in range(test.num_labels)])
        test = replace(test, label_groups={**test.label_groups, "half": halves})
    else:
        evaluation, rules, _ = found(SETS, link="sigmoid")
        test, val, rule = SETS, SETS, rules[2]
    assert group_answers(evaluation, test, val, rule) is None


def test_temperature_scaling_mends_overconfident_probabilities(measured):
    evaluation, test, val = measured
    probs = evaluation.logits.softmax(-1)
    before, after = label_reliability(probs, test), recalibrated(evaluation, test, val)
    assert after.error < before.error / 3
    assert after.top_error < before.top_error / 3
    assert after.adaptive_error < before.adaptive_error / 3
    assert after.brier < before.brier
    assert before.top_error == pytest.approx(float(calibration_error(probs, test.targets)))
    assert before.adaptive_error == pytest.approx(float(calibration_error(probs, test.targets, binning="mass")))
    assert before.brier == pytest.approx(float(brier_score(probs, test.targets)))


def test_softmax_probabilities_of_sets_are_not_recalibrated_and_nothing_without_labels():
    evaluation, _, findings = found(SETS, link="softmax")
    assert findings.recalibrated is None
    assert found(SETS, link="sigmoid")[2].recalibrated is not None
    unlabelled = of_targets(torch.zeros(4, 4))
    assert recalibrated(evaluation, SETS, unlabelled) is None
    assert rule_advice(evaluation, unlabelled) == []

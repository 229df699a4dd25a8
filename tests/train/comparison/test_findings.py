"""What a report shows about scores: every number counted again by hand on a few rows."""

import json
from dataclasses import replace

import pytest
import torch

from shortlist.comparison_document import ClassAccuracy, Confusion, ErrorControl, LabelRows
from shortlist.data import AmbiguousWorld, Dataset, Features, Groups
from shortlist.functional import brier_score, calibration_error
from shortlist.sets import AverageError, AverageK, DeepestNode, MissGoal, SizeGoal, choose_rule
from shortlist.train.comparison.findings import (
    Shots,
    answers,
    fitted_rules,
    group_answers,
    label_reliability,
    label_rows,
    positive_pairs,
    rarest_shot,
    recalibrated,
    rule_advice,
    set_findings,
    shown_labels,
    size_grid,
)
from shortlist.train.evaluation import Evaluation, evaluate_scores
from shortlist.typed_json import encode

NAMES = tuple("abcd")


LOGITS = torch.tensor(
    [
        [4.0, 1.0, 0.0, -1.0],
        [0.5, 0.4, 0.3, 0.2],
        [0.0, 3.0, 2.0, 1.0],
        [1.0, 0.0, 2.0, -3.0],
    ]
)


def of_targets(targets: torch.Tensor) -> Dataset:
    rows = len(targets)
    return Dataset(Features(torch.zeros(rows, 1)), targets, NAMES, split=Groups.of(["test"] * rows))


CLASSES = of_targets(torch.tensor([0, 3, 2, 2]))


SETS = of_targets(torch.tensor([[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 1, -1]]).float())


COUNTS = torch.tensor([200, 50, 5, 1])


def found(rows: Dataset, *, k: float = 2, link="softmax", counts=COUNTS, logits=LOGITS):
    evaluation = evaluate_scores(logits, logits, rows, k=k, link=link)
    rules = fitted_rules(evaluation, size_grid(k, len(NAMES)))
    return evaluation, rules, set_findings(evaluation, rows, rows, counts, rules, k=k)


def test_sizes_of_a_slider_rise_and_hold_the_one_that_was_asked_for():
    for k, n in ((1, 2), (3, 89), (2.5, 89), (8, 1428), (80, 9000), (0.5, 10), (7, 7), (300, 301)):
        grid = size_grid(k, n)
        assert k in grid
        assert grid == sorted(set(grid))
        assert 0 < grid[0] <= grid[-1] <= n
        assert len(grid) <= 101
        if k <= 50:
            assert set(range(1, min(n, max(10, round(2 * k))) + 1)) <= set(grid)


def test_shots_have_the_bounds_of_the_literature():
    shots = Shots.of_counts(torch.tensor([101, 100, 20, 19, 0]))
    assert [shots.names[code] for code in shots.of_label] == ["many", "medium", "medium", "few", "few"]


def test_a_row_belongs_to_the_shot_of_its_rarest_label():
    at, labels = positive_pairs(SETS)
    assert rarest_shot(Shots.of_counts(COUNTS), at, labels, 4).tolist() == [1, 2, -1, 2]


def test_unknown_labels_are_no_true_ones():
    at, labels = positive_pairs(SETS)
    assert list(zip(at.tolist(), labels.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 3), (3, 0), (3, 2)]


def test_unknown_labels_take_no_place_among_the_best():
    logits = LOGITS.clone()
    logits[3, 3] = 9.0  # The unknown label of the last row, which would be its best one.
    with_unknown = found(SETS, link="sigmoid", logits=logits)[2].by_k[0].top_error
    assert with_unknown == found(SETS, link="sigmoid")[2].by_k[0].top_error


def test_errors_and_sizes_are_those_of_the_sets():
    _, rules, findings = found(CLASSES)
    chances = LOGITS.softmax(-1)
    for rule, at_size in zip(rules.values(), findings.by_k, strict=True):
        inside = rule(chances)
        sizes = inside.sum(-1)
        assert at_size.average_size == pytest.approx(float(sizes.double().mean()))
        assert at_size.histogram["all"] == torch.bincount(sizes, minlength=int(sizes.max()) + 1).tolist()
        hits = [bool(inside[row, label]) for row, label in enumerate([0, 3, 2, 2])]
        assert at_size.error == pytest.approx(1 - sum(hits) / 4)
        assert at_size.error_by_shot == pytest.approx({"many": 1 - hits[0], "few": 1 - sum(hits[1:]) / 3})
        assert at_size.empty == pytest.approx(float((sizes == 0).double().mean()))


def test_answers_with_k_labels_take_the_best_ones():
    findings = found(CLASSES)[2]
    assert [at_size.top_error for at_size in findings.by_k] == [0.5, 0.25, 0.25, 0]
    assert found(CLASSES, k=1.5)[2].by_k[1].top_error is None


def test_the_error_of_sets_is_the_share_that_is_missing_over_rows_with_labels():
    findings = found(SETS, link="sigmoid")[2]
    # The best label of each row: row 0 has one of its two, row 1 none, row 3 one of its two; row 2 has no label.
    assert findings.by_k[0].top_error == pytest.approx(1 - (0.5 + 0 + 0.5) / 3)
    assert sum(findings.by_k[0].histogram["all"]) == 4
    assert sum(sum(findings.by_k[0].histogram[name]) for name in ("medium", "few")) == 3


def test_classes_tell_how_often_their_rows_are_answered_and_nothing_where_there_are_none():
    _, rules, findings = found(CLASSES)
    inside = rules[2](LOGITS.softmax(-1))
    wanted = [float(inside[0, 0]), None, float(inside[2:, 2].double().mean()), float(inside[1, 3])]
    assert findings.classes == ClassAccuracy(COUNTS.tolist(), wanted)


def test_calibration_counts_every_label_once_and_is_perfect_for_the_truth():
    findings = found(CLASSES)[2].calibration
    assert sum(each.pairs for each in findings.bins) == LOGITS.numel()
    assert sum(each.pairs * each.observed for each in findings.bins) == pytest.approx(4)
    assert sum(each.pairs * each.predicted for each in findings.bins) == pytest.approx(4, rel=1e-6)
    torch.manual_seed(0)
    chances = torch.rand(20_000, 4).pow(3).double()
    chances /= chances.sum(-1, keepdim=True)
    drawn = of_targets(chances.multinomial(1, generator=torch.Generator().manual_seed(1))[:, 0])
    truth, guess = (found(drawn, logits=x)[2].calibration.error for x in (chances.log(), 3 * chances.log()))
    assert truth < 0.02 < 0.15 < guess


def test_calibration_leaves_out_labels_that_are_not_known():
    bins = found(SETS, link="sigmoid")[2].calibration.bins
    assert sum(each.pairs for each in bins) == LOGITS.numel() - 1
    assert sum(each.pairs * each.observed for each in bins) == pytest.approx(5)
    known = LOGITS.double().sigmoid().sum() - LOGITS[3, 3].double().sigmoid()
    assert sum(each.pairs * each.predicted for each in bins) == pytest.approx(float(known), rel=1e-6)


def test_curves_go_with_the_sizes_and_fall():
    curves = found(CLASSES)[2].curves
    assert curves.sizes == [1, 1.5, 2, 2.5, 3, 3.5, 4]
    for errors in curves.errors.values():
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] == pytest.approx(0)


def test_answers_name_the_best_labels_first_with_the_sizes_of_their_sets():
    evaluation, rules, findings = found(CLASSES)
    shown = answers(evaluation, torch.tensor([3, 0]), NAMES, rules)
    assert [each.labels for each in shown] == [list("cabd"), list("abcd")]
    assert shown[1].scores == pytest.approx(LOGITS[0].softmax(-1).tolist(), abs=1e-5)
    sizes = [rule(LOGITS.softmax(-1)).sum(-1)[3].item() for rule in rules.values()]
    assert shown[0].sizes == sizes
    json.dumps(encode([findings, shown]), allow_nan=False)


def test_conformal_sets_are_calibrated_on_the_validation_rows_and_measured_on_others():
    world = AmbiguousWorld(4, (2, 4), dim=4)
    val, test = (world.sample(2000, seed=seed, split=None) for seed in (1, 2))
    logits = [world.probabilities(each.batch(range(2000)).inputs).log() for each in (val, test)]
    evaluation = evaluate_scores(*logits, test, k=2, link="softmax")
    counts = torch.full((world.num_labels,), 30)
    control = set_findings(evaluation, test, val, counts, fitted_rules(evaluation, [2]), k=2).error_control
    rule = AverageError(0.1).fit(logits[0].exp(), val.targets, from_logits=False)
    sets = rule(logits[1].exp())
    missed = 1 - sets.gather(1, test.targets[:, None]).double().mean()
    assert control == ErrorControl(0.1, pytest.approx(float(missed)), pytest.approx(float(sets.sum(1).double().mean())))
    assert abs(control.error - 0.1) < 3 * (0.1 * 0.9 / 2000 * 2) ** 0.5


def test_conformal_sets_of_label_sets_bound_the_share_that_is_missing_and_need_a_true_label():
    control = found(SETS, link="sigmoid")[2].error_control
    assert control.error <= 0.1  # On the rows of the calibration, never more.
    evaluation, rules, _ = found(SETS, link="sigmoid")
    unlabelled = of_targets(torch.zeros(4, 4))
    assert set_findings(evaluation, SETS, unlabelled, COUNTS, rules, k=2).error_control is None


def test_labels_that_occur_are_shown_and_the_most_frequent_come_first():
    assert shown_labels(CLASSES).tolist() == [2, 0, 3]
    assert shown_labels(SETS).tolist() == [0, 1, 2, 3]
    parts = replace(CLASSES, split=Groups.of(["train", "test", "test", "test"]))
    assert label_rows(parts, "test") == [
        LabelRows("c", training=0, evaluated=2), LabelRows("d", training=0, evaluated=1),
    ]  # fmt: skip


def test_recall_and_size_are_means_over_the_rows_of_a_label():
    _, rules, findings = found(CLASSES)
    sets = findings.labels
    for at, rule in enumerate(rules.values()):
        inside = rule(LOGITS.softmax(-1))
        assert sets.recall[at][0] == pytest.approx(float(inside[2:, 2].double().mean()), abs=1e-3)
        assert sets.size[at][0] == pytest.approx(float(inside[2:].sum(-1).double().mean()), abs=1e-3)


def test_a_label_is_confused_with_wrong_ones_that_outrank_it():
    # Label c is second to b in one of its two rows; d is last behind all others in its only row.
    sets = found(CLASSES)[2].labels
    assert sets.confused[0] == [Confusion("b", 0.5)]
    assert sets.confused[1] == []
    assert sets.confused[2] == [Confusion("a", 1.0), Confusion("b", 1.0), Confusion("c", 1.0)]


def test_true_and_unknown_labels_are_never_called_wrong():
    # In the last row a and c are true and d is unknown; only b could outrank them, and does not.
    logits = LOGITS.clone()
    logits[3, 3] = 9.0
    sets = found(SETS, link="sigmoid", logits=logits)[2].labels
    assert sets.confused[0] == sets.confused[2] == []
    assert torch.tensor(sets.recall).max() <= 1


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

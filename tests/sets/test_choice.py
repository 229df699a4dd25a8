"""Choosing a rule: what is recommended, on which rows it is measured, and what is refused."""

import pytest
import torch

from shortlist.sets import AverageError, AverageK, ClassConditional, RankCalibrated, TopK
from shortlist.sets.choice import LEAST_ROWS, MissGoal, SizeGoal, choose_rule
from tests.sets.worlds import ambiguous_probs, draw, multilabel, seeded

ROWS = 3000


def ambiguous(rows=ROWS, seed=0):
    generator = seeded(seed)
    probs = ambiguous_probs(rows, generator)
    return probs, draw(probs, generator)


def choose(goal, *, rows=ROWS, seed=0, **options):
    probs, classes = ambiguous(rows, seed)
    return choose_rule(probs, classes, goal=goal, from_logits=False, one_class=True, **options)


def test_average_k_wins_where_some_rows_are_harder_than_others():
    choice = choose(SizeGoal(3))
    assert choice.best == "average-k"
    assert isinstance(choice.rule, AverageK)
    assert "percentage points less than top-k" in choice.reason
    assert [each.name for each in choice.figures] == ["top-k", "average-k"]


def test_the_simpler_rule_is_preferred_where_the_difference_may_be_luck():
    probs = torch.rand(200, 5, generator=seeded(0)).softmax(-1)
    choice = choose_rule(probs, draw(probs, seeded(1)), goal=SizeGoal(2), from_logits=False, one_class=True)
    assert choice.best == "top-k"
    assert choice.reason.endswith("average-k is not clearly better, and top-k is simpler.")


def test_the_smallest_sets_that_keep_the_error_win():
    choice = choose(MissGoal(0.1))
    assert choice.best == "average-error"
    sizes = {each.name: each.size for each in choice.figures}
    assert min(sizes, key=sizes.__getitem__) == choice.best
    assert all(each.missed <= 0.1 + 2 * each.missed_error for each in choice.figures)


def test_a_rule_that_breaks_the_goal_is_not_recommended():
    choice = choose(MissGoal(0.1), candidates={"one": TopK(1), "error": AverageError(0.1)})
    assert choice.figures[0].size < choice.figures[1].size
    assert choice.best == "error"
    assert choice.reason == "error is the only one that keeps at most 10.0% missed."


def test_if_none_keeps_the_goal_the_closest_is_named():
    choice = choose(MissGoal(0.01), candidates={"one": TopK(1), "two": TopK(2)})
    assert choice.best == "two"
    assert choice.reason == "No rule keeps at most 1.0% missed on the second half; two comes closest."


def test_within_classes_only_rules_that_promise_it_are_fitted():
    choice = choose(MissGoal(0.2, per_class=True))
    assert {type(each.rule) for each in choice.figures} == {ClassConditional, RankCalibrated}
    assert "keeps at most 20.0% missed in every class" in choice.reason


def test_figures_are_those_of_the_rows_that_were_not_fitted_on():
    probs, classes = ambiguous()
    choice = choose_rule(probs, classes, goal=SizeGoal(3), from_logits=False, one_class=True, seed=5)
    order = torch.randperm(ROWS, generator=seeded(5))
    first, second = order[: ROWS // 2].sort().values, order[ROWS // 2 :].sort().values
    rule = AverageK(3).fit(probs[first], from_logits=False)
    sets = rule.predict(probs[second])
    found = choice.figures[1]
    assert torch.equal(found.rule.threshold, rule.threshold)
    assert found.size == pytest.approx(float(sets.sizes.double().mean()))
    assert found.missed == pytest.approx(1 - float(sets.contains(classes[second]).double().mean()))
    assert found.empty == pytest.approx(float((sets.sizes == 0).double().mean()))


def test_the_worst_class_and_the_worst_group_have_enough_rows():
    probs, classes = ambiguous()
    groups = torch.zeros(ROWS, dtype=torch.int64)
    hard = probs.max(-1).values < 0.3
    groups[hard] = 1
    groups[:5] = 2  # too few to be called the worst
    choice = choose_rule(probs, classes, goal=SizeGoal(2), from_logits=False, one_class=True, groups=groups)
    top = choice.figures[0]
    assert top.worst_group.index == 1
    assert top.worst_group.missed > top.missed
    assert top.worst_class.rows >= LEAST_ROWS
    assert top.worst_class.missed > top.missed
    assert choose(SizeGoal(2), rows=60).figures[0].worst_class is None


def test_label_sets_have_their_own_candidates():
    logits, labels = multilabel(2000, 12, seeded(0), rate=0.3)
    choice = choose_rule(logits, labels, goal=SizeGoal(3), from_logits=True, one_class=False)
    assert [each.name for each in choice.figures] == ["top-k", "average-k", "per-label"]
    assert choice.rule.link == "sigmoid"
    choice = choose_rule(logits, labels, goal=MissGoal(0.2), from_logits=True, one_class=False)
    assert choice.best == "recall-control"
    assert choice.figures[0].missed == pytest.approx(0.2, abs=0.05)


def test_rows_without_labels_count_for_the_size_but_not_for_the_error():
    scores = torch.rand(100, 4, generator=seeded(0))
    labels = torch.full((100, 1), -1)
    labels[::2, 0] = scores[::2].argmax(-1)
    choice = choose_rule(scores, labels, goal=SizeGoal(1), from_logits=False, one_class=False)
    assert choice.figures[0].missed == 0


def test_the_table_marks_the_recommended_rule():
    lines = str(choose(SizeGoal(2.5))).splitlines()
    assert lines[0].split() == ["labels", "missed", "worst", "class", "empty"]
    assert "worst group" in str(choose(SizeGoal(2.5), groups=torch.zeros(ROWS, dtype=torch.int64)))
    assert lines[1].startswith("* average-k")
    assert lines[-1] == "average-k is the only candidate that keeps about 2.5 labels per row."


def test_forms_of_other_libraries_give_the_same_choice():
    probs, classes = ambiguous(400)
    first = choose_rule(probs, classes, goal=SizeGoal(2), from_logits=False, one_class=True)
    other = choose_rule(probs.numpy(), classes.tolist(), goal=SizeGoal(2), from_logits=False, one_class=True)
    assert str(first) == str(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": SizeGoal(99)}, "`k` must"),
        ({"candidates": {}}, "`candidates` must hold at least one rule; got none."),
        ({"groups": [0, 1]}, r"`groups` must be 50 integers, at least 0; got torch.int64 \(2,\)."),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "`labels` must have one row per row of scores, 50; got 3."),
        ({"scores": torch.zeros(1, 4)}, r"`scores` must have shape \(rows, labels\) with at least 2 rows"),
        ({"labels": torch.full((50, 2), -1), "one_class": False}, "`labels` must hold at least one true label."),
        ({"goal": MissGoal(0.1, per_class=True), "one_class": False}, "`goal` must have per_class=False"),
    ],
)
def test_bad_input_is_one_sentence(options, message):
    scores, labels = torch.rand(50, 4, generator=seeded(0)), torch.arange(50) % 4
    given = {"scores": scores, "labels": labels, "goal": SizeGoal(2), "one_class": True, **options}
    with pytest.raises(ValueError, match=message):
        choose_rule(given.pop("scores"), given.pop("labels"), from_logits=False, **given)


@pytest.mark.parametrize("make", [lambda: MissGoal(0.0), lambda: MissGoal(1.0), lambda: SizeGoal(0)])
def test_goals_are_checked_when_they_are_made(make):
    with pytest.raises(ValueError, match=r"`(alpha|k)` must"):
        make()

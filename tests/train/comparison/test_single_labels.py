"""What a report shows about single labels, counted again by hand on a few rows."""

from dataclasses import replace

import pytest
import torch

from shortlist.comparison_document import Confusion, LabelRows
from shortlist.data import Groups
from shortlist.train.comparison.findings import fitted_rules
from shortlist.train.comparison.single_labels import label_rows, label_sets, shown_labels
from shortlist.train.evaluation import evaluate_scores
from tests.train.comparison.test_findings import CLASSES, LOGITS, SETS


def found(rows, *, link="softmax"):
    evaluation = evaluate_scores(LOGITS, LOGITS, rows, k=2, link=link)
    rules = fitted_rules(evaluation, [1, 2])
    return rules, label_sets(evaluation, rows, rules)


def test_labels_that_occur_are_shown_and_the_most_frequent_come_first():
    assert shown_labels(CLASSES).tolist() == [2, 0, 3]
    assert shown_labels(SETS).tolist() == [0, 1, 2, 3]
    parts = replace(CLASSES, split=Groups.of(["train", "test", "test", "test"]))
    assert label_rows(parts, "test") == [
        LabelRows("c", training=0, evaluated=2), LabelRows("d", training=0, evaluated=1),
    ]  # fmt: skip


def test_recall_and_size_are_means_over_the_rows_of_a_label():
    rules, sets = found(CLASSES)
    for at, rule in enumerate(rules.values()):
        inside = rule(LOGITS.softmax(-1))
        assert sets.recall[at][0] == pytest.approx(float(inside[2:, 2].double().mean()), abs=1e-3)
        assert sets.size[at][0] == pytest.approx(float(inside[2:].sum(-1).double().mean()), abs=1e-3)


def test_a_label_is_confused_with_wrong_ones_that_outrank_it():
    # Label c is second to b in one of its two rows; d is last behind all others in its only row.
    _, sets = found(CLASSES)
    assert sets.confused[0] == [Confusion("b", 0.5)]
    assert sets.confused[1] == []
    assert sets.confused[2] == [Confusion("a", 1.0), Confusion("b", 1.0), Confusion("c", 1.0)]


def test_true_and_unknown_labels_are_never_called_wrong():
    # In the last row a and c are true and d is unknown; only b could outrank them, and does not.
    logits = LOGITS.clone()
    logits[3, 3] = 9.0
    evaluation = evaluate_scores(logits, logits, SETS, k=2, link="sigmoid")
    sets = label_sets(evaluation, SETS, fitted_rules(evaluation, [1]))
    assert sets.confused[0] == sets.confused[2] == []
    assert torch.tensor(sets.recall).max() <= 1

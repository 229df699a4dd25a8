"""Bad input is one clear error, and the smallest valid input works."""

import math

import pytest
import torch

from shortlist.sets import (
    AverageError,
    AverageK,
    ClassConditional,
    PerLabelThreshold,
    PointwiseError,
    RecallControl,
    TopK,
    tradeoff,
)
from tests.sets.rules import LABELS, RULES, WITH_ALPHA, Rule

each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
needing_labels = pytest.mark.parametrize("rule", [rule for rule in RULES if rule.wants != "none"], ids=str)


@each_rule
def test_what_scores_are_must_be_said(rule: Rule):
    logits, labels = rule.data()
    with pytest.raises(TypeError, match="from_logits"):
        rule.make().fit(logits, labels)
    with pytest.raises(TypeError, match="from_logits"):
        rule.make().partial_fit(logits, labels)


def test_what_scores_are_must_be_said_for_a_tradeoff():
    with pytest.raises(TypeError, match="from_logits"):
        tradeoff(torch.ones(2, 3), torch.tensor([0, 1]))


@needing_labels
def test_labels_that_are_needed_are_asked_for(rule: Rule):
    with pytest.raises((TypeError, ValueError), match="labels"):
        rule.make().fit(rule.data()[0], from_logits=True)


@each_rule
def test_a_rule_that_is_not_fitted_says_so(rule: Rule):
    logits, labels = rule.data()
    for call in (rule.make(), rule.make().predict):
        with pytest.raises((RuntimeError, ValueError), match="fit"):
            call(logits)
    started = rule.make()
    started.partial_fit(logits, labels, from_logits=True)
    with pytest.raises((RuntimeError, ValueError), match=r"finish|fit"):
        started.predict(logits)


@each_rule
def test_another_number_of_labels_is_refused(rule: Rule):
    fitted = rule.fitted()
    for call in (fitted, fitted.predict):
        with pytest.raises(ValueError, match=rf"{LABELS}.*{LABELS + 1}"):
            call(torch.zeros(3, LABELS + 1))


@each_rule
@pytest.mark.parametrize("from_logits", [True, False])
def test_nan_is_named_with_its_row(rule: Rule, from_logits):
    logits, labels = rule.data()
    bad = logits.clone() if from_logits else rule.probs(logits)
    bad[17, 2] = math.nan
    with pytest.raises(ValueError, match="17"):
        rule.make().fit(bad, labels, from_logits=from_logits)
    with pytest.raises(ValueError, match="17"):
        rule.fitted(from_logits=from_logits).predict(bad)


@each_rule
def test_no_calibration_rows_are_an_error(rule: Rule):
    logits, labels = rule.data()
    with pytest.raises(ValueError, match="row"):
        rule.make().fit(logits[:0], None if labels is None else labels[:0], from_logits=True)


@each_rule
def test_no_labels_at_all_are_an_error(rule: Rule):
    labels = {"none": None, "classes": torch.zeros(4, dtype=torch.int64), "sets": torch.zeros(4, 0)}[rule.wants]
    with pytest.raises(ValueError):  # noqa: PT011 -- which argument is to blame depends on the rule
        rule.make().fit(torch.zeros(4, 0), labels, from_logits=True)


@each_rule
def test_scores_must_be_a_floating_matrix(rule: Rule):
    logits, labels = rule.data()
    with pytest.raises((TypeError, ValueError), match="scores"):
        rule.make().fit(logits.long(), labels, from_logits=True)
    with pytest.raises((TypeError, ValueError), match="scores"):
        rule.make().fit(logits[0], labels, from_logits=True)
    with pytest.raises((TypeError, ValueError), match="scores"):
        rule.make().fit(logits.tolist(), labels, from_logits=True)


@needing_labels
def test_labels_out_of_range_or_too_few_are_refused(rule: Rule):
    logits, labels = rule.data()
    assert labels is not None
    with pytest.raises(ValueError, match=r"119|120"):
        rule.make().fit(logits, labels[:-1], from_logits=True)
    wrong = torch.full((120, 1), LABELS) if rule.wants == "sets" else torch.full((120,), LABELS)
    with pytest.raises(ValueError, match=str(LABELS)):
        rule.make().fit(logits, wrong, from_logits=True)


@pytest.mark.parametrize("make", WITH_ALPHA)
@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, math.nan, math.inf])
def test_alpha_lies_strictly_between_0_and_1(make, alpha):
    with pytest.raises(ValueError, match="`alpha`"):
        make(alpha)


@pytest.mark.parametrize("k", [-1, -0.5, math.nan, math.inf])
def test_k_is_a_number_of_labels(k):
    with pytest.raises(ValueError, match="`k`"):
        AverageK(k)
    with pytest.raises(ValueError, match="`k`"):
        PerLabelThreshold("average-size", k=k)
    with pytest.raises((TypeError, ValueError), match="`k`"):
        TopK(k)


def test_k_of_top_k_is_whole_and_no_more_than_there_are_labels():
    with pytest.raises((TypeError, ValueError), match="`k`"):
        TopK(1.5)  # pyright: ignore
    with pytest.raises(ValueError, match=r"`k`.*4"):
        TopK(4).fit(torch.ones(2, 3), from_logits=False)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PointwiseError(0.1, penalty=-1), "penalty"),
        (lambda: PointwiseError(0.1, penalty=math.nan), "penalty"),
        (lambda: PointwiseError(0.1, free=-1), "free"),
        (lambda: ClassConditional(0.1, clusters=0), "clusters"),
        (lambda: ClassConditional(0.1, min_count=-1), "min_count"),
        (lambda: PerLabelThreshold("accuracy"), "objective"),
        (lambda: PerLabelThreshold("average-size"), "k"),
        (lambda: PerLabelThreshold("f1", k=3), "k"),
        (lambda: PerLabelThreshold(prior=-1), "prior"),
        (lambda: PerLabelThreshold(prior=math.nan), "prior"),
        (lambda: AverageError(0.1, link="probit"), "link"),
        (lambda: RecallControl(0.1, min_size=-1), "min_size"),
        (lambda: AverageK(1, rows=0), "rows"),
        (lambda: AverageK(1, rows=-3), "rows"),
    ],
)
def test_options_outside_their_range_are_named(make, match):
    with pytest.raises(ValueError, match=f"`{match}`"):
        make()


@each_rule
def test_min_size_is_a_number_of_labels_that_there_are(rule: Rule):
    with pytest.raises(ValueError, match="`min_size`"):
        rule.make(min_size=-1)
    with pytest.raises(ValueError, match="`min_size`"):
        rule.fitted(min_size=LABELS + 1)


def test_options_are_given_by_name():
    with pytest.raises(TypeError):
        AverageError(0.1, "sigmoid")  # pyright: ignore
    with pytest.raises(TypeError):
        PointwiseError(0.1, False)  # pyright: ignore


@each_rule
def test_one_row_is_enough_to_fit(rule: Rule):
    logits, _ = rule.data(1)
    labels = {"none": None, "classes": torch.tensor([3]), "sets": torch.tensor([[3]])}[rule.wants]
    fitted = rule.make().fit(logits, labels, from_logits=True)
    assert fitted(logits).shape == (1, LABELS)
    assert len(fitted.predict(logits)) == 1


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name != "top-k"], ids=str)
def test_one_label_is_enough_to_answer(rule: Rule):
    scores = torch.linspace(0.01, 0.99, 50)[:, None]
    labels = {"none": None, "classes": torch.zeros(50, dtype=torch.int64), "sets": (scores > 0.5).float()}[rule.wants]
    fitted = rule.make().fit(scores, labels, from_logits=False)
    assert fitted.predict(scores).to_mask().shape == (50, 1)
    assert rule.make(min_size=1).fit(scores, labels, from_logits=False)(scores).all()

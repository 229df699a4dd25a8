"""Bad input is one clear error and leaves no trace, and the smallest valid input works."""

import math

import pytest
import torch

from shortlist.sets import (
    AverageError,
    AverageK,
    ClassConditional,
    PerLabelThreshold,
    PointwiseError,
    PredictionSets,
    TopK,
    tradeoff,
)
from tests.sets.rules import LABELS, ON_A_TAXONOMY, RULES, WITH_ALPHA, Rule

each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
needing_labels = pytest.mark.parametrize("rule", [rule for rule in RULES if rule.wants != "none"], ids=str)


@each_rule
def test_what_scores_are_must_be_said(rule: Rule):
    logits, labels = rule.data()
    with pytest.raises(TypeError, match="from_logits"):
        rule.make().fit(logits, labels)
    with pytest.raises(TypeError, match="from_logits"):
        rule.make().partial_fit(logits, labels)
    started = rule.make().partial_fit(logits, labels, from_logits=True)
    with pytest.raises(ValueError, match="`from_logits`"):
        started.partial_fit(logits, labels, from_logits=False)
    with pytest.raises(ValueError, match="labels"):
        started.partial_fit(logits[:, 1:], labels, from_logits=True)


@needing_labels
def test_labels_that_are_needed_are_asked_for(rule: Rule):
    with pytest.raises((TypeError, ValueError), match="labels"):
        rule.make().fit(rule.data()[0], from_logits=True)


@each_rule
def test_values_of_rows_that_a_rule_does_not_take_are_refused(rule: Rule):
    logits, labels = rule.data()
    other = "weights" if rule.make().row_option == "groups" else "groups"
    for call in (rule.make().fit, rule.make().partial_fit):
        with pytest.raises(TypeError, match=f"takes no `{other}`"):
            call(logits, labels, from_logits=True, **{other: [1] * len(logits)})
    with pytest.raises(TypeError, match=f"takes no `{other}`"):
        rule.fitted().predict(logits, **{other: [1] * len(logits)})


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
def test_no_calibration_rows_or_no_labels_are_an_error(rule: Rule):
    logits, labels = rule.data()
    with pytest.raises(ValueError, match="row"):
        rule.make().fit(logits[:0], None if labels is None else labels[:0], from_logits=True)
    with pytest.raises(ValueError, match="row"):
        rule.make().finish()
    with pytest.raises(ValueError, match="scores"):
        rule.make().fit(logits[:, :0], labels, from_logits=True)


@each_rule
def test_scores_must_be_a_floating_matrix(rule: Rule):
    logits, labels = rule.data()
    with pytest.raises((TypeError, ValueError), match="scores"):
        rule.make().fit(logits.long(), labels, from_logits=True)
    with pytest.raises((TypeError, ValueError), match="scores"):
        rule.make().fit(logits[0], labels, from_logits=True)
    with pytest.raises((TypeError, ValueError), match="scores"):
        rule.make().fit(logits.to_sparse(), labels, from_logits=True)


@needing_labels
def test_labels_out_of_range_or_too_few_are_refused(rule: Rule):
    logits, labels = rule.data()
    assert labels is not None
    with pytest.raises(ValueError, match=r"119|120"):
        rule.make().fit(logits, labels[:-1], from_logits=True)
    wrong = torch.full((120, 1), LABELS) if rule.wants == "sets" else torch.full((120,), LABELS)
    with pytest.raises(ValueError, match=str(LABELS)):
        rule.make().fit(logits, wrong, from_logits=True)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        *((lambda make=make, a=a: make(a), "alpha") for make in WITH_ALPHA for a in (0, 1, -0.1, math.nan, math.inf)),
        *((lambda k=k: AverageK(k), "k") for k in (-1, -0.5, math.nan, math.inf)),
        *((lambda k=k: PerLabelThreshold("average-size", k=k), "k") for k in (-1, math.nan)),
        *((lambda k=k: TopK(k), "k") for k in (-1, 0, 1.5, True, math.nan)),
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


@each_rule
def test_one_row_is_enough_to_fit(rule: Rule):
    logits, _ = rule.data(1)
    labels = {"none": None, "classes": torch.tensor([3]), "sets": torch.tensor([[3]])}[rule.wants]
    fitted = rule.make().fit(logits, labels, from_logits=True)
    assert fitted(logits).shape == (1, LABELS)
    assert len(fitted.predict(logits)) == 1


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name not in ("top-k", *ON_A_TAXONOMY)], ids=str)
def test_one_label_is_enough_to_answer(rule: Rule):
    scores = torch.linspace(0.01, 0.99, 50)[:, None]
    labels = {"none": None, "classes": torch.zeros(50, dtype=torch.int64), "sets": (scores > 0.5).float()}[rule.wants]
    fitted = rule.make().fit(scores, labels, from_logits=False)
    assert fitted.predict(scores).to_mask().shape == (50, 1)
    assert rule.make(min_size=1).fit(scores, labels, from_logits=False)(scores).all()


def test_a_batch_that_was_refused_leaves_no_trace():
    generator = torch.Generator().manual_seed(0)
    bad, good = torch.rand(3000, 1000, generator=generator), torch.rand(200, 1000, generator=generator)
    bad[2500, 3] = torch.nan
    rule = AverageK(1)
    with pytest.raises(ValueError, match="`scores` must not be NaN or infinite; row 2500"):
        rule.partial_fit(bad, from_logits=False)
    rule.partial_fit(good, from_logits=False).finish()
    assert int(rule.predict(good).sizes.sum()) == 200
    assert rule.evidence["rows"] == 200


def test_a_rule_that_refused_too_few_labels_accepts_enough():
    rule = TopK(5)
    with pytest.raises(ValueError, match="`k` must be at most the number of labels, 3; got 5"):
        rule.fit(torch.rand(2, 3), from_logits=False)
    assert rule.fit(torch.rand(2, 10), from_logits=False).predict(torch.rand(1, 10)).sizes.tolist() == [5]


def test_probabilities_must_not_be_negative():
    with pytest.raises(ValueError, match="`scores` must be probabilities, not negative; row 1"):
        PointwiseError(0.1).fit(torch.tensor([[0.5], [-0.1]]), torch.tensor([0, 0]), from_logits=False)


def test_a_small_alpha_takes_no_time_to_count():
    rule = ClassConditional(1e-9).fit(torch.rand(20, 3), torch.arange(20) % 3, from_logits=False)
    assert rule.predict(torch.rand(4, 3)).sizes.tolist() == [3] * 4


def test_sets_with_other_names_do_not_mix():
    mask = torch.ones(1, 2, dtype=torch.bool)
    first, second = (PredictionSets.from_mask(mask, names=names) for names in (["a", "b"], ["b", "a"]))
    for combine in (lambda: first | second, lambda: first & second, lambda: PredictionSets.cat([first, second])):
        with pytest.raises(ValueError, match="same label names"):
            combine()
    assert (first | PredictionSets.from_mask(mask)).names == ("a", "b")


@pytest.mark.parametrize("rows", [0, 3])
def test_a_curve_without_true_labels_is_refused(rows):
    with pytest.raises(ValueError, match=f"`labels` must hold at least one true label; got none in {rows} rows"):
        tradeoff(torch.rand(rows, 4), torch.full((rows, 1), -1), from_logits=False)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_masks_that_leave_no_label_in_any_row_are_one_sentence(rule):
    logits, labels = rule.data()
    with pytest.raises(ValueError, match=r"`scores` must leave at least one label; all are absent \(-inf\)\.$"):
        rule.make().fit(torch.full_like(logits, -math.inf), labels, from_logits=True)

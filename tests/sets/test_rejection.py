"""Rules that abstain: exact bounds, ties, files, masks, and the flag that tells an abstention from an empty answer."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom
from sklearn.covariance import ledoit_wolf

from shortlist.errors import InputError
from shortlist.sets import (
    AverageError,
    FeatureDistance,
    NoneOfThese,
    PredictionSets,
    RecallControl,
    SelectiveAnswers,
    TopK,
    load_rule,
    p_values,
)
from shortlist.sets.rejection.binomial import binomial_cdf, upper_bound
from shortlist.sets.rejection.novelty import shrunk_covariance
from shortlist.sets.rejection.selective import sizes_to_test
from tests.sets.rules import REJECTING, Rule, assert_same
from tests.sets.worlds import multilabel, seeded

each_rule = pytest.mark.parametrize("rule", REJECTING, ids=str)


@pytest.mark.parametrize(("k", "m"), [(0, 1), (0, 10), (3, 10), (10, 10), (40, 2000), (5000, 31118)])
@pytest.mark.parametrize("delta", [0.5, 0.05, 0.0005])
def test_the_binomial_bound_is_that_of_clopper_and_pearson(k, m, delta):
    assert upper_bound(k, m, delta) == pytest.approx(1.0 if k == m else beta.ppf(1 - delta, k + 1, m - k), rel=1e-8)
    for rate in (0.0, 0.01, 0.3, 1.0):
        assert binomial_cdf(k, m, rate) == pytest.approx(binom.cdf(k, m, rate), rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("levels", [3, 20, 10**6])
@pytest.mark.parametrize("confidence", ["best", "margin"])
def test_selective_answers_choose_the_largest_number_of_answers_that_passes(levels, confidence):
    for seed in range(5):
        generator = seeded(seed)
        best = (torch.rand(300, generator=generator, dtype=torch.float64) * levels).round() / levels
        scores = torch.stack([best, torch.zeros(300, dtype=torch.float64), best - 1], dim=-1)
        true = torch.where(torch.rand(300, generator=generator) < best, best.ge(0).long() - 1, 1)
        rule = SelectiveAnswers(0.2, delta=0.1, confidence=confidence).fit(scores, true, from_logits=False)
        sizes, found = sizes_to_test(300, 0.2, 0.1), None
        values = best.tolist()
        top = [0 if value >= 0 else 1 for value in values]
        for size in sizes:
            border = sorted(values, reverse=True)[size] if size < 300 else -math.inf
            chosen = [i for i, value in enumerate(values) if value > border]
            wrong = sum(top[i] != int(true[i]) for i in chosen)
            if chosen and binom.cdf(wrong, len(chosen), 0.2) <= 0.1 / len(sizes):
                found = (len(chosen) / 300, wrong / len(chosen))
                break
        assert (rule.evidence["answered"], rule.evidence["achieved"]) == pytest.approx(found or (0.0, 0.0))
        assert rule.predict(scores).abstained.double().mean() == pytest.approx(1 - rule.evidence["answered"])
        assert rule.evidence["bound"] <= 0.2


def test_too_few_rows_or_answers_that_are_too_bad_mean_no_answer():
    few = SelectiveAnswers(0.05).fit(torch.eye(3), torch.arange(3), from_logits=False)
    bad = SelectiveAnswers(0.05).fit(torch.eye(2).repeat(500, 1), torch.tensor([1, 0] * 500), from_logits=False)
    for rule, scores in ((few, torch.eye(3)), (bad, torch.eye(2))):
        sets = rule.predict(scores)
        assert sets.abstained.all()
        assert sets.sizes.sum() == 0
        assert rule.evidence["answered"] == 0


def test_good_answers_are_all_given():
    rule = SelectiveAnswers(0.05).fit(torch.eye(2).repeat(500, 1), torch.tensor([0, 1] * 500), from_logits=False)
    assert rule.predict(torch.rand(20, 2, generator=seeded(0))).abstained.sum() == 0


def test_the_error_of_a_set_is_a_miss_of_any_true_label():
    logits, labels = multilabel(2000, 5, seeded(0), rate=0.3)
    inner = RecallControl(0.02).fit(*multilabel(1000, 5, seeded(1), rate=0.3), from_logits=True)
    rule = SelectiveAnswers(0.1, rule=inner).fit(logits, labels, from_logits=True)
    sets = rule.predict(logits)
    missed = ~sets.contains(labels.float())[~sets.abstained]
    assert rule.evidence["answered"] > 0
    assert rule.evidence["achieved"] == pytest.approx(float(missed.double().mean()))
    assert rule.link == "sigmoid"
    answered = inner(logits) & ~sets.abstained[:, None]
    assert torch.equal(sets.to_mask(), answered)


@each_rule
def test_answers_and_masks_agree_and_absent_labels_are_in_no_set(rule: Rule):
    fitted, logits = rule.fitted(rows=400), rule.data(60, seed=1)[0]
    logits[::3, 1] = -math.inf
    logits[5] = -math.inf
    sets = fitted.predict(logits)
    assert 0 < sets.abstained.sum() < 60
    assert torch.equal(sets.abstained, ~fitted.answers(logits))
    assert torch.equal(sets.to_mask(), fitted(logits))
    assert sets.abstained[5]
    assert not sets.to_mask()[logits == -math.inf].any()
    assert torch.equal(sets.sizes == 0, sets.abstained)
    assert torch.equal(torch.cat([fitted(row[None]) for row in logits]), fitted(logits))
    assert len(fitted.predict(logits[:0])) == 0


@each_rule
def test_batches_are_one_fit(rule: Rule):
    logits, labels = rule.data(200)
    whole, parts = rule.fitted(rows=200), rule.make()
    for some in (slice(0, 50), slice(50, 50), slice(50, 200)):
        parts.partial_fit(logits[some], None if labels is None else labels[some], from_logits=True)
    parts.finish()
    torch.testing.assert_close(parts.threshold, whole.threshold, rtol=1e-7, atol=0)
    assert parts.evidence == whole.evidence


@each_rule
@pytest.mark.parametrize("inner", [None, TopK(2), AverageError(0.2)], ids=str)
def test_a_saved_rule_comes_back_with_the_rule_inside(rule: Rule, inner, tmp_path):
    logits = rule.data(400)[0]
    if inner is not None:
        inner = inner.fit(*Rule("", None, "classes").data(200, seed=3), from_logits=True)
    fitted = rule.fitted(rows=400, rule=inner)
    fitted.save(tmp_path / "rule.json")
    assert_same(load_rule(tmp_path / "rule.json"), fitted, logits)
    copied = rule.make(rule=None if inner is None else load_rule_of(inner, tmp_path))
    copied.load_state_dict(fitted.state_dict())
    assert_same(copied, fitted, logits)
    # A rule around a rule around a rule is one, too.
    around = NoneOfThese(0.1, rule=fitted).fit(logits, from_logits=True)
    around.save(tmp_path / "around.json")
    assert_same(load_rule(tmp_path / "around.json"), around, logits)


def load_rule_of(rule, folder):
    rule.save(folder / "inner.json")
    return load_rule(folder / "inner.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["options"].update(rule={}),
        lambda content: content["options"].update(rule=[1]),
        lambda content: content["options"]["rule"].update(kind="os.system"),
        lambda content: content["options"]["rule"].update(num_labels=3),
        lambda content: content["options"]["rule"]["fitted"]["threshold"]["values"].__setitem__(0, "nan"),
        lambda content: content["options"].update(delta=2),
    ],
)
def test_a_damaged_rule_inside_is_one_error(change, tmp_path):
    inner = AverageError(0.2).fit(*Rule("", None, "classes").data(200, seed=3), from_logits=True)
    REJECTING[0].fitted(rule=inner).save(tmp_path / "rule.json")
    content = json.loads((tmp_path / "rule.json").read_text())
    change(content)
    (tmp_path / "rule.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="is damaged"):
        load_rule(tmp_path / "rule.json")


def test_the_flag_survives_slices_and_concatenation():
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    sets = PredictionSets.from_mask(mask).abstain(torch.tensor([True, False, False]))
    assert sets.to_list() == [[], [0, 1], []]
    assert sets[1:].abstained.tolist() == [False, False]
    assert PredictionSets.cat([sets, sets]).abstained.tolist() == [True, False, False] * 2
    assert PredictionSets.cat([sets, PredictionSets.from_mask(mask)]).abstained is None
    assert sets.abstain([False, True, False]).abstained.tolist() == [True, True, False]
    assert sets != PredictionSets.from_mask(sets.to_mask())
    assert sets == PredictionSets.from_mask(mask).abstain([True, False, False])
    with pytest.raises(ValueError, match=r"`rows` must be bool of shape \(3,\); got torch.int64 \(3,\)"):
        sets.abstain([1, 0, 0])


@pytest.mark.parametrize("score", ["energy", "max-logit"])
@pytest.mark.parametrize("rows", [1, 8, 9, 10, 19, 200])
def test_a_row_is_rejected_exactly_if_its_conformal_p_value_is_small(score, rows):
    logits, fresh = torch.randn(rows, 4, generator=seeded(0)), torch.randn(300, 4, generator=seeded(1)) - 1
    # Ties of new rows with the held-out ones, too.
    fresh = torch.cat([fresh, logits, torch.full((1, 4), -math.inf)])
    rule = NoneOfThese(0.1, score=score).fit(logits, from_logits=True)
    familiar = [x.logsumexp(-1) if score == "energy" else x.amax(-1) for x in (logits, fresh)]
    expected = [(1 + sum(h <= s for h in familiar[0].tolist())) / (rows + 1) for s in familiar[1].tolist()]
    wanted = torch.tensor(expected, dtype=torch.float64) <= 0.1
    # logsumexp of torch may differ in the last bit from the one of the rule.
    clear = torch.ones(len(fresh), dtype=torch.bool)
    if score == "energy":
        clear = (familiar[1][:, None] - familiar[0]).abs().amin(-1) > 1e-5
    assert torch.equal(rule.predict(fresh).abstained[clear], wanted[clear])
    assert torch.equal(p_values(*familiar), torch.tensor(expected, dtype=torch.float64))
    assert wanted.any() == (rows >= 9)


def test_the_covariance_is_that_of_ledoit_and_wolf():
    for rows, features in ((30, 5), (4, 8), (200, 3)):
        x = torch.randn(rows, features, generator=seeded(rows), dtype=torch.float64) @ torch.diag(
            torch.arange(1.0, features + 1, dtype=torch.float64)
        )
        x = x - x.mean(0)
        theirs, weight = ledoit_wolf(x.numpy(), assume_centered=True)
        mine, shrinkage = shrunk_covariance(x)
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
        assert shrinkage == pytest.approx(weight)


def test_the_feature_distance_is_the_definition_in_every_dtype():
    generator = seeded(0)
    classes = torch.tensor([0, 3, 5])[torch.randint(3, (200,), generator=generator)]
    x = (
        torch.randn(200, 4, generator=generator, dtype=torch.float64)
        + 3 * torch.nn.functional.one_hot(classes, 6)[:, :4]
    )
    distance = FeatureDistance().fit(x, classes)
    means = torch.stack([x[classes == c].mean(0) for c in (0, 3, 5)])
    covariance = shrunk_covariance(x - means[classes.unique(return_inverse=True)[1]])[0]
    away = x[:, None] - means
    wanted = torch.einsum("ncd,de,nce->nc", away, covariance.inverse(), away).amin(-1)
    torch.testing.assert_close(distance(x), wanted)
    torch.testing.assert_close(distance(x.float()), wanted.float(), rtol=1e-4, atol=1e-5)
    assert distance(x.half()).isfinite().all()
    copied = FeatureDistance()
    copied.load_state_dict(distance.state_dict())
    assert torch.equal(copied(x), distance(x))
    constant = FeatureDistance().fit(torch.ones(3, 2), torch.zeros(3).long())
    assert constant(torch.tensor([[1.0, 1.0], [2.0, 1.0]])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SelectiveAnswers(0), "`max_error` must lie strictly between 0 and 1; got 0"),
        (lambda: SelectiveAnswers(0.1, delta=1.0), "`delta` must lie strictly between 0 and 1; got 1.0"),
        (lambda: SelectiveAnswers(0.1, confidence="size"), '`confidence` must be "best" or "margin"; got \'size\''),
        (lambda: SelectiveAnswers(0.1, rule=TopK(1)), "`rule` must be a fitted set rule, or None for the best label"),
        (lambda: NoneOfThese(1.5), "`alpha` must lie strictly between 0 and 1; got 1.5"),
        (lambda: NoneOfThese(0.1, score="softmax"), '`score` must be "max-logit" or "energy"; got \'softmax\''),
        (
            lambda: NoneOfThese(0.1).fit(torch.eye(2), from_logits=False),
            "`from_logits` must be True for NoneOfThese: probabilities hide how large logits were.",
        ),
        (lambda: NoneOfThese(0.1).predict(torch.eye(2)), "NoneOfThese must be fitted before it predicts"),
        (
            lambda: SelectiveAnswers(0.1, rule=TopK(1).fit(torch.eye(3), from_logits=False)).fit(
                torch.eye(3), torch.arange(3), from_logits=True
            ),
            "`from_logits` must be False as before; got True",
        ),
        (
            lambda: SelectiveAnswers(0.1, rule=TopK(1).fit(torch.eye(3), from_logits=True), link="sigmoid"),
            "`link` must be that of `rule`, 'softmax'; got 'sigmoid'",
        ),
        (lambda: SelectiveAnswers(0.1).fit(torch.zeros(0, 2), torch.zeros(0).long(), from_logits=True), "at least one"),
        (lambda: p_values(torch.zeros(0), torch.zeros(1)), "`held_out` must have at least one row"),
        (lambda: p_values(torch.zeros(2), torch.zeros(1, 1)), r"`scores` must be a vector without NaN; got shape"),
        (lambda: FeatureDistance().fit(torch.zeros(2), torch.zeros(2).long()), "`features` must be finite, of shape"),
        (lambda: FeatureDistance().fit(torch.zeros(2, 1), torch.zeros(3).long()), "`classes` must have one class per"),
        (
            lambda: FeatureDistance().fit(torch.zeros(2, 1), torch.zeros(2).long())(torch.zeros(1, 2)),
            r"`features` must have shape \(rows, 1\) as in the fit; got \(1, 2\)",
        ),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""What every rule does: fits in batches, respects min_size, leaves absent labels out, reads logits as logits."""

import math

import pytest
import torch

from shortlist.sets import TopK
from tests import reference_sets as reference
from tests.sets.rules import LABELS, RULES, Rule, state
from tests.sets.worlds import TIE_KINDS, seeded, tied_scores

each_rule = pytest.mark.parametrize("rule", RULES, ids=str)


@each_rule
@pytest.mark.parametrize("sizes", [[120], [1] * 120, [50, 0, 70], [7] * 17 + [1]], ids=len)
def test_batches_in_any_split_are_one_fit(rule: Rule, sizes):
    options = {"rows": 120} if rule.name == "average-k" else {}
    logits, labels = rule.data(120)
    owned = [None] * len(sizes) if labels is None else labels.split(sizes)
    for from_logits in (True, False):
        scores = logits if from_logits else rule.probs(logits)
        whole, parts = rule.make(**options).fit(scores, labels, from_logits=from_logits), rule.make(**options)
        for some, own in zip(scores.split(sizes), owned, strict=True):
            parts.partial_fit(some, own, from_logits=from_logits)
        parts.finish()
        for name, value in state(whole).items():
            # The last bit of torch's sigmoid depends on the size of the batch.
            tolerance = 1e-7 if from_logits and value.is_floating_point() else 0
            torch.testing.assert_close(state(parts)[name], value, rtol=tolerance, atol=0, msg=name)
    assert whole.evidence == parts.evidence
    fresh = rule.probs(rule.data(60, seed=1)[0])
    first, second = (fitted.predict(fresh, generator=seeded(0)).to_mask() for fitted in (whole, parts))
    assert torch.equal(first, second)


@each_rule
@pytest.mark.parametrize("min_size", [1, 3, LABELS])
def test_the_best_labels_are_always_inside_and_the_rest_as_without(rule: Rule, min_size):
    logits = rule.data(80, seed=2)[0]
    free, held = rule.fitted(), rule.fitted(min_size=min_size)
    answers = [fitted.predict(logits, generator=seeded(0)) for fitted in (free, held)]
    assert torch.equal(answers[1].sizes, answers[1].to_mask().sum(-1)), "no label twice"
    for plain, found in ((free(logits), held(logits)), tuple(sets.to_mask() for sets in answers)):
        best = torch.zeros_like(plain)
        for i, row in enumerate(rule.probs(logits).tolist()):
            best[i, list(reference.top_k(row, min_size))] = True
        assert torch.equal(found, plain | best)


@each_rule
def test_labels_that_are_absent_are_in_no_set_even_if_min_size_lacks_them(rule: Rule):
    logits = rule.data(40, seed=3)[0]
    logits[:, 2] = -math.inf
    logits[::3, 1:] = -math.inf
    for fitted in (rule.fitted(), rule.fitted(min_size=2)):
        for mask in (fitted(logits), fitted.predict(logits).to_mask()):
            assert not mask[logits == -math.inf].any()
            if fitted.min_size:
                assert torch.equal(mask[::3, 0], torch.ones(14, dtype=torch.bool))
                assert (mask.sum(-1) >= (logits > -math.inf).sum(-1).clamp(max=2)).all()


@each_rule
def test_absent_labels_during_fitting_are_no_trouble(rule: Rule):
    logits, labels = rule.data(200, seed=4)
    hidden = torch.zeros_like(logits, dtype=torch.bool)
    hidden[:, 5] = hidden[::5, 4] = True
    if labels is not None:
        if labels.ndim == 1:
            hidden[torch.arange(200), labels] = False
        else:
            hidden &= ~labels
    logits = logits.masked_fill(hidden, -math.inf)
    fitted = rule.make().fit(logits, labels, from_logits=True)
    mask = fitted.predict(logits).to_mask()
    assert not mask[hidden].any()
    assert mask.any()
    for value in state(fitted).values():
        assert not value.isnan().any()


@pytest.mark.parametrize("rule", [rule for rule in RULES if "error" in rule.name or "recall" in rule.name], ids=str)
@pytest.mark.parametrize("absent", [False, True])
def test_the_evidence_is_the_error_on_the_data_itself_and_absent_true_labels_are_missed(rule: Rule, absent):
    logits, labels = rule.data(400, seed=11)
    hot = labels if rule.wants == "sets" else torch.nn.functional.one_hot(labels, LABELS).bool()
    if absent:  # Half of the rows lack all their true labels, which no set can hold.
        logits = logits.masked_fill(hot & (torch.arange(400)[:, None] % 2 == 0), -math.inf)
    fitted = rule.make().fit(logits, labels, from_logits=True)
    sets, wanted = fitted.predict(logits, generator=seeded(0)), hot.sum(-1)
    missed = (1 - sets.count_hits(hot) / wanted)[wanted > 0].mean()
    assert 0.4 < missed < 0.7 or not absent
    assert fitted.evidence["achieved"] == pytest.approx(float(missed), abs=0.04)
    assert fitted.evidence["wanted"] == 0.2


@each_rule
def test_logits_stay_logits_and_scores_stay_scores(rule: Rule):
    """The same numbers mean other sets: probabilities read as logits are nearly uniform."""
    logits, labels = rule.data(200, seed=5)
    by_logits = rule.make().fit(logits.double(), labels, from_logits=True)
    by_scores = rule.make().fit(rule.probs(logits.double()), labels, from_logits=False)
    expected = by_logits(logits.double())
    # A tie between neighbours in rounding is the only place where the two may part. The random numbers of rows are a
    # hash of what was given, so they differ between the two.
    randomized = getattr(getattr(by_logits, "score", None), "randomized", False)
    apart = 0.2 if randomized else 0.01
    assert (by_scores(rule.probs(logits.double())) != expected).float().mean() < apart
    sets = by_logits.predict(logits.double())
    found = rule.probs(logits.double())[sets.to_mask()].sort().values
    assert torch.allclose(sets.scores.double().sort().values, found, rtol=1e-5)


@each_rule
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_every_dtype_fits_and_predicts(rule: Rule, dtype):
    logits, labels = rule.data(150, seed=6)
    fitted = rule.make().fit(logits.to(dtype), labels, from_logits=True)
    fresh = rule.data(90, seed=7)[0].to(dtype)
    exact = rule.make().fit(logits.to(dtype).double(), labels, from_logits=True)(fresh.double())
    assert (fitted(fresh) != exact).float().mean() < 0.03
    assert 0 < fitted.predict(fresh).to_mask().float().mean() < 1


@each_rule
def test_predicting_row_by_row_is_predicting_together(rule: Rule):
    fitted, logits = rule.fitted(), rule.data(30, seed=8)[0]
    assert torch.equal(torch.cat([fitted(row[None]) for row in logits]), fitted(logits))
    assert torch.equal(fitted(logits.reshape(5, 6, LABELS)), fitted(logits).reshape(5, 6, LABELS))


@each_rule
def test_no_rows_give_no_sets(rule: Rule):
    fitted = rule.fitted()
    assert len(fitted.predict(torch.zeros(0, LABELS))) == 0
    assert fitted(torch.zeros(0, LABELS)).shape == (0, LABELS)


@each_rule
def test_fitting_leaves_its_input_and_the_global_generator_alone(rule: Rule):
    logits, labels = rule.data(60, seed=9)
    before, random = logits.clone(), torch.get_rng_state()
    rule.make().fit(logits, labels, from_logits=True).predict(logits)
    assert torch.equal(logits, before)
    assert torch.equal(torch.get_rng_state(), random)


@each_rule
def test_scores_with_a_gradient_are_fine(rule: Rule):
    logits, labels = rule.data(60, seed=10)
    fitted = rule.make().fit(logits.requires_grad_(), labels, from_logits=True)
    sets = fitted.predict(logits)
    assert not sets.scores.requires_grad
    assert not any(value.requires_grad for value in state(fitted).values())
    assert fitted(logits).dtype == torch.bool


@pytest.mark.parametrize("kind", TIE_KINDS)
@pytest.mark.parametrize("k", [1, 3, 7])
def test_top_k_takes_the_best_and_of_equal_scores_the_lower_label(kind, k):
    scores = tied_scores(kind, 60, 7, seeded(k))
    rule = TopK(k).fit(scores[:1], from_logits=False)
    expected = [reference.top_k(row, k) for row in scores.tolist()]
    for mask in (rule(scores), rule.predict(scores).to_mask()):
        assert [set(row.nonzero().flatten().tolist()) for row in mask] == expected


@pytest.mark.parametrize("labels", [1, 2, 1000])
def test_top_k_of_wide_ties_is_the_first_labels(labels):
    """Sorting without stability answers wrongly from some width on."""
    scores = torch.zeros(3, labels)
    k = max(1, labels // 3)
    rule = TopK(k).fit(scores, from_logits=False)
    assert rule(scores)[:, :k].all()
    assert rule(scores).sum() == 3 * k
    assert rule.predict(scores).labels.tolist() == 3 * list(range(k))


@each_rule
def test_a_rule_that_moved_to_a_device_predicts_the_same_sets(rule: Rule, device):
    fitted, logits = rule.fitted(), rule.data(30, seed=3)[0]
    expected = fitted.predict(logits, generator=torch.Generator("cpu").manual_seed(0)).to_mask()
    found = fitted.to(device).predict(logits.to(device), generator=torch.Generator("cpu").manual_seed(0)).to_mask()
    assert torch.equal(found, expected)

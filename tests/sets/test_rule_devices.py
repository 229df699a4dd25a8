"""The code of accelerators gives the same rules, sets and errors as that of the CPU, with ties and absent labels."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from shortlist.sets import AverageError, AverageK, SetRule, TopK
from tests.sets.rules import RULES, Rule, state
from tests.sets.worlds import seeded

pytestmark = pytest.mark.cpu_only  # compares two kinds of code on CPU tensors

ROWS = 90


def scores_of(rule: Rule, seed: int, *, from_logits: bool, ties: bool, absent: bool) -> tuple[Tensor, Tensor | None]:
    """Data in which scores tie, and labels or whole rows are absent."""
    logits, labels = rule.data(ROWS, seed=seed)
    logits = logits.round() if ties else logits
    scores = logits if from_logits else rule.probs(logits)
    if absent:
        scores[::3, 1] = -math.inf
        if from_logits:
            scores[5] = -math.inf  # a row without labels, whose softmax is NaN
            scores[7, :3] = 500.0  # probabilities that vanish beside labels that are absent
    return scores, labels


def fitted(rule: Rule, scores: Tensor, labels: Tensor | None, ends: list[int], **options) -> SetRule:
    """Fitted at once if there is one part, else in batches."""
    made, from_logits = rule.make(min_size=options["min_size"]), options["from_logits"]
    if len(ends) == 2:
        return made.fit(scores, labels, from_logits=from_logits)
    for start, stop in pairwise(ends):
        made.partial_fit(scores[start:stop], None if labels is None else labels[start:stop], from_logits=from_logits)
    return made.finish()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("absent", [True, False])
@pytest.mark.parametrize("ties", [True, False])
def test_rules_and_sets_are_the_same(rule, from_logits, absent, ties, monkeypatch):
    for seed in range(2):
        scores, labels = scores_of(rule, seed, from_logits=from_logits, ties=ties, absent=absent)
        for ends, min_size in (([0, ROWS], 0), ([0, 30, 31, ROWS], 1)):
            found = []
            for kernels in ("on", "device"):
                monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
                one = fitted(rule, scores, labels, ends, from_logits=from_logits, min_size=min_size)
                found.append((state(one), one.evidence, one.predict(scores, generator=seeded(0)), one(scores)))
            (before, evidence, sets, mask), (after, evidence_there, sets_there, mask_there) = found
            assert all(torch.equal(before[name], after[name]) for name in before)
            assert evidence == evidence_there
            assert sets == sets_there
            assert torch.equal(mask, mask_there)


@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_average_k_has_its_exact_size_in_batches_of_every_size(decimals, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "device")
    scores = torch.randn(200, 40, generator=seeded(0)).round(decimals=decimals)
    for k in (0.37, 3.0, 39.9):
        whole = AverageK(k).fit(scores, from_logits=False)
        parts = AverageK(k)
        for part in scores.split(23):
            parts.partial_fit(part, from_logits=False)
        parts.finish()
        for rule in (whole, parts):
            assert int(rule.predict(scores).sizes.sum()) == math.floor(round(k * 200, 9))
        assert all(torch.equal(a, b) for a, b in zip(state(whole).values(), state(parts).values(), strict=True))


def test_a_bad_batch_is_named_when_the_fit_ends(monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "device")
    scores, classes = torch.rand(20, 4, generator=seeded(0)), torch.arange(20) % 4
    bad = scores.clone()
    bad[3, 1] = math.nan
    rule = AverageError(0.2).partial_fit(scores, classes, from_logits=False)
    rule.partial_fit(bad, classes, from_logits=False)
    with pytest.raises(ValueError, match="`scores` must not be NaN or infinite; row 23 violates this"):
        rule.finish()
    with pytest.raises(ValueError, match=r"`labels` must lie in \[0, 4\); row 7 violates this"):
        AverageError(0.2).fit(scores, torch.where(torch.arange(20) == 7, 4, classes), from_logits=False)
    with pytest.raises(ValueError, match="row 3"):
        AverageError(0.2).fit(scores, classes, from_logits=False).predict(bad)


@pytest.mark.parametrize("kernels", ["on", "device"])
def test_the_best_labels_have_the_order_of_their_logits_where_probabilities_vanish(kernels, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
    logits = torch.tensor([[0.0, -200.0, -150.0, -170.0, 900.0, 800.0]])
    rule = TopK(4).fit(logits, from_logits=True)
    assert sorted(rule.predict(logits).to_list()[0]) == [0, 2, 4, 5]
    assert rule(logits).tolist() == [[True, False, True, False, True, True]]


@pytest.mark.parametrize("k", [0, 1.5, 4])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("from_logits", [True, False])
def test_the_fit_of_a_single_batch_names_a_row_that_is_not_finite(k, bad, from_logits, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "device")
    scores = torch.rand(20, 4, generator=seeded(0))
    scores[3, 1] = bad
    with pytest.raises(ValueError, match="`scores` must not be NaN or infinite; row 3 violates this"):
        AverageK(k).fit(scores, from_logits=from_logits)

"""AverageK returns exactly ⌊K·N⌋ labels on its calibration set, at the documented threshold and for all ties."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shortlist.sets import AverageK
from tests import reference_sets as reference
from tests.sets.worlds import TIE_KINDS, seeded, tied_scores, with_absent

thorough = settings(derandomize=True, deadline=None, max_examples=150)
quick = settings(derandomize=True, deadline=None, max_examples=40)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
KS = st.one_of(st.integers(0, 14), st.integers(0, 1400).map(lambda hundredths: hundredths / 100), st.floats(0, 14))

each_kind = pytest.mark.parametrize("kind", TIE_KINDS)


def entries(sets) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in sets.to_mask().nonzero()}


def agrees(sets, rows: list[list[float]], k: float) -> None:
    """Exactly the quota; surely those above; of the one label that is cut, the stated number in even steps."""
    expected, found = reference.average_k(rows, k), entries(sets)
    assert len(found) == expected.size
    assert expected.inside <= found
    rest = found - expected.inside
    assert rest <= set(expected.candidates)
    assert len(rest) == expected.wanted
    for count in range(1, len(expected.candidates) + 1):
        taken = len(rest & set(expected.candidates[:count]))
        even = Fraction(count * expected.wanted, len(expected.candidates))
        assert abs(taken - even) <= 1


@thorough
@given(
    kind=st.sampled_from(TIE_KINDS),
    rows=st.one_of(st.integers(1, 30), st.just(499)),
    labels=st.integers(1, 12),
    k=KS,
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_the_calibration_set_gets_exactly_its_quota_and_the_best_labels(kind, rows, labels, k, dtype, seed):
    scores = tied_scores(kind, rows, labels, seeded(seed), dtype)
    rule = AverageK(k).fit(scores, from_logits=False)
    agrees(rule.predict(scores), scores.tolist(), k)


@thorough
@given(
    kind=st.sampled_from(TIE_KINDS),
    link=st.sampled_from(["softmax", "sigmoid"]),
    rows=st.integers(1, 20),
    labels=st.integers(4, 12),
    k=KS,
    dtype=st.sampled_from(DTYPES),
    absent=st.booleans(),
)
def test_logits_give_exactly_the_quota_too_and_absent_labels_are_never_taken(
    kind, link, rows, labels, k, dtype, absent
):
    logits = 20 * tied_scores(kind, rows, labels, seeded(rows), dtype) - 10
    logits = with_absent(logits) if absent else logits
    rule = AverageK(k, link=link).fit(logits, from_logits=True)
    mask = rule.predict(logits).to_mask()
    present = logits > -math.inf
    assert not (mask & ~present).any()
    assert mask.sum() == min(math.floor(reference.decimal(k) * rows), int(present.sum()))


def test_k_is_read_as_it_is_written():
    """In binary, 0.29 · 100 and 1.1 · 10 · 11 miss the integer."""
    for k, rows in ((0.29, 100), (0.57, 100), (1.1, 10), (1.15, 100), (2.3, 110), (0.1, 30), (0.7, 10), (4.35, 100)):
        scores = torch.rand(rows, 6, generator=seeded(rows))
        size = AverageK(k).fit(scores, from_logits=False).predict(scores).sizes.sum()
        assert size == math.floor(Fraction(str(k)) * rows), (k, rows)


@quick
@given(rows=st.integers(2, 25), labels=st.integers(2, 9), share=st.floats(0.05, 0.95), seed=st.integers(0, 500))
def test_the_threshold_is_the_midpoint(rows, labels, share, seed):
    scores = tied_scores("distinct", rows, labels, seeded(seed), torch.float64)
    k = max(1, min(rows * labels - 1, round(share * rows * labels))) / rows
    assume(math.floor(reference.decimal(k) * rows) >= 1)
    rule = AverageK(k).fit(scores, from_logits=False)
    middle = float(reference.midpoint(scores.tolist(), k))
    # The threshold may be rounded to float32, in which exported rules compare.
    probe = torch.tensor([[middle * (1 + 2**-23)], [middle * (1 - 2**-23)]], dtype=torch.float64).repeat(1, labels)
    assert rule.predict(probe).sizes.tolist() == [labels, 0]
    assert rule(probe).tolist() == [[True] * labels, [False] * labels]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_neighboring_floats_are_told_apart(dtype):
    """Their midpoint is not a float of that dtype: rounded down, it would select both."""
    for start in (0.25, 0.3, 0.999):
        low = torch.tensor(start, dtype=dtype)
        high = torch.nextafter(low, torch.tensor(1.0, dtype=dtype))
        higher = torch.nextafter(high, torch.tensor(1.0, dtype=dtype))
        for pair in ((low, high), (high, higher)):
            scores = torch.stack(pair).reshape(2, 1)
            rule = AverageK(0.5).fit(scores, from_logits=False)
            assert rule.predict(scores).sizes.tolist() == [0, 1]
            assert rule(scores).flatten().tolist() == [False, True]


@each_kind
def test_no_label_and_all_labels_are_valid_quotas(kind):
    scores = tied_scores(kind, 12, 5, seeded(2))
    assert AverageK(0).fit(scores, from_logits=False).predict(scores).sizes.sum() == 0
    assert not AverageK(0).fit(scores, from_logits=False)(scores).any()
    assert AverageK(0.08).fit(scores, from_logits=False).predict(scores).sizes.sum() == 0
    assert AverageK(0.09).fit(scores, from_logits=False).predict(scores).sizes.sum() == 1
    for k in (5, 5.5, 6, 1000):
        rule = AverageK(k).fit(scores, from_logits=False)
        assert rule.predict(scores).to_mask().all()
        assert rule(scores).all()


def test_the_order_statistic_is_exact_beyond_two_to_the_24():
    """20 million scores, most of which a float32 index cannot count."""
    rows, labels = 20_000, 1000
    scores = torch.rand(rows, labels, generator=seeded(10), dtype=torch.float64)
    flat = scores.cpu().numpy().ravel()
    for k in (1.00005, 3):
        m = math.floor(Fraction(str(k)) * rows)
        low, high = np.partition(flat, (flat.size - m - 1, flat.size - m))[flat.size - m - 1 : flat.size - m + 1]
        rule = AverageK(k).fit(scores, from_logits=False)
        assert rule.predict(scores).sizes.sum() == m
        probe = torch.tensor([[high], [low]], dtype=torch.float64).repeat(1, labels)
        assert low < high
        assert rule.predict(probe).sizes.tolist() == [labels, 0]


def test_the_order_statistic_is_exact_beyond_two_to_the_24_with_ties():
    """After the last label, which is 1, come 17,982,000 ties: three fifths of the first label, and no other."""
    rows, labels = 18_000, 1000
    scores = torch.zeros(rows, labels, dtype=torch.float16)
    scores[:, -1] = 1
    sets = AverageK(1.6).fit(scores, from_logits=False).predict(scores)
    found = sets.to_mask()
    assert found.sum(0)[[0, -1]].tolist() == [10_800, 18_000]
    assert not found[:, 1:-1].any()

"""AverageK fitted in batches is AverageK fitted at once, or raises."""

import contextlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.side_by_side import PEAK_RESET, resident
from shortlist.sets import AverageK
from tests.sets.rules import assert_same
from tests.sets.worlds import TIE_KINDS, ambiguous_probs, seeded, tied_scores, with_absent

quick = settings(derandomize=True, deadline=None, max_examples=60)


def streamed(rule: AverageK, scores: torch.Tensor, sizes: list[int], *, from_logits: bool = False) -> AverageK:
    for batch in scores.split(sizes):
        rule.partial_fit(batch, from_logits=from_logits)
    rule.finish()
    return rule


SPLITS = {
    "kind": st.sampled_from(TIE_KINDS),
    "sizes": st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(lambda sizes: sum(sizes) > 0),
    "labels": st.integers(1, 8),
    "k": st.integers(0, 900).map(lambda hundredths: hundredths / 100),
}


@quick
@given(**SPLITS, dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]))
def test_any_split_of_a_known_number_of_rows_is_the_same_fit(kind, sizes, labels, k, dtype):
    scores = tied_scores(kind, sum(sizes), labels, seeded(len(sizes)), dtype)
    whole = AverageK(k, rows=sum(sizes)).fit(scores, from_logits=False)
    assert_same(streamed(AverageK(k, rows=sum(sizes)), scores, sizes), whole, scores)


@quick
@given(
    **SPLITS,
    rows=st.one_of(st.none(), st.integers(1, 60), st.just(1000)),
    order=st.sampled_from(["as drawn", "rising", "falling"]),
)
def test_rows_of_an_unknown_or_wrong_number_give_the_same_fit_or_are_refused(kind, sizes, labels, k, rows, order):
    scores = tied_scores(kind, sum(sizes), labels, seeded(len(sizes)))
    if order != "as drawn":
        scores = scores[scores.amax(-1).argsort(descending=order == "falling")]
    with contextlib.suppress(ValueError):
        parts, whole = streamed(AverageK(k, rows=rows), scores, sizes), AverageK(k).fit(scores, from_logits=False)
        assert torch.equal(parts.predict(scores).to_mask(), whole.predict(scores).to_mask())


@pytest.mark.parametrize("size", [64, 256, 1000])
@pytest.mark.parametrize("k", [0.5, 1, 2.75, 8])
def test_batches_of_the_same_kind_are_never_refused(size, k):
    scores = ambiguous_probs(5000, seeded(1)).float()
    sizes = [size] * (5000 // size) + ([5000 % size] if 5000 % size else [])
    assert_same(streamed(AverageK(k), scores, sizes), AverageK(k).fit(scores, from_logits=False), scores)


def test_an_answer_that_may_have_been_dropped_is_refused_and_rows_rules_that_out():
    """Ten thousand rows with nothing above 0.1, then a few where everything is above: the quota falls inside these."""
    low, high = 0.1 * torch.rand(20, 500, generator=seeded(2)), 0.5 + 0.5 * torch.rand(2000, 500, generator=seeded(3))
    scores = torch.cat([high[:20], low.repeat(100, 1)])
    k = 20 * 300 / len(scores)
    whole = AverageK(k).fit(scores, from_logits=False)
    with pytest.raises(ValueError, match="give `rows`, the total number of rows"):
        streamed(AverageK(k), scores, [10] * 202)
    known = streamed(AverageK(k, rows=len(scores)), scores, [10] * 202)
    assert torch.equal(known.predict(scores).to_mask(), whole.predict(scores).to_mask())


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_logits_with_absent_labels_stream_too(link):
    logits = with_absent(3 * torch.randn(120, 9, generator=seeded(5)))
    whole = AverageK(2.4, link=link).fit(logits, from_logits=True)
    parts = streamed(AverageK(2.4, link=link), logits, [40, 40, 40], from_logits=True)
    assert_same(parts, whole, logits)
    assert whole.predict(logits).sizes.sum() == math.floor(2.4 * 120)


@pytest.mark.slow
@pytest.mark.skipif(not PEAK_RESET.exists(), reason="the peak of memory cannot be measured here")
def test_memory_grows_with_the_quota_and_not_with_the_labels():
    """24,000 rows of 4,000 labels are 384 MB, the quota of three per row is 72,000 scores."""
    peaks = {}
    for labels in (500, 4000):
        rule, sharpness = AverageK(3), 3.0
        for step in range(121):
            batch = (sharpness * torch.randn(200, labels, generator=seeded(step))).softmax(-1)
            if step == 1:
                PEAK_RESET.write_text("5")
                before = resident("VmRSS")
            rule.partial_fit(batch, from_logits=False)
        rule.finish()
        peaks[labels] = resident("VmHWM") - before
        assert rule.evidence["rows"] == 121 * 200
    # A few copies of one batch, 0.4 and 3.2 MB, and some hundred bytes for each label of the quota.
    assert peaks[500] < 10 * 200 * 500 * 4 + 300 * 72_000
    assert peaks[4000] < 10 * 200 * 4000 * 4 + 300 * 72_000


def test_a_second_fit_and_one_after_an_abandoned_stream_start_anew():
    rule, scores = AverageK(1.5), torch.rand(40, 5, generator=seeded(8))
    rule.partial_fit(1 + scores, from_logits=False)
    for _ in range(2):
        rule.fit(scores, from_logits=False)
        assert_same(rule, AverageK(1.5).fit(scores, from_logits=False), scores)


def test_a_stream_that_failed_to_finish_does_not_finish_later():
    high, low = 1 + torch.rand(20, 500, generator=seeded(2)), torch.rand(4000, 500, generator=seeded(3))
    rule = AverageK(0.5, rows=10)
    for batch in (high, *low.split(400)):
        rule.partial_fit(batch, from_logits=False)
    for _ in range(2):
        with pytest.raises(ValueError, match="`rows`"):
            rule.finish()

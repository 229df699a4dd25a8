"""Risks of the best predictors against their definitions, by greedy filling, by hand and by repetition."""

import math
import tracemalloc
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data.worlds import bayes
from shortlist.data.worlds.bayes import (
    average_k_advantage,
    average_k_risk,
    average_k_threshold,
    best_precision,
    top_k_risk,
)

SURE, UNSURE = [0.94, 0.04, 0.02], [0.34, 0.34, 0.32]


def greedy_average_k(gains, k, weights):
    """Fill a budget of k with the largest gains first, the last one in part; the definition, entry by entry."""
    entries = sorted(
        ((gain, weight) for row, weight in zip(gains, weights, strict=True) for gain in row), key=lambda e: -e[0]
    )
    left, captured = k, 0.0
    for gain, weight in entries:
        taken = min(weight, left)
        captured += gain * taken
        left -= taken
    return 1 - captured / sum(weight * sum(row) for row, weight in zip(gains, weights, strict=True))


def plain_top_k(gains, k, weights):
    pairs = list(zip(gains, weights, strict=True))
    captured = sum(weight * sum(sorted(row, reverse=True)[:k]) for row, weight in pairs)
    return 1 - captured / sum(weight * sum(row) for row, weight in pairs)


@st.composite
def cases(draw):
    """Gains with many ties, weights or none, and a k that need not be whole."""
    n, rows = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    gain = st.sampled_from([0.0, 0.125, 0.2, 0.25, 0.5, 1e-300, 1.0])
    gains = draw(st.lists(st.lists(gain, min_size=n, max_size=n), min_size=rows, max_size=rows))
    gains[0][0] = 0.75  # so that there is something to miss
    raw = draw(st.none() | st.lists(st.integers(1, 9), min_size=rows, max_size=rows))
    weights = None if raw is None else torch.tensor(raw, dtype=torch.float64) / sum(raw)
    return torch.tensor(gains, dtype=torch.float64), weights, draw(st.floats(0, n))


@settings(derandomize=True, deadline=None, max_examples=80)
@given(cases())
def test_both_risks_are_what_their_definitions_say(case):
    gains, weights, k = case
    plain = [1 / len(gains)] * len(gains) if weights is None else weights.tolist()
    average = average_k_risk(gains, k, weights=weights).value
    assert average == pytest.approx(greedy_average_k(gains.tolist(), k, plain), abs=1e-12)
    top = top_k_risk(gains, int(k), weights=weights).value
    assert top == pytest.approx(plain_top_k(gains.tolist(), int(k), plain), abs=1e-12)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(cases())
def test_average_k_is_never_worse_than_top_k_and_the_advantage_is_the_difference(case):
    gains, weights, k = case
    top, average = (risk(gains, int(k), weights=weights).value for risk in (top_k_risk, average_k_risk))
    assert average <= top + 1e-12
    advantage = average_k_advantage(gains, int(k), weights=weights)
    assert advantage.value >= 0
    assert advantage.value == pytest.approx(top - average, abs=1e-12)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(cases())
def test_the_threshold_is_an_exact_order_statistic(case):
    gains, _, k = case
    place = max(math.ceil(Fraction(repr(k)) * len(gains)), 1)
    expected = gains.flatten().sort(descending=True).values[place - 1].item()
    assert average_k_threshold(gains, k) == expected
    with mock.patch.object(bayes, "_MAX_SORTED", -1):  # counts all bits, collects nothing
        assert average_k_threshold(gains, k) == expected


@pytest.mark.parametrize("few", [-1, 30, 1 << 20])
def test_the_threshold_is_the_same_however_many_gains_are_collected(few, monkeypatch):
    monkeypatch.setattr(bayes, "_MAX_SORTED", few)
    gains = sampled(2000, 3)
    ordered = gains.flatten().sort(descending=True).values
    weights = torch.rand(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights /= weights.sum()
    by_weight = gains.flatten().argsort(descending=True)
    reached = weights.repeat_interleave(5)[by_weight].cumsum(0)
    for k in (0.01, 0.7, 2.5, 4.9):
        assert average_k_threshold(gains, k) == ordered[math.ceil(k * 2000) - 1]
        place = int((reached < k).sum())
        assert average_k_threshold(gains, k, weights=weights) == gains.flatten()[by_weight[place]]


def test_a_decimal_k_is_read_as_written():
    gains = torch.arange(100, 0, -1.0)[:, None]
    assert 0.07 * 100 > 7
    assert average_k_threshold(gains, 0.07) == 94  # the seventh largest


def test_ties_at_the_threshold_are_shared_so_that_the_average_is_k():
    gains = torch.full((7, 4), 0.25)
    for k in (0.3, 1.0, 1.5, 3.9):
        assert average_k_risk(gains, k).value == pytest.approx(1 - k / 4, abs=1e-15)
        assert average_k_risk(gains, k).standard_error == 0


def test_no_answers_miss_all_and_all_answers_miss_nothing():
    gains = torch.rand(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for risk in (top_k_risk, average_k_risk):
        assert risk(gains, 0) == (1, 0)
        assert risk(gains, 6).value == pytest.approx(0, abs=1e-15)
        assert risk(gains, 6).standard_error == pytest.approx(0, abs=1e-15)


def test_weights_stand_for_repeated_rows_and_leave_no_error_of_sampling():
    gains = torch.tensor([SURE, UNSURE], dtype=torch.float64)
    repeated = gains[[0, 1, 1, 1]]
    for risk in (top_k_risk, average_k_risk, average_k_advantage, best_precision):
        weighted = risk(gains, 2, weights=torch.tensor([0.25, 0.75]))
        assert weighted.value == pytest.approx(risk(repeated, 2).value, abs=1e-15)
        assert weighted.standard_error == 0


def test_gains_that_sum_to_less_than_one_are_missed_in_proportion():
    gains = torch.tensor([[0.3, 0.1], [0.0, 0.0]], dtype=torch.float64)
    assert top_k_risk(gains, 1).value == pytest.approx(0.25)
    assert top_k_risk(gains * 2, 1).value == pytest.approx(0.25)


def sampled(rows, seed):
    """Rows between certain and even, some with less to gain than others."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    sharpness = 4 * torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    return (logits * sharpness).softmax(1) * torch.rand(rows, 1, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("figure", [top_k_risk, average_k_risk, average_k_advantage, best_precision])
def test_the_standard_error_is_how_much_repeated_estimates_differ(figure):
    estimates = [figure(sampled(300, seed), 2) for seed in range(400)]
    spread = np.std([estimate.value for estimate in estimates], ddof=1)
    claimed = np.mean([estimate.standard_error for estimate in estimates])
    assert claimed == pytest.approx(spread, rel=0.12)  # 3.4 standard errors of a standard deviation of 400


def test_the_error_of_the_difference_is_below_the_errors_of_both():
    gains = sampled(4000, 0)
    errors = [figure(gains, 2).standard_error for figure in (average_k_advantage, top_k_risk, average_k_risk)]
    assert errors[0] < min(errors[1:])


def test_one_x_says_nothing_of_the_error():
    assert top_k_risk(torch.tensor([SURE]), 1).standard_error == math.inf


def test_blocks_give_what_one_tensor_gives():
    gains = sampled(1000, 1)
    sizes = [1, 0, 500, 499]
    for figure, k in ((top_k_risk, 2), (average_k_risk, 2.3), (average_k_advantage, 3), (best_precision, 2)):
        assert figure(lambda: gains.split(sizes), k) == figure(gains, k)
    weights = torch.full((1000,), 1e-3)
    assert average_k_risk(lambda: gains.split(sizes), 2, weights=weights) == average_k_risk(gains, 2, weights=weights)


def test_a_long_stream_is_read_three_times_and_never_held():
    calls, rows, labels, blocks = [], 1000, 100, 80  # 64 MB in all

    def stream():
        calls.append(1)
        for seed in range(blocks):
            yield torch.rand(rows, labels, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    tracemalloc.start()
    risk = average_k_risk(stream, 25)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(calls) == 3
    assert peak < 20e6
    # Uniform gains: the largest quarter holds 1 - (3/4)^2 of the sum.
    assert risk.value == pytest.approx((3 / 4) ** 2, abs=5 * risk.standard_error)


def test_half_precision_and_negative_zero_are_read_as_they_are():
    gains = torch.tensor([[0.5, 0.25, -0.0], [0.75, 0.0, 0.125]])
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert average_k_risk(gains.to(dtype), 1.5).value == pytest.approx(0.125 / 1.625)
    assert average_k_threshold(gains, 3) == 0.0


def test_subnormal_and_huge_gains_keep_their_order():
    gains = torch.tensor([[5e-324, 1e-310, 1e300, 3.0]], dtype=torch.float64)
    assert [average_k_threshold(gains, k) for k in (1, 2, 3, 4)] == [1e300, 3.0, 1e-310, 5e-324]


def test_the_best_precision_takes_the_most_probable():
    assert best_precision(torch.tensor([[0.9, 0.7, 0.1], [0.4, 0.8, 0.3]]), 1).value == pytest.approx(0.85)
    assert best_precision(torch.tensor([[0.0, 0.0]]), 1) == (0, math.inf)


@pytest.mark.parametrize(
    ("gains", "message"),
    [
        (torch.tensor([[0.5, 0.5], [0.5, -0.1]]), r"`gains` row 1: label 1 must be finite and at least 0; got -0\.1"),
        (torch.tensor([[0.5, math.nan]]), "row 0: label 1 must be finite and at least 0; got nan"),
        (torch.tensor([[math.inf, 0.5]]), "row 0: label 0 must be finite and at least 0; got inf"),
        (torch.tensor([0.5]), r"`gains` must be floating \(N, n\); got shape \(1,\)"),
        (torch.tensor([[1, 0]]), "must be floating .* got torch.int64"),
        (torch.zeros(0, 3), "must have a row and a label"),
        (torch.zeros(3, 0), "must have a row and a label"),
        (torch.zeros(3, 2), "must not all be 0"),
        (lambda: [torch.rand(2, 3), torch.rand(2, 4)], "same number of labels in all blocks; got 3 and then 4"),
        (lambda: [torch.ones(2, 3), torch.tensor([[0.1, 0.2, 0.3], [0.1, -1.0, 0.3]])], "row 3: label 1"),
        (lambda: [torch.ones(3)], r"must be floating \(N, n\)"),
    ],
)
def test_wrong_gains_are_refused_with_their_row(gains, message):
    for risk in (top_k_risk, average_k_risk):
        with pytest.raises(ValueError, match=message):
            risk(gains, 0)


def test_a_stream_that_ends_or_changes_is_refused():
    once = iter([torch.ones(2, 3)])
    with pytest.raises(ValueError, match="must have a row and a label; got none"):
        average_k_risk(lambda: once, 1)
    sizes = iter([2, 3, 2, 2])
    with pytest.raises(ValueError, match="the same rows at each call; got 2 and then 3"):
        average_k_risk(lambda: [torch.ones(next(sizes), 3)], 1)


@pytest.mark.parametrize("k", [-1, 4, 1.5, True, "2"])
def test_top_k_needs_a_whole_k_in_range(k):
    with pytest.raises(ValueError, match=r"`k` must be an integer in \[0, 3\]; got"):
        top_k_risk(torch.ones(2, 3), k)


def test_average_k_needs_a_number_in_range():
    for k, message in ((-0.1, "at least 0"), (3.1, r"`k` must lie in \[0, 3\]; got 3\.1"), (math.nan, "finite")):
        with pytest.raises(ValueError, match=message):
            average_k_risk(torch.ones(2, 3), k)
    with pytest.raises(TypeError, match="`k` must be a number; got str"):
        average_k_risk(torch.ones(2, 3), "2")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("k", [-1, 0, 4, 1.5, True])
def test_a_precision_needs_a_whole_k_from_one(k):
    with pytest.raises(ValueError, match=rf"`k` must be an integer in \[1, 3\]; got {k}\.$"):
        best_precision(torch.ones(2, 3), k)


def test_k_may_be_a_number_of_numpy():
    gains = torch.rand(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for figure in (top_k_risk, average_k_advantage, best_precision):
        assert figure(gains, np.int64(2)) == figure(gains, 2)
    # A float32 must not make the sums float32.
    assert average_k_risk(gains, np.float32(2.5)) == average_k_risk(gains, 2.5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.6], r"at least 0 with sum 1; got sum 1\.1"),
        ([1.5, -0.5], "at least 0 with sum 1"),
        ([math.nan, 1.0], "at least 0 with sum 1"),
        ([1.0], "one entry per row of `gains`; got 1"),
        ([0.5, 0.25, 0.25], "one entry for each of the 2 rows of `gains`; got 3"),
        ([[0.5], [0.5]], "1 dimension; got 2"),
    ],
)
def test_wrong_weights_are_refused(weights, message):
    for risk in (top_k_risk, average_k_risk):
        with pytest.raises(ValueError, match=message):
            risk(torch.ones(2, 3), 1, weights=torch.tensor(weights))


def test_sampled_gains_are_the_same_whether_held_or_made_anew(monkeypatch):
    def block(number, rows):
        return sampled(rows, number)

    held = bayes.sampled_gains(block, 300_000, 5)
    assert isinstance(held, torch.Tensor)
    assert held.shape == (300_000, 5)
    monkeypatch.setattr(bayes, "_MAX_IN_MEMORY", 0)
    stream = bayes.sampled_gains(block, 300_000, 5)
    assert not isinstance(stream, torch.Tensor)
    assert torch.equal(torch.cat(list(stream())), held)
    with pytest.raises(ValueError, match="`num_samples` must be at least 1; got 0"):
        bayes.sampled_gains(block, 0, 5)

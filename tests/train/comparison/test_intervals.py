"""Intervals over seeds, and winners by paired differences."""

import math

import pytest
import torch
from scipy import stats

from shortlist.train import Comparison, Interval
from shortlist.train.comparison.intervals import seeds_to_tell


def test_an_interval_is_that_of_student_by_hand():
    found = Interval.of([1.0, 2.0, 6.0])
    # Mean 3, squares 4 + 1 + 9 = 14, deviation sqrt(7), quantile 4.303 for 2 degrees of freedom.
    assert found.mean == 3
    assert found.half_width == pytest.approx(4.303 * math.sqrt(7) / math.sqrt(3), rel=1e-3)


@pytest.mark.parametrize("count", [2, 3, 10, 30, 31, 32, 33, 50, 200, 5000])
def test_intervals_agree_with_scipy_for_any_number_of_seeds(count):
    values = torch.randn(count, generator=torch.Generator().manual_seed(count)).double().tolist()
    low, high = stats.t.interval(0.95, count - 1, loc=sum(values) / count, scale=stats.sem(values))
    found = Interval.of(values)
    assert found.mean == pytest.approx(sum(values) / count)
    assert found.half_width == pytest.approx((high - low) / 2, rel=3e-4)


def test_one_value_has_no_interval_and_equal_ones_have_none_to_speak_of():
    assert Interval.of([0.25]).mean == 0.25
    assert math.isnan(Interval.of([0.25]).half_width)
    assert Interval.of([0.25] * 4) == Interval(0.25, 0.0)


def of_values(**runs: list[float]) -> Comparison:
    return Comparison({name: {seed: {"top1_error": v} for seed, v in enumerate(vs)} for name, vs in runs.items()})


def test_the_lowest_error_wins_and_the_highest_of_anything_else():
    assert of_values(a=[0.3, 0.31, 0.32], b=[0.1, 0.11, 0.12]).best("top1_error") == ["b"]
    runs = {name: {0: {"recall@5": value}} for name, value in {"a": 0.3, "b": 0.1}.items()}
    assert Comparison(runs).best("recall@5") == ["a"]


def test_a_difference_that_is_the_same_for_every_seed_tells_apart_what_varies_much():
    # Means 0.3 and 0.31 with intervals of width 0.5, yet the second loses by 0.01 for each seed.
    first = [0.1, 0.3, 0.5]
    told = of_values(a=first, b=[value + 0.01 + 1e-4 * i for i, value in enumerate(first)])
    assert told.best("top1_error") == ["a"]
    assert told.interval("a", "top1_error").half_width > 0.4


def test_what_differs_now_one_way_now_the_other_is_not_told_apart():
    tied = of_values(a=[0.10, 0.12, 0.11], b=[0.12, 0.10, 0.115], c=[0.4, 0.41, 0.42])
    # The differences 0.02, -0.02, 0.005 have mean 0.0017 and half an interval of 0.05.
    assert tied.best("top1_error") == ["a", "b"]


def test_equal_figures_tie_and_others_of_one_seed_never_do():
    assert of_values(a=[0.2, 0.3], b=[0.2, 0.3]).best("top1_error") == ["a", "b"]
    # No one has the lowest error where two have it.
    assert of_values(a=[0.2], b=[0.2], c=[0.2000001]).best("top1_error") == ["a", "b"]


def test_differences_are_paired_by_seed_even_when_seeds_come_in_another_order():
    runs = {
        "a": {0: {"top1_error": 0.1}, 1: {"top1_error": 0.3}, 2: {"top1_error": 0.5}},
        "b": {2: {"top1_error": 0.512}, 0: {"top1_error": 0.11}, 1: {"top1_error": 0.311}},
    }
    assert Comparison(runs).best("top1_error") == ["a"]


@pytest.mark.parametrize("figure", ["zzz", "average_size"])
def test_there_is_no_winner_of_what_is_not_there_or_has_no_aim(figure):
    runs = {"a": {0: {"top1_error": 0.1, "average_size": 2.0}}}
    with pytest.raises(ValueError, match=rf"^`figure` must be one of top1_error; got '{figure}'\.$"):
        Comparison(runs).best(figure)


def test_seeds_that_would_tell_are_the_fewest_whose_interval_leaves_out_zero():
    values = [0.5, 1.0, 3.0]
    count = seeds_to_tell(Interval.of(values), 3)
    deviation = stats.tstd(values)
    widths = {n: stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n) for n in (count - 1, count)}
    assert widths[count] < Interval.of(values).mean <= widths[count - 1]
    assert seeds_to_tell(Interval.of([1.0, -1.0, 0.01]), 3) is None  # More than 100.
    assert seeds_to_tell(Interval.of([1.0]), 1) is None
    assert seeds_to_tell(Interval.of([0.0, 0.0]), 2) is None

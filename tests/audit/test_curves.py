"""Curves of argmaxability against direct counts, and quantiles of radii."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.audit.counting import count_argmaxable
from shortlist.audit.curves import epsilon_curve, radius_quantiles, share_by_dimension
from shortlist.functional import dft_matrix
from tests.reference_audit import full_program

RADII = st.one_of(st.just(0.0), st.just(math.nan), st.sampled_from([1e-12, 0.5, 1.0]), st.floats(0, 1e4))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(radii=st.lists(RADII, max_size=12), epsilons=st.lists(st.floats(0, 1e4), max_size=6))
def test_the_curve_counts_the_sets_with_at_least_that_radius(radii, epsilons):
    found = epsilon_curve(radii, epsilons)
    known = [radius for radius in radii if not math.isnan(radius)]
    assert found.undecided == len(radii) - len(known)
    assert found.epsilons.tolist() == epsilons
    for epsilon, share in zip(epsilons, found.share, strict=True):
        if known:
            assert share == sum(radius >= epsilon and radius > 0 for radius in known) / len(known)
        else:
            assert math.isnan(share)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(radii=st.lists(RADII, min_size=1, max_size=12))
def test_by_default_the_curve_has_every_step_and_falls(radii):
    epsilons, share, _ = epsilon_curve(radii)
    assert epsilons.tolist() == sorted({0.0} | {radius for radius in radii if radius > 0})
    assert (np.diff(share) <= 0).all() or np.isnan(share).all()
    above = epsilon_curve(radii, np.nextafter(epsilons[:-1], np.inf)).share
    np.testing.assert_array_equal(above, share[1:])  # nothing happens between two steps


def test_a_radius_of_zero_is_not_argmaxable_even_for_a_noise_of_zero():
    assert epsilon_curve([0.0, 0.0, 3.0, 1.0], [0.0]).share.tolist() == [0.5]


def test_the_radii_may_be_a_tensor():
    found = epsilon_curve(torch.tensor([[1.0, 2.0], [0.0, 4.0]]), [1.0, 3.0])
    assert found.share.tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    ("radii", "epsilons", "text"),
    [
        ([1.0, -2.0], None, r"`radii` must be finite and at least 0, or NaN; got -2.0 at 1\."),
        ([math.inf], None, r"`radii` must be finite and at least 0, or NaN; got inf at 0\."),
        ([1.0], [-1.0], r"`epsilons` must be finite and at least 0; got \[-1.0\]\."),
        ([1.0], [math.nan], r"`epsilons` must be finite and at least 0; got \[nan\]\."),
    ],
)
def test_a_radius_that_cannot_be_is_refused(radii, epsilons, text):
    with pytest.raises(ValueError, match=text):
        epsilon_curve(radii, epsilons)


@pytest.mark.parametrize("num_labels", [1, 2, 9, 30])
def test_the_share_by_dimension_is_that_of_the_exact_count(num_labels):
    dims, log10_shares = share_by_dimension(num_labels)
    assert dims.tolist() == list(range(1, num_labels + 1))
    for dim, value in zip(dims.tolist(), log10_shares, strict=True):
        share = float(Fraction(count_argmaxable(num_labels, dim), 2**num_labels))
        assert value == pytest.approx(math.log10(share), rel=1e-14, abs=1e-15)


def test_dimensions_come_back_in_the_order_asked_for_and_beyond_the_labels():
    dims, log10_shares = share_by_dimension(4, [9, 0, 2, 2, 4])
    assert dims.tolist() == [9, 0, 2, 2, 4]
    assert log10_shares.tolist() == [0.0, -math.inf, math.log10(0.5), math.log10(0.5), 0.0]


def test_the_share_of_many_labels_does_not_underflow():
    _, log10_shares = share_by_dimension(5000, [1, 2500])
    assert log10_shares == pytest.approx([-4999 * math.log10(2), math.log10(0.5)], rel=1e-14)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: share_by_dimension(0), r"`num_labels` must be at least 1; got 0\."),
        (lambda: share_by_dimension(5, [2, -1]), r"`dims` must be at least 0; got -1\."),
        (lambda: radius_quantiles([9], [0], 0), r"`k` must be at least 1; got 0\."),
        (lambda: radius_quantiles([9, 4], [0], 2), r"`num_labels` must be at least 2k \+ 1 = 5; got 4\."),
        (lambda: radius_quantiles([9], [0, -1], 2), r"`slacks` must be at least 0; got -1\."),
        (lambda: radius_quantiles([9], [0], 2, quantile=1.1), r"`quantile` must lie in \[0, 1\]; got 1.1\."),
        (lambda: radius_quantiles([9], [0], 2, num_sets=0), r"`num_sets` must be at least 1; got 0\."),
    ],
)
def test_arguments_out_of_range_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_without_slack_single_labels_have_the_radius_of_the_linear_program():
    found = radius_quantiles([12], [0], k=1, num_sets=100, jobs=1)
    weight = dft_matrix(12, 1, dtype=torch.float64).numpy()
    # The box is not round, so labels differ; the smallest of 100 draws among 12 labels is the smallest of all.
    smallest = min(full_program(weight, [label]).low for label in range(12))
    assert found.radii[0, 0] == pytest.approx(smallest, rel=1e-6)
    assert found.undecided.tolist() == [[0]]


def test_radii_shrink_with_the_labels_and_grow_with_the_slack():
    found = radius_quantiles([16, 64, 256], [0, 4, 16], k=2, num_sets=40, jobs=1)
    assert found.radii.shape == (3, 3)
    assert (np.diff(found.radii, axis=0) < 0).all()
    assert (np.diff(found.radii, axis=1) > 0).all()
    assert not found.undecided.any()


def test_a_higher_quantile_is_no_smaller_and_the_ends_are_extremes():
    parts = [radius_quantiles([20], [2], 2, quantile=q, num_sets=25, jobs=1).radii[0, 0] for q in (0, 0.2, 0.5, 1)]
    assert parts == sorted(parts)
    assert parts[0] < parts[-1]


def test_the_seed_decides_and_neither_other_labels_nor_other_slacks_matter():
    together = radius_quantiles([16, 32], [0, 3, 5], 2, num_sets=15, seed=7, jobs=1)
    alone = radius_quantiles([32], [3], 2, num_sets=15, seed=7, jobs=1)
    other = radius_quantiles([32], [3], 2, num_sets=15, seed=8, jobs=1)
    assert alone.radii[0, 0] == together.radii[1, 1]
    assert other.radii[0, 0] != alone.radii[0, 0]


def test_regions_too_thin_for_float64_still_have_a_positive_radius():
    found = radius_quantiles([400], [0], 12, num_sets=12, quantile=0, jobs=1)
    assert not found.undecided.any()
    assert 0 < found.radii[0, 0] < 1e-8

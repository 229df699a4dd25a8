"""Counts of assignments against enumeration and identities; `test_exhaustive` compares them with the audit."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from shortlist.audit.counting import (
    count_alternating,
    count_argmaxable,
    count_k_active,
    cumulative_binomials,
    log10_share,
)


def assignments(num_labels):
    return list(itertools.product([0, 1], repeat=num_labels))


@pytest.mark.parametrize("num_labels", range(9))
def test_assignments_with_few_active_labels_are_counted(num_labels):
    for k in range(num_labels + 1):
        assert count_k_active(num_labels, k) == sum(sum(active) <= k for active in assignments(num_labels))


@pytest.mark.parametrize("num_labels", range(1, 9))
def test_assignments_with_few_sign_changes_are_counted(num_labels):
    signs = np.array(assignments(num_labels))
    changes = (signs[:, 1:] != signs[:, :-1]).sum(axis=1)
    around = changes + (signs[:, 0] != signs[:, -1])
    for most in range(num_labels + 2):
        assert count_alternating(num_labels, most) == (changes <= most).sum()
        if most % 2 == 0:
            assert count_alternating(num_labels, most) == (around <= most).sum()


@pytest.mark.parametrize("num_labels", [1, 2, 7, 40, 333])
def test_counts_obey_their_identities(num_labels):
    n = num_labels
    everything = 2**n
    assert count_argmaxable(n, 0) == 0
    assert count_argmaxable(n, 0, bias=True) == 1
    assert count_argmaxable(n, 1) == 2
    assert count_argmaxable(n, n) == count_argmaxable(n, n + 5) == count_argmaxable(n, n, bias=True) == everything
    assert count_k_active(n, n) == everything
    for dim in range(1, n):
        # Cover's recursion: a new hyperplane cuts the regions that meet it, which are those of one dimension less.
        assert count_argmaxable(n + 1, dim) == count_argmaxable(n, dim) + count_argmaxable(n, dim - 1)
        # A bias is one more feature that is held positive: half of the regions of that layer with one more label.
        assert 2 * count_argmaxable(n, dim, bias=True) == count_argmaxable(n + 1, dim + 1)
        # Complements: what d dimensions reach, n - d cannot.
        assert count_argmaxable(n, dim) + count_argmaxable(n, n - dim) == everything
    for k in range((n - 1) // 2 + 1):
        assert count_k_active(n, k) <= count_alternating(n, 2 * k) == count_argmaxable(n, 2 * k + 1)


def test_the_edges_of_the_range_are_counted():
    assert count_argmaxable(0, 0) == count_argmaxable(0, 3) == count_k_active(0, 0) == count_alternating(0, 0) == 1
    assert count_argmaxable(np.int64(200), np.int32(300)) == 2**200  # integers of fixed width do not overflow
    assert log10_share(2**199, np.int64(200)) == pytest.approx(-math.log10(2), rel=1e-15)
    assert log10_share(count_argmaxable(20_000, 1), 20_000) == pytest.approx(-19_999 * math.log10(2), rel=1e-15)
    assert log10_share(0, 20_000) == -math.inf


def test_sums_of_binomials_follow_the_definition():
    for n in (0, 1, 2, 9, 70):
        sums = list(cumulative_binomials(n))
        assert sums == [sum(math.comb(n, j) for j in range(m + 1)) for m in range(n + 1)]


@pytest.mark.parametrize("dim", [1, 2, 50, 400, 499, 500, 501, 600, 900, 990, 998, 999, 1000])
def test_the_logarithm_of_the_share_is_right_to_the_last_digits(dim):
    count = count_argmaxable(1000, dim)
    with mpmath.workdps(400):
        exact = mpmath.log10(mpmath.mpf(count) / mpmath.mpf(2) ** 1000)
        assert abs(log10_share(count, 1000) - exact) <= 4e-16 * abs(exact)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: count_argmaxable(-1, 2), ValueError, r"`num_labels` must be at least 0; got -1\."),
        (lambda: count_argmaxable(3, -2), ValueError, r"`dim` must be at least 0; got -2\."),
        (lambda: count_argmaxable(3, 1.5), TypeError, r"`dim` must be an integer; got float\."),
        (lambda: count_k_active(10, 11), ValueError, r"`k` must lie in \[0, 10\]; got 11\."),
        (lambda: count_k_active(10, -1), ValueError, r"`k` must be at least 0; got -1\."),
        (lambda: count_alternating(10, -1), ValueError, r"`changes` must be at least 0; got -1\."),
        (lambda: log10_share(9, 3), ValueError, r"`count` must lie in \[0, 2\*\*3\]; got a larger number\."),
        (lambda: log10_share(-1, 3), ValueError, r"`count` must be at least 0; got -1\."),
    ],
)
def test_a_wrong_number_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()

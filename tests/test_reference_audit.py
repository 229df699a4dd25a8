"""The references of the audit agree with each other, with Cover's count and with obvious cases."""

import math

import numpy as np
import pytest

from tests.audit.layers import every_set, labels_where
from tests.reference_audit import exact_decision, full_program, integer_rows, is_argmaxable, is_top_k, witness_holds


@pytest.mark.parametrize(("n", "d"), [(1, 1), (4, 1), (5, 2), (6, 3), (7, 4), (4, 6)])
def test_the_exact_decision_finds_as_many_sets_as_cover_counts(n, d):
    rng = np.random.default_rng(n)
    weight, bias = rng.standard_normal((n, d)), rng.standard_normal(n)
    sets = every_set(n)
    assert sum(is_argmaxable(weight, s) for s in sets) == 2 * sum(math.comb(n - 1, j) for j in range(d))
    assert sum(is_argmaxable(weight, s, bias) for s in sets) == sum(math.comb(n, j) for j in range(d + 1))


def test_integer_rows_keep_directions_across_the_whole_range_of_floats():
    rows = integer_rows(np.array([[0.5, -0.25, 0.0], [1e300, 1.0, -1e-300], [5e-324, 0.0, -1e-323]]))
    assert rows[0][0] == -2 * rows[0][1] > 0
    assert rows[0][2] == 0
    assert rows[1][0] * rows[1][2] < 0
    assert abs(rows[1][0]) > abs(rows[1][1]) * 10**299 > abs(rows[1][2]) * 10**598
    assert rows[2][2] == -2 * rows[2][0]


def test_the_exact_decision_sees_the_last_bit():
    almost = 1 + 2.0**-52
    assert exact_decision(integer_rows(np.array([[1.0, 1.0], [-1.0, -almost]]))).vector is not None
    assert exact_decision(integer_rows(np.array([[1.0, 1.0], [-1.0, -1.0]]))).combination is not None
    of_zeros = exact_decision(integer_rows(np.array([[1.0, 1.0], [0.0, 0.0]]))).combination
    assert of_zeros is not None
    assert of_zeros[0] == 0 < of_zeros[1]


def test_the_witness_check_sees_a_sign_lost_to_rounding():
    weight = np.array([[1.0, 1.0, 1.0]])
    vector = np.array([1e16, 1.0, -1e16])
    assert (weight @ vector).item() != 1.0
    assert witness_holds(weight, [0], vector)
    assert not witness_holds(weight, [0], -vector)
    assert not witness_holds(weight, [0], np.zeros(3))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_full_program_agrees_with_the_exact_decision(seed, biased):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(3, 20)), int(rng.integers(1, 6))
    weight, bias = rng.standard_normal((n, d)), rng.standard_normal(n) if biased else None
    for _ in range(8):
        labels = labels_where(weight @ rng.standard_normal(d) > 0.3 * rng.standard_normal(n))
        low, high, centre = full_program(weight, labels, bias)
        assert high - low < 1e-9
        assert (low > 1e-8) == is_argmaxable(weight, labels, bias)
        if low > 1e-8:
            assert witness_holds(weight, labels, centre, bias)


def test_the_radius_of_a_quadrant_is_the_size_of_the_box():
    # Only the centre stays within the box: the largest ball sits at its corner and touches both axes.
    low, high, centre = full_program(np.eye(2), [0, 1])
    assert low == pytest.approx(1e4)
    assert high == pytest.approx(1e4)
    np.testing.assert_allclose(centre, 1e4)


@pytest.mark.parametrize("biased", [False, True])
def test_a_free_threshold_is_the_same_as_all_pairs(biased):
    rng = np.random.default_rng(0)
    for _ in range(40):
        n, d = int(rng.integers(2, 8)), int(rng.integers(1, 4))
        weight = rng.integers(-2, 3, (n, d)).astype(float)
        bias = rng.integers(-2, 3, n).astype(float) if biased else None
        labels = labels_where(rng.random(n) < 0.4)
        assert is_top_k(weight, labels, bias) == is_argmaxable(weight, labels, bias, "top-k")

"""The radius where it is known in closed form, where it is tiny, and what the box does to it."""

import math

import numpy as np
import pytest

from shortlist.audit import audit
from tests.reference_audit import full_program


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_an_orthant_holds_a_ball_as_large_as_the_box(n):
    report = audit(np.eye(n), [[], list(range(n)), [n - 1]], jobs=1)
    np.testing.assert_allclose(report.radii, 1e4, rtol=1e-12)


@pytest.mark.parametrize("angle", [1.0, 1e-2, 1e-4, 1e-6])
def test_a_wedge_of_the_plane_has_the_radius_of_its_angle(angle):
    # Between the directions 0 and ``angle`` a center (x, y) in the box lies at distance y from one side and
    # x sin(angle) - y cos(angle) from the other: both equal x tan(angle / 2), with x at most 1e4.
    weight = np.array([[0.0, 1.0], [math.sin(angle), -math.cos(angle)]])
    report = audit(weight, [[0, 1]], jobs=1)
    assert report.verdicts[0] == "argmaxable"
    np.testing.assert_allclose(report.radii[0], 1e4 * math.tan(angle / 2), rtol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 5.0, 9e3])
def test_a_bias_moves_the_ball(shift):
    # v + shift > 0 and v < 1: the ball on the line fills the interval unless the box ends it.
    report = audit(np.array([[1.0], [1.0]]), [[0]], np.array([shift, -1.0]), jobs=1)
    np.testing.assert_allclose(report.radii, (1 + shift) / 2, rtol=1e-9)


def test_a_region_that_lies_outside_the_box_is_argmaxable_without_a_radius():
    weight, bias = np.array([[1e-6]]), np.array([-1.0])
    report = audit(weight, [[0]], bias, jobs=1)
    assert report.verdicts[0] == "argmaxable"
    assert report.radii[0] == 0
    assert report.verify() == []


def test_a_region_that_the_box_cuts_gets_the_radius_within_the_box():
    weight, bias = np.array([[1.0], [1.0]]), np.array([-9999.0, -20000.0])
    report = audit(weight, [[0]], bias, jobs=1)
    np.testing.assert_allclose(report.radii, 1.0, rtol=1e-9)


def test_a_row_of_zeros_counts_by_its_bias_alone():
    weight = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    for labels in ([], [1], [0, 1, 2]):
        assert audit(weight, [labels], jobs=1).verdicts[0] == "unargmaxable"
    report = audit(weight, [[0], [0, 1], [0, 1, 2]], np.array([0.0, 2.0, 0.0]), jobs=1)
    assert report.verdicts.tolist() == ["unargmaxable", "argmaxable", "argmaxable"]
    np.testing.assert_allclose(report.radii, [0, 1e4, 1e4])
    assert report.verify() == []


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(2000, 50), (3000, 100)])
def test_large_layers_have_the_radius_of_the_full_program(n, d):
    rng = np.random.default_rng(n)
    weight = rng.standard_normal((n, d))
    sets = [np.flatnonzero(weight @ rng.standard_normal(d) > 0).tolist() for _ in range(3)]
    sets += [sorted(rng.choice(n, size, replace=False).tolist()) for size in (1, 5, 50)]
    report = audit(weight, sets, jobs=1)
    for i, labels in enumerate(sets):
        program = full_program(weight, labels)
        assert report.verdicts[i] == ("argmaxable" if program.low > 1e-8 else "unargmaxable")
        np.testing.assert_allclose(report.radii[i], max(program.low, 0), rtol=1e-6)


def test_entries_near_the_largest_float_have_a_radius():
    report = audit(np.full((50, 5), 1e308), [list(range(50)), [0]], jobs=1)
    assert report.verdicts.tolist() == ["argmaxable", "unargmaxable"]
    np.testing.assert_allclose(report.radii, [1e4 * 5**0.5, 0.0], rtol=1e-9)

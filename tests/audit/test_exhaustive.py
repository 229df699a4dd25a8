"""All assignments of small layers: Cover's count in general position, and the exact truth where rows coincide."""

import numpy as np
import pytest

from shortlist.audit import audit, count_argmaxable
from tests.audit.layers import Case, every_set, labels_where
from tests.audit.reports import checked_audit, true_verdicts

LARGEST = [
    pytest.param(n, d, marks=[] if n < 8 or (n in (8, 10) and d in (1, 3, 7)) else pytest.mark.slow)
    for n in range(1, 11)
    for d in range(1, n + 2)
]

HUNDREDS = [pytest.param(start, marks=[] if start < 80 else pytest.mark.slow) for start in range(0, 200, 20)]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("n", "d"), LARGEST)
def test_as_many_assignments_are_argmaxable_as_cover_counts(n, d, biased):
    rng = np.random.default_rng(100 * n + d)
    weight, bias = rng.standard_normal((n, d)), rng.standard_normal(n) if biased else None
    report = audit(weight, every_set(n), bias, jobs=1, radius=False)
    assert set(report.verdicts) <= {"argmaxable", "unargmaxable"}
    assert (report.verdicts == "argmaxable").sum() == count_argmaxable(n, d, bias=biased)
    assert report.verify() == []


@pytest.mark.parametrize(("n", "d"), [(4, 2), (6, 3), (8, 2), (8, 5)])
def test_the_regions_with_a_radius_are_the_same_and_opposite_ones_are_equal(n, d):
    weight = np.random.default_rng(n + d).standard_normal((n, d))
    report = audit(weight, every_set(n), jobs=1)
    assert ((report.radii > 0) == (report.verdicts == "argmaxable")).all()
    assert (report.radii > 0).sum() == count_argmaxable(n, d)
    # The complement of a set asks for the opposite vector.
    np.testing.assert_allclose(report.radii, report.radii[::-1], rtol=1e-9)


def integer_case(seed: int) -> Case:
    """Small integers, with repeated, opposite and zero rows, and several sets."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    weight = rng.integers(-2, 3, (n, d)).astype(float)
    if n > 2:
        i, j = rng.choice(n, 2, replace=False)
        weight[i] = rng.choice([-2.0, -1.0, 0.0, 1.0, 3.0]) * weight[j]
    bias = rng.integers(-1, 2, n).astype(float) if seed % 3 == 1 else None
    mode = "top-k" if seed % 5 == 4 else "sign"
    sets = every_set(n) if n <= 4 else [labels_where(rng.random(n) < 0.5) for _ in range(4)]
    # Sets that have a vector, up to ties.
    sets += [labels_where(weight @ rng.integers(-3, 4, d) > 0) for _ in range(8)]
    return Case(weight, bias, mode, sets)


@pytest.mark.parametrize("start", HUNDREDS)
def test_layers_of_small_integers_are_decided_whatever_the_ties(start):
    for seed in range(start, start + 20):
        case = integer_case(seed)
        assert "undecided" not in checked_audit(case).verdicts, seed


@pytest.mark.slow
def test_no_layer_of_thousands_with_small_integers_gets_a_wrong_verdict():
    for seed in range(1000, 3000):
        case = integer_case(seed)
        report = audit(case.weight, case.label_sets, case.bias, mode=case.mode, jobs=1, radius=False)
        assert ((report.verdicts == true_verdicts(case)) | (report.verdicts == "undecided")).all(), seed


@pytest.mark.parametrize("factor", [1.0, 3.0, 2.0**-70])
def test_rows_on_one_line_cannot_differ(factor):
    weight = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0], [1.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    weight[3] = factor * weight[0]
    report = audit(weight, [[0], [0, 1], [1, 2, 3], [0, 3]], jobs=1)
    assert report.verdicts.tolist() == ["unargmaxable"] * 3 + ["argmaxable"]
    assert report.verify() == []

"""Verdicts and radii agree with the full linear program on more than 500 mixed sets."""

from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from shortlist.audit import audit
from tests.audit.layers import LAYERS, Case, make_case
from tests.audit.reports import exact_check
from tests.reference_audit import TEXT_EPSILON, Radius, full_program, witness_holds

SIZES = [
    (3, 1),
    (3, 3),
    (8, 2),
    (20, 5),
    (40, 1),
    (60, 10),
    (100, 20),
    (150, 30),
    (250, 8),
    (300, 3),
    (400, 15),
    (400, 30),
]
PLACES = [(kind, *size) for kind, size in product(LAYERS, SIZES)]
# Bias and mode move on by one from kind to kind, so that every size meets both.
TURNS = [i + i // len(SIZES) for i in range(len(PLACES))]
CASES = [
    pytest.param(
        *place,
        turn % 2 == 1,
        "top-k" if turn % 3 == 2 else "sign",
        seed,
        id="-".join(map(str, place)),
        marks=[pytest.mark.slow] * (seed % 2),
    )
    for seed, (place, turn) in enumerate(zip(PLACES, TURNS, strict=True))
]


@lru_cache(maxsize=len(CASES))
def answers(kind: str, n: int, d: int, biased: bool, mode: str, seed: int) -> tuple[Case, list[Radius]]:
    case = make_case(kind, n, d, biased=biased, mode=mode, seed=seed)
    return case, [full_program(case.weight, labels, case.bias, mode) for labels in case.label_sets]


def unclear(program: Radius) -> bool:
    """The bounds of the reference leave open on which side of the published threshold the radius lies."""
    return program.high > TEXT_EPSILON and program.low < 10 * TEXT_EPSILON


@pytest.mark.parametrize(("kind", "n", "d", "biased", "mode", "seed"), CASES)
def test_verdict_and_radius_are_those_of_the_full_program(kind, n, d, biased, mode, seed):
    case, programs = answers(kind, n, d, biased, mode, seed)
    report = audit(case.weight, case.label_sets, case.bias, mode=mode, jobs=1)
    assert report.verify() == []
    for i, program in enumerate(programs):
        if unclear(program):
            exact_check(report, case, i)
            continue
        assert report.verdicts[i] == ("argmaxable" if program.low > TEXT_EPSILON else "unargmaxable"), i
        low, high = report.radius_bounds[i]
        if report.verdicts[i] == "unargmaxable":
            assert report.radii[i] == 0
            assert low <= 0 <= high < TEXT_EPSILON
        else:
            np.testing.assert_allclose(report.radii[i], program.low, rtol=1e-6)
            assert low <= program.high * (1 + 1e-9)
            assert high >= program.low * (1 - 1e-9)
            assert high - low <= 1e-6 * high
    assert sum(map(unclear, programs)) <= 1


@pytest.mark.parametrize(("kind", "n", "d", "biased", "mode", "seed"), CASES[::4])
def test_without_the_radius_verdicts_stay_and_the_bounds_hold_it(kind, n, d, biased, mode, seed):
    case, programs = answers(kind, n, d, biased, mode, seed)
    report = audit(case.weight, case.label_sets, case.bias, mode=mode, jobs=1, radius=False)
    assert report.verify() == []
    for i, program in enumerate(programs):
        if not unclear(program):
            assert report.verdicts[i] == ("argmaxable" if program.low > TEXT_EPSILON else "unargmaxable"), i
            low, high = report.radius_bounds[i]
            assert low <= max(program.high, 0) * (1 + 1e-9) + 1e-9
            assert high >= program.low * (1 - 1e-9)


@pytest.mark.parametrize(("kind", "n", "d", "biased", "mode", "seed"), CASES[2::6])
def test_the_centre_of_the_ball_achieves_the_radius_inside_the_box(kind, n, d, biased, mode, seed):
    case, _ = answers(kind, n, d, biased, mode, seed)
    report = audit(case.weight, case.label_sets, case.bias, mode=mode, jobs=1)
    found = 0
    for i in np.flatnonzero(report.verdicts == "argmaxable"):
        centre = report.centres[i]
        assert np.abs(centre).max() <= 1e4
        assert witness_holds(case.weight, case.label_sets[i], centre, case.bias, mode)
        rows = np.hstack([case.weight, np.ones((n, 1))]) if mode == "top-k" else case.weight
        y = np.full(n, -1.0)
        y[case.label_sets[i]] = 1.0
        margins = y * (rows @ centre + (0 if case.bias is None else case.bias)) / np.linalg.norm(rows, axis=1)
        assert margins.min() == pytest.approx(report.radii[i], rel=1e-6)
        found += 1
    assert found >= 4
    assert np.isnan(report.centres[report.verdicts != "argmaxable"]).all()


def test_the_mixture_is_large_and_holds_both_verdicts():
    assert 12 * len(CASES) >= 500
    argmaxable = [program.low > TEXT_EPSILON for case in CASES[::5] for program in answers(*case.values)[1]]
    assert 0.2 < np.mean(argmaxable) < 0.8

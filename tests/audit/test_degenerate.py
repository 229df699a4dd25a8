"""Layers at the edge of what float64 tells apart: a verdict may be missing there, but none is wrong and none hangs."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.random import Generator

from shortlist.audit import audit
from tests.audit.layers import Case, labels_where
from tests.audit.reports import checked_audit
from tests.reference_audit import full_program, is_argmaxable

Spoil = Callable[[Generator, np.ndarray, float], np.ndarray]


@contextmanager
def patience(seconds: float = 120) -> Iterator[None]:
    """An audit that does not end would stop the whole suite; this is thousands of times what it needs."""

    def give_up(*_: object) -> None:
        raise TimeoutError("the audit does not end")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def twins(rng: Generator, weight: np.ndarray, gap: float) -> np.ndarray:
    """Rows that repeat another one, or its opposite, up to the gap."""
    for _ in range(len(weight) // 2):
        i, j = rng.choice(len(weight), 2, replace=False)
        weight[i] = rng.choice([-1, 1]) * weight[j] * (1 + gap * rng.standard_normal(weight.shape[1]))
    return weight


def triple(rng: Generator, weight: np.ndarray, gap: float) -> np.ndarray:
    """A row that two others cancel up to the gap."""
    weight[0] = -rng.random() * weight[1] - rng.random() * weight[2] + gap * rng.standard_normal(weight.shape[1])
    return weight


def thirds(rng: Generator, weight: np.ndarray, gap: float) -> np.ndarray:
    """Few values, rounded in the last bit."""
    return np.round(3 * weight) / 3


def columns(rng: Generator, weight: np.ndarray, gap: float) -> np.ndarray:
    """Features of very different scales."""
    return weight * 10.0 ** rng.integers(-12, 1, weight.shape[1])


def line(rng: Generator, weight: np.ndarray, gap: float) -> np.ndarray:
    """All rows on one line, up to the gap."""
    return weight[:, :1] * rng.standard_normal(weight.shape[1]) + gap * weight


KINDS: dict[str, Spoil] = {spoil.__name__: spoil for spoil in (twins, triple, thirds, columns, line)}


def spoiled_case(kind: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(3, 16)), int(rng.integers(1, 6))
    weight = KINDS[kind](rng, rng.standard_normal((n, d)), 10.0 ** rng.integers(-17, -5))
    scale = 10.0 ** rng.integers(-8, 4) * rng.integers(0, 2)
    bias = scale * np.linalg.norm(weight, axis=1) * rng.standard_normal(n) if seed % 2 else None
    sets = []
    for _ in range(8):
        vector = rng.standard_normal(d) * 10.0 ** rng.integers(-2, 3, d)
        positive = weight @ vector + (0 if bias is None else bias) > 0
        positive[rng.choice(n, int(rng.integers(0, 3)))] ^= True
        sets.append(labels_where(positive))
    return Case(weight, bias, "top-k" if seed % 3 == 2 else "sign", sets)


@pytest.mark.parametrize(
    "seeds",
    [range(8), *(pytest.param(range(start, start + 100), marks=pytest.mark.slow) for start in range(1000, 2000, 100))],
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_verdict_on_a_nearly_degenerate_layer_is_wrong(kind, seeds):
    for seed in seeds:
        with patience():
            checked_audit(spoiled_case(kind, seed), radius=seed % 2 == 0)


@pytest.mark.parametrize("power", range(1, 14))
def test_the_radius_of_two_nearly_equal_rows_lies_between_its_bounds(power):
    gap = 10.0**-power
    weight = np.array([[1.0, gap], [1.0, 2 * gap]])
    # Both sides are tight at the edge v_2 = -1e4 of the box.
    radius = 1e4 * gap / np.linalg.norm(weight, axis=1).sum()
    report = audit(weight, [[0]], jobs=1)
    assert report.verdicts[0] == "argmaxable"
    low, high = report.radius_bounds[0]
    assert low <= radius * (1 + 1e-12)
    assert high >= radius * (1 - 1e-12)
    # Vectors of the box are known to 1e-12: that much of the radius rounding may take.
    assert high - low <= 1e-6 * radius + 1e-10


@pytest.mark.parametrize("mode", ["sign", "top-k"])
@pytest.mark.parametrize("power", [-3, -6, -9, 3])
def test_features_of_different_scales_keep_the_radius_of_the_full_program(power, mode):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((40, 4)) * np.array([1.0, 10.0**power, 1.0, 10.0 ** (power / 2)])
    sets = [labels_where(weight @ (rng.standard_normal(4) / np.abs(weight).max(0)) > 0) for _ in range(6)]
    report = audit(weight, sets, mode=mode, jobs=1)
    for i, labels in enumerate(sets):
        program = full_program(weight, labels, None, mode)
        assert report.verdicts[i] == "argmaxable"
        if program.high - program.low < 1e-7 * program.low:
            np.testing.assert_allclose(report.radii[i], program.low, rtol=1e-6)


def test_a_badly_scaled_column_does_not_keep_the_radius_from_ending():
    weight = np.array([[-0.036, 7.8e-10], [-0.069, 1.33e-8]])
    with patience():
        report = audit(weight, [[0]], mode="top-k", jobs=1)
    assert report.verdicts[0] == "argmaxable"
    np.testing.assert_allclose(report.radii[0], full_program(weight, [0], None, "top-k").low, rtol=1e-6)


@pytest.mark.parametrize("gap", [1e-7, 1e-9, 0.0])
def test_near_duplicates_with_opposite_labels_are_decided(gap):
    rng = np.random.default_rng(11)
    for _ in range(12):
        weight = rng.standard_normal((14, 4))
        weight[1] = weight[0] * (1 + gap * rng.standard_normal(4))
        direction = weight[0] - weight[1] if gap else rng.standard_normal(4)
        vector = direction - (direction @ weight[0]) / (weight[0] @ weight[0]) * weight[0]
        positive = set(np.flatnonzero(weight @ vector > 0).tolist()) | {0}
        sets = [sorted(positive - {1}), sorted((positive | {1}) - {0}), [0], sorted((positive - {1}) ^ {2})]
        report = audit(weight, sets, jobs=1)
        truth = [is_argmaxable(weight, labels) for labels in sets]
        assert report.verdicts.tolist() == ["argmaxable" if yes else "unargmaxable" for yes in truth]

"""Newton's method for large sets finds witnesses, claims nothing else, and changes no verdict."""

import numpy as np
import pytest

from shortlist.audit import audit, decide
from shortlist.audit.decide import _first_fit, newton_witness
from shortlist.audit.system import System


def layer(labels: int, dim: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((labels, dim))


def found(weight: np.ndarray, active: np.ndarray, bias=None, mode="sign") -> np.ndarray | None:
    system = System(weight, bias, mode).prepare()
    signs = system.signs(active)
    direction = newton_witness(system, signs, *_first_fit(system, signs, active))
    if direction is not None:
        assert (signs * (system.unit @ direction) > 0).all()
    return direction


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("labels", "dim"), [(60, 3), (400, 10), (1500, 40)])
def test_sets_of_a_known_input_are_mostly_found(labels, dim, seed):
    weight = layer(labels, dim, seed)
    rng = np.random.default_rng(seed + 100)
    sets = [np.flatnonzero(weight @ rng.standard_normal(dim) > 0) for _ in range(10)]
    assert sum(found(weight, active) is not None for active in sets) >= 7


def test_a_bias_and_a_free_threshold_are_found_too():
    weight, bias = layer(500, 12, 0), layer(500, 1, 1)[:, 0]
    vector = np.random.default_rng(2).standard_normal(12)
    assert found(weight, np.flatnonzero(weight @ vector + bias > 0), bias) is not None
    assert found(weight, np.argsort(weight @ vector)[-200:], mode="top-k") is not None


@pytest.mark.parametrize("mode", ["sign", "top-k"])
def test_verdicts_are_the_same_without_it(mode, monkeypatch):
    weight, rng = layer(300, 8, 5), np.random.default_rng(6)
    logits = weight @ rng.standard_normal((8, 12))
    sets = [np.flatnonzero(column > 0) for column in logits.T]
    sets += [active[1:] for active in sets] + [np.flatnonzero(rng.random(300) > 0.6)]
    monkeypatch.setattr(decide, "_MANY", 1)
    quick = audit(weight, sets, mode=mode, jobs=1)
    monkeypatch.setattr(decide, "newton_witness", lambda *_: None)
    plain = audit(weight, sets, mode=mode, jobs=1)
    assert quick.verdicts.tolist() == plain.verdicts.tolist()
    np.testing.assert_allclose(quick.radii, plain.radii, rtol=1e-6)
    assert quick.verify() == []


def test_the_bounds_that_come_with_it_hold_the_radius(monkeypatch):
    monkeypatch.setattr(decide, "_MANY", 1)
    weight, rng = layer(400, 10, 7), np.random.default_rng(8)
    sets = [np.flatnonzero(weight @ rng.standard_normal(10) > 0) for _ in range(10)]
    bounds, exact = audit(weight, sets, radius=False, jobs=1).radius_bounds, audit(weight, sets, jobs=1).radii
    assert (bounds[:, 0] <= exact * (1 + 1e-9)).all()
    assert (exact <= bounds[:, 1] * (1 + 1e-9)).all()

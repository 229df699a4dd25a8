"""The mathematics behind the pictures: vertices, roots, calibration, exponents, genera and alternating signs."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from experiments.argmaxable_pictures import alternating_trial, count_trial, dft_trial, plane_signs
from experiments.level_sets import exponent, loss_of, misses, zero_one
from experiments.lml_pictures import (
    binary,
    bisected_root,
    entropy_trial,
    one_sided,
    profile,
    rounds,
    surfaces,
    vertices,
)
from experiments.lorenz_curves import gini_of_genera
from experiments.presentation import power, worded
from shortlist.audit import count_argmaxable
from shortlist.functional import cross_entropy, lml_dual, topk_hinge


def test_the_exponent_of_a_power_law_is_found():
    x = [1.0, 2.0, 5.0]
    assert power(x, [3 * value**-0.5 for value in x]) == pytest.approx(-0.5)
    with pytest.raises(ValueError, match="at least 2 different values"):
        power([1.0, 1.0], [2.0, 3.0])


@pytest.mark.parametrize(("value", "words"), [(3e-9, "3·10⁻⁹"), (0.25, "0.25"), (3530.4, "3,530"), (2e12, "2·10¹²")])
def test_numbers_are_worded_with_true_exponents(value: float, words: str):
    assert worded(value) == words


def test_an_exponent_is_judged_by_its_interval():
    assert exponent({"a": [-0.5, -0.501, -0.499]}, -0.5).verdict == "holds"
    assert exponent({"a": [-1.0, -1.01, -0.99]}, -0.5).verdict == "does not hold"
    assert exponent({"a": [-0.9, -0.1, -0.5]}, -0.5).verdict == "not decidable"


@pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 2), (5, 3)])
def test_the_vertices_of_the_polytope_are_the_sets_of_k_labels(n: int, k: int):
    corners = vertices(n, k)
    assert len(corners) == math.comb(n, k)
    assert set(np.unique(corners)) == {0.0, 1.0}
    assert (corners.sum(1) == k).all()


def test_bisection_agrees_with_the_dual_and_bracketing_ends():
    x = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bisected_root(x, 2), lml_dual(x, 2), rtol=0, atol=1e-12)
    assert 1 <= rounds(x[0], 2, -20.0, 20.0, 100) < 12


def test_entropies_are_those_of_their_projections():
    centre = np.full(3, 2 / 3)
    assert one_sided(centre) == pytest.approx(-2 * math.log(2 / 3))
    assert binary(np.array([0.5, 0.5])) == pytest.approx(2 * math.log(2))
    at, line = profile(*surfaces(2)["lml"], 10)
    assert (at[0], at[-1]) == (-1, 1)
    assert line[0] == pytest.approx(0)
    assert line.max() == pytest.approx(1)


def test_the_trial_of_the_entropies_sees_that_only_one_of_them_reaches_one():
    found = entropy_trial({"k": 2, "pairs": 50, "scale": 2.0, "seed": 0}, root=None)  # type: ignore[arg-type]
    assert found["lml_at_one"] == 0 < found["constrained_at_one"]
    assert max(found["dent"], found["above_center"]) < 1e-12


def test_the_top_k_error_counts_scores_above_the_true_one():
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    assert zero_one(scores, torch.tensor([2, 2]), 2).tolist() == [1, 0]


def test_only_the_calibrated_hinge_and_cross_entropy_hit_the_top_k():
    probabilities = torch.tensor([[0.4, 0.35, 0.25]], dtype=torch.float64)
    grid = {"reach": 2.0, "cells": 8}
    for kind, missed in (("calibrated", 0), ("plain", 1)):
        loss = partial(topk_hinge, k=1, kind=kind, reduction="none")
        assert misses(loss, probabilities, 1, **grid) == missed
    assert misses(partial(cross_entropy, reduction="none"), probabilities, 1, **grid) == 0


def test_an_unknown_loss_is_refused_by_name():
    with pytest.raises(ValueError, match="`loss` must be one of"):
        loss_of({"loss": "square"}, 1)


def test_all_genera_have_the_gini_coefficient_of_everything():
    counts, genera = np.array([1, 2, 3, 10]), np.array(["a", "a", "b", "c"], dtype=object)
    assert gini_of_genera(counts, genera, 1.0, 0) == pytest.approx(28 / 64)
    assert gini_of_genera(np.array([4, 4]), np.array(["a", "b"], dtype=object), 0.5, 0) == 0


def test_lines_in_the_plane_cut_out_as_many_regions_as_the_formula_says():
    weight = np.random.default_rng(0).standard_normal((5, 2))
    signs = plane_signs(weight)
    assert len({tuple(row) for row in signs.tolist()}) == count_argmaxable(5, 2)
    with pytest.raises(ValueError, match="2 features; got 3"):
        plane_signs(np.ones((4, 3)))


def test_small_layers_are_counted_by_the_auditor():
    root = None
    found = count_trial({"sizes": [[3, 2]], "seed": 0}, root)  # type: ignore[arg-type]
    assert found == {"counts": {"3,2": 6}, "undecided": 0}
    assert alternating_trial({"sizes": [[4, 2]], "seed": 0}, root)["exact"] == 1  # type: ignore[arg-type]
    (layer,) = dft_trial({"sizes": [[5, 1]]}, root)["layers"]  # type: ignore[arg-type]
    assert layer == {"n": 5, "k": 1, "exact": 1, "sparse": 1}

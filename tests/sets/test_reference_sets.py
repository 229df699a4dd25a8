"""The references of the set rules are what can be worked out by hand, and agree with each other."""

import math
from fractions import Fraction

import numpy as np

from tests import reference_sets as reference

ROWS = [[0.5, 0.25, 0.25], [0.75, 0.125, 0.125], [0.25, 0.5, 0.25]]


def test_average_k_by_hand():
    """0.75, 0.5, 0.5, then four times 0.25: of these the first label has one, the second one, the last two."""
    assert reference.average_k(ROWS, 1) == (3, {(0, 0), (1, 0), (2, 1)}, [], 0)
    assert reference.average_k(ROWS, 4 / 3 + 1e-12) == (4, {(0, 0), (1, 0), (2, 1), (2, 0)}, [], 0)
    assert reference.average_k(ROWS, 2) == (6, {(0, 0), (1, 0), (2, 1), (2, 0), (0, 1)}, [(0, 2), (2, 2)], 1)
    assert reference.average_k(ROWS, 0.5) == (1, {(1, 0)}, [], 0)
    assert reference.midpoint(ROWS, 1) == Fraction(3, 8)
    assert reference.average_k([[-math.inf, 0.5]], 7) == (1, {(0, 1)}, [], 0)


def test_conformal_cuts_by_hand():
    assert [reference.conformal_rank(0.1, count) for count in (8, 9, 10, 19)] == [9, 9, 10, 18]
    assert reference.conformal_cut([0.1, 0.2, 0.3, 0.4], 0.5) == (0.3, Fraction(1, 2))
    assert reference.conformal_cut([0.1, 0.3, 0.3, 0.3], 0.5) == (0.3, Fraction(2, 4))
    assert reference.conformal_cut([0.1, 0.2], 0.1) == (math.inf, 1)


def test_a_new_value_is_below_a_cut_as_often_as_its_rank_says():
    """Of N + 1 values, each in turn the new one, r are in the set, with ties counted by their probability."""
    rng = np.random.default_rng(0)
    for count, alpha in ((5, 0.3), (9, 0.1), (12, 0.42)):
        values = rng.integers(0, 4, count + 1).tolist()
        inside = Fraction(0)
        for i, new in enumerate(values):
            inside += reference.chances([new], reference.conformal_cut(values[:i] + values[i + 1 :], alpha))[0]
        assert inside == reference.conformal_rank(alpha, count)


def test_masses_by_hand():
    assert reference.mass_scores([0.25, 0.5, 0.25]) == [Fraction(3, 4), Fraction(1, 2), 1]
    assert reference.mass_scores([0.25, 0.5, 0.25], u=0.5) == [Fraction(5, 8), Fraction(1, 4), Fraction(7, 8)]
    penalised = reference.mass_scores([0.25, 0.5, 0.25], penalty=0.1, free=1)
    assert penalised == [Fraction(3, 4) + Fraction(1, 10), Fraction(1, 2), 1 + Fraction(2, 10)]


def test_recall_control_by_hand():
    """Of three rows one half may be missed: (1/2 + 1)/4 <= 0.4, and (1 + 1)/4 is not."""
    rows, positives = [[0.9, 0.8], [0.2, 0.7], [0.6, 0.1]], [{0, 1}, {0, 1}, {0}]
    assert reference.recall_control(rows, positives, 0.4) == 0.6
    assert reference.recall_control(rows, positives, 0.3) == 0.2
    assert reference.recall_control(rows, positives, 0.2) == -math.inf
    assert reference.recall_control([*rows, [1.0, 1.0]], [*positives, set()], 0.4) == 0.6


def test_f1_by_hand():
    assert reference.f1([True, True, False], [True, False, True]) == Fraction(1, 2)
    assert reference.best_f1([0.9, 0.5, 0.4, 0.1], [True, False, True, False]) == Fraction(4, 5)
    assert reference.best_f1([0.9, 0.5], [False, False]) == 0

"""Checks of what worlds take: one sentence for every wrong value, and numbers of any library."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from shortlist.data.worlds.checks import need_inputs, need_positive_pair, need_share, need_whole, need_whole_pair


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2)])
def test_integers_become_ints(value):
    assert type(need_whole("n", value, at_least=2)) is int
    assert need_whole("n", value, at_least=2) == 2


@pytest.mark.parametrize("value", [1, 2.0, True, "2", None, math.nan, np.float64(2), np.bool_(True)])
def test_what_is_no_integer_or_too_small_is_refused(value):
    with pytest.raises(ValueError, match=r"`n` must be an integer, at least 2; got .*\.$"):
        need_whole("n", value, at_least=2)


@pytest.mark.parametrize("pair", [(1, 3), [1, 3], np.array([1, 3]), torch.tensor([1, 3])])
def test_a_pair_may_come_in_many_forms(pair):
    for found, kind in ((need_whole_pair("p", pair, at_least=1), int), (need_positive_pair("p", pair), float)):
        assert found == (1, 3)
        assert [type(value) for value in found] == [kind, kind]


@pytest.mark.parametrize("pair", [5, None, "ab", (1,), (1, 2, 3), {1, 2}])
def test_what_is_no_pair_is_refused(pair):
    for check in (need_positive_pair, lambda name, pair: need_whole_pair(name, pair, at_least=1)):
        with pytest.raises(ValueError, match=r"`p` must be two numbers; got .*\.$"):
            check("p", pair)


@pytest.mark.parametrize("pair", [(0, 1), (2, 1), (-1, 1), (1, math.inf), (math.nan, 1), ("a", "b")])
def test_bounds_must_be_positive_and_rise(pair):
    with pytest.raises(ValueError, match=r"`p` must be two positive numbers, the smaller first; got .*\.$"):
        need_positive_pair("p", pair)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((2.5, 8), r"integer, at least 1; got 2\.5"),
        ((0, 8), "at least 1; got 0"),
        ((8, 2), r"smaller number first; got \(8, 2\)"),
    ],
)
def test_whole_bounds_must_be_whole_and_rise(pair, message):
    with pytest.raises(ValueError, match=message):
        need_whole_pair("p", pair, at_least=1)


def test_shares_are_from_zero_to_one():
    assert [need_share("s", value) for value in (0, 1, np.float32(0.5), Fraction(1, 4))] == [0.0, 1.0, 0.5, 0.25]
    for value in (-0.1, 1.1, math.nan, "0.5", None):
        with pytest.raises(ValueError, match=r"`s` must lie in \[0, 1\]; got .*\.$"):
            need_share("s", value)


def test_inputs_must_be_floating_and_of_the_right_width():
    need_inputs(torch.zeros(0, 3), 3)
    for x, got in ((torch.zeros(2, 3, dtype=torch.int64), "torch.int64"), ([[1.0]], "list")):
        with pytest.raises(TypeError, match=rf"`x` must be floating; got {got}\.$"):
            need_inputs(x, 3)
    for x in (torch.zeros(3), torch.zeros(2, 4), torch.zeros(1, 2, 3)):
        with pytest.raises(ValueError, match=r"`x` must have shape \(B, 3\); got .*\.$"):
            need_inputs(x, 3)

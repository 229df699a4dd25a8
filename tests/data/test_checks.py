"""Checks that readers, procedures and worlds share: one sentence for every wrong value, and numbers of any library."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from shortlist.data.checks import (
    check_inputs,
    check_positive_pair,
    check_range,
    check_share,
    check_size_pair,
    integer_tensor,
)


@pytest.mark.parametrize("pair", [(1, 3), [1, 3], np.array([1, 3]), torch.tensor([1, 3])])
def test_a_pair_may_come_in_many_forms(pair):
    for found, kind in ((check_size_pair("p", pair), int), (check_positive_pair("p", pair), float)):
        assert found == (1, 3)
        assert [type(value) for value in found] == [kind, kind]


@pytest.mark.parametrize("pair", [5, None, "ab", (1,), (1, 2, 3), {1, 2}])
def test_what_is_no_pair_is_refused(pair):
    for check in (check_positive_pair, check_size_pair):
        with pytest.raises(ValueError, match=r"`p` must be two numbers; got .*\.$"):
            check("p", pair)


@pytest.mark.parametrize("pair", [(0, 1), (2, 1), (-1, 1), (1, math.inf), (math.nan, 1), ("a", "b")])
def test_bounds_must_be_positive_and_rise(pair):
    with pytest.raises(ValueError, match=r"`p` must be two positive numbers, the smaller first; got .*\.$"):
        check_positive_pair("p", pair)


def test_sizes_must_be_whole_and_rise():
    with pytest.raises(TypeError, match=r"`p` must be a whole number; got 2\.5\.$"):
        check_size_pair("p", (2.5, 8))
    for pair, message in (((0, 8), "at least 1; got 0"), ((8, 2), r"the smaller number first; got \(8, 2\)")):
        with pytest.raises(ValueError, match=message):
            check_size_pair("p", pair)


def test_shares_are_from_zero_to_one():
    assert [check_share("s", value) for value in (0, 1, np.float32(0.5), Fraction(1, 4))] == [0.0, 1.0, 0.5, 0.25]
    for value in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"^`s` must lie in \[0, 1\]; got .*\.$"):
            check_share("s", value)
    with pytest.raises(ValueError, match=r"^`s` must lie in \[0, 1\); got 1\.$"):
        check_share("s", 1, below_one=True)
    for value in ("0.5", None, True):
        with pytest.raises(TypeError, match=r"^`s` must be a number; got .*\.$"):
            check_share("s", value)


def test_inputs_must_be_floating_and_of_the_right_width():
    check_inputs(torch.zeros(0, 3), 3)
    for x, got in ((torch.zeros(2, 3, dtype=torch.int64), "torch.int64"), ([[1.0]], "list")):
        with pytest.raises(TypeError, match=rf"`x` must be floating; got {got}\.$"):
            check_inputs(x, 3)
    for x in (torch.zeros(3), torch.zeros(2, 4), torch.zeros(1, 2, 3)):
        with pytest.raises(ValueError, match=r"`x` must have shape \(B, 3\); got .*\.$"):
            check_inputs(x, 3)


@pytest.mark.parametrize("values", [[1, 0], np.array([1, 0], np.uint8), torch.tensor([1, 0], dtype=torch.int32), []])
def test_indices_become_int64(values):
    assert integer_tensor("rows", values).dtype == torch.int64
    assert integer_tensor("rows", values).tolist() == list(values)


@pytest.mark.parametrize("values", [[True, False], torch.tensor([True]), np.array([False]), [0.9, 1.0], ["a"]])
def test_masks_and_fractions_are_not_mistaken_for_indices(values):
    with pytest.raises(TypeError, match=r"^`rows` must be integers"):
        integer_tensor("rows", values)


@pytest.mark.parametrize("values", [np.array([0, 4]), torch.tensor([-1, 0]), torch.tensor([-3, 5])])
def test_indices_outside_their_range_are_refused(values):
    check_range("rows", values[:0], 0)
    worst = 4 if values[0] == 0 else int(values[0])
    with pytest.raises(IndexError, match=rf"^`rows` must lie in \[0, 4\); got {worst}\.$"):
        check_range("rows", values, 4, error=IndexError)

"""Expected shares of independent labels: against enumeration, and against the law of the number of the others."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data.draws import Draws
from shortlist.data.worlds.expected_shares import expected_shares


def enumerated_shares(p):
    """Over all sets of labels, from the definition."""
    shares = [0.0] * len(p)
    for present in itertools.product((0, 1), repeat=len(p)):
        probability = math.prod(q if here else 1 - q for q, here in zip(p, present, strict=True))
        for label, here in enumerate(present):
            if here:
                shares[label] += probability / sum(present)
    return shares


def counted_shares(p):
    """By the law of the number of other labels, built label by label from sums of positive terms."""
    shares = []
    for label in range(len(p)):
        law = np.array([1.0])
        for other, q in enumerate(p):
            if other != label:
                law = np.append(law * (1 - q), 0.0) + np.insert(law * q, 0, 0.0)
        shares.append(p[label] * float((law / np.arange(1, len(law) + 1)).sum()))
    return shares


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.lists(st.sampled_from([0.0, 1.0, 1e-200, 1e-9, 1 - 1e-12]) | st.floats(0, 1), min_size=1, max_size=7))
def test_expected_shares_are_those_over_all_sets(p):
    shares = expected_shares(torch.tensor([p], dtype=torch.float64))[0].tolist()
    assert shares == pytest.approx(enumerated_shares(p), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("mean", [0.01, 1.0, 8.0, 40.0, 75.0])
def test_expected_shares_of_many_labels_lose_no_digits(mean):
    rows = torch.rand(1, 80, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = (rows * mean / 80 / rows.mean()).clamp(max=1)
    for row, shares in zip(p.tolist(), expected_shares(p).tolist(), strict=True):
        assert shares == pytest.approx(counted_shares(row), rel=1e-13)


def test_expected_shares_of_a_row_sum_to_the_probability_of_any_label():
    p = torch.rand(500, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) ** 6
    assert torch.allclose(expected_shares(p).sum(1), 1 - (1 - p).prod(1), rtol=1e-13, atol=0)


def test_certain_labels_share_evenly_and_no_labels_share_nothing():
    assert torch.allclose(expected_shares(torch.ones(2, 3000)), torch.full((2, 3000), 1 / 3000).double(), rtol=1e-11)
    assert torch.equal(expected_shares(torch.zeros(2, 3)), torch.zeros(2, 3).double())
    assert expected_shares(torch.zeros(0, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"`probabilities` must be floating \(B, n\); got .* shape \(3,\)"):
        expected_shares(torch.zeros(3))


def test_rows_are_answered_in_their_own_order_whatever_block_they_fall_into():
    p = torch.rand(4000, 40, generator=torch.Generator().manual_seed(2)) * torch.linspace(1, 0.01, 4000)[:, None]
    chosen = [0, 1, 1999, 3999]
    assert torch.allclose(expected_shares(p)[chosen], expected_shares(p[chosen]), rtol=1e-13)


def test_shares_are_in_the_order_of_the_probabilities():
    p = torch.from_numpy(Draws(2, "test").uniform(40))
    assert torch.equal(expected_shares(p[None])[0].argsort(), p.argsort())


def test_zeros_at_the_end_of_a_row_change_nothing():
    p = torch.from_numpy(Draws(3, "test").uniform(30)).reshape(5, 6)
    padded = expected_shares(torch.cat([p, torch.zeros(5, 200)], 1))
    assert torch.allclose(padded[:, :6], expected_shares(p), rtol=1e-13)
    assert (padded[:, 6:] == 0).all()

"""Binned average precision: its bounds hold for all scores, and it is exact if every bin has one score."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist import functional as F

LIMITS = [None, (0.0, 1.0), (-2.0, 3.0)]


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 40),
    bins=st.integers(1, 12),
    limits=st.sampled_from(LIMITS),
    steps=st.sampled_from([2, 20, None]),
)
@settings(derandomize=True, deadline=None, max_examples=80)
def test_the_exact_value_lies_between_the_bounds(seed, rows, bins, limits, steps):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    if steps:
        scores = (scores * steps).round() / steps
    scores = scores.masked_fill(torch.rand(rows, 3, generator=generator) < 0.1, -math.inf)
    target = (torch.rand(rows, 3, generator=generator) < 0.4).double()
    target = target.masked_fill(torch.rand(rows, 3, generator=generator) < 0.2, -1)
    exact = F.average_precision(scores, target, reduction="none")
    value, lower, upper = F.binned_average_precision(scores, target, bins=bins, limits=limits, reduction="none")
    assert torch.equal(exact.isnan(), value.isnan())
    known = ~exact.isnan()
    for inner in (exact[known], value[known]):
        assert (lower[known] - 1e-12 <= inner).all()
        assert (inner <= upper[known] + 1e-12).all()


def test_bounds_are_reached():
    """One bin: the positives may all come first, or last."""
    target = torch.tensor([[1.0], [1.0], [0.0], [0.0], [0.0]])
    first, last = torch.arange(5.0).flip(0).unsqueeze(-1), torch.arange(5.0).unsqueeze(-1)
    found = F.binned_average_precision(first, target, bins=1)
    assert found.upper.item() == F.average_precision(first, target).item() == 1
    assert found.lower.item() == pytest.approx(F.average_precision(last, target).item(), rel=1e-12)
    assert found.value.item() == pytest.approx(2 / 5)


def test_more_bins_come_closer():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(2000, 2, generator=generator), torch.rand(2000, 2, generator=generator) < 0.1
    exact = F.average_precision(scores, target)
    widths = []
    for bins in (10, 100, 1000, 10_000):
        value, lower, upper = F.binned_average_precision(scores, target, bins=bins)
        assert lower <= exact <= upper
        assert abs(value - exact) <= upper - lower
        widths.append((upper - lower).item())
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 2e-3


def test_scores_beyond_the_limits_are_in_the_outer_bins():
    scores = torch.tensor([[-100.0], [0.5], [100.0]])
    found = F.binned_average_precision(scores, torch.tensor([[0.0], [0.0], [1.0]]), bins=2, limits=(0, 1))
    assert found.value == 0.5  # 0.5 and 100 share the upper bin


@pytest.mark.parametrize("limits", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1)])
def test_limits_are_two_numbers(limits):
    with pytest.raises(ValueError, match="`limits` must be two finite numbers, the lower first; got"):
        F.binned_average_precision(torch.zeros(2, 2), torch.zeros(2, 2), limits=limits)

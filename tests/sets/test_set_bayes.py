"""Fitted on true probabilities, the rules reach the least error that any rule of their size can have."""

import math

import pytest
import torch
from torch import Tensor

from shortlist.sets import AverageError, AverageK, TopK
from tests.sets.worlds import ambiguous_probs, draw, seeded

ROWS = 20_000


def risk(probs: Tensor, mask: Tensor) -> float:
    """Probability that the true class is outside, for the true probabilities: no class is drawn."""
    return 1 - float((probs * mask).sum(-1).mean())


def least_risk(probs: Tensor, k: float, *, on_average: bool) -> float:
    """With the k best of each row, or the k N best of all."""
    if on_average:
        best = probs.flatten().sort(descending=True).values[: round(k * len(probs))].sum() / len(probs)
    else:
        best = probs.sort(-1, descending=True).values[:, : int(k)].sum(-1).mean()
    return 1 - float(best)


@pytest.fixture(scope="module")
def world() -> tuple[Tensor, Tensor]:
    return ambiguous_probs(ROWS, seeded(0)), ambiguous_probs(ROWS, seeded(1))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_top_k_on_true_probabilities_has_the_least_risk(world, k):
    fitted, fresh = world
    sets = TopK(k).fit(fitted, from_logits=False).predict(fresh)
    assert risk(fresh, sets.to_mask()) == pytest.approx(least_risk(fresh, k, on_average=False), abs=1e-9)
    error = 1 - float(sets.contains(draw(fresh, seeded(2))).double().mean())
    assert abs(error - least_risk(fresh, k, on_average=False)) < 4 * math.sqrt(error * (1 - error) / ROWS)


@pytest.mark.parametrize("k", [0.7, 1, 1.5, 2, 3, 5])
def test_average_k_on_true_probabilities_has_the_least_risk_on_new_rows(world, k):
    fitted, fresh = world
    sets = AverageK(k).fit(fitted, from_logits=False).predict(fresh)
    size = float(sets.sizes.double().mean())
    deviation = float(sets.sizes.double().std()) / math.sqrt(ROWS)
    assert abs(size - k) <= 4 * math.sqrt(2) * deviation
    # A threshold is the best rule for the size that it has, which is the size asked for up to sampling error.
    best = least_risk(fresh, size, on_average=True)
    assert risk(fresh, sets.to_mask()) == pytest.approx(best, abs=1e-9)
    error = 1 - float(sets.contains(draw(fresh, seeded(3))).double().mean())
    assert abs(error - best) < 4 * math.sqrt(error * (1 - error) / ROWS)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 30])
def test_average_k_is_never_worse_than_top_k_and_better_where_rows_differ(world, k):
    fitted, _ = world
    average = risk(fitted, AverageK(k).fit(fitted, from_logits=False).predict(fitted).to_mask())
    top = risk(fitted, TopK(k).fit(fitted, from_logits=False).predict(fitted).to_mask())
    assert average <= top + 1e-12
    if k in (2, 3):
        assert average < top - 0.01


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_a_rule_of_average_error_is_the_rule_of_average_size_that_has_its_size(world, alpha):
    """Both are thresholds on the probability, so the size that one reaches gives the other back."""
    fitted, fresh = world[0], world[1][:1000]
    by_error = AverageError(alpha).fit(fitted, draw(fitted, seeded(4)), from_logits=False).predict(fresh)
    size = int(by_error.sizes.sum()) / 1000
    by_size = AverageK(size).fit(fresh, from_logits=False).predict(fresh)
    assert torch.equal(by_error.to_mask(), by_size.to_mask())

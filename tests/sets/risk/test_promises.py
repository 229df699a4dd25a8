"""Risks stay below their bounds for new rows, in as many calibrations as promised; naive thresholds break them."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest
import torch
from torch import Tensor

from shortlist.sets import Risk, RiskControl, SetRule, f_risk, false_discovery_rate, false_negative_rate, set_size
from tests.sets.rules import no_hit
from tests.sets.worlds import multilabel, seeded

pytestmark = pytest.mark.slow
LABELS, ROWS, REPETITIONS, DELTA = 8, 150, 300, 0.1


def draw(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Logits of a model that is better on some rows than on others, and label sets."""
    generator = seeded(seed)
    logits, hot = multilabel(rows, LABELS, generator, rate=0.3, signal=3.0)
    return logits * (0.5 + torch.rand(rows, 1, generator=generator)), hot


@cache
def population() -> tuple[Tensor, Tensor]:
    return draw(20_000, 10**6)


def risk_of(risk: Risk, mask: Tensor, hot: Tensor) -> float:
    rows = hot.any(-1) | (not risk.labeled_rows)
    mask, hot = mask[rows], hot[rows]
    losses = risk.loss((mask & hot).sum(-1).double(), mask.sum(-1).double(), hot.sum(-1).double())
    return float(losses.double().mean())


def largest_naive(risk: Risk, alpha: float, logits: Tensor, hot: Tensor, *, smallest: bool) -> float:
    """The last threshold whose risk on the calibration rows themselves is at most alpha, for logits."""
    fine = [t / 32 for t in range(-96, 97) if risk_of(risk, logits >= t / 32, hot) <= alpha]
    return fine[-1 if smallest else 0] if fine else math.inf


def failures(make: Callable[[], SetRule], bounds: list[tuple[Risk, float]]) -> float:
    """The share of calibrations after which a risk of new rows exceeds its bound."""
    logits, hot = population()
    failed = 0
    for seed in range(REPETITIONS):
        some, own = draw(ROWS, seed)
        mask = make().fit(some, own, from_logits=True)(logits)
        failed += any(risk_of(risk, mask, hot) > alpha for risk, alpha in bounds)
    return failed / REPETITIONS


TOLERANCE = 4 * math.sqrt(DELTA * (1 - DELTA) / REPETITIONS)
CASES = {
    "missing labels, exact": ([(false_negative_rate, 0.2)], {}),
    "missing labels, candidates": ([(false_negative_rate, 0.2)], {"candidates": [i / 50 for i in range(1, 50)]}),
    "precision": ([(false_discovery_rate, 0.3)], {}),
    "F1": ([(f_risk(), 0.35)], {}),
    "F1, best": ([(f_risk(), 0.35)], {"objective": f_risk()}),
    "size": ([(set_size(), 3.0)], {}),
    "of one's own": ([(no_hit, 0.25)], {}),
    "two at once": ([(false_negative_rate, 0.5), (false_discovery_rate, 0.5)], {"objective": "largest"}),
}


@pytest.mark.parametrize("case", CASES)
def test_with_delta_the_risk_of_new_rows_exceeds_the_bound_in_at_most_that_share_of_calibrations(case):
    bounds, options = CASES[case]

    def make() -> SetRule:
        return RiskControl(bounds, delta=DELTA, **options)

    assert failures(make, bounds) <= DELTA + TOLERANCE


@pytest.mark.parametrize(
    ("risk", "alpha", "smallest"),
    [
        (false_discovery_rate, 0.3, False),
        (false_negative_rate, 0.2, True),
        (f_risk(), 0.35, False),
        (set_size(), 3.0, False),
    ],
)
def test_a_threshold_whose_risk_on_the_calibration_rows_is_low_enough_fails_far_more_often(risk, alpha, smallest):
    logits, hot = population()
    failed = 0
    for seed in range(REPETITIONS):
        threshold = largest_naive(risk, alpha, *draw(ROWS, seed), smallest=smallest)
        failed += risk_of(risk, logits >= threshold, hot) > alpha
    assert failed / REPETITIONS > DELTA + 2 * TOLERANCE


any_missing = Risk(
    "rows with a missing label",
    lambda hits, sizes, positives: hits < positives,
    larger_sets="lower",
    of_hits=lambda hits, positives: Fraction(hits < positives),
)


@pytest.mark.parametrize(
    ("risk", "alpha"), [(any_missing, 0.3), (false_negative_rate, 0.2), (no_hit, 0.25), (set_size(), 3.0)]
)
def test_without_delta_the_average_over_calibrations_is_bounded_with_few_rows(risk, alpha):
    logits, hot = (part[:5000] for part in population())
    found = []
    for seed in range(1000):
        some, own = draw(12, seed)
        own[0, 0] = True
        found.append(risk_of(risk, RiskControl(risk, alpha).fit(some, own, from_logits=True)(logits), hot))
    found = torch.tensor(found)
    assert found.mean() <= alpha + 4 * found.std() / math.sqrt(1000)


def test_without_the_correction_the_average_over_calibrations_is_above_the_bound():
    """Of 12 rows, floor(12 · 0.3) = 3 may fail, so a new one fails with probability 4/13, not 0.25."""
    logits, hot = (part[:5000] for part in population())
    found = []
    for seed in range(1000):
        some, own = draw(12, seed)
        lowest = some.masked_fill(~own, math.inf).amin(-1).sort().values
        found.append(risk_of(any_missing, logits >= lowest[3], hot))
    found = torch.tensor(found)
    assert found.mean() > 0.3
    assert found.mean() == pytest.approx(4 / 13, abs=4 * float(found.std()) / math.sqrt(1000))

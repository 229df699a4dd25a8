"""Conformal rules cover the true class with the promised probability, however good, bad or tied the scores are.

The mean over repetitions of calibrating on N rows and predicting others is r/(N + 1), r = ⌈(N + 1)(1 - α)⌉, which lies
in [1 - α, 1 - α + 1/(N + 1)]. Over repetitions the coverage varies as a Beta(r, N + 1 - r) at most.
"""

import math

import pytest
import torch

from shortlist.sets import AverageError, PointwiseError
from tests.reference_sets import conformal_rank
from tests.sets.worlds import SCORE_KINDS, classified, seeded

ALPHAS, SIZES = (0.01, 0.05, 0.1, 0.3), (20, 200, 2000)
LABELS, FRESH = 6, 100
RULES = {
    "average error": AverageError,
    "randomized mass": PointwiseError,
    "plain mass": lambda alpha: PointwiseError(alpha, randomized=False),
    "regularized mass": lambda alpha: PointwiseError(alpha, penalty=0.02, free=1),
}

each_rule = pytest.mark.parametrize("make", RULES.values(), ids=RULES)
each_kind = pytest.mark.parametrize("kind", SCORE_KINDS)


def mean_coverage(make, kind: str, alpha: float, count: int, repetitions: int) -> float:
    """Share of fresh rows whose class is in the set, over repetitions with data and ties of their own."""
    generator, ties = seeded(count), seeded(1)
    scores, classes = classified(kind, repetitions * (count + FRESH), LABELS, generator)
    covered = 0
    for some, own in zip(scores.chunk(repetitions), classes.chunk(repetitions), strict=True):
        rule = make(alpha).fit(some[:count], own[:count], from_logits=False)
        sets = rule.predict(some[count:], generator=ties)
        covered += int(sets.contains(own[count:]).sum())
    return covered / (repetitions * FRESH)


FULL_GRID = [pytest.param(alpha, count, 500, marks=pytest.mark.slow) for alpha in ALPHAS for count in SIZES]


@each_rule
@each_kind
@pytest.mark.parametrize(("alpha", "count", "repetitions"), [(0.1, 20, 60), *FULL_GRID])
def test_mean_coverage_is_what_was_asked_for(make, kind, alpha, count, repetitions):
    expected = conformal_rank(alpha, count) / (count + 1)
    spread = math.sqrt(expected * (1 - expected) * (1 / (count + 2) + 1 / FRESH) / repetitions)
    found = mean_coverage(make, kind, alpha, count, repetitions)
    assert 1 - alpha - 4 * spread <= found <= 1 - alpha + 1 / (count + 1) + 4 * spread
    assert abs(found - expected) <= 4 * spread


@each_rule
@pytest.mark.parametrize("kind", [pytest.param("good", marks=pytest.mark.slow), "constant"])
def test_rows_that_come_one_by_one_are_covered_as_those_that_come_together(make, kind):
    """A service predicts row by row, without a generator: random numbers must differ between its calls."""
    scores, classes = classified(kind, 1500, LABELS, seeded(5))
    rule = make(0.2).fit(scores[:1000], classes[:1000], from_logits=False)
    answers = [
        rule.predict(row[None]).contains(own[None]) for row, own in zip(scores[1000:], classes[1000:], strict=True)
    ]
    assert abs(float(torch.cat(answers).double().mean()) - 0.8) < 4 * math.sqrt(0.16 * (1 / 500 + 1 / 1000))


@each_rule
@each_kind
@pytest.mark.parametrize(("alpha", "count"), [(0.01, 20), (0.01, 98), (0.05, 1), (0.3, 2)])
def test_too_few_rows_for_a_threshold_give_all_labels(make, kind, alpha, count):
    scores, classes = classified(kind, count, LABELS, seeded(2))
    rule = make(alpha).fit(scores, classes, from_logits=False)
    fresh, _ = classified(kind, 50, LABELS, seeded(3))
    assert rule.predict(fresh).to_mask().all()
    assert rule(fresh).all()


@each_rule
def test_one_row_less_than_enough_is_too_few(make):
    """α = 0.1 needs 9 rows: ⌈10 · 0.9⌉ = 9, but ⌈9 · 0.9⌉ = 9 > 8."""
    scores, classes = classified("good", 9, LABELS, seeded(4))
    probe = torch.tensor([[1.0, 0, 0, 0, 0, 0]])
    scores[:, 0], classes[:] = 1.0, 0
    assert make(0.1).fit(scores[:8], classes[:8], from_logits=False).predict(probe).sizes == 6
    # Every true class is the best label and certain; only the plain mass ties with all other labels.
    scores = scores.zero_()
    scores[:, 0] = 1.0
    rule = make(0.1).fit(scores, classes, from_logits=False)
    assert rule.predict(probe.repeat(500, 1)).sizes.float().mean() < 5.9

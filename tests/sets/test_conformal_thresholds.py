"""Thresholds of AverageError and PointwiseError against sorted fractions, ties with their exact probability."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.sets import AverageError, PointwiseError
from tests import reference_sets as reference
from tests.sets.worlds import ambiguous_probs, classified, draw, seeded

quick = settings(derandomize=True, deadline=None, max_examples=40)
ALPHAS = st.sampled_from([0.01, 0.05, 0.07, 0.1, 0.18, 0.3, 0.5, 0.9])
DRAWS = 100


def dyadic(rows: int, labels: int, seed: int, *, steps: int = 32) -> Tensor:
    """Probabilities in multiples of 1/``steps``: sums are exact in every dtype, and ties abound."""
    generator = seeded(seed)
    weights = torch.rand(rows, labels, generator=generator) ** 3
    picks = torch.multinomial(weights, steps, replacement=True, generator=generator)
    return torch.zeros(rows, labels).scatter_add(-1, picks, torch.ones(rows, steps)) / steps


def frequencies(rule, scores: Tensor) -> Tensor:
    """How often each label is in, over many draws of the ties."""
    mask = rule.predict(scores.repeat(DRAWS, 1), generator=seeded(0)).to_mask()
    return mask.view(DRAWS, *scores.shape).double().mean(0)


def agrees(rule, scores: Tensor, expected: list[list[Fraction]]) -> None:
    found = frequencies(rule, scores)
    chance = torch.tensor([[float(c) for c in row] for row in expected], dtype=torch.float64)
    assert (found == 1)[chance == 1].all()
    assert (found == 0)[chance == 0].all()
    assert ((found - chance).abs() <= 5 * (chance * (1 - chance) / DRAWS).sqrt()).all()
    assert torch.equal(rule(scores), chance > 0)


@quick
@given(rows=st.integers(1, 40), labels=st.integers(1, 7), alpha=ALPHAS, seed=st.integers(0, 1000))
def test_average_error_takes_scores_above_its_threshold_and_ties_at_random(rows, labels, alpha, seed):
    scores, fresh = dyadic(rows, labels, seed), dyadic(6, labels, seed + 1)
    classes = draw(scores, seeded(seed))
    cut = reference.average_error(scores.tolist(), classes.tolist(), alpha)
    expected = [reference.chances([1 - Fraction(p) for p in row], cut) for row in fresh.tolist()]
    agrees(AverageError(alpha).fit(scores, classes, from_logits=False), fresh, expected)


@quick
@given(
    rows=st.integers(1, 40),
    labels=st.integers(1, 7),
    alpha=ALPHAS,
    penalty=st.sampled_from([0.0, 0.125, 1.0]),
    free=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_plain_pointwise_error_takes_masses_below_its_threshold_and_ties_at_random(
    rows, labels, alpha, penalty, free, seed
):
    scores, fresh = dyadic(rows, labels, seed), dyadic(6, labels, seed + 1)
    classes = draw(scores, seeded(seed))
    options = {"penalty": penalty, "free": free}
    cut = reference.pointwise_error(scores.tolist(), classes.tolist(), alpha, **options)
    expected = [reference.chances(reference.mass_scores(row, **options), cut) for row in fresh.tolist()]
    agrees(PointwiseError(alpha, randomized=False, **options).fit(scores, classes, from_logits=False), fresh, expected)


def test_the_rank_is_exact_where_floats_round_across_an_integer():
    """The rows whose own class is in the set are as many as the rank, when all scores differ."""
    cases = [
        (alpha, count)
        for alpha in (0.01, 0.05, 0.07, 0.1, 0.18, 0.2, 0.3, 0.42, 0.9)
        for count in range(9, 400)
        if math.ceil((count + 1) * (1 - alpha)) != reference.conformal_rank(alpha, count)
    ]
    assert len(cases) > 10
    for alpha, count in cases:
        scores, classes = classified("good", count, 5, seeded(count))
        rule = AverageError(alpha).fit(scores.double(), classes, from_logits=False)
        covered = rule(scores.double())[torch.arange(count), classes]
        assert covered.sum() == reference.conformal_rank(alpha, count), (alpha, count)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_small_scores_keep_their_order_although_one_minus_them_does_not(dtype):
    """Scores of 1e-5 and less: 1 - p rounds to few values, and p does not."""
    scores = torch.logspace(-7, -5, 99).to(dtype).flip(0)[:, None].repeat(1, 3)
    kept = len(scores.unique())
    rule = AverageError(0.5).fit(scores, torch.zeros(99, dtype=torch.int64), from_logits=False)
    found = rule(scores).sum(-1)
    # Half precision has ties here of its own; the threshold must still part what differs.
    assert abs(int((found == 3).sum()) - 50) <= (0 if kept == 99 else 99 // kept + 1)


@pytest.mark.parametrize("make", [AverageError, PointwiseError])
def test_sets_grow_as_the_allowed_error_shrinks(make):
    probs = ambiguous_probs(600, seeded(5))
    classes = draw(probs, seeded(6))
    masks = [make(a).fit(probs[:300], classes[:300], from_logits=False)(probs[300:]) for a in (0.4, 0.2, 0.1, 0.02)]
    for smaller, larger in pairwise(masks):
        assert (smaller <= larger).all()


@pytest.mark.parametrize("randomized", [True, False])
def test_a_penalty_evens_out_the_sizes(randomized):
    """RAPS is there to avoid the huge sets of APS."""
    probs = (torch.randn(4000, 50, generator=seeded(7)) * 2).softmax(-1)
    classes = draw(probs, seeded(8))
    plain, regular = (
        PointwiseError(0.1, randomized=randomized, penalty=penalty, free=5)
        .fit(probs[:2000], classes[:2000], from_logits=False)
        .predict(probs[2000:])
        .sizes.double()
        for penalty in (0.0, 0.05)
    )
    assert regular.max() < plain.max()
    assert regular.std() < 0.7 * plain.std()


def test_pointwise_error_holds_in_easy_and_in_hard_rows_alike_and_average_error_does_not():
    """With true probabilities the randomized score is uniform in every row, so the error is α in each of them."""
    probs = ambiguous_probs(40_000, seeded(9))
    classes = draw(probs, seeded(10))
    fifths = probs[20_000:].amax(-1).argsort().chunk(5)
    gaps = {}
    for make in (PointwiseError, AverageError):
        rule = make(0.2).fit(probs[:20_000], classes[:20_000], from_logits=False)
        covered = rule.predict(probs[20_000:], generator=seeded(11)).contains(classes[20_000:]).double()
        gaps[make] = max(abs(float(covered[rows].mean()) - 0.8) for rows in fifths)
    assert gaps[PointwiseError] < 4 * math.sqrt(0.2 * 0.8 / 4000)
    assert gaps[AverageError] > 0.04


def test_randomized_sets_depend_on_the_generator_only():
    probs = ambiguous_probs(300, seeded(11))
    rule = PointwiseError(0.2).fit(probs, draw(probs, seeded(12)), from_logits=False)
    first, again = (rule.predict(probs, generator=seeded(1)).to_mask() for _ in range(2))
    other = rule.predict(probs, generator=seeded(2)).to_mask()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)

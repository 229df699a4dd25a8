"""Scene-graph recall against every order of the triples; and the propensities, which have a formula."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist import functional as F
from tests import reference_metrics as reference
from tests.contracts_losses import label_sets

KS = [1, 2, 4, 20]


@given(
    seed=st.integers(0, 10**6),
    pairs=st.integers(0, 6),
    constrained=st.booleans(),
    average=st.sampled_from(["image", "predicate"]),
    with_missed=st.booleans(),
)
@settings(derandomize=True, deadline=None, max_examples=80)
def test_recall_agrees_with_the_reference(seed, pairs, constrained, average, with_missed):
    generator = torch.Generator().manual_seed(seed)
    images, R = 3, 2
    image = torch.randperm(2 * images, generator=generator)[:pairs] % images  # at most two pairs, so four triples
    scores = torch.randint(3, (pairs, R), generator=generator).double()
    scores = scores.masked_fill(torch.rand(pairs, R, generator=generator) < 0.1, -math.inf)
    target = (torch.rand(pairs, R, generator=generator) < 0.5).double()
    target = target.masked_fill((torch.rand(pairs, R, generator=generator) < 0.2) & (target == 0), -1)
    missed = torch.randint(2, (images, R), generator=generator) if with_missed else None
    lists = [[j for j in range(R) for _ in range(int(line[j]))] for line in missed] if with_missed else None
    got = F.scene_graph_recall(scores, target, image, KS, constrained=constrained, missed=missed, average=average)
    rows, (positives, unknown) = scores.tolist(), label_sets(target)
    for k, value in zip(KS, got.tolist(), strict=True):
        wanted = reference.scene_graph_recall(
            rows, positives, unknown, image.tolist(), k, constrained, missed=lists, average=average
        )
        assert value == pytest.approx(float(wanted), rel=1e-12, nan_ok=True)


def test_missed_relations_lower_recall_with_or_without_their_predicates():
    scores, target, image = torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.tensor([1])
    for missed in (torch.tensor([0, 1, 2]), torch.tensor([[0, 0], [0, 1], [1, 1]])):
        assert F.scene_graph_recall(scores, target, image, 1, constrained=True, missed=missed) == 0.25
    assert F.scene_graph_recall(scores, target, image, 1, constrained=True) == 1


def test_numbers_of_images_may_have_gaps_and_come_in_any_order():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(8, 3, generator=generator), torch.randint(3, (8,), generator=generator)
    image = torch.tensor([4, 0, 4, 9, 0, 9, 4, 0])
    renamed = torch.tensor([0, 1, 0, 2, 1, 2, 0, 1])
    one, other = (F.scene_graph_recall(scores, target, i, (1, 3), constrained=False) for i in (image, renamed))
    assert torch.allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(
    ("image", "missed", "error", "message"),
    [
        (torch.zeros(2), None, TypeError, "`image` must be an int64 tensor; got torch.float32"),
        (torch.tensor([0]), None, ValueError, r"`image` must have one value per pair, shape \(2,\); got \(1,\)"),
        (torch.tensor([0, -1]), None, ValueError, "`image` must be at least 0; got -1"),
        (torch.tensor([0, 1]), torch.zeros(2), TypeError, "`missed` must be an int64 tensor; got torch.float32"),
        (torch.tensor([0, 1]), torch.tensor([1]), ValueError, "value for each of the 2 images; got 1"),
        (torch.tensor([0, 1]), torch.tensor([1, -1]), ValueError, "`missed` must be at least 0; got -1"),
        (torch.tensor([0, 1]), torch.zeros(2, 5).long(), ValueError, r"\(images,\) or \(images, 3\); got \(2, 5\)"),
    ],
)
def test_wrong_images_are_named(image, missed, error, message):
    with pytest.raises(error, match=message):
        F.scene_graph_recall(torch.zeros(2, 3), torch.tensor([0, 1]), image, 1, constrained=True, missed=missed)


def test_recall_by_predicate_needs_the_predicates_of_missed_relations():
    with pytest.raises(ValueError, match=r"`missed` must have the shape \(images, R\)"):
        F.scene_graph_recall(
            torch.zeros(1, 3),
            torch.tensor([0]),
            torch.tensor([0]),
            1,
            constrained=True,
            missed=torch.tensor([1]),
            average="predicate",
        )


@given(counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=9), num_rows=st.integers(3, 10**7))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_propensities_follow_their_formula_and_rise_with_the_counts(counts, num_rows):
    got = F.propensities(torch.tensor(counts), num_rows=num_rows)
    assert got.tolist() == pytest.approx(reference.propensities(counts, num_rows), rel=1e-12)
    assert ((got > 0) & (got < 1)).all()
    order = torch.tensor(counts).argsort()
    assert (got[order].diff() >= 0).all()


def test_propensities_want_counts_and_enough_rows():
    with pytest.raises(ValueError, match="`num_rows` must lie in"):
        F.propensities(torch.tensor([1]), num_rows=2)
    with pytest.raises(ValueError, match="`counts` must be at least 0; got -1"):
        F.propensities(torch.tensor([1, -1]), num_rows=20)
    with pytest.raises(ValueError, match=r"`counts` must have one value per label; got shape \(1, 1\)"):
        F.propensities(torch.tensor([[1]]), num_rows=20)
    scores, target = torch.zeros(1, 2), torch.tensor([0])
    for wrong, message in (
        (torch.tensor([0.5, 1.5]), r"must lie in \(0, 1\]; got 1.5"),
        (torch.tensor([0.5, math.nan]), r"must lie in \(0, 1\]; got nan"),
        (torch.tensor([0.5]), r"one value per label, shape \(2,\); got \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            F.propensity_scored_precision_at_k(scores, target, wrong, 1)


def test_equal_propensities_are_plain_precision_over_its_best():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(20, 6, generator=generator), torch.rand(20, 6, generator=generator) < 0.4
    plain = F.propensity_scored_precision_at_k(scores, target, torch.full((6,), 1.0), 3, normalized=False)
    assert torch.allclose(plain, F.precision_at_k(scores, target, 3), rtol=1e-12)
    perfect = F.propensity_scored_precision_at_k(target.float(), target, torch.rand(6, generator=generator), 6)
    assert perfect.item() == pytest.approx(1, rel=1e-12)

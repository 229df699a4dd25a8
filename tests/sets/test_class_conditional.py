"""ClassConditional covers each class by itself; small classes fall back, alike classes may share."""

import math

import pytest
import torch
from torch import Tensor

from shortlist.sets import AverageError, ClassConditional
from tests import reference_sets as reference
from tests.sets.test_conformal_thresholds import agrees, dyadic
from tests.sets.worlds import long_tailed, seeded

LABELS = 8


def coverage_by_class(make, *, count: int, repetitions: int, decay: float) -> tuple[Tensor, Tensor]:
    """Mean coverage of each class over repetitions, and how many calibration rows it had at least."""
    fresh, ties = 1500, seeded(0)
    hits, totals = torch.zeros(LABELS), torch.zeros(LABELS)
    fewest = torch.full((LABELS,), math.inf)
    for seed in range(repetitions):
        logits, classes = long_tailed(count + fresh, LABELS, seeded(seed), decay=decay)
        rule = make().fit(logits[:count], classes[:count], from_logits=True)
        covered = rule.predict(logits[count:], generator=ties).contains(classes[count:]).float()
        hits += torch.bincount(classes[count:], covered, minlength=LABELS)
        totals += torch.bincount(classes[count:], minlength=LABELS)
        fewest = fewest.minimum(torch.bincount(classes[:count], minlength=LABELS).float())
    return hits / totals, fewest


def spread(alpha: float, rows: Tensor, repetitions: int, fresh: Tensor) -> Tensor:
    """Standard deviation of the mean coverage of a class."""
    return (alpha * (1 - alpha) * (1 / (rows + 2) + 1 / fresh) / repetitions).sqrt()


def test_balanced_classes_are_each_covered_as_asked():
    alpha, repetitions = 0.1, 60
    found, fewest = coverage_by_class(lambda: ClassConditional(alpha), count=800, repetitions=repetitions, decay=0.0)
    tolerance = 4 * spread(alpha, fewest, repetitions, torch.full((LABELS,), 150.0))
    assert (found >= 1 - alpha - tolerance).all()
    assert (found <= 1 - alpha + 1 / (fewest + 1) + tolerance).all()


def test_one_threshold_for_all_covers_hard_classes_less_which_the_above_would_notice():
    found, _ = coverage_by_class(lambda: AverageError(0.1), count=800, repetitions=20, decay=0.0)
    assert found.min() < 0.8
    assert found.max() > 0.95


def test_in_a_long_tail_frequent_classes_are_covered_exactly_and_rare_ones_together_enough():
    alpha, repetitions = 0.1, 80
    found, fewest = coverage_by_class(lambda: ClassConditional(alpha), count=600, repetitions=repetitions, decay=0.8)
    frequent = fewest >= 9
    assert 2 <= frequent.sum() <= LABELS - 2
    shares = torch.exp(-0.8 * torch.arange(LABELS))
    fresh = 1500 * shares / shares.sum()
    tolerance = 4 * spread(alpha, fewest, repetitions, fresh)
    assert (found >= 1 - alpha - tolerance)[frequent].all()
    assert (found <= 1 - alpha + 1 / (fewest + 1) + tolerance)[frequent].all()
    together = (found * shares)[~frequent].sum() / shares[~frequent].sum()
    assert together >= 1 - alpha - 0.02


def test_class_thresholds_are_those_of_sorted_fractions_with_random_ties():
    for seed in range(12):
        scores, fresh = dyadic(160, 4, seed), dyadic(8, 4, seed + 100)
        classes = torch.arange(160) % 4
        cuts = reference.class_conditional(scores.tolist(), classes.tolist(), 0.15)
        expected = [
            [reference.chances([1 - reference.Fraction(p)], cuts[j])[0] for j, p in enumerate(row)]
            for row in fresh.tolist()
        ]
        agrees(ClassConditional(0.15).fit(scores, classes, from_logits=False), fresh, expected)


def test_classes_that_never_occur_have_a_threshold_too():
    logits, classes = long_tailed(400, LABELS, seeded(1))
    classes = classes % (LABELS - 2)
    rule = ClassConditional(0.1).fit(logits, classes, from_logits=True)
    mask = rule.predict(logits).to_mask()
    assert mask[:, -2:].any()
    assert not mask[:, -2:].all()


def test_when_all_classes_are_small_they_share_one_threshold():
    """5 rows of each class are too few for α = 0.1, and 40 together are enough."""
    logits, _ = long_tailed(40, LABELS, seeded(2))
    rule = ClassConditional(0.1).fit(logits, torch.arange(40) % LABELS, from_logits=True)
    probe = 12 * torch.eye(LABELS)
    mask = rule(probe)
    assert not mask.all()
    # The scores of the labels are permutations of each other, so one threshold gives permuted sets.
    assert torch.equal(mask.diagonal(), mask.diagonal()[:1].expand(LABELS))


def test_min_count_moves_classes_to_the_shared_threshold():
    logits, classes = long_tailed(300, LABELS, seeded(4), decay=0.3)
    shared = ClassConditional(0.1, min_count=10_000).fit(logits, classes, from_logits=True)
    own = ClassConditional(0.1, min_count=10).fit(logits, classes, from_logits=True)
    average = AverageError(0.1).fit(logits, classes, from_logits=True)
    assert torch.equal(shared(logits), average(logits))
    assert not torch.equal(own(logits), average(logits))


def clustered_world(rows: int, labels: int, seed: int) -> tuple[Tensor, Tensor]:
    """Even classes are hard and odd ones easy."""
    generator = seeded(seed)
    classes = torch.randint(labels, (rows,), generator=generator)
    logits = torch.randn(rows, labels, generator=generator)
    logits[torch.arange(rows), classes] += torch.where(classes % 2 == 0, 1.0, 5.0)
    return logits, classes


def test_clusters_cover_alike_classes_with_few_rows_each():
    """30 classes of some 30 rows: by themselves 15 rows per half are few, and two kinds of class pool them."""
    alpha, labels, count, fresh = 0.1, 30, 900, 3000
    hits, totals = torch.zeros(labels), torch.zeros(labels)
    for seed in range(25):
        logits, classes = clustered_world(count + fresh, labels, seed)
        rule = ClassConditional(alpha, clusters=2).fit(logits[:count], classes[:count], from_logits=True)
        sets = rule.predict(logits[count:], generator=seeded(seed))
        hits += torch.bincount(classes[count:], sets.contains(classes[count:]).float(), minlength=labels)
        totals += torch.bincount(classes[count:], minlength=labels)
    found = hits / totals
    hard, easy = found[::2].mean(), found[1::2].mean()
    assert abs(hard - 0.9) < 0.02
    assert abs(easy - 0.9) < 0.02
    assert found.min() > 0.84


@pytest.mark.parametrize("clusters", [1, 3, 30, 100])
def test_any_number_of_clusters_gives_sets(clusters):
    logits, classes = clustered_world(600, 10, 5)
    rule = ClassConditional(0.1, clusters=clusters).fit(logits, classes, from_logits=True)
    covered = rule.predict(logits).contains(classes).float().mean()
    assert 0.8 < covered <= 1

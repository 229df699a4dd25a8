"""Sets that count labels in buckets instead of sorting them are the same: ties, zeros and absent labels, too."""

import math
import os

import pytest
import torch

from shortlist.sets import APS, SAPS, GroupConditional, Margin, RankCalibrated, SplitConformal
from shortlist.sets.conformal.row_uniforms import row_uniforms
from shortlist.sets.risk.expected_f import expected_f
from shortlist.sets.scores import Block

pytestmark = pytest.mark.cpu_only
SCORES = [APS(), APS(randomized=False), APS(0.03, 2), SAPS(0.1), SAPS(0.02, randomized=False), Margin()]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def sharp(rows, n):
    generator = seeded(rows)
    return (torch.randn(rows, n, generator=generator) * (1 + 4 * torch.rand(rows, 1, generator=generator))).softmax(-1)


WORLDS = {
    "sharp and flat rows": lambda: sharp(60, 150),
    "two labels": lambda: sharp(2100, 2),
    "ties": lambda: (sharp(60, 90) * 20).round() / 20,
    "whole numbers": lambda: torch.randint(0, 3, (70, 60), generator=seeded(0)).float(),
    "zeros of both signs": lambda: sharp(50, 90).masked_fill(torch.rand(50, 90, generator=seeded(1)) < 0.5, -0.0),
    "tiny": lambda: sharp(50, 90) * 1e-30,
    "absent labels": lambda: sharp(50, 90).masked_fill(torch.rand(50, 90, generator=seeded(2)) < 0.3, -math.inf),
}


def without_kernels(monkeypatch, call):
    with monkeypatch.context() as patch:
        patch.setenv("SHORTLIST_KERNELS", "off")
        return call()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_conformity_thresholds_and_sets_do_not_depend_on_the_kernel(world, score, monkeypatch):
    assert os.environ.get("SHORTLIST_KERNELS") != "off"
    probs = WORLDS[world]()
    classes = torch.randint(probs.shape[1], (len(probs),), generator=seeded(3))
    block = Block(probs, probs)
    own = score.of_labels(block, classes)
    assert torch.equal(own, score(block)[torch.arange(len(probs)), classes])
    assert torch.equal(own, without_kernels(monkeypatch, lambda: score.of_labels(block, classes)))
    groups = torch.arange(len(probs)) % 3
    for alpha in (0.02, 0.5, 0.9):
        rule = SplitConformal(alpha, score=score).fit(probs, classes, from_logits=False)
        by_group = GroupConditional(alpha, score=score).fit(probs, classes, from_logits=False, groups=groups)

        def answers(rule=rule, by_group=by_group):
            sets = by_group.predict(probs, groups=groups, generator=seeded(4))
            return rule.predict(probs, generator=seeded(4)), sets, rule(probs)

        (sets, grouped, mask), (sorted_sets, sorted_grouped, sorted_mask) = (
            answers(),
            without_kernels(monkeypatch, answers),
        )
        assert sets == sorted_sets
        assert grouped == sorted_grouped
        assert torch.equal(mask, sorted_mask)


@pytest.mark.parametrize("world", WORLDS)
def test_hashes_and_ranks_do_not_depend_on_the_kernel(world, monkeypatch):
    probs = WORLDS[world]()
    classes = torch.randint(probs.shape[1], (len(probs),), generator=seeded(5))
    assert torch.equal(row_uniforms(probs), without_kernels(monkeypatch, lambda: row_uniforms(probs)))
    ranks = RankCalibrated(0.2).fit(probs, classes, from_logits=False).ranks
    slow = without_kernels(monkeypatch, lambda: RankCalibrated(0.2).fit(probs, classes, from_logits=False).ranks)
    assert torch.equal(ranks, slow)


@pytest.mark.parametrize(("rows", "n", "shift"), [(2100, 2, 0.0), (20, 300, -3.0), (15, 300, 4.0)])
def test_expected_f_does_not_depend_on_the_kernel(rows, n, shift, monkeypatch):
    probs = (2 * torch.randn(rows, n, generator=seeded(6)) + shift).sigmoid()
    probs[0], probs[1] = 0.0, 1.0
    slow = without_kernels(monkeypatch, lambda: expected_f(probs))
    torch.testing.assert_close(expected_f(probs), slow, rtol=1e-12, atol=1e-12)

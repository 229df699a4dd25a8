"""Rank-calibrated class-conditional sets: every class is covered, ranks are bounded, files are checked."""

import json
import math

import pytest
import torch

from shortlist.errors import InputError
from shortlist.sets import ClassConditional, RankCalibrated, load_rule
from tests.sets.worlds import long_tailed, seeded


def brute_force(scores: torch.Tensor, classes: torch.Tensor, alpha_missed: int, by_rank: int, label: int):
    """Bounds of one class from its rows: the rank, and the lowest score that is kept, by trying all of them."""
    own = scores[classes == label]
    ranks = sorted(int((row > row[label]).sum()) + 1 for row in own)
    bound = ranks[len(ranks) - by_rank] if by_rank else scores.shape[1]
    lowest = ranks[len(ranks) - by_rank - 1]
    kept = sorted(float(row[label]) if int((row > row[label]).sum()) + 1 <= lowest else -math.inf for row in own)
    return bound, kept[alpha_missed - 1] if alpha_missed else -math.inf


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_ranks_and_thresholds_are_those_of_the_definition(share):
    logits, classes = long_tailed(400, 5, seeded(0))
    probs = logits.double().softmax(-1)
    rule = RankCalibrated(0.2, rank_share=share).fit(probs, classes, from_logits=False)
    for label in range(5):
        missed = math.floor((int((classes == label).sum()) + 1) / 5)
        bound, kept = brute_force(probs, classes, missed, math.floor(missed * share), label)
        assert (int(rule.ranks[label]), float(rule.thresholds[label])) == (bound, kept)
    ranks = probs.argsort(descending=True).argsort() + 1
    assert torch.equal(rule(probs), (probs >= rule.thresholds) & (ranks <= rule.ranks))


def test_without_a_share_for_ranks_it_is_class_conditional():
    logits, classes = long_tailed(300, 6, seeded(1), decay=0.5)
    mine = RankCalibrated(0.1, rank_share=0.0).fit(logits, classes, from_logits=True)
    theirs = ClassConditional(0.1).fit(logits, classes, from_logits=True)
    assert torch.equal(mine(logits), theirs(logits))
    assert mine.evidence == theirs.evidence


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_every_class_is_covered_in_finite_samples(share):
    """Classes of 9 to 60 rows, where a bound that holds in the limit alone would break."""
    alpha, repetitions, labels = 0.2, 300, 6
    missed, counts = torch.zeros(labels), torch.zeros(labels)
    for repetition in range(repetitions):
        logits, classes = long_tailed(700, labels, seeded(repetition), decay=0.4)
        rule = RankCalibrated(alpha, rank_share=share).fit(logits[:150], classes[:150], from_logits=True)
        found = rule.predict(logits[150:], generator=seeded(repetition)).contains(classes[150:])
        missed += torch.bincount(classes[150:][~found], minlength=labels)
        counts += torch.bincount(classes[150:], minlength=labels)
    rates = missed / counts
    # Each repetition calibrates a class on at least about 8 rows.
    assert (rates < alpha + 4 * math.sqrt(0.16 / 8 / repetitions)).all(), rates
    if share < 1:
        assert (rates > alpha - 0.08).all(), rates


def test_hostile_ranks_are_refused(tmp_path):
    logits, classes = long_tailed(100, 4, seeded(0))
    RankCalibrated(0.2).fit(logits, classes, from_logits=True).save(tmp_path / "rule.json")
    content = json.loads((tmp_path / "rule.json").read_text())
    for value in (0, 5):
        content["fitted"]["ranks"]["values"][1] = value
        (tmp_path / "bad.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match="`ranks` must lie in"):
            load_rule(tmp_path / "bad.json")
    with pytest.raises(ValueError, match="`rank_share` must lie in"):
        RankCalibrated(0.2, rank_share=1.5)

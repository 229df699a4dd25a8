"""PerLabelThreshold does not overfit rare labels, and frequent ones get thresholds of their own."""

import pytest
import torch
from torch import Tensor

from shortlist.sets import PerLabelThreshold
from tests import reference_sets as reference
from tests.sets.worlds import seeded

ROWS, LABELS, REPETITIONS, GAP = 1500, 60, 6, 3


def tail(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Probabilities and positives of labels from one in four rows to one in 700.

    Evidence x is normal around 0 or, for positives, ``GAP``; the model knows the law up to a shift of each label.
    """
    rates = torch.logspace(-0.6, -2.85, LABELS)
    shift = 1.2 * torch.randn(LABELS, generator=seeded(1000))
    generator = seeded(seed)
    positives = torch.rand(rows, LABELS, generator=generator) < rates
    evidence = torch.randn(rows, LABELS, generator=generator) + GAP * positives
    logits = GAP * evidence - GAP**2 / 2 + (rates / (1 - rates)).log() + shift
    return logits.sigmoid(), positives


def f1_by_label(found: Tensor, truth: Tensor) -> Tensor:
    """0 for labels that are neither found nor there, as in the reference."""
    hits, total = (found & truth).sum(0).double(), (found.sum(0) + truth.sum(0)).double()
    return 2 * hits / total.clamp_min(1)


def micro_f1(found: Tensor, truth: Tensor) -> float:
    return float(f1_by_label(found.reshape(-1, 1), truth.reshape(-1, 1)))


def best_threshold(scores: Tensor, truth: Tensor) -> Tensor:
    """For each column the score with the best F1 as threshold: what overfits."""
    order = scores.argsort(0, descending=True)
    hits = truth.gather(0, order).cumsum(0)
    counts = torch.arange(1, len(scores) + 1)[:, None]
    return scores.gather(0, order).gather(0, (2 * hits / (counts + truth.sum(0))).argmax(0, keepdim=True))[0]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Tensor]:
    """Held-out F1 by label of each method ``(repetitions, labels)``, and micro F1 ``(repetitions, 1)``."""
    found: dict[str, list[Tensor]] = {}
    for seed in range(REPETITIONS):
        (scores, truth), (fresh, fresh_truth) = tail(ROWS, seed), tail(4 * ROWS, 100 + seed)
        masks = {
            "fitted": PerLabelThreshold("f1").fit(scores, truth, from_logits=False).predict(fresh).to_mask(),
            "one": fresh >= best_threshold(scores.reshape(-1, 1), truth.reshape(-1, 1)),
            "own": fresh >= best_threshold(scores, truth),
        }
        for name, mask in masks.items():
            found.setdefault(name, []).append(f1_by_label(mask, fresh_truth))
            found.setdefault(f"micro {name}", []).append(torch.tensor([micro_f1(mask, fresh_truth)]))
    return {name: torch.stack(values) for name, values in found.items()}


def test_held_out_f1_is_not_below_that_of_one_threshold(outcomes):
    assert outcomes["fitted"].mean() >= outcomes["one"].mean() - 0.005
    assert outcomes["micro fitted"].mean() >= outcomes["micro one"].mean() - 0.005


def test_rare_labels_do_better_than_with_thresholds_of_their_own(outcomes):
    """The rarest third has two to six positives to fit on."""
    rare = slice(2 * LABELS // 3, None)
    assert outcomes["fitted"][:, rare].mean() > outcomes["own"][:, rare].mean() + 0.01


def test_frequent_labels_do_as_well_as_with_thresholds_of_their_own(outcomes):
    frequent = slice(0, LABELS // 4)
    assert outcomes["fitted"][:, frequent].mean() >= outcomes["own"][:, frequent].mean() - 0.01
    assert outcomes["fitted"][:, frequent].mean() > outcomes["one"][:, frequent].mean() + 0.01


def test_without_a_prior_each_label_has_its_best_threshold():
    scores, truth = tail(300, 7)
    scores, truth = scores[:, :8].double(), truth[:, :8]
    mask = PerLabelThreshold("f1", prior=1e-9).fit(scores, truth, from_logits=False).predict(scores).to_mask()
    for j in range(8):
        best = reference.best_f1(scores[:, j].tolist(), truth[:, j].tolist())
        assert reference.f1(mask[:, j].tolist(), truth[:, j].tolist()) == best


def test_with_a_huge_prior_all_labels_share_the_pooled_threshold():
    scores, truth = tail(400, 8)
    rule = PerLabelThreshold("f1", prior=1e12).fit(scores, truth, from_logits=False)
    mask = rule.predict(scores).to_mask()
    lowest = torch.where(mask, scores, 2.0).amin()
    assert torch.equal(mask, scores >= lowest)


def test_a_label_without_positives_is_treated_as_the_pool():
    scores, truth = tail(600, 9)
    truth[:, 5] = False
    rule = PerLabelThreshold("f1").fit(scores, truth, from_logits=False)
    mask = rule.predict(scores).to_mask()
    pooled = PerLabelThreshold("f1", prior=1e12).fit(scores, truth, from_logits=False).predict(scores).to_mask()
    # Its own rows, all negative, can only argue for fewer answers.
    assert (mask[:, 5] <= pooled[:, 5]).all()


@pytest.mark.parametrize("k", [0.5, 2.0, 4.5])
def test_the_average_size_is_met_on_the_data_and_about_met_on_new_rows(k):
    for seed in range(4):
        (scores, truth), (fresh, _) = tail(ROWS, seed), tail(4 * ROWS, 200 + seed)
        rule = PerLabelThreshold("average-size", k=k).fit(scores, truth, from_logits=False)
        assert abs(float(rule.predict(scores).sizes.double().mean()) - k) <= 0.02 * k
        assert abs(float(rule.predict(fresh).sizes.double().mean()) - k) <= 0.1 * k


def test_at_the_same_size_own_thresholds_find_more_positives_than_one_for_all():
    """Scores are shifted by label, which one threshold cannot undo."""
    gains = []
    for seed in range(4):
        (scores, truth), (fresh, fresh_truth) = tail(ROWS, seed), tail(4 * ROWS, 300 + seed)
        mask = PerLabelThreshold("average-size", k=2).fit(scores, truth, from_logits=False).predict(fresh).to_mask()
        cut = fresh.flatten().sort(descending=True).values[int(mask.sum()) - 1]
        gains.append(((mask & fresh_truth).sum() - ((fresh >= cut) & fresh_truth).sum()) / fresh_truth.sum())
    assert torch.stack(gains).mean() > 0.005

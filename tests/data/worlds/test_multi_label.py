"""The world of several labels: shares as asked, samples that follow, a known optimum."""

import math

import numpy as np
import pytest
import torch

from shortlist.data.worlds.bayes import average_k_risk, best_precision, top_k_risk
from shortlist.data.worlds.expected_shares import expected_shares
from shortlist.data.worlds.multi_label import MultiLabelWorld

WORLD = MultiLabelWorld(60, labels_per_row=2.5, missing=0.4)


def test_probabilities_are_logistic_in_x_and_keep_the_dtype():
    x = torch.randn(300, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    logits = x.numpy() @ WORLD.directions.numpy().T + WORLD.offsets.numpy()
    assert np.allclose(WORLD.probabilities(x).numpy(), 1 / (1 + np.exp(-logits)), rtol=1e-12)
    assert WORLD.probabilities(x.half()).dtype == torch.float16
    seen = WORLD.observed_probabilities(x)
    assert torch.allclose(seen, 0.6 * WORLD.probabilities(x), rtol=1e-12)
    assert WORLD.probabilities(torch.full((1, 16), 1e30)).isfinite().all()
    assert WORLD.probabilities(torch.empty(0, 16)).shape == (0, 60)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"labels_per_row": 0.001},
        {"labels_per_row": 58.5},
        {"tail": 0.0},
        {"tail": 30.0},
        {"strength": 0.0},
        {"strength": 15.0, "dim": 1},
    ],
)
def test_rows_have_as_many_labels_as_asked(options):
    world = MultiLabelWorld(60, **options)
    asked = options.get("labels_per_row", 3.0)
    assert world.mean_labels == pytest.approx(asked, rel=1e-9)
    # Along its direction, of length `strength`, each label sees one normal number.
    lengths = world.directions.square().sum(1).sqrt()
    z = torch.linspace(-30, 30, 20_001, dtype=torch.float64)
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi) * 0.003
    for label in (0, int(world.label_shares.argmin()), int(world.label_shares.argmax())):
        share = (density * (lengths[label] * z + world.offsets[label]).sigmoid()).sum()
        assert float(world.label_shares[label]) == pytest.approx(float(share), rel=1e-9)


def test_shares_have_a_long_tail_of_odds():
    odds = (WORLD.label_shares / (1 - WORLD.label_shares)).sort(descending=True).values
    assert torch.allclose(odds[0] / odds, torch.arange(1, 61, dtype=torch.float64), rtol=1e-9)


def test_labels_of_a_topic_occur_together():
    x = torch.randn(5000, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    together = torch.corrcoef(WORLD.probabilities(x).T)
    same = WORLD.topic.index[:, None] == WORLD.topic.index
    off = ~torch.eye(60, dtype=torch.bool)
    assert together[same & off].mean() > 0.3
    assert together[~same].mean().abs() < 0.1


def test_a_sample_is_a_whole_dataset():
    data = WORLD.sample(2000, seed=1)
    assert data.inputs.kind == "features"
    assert data.label_groups["topic"] is WORLD.topic
    assert data.split.counts().tolist() == [1200, 400, 400]


def test_each_label_may_be_missing_at_its_own_rate():
    rates = torch.linspace(0, 0.9, 10)
    data = MultiLabelWorld(10, labels_per_row=4.0, missing=rates).sample(5000, split=None)
    truth, observed = (target.to_dense().sum(0).double() for target in (data.true_targets, data.targets))
    expected = truth * (1 - rates)
    assert ((observed - expected).abs() <= 4.5 * (truth * rates * (1 - rates)).sqrt() + 1e-9).all()


def test_rare_labels_may_be_missing_more_often():
    world = MultiLabelWorld(60, missing=0.1, rarity=0.5)
    commonest = int(world.label_shares.argmax())
    assert float(world.missing[commonest]) == pytest.approx(0.1)
    order = world.label_shares.argsort(descending=True)
    assert (world.missing[order].diff() > 0).all()
    rarest = order[-1]
    ratio = float(world.label_shares[rarest] / world.label_shares[commonest])
    assert float(world.missing[rarest]) == pytest.approx(1 - 0.9 * math.sqrt(ratio))


def test_the_risks_agree_with_quadrature():
    world = MultiLabelWorld(12, dim=1, labels_per_row=1.5, strength=3.0, seed=4)
    z = torch.arange(-9, 9, 0.01, dtype=torch.float64)
    weights = (-z.square() / 2).exp()
    weights /= weights.sum()
    p = world.probabilities(z[:, None])
    gains = expected_shares(p)
    for k in (1, 3):
        for sampled, exact in (
            (world.top_k_risk(k, num_samples=20_000), top_k_risk(gains, k, weights=weights)),
            (world.average_k_risk(k, num_samples=20_000), average_k_risk(gains, k, weights=weights)),
            (world.best_precision(k, num_samples=20_000), best_precision(p, k, weights=weights)),
        ):
            assert 0 < sampled.standard_error < 0.005
            assert sampled.value == pytest.approx(exact.value, abs=4 * sampled.standard_error)
        difference = world.top_k_risk(k, num_samples=20_000).value - world.average_k_risk(k, num_samples=20_000).value
        assert world.advantage(k, num_samples=20_000).value == pytest.approx(difference, abs=1e-12)
        assert difference > 0


def test_labels_are_the_same_on_every_platform():
    # A change of these numbers is a change of all published figures.
    data = MultiLabelWorld(20).sample(4, seed=0)
    assert data.true_targets.col_indices().tolist() == [0, 1, 6, 9, 10, 11, 16, 19, 1, 2, 8, 11, 4, 9, 1, 2, 5, 8]

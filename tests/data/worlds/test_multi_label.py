"""The world of several labels: shares as asked, samples that follow, a known optimum."""

import math
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest
import torch

from shortlist.data.worlds.bayes import average_k_risk, average_k_threshold, best_precision, top_k_risk
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


def test_a_sample_is_observed_in_training_and_true_elsewhere():
    data = WORLD.sample(2000, seed=1)
    assert data.clean_targets is not None
    assert data.inputs.kind == "features"
    assert data.label_groups["topic"] is WORLD.topic
    observed, truth = data.targets.to_dense(), data.clean_targets.to_dense()
    assert (observed <= truth).all()
    assert torch.equal(observed[1200:], truth[1200:])
    present = int(truth[:1200].sum())
    assert int(observed[:1200].sum()) == pytest.approx(0.6 * present, abs=4 * math.sqrt(0.24 * present))
    assert data.split is not None
    assert data.split.counts().tolist() == [1200, 400, 400]
    whole = WORLD.sample(2000, seed=1, split=None)
    assert whole.split is None
    assert torch.equal(whole.true_targets.to_dense(), truth)
    assert whole.targets.to_dense()[1200:].sum() < truth[1200:].sum()


def test_labels_occur_as_often_as_their_probabilities_say():
    data = WORLD.sample(20_000, seed=2)
    x = data.inputs.batch(torch.arange(20_000))
    assert x.dtype == torch.float32
    p, truth = WORLD.probabilities(x.double()), data.true_targets.to_dense().double()
    assert ((truth - p).sum(0).abs() < 4.5 * (p * (1 - p)).sum(0).sqrt()).all()
    # Independent given x: the number of labels has the variance of a sum of independent ones.
    surplus = (truth - p).sum(1)
    assert surplus.square().mean() == pytest.approx(float((p * (1 - p)).sum(1).mean()), rel=0.05)


def test_more_missing_labels_hide_the_same_and_more():
    some, more = (MultiLabelWorld(60, missing=rate).sample(500, seed=3) for rate in (0.2, 0.5))
    assert torch.equal(some.true_targets.to_dense(), more.true_targets.to_dense())
    assert (more.targets.to_dense() <= some.targets.to_dense()).all()
    assert more.targets.values().numel() < some.targets.values().numel()


@pytest.mark.parametrize(("rate", "left"), [(0.0, 1.0), (1.0, 0.0)])
def test_none_or_all_labels_may_be_missing(rate, left):
    data = MultiLabelWorld(10, labels_per_row=2.0, missing=rate).sample(200, split=None)
    assert data.targets.values().numel() == left * data.true_targets.values().numel()


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


def test_the_best_rules_miss_the_stated_share_on_a_sample():
    rows = 20_000
    data = WORLD.sample(rows, seed=6)
    p = WORLD.probabilities(data.inputs.batch(torch.arange(rows)).double())
    truth, gains = data.true_targets.to_dense().double(), expected_shares(p)
    any_label = truth.sum(1) > 0
    top = torch.zeros_like(truth).scatter_(1, gains.topk(3).indices, 1.0)
    average = (gains >= average_k_threshold(gains, 3)).double()
    assert average.sum() == 3 * rows
    for answer, risk in ((top, WORLD.top_k_risk), (average, WORLD.average_k_risk)):
        missed = 1 - (answer * truth).sum(1)[any_label] / truth.sum(1)[any_label]
        error = math.hypot(float(missed.std()) / math.sqrt(len(missed)), risk(3, num_samples=20_000).standard_error)
        assert float(missed.mean()) == pytest.approx(risk(3, num_samples=20_000).value, abs=4 * error)
    found = torch.zeros_like(truth).scatter_(1, p.topk(3).indices, 1.0).mul(truth).sum(1) / 3
    precision = WORLD.best_precision(3, num_samples=20_000)
    assert float(found.mean()) == pytest.approx(precision.value, abs=6 * float(found.std()) / math.sqrt(rows))


@pytest.mark.slow
def test_another_process_draws_the_same_world_and_rows():
    code = (
        "import sys, torch; from hashlib import sha256; from shortlist.data.worlds.multi_label import MultiLabelWorld\n"
        "w = MultiLabelWorld(40, rarity=0.5, seed=2); d = w.sample(300, seed=5)\n"
        "parts = (d.inputs.batch(torch.arange(300)), d.targets.col_indices(), d.true_targets.col_indices())\n"
        "sys.stdout.write(sha256(b''.join(p.numpy().tobytes() for p in parts)).hexdigest())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    data = MultiLabelWorld(40, rarity=0.5, seed=2).sample(300, seed=5)
    parts = (data.inputs.batch(torch.arange(300)), data.targets.col_indices(), data.true_targets.col_indices())
    assert run.stdout == sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


def test_labels_are_the_same_on_every_platform():
    # A change of these numbers is a change of all published figures.
    data = MultiLabelWorld(20).sample(4, seed=0)
    assert data.true_targets.col_indices().tolist() == [0, 1, 6, 9, 10, 11, 16, 19, 1, 2, 8, 11, 4, 9, 1, 2, 5, 8]


def test_seeds_of_world_and_sample_both_matter():
    worlds = [MultiLabelWorld(20, seed=seed) for seed in (0, 1)]
    drawn = {tuple(w.sample(50, seed=seed).true_targets.col_indices().tolist()) for w in worlds for seed in (0, 1)}
    assert len(drawn) == 4
    assert not torch.equal(worlds[0].sample(5)[0].input, worlds[1].sample(5)[0].input)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_labels": 0}, "`num_labels` must be an integer, at least 1; got 0"),
        ({"dim": 0}, "`dim` must be an integer, at least 1; got 0"),
        ({"labels_per_row": 0.0}, r"`labels_per_row` must lie between 0 and 100; got 0\.0"),
        ({"labels_per_row": 100}, "`labels_per_row` must lie between 0 and 100; got 100"),
        ({"labels_per_row": math.nan}, "`labels_per_row` must be finite"),
        ({"tail": -0.5}, "`tail` must lie in"),
        ({"strength": 100.0}, r"`strength` must lie in \[0, 100\)"),
        ({"rarity": -1.0}, "`rarity` must be finite and at least 0"),
        ({"missing": 1.5}, r"`missing` must lie in \[0, 1\]; got 1\.5"),
        ({"missing": [0.5] * 99 + [-0.25]}, r"`missing` must lie in \[0, 1\]; got -0\.25"),
        ({"missing": math.nan}, r"`missing` must lie in \[0, 1\]; got nan"),
        ({"missing": [0.1, 0.2]}, r"`missing` must be one number or one per label, 100; got shape \(2,\)"),
        ({"seed": 1.5}, r"`seed` must be an integer from 0; got 1\.5"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultiLabelWorld(**options)

"""The world of look-alikes: exact probabilities, samples that follow them, and an optimum checked by quadrature."""

import math

import numpy as np
import pytest
import torch

from shortlist.data.worlds.ambiguous import AmbiguousWorld
from shortlist.data.worlds.bayes import average_k_advantage, average_k_risk, top_k_risk
from tests.data.datasets import parts_of

WORLD = AmbiguousWorld()


def densities(world, x):
    """Prior times Gaussian density of each label, straight from the definition."""
    squares = (x[:, None, :].double() - world.means).square().sum(-1)
    return world.priors * (-squares / 2).exp() / (2 * math.pi) ** (world.dim / 2)


def grid(world, step=0.02, margin=9.0):
    """Points and weights of a product rule over all of the world's mass; spectrally exact for Gaussians."""
    axes = [
        torch.arange(float(low) - margin, float(high) + margin, step, dtype=torch.float64)
        for low, high in zip(world.means.amin(0), world.means.amax(0), strict=True)
    ]
    points = torch.cartesian_prod(*axes).reshape(-1, world.dim)
    return points, torch.cat([densities(world, part).sum(1) for part in points.split(50_000)]) * step**world.dim


def test_probabilities_are_those_of_bayes_rule():
    x = WORLD.sample(200, seed=3).batch(list(range(200))).inputs.double()
    expected = densities(WORLD, x)
    expected /= expected.sum(1, keepdim=True)
    assert torch.allclose(WORLD.probabilities(x), expected, rtol=1e-9, atol=1e-300)


def test_far_from_everything_one_label_is_certain_and_nothing_overflows():
    p = WORLD.probabilities(torch.full((1, 16), 1e30))
    assert p.max() == 1
    assert p.sum() == 1


@pytest.mark.parametrize("dim", [1, 2])
def test_the_risks_agree_with_quadrature(dim):
    world = AmbiguousWorld(3, (1, 4), dim=dim, ambiguity=(0.2, 1.5), separation=6.0, seed=5)
    points, weights = grid(world, step=0.02 if dim == 1 else 0.1)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-9)
    p = world.probabilities(points)
    for k in (1, 2, 3):
        for sampled, exact in (
            (world.top_k_risk(k, num_samples=20_000), top_k_risk(p, k, weights=weights)),
            (world.average_k_risk(k, num_samples=20_000), average_k_risk(p, k, weights=weights)),
            (world.advantage(k, num_samples=20_000), average_k_advantage(p, k, weights=weights)),
        ):
            assert exact.standard_error == 0
            assert 0 < sampled.standard_error < 0.005
            assert sampled.value == pytest.approx(exact.value, abs=4 * sampled.standard_error)


def test_by_default_average_k_beats_top_k_by_a_few_percent_at_errors_worth_reducing():
    for seed in range(3):
        world = AmbiguousWorld(seed=seed)
        assert 0.25 < world.top_k_risk(1, num_samples=5000).value < 0.45
        for k in (2, 3, 5):
            advantage = world.advantage(k, num_samples=5000)
            assert 0.025 < advantage.value < 0.08
            assert advantage.value > 20 * advantage.standard_error
            assert world.average_k_risk(k, num_samples=5000).value > 0.01


def test_the_figures_of_the_docstring_are_those_of_the_default_world():
    for k, top, average in ((1, 33.5, 32.7), (2, 21.0, 16.9), (3, 14.9, 10.3), (5, 8.6, 4.3)):
        for risk, percent in ((WORLD.top_k_risk, top), (WORLD.average_k_risk, average)):
            estimate = risk(k, num_samples=10_000, seed=9)
            assert 100 * estimate.value == pytest.approx(percent, abs=0.1 + 400 * estimate.standard_error)


def test_labels_of_a_sample_occur_as_often_as_their_priors_say():
    counts = WORLD.sample(50_000, seed=7).label_counts().double()
    expected = 50_000 * WORLD.priors
    assert ((counts - expected) ** 2 / expected).sum() < 88 + 4 * math.sqrt(2 * 88)


def test_the_number_of_plausible_labels_differs_between_groups():
    data = WORLD.sample(20_000, seed=8)
    p = WORLD.probabilities(data.batch(torch.arange(20_000)).inputs.double())
    plausible = (-(p * p.clamp(min=1e-300).log()).sum(1)).exp()
    group = WORLD.superclass.index[data.targets]
    means = torch.stack([plausible[group == g].mean() for g in range(20)])
    large = WORLD.superclass.counts() >= 6
    assert means[large].min() < 2.5
    assert means[large].max() > 4
    # Ambiguity, not size alone, makes labels plausible.
    ranks = [np.argsort(np.argsort(v[large].numpy())) for v in (means, WORLD.group_ambiguity)]
    assert np.corrcoef(ranks)[0, 1] > 0.5


def test_groups_are_uneven_and_clear_ones_come_in_all_sizes():
    sizes = WORLD.superclass.counts()
    assert (int(sizes.min()), int(sizes.max())) == (1, 12)
    assert len(set(sizes.tolist())) > 6
    order = [np.argsort(np.argsort(v.numpy(), kind="stable")) for v in (sizes, WORLD.group_ambiguity)]
    assert abs(np.corrcoef(order)[0, 1]) < 0.3
    assert WORLD.group_ambiguity.min().item() == pytest.approx(0.15)
    assert WORLD.group_ambiguity.max().item() == pytest.approx(2.0)


def test_means_of_a_group_scatter_as_its_ambiguity_says():
    world = AmbiguousWorld(2, (300, 300), dim=8, ambiguity=(0.1, 2.0))
    for g, ambiguity in enumerate(world.group_ambiguity.tolist()):
        means = world.means[world.superclass.index == g]
        assert torch.pdist(means).square().mean().sqrt() == pytest.approx(1 / ambiguity, rel=0.1)


def test_frequencies_follow_a_power_law_and_every_group_has_a_share_of_the_tail():
    world = AmbiguousWorld(tail=1.2)
    ordered = world.priors.sort(descending=True).values
    ranks = torch.arange(1, 90, dtype=torch.float64)
    assert torch.allclose(ordered / ordered[0], ranks**-1.2)
    assert float(world.priors.sum()) == pytest.approx(1)
    rare = world.priors < ordered[44]
    for g in range(20):
        inside = world.superclass.index == g
        if inside.sum() >= 4:
            assert 0.2 < rare[inside].double().mean() < 0.8
    balanced = AmbiguousWorld(tail=0).priors
    assert torch.allclose(balanced, torch.full_like(balanced, 1 / 89))


def test_a_sample_is_a_whole_dataset():
    data = WORLD.sample(1000, seed=1)
    assert data.inputs.kind == "features"
    assert data[0].input.dtype == torch.float32
    assert data[0].input.shape == (16,)
    assert data.label_groups["superclass"] is WORLD.superclass
    assert parts_of(data) == (("train", "val", "test"), [0] * 600 + [1] * 200 + [2] * 200)
    assert data.label_names[0] == "group 1 label 1"
    assert len(data.label_names) == 89


def test_one_label_alone_is_never_missed():
    world = AmbiguousWorld(1, (1, 1), dim=1)
    assert world.probabilities(torch.tensor([[3.0]])).tolist() == [[1.0]]
    assert world.top_k_risk(1, num_samples=10) == (0, 0)
    assert world.advantage(1, num_samples=10).value == 0


def test_labels_are_the_same_on_every_platform():
    # Labels are decided by exact fractions, so a change of these numbers is a change of all published figures.
    assert WORLD.sample(12, seed=0).targets.tolist() == [10, 77, 10, 0, 77, 70, 77, 31, 8, 31, 40, 31]

"""Witnesses of the DFT have the signs of their sets, and the radius of the polynomial in many digits."""

import itertools
import math
import sys
from functools import cache

import pytest
import torch
from torch import Tensor

from shortlist.functional import dft_matrix, dft_witness, sign_changes
from tests.contracts_losses import FORMS
from tests.multiprecision import MP


def has_signs(features: Tensor, hot: Tensor, k: int) -> Tensor:
    logits = features @ dft_matrix(hot.shape[-1], k, dtype=torch.float64).T
    return (torch.where(hot, logits, -logits) > 0).all(-1)


def random_sets(n: int, k: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(n + k)
    return torch.stack([torch.randperm(n, generator=generator)[:k] for _ in range(rows)])


def hot_of(sets: Tensor, n: int) -> Tensor:
    return torch.zeros(len(sets), n, dtype=torch.bool).scatter(1, sets, True)


def exact_witness(labels: set[int], n: int, k: int) -> tuple[list, object]:
    """Coefficients with largest magnitude 1 and the log10 of the radius, from the roots, in many digits."""
    roots = []
    for label in labels:
        before, after = (label - 1) % n in labels, (label + 1) % n in labels
        if not before:
            roots.append((label, -MP.mpf(1) / 2 if after else -1 / MP.sqrt(2)))
        if not after:
            roots.append((label, MP.mpf(1) / 2 if before else 1 / MP.sqrt(2)))

    @cache
    def factor(steps: int, offset):
        return abs(2 * MP.sin(MP.pi * (steps - offset) / n))

    values = []
    for i in range(n):
        size = MP.fprod(factor((i - label) % n, offset) for label, offset in roots)
        values.append(size if i in labels else -size)
    cos = [MP.cos(2 * MP.pi * m / n) for m in range(n)]
    sin = [MP.sin(2 * MP.pi * m / n) for m in range(n)]
    found = [sum(values) / MP.sqrt(n)]
    found += [
        MP.sqrt(MP.mpf(2) / n) * sum(z * wave[i * j % n] for i, z in enumerate(values))
        for j in range(1, k + 1)
        for wave in (cos, sin)
    ]
    largest = max(abs(x) for x in found)
    radius = min(abs(z) for z in values) / largest / MP.sqrt(MP.mpf(2 * k + 1) / n)
    return [x / largest for x in found], MP.log10(radius)


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("n", range(1, 11))
def test_every_set_with_few_sign_changes_has_its_signs_and_its_radius(n, k):
    if 2 * k + 1 > n:
        return
    hot = torch.tensor(list(itertools.product([False, True], repeat=n)))
    possible = sign_changes(hot, n) <= 2 * k
    assert possible[hot.sum(-1) <= k].all()
    hot = hot[possible]
    features, log10_radius = dft_witness(hot, n, k)
    assert features.dtype == log10_radius.dtype == torch.float64
    assert (features.abs().amax(-1) == 1).all()
    assert has_signs(features, hot, k).all()
    smallest = (features @ dft_matrix(n, k, dtype=torch.float64).T).abs().amin(-1)
    expected = (smallest / math.sqrt((2 * k + 1) / n)).log10()
    assert torch.allclose(log10_radius, expected, rtol=0, atol=1e-11)


CLUSTERED = {
    "every second label": set(range(0, 20, 2)),
    "around zero": {(3 * i - 12) % 200 for i in range(10)},
    "runs and single labels": {0, 1, 2, 4, 7, 8, 11, 13, 15, 16, 17, 18, 20, 199},
    "two clusters": {10, 12, 14, 16, 18, 110, 112, 114, 116, 118},
    "one label": {57},
    "all but one": set(range(200)) - {3},
}


@pytest.mark.parametrize("name", CLUSTERED)
def test_the_radius_of_a_cluster_has_the_digits_of_the_exact_polynomial(name):
    labels, n, k = CLUSTERED[name], 200, 10
    features, log10_radius = dft_witness(torch.tensor([sorted(labels)]), n, k)
    exact, exact_radius = exact_witness(labels, n, k)
    assert abs(log10_radius.item() - exact_radius) < 1e-11
    assert max(abs(x - y) for x, y in zip(features[0].tolist(), exact, strict=True)) < 1e-14


@pytest.mark.slow
def test_the_radius_is_known_where_the_values_underflow():
    n, k = 4000, 120
    labels = torch.arange(0, 2 * k, 2)
    _, log10_radius = dft_witness(labels[None], n, k)
    _, exact = exact_witness(set(labels.tolist()), n, k)
    assert exact < math.log10(sys.float_info.min)
    assert abs(log10_radius.item() - exact) < 1e-9


def test_the_empty_and_the_full_set_are_constants():
    for hot, sign in ((torch.zeros(1, 9, dtype=torch.bool), -1), (torch.ones(1, 9, dtype=torch.bool), 1)):
        features, log10_radius = dft_witness(hot, 9, 2)
        assert features.tolist() == [[sign, 0, 0, 0, 0]]
        assert log10_radius.item() == pytest.approx(math.log10((1 / 3) / math.sqrt(5 / 9)))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_labels_has_the_same_witness(form):
    hot = torch.eye(8, dtype=torch.float64)
    if form != "class indices":
        hot = hot + hot.roll(3, 1)
    for got, expected in zip(dft_witness(FORMS[form](hot), 8, 2), dft_witness(hot, 8, 2), strict=True):
        assert torch.equal(got, expected)


def test_rows_do_not_depend_on_their_batch():
    sets = random_sets(9000, 20, 70)  # more than one block
    together = dft_witness(sets, 9000, 20)
    alone = [dft_witness(row[None], 9000, 20) for row in sets[::23]]
    assert torch.equal(together.log10_radius[::23], torch.cat([w.log10_radius for w in alone]))
    assert torch.allclose(together.features[::23], torch.cat([w.features for w in alone]), rtol=0, atol=1e-15)


def test_a_frequency_above_the_number_of_runs_is_not_used():
    features, _ = dft_witness(torch.tensor([[5, 6, 40]]), 100, 7)
    assert (features[0, 5:] == 0).all()
    assert (features[0, 3:5] != 0).all()


def test_random_sets_keep_their_signs_in_float64_and_many_lose_them_in_float32():
    n, k = 1000, 5
    sets = random_sets(n, k, 300)
    hot, features = hot_of(sets, n), dft_witness(sets, n, k).features
    assert has_signs(features, hot, k).all()
    logits = features.float() @ dft_matrix(n, k, dtype=torch.float32).T
    share = (torch.where(hot, logits, -logits) > 0).all(-1).double().mean()
    assert 0.3 < share < 0.8


def test_other_row_norms_measure_the_same_polynomial():
    n, k = 30, 3
    sets, norms = random_sets(n, k, 5), torch.linspace(0.5, 2, n)
    features, log10_radius = dft_witness(sets, n, k, row_norms=norms)
    assert torch.equal(features, dft_witness(sets, n, k).features)
    logits = features @ dft_matrix(n, k, dtype=torch.float64).T
    assert torch.allclose(log10_radius, (logits.abs() / norms.double()).amin(-1).log10(), rtol=0, atol=1e-10)


def test_no_rows_have_no_witness():
    features, log10_radius = dft_witness(torch.empty(0, 3, dtype=torch.int64), 9, 2)
    assert features.shape == (0, 5)
    assert log10_radius.shape == (0,)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`target` row 1: must have at most 2k = 4 cyclic sign changes; got 6\."):
        dft_witness(torch.tensor([[0, 1, 2], [0, 2, 4]]), 9, 2)
    with pytest.raises(ValueError, match=r"`k` must lie in \[0, 4\], so that 2k \+ 1 <= 9 labels; got 5\."):
        dft_witness(torch.tensor([[0, 1]]), 9, 5)
    with pytest.raises(ValueError, match=r"`row_norms` must have shape \(9,\); got \(8,\)\."):
        dft_witness(torch.tensor([[0, 1]]), 9, 2, row_norms=torch.ones(8))
    with pytest.raises(ValueError, match=r"`target` row 0: label 9 must lie in \[0, 9\)\."):
        dft_witness(torch.tensor([[0, 9]]), 9, 2)

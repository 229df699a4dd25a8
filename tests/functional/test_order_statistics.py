"""Order statistics, plain and noised: values, gradients, and the distribution of the noise."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import vmap

from shortlist.functional import kth_largest, noised_kth_largest
from tests import reference
from tests.functional.paths import every_path

INF = math.inf
quick = settings(derandomize=True, deadline=None, max_examples=40)


def value_and_gradient(function, x: Tensor, *args, **options) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = function(x, *args, **options)
    return value.detach(), torch.autograd.grad(value.sum(), x)[0]


def simulated(row: Tensor, k: int, epsilon: float, draws: int, seed: int = 99) -> tuple[Tensor, Tensor]:
    """Value and place of the k-th largest of row + εZ, from plain normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    values, places = [], []
    for size in torch.full((math.ceil(draws / 250),), 250).tolist():
        noisy = row + epsilon * torch.randn(size, len(row), generator=generator)
        top = noisy.topk(k)
        values.append(top.values[:, -1])
        places.append(top.indices[:, -1])
    return torch.cat(values)[:draws].double(), torch.cat(places)[:draws]


@quick
@given(row=st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=9), data=st.data())
def test_the_kth_largest_is_that_of_a_sorted_row_and_its_gradient_one_hot(row, data):
    k = data.draw(st.integers(1, len(row)))
    value, slope = value_and_gradient(kth_largest, torch.tensor(row), k)
    assert value.item() == reference.kth_largest(row, k)
    assert sorted(slope.tolist()) == [0] * (len(row) - 1) + [1]
    assert row[slope.argmax()] == value


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_every_precision_and_axis_gives_the_sorted_values(dtype, fresh):
    x = torch.randn(3, 40, 4, generator=fresh).to(dtype)
    for k in (1, 2, 20, 39, 40):
        expected = x.double().sort(dim=1, descending=True).values[:, k - 1]
        for dim in (1, -2):
            value, slope = value_and_gradient(kth_largest, x, k, dim=dim)
            assert torch.equal(value.double(), expected)
            assert slope.dtype == dtype
            assert torch.equal((slope * x).sum(1).double(), expected)
            assert (slope.sum(1) == 1).all()


def test_the_order_statistics_of_long_rows_are_those_of_a_sort(fresh):
    x = torch.randn(2, 50_000, generator=fresh)
    ordered = x.sort(descending=True).values
    for k in (1, 2, 10, 101, 1000, 25_000, 50_000):
        assert torch.equal(kth_largest(x, k), ordered[:, k - 1])


def test_absent_labels_come_last():
    row = torch.tensor([-INF, 3.0, -INF, 1.0])
    assert [kth_largest(row, k).item() for k in (1, 2, 3)] == [3, 1, -INF]
    assert value_and_gradient(kth_largest, row, 2)[1].tolist() == [0, 0, 0, 1]


def test_derivatives_agree_with_finite_differences(fresh):
    x = torch.randn(3, 6, generator=fresh, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(4, 3, 6, generator=fresh, dtype=torch.float64)
    for k in (1, 3, 6):
        assert gradcheck(lambda x, k=k: kth_largest(x, k), (x,))
        assert gradcheck(lambda x, k=k: noised_kth_largest(x, k, epsilon=0.5, noise=noise), (x,))


def test_vmap_over_rows_is_the_batch(fresh):
    x = torch.randn(5, 7, generator=fresh)
    noise = torch.randn(4, 5, 7, generator=fresh)
    assert torch.equal(vmap(lambda row: kth_largest(row, 3))(x), kth_largest(x, 3))
    mapped = vmap(lambda row, z: noised_kth_largest(row, 3, noise=z), in_dims=(0, 1))(x, noise)
    assert torch.allclose(mapped, noised_kth_largest(x, 3, noise=noise))


@quick
@given(seed=st.integers(0, 9999), n=st.integers(1, 9), samples=st.integers(1, 6), epsilon=st.floats(0, 5))
def test_the_noised_statistic_of_given_noise_is_that_of_the_reference(seed, n, samples, epsilon):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, n, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, 2, n, generator=generator, dtype=torch.float64)
    for k in {1, (n + 1) // 2, n}:
        value, slope = value_and_gradient(noised_kth_largest, x, k, epsilon=epsilon, noise=noise)
        for row in range(2):
            expected = reference.noised_kth_largest(x[row].tolist(), k, noise[:, row].tolist(), epsilon)
            assert value[row].item() == pytest.approx(float(expected), rel=1e-9, abs=1e-12)
        places = (x + epsilon * noise).sort(dim=-1, descending=True).indices[..., k - 1]
        shares = torch.zeros(samples, 2, n, dtype=torch.float64).scatter(-1, places[..., None], 1.0).mean(0)
        assert torch.allclose(slope, shares, rtol=1e-12)


def test_without_noise_the_statistic_is_the_plain_one(fresh):
    x = torch.randn(3, 300, generator=fresh)
    (value, slope), (plain, one_hot) = (
        value_and_gradient(function, x, 5, **options)
        for function, options in ((noised_kth_largest, {"epsilon": 0.0}), (kth_largest, {}))
    )
    assert torch.allclose(value, plain)
    assert torch.allclose(slope, one_hot)


def test_any_axis_may_hold_the_labels(fresh):
    x = torch.randn(2, 5, 3, generator=fresh)
    noise = torch.randn(4, 2, 5, 3, generator=fresh)
    expected = noised_kth_largest(x.transpose(1, 2), 2, noise=noise.transpose(2, 3))
    for dim in (1, -2):
        assert torch.allclose(noised_kth_largest(x, 2, dim=dim, noise=noise), expected)
    assert noised_kth_largest(x, 2, dim=1).shape == (2, 3)


@every_path
@pytest.mark.parametrize("n", [20, 1000])
def test_a_generator_makes_the_noise_reproducible_and_the_default_follows_the_global_seed(n, fresh):
    x = torch.randn(3, n, generator=fresh)
    draws = [noised_kth_largest(x, 3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    state = torch.get_rng_state()
    noised_kth_largest(x, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        first, second = noised_kth_largest(x, 3), noised_kth_largest(x, 3)
        torch.manual_seed(7)
        assert torch.equal(noised_kth_largest(x, 3), first)
        assert not torch.equal(first, second)


@every_path
@pytest.mark.parametrize("samples", [1, 4, 10])
def test_drawn_gradients_are_shares_of_the_samples(samples, fresh):
    for n in (6, 700):
        x = torch.randn(5, n, generator=fresh)
        slope = value_and_gradient(noised_kth_largest, x, 3, samples=samples, generator=fresh)[1]
        assert torch.allclose(slope.sum(-1), torch.ones(5))
        assert torch.allclose(samples * slope, (samples * slope).round(), atol=1e-5)


def rows_to_noise(n: int, shape: str) -> Tensor:
    """Logits of n labels: trained ones have a few high values, fresh ones differ little."""
    generator = torch.Generator().manual_seed(n)
    row = torch.randn(n, generator=generator)
    if shape == "peaked":
        row[:5] += torch.tensor([12.0, 10, 9, 8.5, 8])
    return {"flat": 0, "wide": 8}.get(shape, 1) * row


def check_distribution(n: int, k: int, epsilon: float, shape: str, draws: int, beside: str | None = None) -> None:
    """Compare mean, spread, distribution function and places of draws with those of a plain simulation.

    Draws come from batches of 250 equal rows, or, beside four times as many rows of another shape, of 62.
    """
    row = rows_to_noise(n, shape)
    batch = row.expand(250, n)
    if beside:
        other = rows_to_noise(n, beside)
        batch = torch.stack([other, other, other, row, other]).repeat(62, 1)
    asked = (batch == row).all(-1)
    drawn = []
    slope = torch.zeros(n)
    generator = torch.Generator().manual_seed(1)
    while sum(map(len, drawn)) < draws:
        x = batch.clone().requires_grad_()
        value = noised_kth_largest(x, k, epsilon=epsilon, samples=1, generator=generator)
        left = draws - sum(map(len, drawn))
        value = value[asked][:left]
        drawn.append(value.detach().double())
        slope += torch.autograd.grad(value.sum(), x)[0].sum(0)
    drawn = torch.cat(drawn)
    direct, places = simulated(row, k, epsilon, draws)
    spread = direct.std()
    assert (drawn.mean() - direct.mean()).abs() <= 4 * spread * math.sqrt(2 / draws)
    # The standard error of a variance is at most σ²·√(κ/draws) with a kurtosis κ below 10 for these rows.
    assert (drawn.var() - direct.var()).abs() <= 4 * spread**2 * math.sqrt(2 * 10 / draws)
    points = torch.cat([drawn, direct]).sort().values
    below = [torch.searchsorted(part.sort().values, points, right=True).double() / draws for part in (drawn, direct)]
    # Kolmogorov-Smirnov: two samples of one distribution differ more once in 10,000 times.
    assert (below[0] - below[1]).abs().max() <= 2.23 * math.sqrt(2 / draws)
    counts = torch.bincount(places, minlength=n).double()
    often = counts.topk(min(n, 5)).indices
    error = (counts - slope.double())[often].abs()
    assert (error <= 4.5 * (counts + slope.double())[often].clamp(min=1).sqrt()).all()


@pytest.mark.parametrize("shape", ["flat", "normal", "peaked"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(("n", "k"), [(12, 3), (1000, 6)])
def test_drawn_noise_has_the_distribution_of_plain_simulation(n, k, epsilon, shape):
    check_distribution(n, k, epsilon, shape, draws=1000)


@pytest.mark.parametrize(("shape", "beside"), [("flat", "peaked"), ("peaked", "flat"), ("wide", "flat")])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
def test_rows_of_another_shape_in_the_batch_do_not_change_the_distribution(epsilon, shape, beside):
    check_distribution(1000, 6, epsilon, shape, draws=1000, beside=beside)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["flat", "normal", "peaked"])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 20.0])
@pytest.mark.parametrize(("n", "k"), [(300, 1), (5000, 6), (20_000, 21), (3000, 1500)])
def test_many_draws_have_the_distribution_of_plain_simulation(n, k, epsilon, shape):
    check_distribution(n, k, epsilon, shape, draws=5000)


@pytest.mark.parametrize("n", [12, 4000])
def test_samples_and_rows_are_independent(n):
    """The variance of a mean of m draws is 1/m of that of one, and neighbouring rows are not correlated."""
    row, draws = rows_to_noise(n, "normal"), 1500
    generator = torch.Generator().manual_seed(3)
    one, many = (
        noised_kth_largest(row.expand(draws, n), 5, samples=samples, generator=generator).double() for samples in (1, 8)
    )
    ratio = (one.var() / many.var()).item()
    assert 8 / 1.35 < ratio < 8 * 1.35
    centred = one - one.mean()
    correlation = (centred[1:] * centred[:-1]).mean() / one.var()
    assert abs(correlation.item()) <= 4 / math.sqrt(draws)


def test_the_draw_does_not_depend_on_the_other_rows(fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "off")
    x = torch.randn(300, 200, generator=fresh)
    together, alone = (noised_kth_largest(part, 3, generator=torch.Generator().manual_seed(1)) for part in (x, x[:7]))
    assert torch.equal(together[:7], alone)


@every_path
def test_absent_labels_are_never_the_kth_and_certain_ones_are_passed_over(fresh):
    x = torch.randn(4, 200, generator=fresh)
    x[0, ::2], x[1, :2], x[2, 3:] = -INF, INF, -INF
    value, slope = value_and_gradient(noised_kth_largest, x, 3, generator=fresh)
    assert value.isfinite().all()
    assert torch.allclose(slope.sum(-1), torch.ones(4))
    assert (slope[0, ::2] == 0).all()
    assert (slope[1, :2] == 0).all()
    assert (slope[2, 3:] == 0).all()


@every_path
@pytest.mark.parametrize("offset", [1e30, -1e30, 3e38])
def test_logits_far_apart_leave_the_noise_to_those_that_are_near(offset, fresh):
    """A giant, or labels far below, are no rivals: what is left has the law of the rest."""
    x = torch.zeros(3, 300)
    x[:, : 2 if offset > 0 else 290] = offset
    value, slope = value_and_gradient(noised_kth_largest, x, 4, samples=50, generator=fresh)
    assert (value.abs() < 6).all()
    assert torch.allclose(slope[x == 0].view(3, -1).sum(-1), torch.ones(3))


@pytest.mark.parametrize("k", [0, -1, 6, 1.5])
@pytest.mark.parametrize("function", [kth_largest, noised_kth_largest])
def test_a_place_that_does_not_exist_is_refused(function, k):
    with pytest.raises((ValueError, TypeError), match="`k` must"):
        function(torch.zeros(2, 5), k)


def test_noise_that_does_not_fit_is_refused():
    x = torch.zeros(2, 5)
    for shape in [(2, 5), (3, 2, 4), (3, 1, 5), (3, 2, 5, 1)]:
        with pytest.raises(ValueError, match="`noise` must"):
            noised_kth_largest(x, 2, noise=torch.zeros(shape))
    with pytest.raises((ValueError, TypeError), match="`generator`"):
        noised_kth_largest(x, 2, noise=torch.zeros(3, 2, 5), generator=torch.Generator())
    for samples in (0, -1):
        with pytest.raises(ValueError, match="`samples` must"):
            noised_kth_largest(x, 2, samples=samples)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ValueError, match="`epsilon` must"):
            noised_kth_largest(x, 2, epsilon=epsilon)

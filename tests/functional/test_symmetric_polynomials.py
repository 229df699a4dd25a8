"""Logarithms of elementary symmetric polynomials, their gradients, and the law of the number of labels."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap

from shortlist.functional import log_elementary_symmetric
from shortlist.functional.projections.lml import lml_root
from shortlist.functional.symmetric_polynomials import label_count, label_count_tree
from tests import reference
from tests.functional.paths import each_path
from tests.functional.projections.test_exact_solvers import mixed_batch

INF = math.inf


TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


# The path is chosen once for all examples.
quick = settings(
    derandomize=True, deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def value_and_gradient(x: Tensor, k: int, **options) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = log_elementary_symmetric(x, k, **options)
    return value.detach(), torch.autograd.grad(value.sum(), x)[0]


def allowance(row: list[float], k: int, expected: float, dtype: torch.dtype) -> float:
    """Relative to values above 1, and to the rounding of the k terms that cancel in them."""
    largest = max(abs(x) for x in row)
    return TOLERANCE[dtype] * max(1, abs(float(expected))) + 4 * torch.finfo(dtype).eps * k * largest


def log_space_sums(x: np.ndarray, k: int) -> np.ndarray:
    """log S_0 ... log S_k by the recurrence in float64, without subtraction."""
    sums = np.full(k + 1, -np.inf)
    sums[0] = 0.0
    for value in x:
        sums[1:] = np.logaddexp(sums[1:], value + sums[:-1])
    return sums


@each_path
@quick
@given(row=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=9), data=st.data())
def test_values_and_gradients_agree_with_enumeration(dtype, row, data):
    k = data.draw(st.integers(0, len(row)))
    value, slope = value_and_gradient(torch.tensor(row, dtype=dtype), k)
    assert value.dtype == dtype
    expected = reference.log_elementary_symmetric(row, k)
    assert abs(value.item() - expected) <= allowance(row, k, expected, dtype)
    shares = [float(share) for share in reference.inclusion_probabilities(row, k)]
    assert slope.tolist() == pytest.approx(shares, abs=TOLERANCE[dtype])


@each_path
@pytest.mark.parametrize(("n", "k"), [(20, 3), (50, 25), (64, 64), (100, 1), (199, 100), (200, 7)])
def test_values_agree_with_the_recurrence_on_longer_rows(dtype, n, k, fresh):
    for scale in (0.1, 1, 10):
        row = (scale * torch.randn(n, generator=fresh)).to(dtype)
        expected = reference.log_elementary_symmetric_by_recurrence(row.tolist(), k)
        got = log_elementary_symmetric(row, k).item()
        assert abs(got - expected) <= allowance(row.tolist(), k, expected, dtype), scale


@pytest.mark.parametrize("k", [1, 2, 5, 30, 59, 60])
@each_path
def test_gradients_agree_with_the_recurrence_without_each_label(dtype, k, fresh):
    row = (3 * torch.randn(60, generator=fresh)).to(dtype)
    slope = value_and_gradient(row, k)[1]
    whole, exact = log_space_sums(row.double().numpy(), k)[k], row.double().numpy()
    expected = [exact[j] + log_space_sums(np.delete(exact, j), k)[k - 1] - whole for j in range(60)]
    assert slope.tolist() == pytest.approx(np.exp(expected).tolist(), abs=TOLERANCE[dtype])


@each_path
@pytest.mark.parametrize("scale", [0.5, 5.0])
def test_a_hundred_of_ten_thousand_labels_agree_with_the_recurrence_in_log_space(dtype, scale, fresh):
    row = (scale * torch.randn(10_000, generator=fresh)).to(dtype)
    value, slope = value_and_gradient(row, 100)
    expected = log_space_sums(row.double().numpy(), 100)[100]
    assert value.item() == pytest.approx(expected, rel=1e-5)
    assert slope.isfinite().all()
    assert slope.double().sum().item() == pytest.approx(100, rel=1e-5)


@each_path
@pytest.mark.parametrize("k", [0, 1, 2, 7, 39, 40])
def test_gradients_are_probabilities_that_sum_to_k_and_keep_the_order(dtype, k, fresh):
    rows = torch.cat([scale * torch.randn(3, 40, generator=fresh) for scale in (0.1, 3, 100)]).to(dtype)
    slope = value_and_gradient(rows, k)[1]
    eps = 100 * torch.finfo(dtype).eps
    assert (slope >= 0).all()
    assert (slope <= 1 + eps).all()
    assert torch.allclose(slope.sum(-1), torch.full((9,), float(k), dtype=dtype), rtol=eps, atol=eps)
    ordered = slope.gather(-1, rows.argsort(-1))
    assert (ordered.diff(dim=-1) >= -eps).all()


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 6])
def test_derivatives_agree_with_finite_differences(check, k, fresh):
    rows = torch.randn(3, 6, generator=fresh, dtype=torch.float64, requires_grad=True)
    assert check(lambda x: log_elementary_symmetric(x, k), (rows,))


def test_second_derivatives_at_a_larger_size_agree_with_the_covariance_of_subsets(fresh):
    """The Hessian of log S_k is the covariance of the indicators of a random k-subset."""
    row = torch.randn(7, generator=fresh, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda x: log_elementary_symmetric(x, 3), row)
    subsets = torch.combinations(torch.arange(7), 3)
    members = torch.zeros(len(subsets), 7, dtype=torch.float64).scatter(1, subsets, 1.0)
    shares = (members @ row).softmax(0)
    mean = shares @ members
    covariance = members.T @ (shares[:, None] * members) - torch.outer(mean, mean)
    assert torch.allclose(hessian, covariance, rtol=1e-9, atol=1e-12)


def test_no_label_has_one_subset_and_all_labels_have_one(fresh):
    rows = 10 * torch.randn(4, 9, generator=fresh, dtype=torch.float64)
    value, slope = value_and_gradient(rows, 0)
    assert (value == 0).all()
    assert (slope == 0).all()
    value, slope = value_and_gradient(rows, 9)
    assert torch.allclose(value, rows.sum(-1), rtol=1e-12)
    assert torch.allclose(slope, torch.ones_like(rows), rtol=1e-12)
    assert torch.allclose(log_elementary_symmetric(rows, 1), rows.logsumexp(-1), rtol=1e-12)


@each_path
def test_tied_labels_count_subsets(dtype):
    for n, k in ((5, 2), (12, 6), (60, 30), (1000, 500)):
        value, slope = value_and_gradient(torch.full((n,), 0.5, dtype=dtype), k)
        expected = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + 0.5 * k
        assert value.item() == pytest.approx(expected, rel=TOLERANCE[dtype])
        assert slope.tolist() == pytest.approx([k / n] * n, rel=TOLERANCE[dtype])


@each_path
@pytest.mark.parametrize("offset", [1e4, -1e4, 88.0, -104.0, 745.0])
def test_an_offset_of_every_label_is_added_once_for_each_wanted(dtype, offset, fresh):
    rows = torch.randint(-16, 17, (3, 30), generator=fresh) / 4.0
    near, near_slope = value_and_gradient(rows.to(dtype), 7)
    far, far_slope = value_and_gradient((rows + offset).to(dtype), 7)
    assert torch.allclose(far, near + 7 * offset, rtol=4 * torch.finfo(dtype).eps)
    assert torch.allclose(far_slope, near_slope, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


GAPS = {
    "one far above": [1e4, 0.0, 1.0, -2.0, 0.5, 3.0],
    "one far below": [-1e4, 0.0, 1.0, -2.0, 0.5, 3.0],
    "two groups": [1e3, 1e3 + 1, 1e3 - 2, -1e3, -1e3 + 1, 4 - 1e3],
    "staircase": [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0],
    "wide": [-1e4, -5e3, 0.0, 5e3, 7.5e3, 1e4],
    "just beyond float32": [0.0, -90.0, -104.0, 89.0, -88.0, 44.0],
}


@each_path
@pytest.mark.parametrize("name", GAPS)
def test_huge_gaps_agree_with_enumeration(dtype, name):
    for k in range(7):
        value, slope = value_and_gradient(torch.tensor(GAPS[name], dtype=dtype), k)
        expected = reference.log_elementary_symmetric(GAPS[name], k)
        assert abs(value.item() - expected) <= allowance(GAPS[name], k, expected, dtype)
        shares = [float(share) for share in reference.inclusion_probabilities(GAPS[name], k)]
        assert slope.tolist() == pytest.approx(shares, rel=1e-3, abs=TOLERANCE[dtype])


@pytest.mark.parametrize("n", [37, 512])
def test_long_rows_of_huge_spread_stay_exact(n, fresh):
    row = 1000 * torch.randn(n, generator=fresh)
    for k in (1, 5, n // 2, n - 1):
        value, slope = value_and_gradient(row, k)
        assert value.item() == pytest.approx(log_space_sums(row.double().numpy(), k)[k], rel=1e-5)
        assert slope.double().sum().item() == pytest.approx(k, rel=1e-5)


def test_absent_labels_are_in_no_subset(fresh):
    row = torch.randn(6, generator=fresh, dtype=torch.float64)
    longer = torch.cat([row[:2], torch.tensor([-INF, -INF], dtype=torch.float64), row[2:]])
    for k in (0, 1, 3, 6):
        (value, slope), (expected, rest) = (value_and_gradient(x, k) for x in (longer, row))
        assert torch.allclose(value, expected, rtol=1e-12)
        assert torch.allclose(slope[[0, 1, 4, 5, 6, 7]], rest, rtol=1e-12)
        assert (slope[2:4] == 0).all()
    value, slope = value_and_gradient(longer, 7)
    assert value == -INF
    assert not slope.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_solved_in_float32(dtype, fresh):
    rows = (3 * torch.randn(3, 40, generator=fresh)).to(dtype)
    value, slope = value_and_gradient(rows, 5)
    exact, exact_slope = value_and_gradient(rows.float(), 5)
    assert torch.allclose(value.float(), exact, rtol=1e-2)
    assert slope.dtype == dtype
    assert torch.allclose(slope.float(), exact_slope, rtol=1e-2, atol=1e-3)


def test_any_axis_and_any_number_of_rows_may_be_asked(fresh):
    x = torch.randn(2, 5, 3, generator=fresh, dtype=torch.float64)
    expected = torch.stack([log_elementary_symmetric(x[:, :, j], 2) for j in range(3)], -1)
    for dim in (1, -2):
        assert torch.allclose(log_elementary_symmetric(x, 2, dim=dim), expected, rtol=1e-12)
    assert log_elementary_symmetric(x[:0], 2).shape == (0, 5)
    assert torch.allclose(vmap(lambda row: log_elementary_symmetric(row, 2))(x[0]), log_elementary_symmetric(x[0], 2))


@pytest.mark.parametrize("k", [-1, 6, 1.5])
def test_a_number_of_labels_that_cannot_be_is_refused(k):
    with pytest.raises((ValueError, TypeError), match=re.escape("`k` must")):
        log_elementary_symmetric(torch.zeros(2, 5), k)


COUNT_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


def log_odds(x, k):
    """Log-odds under which k - 1/2 labels are expected, in the parts that the solver takes."""
    pivot, delta = lml_root(x, x.new_full((1, 1), k - 0.5), 1.0)
    return pivot, delta, (x - pivot + delta)


def one_after_the_other(p, k):
    """Probabilities of k and k - 1 labels by adding a label at a time."""
    law = torch.zeros(len(p), k + 1, dtype=p.dtype)
    law[:, 0] = 1
    for column in p.T.unsqueeze(-1):
        law = law * (1 - column) + torch.nn.functional.pad(law[:, :-1], (1, 0)) * column
    return law[:, k], law[:, k - 1]


@each_path
@pytest.mark.parametrize("seed", range(12))
def test_angles_and_tree_agree_on_batches_of_unlike_rows(seed, dtype):
    x, _, _ = mixed_batch(seed)
    x = x[(x > -torch.inf).sum(-1) > 1][:, :90].to(dtype)
    x = x[(x > -torch.inf).sum(-1) > 1]
    for k in {1, 2, 7, int((x > -torch.inf).sum(-1).min())}:
        rows = x[(x > -torch.inf).sum(-1) >= k]
        pivot, delta, y = log_odds(rows, k)
        y = y.double()
        for ratio in (True, False):
            fast = label_count(rows, pivot, delta, k, ratio=ratio, derivatives=True)
            high, low, slopes = label_count_tree(y.sigmoid(), (-y).sigmoid(), k, ratio=ratio)
            torch.testing.assert_close(fast.high[:, 0].double(), high, rtol=COUNT_TOLERANCE[dtype], atol=0)
            torch.testing.assert_close(fast.low[:, 0].double(), low, rtol=COUNT_TOLERANCE[dtype], atol=0)
            torch.testing.assert_close(fast.slopes.double(), slopes, rtol=10 * COUNT_TOLERANCE[dtype], atol=1e-30)
            if not ratio:
                none = torch.nn.functional.logsigmoid(-y).sum(-1)
                torch.testing.assert_close(fast.log_none[:, 0].double(), none, rtol=COUNT_TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize(("n", "k"), [(1000, 5), (1000, 100), (1000, 995), (3000, 300), (40, 20)])
def test_many_labels_agree_with_adding_them_one_by_one(n, k, spread):
    x = spread * torch.randn(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n + k))
    pivot, delta, y = log_odds(x, k)
    fast = label_count(x, pivot, delta, k, ratio=True, derivatives=True)
    high, low = one_after_the_other(y.sigmoid(), k)
    torch.testing.assert_close(fast.high[:, 0], high, rtol=1e-9, atol=0)
    torch.testing.assert_close(fast.low[:, 0], low, rtol=1e-9, atol=0)
    assert (fast.slopes >= 0).all()
    torch.testing.assert_close(fast.slopes.sum(-1), torch.ones(3, dtype=torch.float64), rtol=1e-9, atol=0)

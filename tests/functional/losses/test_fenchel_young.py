"""Fenchel-Young losses: the right value, prediction - target as gradient, and convexity."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from shortlist.functional import (
    LMLPotential,
    SigmoidPotential,
    SoftmaxPotential,
    SparsemaxPotential,
    SparseTopPotential,
    fenchel_young_loss,
)
from shortlist.targets import to_class_indices, to_index_lists, to_sparse
from tests.contracts import POTENTIALS, TOLERANCE, PotentialCase
from tests.reference import HARD_ROWS, MP

INF = math.inf
FORMS = {
    "class indices": lambda hot: to_class_indices(hot, hot.shape[-1]),
    "index lists": lambda hot: to_index_lists(hot, hot.shape[-1]),
    "floating multi-hot": lambda hot: hot,
    "bool multi-hot": lambda hot: hot.bool(),
    "sparse": lambda hot: to_sparse(hot, hot.shape[-1]),
}
quick = settings(derandomize=True, deadline=None, max_examples=25)

each_case = pytest.mark.parametrize("case", POTENTIALS, ids=str)


def multi_hot(rows: int, n: int, positives: int, generator: torch.Generator) -> Tensor:
    chosen = torch.rand(rows, n, generator=generator).topk(positives).indices
    return torch.zeros(rows, n, dtype=torch.float64).scatter(1, chosen, 1.0)


def value_and_gradient(case: PotentialCase, logits: Tensor, target: Tensor, k: float) -> tuple[Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    loss = fenchel_young_loss(logits, target, case.potential(k))
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]


@pytest.mark.parametrize("form", FORMS)
@each_case
def test_the_gradient_is_prediction_minus_target(case, form, fresh):
    k = 1 if form == "class indices" else 3
    logits = 3 * torch.randn(6, 9, generator=fresh, dtype=torch.float64)
    hot = multi_hot(6, 9, k, fresh)
    loss, slope = value_and_gradient(case, logits, FORMS[form](hot), k)
    assert loss.shape == (6,)
    assert torch.allclose(slope, case.prediction(logits, k) - hot, atol=1e-12)
    same, _ = value_and_gradient(case, logits, hot, k)
    assert torch.allclose(loss, same, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@each_case
def test_potentials_agree_with_the_reference_on_hard_rows(case, dtype):
    wrong = []
    for name, row, k in HARD_ROWS[::3]:
        k = torch.tensor(k, dtype=dtype).item()
        expected = case.reference(row, k)
        got = case.potential(k)(torch.tensor(row, dtype=dtype)).item()
        # A sum is known to the rounding of its largest term.
        size = max([1, abs(expected) if MP.isfinite(expected) else 1, *(abs(x) for x in row if math.isfinite(x))])
        if not (got == expected or abs(got - expected) <= TOLERANCE[dtype] * size):
            wrong.append((name, got, MP.nstr(expected, 17)))
    assert not wrong


@each_case
def test_gradients_of_hard_rows_are_the_predictions(case):
    for name, row, k in HARD_ROWS:
        if case.labels == 1 and k == 0:
            continue
        logits = torch.tensor(row, dtype=torch.float64, requires_grad=True)
        value = case.potential(k)(logits)
        if not value.isfinite():
            assert all(x == -INF for x in row), name  # the log of an empty sum
            continue
        slope = torch.autograd.grad(value, logits)[0]
        assert torch.allclose(slope, case.prediction(logits.detach(), k), rtol=1e-9, atol=1e-9), name


@pytest.mark.parametrize("logit", [19.5, 20.5, 25.0, 34.0])
def test_the_tail_of_log_one_plus_exp_is_kept_in_float64(logit):
    row = torch.tensor([logit], dtype=torch.float64, requires_grad=True)
    value = SigmoidPotential()(row)
    assert value.item() - logit == pytest.approx(math.log1p(math.exp(-logit)), rel=1e-5, abs=1e-14)
    rest = 1 - torch.autograd.grad(value, row)[0].item()
    assert rest == pytest.approx(1 / (1 + math.exp(logit)), rel=1e-5, abs=1e-15)


@each_case
@quick
@given(values=st.lists(st.floats(-40, 40, width=32), min_size=3, max_size=9), seed=st.integers(0, 99))
def test_losses_of_predictable_targets_are_not_negative(case, values, seed):
    logits = torch.tensor([values], dtype=torch.float64)
    hot = multi_hot(1, len(values), case.positives(2), torch.Generator().manual_seed(seed))
    assert fenchel_young_loss(logits, hot, case.potential(2)) >= -1e-12 * max(map(abs, [1, *values]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@each_case
def test_the_loss_vanishes_where_the_prediction_is_the_target(case, dtype, fresh):
    hot = multi_hot(5, 8, case.positives(3), fresh).to(dtype)
    logits = 200 * (2 * hot - 1) + torch.randn(5, 8, generator=fresh).to(dtype)
    loss, slope = value_and_gradient(case, logits, hot, 3)
    assert torch.allclose(loss, torch.zeros_like(loss), atol=200 * 8 * torch.finfo(dtype).eps)
    assert torch.allclose(slope, torch.zeros_like(slope), atol=torch.finfo(dtype).eps)


@each_case
@quick
@given(seed=st.integers(0, 999), weight=st.floats(0, 1))
def test_losses_are_convex_along_segments(case, seed, weight):
    generator = torch.Generator().manual_seed(seed)
    ends = 10 * torch.randn(2, 1, 7, generator=generator, dtype=torch.float64)
    hot = multi_hot(1, 7, 2, generator)
    between = weight * ends[0] + (1 - weight) * ends[1]
    first, second, inner = (fenchel_young_loss(x, hot, case.potential(2)) for x in (*ends, between))
    assert inner <= weight * first + (1 - weight) * second + 1e-10


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@each_case
def test_derivatives_agree_with_finite_differences(case, check, fresh):
    logits = torch.randn(3, 6, generator=fresh, dtype=torch.float64, requires_grad=True)
    hot = multi_hot(3, 6, 2, fresh)
    for k in (2, 2.5, torch.tensor([1.0, 2.5, 4.0], dtype=torch.float64)):
        assert check(lambda x, k=k: fenchel_young_loss(x, hot, case.potential(k)), (logits,))


@pytest.mark.parametrize("potential", [LMLPotential, SparseTopPotential])
def test_k_of_a_potential_may_be_learned(potential, fresh):
    logits = torch.randn(3, 6, generator=fresh, dtype=torch.float64)
    k = torch.tensor([1.2, 2.5, 4.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda k: potential(k)(logits), (k,))


def test_the_softmax_loss_is_cross_entropy(fresh):
    logits, target = 4 * torch.randn(7, 12, generator=fresh), torch.arange(7)
    loss = fenchel_young_loss(logits, target, SoftmaxPotential())
    assert torch.allclose(loss, cross_entropy(logits, target, reduction="none"), rtol=1e-5, atol=1e-5)


def test_the_sigmoid_loss_is_binary_cross_entropy(fresh):
    logits, target = 4 * torch.randn(7, 12, generator=fresh), (torch.rand(7, 12, generator=fresh) > 0.7).float()
    loss = fenchel_young_loss(logits, target, SigmoidPotential())
    expected = binary_cross_entropy_with_logits(logits, target, reduction="none").sum(-1)
    assert torch.allclose(loss, expected, rtol=1e-5)


def test_the_sparsemax_loss_is_the_sparse_top_loss_of_one_label(fresh):
    logits, target = torch.randn(7, 12, generator=fresh), torch.arange(7)
    one = fenchel_young_loss(logits, target, SparseTopPotential(1))
    assert torch.equal(fenchel_young_loss(logits, target, SparsemaxPotential()), one)


@each_case
def test_unknown_labels_leave_the_problem(case, fresh):
    logits = torch.randn(4, 8, generator=fresh, dtype=torch.float64)
    hot = multi_hot(4, 8, case.positives(2), fresh)
    unknown = (torch.rand(4, 8, generator=fresh) > 0.6) & (hot == 0)
    loss, slope = value_and_gradient(case, logits, hot.masked_fill(unknown, -1), 2)
    assert unknown.any()
    assert (slope[unknown] == 0).all()
    absent, _ = value_and_gradient(case, logits.masked_fill(unknown, -INF), hot, 2)
    assert torch.allclose(loss, absent, atol=1e-12)
    moved, _ = value_and_gradient(case, logits + 5 * unknown, hot.masked_fill(unknown, -1), 2)
    assert torch.allclose(loss, moved, atol=1e-12)


@each_case
def test_absent_labels_are_fine_where_they_are_no_positives(case, fresh):
    hot = multi_hot(4, 8, case.positives(2), fresh)
    absent = (torch.rand(4, 8, generator=fresh) > 0.6) & (hot == 0)
    logits = torch.randn(4, 8, generator=fresh, dtype=torch.float64).masked_fill(absent, -INF)
    loss, slope = value_and_gradient(case, logits, hot, 2)
    assert loss.isfinite().all()
    assert slope.isfinite().all()
    assert (slope[absent] == 0).all()


@pytest.mark.parametrize("offset", [1e6, -1e6])
@pytest.mark.parametrize("case", [case for case in POTENTIALS if case.labels != 0], ids=str)
def test_a_large_offset_costs_the_loss_no_more_than_the_rounding_of_its_terms(case, offset, fresh):
    """Ω*(x) and ⟨x, y⟩ are each of the size of k times the offset; what they differ by is the loss."""
    hot = multi_hot(5, 20, case.positives(3), fresh).float()
    logits = (100 * torch.randn(5, 20, generator=fresh)).round() + offset
    loss, slope = value_and_gradient(case, logits, hot, 3)
    exact, exact_slope = value_and_gradient(case, logits.double() - offset, hot.double(), 3)
    assert (exact > 10).all()
    rounding = 3 * 1e6 * torch.finfo(torch.float32).eps
    assert torch.allclose(loss.double(), exact, rtol=0, atol=2 * rounding)
    assert torch.allclose(slope.double(), exact_slope, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@each_case
def test_half_precision_potentials_are_solved_in_float32(case, dtype, fresh):
    logits = (3 * torch.randn(4, 300, generator=fresh)).to(dtype)
    value = case.potential(3)(logits)
    assert value.dtype == dtype
    assert torch.equal(value, case.potential(3)(logits.float()).to(dtype))


@each_case
def test_several_row_axes_or_none_give_one_value_per_row(case, fresh):
    logits = torch.randn(2, 3, 7, generator=fresh)
    hot = multi_hot(6, 7, 2, fresh).float().reshape(2, 3, 7)
    loss = fenchel_young_loss(logits, hot, case.potential(2))
    assert loss.shape == (2, 3)
    alone = fenchel_young_loss(logits[1, 2], hot[1, 2], case.potential(2))
    assert torch.allclose(loss[1, 2], alone, rtol=1e-6, atol=1e-6)
    assert fenchel_young_loss(logits[:0], hot[:0], case.potential(2)).shape == (0, 3)


def test_any_convex_function_may_be_the_potential(fresh):
    logits = torch.randn(3, 5, generator=fresh, requires_grad=True)
    loss = fenchel_young_loss(logits, torch.tensor([0, 1, 4]), lambda x: x.square().sum(-1) / 2)
    slope = torch.autograd.grad(loss.sum(), logits)[0]
    assert torch.allclose(slope, logits - torch.eye(5)[[0, 1, 4]])


def test_labels_that_there_are_not_or_twice_are_refused_with_their_row():
    logits = torch.zeros(3, 4)
    for target, message in [
        (torch.tensor([0, 4, 1]), r"`target` row 1: labels must lie in \[0, 4\); got 4\."),
        (torch.tensor([[0, 1], [2, -1], [3, 3]]), r"`target` row 2: label 3 must not occur twice\."),
        (torch.zeros(2, 4), r"`target` must have the rows of `logits`, \(3,\); got shape \(2, 4\)\."),
    ]:
        with pytest.raises(ValueError, match=message):
            fenchel_young_loss(logits, target, LMLPotential(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", POTENTIALS, ids=str)
def test_half_precision_is_computed_in_float32(case, dtype):
    """A sum of three logits of 5e4 overflows float16."""
    logits = torch.tensor([[5e4, 5e4, 5e4, -5e4], [1.0, -2.0, 0.5, 3.0]], dtype=dtype)
    hot = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    value = fenchel_young_loss(logits, hot, case.potential(2))
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, fenchel_young_loss(logits.float(), hot, case.potential(2)))
    assert value.isfinite().all()


@pytest.mark.parametrize("case", POTENTIALS, ids=str)
def test_a_row_of_which_nothing_is_known_is_zero(case, fresh):
    logits = torch.randn(3, 4, generator=fresh, dtype=torch.float64, requires_grad=True)
    hot = torch.tensor([[1.0, 0.0, 0.0, 1.0], [-1.0, -1.0, -1.0, -1.0], [1.0, -1.0, 0.0, 1.0]])
    for target in (hot, hot.to_sparse()):
        value = fenchel_young_loss(logits, target, case.potential(2))
        (slope,) = torch.autograd.grad(value.sum(), logits)
        assert value[1] == 0
        assert (slope[1] == 0).all()
        alone = fenchel_young_loss(logits[[0, 2]], hot[[0, 2]], case.potential(2))
        torch.testing.assert_close(value[[0, 2]], alone)
        assert slope.isfinite().all()

"""Triton kernels of the projections, interpreted: values and gradients agree with float64 on every kind of row."""

import math

import pytest
import torch

from shortlist.functional import lml, lml_dual, lml_nll, log_lml, sparse_top
from shortlist.kernels.gpu import rows
from tests.contracts import BY_NAME
from tests.reference import HARD_ROWS

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
PROJECTIONS = [lml, log_lml, lml_dual, sparse_top]
each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda op: op.__name__)


@pytest.fixture(autouse=True)
def _triton(monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "triton")


def value_and_gradients(projection, logits, k, **options):
    """The value and the gradients in the logits and in k, for a fixed upstream gradient."""
    logits, k = logits.clone().requires_grad_(), k.clone().requires_grad_()
    value = projection(logits, k, **options)
    upstream = torch.randn(value.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    value.backward(torch.where(value.detach().isfinite(), upstream.to(value.dtype), 0))
    return value.detach(), logits.grad, k.grad


def in_double(projection, logits, k, monkeypatch, **options):
    with monkeypatch.context() as patch:
        patch.setenv("SHORTLIST_KERNELS", "off")
        return value_and_gradients(projection, logits.double(), k.double(), **options)


def assert_agree(got, expected, tolerance=2e-6):
    for ours, right in zip(got, expected, strict=True):
        assert torch.equal(ours.isfinite(), right.float().isfinite())
        both = ours.isfinite()
        assert torch.allclose(ours[both].double(), right[both], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("step", [pytest.param(8, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@each_projection
def test_hard_rows_agree_with_the_reference(projection, step):
    for name, row, k in HARD_ROWS[::step]:
        logits, k = torch.tensor(row), float(torch.tensor(k))
        assert not BY_NAME[projection.__name__].misses(logits, projection(logits, k), k), name


@pytest.mark.parametrize("scale", [0.01, 1, 30])
@each_projection
def test_values_and_gradients_agree_with_float64(projection, scale, fresh, monkeypatch):
    logits, k = scale * torch.randn(2, 50, generator=fresh), torch.tensor([2.0, 17.5])
    logits[0, 3] = -math.inf
    got = value_and_gradients(projection, logits, k, temperature=0.7)
    assert_agree(got, in_double(projection, logits, k, monkeypatch, temperature=0.7), 1e-5)


@each_projection
def test_a_row_in_blocks_is_as_one_in_registers(projection, fresh, monkeypatch):
    logits, k = 3 * torch.randn(2, 45, generator=fresh), torch.tensor([3.0, 40.25])
    whole = value_and_gradients(projection, logits, k)
    monkeypatch.setattr(rows, "LARGEST_ROW", 16)
    monkeypatch.setattr(rows, "LOOP_BLOCK", 16)
    assert_agree(value_and_gradients(projection, logits, k), [part.double() for part in whole])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_projection
def test_half_precision_is_solved_in_float32(projection, dtype, fresh, monkeypatch):
    logits, k = torch.randn(2, 40, generator=fresh).to(dtype), torch.tensor([2.0, 9.0])
    got = value_and_gradients(projection, logits, k)
    assert (got[0].dtype, got[1].dtype) == (dtype, dtype)
    expected = in_double(projection, logits, k, monkeypatch)
    for ours, right in zip(got[:2], expected[:2], strict=True):
        assert torch.allclose(ours.double(), right, rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


@each_projection
def test_nan_and_a_k_out_of_range_break_only_their_own_rows(projection, fresh):
    logits, k = torch.randn(4, 20, generator=fresh), torch.tensor([3.0, 3.0, -1.0, 21.0])
    logits[1, 7] = math.nan
    broken = projection(logits, k).isnan().reshape(4, -1)
    assert broken[1:].all()
    assert not broken[0].any()


@pytest.mark.parametrize("projection", [lml, log_lml, lml_dual], ids=lambda op: op.__name__)
def test_second_derivatives_are_those_of_tensor_operations(projection, fresh, monkeypatch):
    logits, k = torch.randn(1, 12, generator=fresh), torch.tensor([3.5])

    def curvature(logits, k):
        logits, k = logits.clone().requires_grad_(), k.clone().requires_grad_()
        weights = torch.linspace(-1, 1, 12, dtype=logits.dtype)
        value = (projection(logits, k) * (1 if projection is lml_dual else weights)).sum()
        slopes = torch.autograd.grad(value, (logits, k), create_graph=True)
        return torch.autograd.grad(sum((slope * slope).sum() for slope in slopes), (logits, k), allow_unused=True)

    got = curvature(logits, k)
    monkeypatch.setenv("SHORTLIST_KERNELS", "off")
    for ours, right in zip(got, curvature(logits.double(), k.double()), strict=True):
        right = torch.zeros(()) if right is None else right
        assert torch.allclose(torch.zeros(()).double() if ours is None else ours.double(), right.double(), atol=1e-5)


@each_projection
def test_forward_mode_and_vmap_see_the_kernel_as_any_operator(projection, fresh, monkeypatch):
    logits, moved = torch.randn(2, 12, generator=fresh), torch.randn(2, 12, generator=fresh)

    def both(logits, moved):
        def per_row(row):
            return projection(row, 3.0)

        tangent = torch.func.jvp(lambda x: projection(x, 3.0), (logits,), (moved,))[1]
        return tangent, torch.func.vmap(per_row)(logits)

    got = both(logits, moved)
    monkeypatch.setenv("SHORTLIST_KERNELS", "off")
    assert_agree(got, both(logits.double(), moved.double()))


@pytest.mark.parametrize("form", ["lists", "signed", "bool"])
def test_the_likelihood_of_a_row_in_blocks_is_that_of_one_in_registers(form, fresh, monkeypatch):
    logits, k = 3 * torch.randn(3, 45, generator=fresh), torch.tensor([3.0, 40.25, 12.0])
    hot = (torch.rand(3, 45, generator=fresh) < 0.2).float()
    hot = hot.masked_fill(torch.rand(3, 45, generator=fresh) < 0.1, -1) if form == "signed" else hot.bool()
    target = torch.tensor([[0, 44, -1], [17, 3, 40], [16, -1, -1]]) if form == "lists" else hot
    weight = torch.rand(45, generator=fresh) + 0.5

    def likelihood(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return lml_nll(x, target, k, weight=weight, reduction="none")

    whole = value_and_gradients(likelihood, logits, k)
    monkeypatch.setattr(rows, "LARGEST_ROW", 16)
    monkeypatch.setattr(rows, "LOOP_BLOCK", 16)
    assert_agree(value_and_gradients(likelihood, logits, k), [part.double() for part in whole])
    assert_agree(whole, in_double(likelihood, logits, k, monkeypatch), 1e-5)


@pytest.mark.parametrize("size", [1e20, 1e30, 1e38])
def test_few_labels_share_what_is_left_at_the_bottom_of_a_huge_row(size, fresh):
    logits = torch.cat([torch.full((3,), size), torch.full((10,), -size), torch.randn(11, generator=fresh)])
    p = lml(logits, 20.5)
    assert torch.allclose(p, torch.where(logits == -size, 0.65, 1.0), atol=1e-6)

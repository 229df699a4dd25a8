"""Projections under torch.func, autocast and inference mode; nothing is changed in place."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from tests.contracts import PROJECTIONS, SMOOTH, WITH_K

# Forward mode makes torch import decompositions that are scripted, and warn about it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
each_with_k = pytest.mark.parametrize("projection", WITH_K, ids=str)


@pytest.fixture
def logits(fresh) -> Tensor:
    """Four ordinary rows, one with a wide gap, one with an absent label."""
    rows = torch.randn(6, 7, generator=fresh, dtype=torch.float64)
    rows[4, :3] += 1e3
    rows[5, 2] = -math.inf
    return rows


@pytest.fixture
def ks() -> Tensor:
    return torch.tensor([1, 1.5, 2, 3, 4.25, 5], dtype=torch.float64)


def close(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=1e-10, atol=1e-12, equal_nan=True)


@each_projection
def test_vmap_over_the_logits_is_the_batch(projection, logits):
    assert close(vmap(lambda x: projection(x, 2))(logits), projection(logits, 2))
    by_column = vmap(lambda x: projection(x, 2), in_dims=1)(logits.T)
    assert close(by_column, projection(logits, 2))


@each_with_k
def test_vmap_over_k_or_both_or_nested_is_the_batch(projection, logits, ks):
    each_k = torch.stack([projection(logits[0], k.item()) for k in ks])
    assert close(vmap(lambda k: projection(logits[0], k))(ks), each_k)
    assert close(vmap(projection)(logits, ks), projection(logits, ks))
    table = torch.stack([projection(logits, k.item()) for k in ks], dim=1)
    nested = vmap(lambda x: vmap(lambda k: projection(x, k))(ks))(logits)
    assert close(nested, table)


@each_projection
def test_vmap_over_something_else_leaves_the_answer_alone(projection, logits):
    scales = torch.tensor([1.0, 2.0], dtype=torch.float64)
    result = vmap(lambda scale: scale * projection(logits[:4], 2))(scales)
    assert close(result, torch.stack([projection(logits[:4], 2), 2 * projection(logits[:4], 2)]))


@each_projection
def test_vmap_of_a_masked_batch_with_an_inner_axis_works(projection, fresh):
    logits = torch.randn(3, 5, 4, generator=fresh, dtype=torch.float64)
    mask = torch.rand(3, 5, 4, generator=fresh) > 0.2
    result = vmap(lambda x, m: projection(x, 1.5, dim=0, mask=m, temperature=0.5))(logits, mask)
    assert close(result, projection(logits, 1.5, dim=1, mask=mask, temperature=0.5))


@each_projection
def test_forward_and_reverse_mode_agree(projection, logits):
    for row in logits[:5]:
        reverse, forward = (jacobian(lambda x: projection(x, 2.5))(row) for jacobian in (jacrev, jacfwd))
        assert close(reverse, forward)


@each_with_k
def test_forward_and_reverse_mode_agree_in_k(projection, logits):
    k = torch.tensor(2.4, dtype=torch.float64)
    for row in logits[:4]:
        reverse, forward = (jacobian(lambda k, x=row: projection(x, k))(k) for jacobian in (jacrev, jacfwd))
        assert close(reverse, forward)


@each_with_k
def test_a_tangent_in_both_is_the_sum_of_the_tangents(projection, logits, ks, fresh):
    logits, ks = logits[:4], ks[:4] + 0.1
    dx, dk = torch.randn(4, 7, generator=fresh).double(), torch.randn(4, generator=fresh).double()
    value, both = jvp(projection, (logits, ks), (dx, dk))
    _, in_logits = jvp(lambda x: projection(x, ks), (logits,), (dx,))
    _, in_k = jvp(lambda k: projection(logits, k), (ks,), (dk,))
    assert close(value, projection(logits, ks))
    assert close(both, in_logits + in_k)
    cotangent = torch.randn(both.shape, generator=fresh).double()
    to_logits, to_k = vjp(projection, logits, ks)[1](cotangent)
    assert close((cotangent * both).sum(), (to_logits * dx).sum() + (to_k * dk).sum())


@each_projection
def test_vmap_of_grad_is_the_gradient_of_the_batch(projection, logits, fresh):
    weights = torch.randn(7, generator=fresh, dtype=torch.float64)

    def score(x: Tensor) -> Tensor:
        result = projection(x, 2)
        return result * weights[0] if projection.is_dual else (result * weights).sum(-1)

    rows = logits[:5].requires_grad_()
    assert close(vmap(grad(score))(rows.detach()), torch.autograd.grad(score(rows).sum(), rows)[0])


@pytest.mark.parametrize("projection", SMOOTH, ids=str)
def test_the_hessian_is_symmetric_and_that_of_double_backward(projection, fresh):
    row = torch.randn(5, generator=fresh, dtype=torch.float64)
    weights = torch.randn(5, generator=fresh, dtype=torch.float64)

    def score(x: Tensor) -> Tensor:
        return (projection(x, 1.5) * weights).sum()

    second = hessian(score)(row)
    assert close(second, second.T)
    assert close(second, torch.autograd.functional.hessian(score, row))
    assert close(second, jacrev(jacrev(score))(row))


@each_projection
def test_vectorised_jacobians_of_autograd_agree(projection, logits):
    rows = logits[:3]
    one_by_one, at_once = (
        torch.autograd.functional.jacobian(lambda x: projection(x, 2), rows, vectorize=vectorize)
        for vectorize in (False, True)
    )
    assert close(one_by_one, at_once)
    forward = torch.autograd.functional.jacobian(
        lambda x: projection(x, 2), rows, vectorize=True, strategy="forward-mode"
    )
    assert close(one_by_one, forward)


@each_projection
def test_autocast_changes_nothing(projection, logits):
    rows = logits.float().requires_grad_()

    def value_and_gradient() -> tuple[Tensor, Tensor]:
        value = projection(rows, 2)
        return value, torch.autograd.grad(value[:4].square().sum(), rows)[0]

    plain = value_and_gradient()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = value_and_gradient()
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(plain, cast, strict=True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@each_projection
def test_no_gradient_modes_give_the_same_values(projection, mode, logits):
    rows = logits.clone().requires_grad_()
    expected = projection(rows, 2)
    with mode():
        result = projection(rows, 2)
    assert expected.requires_grad
    assert not result.requires_grad
    assert torch.equal(result, expected)


@each_projection
def test_inputs_are_left_as_they_were(projection, logits, ks):
    k = ks if projection.takes_k else 1
    mask = logits < 2
    before = [part.clone() for part in (logits, ks, mask)]
    rows = logits.clone().requires_grad_()
    upstream = torch.ones_like(projection(rows, k, mask=mask))
    torch.autograd.grad(projection(rows, k, mask=mask), rows, upstream)
    projection(logits, k, mask=mask, temperature=0.5)
    assert all(torch.equal(a, b) for a, b in zip(before, (logits, ks, mask), strict=True))
    assert torch.equal(rows.detach(), logits)
    assert (upstream == 1).all()


@each_with_k
def test_an_expanded_k_and_upstream_give_the_same_gradient(projection, fresh):
    k = torch.tensor([2.5], requires_grad=True)
    rows = torch.randn(5, 6, generator=fresh, requires_grad=True)
    shared = torch.autograd.grad(projection(rows, k.expand(5)).sum(), (rows, k))
    plain = torch.autograd.grad(projection(rows, k).sum(), (rows, k))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(shared, plain, strict=True))

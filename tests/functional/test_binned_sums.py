"""Sums of a smooth function over the entries of each row, at many shifts, from sums over bins."""

import math

import pytest
import torch

from shortlist.functional import plackett_luce
from shortlist.functional.binned_sums import Bins, binned_sums

SHIFTS = torch.linspace(-2, 2, 9, dtype=torch.float64)


def bins(dtype=torch.float64):
    """Of a function that is even in x, so that both ends of the bins are flat or linear."""
    found = Bins.of(torch.nn.functional.softplus, SHIFTS, -10.0, 10.0)
    return found._replace(table=found.table.to(dtype))


def brute_force(x):
    return torch.nn.functional.softplus(x.double().unsqueeze(-1) + SHIFTS).sum(-2)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 1e-6)])
def test_sums_are_those_over_the_entries(dtype, tolerance, fresh):
    x = (3 * torch.randn(4, 50, generator=fresh)).clamp(-9.9, 9.9).to(dtype)
    assert torch.allclose(binned_sums(x, bins(dtype)).double(), brute_force(x), rtol=tolerance, atol=tolerance)


def test_gradients_are_those_of_the_function(fresh):
    x = (3 * torch.randn(2, 7, generator=fresh)).double().clamp(-9, 9).requires_grad_()
    weights = torch.rand(2, 9, generator=fresh).double()
    ours = torch.autograd.grad((binned_sums(x, bins()) * weights).sum(), x, create_graph=True)[0]
    expected = torch.autograd.grad((brute_force(x) * weights).sum(), x, create_graph=True)[0]
    assert torch.allclose(ours, expected, atol=1e-6)
    again = [torch.autograd.grad(first.square().sum(), x)[0] for first in (ours, expected)]
    assert torch.allclose(*again, atol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch scripts some forward derivatives
def test_forward_mode_and_batches_agree_with_the_gradient(fresh):
    x = torch.randn(3, 2, 7, generator=fresh).double()
    one = bins()
    moved = torch.func.jvp(lambda x: binned_sums(x, one), (x,), (torch.ones_like(x),))[1]
    each = torch.func.vmap(torch.func.jacrev(lambda row: binned_sums(row, one)))(x.flatten(0, 1))
    assert torch.allclose(moved.flatten(0, 1), each.sum(-1))
    assert torch.allclose(torch.func.vmap(lambda x: binned_sums(x, one))(x), binned_sums(x, one))


def test_an_entry_outside_of_the_bins_counts_as_the_nearest_end():
    x = torch.tensor([[-math.inf, -50.0, 50.0, math.inf]], dtype=torch.float64)
    found, expected = binned_sums(x, bins()), brute_force(x.clamp(-10, 10))
    assert torch.allclose(found, expected, rtol=1e-3)
    assert binned_sums(x.masked_fill(x == 50, math.nan), bins()).isnan().all()


@pytest.mark.parametrize("positives", [1, 3, 40, 300])
@pytest.mark.parametrize("lead", [-20.0, 0.0, 3.0, 8.0])
@pytest.mark.parametrize("choice", ["on", "off", "device"])
def test_many_equal_positives_have_the_likelihood_of_a_beta_function(positives, lead, choice, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", choice)
    x = torch.full((1, positives + 1), lead)
    x[0, -1] = 0
    x.requires_grad_()
    target = torch.ones(1, positives + 1)
    target[0, -1] = 0
    # The last of the positives comes before the negative: product of i r / (1 + i r).
    odds = math.exp(lead) * torch.arange(1, positives + 1, dtype=torch.float64)
    expected = torch.log1p(1 / odds).sum()
    loss = plackett_luce(x, target)
    loss.backward()
    assert math.isclose(loss.item(), expected.item(), rel_tol=1e-5, abs_tol=1e-5)
    slope = -(1 / (1 + odds)).sum() / positives
    assert torch.allclose(x.grad[0, :-1].double(), slope.expand(positives), rtol=1e-4, atol=1e-5)

"""Projection modules store options, delegate to the function of the same name, and survive saving and copying."""

import pytest
import torch
from torch import Tensor, nn

from shortlist.nn import LML
from tests.contracts import PROJECTIONS
from tests.nn.saving import copies

each_module = pytest.mark.parametrize("projection", [case for case in PROJECTIONS if case.module], ids=str)


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))


@each_module
def test_a_module_computes_its_function_and_shows_its_options(projection, logits):
    mask = logits > -1
    for options in ({}, {"dim": 1}, {"dim": -3, "temperature": 0.5}):
        layer = projection.layer(1.5, **options)
        for given in (None, mask):
            assert torch.equal(layer(logits, given), projection(logits, 1.5, mask=given, **options))
        assert repr(layer).startswith(projection.module.__name__)
        assert all(f"{name}={value}" in repr(layer) for name, value in options.items())
        assert ("k=1.5" in repr(layer)) == projection.takes_k
        assert layer.state_dict() == {}
        for name, again in copies(layer).items():
            assert repr(again) == repr(layer), name
            assert torch.equal(again(logits), layer(logits)), name


@each_module
def test_a_module_trains_inside_a_network(projection):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 7), projection.layer(2))
    network(torch.randn(4, 5)).square().sum().backward()
    slope = network[0].weight.grad
    assert slope.isfinite().all()
    assert slope.abs().max() > 0


def test_a_tensor_k_is_a_buffer_that_is_saved_and_moves_with_the_module(logits):
    k = torch.tensor([1.0, 2.5, 3.0])[:, None]
    layer, other = LML(k, dim=1), LML(torch.zeros_like(k), dim=1)
    assert list(layer.state_dict()) == ["k"]
    assert not list(layer.parameters())
    other.load_state_dict(layer.state_dict())
    for again in (other, *copies(layer).values()):
        assert torch.equal(again(logits), layer(logits))
    copies(layer)["deepcopy"].k += 1
    assert torch.equal(layer.k, k)
    assert layer.double()(logits.double()).dtype == layer.k.dtype == torch.float64


@pytest.mark.parametrize("projection", [case for case in PROJECTIONS if case.module and case.takes_k], ids=str)
def test_a_parameter_k_is_learned(projection, logits):
    layer = projection.layer(nn.Parameter(torch.tensor(1.5)))
    assert [name for name, _ in layer.named_parameters()] == ["k"]
    weights = torch.arange(4.0)
    before = (layer(logits) * weights).sum()
    before.backward()
    torch.optim.SGD(layer.parameters(), lr=1e-3).step()
    assert (layer(logits) * weights).sum() < before
    again = copies(layer)["pickle"]
    assert isinstance(again.k, nn.Parameter)
    assert torch.equal(again.k, layer.k)

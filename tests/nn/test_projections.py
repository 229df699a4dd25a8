"""Projection modules store options and delegate to the function of the same name."""

import pytest
import torch
from torch import Tensor, nn

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


@each_module
def test_a_module_trains_inside_a_network(projection):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 7), projection.layer(2))
    network(torch.randn(4, 5)).square().sum().backward()
    slope = network[0].weight.grad
    assert slope.isfinite().all()
    assert slope.abs().max() > 0


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

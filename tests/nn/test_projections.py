"""Modules store options, delegate to the function of the same name, and survive saving and copying."""

import copy

import pytest
import torch
from torch import nn

from tests.contracts import BY_NAME, PROJECTIONS
from tests.nn.saving import copies

MODULES = [projection for projection in PROJECTIONS if projection.module]
WITH_K = [projection for projection in MODULES if projection.takes_k]

each_module = pytest.mark.parametrize("projection", MODULES, ids=str)
each_with_k = pytest.mark.parametrize("projection", WITH_K, ids=str)


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))


@each_module
def test_a_module_answers_as_its_function(projection, logits):
    mask = logits > -1
    for options in ({}, {"dim": 1}, {"dim": -3, "temperature": 0.5}):
        layer = projection.layer(1.5, **options)
        assert torch.equal(layer(logits), projection(logits, 1.5, **options))
        assert torch.equal(layer(logits, mask), projection(logits, 1.5, mask=mask, **options))
        assert torch.equal(layer(logits, mask=mask), projection(logits, 1.5, mask=mask, **options))


@each_module
def test_options_are_keyword_only_and_shown(projection):
    with pytest.raises(TypeError, match="positional argument"):
        projection.module(*[1, -1, 1.0][: 3 if projection.takes_k else 1])
    shown = repr(projection.layer(2, dim=0, temperature=0.5))
    assert shown.startswith(projection.module.__name__)
    assert "dim=0" in shown
    assert "temperature=0.5" in shown
    assert ("k=2" in shown) == projection.takes_k


@each_module
def test_a_module_with_a_number_for_k_has_no_state(projection, logits):
    layer = projection.layer(2, temperature=0.7)
    assert layer.state_dict() == {}
    for name, again in copies(layer).items():
        assert repr(again) == repr(layer), name
        assert torch.equal(again(logits), layer(logits)), name


@each_with_k
def test_a_tensor_k_is_a_buffer_that_is_saved_with_the_module(projection, logits):
    k = torch.tensor([1.0, 2.5, 3.0])[:, None]
    layer = projection.layer(k, dim=1)
    assert list(layer.state_dict()) == ["k"]
    assert not list(layer.parameters())
    for name, again in copies(layer).items():
        assert torch.equal(again(logits), layer(logits)), name
    other = projection.layer(torch.zeros_like(k), dim=1)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(logits), projection(logits, k, dim=1))


@each_with_k
def test_a_tensor_k_moves_with_the_module(projection, logits):
    layer = projection.layer(torch.tensor([1.0, 2.5, 3.0])[:, None], dim=1).double()
    assert layer.k.dtype == torch.float64
    assert layer(logits.double()).dtype == torch.float64


@each_with_k
def test_a_parameter_for_k_is_learned(projection, logits):
    layer = projection.layer(nn.Parameter(torch.tensor(1.5)))
    assert [name for name, _ in layer.named_parameters()] == ["k"]
    weights = torch.arange(4.0)
    before = (layer(logits) * weights).sum()
    before.backward()
    assert layer.k.grad.isfinite()
    assert layer.k.grad != 0
    torch.optim.SGD(layer.parameters(), lr=1e-3).step()
    assert (layer(logits) * weights).sum() < before
    again = copies(layer)["pickle"]
    assert isinstance(again.k, nn.Parameter)
    assert torch.equal(again.k, layer.k)


@each_module
def test_a_module_trains_inside_a_network(projection):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 7), projection.layer(2))
    network(torch.randn(4, 5)).square().sum().backward()
    slope = network[0].weight.grad
    assert slope.isfinite().all()
    assert slope.abs().max() > 0


def test_modules_of_one_k_share_no_state():
    k = torch.tensor(2.0)
    first, second = BY_NAME["lml"].layer(k), copy.deepcopy(BY_NAME["lml"].layer(k))
    second.k += 1
    assert first.k == 2

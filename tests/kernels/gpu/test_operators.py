"""Triton kernels as operators of torch.library: what the compiler assumes of them is true."""

import pytest
import torch

from shortlist.functional import lml, lml_nll, log_lml, sparse_top, sparse_top_loss
from shortlist.kernels import chooser

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

X, K = torch.linspace(-2, 2, 24).view(2, 12), torch.tensor([[2.0], [3.5]])
ARGUMENTS = {
    "lml_triton": (X, K, 0.5, False),
    "lml_root_triton": (X, K, 0.5),
    "sparse_top_triton": (X, K, 0.5),
    "sparse_top_excess": (X, torch.ones(2, 1), torch.tensor([3, 17]), torch.ones(2)),
    "sparse_top_dense_excess": (X, (X > 1).float()),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_shapes_and_aliases_are_as_declared(name):
    operator = getattr(torch.ops.shortlist, name).default
    torch.library.opcheck(operator, ARGUMENTS[name], test_utils=["test_schema", "test_faketensor"])


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: lml(x, 3.5).square().sum(), id="lml"),
        pytest.param(lambda x: log_lml(x, 3.5).square().sum(), id="log_lml"),
        pytest.param(lambda x: sparse_top(x, 3.5).square().sum(), id="sparse_top"),
        pytest.param(lambda x: lml_nll(x, torch.tensor([[0], [5]]), 2.0), id="lml_nll"),
        pytest.param(lambda x: sparse_top_loss(x, torch.tensor([[0], [5]])), id="sparse_top_loss"),
        pytest.param(lambda x: sparse_top_loss(x, (X > 1).float()), id="sparse_top_loss, dense"),
    ],
)
def test_the_compiler_takes_kernels_as_operators_of_one_graph(function, monkeypatch):
    """As on a card: while compiling, kernels are operators, and without graph breaks."""

    def value_and_gradient(function):
        x = X.clone().requires_grad_()
        value = function(x)
        value.backward()
        return torch.cat([value.detach().view(1), x.grad.view(-1)])

    expected = value_and_gradient(function)
    monkeypatch.setattr(chooser, "ACCELERATORS", ("cpu",))
    torch.compiler.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    assert torch.allclose(value_and_gradient(compiled), expected, atol=1e-5)
    assert "torch.ops.shortlist" in graphs[0].print_readable(print_output=False)
    torch.compiler.reset()

"""Triton kernels as operators of torch.library: what the compiler assumes of them is true."""

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

X, K = torch.linspace(-2, 2, 24).view(2, 12), torch.tensor([[2.0], [3.5]])
ARGUMENTS = {
    "lml_triton": (X, K, 0.5, False),
    "lml_root_triton": (X, K, 0.5),
    "sparse_top_triton": (X, K, 0.5),
    "sparse_top_excess": (X, torch.ones(2, 1), torch.tensor([3, 17]), torch.ones(2)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_shapes_and_aliases_are_as_declared(name):
    operator = getattr(torch.ops.shortlist, name).default
    torch.library.opcheck(operator, ARGUMENTS[name], test_utils=["test_schema", "test_faketensor"])

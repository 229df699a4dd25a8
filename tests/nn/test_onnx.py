"""Exported modules answer in onnxruntime as they do here, on hard rows and on batches of another size."""

import math

import numpy as np
import onnxruntime
import pytest
import torch

from shortlist.nn import DFTHead
from tests.contracts import BY_NAME, HEADS, PROJECTIONS

# A budget adds a sum and a choice to the graph of its projection.
MODULES = [projection for projection in PROJECTIONS if projection.module and not projection.budget]
N = 12

# Exporting the projections of LML takes twenty seconds each; a model with its rules is exported in every run.
ALWAYS = ("sparse_top", "constrained_softmax")
CASES = [pytest.param(case, id=str(case), marks=[pytest.mark.slow] * (str(case) not in ALWAYS)) for case in MODULES]

# The exporter uses what torch and its own dependencies deprecate.
pytestmark = [
    pytest.mark.cpu_only,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
    pytest.mark.filterwarnings("ignore::UserWarning:onnx.*"),
]


def rows(count: int) -> torch.Tensor:
    return 3 * torch.randn(count, N, generator=torch.Generator().manual_seed(count))


def hard_rows() -> torch.Tensor:
    """A gap of 1000, absent labels, ties, a giant, an offset, one label present, an ordinary row."""
    logits = rows(7)
    logits[0, :3] += 1e3
    logits[1, ::3] = -math.inf
    logits[2] = 0.7
    logits[3, 5] = 1e30
    logits[4] += 1e5
    logits[5, 1:] = -math.inf
    return logits


def export_all(layer: torch.nn.Module, *inputs: torch.Tensor, dynamic: bool = True):
    """Return a function that runs the exported ``layer`` and returns all its outputs as arrays."""
    shapes = tuple({0: torch.export.Dim("batch")} for _ in inputs) if dynamic else None
    program = torch.onnx.export(layer, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [entry.name for entry in session.get_inputs()]
    return lambda *values: session.run(None, {n: v.numpy() for n, v in zip(names, values, strict=True)})


def export(layer: torch.nn.Module, *inputs: torch.Tensor, dynamic: bool = True):
    """Return a function that runs the exported ``layer`` and returns its only output."""
    run = export_all(layer, *inputs, dynamic=dynamic)
    return lambda *values: run(*values)[0]


def close(got: np.ndarray, expected: torch.Tensor) -> bool:
    return np.allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("projection", CASES)
def test_an_exported_module_agrees_on_easy_and_hard_rows_and_other_batch_sizes(projection):
    layer = projection.layer(3.5).eval()
    run = export(layer, rows(4))
    for logits in (rows(4), rows(9), rows(1), hard_rows()):
        assert close(run(logits), layer(logits))


@pytest.mark.slow
def test_an_exported_module_with_mask_and_one_k_per_row_agrees():
    layer = BY_NAME["sparse_top"].layer(torch.tensor([1.0, 2.5, 3.0, 5.0]), temperature=0.5).eval()
    logits, mask = rows(4), rows(4) < 2
    run = export(layer, logits, mask, dynamic=False)
    assert close(run(logits, mask), layer(logits, mask))


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(head, id=str(head), marks=[pytest.mark.slow] * (str(head) not in ("DFTHead", "TwoHead")))
        for head in HEADS
    ],
)
def test_an_exported_head_agrees_on_other_batch_sizes_and_zeros(head):
    layer = head(5, N).eval()
    run = export(layer, rows(4)[:, :5])
    for x in (*(rows(size)[:, :5] for size in (4, 7, 1)), torch.zeros(2, 5)):
        logits = layer(x)
        assert close(run(x), (logits[0] if isinstance(logits, tuple) else logits).detach())


def test_a_head_that_uses_the_fft_is_exported_as_a_product():
    layer = DFTHead(5, 1024, 90, 2).eval()
    assert layer.matrix is None
    run = export(layer, rows(4)[:, :5])
    assert close(run(rows(7)[:, :5]), layer(rows(7)[:, :5]).detach())

"""Compiled projections answer as the eager ones, on easy rows and on rows that need the exact solver."""

import math

import pytest
import torch
from torch import Tensor

from shortlist.functional import fenchel_young_loss
from shortlist.nn import LML
from tests.compiling import each_backend, whole_graph
from tests.contracts import POTENTIALS, PROJECTIONS, Projection

# The compiler of torch uses what torch deprecates: it instantiates autograd functions and scripts modules.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

SHAPE = (8, 40)


def slow_unless(case: object, *names: str):
    """Compiling takes seconds; what shares its solver with a case that is always compiled waits for the slow tests."""
    return pytest.param(case, id=str(case), marks=[pytest.mark.slow] * (str(case) not in names))


@pytest.fixture(autouse=True)
def _no_earlier_compilations():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def easy_rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(SHAPE, generator=generator), torch.linspace(1, 20, SHAPE[0])


def hard_rows() -> tuple[Tensor, Tensor]:
    """A gap of 1000, absent labels, ties, a giant, an offset, one present label, none, and an ordinary row."""
    rows, k = easy_rows()
    rows[0, :3] += 1e3
    rows[1, ::2] = -math.inf
    rows[2] = 0.7
    rows[3, 5] = 1e30
    rows[4] += 1e5
    rows[5, 1:] = -math.inf
    rows[6] = -math.inf
    k[0], k[1], k[5] = 3, 5.5, 1
    return rows, k


@each_backend
@pytest.mark.parametrize(
    "projection", [slow_unless(case, "lml", "sparse_top", "constrained_softmax") for case in PROJECTIONS]
)
def test_the_compiled_operator_agrees_with_the_eager_one(projection: Projection, backend: str):
    def run(logits: Tensor, k: Tensor) -> Tensor:
        return projection(logits, k)

    def value_and_gradients(function, rows: Tensor, k: Tensor) -> list[Tensor]:
        inputs = [rows.clone().requires_grad_(), k.clone().requires_grad_()]
        value = function(*inputs)
        upstream = torch.linspace(0.5, 1.5, value.numel()).reshape(value.shape)
        used = inputs if projection.takes_k else inputs[:1]
        return [value.detach(), *torch.autograd.grad(value, used, upstream)]

    compiled = whole_graph(run, backend)
    for rows, k in (easy_rows(), hard_rows()):
        # The dual is as large as the logits, and is known to as many digits as they are.
        size = rows.masked_fill(~rows.isfinite(), 1).abs().amax(-1).clamp(min=1) if projection.is_dual else 1
        eager, fused = (value_and_gradients(function, rows, k) for function in (run, compiled))
        for name, a, b, scale in zip(("value", "in logits", "in k"), eager, fused, (size, 1, 1), strict=False):
            same = (a == b) | ((a - b).abs() <= 2e-6 * scale + 1e-4 * b.abs())
            assert same.all(), (name, a[~same], b[~same])


@each_backend
@pytest.mark.parametrize("case", [slow_unless(case, "LMLPotential") for case in POTENTIALS])
def test_the_compiled_loss_agrees_with_the_eager_one(case, backend):
    rows, _ = easy_rows()
    rows[0, 5:9] = -math.inf
    target = rows.topk(case.positives(3)).indices

    def run(logits: Tensor) -> Tensor:
        return fenchel_young_loss(logits, target, case.potential(3))

    results = []
    for function in (run, whole_graph(run, backend)):
        logits = rows.clone().requires_grad_()
        loss = function(logits)
        results.append((loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]))
    for eager, fused in zip(*results, strict=True):
        assert torch.allclose(eager, fused, rtol=1e-4, atol=1e-5)


@each_backend
def test_a_compiled_training_step_with_mask_and_temperature_agrees_with_the_eager_one(backend):
    layer = LML(torch.nn.Parameter(torch.tensor(3.0)), dim=0, temperature=0.7)
    rows, _ = easy_rows()
    mask = rows < 4
    results = []
    for module in (layer, whole_graph(layer, backend)):
        logits = rows.clone().requires_grad_()
        loss = module(logits, mask).square().sum()
        results.append((loss.detach(), *torch.autograd.grad(loss, (logits, layer.k))))
    for eager, fused in zip(*results, strict=True):
        assert torch.allclose(eager, fused, rtol=1e-4, atol=1e-6)

"""Logits that are never held, on the code of accelerators: tensor operations, and Triton kernels (interpreted)."""

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from shortlist import functional as F
from shortlist.functional import LinearLogits
from shortlist.functional.projections.lml_exact import exact_dual
from shortlist.functional.projections.lml_trials import PASSES, RESOLUTIONS, solve_by_trials
from shortlist.label_axis.axis import HeldLabels
from tests.label_axis.linear_cases import FORMS, LOSSES, ONE_CLASS, Layer, Outcome, draw_hot, outcome
from tests.label_axis.test_linear_logits_edges import EXTREMES

# The interpreter of Triton computes with numpy, which warns where a card gives inf.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")

each_loss = pytest.mark.parametrize("name", LOSSES)


def covering(name: str, values: Iterable[Any]) -> pytest.MarkDecorator:
    """All pairs of loss and value by tensor operations; of interpreted kernels, which are slow, a third in turn."""
    pairs = [
        pytest.param(path, loss, value, marks=[pytest.mark.slow] * (path == "triton" and (i + j) % 3 != 0))
        for path in ("device", "triton")
        for i, loss in enumerate(LOSSES)
        for j, value in enumerate(values)
    ]
    return pytest.mark.parametrize(("path", "name", name), pairs, indirect=["path"])


@pytest.fixture(params=["device", "triton"])
def path(request, monkeypatch) -> str:
    monkeypatch.setenv("SHORTLIST_KERNELS", request.param)
    return request.param


def _in_double(layer: Layer, loss) -> Outcome:
    wide = Layer(*(None if part is None else part.detach().double().requires_grad_() for part in vars(layer).values()))
    return outcome(wide, loss, wide.dense())


@covering("form", ["multi-hot", "lists", "COO"])
def test_values_and_gradients_are_those_of_the_plain_loss(name, form, path):
    layer = Layer.draw(4, n=37, dtype=torch.float32)
    with torch.no_grad():
        layer.bias[[2, 30]] = -math.inf
    hot = draw_hot(4, n=37, one=name in ONE_CLASS, unknown=form != "lists")
    hot[:, [2, 30]] = 0
    if name not in ONE_CLASS:
        hot[1] = 0  # its list is padding
    target, weight = FORMS[form](hot), torch.linspace(0.5, 2, 37)

    def loss(logits):
        return LOSSES[name](logits, target, 3, weight=weight.to(logits.dtype), reduction="sum")

    found = outcome(layer, loss, layer.unheld(16))
    found = Outcome(found.value.double(), [gradient.double() for gradient in found.gradients])
    assert found.misses(_in_double(layer, loss), 2e-5) == []


@covering("extreme", EXTREMES)
@pytest.mark.parametrize("k", [1, 12])
def test_extreme_logits_give_what_the_plain_loss_gives_in_double_precision(name, extreme, k, path):
    hot = draw_hot(4, n=13, one=name in ONE_CLASS, unknown=False)
    logits, offset = EXTREMES[extreme]
    layer = Layer(torch.eye(4), logits.T.float().requires_grad_(), torch.full((13,), offset))

    def loss(x):
        return LOSSES[name](x, hot, k)

    wide = Layer(*(part.detach().double() for part in layer.parts))
    wide.weight.requires_grad_()
    expected = outcome(wide, loss, wide.dense())
    found = outcome(layer, loss, layer.unheld(5))
    assert torch.allclose(found.value.double(), expected.value, rtol=1e-5, atol=1e-5)
    assert torch.allclose(layer.weight.grad.double(), wide.weight.grad, rtol=0, atol=1e-5)


def test_k_may_differ_by_row_and_learn(path):
    layer, hot = Layer.draw(5, n=23, dtype=torch.float32), draw_hot(5, n=23, one=False, unknown=False)
    gradients = []
    for logits in (layer.unheld(7), layer.dense().double()):
        k = torch.tensor([1.0, 2.5, 3.0, 22.0, 23.0], dtype=logits.dtype, requires_grad=True)
        F.lml_nll(logits, hot, k).backward()
        gradients.append(k.grad.double())
    assert torch.allclose(*gradients, rtol=1e-5)
    outside = F.lml_nll(layer.unheld(7), hot, torch.tensor([1.0, -1.0, 2.0, 24.0, 3.0]), reduction="none")
    assert outside.isnan().tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("name", ["lml_nll", "two_way-sample", "multilabel_truncated_topk_entropy"])
def test_a_row_of_nan_is_nan_alone(name, path):
    layer, hot = Layer.draw(4, n=11, dtype=torch.float32), draw_hot(4, n=11, one=False, unknown=False)
    with torch.no_grad():
        layer.features[1] = math.nan
    values = LOSSES[name](layer.unheld(4), hot, 3, reduction="none")
    assert values.isnan().tolist() == [False, True, False, False]


HARD = {
    "normal": lambda z, rank: z,
    "a hundred apart": lambda z, rank: 100 * z,
    "heavy tails": lambda z, rank: 100 * z / z.roll(1, 1),
    "a staircase": lambda z, rank: 1000 * rank,
    "a cluster far above": lambda z, rank: z + 1000 * (rank < 7),
    "ties": lambda z, rank: 50 * (rank // 40),
    "an offset": lambda z, rank: z + 1e6,
    "huge numbers": lambda z, rank: torch.where(rank < 3, 1e38, torch.where(rank > 100, -1e38, z)),
    "a huge offset": lambda z, rank: z + 1e30,
    "infinite ones": lambda z, rank: z.masked_fill(rank < 3, math.inf).masked_fill(rank > 100, -math.inf),
}


class _Sampled(HeldLabels):
    """Labels at hand of which the first guess sees a tenth."""

    passes = 0

    def sample(self):
        return self.logits[:, ::10]

    def blocks(self, rows=None):
        self.passes += 1
        return super().blocks(rows)


@pytest.mark.parametrize("hard", HARD)
def test_trial_points_find_the_root_of_hard_rows(hard, path, fresh):
    z = torch.randn(3, 200, generator=fresh, dtype=torch.float64)
    rank = torch.stack([torch.randperm(200, generator=fresh) for _ in range(3)]).double()
    x = HARD[hard](z, rank).float()
    for k in (0.001, 1, 5.5, 50) if path == "device" else (5.5,):  # the interpreter is slow
        column = torch.full((3, 1), k)
        axis = _Sampled(x)
        (pivot, delta, _), nearest, total = solve_by_trials(axis, column, 1.0)
        assert axis.passes == len(RESOLUTIONS) + PASSES
        if hard == "infinite ones" and k < 3:  # they share k alike
            assert torch.allclose(delta.sigmoid(), column / 3)
            continue
        expected, shift = exact_dual(x.double(), column.double(), 1.0)
        y = (x.clamp(max=1e38) - pivot) + delta
        assert torch.allclose(y.double().sigmoid(), (x.double() - expected + shift).sigmoid(), rtol=0, atol=3e-6)
        shares = (-y.abs() - nearest).exp() / (1 + (-y.abs()).exp()).square() / total
        assert torch.allclose(shares.sum(1), torch.ones(3), atol=2e-5)


class _Reads(TorchDispatchMode):
    """Count products with the weight, and reads by the host."""

    def __init__(self) -> None:
        super().__init__()
        self.products = self.reads = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.products += name in ("mm", "addmm", "addmm_")
        self.reads += name in ("_local_scalar_dense", "nonzero", "equal")
        return func(*args, **(kwargs or {}))


@each_loss
def test_lists_of_labels_need_no_read_and_the_layer_few_passes(name, monkeypatch, fresh):
    monkeypatch.setenv("SHORTLIST_KERNELS", "device")
    layer = Layer.draw(8, n=512, dtype=torch.float32)
    lists = torch.stack([torch.randperm(512, generator=fresh)[:3] for _ in range(8)])
    with _Reads() as forward:
        loss = LOSSES[name](layer.unheld(128), lists[:, 0] if name in ONE_CLASS else lists, 5)
    with _Reads() as backward:
        loss.backward()
    products = 4
    if name == "lml_nll":  # a fixed number of passes after one block as a sample, and products of the counted labels
        products = 4 * (len(RESOLUTIONS) + PASSES) + 1 + len(RESOLUTIONS)
    assert (forward.products, forward.reads) == (products, 0)
    assert (backward.products, backward.reads) == (3 * 4, 0)


@each_loss
def test_the_meta_device_is_never_read(name):
    layer = Layer.draw(8, n=512, dtype=torch.float32)
    parts = [part.detach().to("meta").requires_grad_() for part in layer.parts]
    lists = torch.zeros(8, 3, dtype=torch.int64, device="meta")
    loss = LOSSES[name](LinearLogits(*parts, label_block=128), lists[:, 0] if name in ONE_CLASS else lists, 5)
    loss.backward()
    assert [part.grad.shape for part in parts] == [part.shape for part in parts]

"""Every module survives every way of saving it; tensors among its options are buffers, saved and moved with it."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from shortlist.functional import LinearLogits
from shortlist.nn import BCE, LDAM, LML, ChunkedHead, NoisedTopK
from tests.contracts import HEADS, PROJECTIONS, Head, Projection
from tests.contracts_losses import LOSSES, MARGINS, Loss, random_hot
from tests.nn.saving import copies

N = len(MARGINS)
CASES = [*LOSSES, *(case for case in PROJECTIONS if case.module), *HEADS, Head(ChunkedHead, ChunkedHead)]


def made(case: Loss | Projection | Head) -> tuple[nn.Module, Callable[[nn.Module], object]]:
    """A module of a case, and how it is called."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(5, N, generator=generator)
    if isinstance(case, Loss):
        hot = random_hot(case, 5, N, generator).float()
        options = {"epsilon": 0.0} if case.takes_noise else {}
        layer = case.layer(logits, 3, weight=torch.linspace(0.5, 2, N), **options)
        return layer, lambda module: case.forward(module, logits, hot)
    if isinstance(case, Head):
        return case(), lambda module: module(logits[:, :5])
    return case.layer(1.5, temperature=0.5), lambda module: module(logits)


def tensors(result: object) -> tuple[Tensor, ...]:
    """What a module returns: one tensor, that of linear logits, or the two of two heads."""
    if isinstance(result, LinearLogits):
        return (result.dense(),)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_copy_looks_and_computes_the_same(case):
    layer, call = made(case)
    expected = tensors(call(layer))
    for name, again in copies(layer).items():
        assert repr(again) == repr(layer), name
        assert all(map(torch.equal, tensors(call(again)), expected)), name


@pytest.mark.parametrize(
    ("make", "option"),
    [(BCE, "weight"), (LDAM, "margin"), (partial(NoisedTopK, 3), "margin"), (partial(LML, dim=1), "k")],
)
def test_a_tensor_option_is_a_buffer_that_is_saved_and_moves_with_the_module(make, option):
    value = torch.linspace(0.5, 2, N)
    layer, other = make(**{option: value}), make(**{option: torch.zeros(N)})
    assert not list(layer.parameters())
    assert list(layer.state_dict()) == [option]
    other.load_state_dict(layer.state_dict())
    for again in (other, *copies(layer).values()):
        assert torch.equal(getattr(again, option), value)
    getattr(copies(layer)["deepcopy"], option).add_(1)
    assert torch.equal(getattr(layer, option), value)
    assert getattr(layer.double(), option).dtype == torch.float64
    assert getattr(layer.to("meta"), option).device.type == "meta"

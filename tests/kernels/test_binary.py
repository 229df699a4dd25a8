"""The kernel of the negatives of binary losses agrees with float64, in value and in slope."""

import math

import pytest
import torch

from shortlist import functional as F
from shortlist.kernels import chooser

pytestmark = pytest.mark.cpu_only


def value_and_gradient(x, positives, loss=F.bce, **options):
    x = x.clone().requires_grad_()
    value = loss(x, positives, reduction="sum", **options)
    return value.detach(), *torch.autograd.grad(value, x)


@pytest.fixture
def kernel_calls(monkeypatch):
    """The rows that each call of the kernel sums."""
    from shortlist.functional.losses import binary

    calls, original = [], binary._negatives
    monkeypatch.setattr(binary, "_negatives", lambda x, *options: calls.append(len(x)) or original(x, *options))
    monkeypatch.setattr(chooser, "LEAST_ENTRIES", 1)
    return calls


@pytest.mark.parametrize("n", [2, 3, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1, 20, 1e4, 1e36])
def test_values_and_gradients_are_those_of_float64(n, scale, kernel_calls):
    x = torch.randn(4, n, generator=torch.Generator().manual_seed(n)) * scale
    x[0, 0], x[1, -1], x[2, n // 2] = 0.0, -math.inf, -87.4
    positives = torch.zeros(4, 1, dtype=torch.long)  # index lists
    value, gradient = value_and_gradient(x, positives)
    assert kernel_calls == [4]
    exact_value, exact_gradient = value_and_gradient(x.double(), positives)
    torch.testing.assert_close(value, exact_value.float(), rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient, exact_gradient.float(), rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("gamma", [1, 2, 4, 8])
@pytest.mark.parametrize("clip", [1e-3, 0.05, 0.5])
@pytest.mark.parametrize("scale", [1e-3, 3, 1e4])
def test_clipped_negatives_are_those_of_float64(gamma, clip, scale, kernel_calls):
    x = torch.randn(4, 1500, generator=torch.Generator().manual_seed(gamma)) * scale
    x[0, 0], x[1, -1], x[2, 7] = 0.0, -math.inf, math.log(clip / (1 - clip))
    positives = torch.zeros(4, 1, dtype=torch.long)  # index lists
    options = {"loss": F.asymmetric, "gamma_negative": gamma, "clip": clip}
    value, gradient = value_and_gradient(x, positives, **options)
    assert kernel_calls == [4]
    exact_value, exact_gradient = value_and_gradient(x.double(), positives, **options)
    torch.testing.assert_close(value, exact_value.float(), rtol=2e-6, atol=0)
    # What is left of 1 - p_m near 1 has an absolute rounding error.
    torch.testing.assert_close(gradient, exact_gradient.float(), rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize(("gamma", "clip"), [(2.5, 0.05), (9, 0.05), (2, 0.0), (0, 0.05)])
def test_other_powers_take_tensor_operations(gamma, clip, kernel_calls):
    x = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    assert F.asymmetric(x, torch.zeros(2, 1, dtype=torch.long), gamma_negative=gamma, clip=clip).isfinite()
    assert kernel_calls == []


def test_not_a_number_stays_in_its_row(kernel_calls):
    x = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0))
    x[1, 1500] = math.nan
    terms = F.assume_negative(x, torch.tensor([0, 1, 2]), reduction="none")
    assert kernel_calls == [3]
    assert terms.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_layouts_do_not_change_a_bit(threads, kernel_calls):
    x = torch.randn(2000, 300, generator=torch.Generator().manual_seed(0)).T
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        value = F.assume_negative(x, torch.arange(300), reduction="none")
    finally:
        torch.set_num_threads(before)
    assert torch.equal(value, F.assume_negative(x.contiguous(), torch.arange(300), reduction="none"))
    assert kernel_calls == [300, 300]

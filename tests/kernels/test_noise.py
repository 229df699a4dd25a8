"""The kernel of noised order statistics draws the noise that tensor operations draw, on any number of threads."""

import pytest
import torch
from torch import Tensor

from shortlist.functional import noised_kth_largest


def value_and_gradient(x: Tensor, k: int, **options) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = noised_kth_largest(x, k, **options)
    return value.detach(), torch.autograd.grad(value.sum(), x)[0]


@pytest.mark.parametrize(("shape", "k", "epsilon"), [((40, 1000), 6, 1.0), ((9, 3001), 21, 0.1), ((5, 2, 50), 3, 20.0)])
def test_a_seed_gives_the_same_noise_with_and_without_kernels_and_in_double_precision(
    shape, k, epsilon, fresh, monkeypatch
):
    x = torch.randn(shape, generator=fresh)
    found = []
    for kernels, dtype in (("on", torch.float32), ("off", torch.float32), ("off", torch.float64)):
        monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
        generator = torch.Generator().manual_seed(5)
        found.append(value_and_gradient(x.to(dtype), k, epsilon=epsilon, generator=generator))
    for value, slope in found[:2]:
        assert torch.allclose(value.double(), found[2][0], rtol=1e-6, atol=1e-6 * epsilon)
        assert torch.allclose(slope.double(), found[2][1], atol=1e-6)


def test_the_number_of_threads_does_not_change_what_is_drawn(fresh):
    x = torch.randn(64, 3000, generator=fresh)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(value_and_gradient(x, 5, generator=torch.Generator().manual_seed(1)))
    finally:
        torch.set_num_threads(before)
    for one, several in zip(*found, strict=True):
        assert torch.equal(one, several)

"""Losses on rows of hundreds of labels, where shortcuts for long rows are taken."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import softplus

from shortlist import functional as F
from shortlist import targets
from tests.contracts_losses import LOSSES, Loss

ROWS, N = 6, 150
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
LARGEST_K = {"smooth_topk_svm": 1}
"""Where the reference enumerates sets of k labels."""
FEW_ROWS = {"warp": 2, "rml": 2, "plackett_luce": 3}
"""Where the reference ranks each pair of labels anew, or integrates."""


def batch(loss: Loss, generator: torch.Generator, scale: float) -> tuple[Tensor, Tensor]:
    """From few positives, which are read one by one, to many, which are read as a mask."""
    logits = scale * torch.randn(ROWS, N, generator=generator, dtype=torch.float64)
    sizes = torch.ones(ROWS, 1) if loss.one_class else torch.arange(1, ROWS + 1)[:, None] ** 2
    hot = (torch.rand(ROWS, N, generator=generator).argsort(-1).argsort(-1) < sizes).double()
    unknown = (torch.rand(ROWS, N, generator=generator) < 0.1) & (hot == 0)
    unknown[::2] = False
    return logits.float().double(), hot.masked_fill(unknown, -1)


def flat(values: list) -> Tensor:
    entries = [v for line in values for v in line] if isinstance(values[0], list) else values
    return torch.tensor([float(v) for v in entries], dtype=torch.float64)


@pytest.mark.parametrize("scale", [0.5, 4.0])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_long_rows_agree_with_the_reference_and_with_finite_differences(loss, scale, fresh):
    logits, hot = (part[: FEW_ROWS.get(loss.function.__name__, ROWS)] for part in batch(loss, fresh, scale))
    for k in (2, 40) if loss.takes_k else (2,):
        k = min(k, LARGEST_K.get(loss.function.__name__, k))
        expected = flat(loss.expected(logits, hot, k))
        slopes = {}
        for dtype, tolerance in TOLERANCE.items():
            x = logits.to(dtype).requires_grad_()
            got = loss(x, hot, k, partner=loss.second(logits).to(dtype), reduction="none")
            assert (got.flatten().double() - expected).abs().max() <= tolerance * expected.abs().max(), (k, dtype)
            upstream = torch.linspace(0.5, 1.5, got.numel(), dtype=dtype).reshape(got.shape)
            slopes[dtype] = torch.autograd.grad(got, x, upstream)[0].double()
        exact = slopes[torch.float64]
        assert (slopes[torch.float32] - exact).abs().max() <= 1e-5 * exact.abs().max(), k
        if not loss.detaches:
            x = logits.clone().requires_grad_()
            assert gradcheck(lambda x, k=k: loss(x, hot, k, reduction="sum"), x, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_smooth_svm_holds_for_ten_thousand_labels_and_sets_of_a_hundred(dtype):
    n, k = 10_000, 100
    x = 3 * torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[7] = 4.0
    rest = torch.cat([x[:7], x[8:]]) / k
    log_sums = torch.full((k + 1,), -torch.inf, dtype=torch.float64)
    log_sums[0] = 0
    for value in rest:  # the polynomials with one more label each
        log_sums[1:] = torch.logaddexp(log_sums[1:], log_sums[:-1] + value)
    expected = softplus(1 + log_sums[k] - log_sums[k - 1] - x[7] / k)
    logits = x.to(dtype).unsqueeze(0).requires_grad_()
    loss = F.smooth_topk_svm(logits, torch.tensor([7]), k)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5 if dtype == torch.float32 else 1e-9, atol=0)
    loss.backward()
    assert logits.grad.isfinite().all()
    assert abs(logits.grad.sum()) < 1e-6  # what the true class loses, its rivals gain


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_thousands_of_positives_in_a_row_add_up_to_all_digits(layout):
    generator = torch.Generator().manual_seed(0)
    x, hot = torch.randn(2, 30_000, generator=generator), torch.rand(2, 30_000, generator=generator) < 0.09
    target = targets.to_sparse(hot, 30_000, dtype=torch.float32, layout=layout)
    for loss in (lambda x: F.lml_nll(x, target, 50), lambda x: F.bce(x, target)):
        single, double = x.clone().requires_grad_(), x.double().requires_grad_()
        value, wanted = loss(single), loss(double)
        value.backward()
        wanted.backward()
        assert abs(value.item() / wanted.item() - 1) < 5e-7
        assert (single.grad - double.grad).norm() < 5e-7 * double.grad.norm()

"""The LML root from sums over parts of the labels, against the solver that sees whole rows."""

import math

import pytest
import torch

from shortlist.functional import log_lml
from shortlist.functional.projections.lml_solver import solve_lml
from shortlist.label_axis.processes import ONE_PROCESS


class InBlocks:
    """Rows that are handed out a few labels at a time; counts the passes over all of them."""

    def __init__(self, x, *, block=7, stride=1):
        self.x, self.block, self.stride, self.passes = x, block, stride, 0.0

    processes = ONE_PROCESS

    @property
    def total_labels(self):
        return self.x.shape[-1]

    @property
    def dtype(self):
        return self.x.dtype

    def sample(self):
        return self.x[:, :: self.stride]

    def present(self):
        return (self.x > -math.inf).sum(-1, keepdim=True).double()

    def blocks(self, rows):
        x = self.x if rows is None else self.x[rows]
        self.passes += len(x) / max(1, len(self.x))
        yield from ((self.block * i, part) for i, part in enumerate(x.split(self.block, dim=-1)))


def hard_rows(dtype):
    torch.manual_seed(0)
    rows = torch.randn(12, 60, dtype=dtype)
    rows[0] *= 10
    rows[1, :5] += 1000  # a plateau between the fifth and the sixth
    rows[2, :4] += 1000  # the fifth place is shared by the rest
    rows[3] += 1e6
    rows[4] = 0
    rows[5, :3] = math.inf
    rows[6, 5:] = -math.inf  # as many as are wanted
    rows[7, 6:] = -math.inf
    rows[8, 30:] = -math.inf
    rows[9, 0] = 1e30
    rows[10] = torch.linspace(-3e3, 3e3, 60)
    return rows


def projected(x, k, temperature=1.0, **options):
    parts = InBlocks(x, **options)
    pivot, delta, log_slope = solve_lml(parts, torch.as_tensor(k, dtype=torch.float64).reshape(-1, 1), temperature)
    y = (x.clamp(max=torch.finfo(x.dtype).max) - pivot) / temperature + delta
    return torch.where(x == -math.inf, -math.inf, torch.nn.functional.logsigmoid(y)), log_slope, parts


@pytest.mark.parametrize("k", [5, 4.5, 1e-3, 59.999, 1])
@pytest.mark.parametrize("temperature", [1.0, 0.05, 30.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
def test_blocks_of_labels_give_the_logarithms_that_whole_rows_give(dtype, tolerance, temperature, k):
    x = hard_rows(dtype)
    if k > 30:
        x = x[:6]
    found, _, _ = projected(x, k, temperature)
    wanted = log_lml(x.double(), k, temperature=temperature).to(dtype)
    # What is next to infinite differs by dtype.
    torch.testing.assert_close(found.clamp(min=-1e30), wanted.clamp(min=-1e30), rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
def test_the_slope_is_that_at_the_root(dtype, tolerance):
    x = torch.randn(8, 300, dtype=dtype) * 3
    found, log_slope, _ = projected(x, 7)
    p = found.double().exp()
    torch.testing.assert_close(
        log_slope.double().exp(), (p * (1 - p)).sum(-1, keepdim=True), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("scale", [1, 3, 10])
def test_ordinary_rows_need_few_passes(scale):
    torch.manual_seed(1)
    x = torch.randn(16, 20_000) * scale
    x.scatter_add_(1, torch.randint(0, 20_000, (16, 5)), torch.full((16, 5), 8.0))
    assert projected(x, 5, block=5000)[2].passes <= 4
    assert projected(x, 20, block=5000, stride=32)[2].passes <= 4


def test_hard_rows_need_a_few_dozen_passes_at_most():
    assert projected(hard_rows(torch.float32), 5, 0.01)[2].passes <= 40


def test_a_row_with_nan_is_nan_and_the_others_are_not():
    x = torch.randn(3, 20)
    x[1, 4] = math.nan
    for k in (0.0, 3.0, 20.0):
        found = projected(x, k)[0]
        assert found[1].isnan().all()
        assert not found[[0, 2]].isnan().any()


def test_each_row_may_have_its_own_k_and_a_k_that_is_none_spoils_its_row_only():
    x = torch.randn(4, 20, dtype=torch.float64)
    found = projected(x, [3.0, -1.0, math.nan, 20.0])[0]
    torch.testing.assert_close(found[0].exp().sum(), torch.tensor(3.0, dtype=torch.float64))
    assert found[1:3].isnan().all()
    assert (found[3] == 0).all()


def test_no_rows_are_no_trouble():
    assert projected(torch.zeros(0, 5), 2.0)[0].shape == (0, 5)

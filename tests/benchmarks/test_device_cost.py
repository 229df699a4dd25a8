"""What the counter of kernels and bytes counts, on steps whose cost is plain to see."""

import importlib.util

import pytest
import torch

from benchmarks.device_cases import SOFTMAX, Batch
from benchmarks.device_cost import count

ROWS, LABELS = 8, 100
SIZE = 4 * ROWS * LABELS
"""Bytes of the logits."""


def cost_of(step, device="meta"):
    x = torch.ones(ROWS, LABELS, device=device)
    return count(lambda: step(x), wide=ROWS * LABELS // 4)


def test_softmax_moves_five_tensors():
    cost = SOFTMAX.cost(Batch(ROWS, LABELS))
    assert (cost.kernels, cost.bytes) == (2, 5 * SIZE)


def test_views_and_empty_tensors_are_free():
    cost = cost_of(lambda x: torch.empty_like(x).view(-1).unsqueeze(0).expand(3, -1)[:, 1:].detach().t())
    assert (cost.kernels, cost.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("step", "size"),
    [
        (lambda x: x + x, 2 * SIZE),  # the same tensor is read once
        (lambda x: x.mul_(2), 2 * SIZE),
        (lambda x: x.zero_(), SIZE),
        (lambda x: x[:, ::2].clone(), SIZE),
        (lambda x: x + x[:, :1], 2 * SIZE + 4 * ROWS),
        (lambda x: x[:1].expand(ROWS, -1).clone(), SIZE + 4 * LABELS),  # an expanded axis has one entry in memory
        (lambda x: torch.zeros_like(x).copy_(x), 3 * SIZE + SIZE),  # fill (it reads its argument), then read and write
    ],
)
def test_each_distinct_tensor_counts_once_for_reading_and_once_for_writing(step, size):
    assert cost_of(step).bytes == size


def test_a_gather_reads_the_entries_that_it_returns():
    at = torch.zeros(ROWS, 3, dtype=torch.int64, device="meta")
    assert cost_of(lambda x: x.gather(-1, at)).bytes == 8 * ROWS * 3 + 2 * 4 * ROWS * 3


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda x: x.double(), 1),
        (lambda x: x.sum(-1, dtype=torch.float64), 1),
        (lambda x: x - x[:, :1].double(), 2 - 1),  # the conversion of a column is narrow
        (lambda x: x * torch.zeros((), dtype=torch.float64, device="meta"), 0),  # one number does not promote
        (lambda x: x.sum(-1).double() * 2, 0),
    ],
)
def test_float64_counts_where_a_tensor_is_wide(step, expected):
    assert cost_of(step).wide_float64 == expected


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "step",
    [lambda x: x.sum().item(), lambda x: bool(x.any()), lambda x: x.nonzero(), lambda x: float(x[0, 0])],
)
def test_values_that_the_host_waits_for_are_seen_and_the_step_goes_on(step, device):
    assert cost_of(step, device).host_reads == 1


def test_a_mask_that_is_written_at_indices_is_no_host_read():
    at, mask = torch.arange(3, device="meta"), torch.ones(ROWS, LABELS, dtype=torch.bool, device="meta")
    assert count(lambda: mask.index_put_((at, at), mask[0, :3]), wide=ROWS * LABELS).host_reads == 0


def test_a_copy_to_the_host_is_a_host_read():
    cost = cost_of(lambda x: x.sum(-1).cpu().tolist())
    assert cost.host_reads == 1


def test_tensors_of_python_numbers_are_uploads():
    cost = cost_of(lambda x: (x + torch.tensor([1.0], device=x.device)) + x.new_tensor(2.0) + x.new_full((), 3.0))
    assert cost.uploads == 2


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_a_triton_kernel_counts_its_own_loads_and_stores():
    from tests.benchmarks.row_kernel import doubled

    x = torch.ones(ROWS, LABELS)
    cost = count(lambda: doubled(x).sum(-1), wide=ROWS * LABELS)
    assert (cost.launches, cost.kernels) == (1, 2)
    assert cost.calls == {"_doubled": 1, "sum": 1}
    # Entries beyond the row are masked, and a number that a program loads twice is loaded twice.
    assert cost.bytes_of["_doubled"] == 2 * SIZE + 2 * 4 * ROWS

"""Several processes with uneven shares of a batch learn what one process learns from all of it."""

import functools

import pytest
import torch

from shortlist import nn
from shortlist.train.distributed.global_batch import batch_loss
from tests.contracts_losses import LOSSES
from tests.process_group import on_processes
from tests.train.distributed.global_batch_processes import (
    ALONE,
    CASES,
    DTYPES,
    ROWS,
    SHARES,
    TRAINED,
    results,
    step_of,
    training,
)

PLANS = [pytest.param("few"), pytest.param("more", marks=pytest.mark.slow)]


@functools.cache
def found(plan: str) -> dict[str, list[dict]]:
    """The results of each process, by shares."""
    each_share = on_processes(results, *((len(shares), shares) for shares in SHARES[plan]))
    # Lists of the same case are as wide as the rows of a process need.
    assert any(len({width for mine in each for width in mine["widths"]}) > 1 for each in each_share)
    return dict(zip(map(str, SHARES[plan]), each_share, strict=True))


@functools.cache
def one_process() -> dict[str, dict[str, list[float]]]:
    return {case.name: step_of(case, 0, ROWS) for case in CASES}


def close(a: list[float], b: list[float], tolerance: float = 1e-9) -> bool:
    first, second = (torch.tensor(values, dtype=torch.float64) for values in (a, b))
    return torch.allclose(first, second, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("contract", LOSSES, ids=str)
def test_losses_and_gradients_are_those_of_one_process(contract, plan):
    names = [case.name for case in CASES if case.name.startswith(f"{contract},")]
    assert len(names) >= 3
    for name in names:
        wanted = one_process()[name]
        assert any(wanted["gradients"]), name
        for shares, processes in found(plan).items():
            for mine in processes:
                got = mine["steps"][name]
                assert close(got["loss"], wanted["loss"]), (name, shares)
                assert close(got["gradients"], wanted["gradients"]), (name, shares)


@pytest.mark.parametrize("name", ALONE)
def test_without_the_global_batch_uneven_shares_give_a_mean_of_means(name):
    (case,) = [case for case in CASES if case.name == name]
    for shares, processes in zip(SHARES["few"], found("few").values(), strict=True):
        ends = [sum(shares[: rank + 1]) for rank in range(len(shares))]
        parts = [step_of(case, end - size, end) for end, size in zip(ends, shares, strict=True)]
        means = torch.tensor([part["gradients"] for part in parts], dtype=torch.float64).mean(0).tolist()
        for mine in processes:
            assert close(mine["alone"][name]["gradients"], means)
            assert not close(means, one_process()[name]["gradients"], 1e-3)


@pytest.mark.parametrize("name", TRAINED)
def test_every_process_sees_that_the_loss_of_one_is_not_finite(name):
    assert all(mine["broken"][name] for processes in found("few").values() for mine in processes)


def test_rows_of_every_dtype_are_gathered_in_the_order_of_processes():
    for processes in found("few").values():
        rows = torch.cat([torch.arange(2 * rank, 2 * rank + 2 + rank) for rank in range(len(processes))])
        for mine in processes:
            for dtype in DTYPES:
                assert mine["gathered"][str(dtype)] == rows.to(dtype).tolist()


def test_gathered_lists_are_padded_to_the_widest():
    for processes in found("few").values():
        world = len(processes)
        wanted = [[rank] * (rank + 1) + [-1] * (world - rank - 1) for rank in range(world)]
        assert all(mine["lists"] == wanted for mine in processes)


def test_in_one_process_a_loss_is_called_directly():
    logits, target = torch.tensor([[2.0, 1.0, 0.5], [0.0, 1.0, 0.0]]), torch.tensor([1, 2])
    assert batch_loss(nn.CrossEntropy(), (logits,), target, torch.arange(2)) == nn.CrossEntropy()(logits, target)
    twice = nn.AverageK(2)
    assert batch_loss(twice, (logits, -logits), target, torch.arange(2)) == twice(logits, -logits, target)
    learned = nn.ROLE(5, 3, expected=1.0, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([4, 1])
    assert batch_loss(learned, (logits,), target, rows) == learned(logits, target, rows)


def test_a_users_module_is_called_with_outputs_and_labels():
    logits, target = torch.zeros(2, 3), torch.tensor([1, 2])
    assert torch.isclose(batch_loss(torch.nn.CrossEntropyLoss(), (logits,), target, target), torch.tensor(3.0).log())


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", TRAINED)
def test_a_training_with_batch_normalization_ends_where_that_of_one_process_does(name, plan):
    wanted = training(name, 0, 1)
    for processes in found(plan).values():
        for mine in processes:
            assert close(mine["trained"][name]["loss"], wanted["loss"], 1e-7)
            assert close(mine["trained"][name]["parameters"], wanted["parameters"], 1e-6)

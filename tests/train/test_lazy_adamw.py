"""An optimizer whose cost follows the rows with a gradient: the updates of each row, its weight decay, its state."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from shortlist.train.lazy_adamw import LazyAdamW

DRAWS = [[0, 2], [2], [1, 2, 2], [0], [3, 1]]


def make(**options):
    torch.manual_seed(0)
    model = nn.ModuleDict({"words": nn.Embedding(6, 3, sparse=True), "head": nn.Linear(3, 2)})
    return model, LazyAdamW(model.parameters(), **{"lr": 0.1, "weight_decay": 0.0, **options})


def take_steps(model, optimizer, draws):
    for draw in draws:
        optimizer.zero_grad()
        model["head"](model["words"](torch.tensor(draw))).square().sum().backward()
        optimizer.step()


def test_each_row_has_updates_of_its_own_as_in_the_definition():
    model, optimizer = make()
    rows = model["words"].weight.detach().clone().double()
    square, times = [0.0] * 6, [0] * 6
    for draw in DRAWS:
        optimizer.zero_grad()
        model["head"](model["words"](torch.tensor(draw))).square().sum().backward()
        gradient = model["words"].weight.grad.coalesce()
        optimizer.step()
        for row, value in zip(gradient.indices()[0].tolist(), gradient.values().double(), strict=True):
            times[row] += 1
            square[row] = 0.999 * square[row] + 0.001 * value.square().mean().item()
            rows[row] -= 0.1 * value / (math.sqrt(square[row] / (1 - 0.999 ** times[row])) + 1e-8)
        torch.testing.assert_close(model["words"].weight.detach().double(), rows, rtol=1e-4, atol=1e-5)
    assert times == [2, 2, 3, 1, 0, 0]


def test_dense_parameters_get_the_updates_of_adamw():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    pairs = [(ours, LazyAdamW(ours.parameters(), lr=0.1)), (theirs, torch.optim.AdamW(theirs.parameters(), lr=0.1))]
    for model, optimizer in pairs:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)


def test_rows_without_a_gradient_decay_as_often_as_the_others():
    model, optimizer = make(weight_decay=0.5)
    before = model["words"].weight.detach().clone()
    take_steps(model, optimizer, DRAWS)
    assert torch.equal(model["words"].weight[4:], before[4:])  # Not yet.
    optimizer.catch_up()
    torch.testing.assert_close(model["words"].weight[4:].detach(), before[4:] * 0.95 ** len(DRAWS))
    after = model["words"].weight.detach().clone()
    optimizer.catch_up()
    assert torch.equal(model["words"].weight, after)


def test_a_saved_state_continues_as_if_nothing_had_happened():
    model, optimizer = make(weight_decay=0.5)
    take_steps(model, optimizer, DRAWS)
    state = copy.deepcopy(optimizer.state_dict())
    again = copy.deepcopy(model)
    resumed = LazyAdamW(again.parameters(), lr=0.1, weight_decay=0.5)
    resumed.load_state_dict(state)
    for one, two in ((model, optimizer), (again, resumed)):
        take_steps(one, two, reversed(DRAWS))
        two.catch_up()
    assert torch.equal(model["words"].weight, again["words"].weight)
    assert torch.equal(model["head"].weight, again["head"].weight)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_continues_with_the_decay_that_is_pending(copied):
    model, optimizer = make(weight_decay=0.5)
    take_steps(model, optimizer, DRAWS[:2])
    again = copied((model, optimizer))
    for each in ((model, optimizer), again):
        take_steps(*each, DRAWS[2:])
        each[1].catch_up()
    torch.testing.assert_close(again[0].state_dict(), model.state_dict(), rtol=0, atol=0)


def test_nothing_is_pending_after_a_state_is_loaded():
    model, optimizer = make(weight_decay=0.5)
    state = copy.deepcopy(optimizer.state_dict())
    take_steps(model, optimizer, DRAWS)
    optimizer.load_state_dict(state)
    before = model["words"].weight.detach().clone()
    optimizer.catch_up()
    assert torch.equal(model["words"].weight, before)


@pytest.mark.parametrize("option", ["maximize", "amsgrad"])
def test_options_that_rows_do_not_know_are_refused(option):
    with pytest.raises(ValueError, match=f"`{option}` must be False"):
        make(**{option: True})


@pytest.mark.parametrize("shape", [(5,), (5, 2, 3)])
def test_rows_may_have_any_number_of_dimensions(shape):
    parameter = nn.Parameter(torch.ones(shape))
    optimizer = LazyAdamW([parameter], lr=0.1, weight_decay=0.0)
    places, values = torch.tensor([[1, 1, 3]]), torch.ones(3, *shape[1:])
    parameter.grad = torch.sparse_coo_tensor(places, values, shape, check_invariants=True)
    optimizer.step()
    expected = torch.ones(shape)
    expected[[1, 3]] -= 0.1
    torch.testing.assert_close(parameter.detach(), expected)

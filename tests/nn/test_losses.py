"""Loss modules store options and delegate to the function of the same name."""

import pytest
import torch
from torch import Tensor, nn

from shortlist import functional as F
from shortlist.factory import LOSSES as LOSS_CLASSES
from shortlist.nn import BCE, LMLNLL, ROLE, AverageK, ExpectedPositive, NoisedTopK, TwoWay
from tests.contracts_losses import LOSSES, MARGINS, SCORES, Loss, random_hot
from tests.nn.saving import copies

N = len(MARGINS)
WEIGHT = torch.linspace(0.5, 2, N)
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)


def batch(loss: Loss) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randn(5, N, generator=generator), random_hot(loss, 5, N, generator).float()


def deterministic(loss: Loss) -> dict[str, float]:
    """Options that remove the randomness of a loss."""
    return {"epsilon": 0.0} if loss.takes_noise else {}


@each_loss
def test_a_module_computes_its_function_and_shows_its_options(loss):
    logits, hot = batch(loss)
    for options in ({}, *loss.variants):
        for common in ({}, {"reduction": "sum"}, {"reduction": "none", "weight": WEIGHT}):
            chosen = {**options, **common, **deterministic(loss)}
            layer = loss.layer(logits, 3, **chosen)
            assert torch.equal(loss.forward(layer, logits, hot), loss(logits, hot, 3, **chosen))
            assert repr(layer).startswith(f"{loss.module.__name__}(")
            for name, value in chosen.items():
                shown = f"tensor({N},)" if isinstance(value, Tensor) else repr(value)
                assert f"{name}={shown}" in repr(layer)


@each_loss
def test_a_module_trains_a_network(loss):
    torch.manual_seed(0)
    _, hot = batch(loss)
    features, network = torch.randn(5, 4), nn.Linear(4, N)
    layer = loss.layer(hot, **deterministic(loss))
    optimizer = torch.optim.SGD([*network.parameters(), *layer.parameters()], lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss.forward(layer, network(features), hot)
        value.backward()
        assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.95 * losses[0]


def test_a_module_refuses_an_unknown_reduction():
    with pytest.raises(ValueError, match="`reduction` must"):
        BCE(reduction="average")


def test_k_of_lml_may_be_a_tensor_with_one_value_per_row():
    logits, hot = batch(next(loss for loss in LOSSES if loss.module is LMLNLL))
    k = torch.tensor([1.0, 2.0, 2.5, 3.0, 4.0])
    assert torch.equal(LMLNLL(k)(logits, hot), F.lml_nll(logits, hot, k))


@pytest.mark.parametrize("n", [N, 3000])
def test_the_noised_loss_varies_in_training_and_is_constant_in_evaluation(n):
    logits, target = torch.randn(4, n, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    layer = NoisedTopK(3, reduction="none", margin=100.0)
    assert not torch.equal(layer(logits, target), layer(logits, target))
    layer.eval()
    state = torch.get_rng_state()
    values = layer(logits, target)
    assert torch.equal(layer(logits, target), values)
    assert torch.equal(torch.get_rng_state(), state)
    for name, again in copies(layer).items():
        assert torch.equal(again(logits, target), values), name
    assert not torch.equal(layer.train()(logits, target), values)


def test_the_noised_loss_in_evaluation_is_still_noised():
    """Without noise its size would not compare with that of training."""
    logits, target = torch.zeros(2000, N), torch.arange(2000) % N
    layer = NoisedTopK(1, samples=20)
    training = layer(logits, target).item()
    assert layer.eval()(logits, target).item() == pytest.approx(training, rel=0.05)
    assert training > 1.2


def test_the_noised_loss_is_reproducible_with_a_generator():
    logits, target = torch.randn(4, N, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    layers = [NoisedTopK(2, margin=100.0, generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    state = torch.get_rng_state()
    first, second, third = ([layer(logits, target).item() for _ in range(3)] for layer in layers)
    assert torch.equal(torch.get_rng_state(), state)
    assert first == second
    assert len(set(first)) == 3
    assert first != third


@pytest.mark.parametrize("loss", SCORES, ids=lambda loss: loss.name)
def test_a_loss_compares_rows_by_the_score_of_its_paper(loss):
    link, reference = SCORES[loss]
    assert loss.link == link, reference


def test_the_score_of_every_loss_is_listed():
    assert {loss.name for loss in SCORES} == {loss.name for loss in LOSS_CLASSES.values()}


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.module.link == "sigmoid"], ids=str)
def test_a_score_of_each_logit_belongs_to_a_loss_that_can_tell_a_shifted_row(loss):
    """Otherwise training would leave a free constant in each row, and rows could not be compared."""
    if loss.module is TwoWay and loss.options["kind"] == "sample":
        pytest.skip("compares within rows only; it is one half of the two-way loss")
    logits, hot = batch(loss)
    shifts = torch.tensor([[0.0], [3.0], [-2.0], [1.0], [5.0]])
    assert not torch.allclose(loss(logits + shifts, hot), loss(logits, hot), rtol=1e-3)


def test_role_trains_its_estimates_in_the_rows_of_the_batch_only():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target, examples = torch.tensor([4, 0, 2]), torch.tensor([7, 2, 3])
    layer = ROLE(10, 5, 1.5, beta=0.5, weight=WEIGHT[:5])
    ((name, estimates),) = layer.named_parameters()
    assert estimates.shape == (10, 5)
    assert estimates.abs().max() < 10
    assert list(layer.state_dict()) == [name, "weight"]
    value = layer(logits, target, examples)
    assert value == F.role(logits, estimates[examples], target, 1.5, beta=0.5, weight=WEIGHT[:5])
    value.backward()
    used = torch.zeros(10, dtype=torch.bool).scatter(0, examples, True)
    assert (estimates.grad[~used] == 0).all()
    assert (estimates.grad[used].abs().sum(-1) > 0).all()
    assert logits.grad.abs().max() > 0


def test_a_batch_of_one_example_trains_with_role_and_expected_positive():
    for layer, args in ((ROLE(4, 5, 3.0), (torch.tensor([2]),)), (ExpectedPositive(3.0), ())):
        logits = torch.zeros(1, 5, requires_grad=True)
        layer(logits, torch.tensor([1]), *args).backward()
        assert logits.grad.isfinite().all()
        assert logits.grad[0, 1] < 0


def test_average_k_trains_both_heads():
    generator = torch.Generator().manual_seed(0)
    logits, proposals = (torch.randn(4, N, generator=generator, requires_grad=True) for _ in range(2))
    AverageK(2.5, alpha=0.5)(logits, proposals, torch.arange(4)).backward()
    assert logits.grad.abs().max() > 0
    assert proposals.grad.abs().max() > 0
    assert proposals.grad.sum().item() == pytest.approx(0, abs=1e-6)

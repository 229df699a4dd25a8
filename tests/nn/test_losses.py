"""Loss modules store options, delegate to the function of the same name, and survive saving, copying and moving."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from shortlist import functional as F
from shortlist.nn import LDAM, LMLNLL, ROLE, AverageK, ExpectedPositive, NoisedTopK
from tests.contracts_losses import EXPECTED, LOSSES, MARGINS, Loss, random_hot
from tests.nn.saving import copies

N = len(MARGINS)
SCALARS = [
    pytest.param(loss, options, id=f"{loss}-{i}")
    for loss in LOSSES
    for i, options in enumerate(loss.variants)
    if not any(isinstance(value, Tensor) for value in options.values())
]
TENSOR_MARGINS = [LDAM, NoisedTopK]

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)


def batch(loss: Loss, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(5, N, generator=generator).to(dtype)
    return logits, random_hot(loss, 5, N, generator).to(dtype)


def still(loss: Loss) -> dict[str, float]:
    """Options that take the chance out of a loss."""
    return {"epsilon": 0.0} if loss.takes_noise else {}


def weights() -> Tensor:
    return torch.linspace(0.5, 2, N)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@each_loss
def test_a_module_answers_as_its_function(loss, reduction):
    logits, hot = batch(loss)
    for weight in (None, weights()):
        options = {"weight": weight, "reduction": reduction, **still(loss)}
        layer = loss.layer(logits, 3, **options)
        assert torch.equal(loss.forward(layer, logits, hot), loss(logits, hot, 3, **options))


@pytest.mark.parametrize(("loss", "options"), SCALARS)
def test_options_are_used_and_shown(loss, options):
    logits, hot = batch(loss)
    layer = loss.layer(logits, 3, **{**still(loss), **options})
    assert torch.equal(loss.forward(layer, logits, hot), loss(logits, hot, 3, **{**still(loss), **options}))
    for name, value in options.items():
        assert f"{name}={value}" in repr(layer)


@each_loss
def test_what_a_module_was_made_of_is_shown(loss):
    logits, _ = batch(loss)
    shown = repr(loss.layer(logits, 3, reduction="sum"))
    assert shown.startswith(f"{loss.module.__name__}(")
    assert "reduction='sum'" in shown or "reduction=sum" in shown
    assert ("k=3" in shown) == loss.takes_k
    assert (f"expected={EXPECTED}" in shown) == loss.takes_expected
    if "kind" in loss.options:
        assert loss.options["kind"] in shown


@each_loss
def test_options_are_keyword_only(loss):
    numbers = [5, N] if loss.module is ROLE else []
    numbers += [2] if loss.takes_k or loss.takes_expected else []
    with pytest.raises(TypeError, match="positional argument"):
        loss.module(*numbers, 1.0)


@each_loss
def test_a_module_refuses_what_its_function_refuses_at_the_latest_when_called(loss):
    logits, hot = batch(loss)
    with pytest.raises(ValueError, match="`reduction` must"):
        loss.forward(loss.layer(logits, reduction="average"), logits, hot)
    with pytest.raises(ValueError, match="`weight` must"):
        loss.forward(loss.layer(logits, weight=torch.ones(N + 1)), logits, hot)


@each_loss
def test_a_module_survives_every_way_of_saving_it(loss):
    logits, hot = batch(loss)
    for weight in (None, weights()):
        layer = loss.layer(logits, 3, weight=weight, **still(loss))
        expected = loss.forward(layer, logits, hot)
        for name, again in copies(layer).items():
            assert repr(again) == repr(layer), name
            assert torch.equal(loss.forward(again, logits, hot), expected), name


@each_loss
def test_the_weight_is_a_buffer_that_is_saved_with_the_module(loss):
    logits, hot = batch(loss)
    layer = loss.layer(logits, 3, weight=weights(), **still(loss))
    assert "weight" in layer.state_dict()
    assert "weight" not in dict(layer.named_parameters())
    other = loss.layer(logits, 3, weight=torch.zeros(N), **still(loss))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(loss.forward(other, logits, hot), loss.forward(layer, logits, hot))
    assert "weight" not in loss.layer(logits, 3, **still(loss)).state_dict()


@each_loss
def test_a_module_without_weight_has_no_state(loss):
    logits, _ = batch(loss)
    if loss.module is not ROLE:
        assert loss.layer(logits, 3).state_dict() == {}


@each_loss
def test_the_weight_moves_with_the_module(loss):
    logits, hot = batch(loss, torch.float64)
    layer = loss.layer(logits, 3, weight=weights(), **still(loss))
    for moved in (copy.deepcopy(layer).double(), copy.deepcopy(layer).to(torch.float64)):
        assert moved.weight.dtype == torch.float64
        assert loss.forward(moved, logits, hot).dtype == torch.float64
    assert layer.to("meta").weight.device.type == "meta"


@pytest.mark.parametrize("module", TENSOR_MARGINS)
def test_a_tensor_of_margins_is_a_buffer(module):
    loss = next(loss for loss in LOSSES if loss.module is module)
    logits, hot = batch(loss)
    layer = loss.layer(logits, 3, margin=MARGINS.float(), **still(loss))
    assert torch.equal(layer.state_dict()["margin"], MARGINS.float())
    assert not list(layer.parameters())
    expected = loss(logits, hot, 3, margin=MARGINS.float(), **still(loss))
    assert torch.equal(loss.forward(layer, logits, hot), expected)
    other = loss.layer(logits, 3, margin=torch.zeros(N), **still(loss))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(loss.forward(other, logits, hot), expected)
    assert layer.double().margin.dtype == torch.float64
    for again in copies(layer).values():
        assert torch.equal(again.margin, layer.margin)


def test_margins_for_ldam_come_from_counts():
    loss = next(loss for loss in LOSSES if loss.module is LDAM)
    logits, hot = batch(loss)
    margins = F.margins_from_counts(torch.tensor([5, 50, 500, 0, 1, 10, 100]))
    assert LDAM(margin=margins)(logits, hot).isfinite()


def test_k_of_lml_may_be_a_tensor_with_one_value_per_row():
    loss = next(loss for loss in LOSSES if loss.module is LMLNLL)
    logits, hot = batch(loss)
    k = torch.tensor([1.0, 2.0, 2.5, 3.0, 4.0])
    assert torch.equal(LMLNLL(k)(logits, hot), F.lml_nll(logits, hot, k))


@each_loss
def test_a_module_trains_a_network(loss):
    torch.manual_seed(0)
    _, hot = batch(loss)
    features, network = torch.randn(5, 4), nn.Linear(4, N)
    layer = loss.layer(hot, **still(loss))
    optimizer = torch.optim.SGD([*network.parameters(), *layer.parameters()], lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss.forward(layer, network(features), hot)
        value.backward()
        assert all(part.grad.isfinite().all() for part in network.parameters())
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("n", [N, 3000])
def test_the_noised_loss_changes_in_training_and_stays_in_evaluation(n):
    logits, target = torch.randn(4, n, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    layer = NoisedTopK(3, reduction="none", margin=100.0)
    assert layer.training
    assert not torch.equal(layer(logits, target), layer(logits, target))
    layer.eval()
    state = torch.get_rng_state()
    values = [layer(logits, target) for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[0], values[2])
    for name, again in copies(layer).items():
        assert torch.equal(again(logits, target), values[0]), name
    layer.train()
    assert not torch.equal(layer(logits, target), values[0])


def test_the_noised_loss_in_evaluation_is_still_noised():
    """A value that stays must not be one without noise: its size would not compare with that of training."""
    logits, target = torch.zeros(2000, N), torch.arange(2000) % N
    layer = NoisedTopK(1, samples=20)
    training = layer(logits, target).item()
    layer.eval()
    assert layer(logits, target).item() == pytest.approx(training, rel=0.05)
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


@pytest.fixture
def role_batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, generator=generator, requires_grad=True)
    return logits, torch.tensor([4, 0, 2]), torch.tensor([7, 2, 3])


def test_role_trains_its_estimates_only_in_the_rows_used(role_batch):
    logits, target, examples = role_batch
    layer = ROLE(10, 5, 1.5, beta=0.5)
    (name, estimates), *rest = layer.named_parameters()
    assert not rest
    assert estimates.shape == (10, 5)
    layer(logits, target, examples).backward()
    used = torch.zeros(10, dtype=torch.bool)
    used[examples] = True
    slope = estimates.grad.to_dense() if estimates.grad.is_sparse else estimates.grad
    assert (slope[~used] == 0).all()
    assert (slope[used].abs().sum(-1) > 0).all()
    assert logits.grad.abs().max() > 0
    assert list(layer.state_dict()) == [name]


def test_role_answers_as_its_function_on_the_rows_used(role_batch):
    logits, target, examples = role_batch
    layer = ROLE(10, 5, 1.5, beta=0.5, weight=torch.linspace(0.5, 2, 5), reduction="none")
    estimates = next(layer.parameters())
    with torch.no_grad():
        estimates.normal_(generator=torch.Generator().manual_seed(1))
    expected = F.role(
        logits, estimates[examples], target, 1.5, beta=0.5, weight=torch.linspace(0.5, 2, 5), reduction="none"
    )
    assert torch.equal(layer(logits, target, examples), expected)


def test_fresh_estimates_of_role_are_small_and_finite():
    estimates = next(ROLE(100, 20, 3.0).parameters())
    assert estimates.isfinite().all()
    assert estimates.abs().max() < 10


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
    assert math.isclose(proposals.grad.sum().item(), 0, abs_tol=1e-6)

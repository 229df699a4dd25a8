"""Cosines: bounded, blind to lengths, finite at zero and at the ends of the range of every precision."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from shortlist.nn import LDAM, CosineHead, NoisedTopK

LOSSES = [LDAM(margin=0.3, scale=30.0), NoisedTopK(3, epsilon=0.1, margin=0.2, scale=30.0)]
PRECISIONS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture
def head() -> CosineHead:
    torch.manual_seed(0)
    return CosineHead(7, 20)


def features(rows: int = 6) -> Tensor:
    return torch.randn(rows, 7, generator=torch.Generator().manual_seed(0))


def test_logits_are_the_scaled_cosines(head):
    expected = cosine_similarity(features()[:, None], head.weight, dim=-1)
    assert torch.allclose(head(features()), expected, atol=1e-6)
    assert head(features(1000)).abs().max() <= 1 + 1e-6
    larger = CosineHead(7, 20, scale=30.0)
    larger.load_state_dict(head.state_dict())
    assert torch.allclose(larger(features()), 30 * expected, atol=3e-5)


def test_a_direction_of_its_own_has_cosine_one(head):
    assert torch.allclose(head(3 * head.weight).diagonal(), torch.ones(20))


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_lengths_do_not_matter_where_squares_would_overflow_or_underflow(head, dtype):
    head.to(dtype)
    x = features().to(dtype)
    factors = [2.0**-10, 2.0**10] if dtype == torch.float16 else [2.0**-60, 2.0**100]
    for factor in factors:
        y = (x * factor).requires_grad_()
        logits = head(y)
        assert torch.allclose(logits, head(x), rtol=0, atol=2 * torch.finfo(dtype).eps)
        logits.sum().backward()
        assert y.grad.isfinite().all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_zero_features_have_logits_zero_and_a_finite_gradient(head, dtype):
    head.to(dtype)
    with torch.no_grad():
        head.weight[3] = 0
    x = torch.zeros(2, 7, dtype=dtype)
    x[1, 2] = 1
    x.requires_grad_()
    logits = head(x)
    assert (logits[0] == 0).all()
    assert (logits[:, 3] == 0).all()
    logits.square().sum().backward()
    (head(x) * torch.arange(20)).sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[0] != 0).any()
    assert head.weight.grad.isfinite().all()


def test_a_one_hot_vector_has_the_exact_derivative(head):
    head.double()
    x = torch.zeros(1, 7, dtype=torch.float64)
    x[0, 4] = 2
    assert torch.autograd.gradcheck(head, x.requires_grad_())


def test_a_scale_is_learned_only_if_asked():
    fixed, learned = CosineHead(7, 20, scale=16.0), CosineHead(7, 20, scale=16.0, learn_scale=True)
    assert [name for name, _ in fixed.named_parameters()] == ["weight"]
    assert sorted(name for name, _ in learned.named_parameters()) == ["scale", "weight"]
    learned.load_state_dict({"weight": fixed.weight.detach(), "scale": torch.tensor(16.0)})
    assert torch.equal(fixed(features()), learned(features()))
    learned(features()).square().sum().backward()
    assert learned.scale.grad > 0
    learned.reset_parameters()
    assert learned.scale == 16
    assert "scale=16.0" in repr(fixed)
    assert "scale=learned" in repr(learned)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_training_with_a_margin_separates_the_classes(head, loss):
    x, target = features(12), torch.arange(12) % 4
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    torch.manual_seed(0)
    first = loss(head(x), target).item()
    for _ in range(200):
        optimizer.zero_grad()
        loss(head(x), target).backward()
        optimizer.step()
    assert loss(head(x), target) < 0.5 * first

"""Which losses find the k most probable classes, by minimising their expectation over known probabilities.

The literature proves it of cross-entropy and of the calibrated hinge, and proves the contrary of the plain hinge
(Garcin, "Set-valued classification", 2023, ch. 4). The noised loss inherits it only where the noise is small
beside the margin. Truncated entropy is measured here.
"""

from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from torch import Tensor

from shortlist import functional as F

pytestmark = pytest.mark.slow

VECTORS = [
    torch.tensor(vectors, dtype=torch.float64)
    for vectors in (
        [[0.6, 0.3, 0.1], [0.4, 0.35, 0.25], [0.2, 0.35, 0.45]],
        [[0.7, 0.15, 0.1, 0.05], [0.3, 0.27, 0.23, 0.2], [0.45, 0.25, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]],
        [[0.25, 0.22, 0.2, 0.18, 0.15], [0.1, 0.3, 0.15, 0.2, 0.25]],
    )
]
"""Class probabilities, with a class above one half and without one."""


def fixed_noise(scores: Tensor) -> Tensor:
    """One draw in every order of the classes, so that the noise prefers none of them."""
    n = scores.shape[-1]
    draw = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.stack([draw[list(order)] for order in permutations(range(n))])
    return noise.reshape(len(noise), *[1] * (scores.dim() - 1), n).expand(len(noise), *scores.shape)


def noised(scores: Tensor, target: Tensor, k: int, epsilon: float = 0.1, **options) -> Tensor:
    return F.noised_topk(scores, target, k, epsilon=epsilon, noise=fixed_noise(scores), **options)


def plain(scores: Tensor, target: Tensor, k: int, **options) -> Tensor:
    return F.topk_hinge(scores, target, k, kind="plain", **options)


def cross_entropy(scores: Tensor, target: Tensor, k: int, **options) -> Tensor:
    return F.cross_entropy(scores, target, **options)


def expectation(loss: Callable[..., Tensor], scores: Tensor, probs: Tensor, k: int) -> Tensor:
    """Expected loss of each score vector ``(..., n)`` when the class is drawn from ``probs``."""
    n = scores.shape[-1]
    target = torch.arange(n).expand(scores.shape)
    return (loss(scores.unsqueeze(-2).expand(*scores.shape, n), target, k, reduction="none") * probs).sum(-1)


def minimiser(loss: Callable[..., Tensor], probs: Tensor, k: int, steps: int = 200) -> tuple[Tensor, Tensor]:
    """Best scores for each vector of probabilities, from a start in every order of the classes."""
    n = probs.shape[-1]
    starts = torch.tensor(list(permutations(range(n))), dtype=torch.float64)[:24] / 2
    scores = starts.expand(len(probs), *starts.shape).clone().requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.1)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / steps)
        optimizer.zero_grad()
        expectation(loss, scores, probs[:, None], k).sum().backward()
        optimizer.step()
    values, best = expectation(loss, scores.detach(), probs[:, None], k).min(-1)
    return scores.detach()[torch.arange(len(probs)), best], values


def lead(scores: Tensor, probs: Tensor, k: int) -> Tensor:
    """How far the lowest of the k most probable classes lies above the highest of the others."""
    ordered = scores.gather(-1, probs.expand(scores.shape).argsort(-1, descending=True))
    return ordered[..., :k].amin(-1) - ordered[..., k:].amax(-1)


def grid(n: int) -> Tensor:
    """All scores that are multiples of ½ up to 3 apart; the last class is at 0, since only differences matter."""
    steps = torch.arange(-6, 7, dtype=torch.float64) / 2
    return torch.nn.functional.pad(torch.cartesian_prod(*[steps] * (n - 1)), (0, 1))


@pytest.mark.parametrize(
    ("loss", "probs"),
    [
        pytest.param(loss, probs, id=f"{loss.__name__}-{probs.shape[-1]} classes")
        for loss in (cross_entropy, F.truncated_topk_entropy, F.topk_hinge, noised)
        for probs in VECTORS
        # Losses that are not convex have too many valleys to start in all of them.
        if probs.shape[-1] < 5 or loss in (cross_entropy, F.truncated_topk_entropy)
    ],
)
def test_the_minimiser_ranks_the_most_probable_classes_on_top(loss, probs):
    for k in range(1, probs.shape[-1]):
        scores, _ = minimiser(loss, probs, k)
        assert (lead(scores, probs, k) > 0.05).all(), k


def test_the_minimiser_of_cross_entropy_is_the_logarithm_of_the_probabilities():
    for probs in VECTORS:
        scores, values = minimiser(cross_entropy, probs, 1)
        assert torch.allclose(scores.softmax(-1), probs, atol=1e-4)
        assert torch.allclose(values, -(probs * probs.log()).sum(-1), atol=1e-6)


@pytest.mark.parametrize("probs", [*VECTORS[0], *VECTORS[1]], ids=lambda probs: str(probs.tolist()))
def test_a_wrong_top_costs_the_calibrated_hinge_what_it_misses_in_probability(probs):
    """By search over a grid that holds a minimiser: the k-th probability less the one after it."""
    scores, ordered = grid(len(probs)), probs.sort(descending=True).values
    for k in range(1, len(probs)):
        values, right = expectation(F.topk_hinge, scores, probs, k), lead(scores, probs, k) > 0
        assert values[right].min().item() == pytest.approx(ordered[k:].sum().item())
        cost = values[~right].min() - values[right].min()
        assert cost.item() == pytest.approx((ordered[k - 1] - ordered[k]).item())


@pytest.mark.parametrize(("probs", "k"), [([0.4, 0.35, 0.25], 1), ([0.3, 0.27, 0.23, 0.2], 2)], ids=str)
def test_the_plain_hinge_misses_the_most_probable_classes(probs, k):
    """Without a class above one half, ties are cheaper than any scores with the right classes on top."""
    probs = torch.tensor(probs, dtype=torch.float64)
    scores = grid(len(probs))
    values, right = expectation(plain, scores, probs, k), lead(scores, probs, k) > 0
    assert values[right].min() - values.min() > 0.05
    found, value = minimiser(plain, probs[None], k)
    assert value.item() == pytest.approx(values.min().item(), abs=1e-3)
    assert lead(found, probs, k).item() < 0.01


def test_noise_as_large_as_the_margin_hides_the_most_probable_classes():
    """The least of four normal numbers is below -1 on average: all tied, and nothing is lost already."""
    tied, probs = torch.zeros(4, dtype=torch.float64), torch.tensor([0.7, 0.15, 0.1, 0.05], dtype=torch.float64)
    noise = torch.randn(5000, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = F.noised_topk(tied.expand(4, 4), torch.arange(4), 3, epsilon=1.0, noise=noise, reduction="none")
    assert (loss * probs).sum() == 0
    narrow = F.noised_topk(tied.expand(4, 4), torch.arange(4), 3, epsilon=0.1, noise=noise, reduction="none")
    assert (narrow * probs).sum() > 0.5

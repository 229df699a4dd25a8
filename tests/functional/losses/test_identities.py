"""Identities, limits and invariances of the losses."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.functional import cross_entropy as torch_cross_entropy

from shortlist import functional as F
from tests.contracts_losses import LOSSES

N = 8
quick = settings(derandomize=True, deadline=None, max_examples=25)
OF_EACH_LOGIT = ("bce", "asymmetric", "rml", "assume_negative", "expected_positive", "role", "average_k")
SHIFT_INVARIANT = [loss for loss in LOSSES if loss.function.__name__ not in OF_EACH_LOGIT]


@pytest.fixture
def logits(fresh) -> Tensor:
    return 3 * torch.randn(6, N, generator=fresh, dtype=torch.float64)


@pytest.fixture
def classes(fresh) -> Tensor:
    return torch.randint(N, (6,), generator=fresh)


@pytest.fixture
def hot(fresh) -> Tensor:
    """One to four positives in each row."""
    ranks = torch.rand(6, N, generator=fresh).argsort(-1).argsort(-1)
    return (ranks < torch.tensor([1, 2, 3, 4, 2, 1])[:, None]).double()


def slope(value: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value.sum(), inputs)


def close(left: Tensor, right: Tensor, tolerance: float = 1e-11) -> bool:
    return torch.allclose(left, right, rtol=tolerance, atol=tolerance)


NOISE = torch.randn(3, 6, N, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
ONE_CLASS = {
    "cross-entropy is torch's": (F.cross_entropy, torch_cross_entropy),
    "truncated entropy of one label is cross-entropy": (
        lambda x, y, **o: F.truncated_topk_entropy(x, y, 1, **o),
        F.cross_entropy,
    ),
    "focal loss without focus is cross-entropy": (lambda x, y, **o: F.focal(x, y, gamma=0.0, **o), F.cross_entropy),
    "LDAM without margin is cross-entropy of scaled logits": (
        lambda x, y, **o: F.ldam(x, y, margin=0.0, scale=3.0, **o),
        lambda x, y, **o: F.cross_entropy(3 * x, y, **o),
    ),
    "smooth SVM of one label is cross-entropy with a margin": (
        lambda x, y, **o: F.smooth_topk_svm(x, y, 1, temperature=0.5, margin=0.7, **o),
        lambda x, y, **o: 0.5 * F.ldam(x, y, margin=0.7, scale=2.0, **o),
    ),
    "sparsemax loss is a Fenchel-Young loss": (
        lambda x, y, **o: F.sparsemax_loss(x, y, reduction="none"),
        lambda x, y, **o: F.fenchel_young_loss(x, y, F.SparsemaxPotential()),
    ),
    **{
        f"noised loss without noise is the calibrated hinge, k={k}": (
            lambda x, y, k=k, **o: F.noised_topk(x, y, k, epsilon=0.0, noise=NOISE, **o),
            lambda x, y, k=k, **o: F.topk_hinge(x, y, k, kind="calibrated", **o),
        )
        for k in (1, 5, N)
    },
    "the scale of the noised loss multiplies it": (
        lambda x, y, **o: F.noised_topk(x, y, 2, noise=NOISE, scale=30.0, **o),
        lambda x, y, **o: 30 * F.noised_topk(x, y, 2, noise=NOISE, **o),
    ),
}
"""Two losses of logits and classes that are equal, weights and reductions included."""

SETS = {
    "BCE is torch's": (F.bce, binary_cross_entropy_with_logits),
    "asymmetric loss without focus or clip is BCE": (
        lambda x, hot, **o: F.asymmetric(x, hot, gamma_positive=0.0, gamma_negative=0.0, clip=0.0, **o),
        F.bce,
    ),
    "two-way loss of bool labels": (lambda x, hot, **o: F.two_way(x, hot.bool(), **o), F.two_way),
    "ROLE is symmetric": (
        lambda x, hot, **o: F.role(x, NOISE[0], hot, 2.0, **o),
        lambda x, hot, **o: F.role(NOISE[0], x, hot, 2.0, **o),
    ),
}
"""The same for logits and multi-hots."""

ONE_POSITIVE = {
    "sparse-top loss": (F.sparse_top_loss, F.sparsemax_loss),
    "multilabel softmax": (F.multilabel_softmax, F.cross_entropy),
    "assume negative": (
        F.assume_negative,
        lambda x, y, **o: _weighted_bce(x, torch.eye(N, dtype=x.dtype)[y]),
    ),
    **{
        f"multilabel truncated entropy, k={k}": (
            lambda x, y, k=k, **o: F.multilabel_truncated_topk_entropy(x, y, k, **o),
            lambda x, y, k=k, **o: F.truncated_topk_entropy(x, y, k, **o),
        )
        for k in (1, 3, N)
    },
}
"""Losses of sets, and what they are for one positive."""


def _weighted_bce(x: Tensor, truth: Tensor) -> Tensor:
    weights = truth + (1 - truth) / (N - 1)
    return binary_cross_entropy_with_logits(x, truth, weights, reduction="none").sum(-1)


def agree(left: Callable[..., Tensor], right: Callable[..., Tensor], x: Tensor, target: Tensor, **options) -> bool:
    x = x.clone().requires_grad_()
    values = [function(x, target, **options) for function in (left, right)]
    slopes = [slope(value, x)[0] for value in values]
    return close(*values, 1e-10) and close(*slopes, 1e-10)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", [*ONE_CLASS, *SETS])
def test_two_losses_are_equal(name, reduction, logits, classes, hot, fresh):
    losses, target = (ONE_CLASS[name], classes) if name in ONE_CLASS else (SETS[name], hot)
    for weight in (None, torch.rand(N, generator=fresh, dtype=torch.float64)):
        assert agree(*losses, logits, target, weight=weight, reduction=reduction)


@pytest.mark.parametrize("name", ONE_POSITIVE)
def test_a_loss_of_sets_is_that_of_one_class_for_one_positive(name, logits, classes):
    assert agree(*ONE_POSITIVE[name], logits, classes, reduction="none")


def test_noised_loss_tends_to_the_calibrated_hinge(logits, classes, fresh):
    noise = torch.randn(5, 6, N, generator=fresh, dtype=torch.float64)
    hinge = F.topk_hinge(logits, classes, 2, reduction="none")
    for epsilon in (0.1, 1e-3, 1e-6):
        noised = F.noised_topk(logits, classes, 2, epsilon=epsilon, noise=noise, reduction="none")
        assert (noised - hinge).abs().max() <= 5 * epsilon


@pytest.mark.parametrize("k", [1, 2, 5, N - 1])
def test_smooth_svm_tends_to_the_hard_one(logits, classes, k):
    hard = F.smooth_topk_svm(logits, classes, k, temperature=0, reduction="none")
    row = torch.arange(6)
    others = logits.scatter(1, classes[:, None], -math.inf).sort(descending=True).values[:, k - 1]
    assert close(hard, (1 + (others - logits[row, classes]) / k).clamp(min=0))
    subsets = math.comb(N, k)
    for tau in (0.1, 1e-2, 1e-3):
        smooth = F.smooth_topk_svm(logits, classes, k, temperature=tau, reduction="none")
        assert (smooth - hard).abs().max() <= tau * math.log(subsets) + 1e-12


def test_the_gradient_of_smooth_svm_tends_to_that_of_the_hard_one(logits, classes):
    logits.requires_grad_()
    hard, smooth = (slope(F.smooth_topk_svm(logits, classes, 2, temperature=t), logits)[0] for t in (0, 1e-3))
    assert torch.allclose(hard, smooth, atol=1e-6)


@quick
@given(seed=st.integers(0, 999), size=st.integers(1, 5), scale=st.floats(0.1, 20))
def test_sparse_top_loss_is_not_negative_and_has_prediction_minus_target_as_gradient(seed, size, scale):
    generator = torch.Generator().manual_seed(seed)
    rows = (scale * torch.randn(4, N, generator=generator, dtype=torch.float64)).requires_grad_()
    target = (torch.rand(4, N, generator=generator).argsort(-1).argsort(-1) < size).double()
    loss = F.sparse_top_loss(rows, target, reduction="none")
    assert (loss >= -1e-11 * scale).all()
    assert close(slope(loss, rows)[0], F.sparse_top(rows.detach(), size) - target)


@quick
@given(seed=st.integers(0, 999), share=st.floats(0, 1), size=st.integers(1, 4))
def test_sparse_top_loss_is_convex_along_segments(seed, share, size):
    generator = torch.Generator().manual_seed(seed)
    ends = 3 * torch.randn(2, 4, N, generator=generator, dtype=torch.float64)
    target = (torch.rand(4, N, generator=generator).argsort(-1).argsort(-1) < size).double()
    between = share * ends[0] + (1 - share) * ends[1]
    first, second, inner = (F.sparse_top_loss(x, target, reduction="none") for x in (*ends, between))
    assert (inner <= share * first + (1 - share) * second + 1e-11).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sparse_top_loss_is_zero_exactly_at_its_optimum(hot, dtype):
    """Zero iff every positive lies at least 1 above every negative: exactly so, but for rounding at 1 itself."""
    optimum = (2 * hot - 0.5 * torch.arange(N) % 1).to(dtype)
    assert (F.sparse_top_loss(optimum, hot, reduction="none") == 0).all()
    touching = hot.to(dtype)
    assert F.sparse_top_loss(touching, hot, reduction="none").abs().max() <= torch.finfo(dtype).eps
    lowered = touching.clone()
    lowered[torch.arange(6), hot.argmax(-1)] -= 0.25
    assert (F.sparse_top_loss(lowered, hot, reduction="none") > 0).all()


@pytest.mark.parametrize("loss", SHIFT_INVARIANT, ids=str)
def test_a_constant_added_to_every_logit_changes_nothing(loss, logits, classes, hot):
    target = classes if loss.one_class else hot
    for shift in (3.0, -50.0):
        assert close(loss(logits + shift, target), loss(logits, target), 1e-9)


def test_the_noised_order_statistic_has_the_value_and_gradient_of_the_worked_example():
    x = torch.tensor([2.4, 2.6, 2.3, 0.5], dtype=torch.float64, requires_grad=True)
    noise = torch.tensor([[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]], dtype=torch.float64)
    value = F.noised_kth_largest(x, 2, epsilon=1.0, noise=noise)
    assert value.item() == pytest.approx((2.5 + 2.5 + 2.4) / 3, rel=1e-12)
    assert slope(value, x)[0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], rel=1e-12)


@pytest.mark.parametrize("k", [1, 2.5, 5])
def test_the_gradient_of_the_lml_likelihood_is_the_closed_form(logits, hot, k):
    logits.requires_grad_()
    got = slope(F.lml_nll(logits, hot, k, reduction="none"), logits)[0]
    p = F.lml(logits.detach(), k)
    q = p * (1 - p)
    rest = ((1 - p) * hot).sum(-1, keepdim=True)
    assert close(got, -(1 - p) * hot + q / q.sum(-1, keepdim=True) * rest, 1e-10)


@pytest.mark.parametrize("k", [1, 2, 4, N - 1])
def test_the_gradient_of_truncated_entropy_is_a_softmax_over_what_is_kept(logits, classes, k):
    logits.requires_grad_()
    got = slope(F.truncated_topk_entropy(logits, classes, k, reduction="none"), logits)[0]
    truth = torch.eye(N, dtype=torch.float64)[classes].bool()
    ranks = logits.detach().masked_fill(truth, -math.inf).argsort(descending=True).argsort()
    kept = logits.detach().masked_fill((ranks < k - 1) & ~truth, -math.inf)
    assert close(got, kept.softmax(-1) - truth.double())


def test_average_k_is_its_equation_on_a_batch(logits, classes, fresh):
    """CE of the proposals, plus positives, candidates and rest of the whole batch, each with its own divisor."""
    proposals = 2 * torch.randn(6, N, generator=fresh, dtype=torch.float64)
    rows, k, alpha = torch.arange(6), 3, 0.7
    probs = proposals.softmax(-1)
    probs[rows, classes] = -1
    chosen = torch.zeros(6 * N, dtype=torch.bool)
    chosen[probs.flatten().topk((k - 1) * 6).indices] = True
    chosen = chosen.reshape(6, N)
    rest = ~chosen
    rest[rows, classes] = False
    log_p, log_not = logits.sigmoid().log(), (-logits).sigmoid().log()
    expected = torch_cross_entropy(proposals, classes) - log_p[rows, classes].mean()
    expected = expected - alpha / ((k - 1) * 6) * log_p[chosen].sum() - alpha / ((N - k) * 6) * log_not[rest].sum()
    assert close(F.average_k(logits, proposals, classes, k, alpha=alpha), expected)


def test_average_k_sends_no_gradient_through_the_choice_of_candidates(logits, classes, fresh):
    proposals = torch.randn(6, N, generator=fresh, dtype=torch.float64, requires_grad=True)
    got = slope(F.average_k(logits, proposals, classes, 3), proposals)[0]
    assert close(got, slope(torch_cross_entropy(proposals, classes), proposals)[0])


def test_expected_positive_pushes_every_row_by_the_mean_of_the_batch(logits, hot):
    """The count is the batch's: its gradient reaches labels of every row, whichever row's value is asked."""
    logits.requires_grad_()
    first = F.expected_positive(logits, hot, 2.0, beta=0.5, reduction="none")[0]
    got = slope(first, logits)[0]
    probs = logits.detach().sigmoid()
    expected = 2 * 0.5 * (probs.sum() / 6 - 2.0) * probs * (1 - probs) / 6
    expected[0] -= hot[0] * (1 - probs[0])
    assert close(got, expected)


def test_role_holds_the_other_side_constant(logits, hot, fresh):
    estimates = torch.randn(6, N, generator=fresh, dtype=torch.float64, requires_grad=True)
    logits.requires_grad_()
    got = slope(F.role(logits, estimates, hot, 2.0, beta=0.5), logits, estimates)
    for mine, other, gradient in ((logits, estimates, got[0]), (estimates, logits, got[1])):
        soft = other.detach().sigmoid()
        taught = binary_cross_entropy_with_logits(mine, soft, reduction="sum") / len(mine)
        alone = F.expected_positive(mine, hot, 2.0, beta=0.5) + taught
        assert close(gradient, slope(alone / 2, mine)[0])


def test_role_weighs_an_observed_positive_like_an_entry_of_the_cross_terms(logits, hot, fresh):
    """As the authors' code: one matrix of entries and its mean, and a penalty on the share of predicted labels."""
    estimates = torch.randn(6, N, generator=fresh, dtype=torch.float64)
    p, q, penalty = logits.sigmoid(), estimates.sigmoid(), 3.0
    entries = torch.where(hot.bool(), -p.log() - q.log(), 0.0)
    entries = entries - q * p.log() - (1 - q) * (1 - p).log() - p * q.log() - (1 - p) * (1 - q).log()
    shares = sum(((side.sum(-1).mean() - 2.0) / N) ** 2 for side in (p, q))
    theirs = (entries.mean() + penalty * shares) / 2
    assert close(F.role(logits, estimates, hot, 2.0, beta=penalty / N), N * theirs)


def test_two_way_is_the_sum_of_the_sample_wise_and_the_class_wise_loss(logits, hot):
    whole, samples, classes = (F.two_way(logits, hot, kind=kind) for kind in ("two-way", "sample", "class"))
    assert close(whole, samples + classes)
    across = F.two_way(logits.T.contiguous(), hot.T.contiguous(), kind="sample")
    assert close(classes, across)


def test_a_clip_that_float32_does_not_hold_is_refused():
    with pytest.raises(ValueError, match="`clip` must be 0 or at least 1e-30; got 1e-40"):
        F.asymmetric(torch.zeros(1, 2), torch.zeros(1, 2), clip=1e-40)
    high = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = F.asymmetric(high, torch.zeros(1, 2), gamma_negative=1, clip=1e-30, reduction="sum")
    assert loss.isfinite()
    assert torch.autograd.grad(loss, high)[0].isfinite().all()


def test_the_focus_of_the_asymmetric_loss_ignores_easy_negatives_below_the_clip():
    logits = torch.tensor([[-5.0, -3.1, 2.0]], requires_grad=True)
    values = F.asymmetric(logits, torch.tensor([[0.0, 0.0, 1.0]]), clip=0.05, reduction="none")
    assert (values[0, :2] == 0).all()
    assert (slope(values, logits)[0][0, :2] == 0).all()

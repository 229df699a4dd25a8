"""What the losses are known to equal, to tend to, and to leave unchanged."""

import math

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


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy_is_that_of_torch(logits, classes, reduction, fresh):
    weight = torch.rand(N, generator=fresh, dtype=torch.float64)
    for w in (None, weight):
        options = {"weight": w, "reduction": reduction}
        assert close(F.cross_entropy(logits, classes, **options), torch_cross_entropy(logits, classes, **options))


def test_truncated_entropy_of_one_label_is_cross_entropy(logits, classes):
    truncated, plain = (f(logits, classes, reduction="none") for f in (_truncated_at_one, F.cross_entropy))
    assert close(truncated, plain)


def _truncated_at_one(logits: Tensor, target: Tensor, **options) -> Tensor:
    return F.truncated_topk_entropy(logits, target, 1, **options)


@pytest.mark.parametrize("k", range(1, N + 1))
def test_multilabel_truncated_entropy_of_one_positive_is_the_single_label_one(logits, classes, k):
    many, single = (
        f(logits, classes, k, reduction="none") for f in (F.multilabel_truncated_topk_entropy, F.truncated_topk_entropy)
    )
    assert close(many, single)


@pytest.mark.parametrize("k", [1, 2, 5, N - 1, N])
def test_noised_loss_without_noise_is_the_calibrated_hinge(logits, classes, k, fresh):
    hinge = F.topk_hinge(logits, classes, k, kind="calibrated", reduction="none")
    for options in ({}, {"samples": 3}, {"noise": torch.randn(2, 6, N, generator=fresh, dtype=torch.float64)}):
        assert close(F.noised_topk(logits, classes, k, epsilon=0.0, reduction="none", **options), hinge)


def test_noised_loss_tends_to_the_calibrated_hinge(logits, classes, fresh):
    noise = torch.randn(5, 6, N, generator=fresh, dtype=torch.float64)
    hinge = F.topk_hinge(logits, classes, 2, reduction="none")
    for epsilon in (0.1, 1e-3, 1e-6):
        noised = F.noised_topk(logits, classes, 2, epsilon=epsilon, noise=noise, reduction="none")
        assert (noised - hinge).abs().max() <= 5 * epsilon


def test_the_scale_of_the_noised_loss_multiplies_it(logits, classes, fresh):
    noise = torch.randn(5, 6, N, generator=fresh, dtype=torch.float64)
    one, many = (F.noised_topk(logits, classes, 2, noise=noise, scale=s, reduction="none") for s in (1.0, 30.0))
    assert close(many, 30 * one)


def test_asymmetric_loss_without_focus_or_clip_is_binary_cross_entropy(logits, hot):
    options = {"gamma_positive": 0.0, "gamma_negative": 0.0, "clip": 0.0}
    for reduction in ("none", "sum", "mean"):
        plain = F.bce(logits, hot, reduction=reduction)
        assert close(F.asymmetric(logits, hot, reduction=reduction, **options), plain)
        assert close(plain, binary_cross_entropy_with_logits(logits, hot, reduction=reduction))


def test_weighted_binary_cross_entropy_is_that_of_torch(logits, hot, fresh):
    weight = torch.rand(N, generator=fresh, dtype=torch.float64)
    for reduction in ("none", "sum", "mean"):
        options = {"weight": weight, "reduction": reduction}
        assert close(F.bce(logits, hot, **options), binary_cross_entropy_with_logits(logits, hot, **options))


def test_focal_loss_without_focus_is_cross_entropy(logits, classes):
    assert close(F.focal(logits, classes, gamma=0.0), F.cross_entropy(logits, classes))


def test_ldam_without_margin_is_cross_entropy_of_scaled_logits(logits, classes):
    assert close(F.ldam(logits, classes, margin=0.0, scale=3.0), F.cross_entropy(3 * logits, classes))


def test_smooth_svm_of_one_label_is_cross_entropy_with_a_margin(logits, classes):
    """z = e^(x/τ): τ log(1 + Σ e^((α + x_j - x_y)/τ))."""
    for tau in (0.5, 1.0, 2.0):
        smooth = F.smooth_topk_svm(logits, classes, 1, temperature=tau, margin=0.7, reduction="none")
        assert close(smooth, tau * F.ldam(logits, classes, margin=0.7, scale=1 / tau, reduction="none"), 1e-10)


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


def test_sparsemax_loss_is_the_sparse_top_loss_of_one_class(logits, classes):
    one, many = (f(logits, classes, reduction="none") for f in (F.sparsemax_loss, F.sparse_top_loss))
    assert close(one, many)
    assert close(one, F.fenchel_young_loss(logits, classes, F.SparsemaxPotential()))


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
        alone = F.expected_positive(mine, hot, 2.0, beta=0.5) + binary_cross_entropy_with_logits(mine, soft)
        assert close(gradient, slope(alone / 2, mine)[0])


def test_role_is_the_same_seen_from_either_side(logits, hot, fresh):
    estimates = torch.randn(6, N, generator=fresh, dtype=torch.float64)
    assert close(F.role(logits, estimates, hot, 2.0), F.role(estimates, logits, hot, 2.0))


def test_two_way_is_the_sum_of_the_sample_wise_and_the_class_wise_loss(logits, hot):
    whole, samples, classes = (F.two_way(logits, hot, kind=kind) for kind in ("two-way", "sample", "class"))
    assert close(whole, samples + classes)
    across = F.two_way(logits.T.contiguous(), hot.T.contiguous(), kind="sample")
    assert close(classes, across)


def test_two_way_answers_alike_for_bool_and_floating_labels(logits, hot):
    assert torch.equal(F.two_way(logits, hot.bool()), F.two_way(logits, hot))


def test_warp_of_one_positive_and_one_negative_is_a_hinge(fresh):
    x = torch.randn(20, 2, generator=fresh, dtype=torch.float64)
    hinge = (1 - x[:, 0] + x[:, 1]).clamp(min=0)
    assert close(F.warp(x, torch.zeros(20, dtype=torch.int64), reduction="none"), hinge)


def test_assume_negative_is_binary_cross_entropy_with_weights(logits, classes):
    truth = torch.eye(N, dtype=torch.float64)[classes]
    weights = truth + (1 - truth) / (N - 1)
    expected = binary_cross_entropy_with_logits(logits, truth, weights, reduction="none").sum(-1)
    assert close(F.assume_negative(logits, classes, reduction="none"), expected)


def test_the_focus_of_the_asymmetric_loss_ignores_easy_negatives_below_the_clip():
    logits = torch.tensor([[-5.0, -3.1, 2.0]], requires_grad=True)
    values = F.asymmetric(logits, torch.tensor([[0.0, 0.0, 1.0]]), clip=0.05, reduction="none")
    assert (values[0, :2] == 0).all()
    assert (slope(values, logits)[0][0, :2] == 0).all()

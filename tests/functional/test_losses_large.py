"""Losses on hundreds of labels agree, in value and gradient, with plain dense formulas differentiated by autograd.

The references of ``tests.reference`` enumerate, so their rows are short. Shortcuts for long rows show here.
"""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from shortlist import functional as F
from shortlist import targets
from tests.contracts_losses import EXPECTED, LOSSES, Loss

ROWS, N = 12, 300
INF = math.inf
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


def only(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, -INF)


def own(x: Tensor, present: Tensor) -> Tensor:
    return x.masked_fill(~present, 0).sum(-1)


def descending(x: Tensor) -> Tensor:
    return x.sort(-1, descending=True).values


def cross_entropy(x, present, known, k, loss):
    return only(x, known).logsumexp(-1) - own(x, present)


def focal(x, present, known, k, loss):
    entropy = cross_entropy(x, present, known, k, loss)
    return (1 - (-entropy).exp()) ** 2 * entropy


def ldam(x, present, known, k, loss):
    scale, margin = loss.options["scale"], loss.options["margin"]
    return cross_entropy(scale * (x - margin * present.to(x.dtype)), present, known, k, loss)


def truncated_topk_entropy(x, present, known, k, loss):
    rivals = descending(only(x, known & ~present))[:, k - 1 :]
    return (rivals - own(x, present)[:, None]).exp().sum(-1).log1p()


def topk_hinge(x, present, known, k, loss):
    if loss.options["kind"] == "convex":
        rival = descending(only(x + ~present, known))[:, :k].mean(-1)
        return (rival - own(x, present)).relu()
    kept, place = (known & ~present, k - 1) if loss.options["kind"] == "plain" else (known, k)
    return (1 + descending(only(x, kept))[:, place] - own(x, present)).relu()


def smooth_topk_svm(x, present, known, k, loss):
    z = only(x, known & ~present) / k
    sums = torch.full((len(x), k + 1), -INF, dtype=x.dtype)
    sums[:, 0] = 0
    for column in z.clamp(min=-1e6).unbind(-1):  # -inf + -inf has no gradient
        grown = torch.logaddexp(sums[:, 1:].clamp(min=-1e6), column[:, None] + sums[:, :-1].clamp(min=-1e6))
        sums = torch.cat([sums[:, :1], grown], -1)
    return softplus(1 + sums[:, k] - sums[:, k - 1] - own(x, present) / k, threshold=1000)


def noised_topk(x, present, known, k, loss):
    rival = descending(only(x, known) + loss.noise(x))[..., k].mean(0)
    return (1 + rival - own(x, present)).relu()


def lml_nll(x, present, known, k, loss):
    """The root by bisection; one Newton step from it carries its derivative."""
    x = only(x, known)
    low, high = (torch.full((len(x), 1), end, dtype=x.dtype) for end in (-1e3, 1e3))
    for _ in range(100):
        middle = (low + high) / 2
        above = (x.detach() + middle).sigmoid().sum(-1, keepdim=True) > k
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    p = (x + low).sigmoid()
    nu = low - (p.sum(-1, keepdim=True) - k) / (p * (1 - p)).sum(-1, keepdim=True).detach()
    return -logsigmoid(torch.where(present, x, 0) + nu).masked_fill(~present, 0).sum(-1)


def multilabel_softmax(x, present, known, k, loss):
    terms = only(x, known).logsumexp(-1, keepdim=True) - x
    return terms.masked_fill(~present, 0).sum(-1) / present.sum(-1)


def multilabel_truncated_topk_entropy(x, present, known, k, loss):
    rivals = descending(only(x, known & ~present))
    dropped = torch.arange(N) < (k - present.sum(-1, keepdim=True)).clamp(min=0)
    rivals = rivals.masked_fill(dropped, -INF).logsumexp(-1, keepdim=True)
    return softplus(rivals - x, threshold=1000).masked_fill(~present, 0).sum(-1)


def contrast(x, present, absent):
    counts = present.any(-1) & absent.any(-1)
    x, present, absent = x[counts], present[counts], absent[counts]
    excess = only(x, absent).logsumexp(-1) + 4 * only(-x / 4, present).logsumexp(-1)
    return counts, softplus(excess, threshold=1000)


def two_way(x, present, known, k, loss):
    kind, absent = loss.options["kind"], known & ~present
    rows, columns = contrast(x, present, absent), contrast(x.T, present.T, absent.T)
    shared = columns[1].mean() if kind == "two-way" else 0
    counts, terms = columns if kind == "class" else rows
    return torch.zeros(len(counts), dtype=x.dtype).masked_scatter(counts, terms) + shared


def sparse_top_loss(x, present, known, k, loss):
    """The projection by bisection; its value is stationary in p, so that p is held constant."""
    y, size = only(x, known).detach(), present.sum(-1, keepdim=True)
    low, high = (torch.full((len(x), 1), end, dtype=x.dtype) for end in (-1e3, 1e3))
    for _ in range(100):
        middle = (low + high) / 2
        more = (y - middle).clamp(0, 1).sum(-1, keepdim=True) > size
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    p = (y - low).clamp(0, 1)
    return (p * x + p * (1 - p) / 2).sum(-1) - own(x, present)


def bce(x, present, known, k, loss):
    return torch.where(present, -logsigmoid(x), -logsigmoid(-x)).masked_fill(~known, 0)


def asymmetric(x, present, known, k, loss):
    shifted = (x.sigmoid() - 0.05).clamp(min=0)
    return torch.where(present, -logsigmoid(x), -(shifted**4) * (1 - shifted).log()).masked_fill(~known, 0)


def pairs(x, present, known):
    """Whether a pair is of a positive and a negative, the difference of its logits, and the weight of its rank."""
    valid = present[:, :, None] & (known & ~present)[:, None, :]
    gap = x[:, :, None] - x[:, None, :]
    ranks = ((gap < 1) & valid).sum(-1)
    harmonic = torch.cat([torch.zeros(1), 1 / torch.arange(1, N + 1, dtype=x.dtype)]).cumsum(0)
    return valid, gap, harmonic[ranks]


def warp(x, present, known, k, loss):
    valid, gap, weight = pairs(x, present, known)
    return ((1 - gap).relu().masked_fill(~valid, 0).sum(-1) * weight).sum(-1)


def rml(x, present, known, k, loss):
    def ramp(t: Tensor) -> Tensor:
        return (1 - t).relu() - (-0.8 - t).relu()

    valid, gap, weight = pairs(x, present, known)
    ranked = (ramp(gap).masked_fill(~valid, 0).sum(-1) * weight).sum(-1)
    return ranked + 2 * ramp(torch.where(present, x, -x)).masked_fill(~known, 0).sum(-1)


def assume_negative(x, present, known, k, loss):
    return (bce(x, present, known, k, loss) * torch.where(present, 1, 1 / (x.new_tensor(N) - 1))).sum(-1)


def expected_positive(x, present, known, k, loss):
    count = x.sigmoid().masked_fill(~known, 0).sum() / ROWS
    return -logsigmoid(x).masked_fill(~present, 0).sum(-1) + (count - EXPECTED) ** 2


def role(x, present, known, k, loss):
    def crossed(mine: Tensor, other: Tensor) -> Tensor:
        share = other.detach().sigmoid()
        terms = -share * logsigmoid(mine) - (1 - share) * logsigmoid(-mine)
        return terms.masked_fill(~known, 0).sum(-1) / known.sum(-1)

    theta = loss.second(x)
    both = sum(expected_positive(part, present, known, k, loss) for part in (x, theta))
    return (both + crossed(x, theta) + crossed(theta, x)) / 2


def average_k(x, present, known, k, loss):
    z = only(loss.second(x), known)
    scores = only(z.softmax(-1), known & ~present).flatten()
    chosen = torch.zeros(ROWS * N, dtype=torch.bool).index_fill(0, scores.topk((k - 1) * ROWS).indices, True)
    chosen = chosen.reshape(ROWS, N)
    up = present + chosen.to(x.dtype) / (k - 1)
    down = (known & ~present & ~chosen).to(x.dtype) / (N - k)
    return z.logsumexp(-1) - own(z, present) - (up * logsigmoid(x) + down * logsigmoid(-x)).sum(-1)


PLAIN = {function.__name__: function for function in (cross_entropy, focal, ldam, truncated_topk_entropy, topk_hinge)}
PLAIN |= {function.__name__: function for function in (smooth_topk_svm, noised_topk, lml_nll, two_way, bce, asymmetric)}
PLAIN |= {function.__name__: function for function in (multilabel_truncated_topk_entropy, sparse_top_loss, warp, rml)}
PLAIN |= {function.__name__: function for function in (assume_negative, expected_positive, role, average_k)}
PLAIN |= {"multilabel_softmax": multilabel_softmax}
PLAIN["sparsemax_loss"] = sparse_top_loss


def value_and_gradient(function, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = function(x)
    upstream = torch.linspace(0.5, 1.5, value.numel()).reshape(value.shape).to(value.dtype)
    return value.detach().double(), torch.autograd.grad(value, x, upstream)[0].double()


WITH_FORMULA = [loss for loss in LOSSES if loss.function.__name__ in PLAIN]
"""A new loss needs a formula here only if it takes shortcuts for long rows."""


def test_every_formula_belongs_to_a_loss():
    assert set(PLAIN) == {loss.function.__name__ for loss in WITH_FORMULA}


def batch(loss: Loss, generator: torch.Generator, scale: float) -> tuple[Tensor, Tensor]:
    logits = scale * torch.randn(ROWS, N, generator=generator, dtype=torch.float64)
    sizes = torch.ones(ROWS, 1) if loss.one_class else torch.arange(1, ROWS + 1)[:, None] ** 2
    hot = (torch.rand(ROWS, N, generator=generator).argsort(-1).argsort(-1) < sizes).double()
    unknown = (torch.rand(ROWS, N, generator=generator) < 0.1) & (hot == 0)
    unknown[::2] = False
    return logits.float().double(), hot.masked_fill(unknown, -1)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("scale", [0.5, 4.0])
@pytest.mark.parametrize("loss", WITH_FORMULA, ids=str)
def test_long_rows_agree_with_the_plain_formula_in_value_and_gradient(loss, scale, dtype, fresh):
    logits, hot = batch(loss, fresh, scale)
    plain = PLAIN[loss.function.__name__]
    for k in (1, 5, 40) if loss.takes_k else (1,):
        if k == 1 and loss.partner:
            continue
        expected, slope = value_and_gradient(lambda x, k=k: plain(x, hot > 0, hot >= 0, k, loss), logits)
        got, got_slope = value_and_gradient(lambda x, k=k: loss(x, hot, k, reduction="none"), logits.to(dtype))
        assert (got - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max(), k
        assert (got_slope - slope).abs().max() <= TOLERANCE[dtype] * slope.abs().max(), k


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_smooth_svm_holds_for_ten_thousand_labels_and_sets_of_a_hundred(dtype):
    n, k = 10_000, 100
    x = 3 * torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[7] = 4.0
    rest = torch.cat([x[:7], x[8:]]) / k
    log_sums = torch.full((k + 1,), -torch.inf, dtype=torch.float64)
    log_sums[0] = 0
    for value in rest:  # the polynomials with one more label each
        log_sums[1:] = torch.logaddexp(log_sums[1:], log_sums[:-1] + value)
    expected = softplus(1 + log_sums[k] - log_sums[k - 1] - x[7] / k)
    logits = x.to(dtype).unsqueeze(0).requires_grad_()
    loss = F.smooth_topk_svm(logits, torch.tensor([7]), k)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5 if dtype == torch.float32 else 1e-9, atol=0)
    loss.backward()
    assert logits.grad.isfinite().all()
    assert abs(logits.grad.sum()) < 1e-6  # what the true class loses, its rivals gain


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_thousands_of_positives_in_a_row_add_up_to_all_digits(layout):
    generator = torch.Generator().manual_seed(0)
    x, hot = torch.randn(2, 30_000, generator=generator), torch.rand(2, 30_000, generator=generator) < 0.09
    target = targets.to_sparse(hot, 30_000, dtype=torch.float32, layout=layout)
    for loss in (lambda x: F.lml_nll(x, target, 50), lambda x: F.bce(x, target)):
        single, double = x.clone().requires_grad_(), x.double().requires_grad_()
        value, wanted = loss(single), loss(double)
        value.backward()
        wanted.backward()
        assert abs(value.item() / wanted.item() - 1) < 5e-7
        assert (single.grad - double.grad).norm() < 5e-7 * double.grad.norm()

"""Plain versions of four losses, each computed as in its research code."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import one_hot, pad, softplus

from benchmarks.published import BracketingLML

NEGLIGIBLE = -1e4
"""Logit of the labels that fill up a power of two: finite, since gradients of log-sum-exps of -inf are not numbers."""


def bracketing_lml_nll(logits: Tensor, target: Tensor, k: int) -> Tensor:
    """Amos, Koltun, Kolter (2019): ``-log(p_y + 1e-8)``, p by bracketing."""
    p: Tensor = BracketingLML.apply(logits, k)
    return -(p.gather(-1, target[:, None]) + 1e-8).log().mean()


def sorted_truncated_entropy(logits: Tensor, target: Tensor, k: int) -> Tensor:
    """Lapin, Hein, Schiele (2016): sort all differences to the true class, drop the k - 1 largest, clamp, sum."""
    differences = logits - logits.gather(-1, target[:, None])
    others = differences.scatter(-1, target[:, None], -math.inf)
    kept = others.sort(dim=-1, descending=True).values[:, k - 1 :]
    return kept.clamp(max=80).exp().sum(-1).log1p().mean()


class DenseNoisedKth(Function):
    """Mean over samples of the k-th largest of ``x + Z``, all noise drawn and all one-hots written."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int, samples: int) -> Tensor:
        """Garcin, Servajean, Joly, Salmon (2022), with noise of scale 1."""
        noised = x + torch.randn(samples, *x.shape)
        top = noised.topk(k)
        ctx.save_for_backward(top.indices[..., -1])
        ctx.labels = x.shape[-1]
        return top.values[..., -1].mean(0)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        """The mean of the one-hots."""
        (places,) = ctx.saved_tensors
        return upstream[:, None] * one_hot(places, ctx.labels).to(upstream.dtype).mean(0), None, None


def dense_noised_topk(logits: Tensor, target: Tensor, k: int, samples: int = 10) -> Tensor:
    """``(1 + threshold - x_y)+`` with the noised threshold."""
    threshold: Tensor = DenseNoisedKth.apply(logits, k + 1, samples)
    return (1 + threshold - logits.gather(-1, target[:, None]).squeeze(-1)).relu().mean()


def log_space_smooth_svm(logits: Tensor, target: Tensor, k: int) -> Tensor:
    """Berrada, Zisserman, Kumar (2018), temperature 1 and margin 1: divide and conquer on logarithms."""
    rows, n = logits.shape
    is_true = one_hot(target, n).bool()
    others = logits[~is_true].view(rows, n - 1) / k
    high, low = log_polynomials(others, k)
    return softplus(1 + high - low - logits[is_true] / k).mean()


def log_polynomials(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Logarithms of the elementary symmetric polynomials of ``exp(x)`` of degrees k and k - 1."""
    leaves = 1 << max(k.bit_length(), (x.shape[-1] - 1).bit_length())
    x = pad(x, (0, leaves - x.shape[-1]), value=NEGLIGIBLE)
    factors = torch.stack([torch.zeros_like(x), x])  # degree, row, factor
    while factors.shape[-1] > 1:
        a, b = factors.chunk(2, -1)
        factors = log_product(a, b, k)
    return factors[k, :, 0], factors[k - 1, :, 0]


def log_product(a: Tensor, b: Tensor, k: int) -> Tensor:
    """Product of polynomials given by logarithms of coefficients along the first axis, up to degree k."""
    degree = a.shape[0] - 1
    flipped = b.flip(0)
    coefficients = []
    for total in range(min(2 * degree, k) + 1):
        low, high = max(0, total - degree), min(degree, total)
        terms = a[low : high + 1] + flipped[degree - total + low : degree - total + high + 1]
        coefficients.append(terms.logsumexp(0))
    return torch.stack(coefficients)

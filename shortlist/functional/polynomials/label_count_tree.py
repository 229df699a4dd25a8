"""The law of ``label_count.py`` by a tree of products, in operations that differentiate, batch and compile.

Of ``prod_i (c0_i + c1_i t)`` with non-negative factors, the coefficients of ``t^k`` and ``t^(k-1)``, by products of
pairs cut off at degree k. Everything added is positive, so no digit is lost, and the way back down the tree gives the
derivatives by each factor without a subtraction. Time and memory grow with k.
"""

from __future__ import annotations

import torch
from torch import Tensor


def label_count_tree(p: Tensor, rest: Tensor, k: int, *, ratio: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities of k and k - 1 labels, and the derivatives by the log-odds of each.

    Args:
        p: ``(..., n)``, the probability of each label.
        rest: ``(..., n)``, ``1 - p``.
        k: at least 1 and at most n.
        ratio: differentiate the logarithm of the ratio of the two, else of the first.

    Returns:
        The two probabilities, ``(...)``, and the derivatives, ``(..., n)``.
    """
    high, low, by_rest, by_p = _tree(rest, p, k, ratio)
    # Of a ratio it is both `by_p p` and `-by_rest rest`; the difference keeps the digits of either.
    return high, low, (by_p - by_rest) * p * rest if ratio else by_p * p


def _tree(c0: Tensor, c1: Tensor, k: int, ratio: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The coefficients of degree k and k - 1, and the derivatives by ``c0`` and ``c1``."""
    n = c0.shape[-1]
    levels = [_even_last(torch.stack([c0, c1], -1))]
    while levels[-1].shape[-2] > 2:
        a, b = levels[-1].chunk(2, -2)
        levels.append(_even_last((_toeplitz(b, min(2 * (b.shape[-1] - 1), k)) * a.unsqueeze(-1)).sum(-2)))
    a, b = levels[-1].unbind(-2)
    low, high = (_toeplitz(b, k)[..., k - 1 :] * a.unsqueeze(-1)).sum(-2).unbind(-1)
    slope = torch.stack([-1 / low if ratio else torch.zeros_like(low), 1 / high], -1).unsqueeze(-2)
    above = torch.cat([slope.new_zeros((*slope.shape[:-1], k - 1)), slope], -1)
    for level in reversed(levels):
        a, b = level.chunk(2, -2)
        above = above[..., : a.shape[-2], :]
        by_a = (_toeplitz(b, above.shape[-1] - 1) * above.unsqueeze(-2)).sum(-1)
        by_b = (_toeplitz(a, above.shape[-1] - 1) * above.unsqueeze(-2)).sum(-1)
        above = torch.cat([by_a, by_b], -2)
    by0, by1 = above[..., :n, :].unbind(-1)
    return high, low, by0, by1


def _toeplitz(b: Tensor, degree: int) -> Tensor:
    """``(..., i, c) = b_(c - i)`` for c up to ``degree``: multiplication by the polynomial ``b``."""
    size = b.shape[-1]
    padded = torch.cat([b, b.new_zeros((*b.shape[:-1], 1))], -1)
    shift = torch.arange(degree + 1, device=b.device) - torch.arange(size, device=b.device).unsqueeze(-1)
    outside = (shift < 0) | (shift >= size)
    return padded[..., torch.where(outside, size, shift)]


def _even_last(level: Tensor) -> Tensor:
    if level.shape[-2] % 2 == 0:
        return level
    one = torch.zeros_like(level[..., :1, :])
    one = torch.cat([one[..., :1] + 1, one[..., 1:]], -1)
    return torch.cat([level, one], -2)

"""Two neighbouring coefficients of a product of linear factors, and how they depend on each factor.

Of ``prod_i (c0_i + c1_i t)`` with non-negative factors, the coefficients of ``t^k`` and ``t^(k-1)``, by a tree of
products cut off at degree k. Everything added is positive, so no digit is lost, and the way back down the tree gives
the derivatives without a subtraction. With ``c0 + c1 = 1`` the coefficients are probabilities: nothing overflows, and
what underflows did not matter.

``tree_cpu`` and ``tree_anywhere`` do the same: the first by blocks of rows in place, the second in operations that
differentiate, batch and compile.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_BLOCK = 1 << 17
"""Entries per block of rows: its levels should stay in cache, and be long enough to hide the cost of a call."""

Derivatives = tuple[Tensor, Tensor]


def tree_cpu(c0: Tensor, c1: Tensor, k: int, *, ratio: bool, derivatives: bool) -> tuple[Tensor, Tensor, Derivatives]:
    """Coefficients and derivatives, on the CPU.

    Args:
        c0: ``(rows, n)``, the constant parts of the factors.
        c1: ``(rows, n)``, their slopes.
        k: the degree, at least 1 and at most n.
        ratio: differentiate the logarithm of the ratio of the two coefficients, else of the first.
        derivatives: whether to compute them.

    Returns:
        The coefficients of degree k and k - 1, ``(rows,)`` each, and the derivatives by ``c0`` and ``c1``.
    """
    rows, n = c0.shape
    first, second = c0.new_empty(rows), c0.new_empty(rows)
    by0, by1 = (torch.empty_like(c0), torch.empty_like(c1)) if derivatives else (c0.new_empty(0), c0.new_empty(0))
    size = max(1, _BLOCK // max(n, 1))
    with np.errstate(all="ignore"):
        for start in range(0, rows, size):
            block = slice(start, start + size)
            levels = _levels_up(torch.stack([c0[block].T, c1[block].T]).numpy(), k)
            high, low = _root(levels[-1], k)
            first[block], second[block] = torch.from_numpy(high), torch.from_numpy(low)
            if derivatives:
                slopes = _levels_down(levels, k, 1 / high, -1 / low if ratio else np.zeros_like(low))
                by0[block], by1[block] = torch.from_numpy(slopes[:, :n]).mT.unbind()
    return first, second, (by0, by1)


def _levels_up(leaves: np.ndarray, k: int) -> list[np.ndarray]:
    """Products of pairs until two are left; each level is ``(degree + 1, polynomials, rows)``."""
    levels = [_even(leaves)]
    while levels[-1].shape[1] > 2:
        a, b = _halves(levels[-1])
        degree = a.shape[0] - 1
        product = np.empty((min(2 * degree, k) + 1, *a.shape[1:]), dtype=a.dtype)
        work = np.empty_like(a)
        np.multiply(a[0], b, out=product[: degree + 1])
        product[degree + 1 :] = 0
        for i in range(1, degree + 1):
            length = min(degree, product.shape[0] - 1 - i) + 1
            product[i : i + length] += np.multiply(a[i], b[:length], out=work[:length])
        levels.append(_even(product))
    return levels


def _levels_down(levels: list[np.ndarray], k: int, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Derivatives by the leaves of a combination of the two coefficients of the root, ``high`` and ``low``."""
    top = levels[-1]
    slopes = np.zeros_like(top)
    for own, other in ((0, 1), (1, 0)):
        for factor, degree in ((high, k), (low, k - 1)):
            here, there = _matching(top.shape[0] - 1, degree)
            slopes[here, own] += factor * top[there, other][::-1]
    for below in reversed(levels[:-1]):
        a, b = _halves(below)
        above = slopes[:, : a.shape[1]]
        degree = a.shape[0] - 1
        slopes = np.empty_like(below)
        by_a, by_b = _halves(slopes)
        work = np.empty_like(a)
        for i in range(degree + 1):
            length = min(degree, above.shape[0] - 1 - i) + 1
            part = above[i : i + length]
            np.multiply(part, b[:length], out=work[:length])
            np.add.reduce(work[:length], 0, out=by_a[i])
            if i == 0:
                np.multiply(part, a[i], out=by_b)
            else:
                by_b[:length] += np.multiply(part, a[i], out=work[:length])
    return slopes


def _root(top: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    def coefficient(degree: int) -> np.ndarray:
        here, there = _matching(top.shape[0] - 1, degree)
        return (top[here, 0] * top[there, 1][::-1]).sum(0)

    return coefficient(k), coefficient(k - 1)


def _matching(degree: int, total: int) -> tuple[slice, slice]:
    """The degrees i <= ``degree`` with ``total - i`` in the same range, and the latter, ascending."""
    lowest, highest = max(0, total - degree), min(degree, total)
    return slice(lowest, highest + 1), slice(total - highest, total - lowest + 1)


def _halves(level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    half = level.shape[1] // 2
    return level[:, :half], level[:, half:]


def _even(level: np.ndarray) -> np.ndarray:
    """The level with an even number of polynomials: the constant 1 is added if one is missing."""
    if level.shape[1] % 2 == 0:
        return level
    one = np.zeros_like(level[:, :1])
    one[0] = 1
    return np.concatenate([level, one], axis=1)


def tree_anywhere(c0: Tensor, c1: Tensor, k: int, *, ratio: bool) -> tuple[Tensor, Tensor, Derivatives]:
    """As ``tree_cpu``, for factors ``(..., n)``, by a few large operations per level."""
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
    return high, low, (by0, by1)


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

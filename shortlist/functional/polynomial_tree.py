"""Elementary symmetric polynomials in tensor operations with a fixed number of steps: for accelerators.

The polynomial ``prod_j (1 + o_j t)`` is the product of two, both computed with its roots where they are cheap:

- A few *leading* labels, those with the largest logits, are multiplied in a tree of products of pairs, truncated at
  degree k. All terms are positive, so no digits are lost, and the backward pass needs no subtraction.
- Of the *other* labels only sums of powers are taken. Newton's identities turn these into coefficients: a triangular
  system per row. With at least 3k leading labels, the odds o of all others are at most 1/2 where k labels are
  expected, and the system loses about ``exp(sum o^2)`` units in the last place. `_leading` bounds these by 8 for
  small k, where the logits' own precision suffices, and by 1e7 in float64.

So only a few passes are as wide as the logits, and only columns of a few numbers per row are float64.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.tensors import wide

_MOST_COLUMNS = 512
"""Above this degree all labels are leading: coefficients of the others might overflow."""

_SMALL_K = 32
"""Up to this degree the coefficients of the other labels, matrices of k by k, have the precision of the logits."""

_DEGREE = 8
"""Of the polynomial that gives the derivatives of the other labels in float32: within 1e-8 for odds up to 1/2."""


def product_tree(leaves: Tensor, k: int) -> list[Tensor]:
    """The products of pairs of the polynomials ``(..., n, 2)``, of pairs of these, and so on to ``(..., 1, k + 1)``."""
    levels = [leaves]
    while levels[-1].shape[-2] > 1:
        levels[-1] = _even(levels[-1])
        first, second = levels[-1].chunk(2, -2)
        levels.append(product(first, second, k))
    return levels


def tree_gradient(levels: list[Tensor], above: Tensor) -> Tensor:
    """The gradient by the leaves of `product_tree`, from that by its root."""
    for level in reversed(levels[:-1]):
        pairs = level.unflatten(-2, (2, level.shape[-2] // 2))
        degree = level.shape[-1] - 1
        above = above[..., : pairs.shape[-2], :]
        # (..., i, j) = above_(i + j): what multiplies the coefficient i of one and the coefficient j of the other
        windows = pad(above, (0, 2 * degree + 1 - above.shape[-1])).unfold(-1, degree + 1, 1)
        above = (windows.unsqueeze(-4) * pairs.flip(-3).unsqueeze(-2)).sum(-1).flatten(-3, -2)
    return above


def product(first: Tensor, second: Tensor, k: int) -> Tensor:
    """The product of two polynomials of the same degree, up to degree k."""
    degree = first.shape[-1] - 1
    out = min(2 * degree, k)
    windows = pad(second, (degree, out - degree)).unfold(-1, degree + 1, 1)  # (..., c, i) = second_(c - degree + i)
    return (windows * first.flip(-1).unsqueeze(-2)).sum(-1)


def _even(level: Tensor) -> Tensor:
    if level.shape[-2] % 2 == 0:
        return level
    one = torch.zeros_like(level[..., :1, :])
    one = torch.cat([one[..., :1] + 1, one[..., 1:]], -1)
    return torch.cat([level, one], -2)


def label_count_tree(p: Tensor, rest: Tensor, k: int, *, ratio: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities of k and k - 1 labels, and the derivatives by the log-odds of each, all by one tree.

    In operations that differentiate, batch, compile and export. Time and memory grow with k.

    Args:
        p: ``(..., n)``, the probability of each label.
        rest: ``(..., n)``, ``1 - p``.
        k: at least 1 and at most n.
        ratio: differentiate the logarithm of the ratio of the two, else of the first.

    Returns:
        The two probabilities, ``(...)``, and the derivatives, ``(..., n)``.
    """
    levels = product_tree(torch.stack([rest, p], -1), k)
    low, high = levels[-1][..., 0, k - 1 :].unbind(-1)
    slope = torch.stack([-1 / low if ratio else torch.zeros_like(low), 1 / high], -1).unsqueeze(-2)
    leaves = tree_gradient(levels, pad(slope, (k - 1, 0)))[..., : p.shape[-1], :]
    return high, low, _log_odds_gradient(leaves, p, rest, ratio)


def _log_odds_gradient(leaves: Tensor, p: Tensor, rest: Tensor, ratio: bool) -> Tensor:
    by_rest, by_p = leaves.unbind(-1)
    # Of a ratio it is both `by_p p` and `-by_rest rest`; the difference keeps the digits of either.
    return (by_p - by_rest) * p * rest if ratio else by_p * p


def log_coefficient(x: Tensor, k: int, *, ratio: bool, derivatives: bool) -> tuple[Tensor, Tensor]:
    """``log S_k``, or ``log (S_k / S_(k-1))``, of the exponentials of ``x``, and its derivatives.

    Args:
        x: ``(..., n)``, float32 or float64. +inf counts as the largest finite number.
        k: at least 1 and at most n.
        ratio: whether to divide by ``S_(k-1)``.
        derivatives: whether to compute them; else an empty tensor is returned.

    Returns:
        ``(..., 1)``, -inf where fewer than k labels are present, and ``(..., n)``, 0 in such rows.
    """
    n, precision, largest = x.shape[-1], wide(x), torch.finfo(x.dtype).max
    square = x.dtype if k <= _SMALL_K else precision  # of what has k by k entries
    count = _leading(n, k, square)
    top, index = x.topk(count)
    top = top.clamp(max=largest).to(precision)
    enough = top[..., k - 1 : k] != -math.inf
    pivot = top[..., k - 1 : k].clamp(min=-largest)
    gaps = top - pivot
    others, sums = None, None
    if count < n:
        cut = top[..., -1:].clamp(min=-largest).to(x.dtype)
        others = (x - cut).clamp_(max=0).exp_().scatter_(-1, index, 0)  # relative to the largest possible
        sums = _power_sums(others, k).to(precision)
    delta = _shift(gaps, sums, k, n)
    y = gaps + delta
    leaves = torch.stack([-y, y], -1).sigmoid().to(x.dtype)
    levels = product_tree(leaves, k)
    lead, ratio_to_cut = levels[-1][..., 0, :].to(square), y[..., -1:].exp()
    if sums is None:
        light, whole = None, lead
    else:
        light = _coefficients(sums.to(square), ratio_to_cut.to(square), k)
        whole = product(lead, light, k)
    low, high = whole[..., k - 1 :].split(1, -1)
    if ratio:
        value = (high / low).log() + (pivot - delta)
    else:
        value = high.log() + torch.logaddexp(y, torch.zeros_like(y)).sum(-1, keepdim=True) + k * (pivot - delta)
    value = torch.where(enough, value, -math.inf).to(x.dtype)
    if not derivatives:
        return value, x.new_empty(0)
    by_whole = torch.cat([-1 / low if ratio else torch.zeros_like(low), 1 / high], -1)
    above = pad(by_whole, (k - 1, 0)) if light is None else _by_factor(light, by_whole)
    by_leaves = tree_gradient(levels, above.to(x.dtype).unsqueeze(-2))[..., :count, :]
    rest, p = leaves.unbind(-1)
    slopes = _log_odds_gradient(by_leaves, p, rest, ratio)
    if others is None:
        return value, torch.zeros_like(x).scatter_(-1, index, slopes).where(enough, 0)
    series = _series(whole, by_whole, ratio_to_cut, x.dtype).where(enough, 0)
    return value, _horner(others, series).scatter_(-1, index, slopes.where(enough, 0))


def _leading(n: int, k: int, precision: torch.dtype) -> int:
    """How many labels the tree takes: a power of two, or all.

    With m leading labels, ``sum o^2`` of the others is at most about ``k^2 / (4 m)``.
    """
    if k > _MOST_COLUMNS:
        return n
    least = max(3 * k, k * k // (64 if k > _SMALL_K and precision == torch.float64 else 8))
    return min(n, 1 << (least - 1).bit_length())


def _power_sums(u: Tensor, k: int) -> Tensor:
    """Sums of the powers of ``u``, from 1 to where those of halves are negligible, at most k."""
    terms = min(k, math.ceil(math.log2(2 * k / torch.finfo(u.dtype).eps)))
    norms = [u.sum(-1), *(torch.linalg.vector_norm(u, power, dim=-1) for power in range(2, terms + 1))]
    return torch.stack(norms, -1) ** torch.arange(1, terms + 1, device=u.device)


def _shift(gaps: Tensor, sums: Tensor | None, k: int, n: int) -> Tensor:
    """A shift of the log-odds ``gaps`` under which about k labels are expected, ``(..., 1)``.

    With i labels certain, the others have ``k - i`` at most: every ``log((k - i) / sum of the others' odds)`` is a
    lower bound of the shift for k labels. At the largest of these bounds between k/2 and k are expected, so the
    probability of k labels is above 2^-k. If fewer are absent than present, absent labels are counted instead. More
    than 64 labels need Newton's method, whose steps at this point are at most 2.
    """
    fewer = min(k, n - k + 1)
    ranks = torch.arange(1, fewer + 1, device=gaps.device)
    if fewer < k:
        delta = -(ranks / (-gaps).exp().cumsum(-1)[..., k - 1 :]).amax(-1, keepdim=True).log()
        mass = torch.zeros_like(delta)
    else:
        odds = gaps.exp()
        mass = torch.zeros_like(odds[..., :1]) if sums is None else sums[..., :1] * odds[..., -1:]
        tails = torch.cat([odds, mass], -1).flip(-1).cumsum(-1)[..., -k:]
        delta = (ranks / tails).amax(-1, keepdim=True).log()
    for _ in range(0 if fewer <= 64 else 1 + math.ceil(math.log(fewer / 64))):
        p, other = (gaps + delta).sigmoid(), mass * delta.exp()
        missing = k - 0.5 - other - p.sum(-1, keepdim=True)
        delta = delta + (missing / ((p - p * p).sum(-1, keepdim=True) + other)).clamp(-2, 2)
    return delta


def _coefficients(sums: Tensor, scale: Tensor, k: int) -> Tensor:
    """The coefficients 0 to k of ``prod (1 + o t)``, from the sums of powers of ``o / scale``.

    Newton's identities, ``m e_m = sum_i (-1)^(i-1) (sum o^i) e_(m-i)``, are a triangular system.
    """
    terms, device = sums.shape[-1], sums.device
    signed = pad(-sums * (-scale) ** torch.arange(1, terms + 1, device=device), (1, k - terms))
    rank = torch.arange(1, k + 1, device=device)
    below = (rank.unsqueeze(-1) - rank).clamp_(min=0)
    matrix = signed[..., below] / -rank.unsqueeze(-1)
    right = (signed[..., 1:] / rank).unsqueeze(-1)
    found = torch.linalg.solve_triangular(matrix, right, upper=False, unitriangular=True)
    return pad(found.squeeze(-1), (1, 0), value=1.0)


def _by_factor(other: Tensor, by_whole: Tensor) -> Tensor:
    """The gradient by the coefficients of one factor: by the two highest of the product, times the other factor."""
    by_low, by_high = by_whole.split(1, -1)
    reverse = other.flip(-1)
    return reverse * by_high + pad(reverse[..., 1:], (0, 1)) * by_low


def _series(whole: Tensor, by_whole: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Coefficients, from degree 1, of the polynomial in ``o / scale`` that is the derivative by the log-odds.

    Without a label of odds o, the coefficient k - 1 of the product is ``sum_i (-o)^i whole_(k-1-i)``.
    """
    terms = min(whole.shape[-1] - 1, len(_INTERPOLATED) if dtype == torch.float32 else whole.shape[-1])
    powers = torch.arange(1, terms + 1, device=whole.device)
    series = _by_factor(whole, by_whole)[..., 1 : terms + 1] * -((-scale) ** powers)
    if dtype == torch.float64 or terms <= _DEGREE + 1:
        return series.to(dtype)
    return (series @ _economized(terms, series)).to(dtype)


def _horner(u: Tensor, series: Tensor) -> Tensor:
    """``sum_i series_i u^i``, from degree 1."""
    *columns, last = series.split(1, -1)
    value = last
    for column in reversed(columns):
        value = torch.addcmul(column, value, u)
    return value * u


def _interpolated(terms: int) -> np.ndarray:
    """Row i: the polynomial of degree `_DEGREE` that interpolates u^i at the Chebyshev points of [0, 1]."""
    points = (1 + np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))) / 2
    small = np.vander(points, _DEGREE + 1, increasing=True)
    return np.linalg.solve(small, np.vander(points, terms, increasing=True)).T


_INTERPOLATED = _interpolated(40).tolist()
"""Beyond 40 terms, the powers of 1/2 are negligible."""


def _economized(terms: int, like: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or type(like) is not Tensor:  # a tracer's tensors do not mix with kept ones
        return torch.tensor(_INTERPOLATED[:terms], dtype=like.dtype, device=like.device)
    return _kept_matrix(like.device, like.dtype)[:terms]


@functools.cache
def _kept_matrix(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Copied to each device once, as a copy from the host cannot be part of a CUDA graph."""
    return torch.tensor(_INTERPOLATED, dtype=dtype, device=device)

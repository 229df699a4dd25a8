"""The law of how many labels are present, when each is present by itself with its own probability.

``P(j labels)`` is a coefficient of ``prod_i (1 - p_i + p_i t)``. On the circle ``t = exp(i angle)`` the product is a
characteristic function, and the coefficients are its Fourier sum over N angles. Near the mean that sum loses no
digits, and few angles suffice: N must exceed the width of the law (Bennett's inequality bounds what is folded back),
and angles at which the product has vanished are skipped. For labels with small p the logarithm of a factor is a short
power series, so that sums of powers of p serve all angles at once; the others are multiplied out. The cost is a few
passes over the labels whatever k is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_BLOCK = 1 << 17
"""Entries per block of rows, so that its buffers stay in cache."""

_RADIUS = 1 / 8
"""Where ``p |t - 1|`` is below, the logarithm of a factor is expanded in powers of it."""

_LIFT = {torch.float32: 2.0**100, torch.float64: 2.0**500}
"""Powers of p are held times this: subnormal numbers would be correct but slow."""


class Law(NamedTuple):
    """What is known of the number of labels in each row."""

    high: Tensor  # (rows, 1): probability of k
    low: Tensor  # (rows, 1): probability of k - 1
    log_none: Tensor  # (rows, 1): logarithm of the probability of 0; not set for a ratio, which has no use for it
    slopes: Tensor  # (rows, n): derivatives by the log-odds of each label; empty if not wanted


def label_count(x: Tensor, pivot: Tensor, delta: Tensor, k: int, *, ratio: bool, derivatives: bool) -> Law:
    """The law of the number of labels on the CPU, where ``k - 1/2`` labels are expected.

    Args:
        x: ``(rows, n)``, float32 or float64; the log-odds of the labels are ``x - pivot + delta``.
        pivot: ``(rows, 1)``.
        delta: ``(rows, 1)``.
        k: at least 1 and at most n.
        ratio: differentiate the logarithm of the ratio of the two probabilities, else of the first.
        derivatives: whether to compute them.
    """
    high, low, log_none = (torch.empty_like(pivot) for _ in range(3))
    slopes = torch.empty_like(x) if derivatives else x.new_empty(0)
    size = max(1, _BLOCK // max(x.shape[-1], 1))
    with np.errstate(all="ignore"):
        for start in range(0, len(x), size):
            block = slice(start, start + size)
            y = torch.sub(x[block], pivot[block]).add_(delta[block])
            odds = y.abs().neg_().exp_()  # of the less likely side
            side = (odds + 1).reciprocal_()
            if not ratio:
                log_none[block] = side.log().sum(-1, keepdim=True) - y.clamp(min=0).sum(-1, keepdim=True)
            p, q = y.sigmoid_(), odds.mul_(side).mul_(side)
            variance = q.sum(-1)
            spoiled = variance.isnan()
            if spoiled.any():  # NaN stays in its own row, and steers nothing
                p[spoiled] = q[spoiled] = variance[spoiled] = 0
            first, second = _block(p, q, variance, k, ratio, slopes[block] if derivatives else None)
            high[block, 0], low[block, 0] = torch.from_numpy(first), torch.from_numpy(second)
            high[block][spoiled] = math.nan
    return Law(high, low, log_none, slopes)


def _block(
    p: Tensor, q: Tensor, variance: Tensor, k: int, ratio: bool, slopes: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """The two probabilities of a block of rows, from p and ``q = p (1 - p)``; writes the derivatives to ``slopes``."""
    angles, count = _angles(variance.numpy(), p.shape[-1])
    w = np.expm1(1j * angles)
    farthest = float(np.abs(w).max())
    light, heavy, factors, largest = p, None, np.empty(0), float(p.amax())
    if largest * farthest > _RADIUS:
        heavy = np.nonzero(p.numpy() > _RADIUS / farthest)
        light = p.clone()
        light.numpy()[heavy] = 0
        largest = float(light.amax())
    terms = _terms(largest * farthest, k, p.dtype)
    degrees = np.arange(1, terms + 1)[:, None]
    product = _exp(_power_sums(light, terms) @ (-((-w) ** degrees) / degrees))
    if heavy is not None:
        factors = 1 + p.numpy()[heavy][:, None].astype(np.float64) * w
        starts = np.searchsorted(heavy[0], np.arange(len(p)))
        filled = np.flatnonzero(np.diff(starts, append=len(factors)))
        product[filled] *= np.multiply.reduceat(factors, starts[filled], axis=0)

    # The Fourier sum, at k and at k - 1; the angles come in conjugate pairs.
    at_high = product * _exp(-1j * k * angles)
    at_low = at_high * (1 + w)
    high, low = ((1 + 2 * np.real(part).sum(-1)) / count for part in (at_high, at_low))
    if slopes is not None:
        share = at_high / high[:, None] - (at_low / low[:, None] if ratio else 0)
        _slopes(light, share * (2 / count), w, terms, slopes)
        if heavy is not None:
            slopes.numpy()[heavy] = np.real(share[heavy[0]] * (2 / count) * w / factors).sum(-1)
        slopes.mul_(q)
        if not ratio:
            slopes.add_(p).clamp_(min=0)  # a p that underflows may do so before q
    return high, low


def _exp(z: np.ndarray) -> np.ndarray:
    """``exp`` of complex numbers; numpy's own takes ten times as long."""
    return np.exp(np.real(z)) * (np.cos(np.imag(z)) + 1j * np.sin(np.imag(z)))


def _angles(variance: np.ndarray, n: int) -> tuple[np.ndarray, int]:
    """The angles in (0, pi) that count, and how many there are on the whole circle."""
    widest = float(variance.max(initial=0))
    needed = -math.log(np.finfo(variance.dtype).eps) + 2 * math.log(2 + widest)
    reach = 1.0
    # P(more than `reach` off the mean) < exp(-variance h(reach / variance)), h(u) = (1 + u) log(1 + u) - u
    while reach < n and (widest + reach) * math.log1p(reach / max(widest, 1e-30)) - reach < needed:
        reach += 1
    half = (min(int(reach), n) + 2) // 2
    count = 2 * half + 1
    angles = 2 * math.pi / count * np.arange(1, half + 1)
    alive = variance.min(initial=widest) * (1 - np.cos(angles)) < needed
    return angles[: max(1, int(alive.sum()))], count


def _terms(radius: float, k: int, dtype: torch.dtype) -> int:
    """How many powers make the rest of the series negligible."""
    if radius == 0:
        return 1
    return max(2, math.ceil(math.log(torch.finfo(dtype).eps / (2 * k)) / math.log(min(radius, 0.9))))


def _power_sums(light: Tensor, terms: int) -> np.ndarray:
    """Sums of the powers of p over the labels, ``(rows, terms)``."""
    lift = _LIFT[light.dtype]
    power = light * lift
    sums = [power.sum(-1), *(power.mul_(light).sum(-1) for _ in range(terms - 1))]
    return torch.stack(sums, -1).double().numpy() / lift


def _slopes(light: Tensor, share: np.ndarray, w: np.ndarray, terms: int, out: Tensor) -> None:
    """``Re sum share w / (1 + p w)`` over the angles, by its powers of p."""
    powers = torch.from_numpy(np.real(share @ (w[:, None] * (-w[:, None]) ** np.arange(terms)))).to(light.dtype)
    torch.mul(light, powers[:, -1:], out=out)
    for j in range(terms - 2, 0, -1):
        out.add_(powers[:, j : j + 1]).mul_(light)
    out.add_(powers[:, :1])

"""The expected share of each of several independent labels in the set of true labels."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_BLOCK_ENTRIES = 1 << 16  # so that a block stays in cache


def expected_shares(probabilities: Tensor) -> Tensor:
    r"""The contribution of each label to the expected recall of a set, for independent labels.

    .. math:: E\Big[\frac{1\{j \in Y\}}{|Y|}\Big] = p_j \, E\Big[\frac{1}{1 + S_j}\Big]
        = p_j \int_0^1 \prod_{i \ne j} (1 - p_i + p_i t) \, dt

    (0 / 0 counts as 0) with :math:`S_j` the number of other labels present, since :math:`\int_0^1 t^m dt = 1 / (m +
    1)`. The integrand is a positive polynomial in t, and Gauss-Legendre quadrature is exact, or accurate to the last
    bits with far fewer nodes than labels. At a node each factor is at least t, so dividing one out of the product is
    safe even if p is 1. Nothing is subtracted: the relative error is a few n units in the last place.

    A larger :math:`p_j` leaves fewer others, so the shares of a row are in the order of its probabilities.

    Args:
        probabilities: ``(B, n)``, floating, in [0, 1]; padding with zeros changes nothing.

    Returns:
        ``(B, n)`` float64. A row sums to the probability that some label is present.

    Raises:
        ValueError: for a wrong shape or dtype.

    Example:
        >>> from shortlist.data.worlds.expected_shares import expected_shares
        >>> expected_shares(torch.tensor([[1.0, 0.5]]))
        tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """
    if probabilities.dim() != 2 or not probabilities.is_floating_point():
        raise ValueError(
            f"`probabilities` must be floating (B, n); got {probabilities.dtype} of shape {tuple(probabilities.shape)}."
        )
    p = probabilities.detach().cpu().double().numpy()
    out = np.empty_like(p)
    if not p.size:
        return torch.from_numpy(out)
    means = p.sum(1)
    order = np.argsort(means)  # so that few rows get the many nodes that rows with many labels need
    size = max(1, _BLOCK_ENTRIES // p.shape[1])
    for start in range(0, len(p), size):
        rows = order[start : start + size]
        out[rows] = _block_shares(np.ascontiguousarray(p[rows].T), float(means[rows[-1]])).T
    return torch.from_numpy(out)


def _block_shares(p: np.ndarray, mean: float) -> np.ndarray:
    """Expected shares of a block ``(n, rows)``; labels come first so that products run along contiguous memory."""
    nodes, weights = _quadrature(_node_count(mean, len(p)))
    total, factors = np.zeros_like(p), np.empty_like(p)
    for t, weight in zip(nodes, weights, strict=True):
        np.multiply(p, t - 1, out=factors)
        factors += 1
        total += np.divide(weight * factors.prod(0), factors, out=factors)
    total *= p
    return total


def _node_count(mean: float, n: int) -> int:
    """How many Gauss-Legendre nodes leave only rounding errors if ``mean`` labels are expected."""
    # For a function bounded by M inside the Bernstein ellipse of parameter rho, m nodes on [0, 1] have an error of at
    # most (32 / 15) M rho^-(2m - 2) / (1 - rho^-2). There |t| <= r = ((rho + 1 / rho) / 2 + 1) / 2, and so
    # the product is at most M = exp(mean (r - 1)). The integral is at least 1 / (1 + mean), by Jensen's inequality.
    rho = np.geomspace(1.02, 1e3, 200)
    growth = mean * ((rho + 1 / rho) / 2 - 1) / 2
    needed = math.log(32 / 15 * (1 + mean) / np.finfo(np.float64).eps) + growth - np.log1p(-(rho**-2.0))
    # Half as many nodes as labels are exact, since the degree is n - 1.
    return min(1 + math.ceil(float((needed / (2 * np.log(rho))).min())), (n + 1) // 2)


@lru_cache(maxsize=256)
def _quadrature(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1] that are exact up to degree 2 * count - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (1 + nodes) / 2, weights / 2

"""Argmaxability curves: share by radius, share by dimension, and radius by number of labels and slack columns."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from shortlist.audit.counting import cumulative_binomials, log10_share
from shortlist.audit.run import audit
from shortlist.functional import dft_matrix


class EpsilonCurve(NamedTuple):
    """Result of `epsilon_curve`: radii, shares, and the number of undecided sets that were left out."""

    epsilons: NDArray[np.float64]
    share: NDArray[np.float64]
    undecided: int


def epsilon_curve(radii: ArrayLike, epsilons: ArrayLike | None = None) -> EpsilonCurve:
    r"""Share of label sets that are ε-argmaxable: still output after the features move by up to ε.

    .. math:: s(\varepsilon) = \frac{|\{l : r_l \ge \varepsilon,\; r_l > 0\}|}{|\{l : r_l \text{ is known}\}|}

    so :math:`s(0)` is the share of argmaxable sets; sets with radius 0 never count.

    Args:
        radii: Chebyshev radii, any shape, as in ``AuditReport.radii``: 0 for unargmaxable, NaN for undecided.
        epsilons: where to evaluate the curve: finite, at least 0, in any order. By default 0 and every positive radius,
            which covers every step of the curve.

    Returns:
        ``(epsilons, share, undecided)``. The share is taken over decided sets and is NaN if there are none. The share
        of all sets lies between ``share * decided / total`` and that value plus ``undecided / total``.

    Example:
        >>> epsilon_curve([0.0, 0.5, 2.0, 2.0, float("nan")])
        EpsilonCurve(epsilons=array([0. , 0.5, 2. ]), share=array([0.75, 0.75, 0.5 ]), undecided=1)

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, definition 3.
    """
    values = np.asarray(radii, dtype=np.float64).ravel()
    wrong = np.flatnonzero((values < 0) | np.isinf(values))
    if len(wrong):
        raise ValueError(f"`radii` must be finite and at least 0, or NaN; got {values[wrong[0]]} at {wrong[0]}.")
    known = np.sort(values[~np.isnan(values)])
    positive = known[known > 0]
    at = np.unique(np.append(0.0, positive)) if epsilons is None else np.asarray(epsilons, dtype=np.float64)
    if not (np.isfinite(at) & (at >= 0)).all():
        raise ValueError(f"`epsilons` must be finite and at least 0; got {epsilons}.")
    enough = len(positive) - np.searchsorted(positive, at, side="left")
    share = enough / len(known) if len(known) else np.full(at.shape, np.nan)
    return EpsilonCurve(at, share, len(values) - len(known))


def share_by_dimension(num_labels: int, dims: Sequence[int] | None = None) -> tuple[NDArray[np.int64], NDArray[Any]]:
    r"""Base-10 logarithm of the argmaxable share of the ``2^n`` assignments, for each dimension ``d``.

    .. math:: \log_{10}\, 2^{1-n} \sum_{j<d} \binom{n-1}{j}

    Args:
        num_labels: n, at least 1.
        dims: the dimensions, at least 0; by default 1, 2, ..., n.

    Returns:
        ``(dims, log10_shares)``, two arrays of equal length. The logarithms are accurate even where the shares
        underflow.

    Example:
        >>> dims, log10_shares = share_by_dimension(1000, [100, 500, 1000])
        >>> [f"{value:.4g}" for value in log10_shares]
        ['-161.9', '-0.301', '0']

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figure 2.
    """
    num_labels = operator.index(num_labels)
    if num_labels < 1:
        raise ValueError(f"`num_labels` must be at least 1; got {num_labels}.")
    wanted = range(1, num_labels + 1) if dims is None else [operator.index(dim) for dim in dims]
    for dim in wanted:
        if dim < 0:
            raise ValueError(f"`dims` must be at least 0; got {dim}.")
    # One pass computes all dimensions. Keep only the logarithms, because each sum has n bits.
    shares = {0: -np.inf}
    asked = {min(dim, num_labels) for dim in wanted}
    for last, total in enumerate(cumulative_binomials(num_labels - 1)):
        if last + 1 in asked:
            shares[last + 1] = log10_share(2 * total, num_labels)
    return np.array(wanted, dtype=np.int64), np.array([shares[min(dim, num_labels)] for dim in wanted])


@dataclass(frozen=True)
class RadiusQuantiles:
    """Result of `radius_quantiles`.

    Attributes:
        k: number of labels in each set and degree of the DFT.
        quantile: the quantile in ``radii``.
        num_labels: the label counts, one per row of ``radii``.
        slacks: the slack column counts, one per column of ``radii``.
        radii: ``(len(num_labels), len(slacks))``; NaN if no set was decided.
        undecided: number of undecided sets left out of each entry.
    """

    k: int
    quantile: float
    num_labels: tuple[int, ...]
    slacks: tuple[int, ...]
    radii: NDArray[np.float64]
    undecided: NDArray[np.int64]


def radius_quantiles(
    num_labels: Sequence[int],
    slacks: Sequence[int],
    k: int,
    *,
    quantile: float = 0.01,
    num_sets: int = 1000,
    seed: int = 0,
    jobs: int | None = None,
) -> RadiusQuantiles:
    r"""Quantile of the Chebyshev radius over random sets of ``k`` labels, for DFT layers with random slack.

    The layer is :math:`[F\; S]`, ``F`` the DFT matrix of degree ``k`` and the slack :math:`S_{ij} \sim N(0, 1/n)`,
    the scale of the entries of ``F``. Each number of labels gets new sets and new slack. A larger slack extends a
    smaller one, and all layers with the same number of labels are audited on the same sets, so along the slack axis
    only the added columns change a set's radius.

    Args:
        num_labels: label counts, each at least ``2k + 1``.
        slacks: slack column counts, each at least 0.
        k: number of labels in a set, at least 1.
        quantile: in [0, 1]; 0.01 is the radius that 1% of the sets do not exceed.
        num_sets: number of sets to draw.
        seed: seed for the sets and the slack.
        jobs: passed to `audit`.

    Returns:
        The quantiles; each is the radius of one of the sets. Regions too thin for a float64 witness contribute a lower
        bound, the radius of the theorem's trigonometric polynomial.

    Example:
        >>> found = radius_quantiles([16, 64], [0, 4], k=1, num_sets=20)
        >>> found.radii.shape, bool((found.radii[0] > found.radii[1]).all())
        ((2, 2), True)

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figure 5.
    """
    _check_arguments(num_labels, slacks, k, quantile=quantile, num_sets=num_sets)
    radii = np.empty((len(num_labels), len(slacks)))
    undecided = np.zeros((len(num_labels), len(slacks)), dtype=np.int64)
    for row, n in enumerate(num_labels):
        generator = np.random.default_rng([seed, n])
        sets = torch.from_numpy(_random_sets(generator, n, k, num_sets))
        slack_columns = generator.standard_normal((max(slacks, default=0), n)).T / np.sqrt(n)
        fixed = dft_matrix(n, k, dtype=torch.float64).numpy()
        for column, slack in enumerate(slacks):
            weight = np.concatenate([fixed, slack_columns[:, :slack]], axis=1)
            found = audit(weight, sets, jobs=jobs, dft=k).radii
            known = found[~np.isnan(found)]
            undecided[row, column] = len(found) - len(known)
            radii[row, column] = np.quantile(known, quantile, method="inverted_cdf") if len(known) else np.nan
    return RadiusQuantiles(k, quantile, tuple(num_labels), tuple(slacks), radii, undecided)


def _random_sets(generator: np.random.Generator, n: int, k: int, num_sets: int) -> NDArray[np.int64]:
    """``num_sets`` uniformly random sets of ``k`` of ``n`` labels, as sorted index lists."""
    rows = [np.sort(generator.choice(n, size=k, replace=False)) for _ in range(num_sets)]
    return np.array(rows, dtype=np.int64).reshape(num_sets, k)


def _check_arguments(
    num_labels: Sequence[int], slacks: Sequence[int], k: int, *, quantile: float, num_sets: int
) -> None:
    """Check all arguments before the first long computation."""
    if k < 1:
        raise ValueError(f"`k` must be at least 1; got {k}.")
    for n in num_labels:
        if n < 2 * k + 1:
            raise ValueError(f"`num_labels` must be at least 2k + 1 = {2 * k + 1}; got {n}.")
    for slack in slacks:
        if slack < 0:
            raise ValueError(f"`slacks` must be at least 0; got {slack}.")
    if not 0 <= quantile <= 1:
        raise ValueError(f"`quantile` must lie in [0, 1]; got {quantile}.")
    if num_sets < 1:
        raise ValueError(f"`num_sets` must be at least 1; got {num_sets}.")

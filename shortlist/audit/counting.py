"""Exact counts of the label assignments that a layer can output, and the minors that prove them for a given layer."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.audit.exact import echelon_form, to_integers

_MAX_MINORS = 1_000_000
# Exact determinants take about d^4 steps on long integers: half a second at d = 64.
_MAX_COLUMNS = 64
_BLOCK = 4096


def count_argmaxable(num_labels: int, dim: int, *, bias: bool = False) -> int:
    r"""Number of the ``2^n`` label assignments that a layer in general position can output.

    .. math:: |\mathcal{A}(W)| = 2 \sum_{j=0}^{d-1} \binom{n-1}{j}
              \quad\text{and, with a bias,}\quad \sum_{j=0}^{d} \binom{n}{j}

    Both equal :math:`2^n` for :math:`d \ge n`. The count depends only on the sizes, not on the weights, provided that
    any ``d`` rows are linearly independent (see `in_general_position`) and, with a bias, so are any ``d + 1`` rows of
    ``[W, bias]``. A layer that violates this can output fewer.

    Args:
        num_labels: n, the rows of the weight.
        dim: d, its columns.
        bias: whether the layer has a bias.

    Returns:
        The exact count.

    Example:
        >>> count_argmaxable(3, 2), count_argmaxable(3, 2, bias=True), 2**3
        (6, 7, 8)

    References:
        Cover, "Geometrical and statistical properties of systems of linear inequalities", 1965, theorem 2.
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, theorem 1.
    """
    num_labels = _count(num_labels, "num_labels")
    dim = _count(dim, "dim")
    if dim >= num_labels:
        return 2**num_labels
    if bias:
        return _sum_of_binomials(num_labels, dim)
    return 2 * _sum_of_binomials(num_labels - 1, dim - 1)


def count_k_active(num_labels: int, k: int) -> int:
    r"""Number of label assignments with at most ``k`` active labels, :math:`\sum_{j=0}^{k} \binom{n}{j}`.

    Args:
        num_labels: n.
        k: the largest number of active labels, in [0, n].

    Returns:
        The exact count.

    Example:
        >>> count_k_active(6, 1)
        7
    """
    num_labels = _count(num_labels, "num_labels")
    k = _count(k, "k")
    if k > num_labels:
        raise ValueError(f"`k` must lie in [0, {num_labels}]; got {k}.")
    return _sum_of_binomials(num_labels, k)


def count_alternating(num_labels: int, changes: int) -> int:
    r"""Number of label assignments whose signs change at most ``changes`` times from the first label to the last.

    .. math:: |V_{n,c}| = 2 \sum_{j=0}^{c} \binom{n-1}{j}

    A layer whose maximal minors agree in sign (`minors_agree`) can output exactly the assignments with at most
    :math:`d - 1` changes, hence the equality with `count_argmaxable`. The DFT layer of degree ``k`` is such a layer,
    with :math:`d = 2k + 1`. Its bound ``2k`` is even, so it makes no difference whether the step from the last label
    back to the first counts: the number of cyclic changes is always even.

    Args:
        num_labels: n.
        changes: c, at least 0; n - 1 or more allows every assignment.

    Returns:
        The exact count.

    Example:
        >>> count_alternating(6, 2), count_argmaxable(6, 3), count_k_active(6, 1)
        (32, 32, 7)

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, definition 7 and theorem 3.
    """
    changes = _count(changes, "changes")
    return count_argmaxable(num_labels, changes + 1)


def log10_share(count: int, num_labels: int) -> float:
    r"""Logarithm :math:`\log_{10}(\text{count} / 2^n)`, accurate even where the share underflows or rounds to 1.

    Args:
        count: number of assignments, in [0, 2^n].
        num_labels: n.

    Returns:
        At most 0; ``-inf`` for a count of 0.

    Example:
        >>> round(log10_share(count_argmaxable(1000, 50), 1000), 3)
        -217.031
        >>> log10_share(2**1000, 1000)
        0.0
    """
    num_labels = _count(num_labels, "num_labels")
    count = _count(count, "count")
    everything = 1 << num_labels
    if count > everything:
        raise ValueError(f"`count` must lie in [0, 2**{num_labels}]; got a larger number.")
    if count == 0:
        return -math.inf
    missing = everything - count
    if missing == 0:
        return 0.0
    if missing < count:
        # Integer division rounds correctly, and log1p keeps the digits that log10(1 - tiny) would lose.
        return math.log1p(-(missing / everything)) / math.log(10)
    bits = count.bit_length()
    return math.log10(count / (1 << bits)) + (bits - num_labels) * math.log10(2)


def in_general_position(weight: Tensor | NDArray[Any]) -> bool:
    r"""Whether any ``d`` rows of an ``n × d`` matrix (all rows if ``n < d``) are linearly independent.

    .. math:: \Delta_I(W) = \det\,(w_i)_{i \in I} \ne 0 \quad \text{for all } |I| = d

    *True* proves that the layer, without a bias, can output exactly ``count_argmaxable(n, d)`` of the ``2^n`` label
    assignments; *False* proves that it can output fewer. The result is exact for the given numbers, without a
    tolerance: if floating point cannot distinguish a determinant from zero, exact arithmetic decides.

    Args:
        weight: ``(n, d)``, a tensor or array of finite numbers that float64 represents exactly, with at most 64 columns
            and at most a million choices of ``d`` rows.

    Example:
        >>> in_general_position(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        True
        >>> in_general_position(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 0.0]]))
        False

    References:
        Cover, "Geometrical and statistical properties of systems of linear inequalities", 1965.
    """
    matrix = _read_matrix(weight)
    if matrix.shape[0] < matrix.shape[1]:
        return _rows_independent(matrix)
    return all(0 not in signs for signs in _minor_signs(matrix))


def minors_agree(weight: Tensor | NDArray[Any]) -> bool:
    r"""Whether all maximal minors of an ``n × d`` matrix are nonzero and have the same sign.

    .. math:: \operatorname{sign} \Delta_I(W) = \operatorname{sign} \Delta_J(W) \ne 0 \quad \text{for all } I, J

    *True* proves that the layer can output exactly the label assignments whose signs change at most ``d - 1`` times
    from the first label to the last; with ``d = 2k + 1`` these include every set of at most ``k`` labels. *False*
    proves that the layer does not have this property for this order of its labels. For ``n ≤ d`` no assignment has more
    changes, so the result equals that of `in_general_position` and is just as exact.

    Args:
        weight: as for `in_general_position`.

    Example:
        >>> moments = torch.arange(1.0, 6.0)[:, None] ** torch.arange(3)  # Vandermonde
        >>> minors_agree(moments), minors_agree(moments.flip(1)), minors_agree(moments[[1, 0, 2, 3, 4]])
        (True, True, False)

    References:
        Gantmakher, Krein, "Oscillation matrices and kernels", 1961.
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, theorems 2-4.
    """
    matrix = _read_matrix(weight)
    if matrix.shape[0] < matrix.shape[1]:
        return _rows_independent(matrix)
    seen: set[int] = set()
    for signs in _minor_signs(matrix):
        seen.update(signs)
        if 0 in seen or len(seen) > 1:
            return False
    return True


def cumulative_binomials(n: int) -> Iterator[int]:
    r"""Yield :math:`\sum_{j \le m} \binom{n}{j}` for m = 0, 1, ..., n."""
    term = total = 1
    yield total
    for j in range(n):
        term = term * (n - j) // (j + 1)
        total += term
        yield total


def _sum_of_binomials(n: int, last: int) -> int:
    """Sum of the binomial coefficients of ``n`` up to and including ``last``; 0 for a negative ``last``."""
    if last < 0:
        return 0
    for m, total in enumerate(cumulative_binomials(n)):
        if m == last:
            return total
    return 2**n


def _count(value: int, name: str) -> int:
    """``value`` as a nonnegative Python int; a fixed-width integer would overflow in the powers of two."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer; got {type(value).__name__}.") from None
    if value < 0:
        raise ValueError(f"`{name}` must be at least 0; got {value}.")
    return value


def _read_matrix(weight: Tensor | NDArray[Any]) -> NDArray[np.float64]:
    """The matrix in float64, after checking that it is finite, exactly representable and not too large."""
    if isinstance(weight, Tensor):
        weight = weight.detach().cpu()
        weight = (weight.double() if weight.is_floating_point() else weight).numpy()
    values = np.asarray(weight)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"`weight` must have 2 dimensions, neither empty; got shape {tuple(values.shape)}.")
    matrix = values.astype(np.float64)
    # Comparing an integer with a float would round it, so check the magnitude of integers instead.
    whole = np.issubdtype(values.dtype, np.integer)
    if (np.abs(matrix) >= 2**53).any() if whole else not np.array_equal(matrix, values, equal_nan=True):
        raise ValueError(f"`weight` must hold numbers that float64 represents exactly; got {values.dtype}.")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise ValueError(f"`weight` must be finite; row {bad[0]} is not.")
    n, d = matrix.shape
    if d > _MAX_COLUMNS:
        raise ValueError(f"`weight` must have at most {_MAX_COLUMNS} columns for exact minors; got {d}.")
    if math.comb(n, d) > _MAX_MINORS:
        raise ValueError(
            f"`weight` must have at most {_MAX_MINORS:,} maximal minors; "
            f"got {math.comb(n, d):,} choices of {d} of {n} rows."
        )
    return matrix


def _minor_signs(matrix: NDArray[np.float64]) -> Iterator[list[int]]:
    """Signs (-1, 0, 1) of all minors of d rows, in blocks."""
    d = matrix.shape[1]
    # Scaling each row by a power of two changes no sign and keeps the determinants within the range of float64.
    _, exponents = np.frexp(np.abs(matrix).max(axis=1, keepdims=True))
    scaled = np.ldexp(matrix, -exponents)
    exact = [to_integers(row) for row in matrix]
    choices = itertools.combinations(range(len(matrix)), d)
    while block := list(itertools.islice(choices, max(1, _BLOCK * 16 // d**2))):
        signs = _float_signs(scaled[np.array(block)]).tolist()
        for position, sign in enumerate(signs):
            if sign == 0:
                echelon = echelon_form([exact[row] for row in block[position]])
                signs[position] = echelon.sign if len(echelon.pivots) == d else 0
        yield signs


def _float_signs(minors: NDArray[np.float64]) -> NDArray[np.int64]:
    r"""Signs of the determinants of ``(B, d, d)`` if rounding cannot have changed them, else 0.

    LU factorization gives the determinant of A + E exactly, with :math:`|E| ≤ γ_d |L||U|` entry by entry. Expanding
    the determinant in its rows and bounding each term by Hadamard,
    :math:`|\det(A + E) - \det A| ≤ \prod(‖a_i‖ + ‖e_i‖) - \prod ‖a_i‖`.
    """
    d = minors.shape[-1]
    unit = 2.0**-53
    packed, pivots, _ = torch.linalg.lu_factor_ex(torch.from_numpy(minors))
    factors = packed.numpy()
    upper = np.triu(factors)
    lower = np.tril(factors, -1) + np.eye(d)
    swaps = (pivots.numpy() != np.arange(1, d + 1)).sum(axis=1)
    determinant = np.prod(np.diagonal(upper, axis1=1, axis2=2), axis=1)
    # Use the largest error for all rows, because L and U are in pivot order. The constants are at least twice the
    # theoretical ones, which covers rounding in the bound itself and entries that underflow when scaled.
    errors = np.linalg.norm(np.abs(lower) @ np.abs(upper), axis=2) * (2 * d * unit)
    norms = np.linalg.norm(minors, axis=2)
    volume = np.prod(norms, axis=1)
    larger = np.prod(norms + errors.max(axis=1, keepdims=True), axis=1)
    clear = np.abs(determinant) > 2 * (larger - volume) + 8 * d * unit * larger
    return np.where(clear, np.sign(determinant) * (1 - 2 * (swaps % 2)), 0).astype(np.int64)


def _rows_independent(matrix: NDArray[np.float64]) -> bool:
    """Whether the rank in exact arithmetic equals the number of rows."""
    return len(echelon_form([to_integers(row) for row in matrix]).pivots) == len(matrix)

"""What the determinants of the rows prove about a small layer: general position, and minors of one sign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.audit.rational import whole_numbers

_MOST_MINORS = 1_000_000
# Exact determinants take about d^4 steps on long integers: half a second at d = 64.
_MOST_COLUMNS = 64
_BLOCK = 4096


def in_general_position(weight: Tensor | NDArray[Any]) -> bool:
    r"""Whether any ``d`` rows of an ``n × d`` matrix (all rows, where ``n < d``) are linearly independent.

    .. math:: \Delta_I(W) = \det\,(w_i)_{i \in I} \ne 0 \quad \text{for all } |I| = d

    *True* proves that the layer, without a bias, can output exactly ``count_argmaxable(n, d)`` of the ``2^n`` label
    assignments; *False* proves that it can output fewer. The answer is about the very numbers given, without
    tolerance: a determinant that floating point does not separate from zero is decided in exact arithmetic.

    Args:
        weight: ``(n, d)``, a tensor or an array, finite; float64 holds it exactly. There may be at most a million
            choices of ``d`` rows, and 64 columns.

    Returns:
        The answer, exact.

    Example:
        >>> in_general_position(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        True
        >>> in_general_position(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 0.0]]))
        False

    References:
        Cover, "Geometrical and statistical properties of systems of linear inequalities", 1965.
    """
    matrix = _checked(weight)
    if matrix.shape[0] < matrix.shape[1]:
        return _rows_independent(matrix)
    return all(0 not in signs for signs in _minor_signs(matrix))


def minors_agree(weight: Tensor | NDArray[Any]) -> bool:
    r"""Whether all maximal minors of an ``n × d`` matrix are nonzero and have one sign.

    .. math:: \operatorname{sign} \Delta_I(W) = \operatorname{sign} \Delta_J(W) \ne 0 \quad \text{for all } I, J

    *True* proves that the layer can output exactly the label assignments whose signs change at most ``d - 1`` times
    from the first label to the last; with ``d = 2k + 1`` these include every set of at most ``k`` labels. *False*
    proves that the layer is not of this kind, in this order of its labels. With ``n ≤ d`` no assignment has more
    changes, so the answer is that of `in_general_position`. Exact, as there.

    Args:
        weight: as for `in_general_position`.

    Returns:
        The answer, exact.

    Example:
        >>> moments = torch.arange(1.0, 6.0)[:, None] ** torch.arange(3)  # Vandermonde
        >>> minors_agree(moments), minors_agree(moments.flip(1)), minors_agree(moments[[1, 0, 2, 3, 4]])
        (True, True, False)

    References:
        Gantmakher, Krein, "Oscillation matrices and kernels", 1961.
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, theorems 2-4.
    """
    matrix = _checked(weight)
    if matrix.shape[0] < matrix.shape[1]:
        return _rows_independent(matrix)
    seen: set[int] = set()
    for signs in _minor_signs(matrix):
        seen.update(signs)
        if 0 in seen or len(seen) > 1:
            return False
    return True


def _checked(weight: Tensor | NDArray[Any]) -> NDArray[np.float64]:
    """The matrix in float64; refused if it is not finite, not exact there, or too large."""
    if isinstance(weight, Tensor):
        weight = weight.detach().cpu()
        weight = (weight.double() if weight.is_floating_point() else weight).numpy()
    values = np.asarray(weight)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"`weight` must have 2 dimensions, neither empty; got shape {tuple(values.shape)}.")
    matrix = values.astype(np.float64)
    # An integer is compared with a float as a float, so the largest exact one is the test for integers.
    whole = np.issubdtype(values.dtype, np.integer)
    if (np.abs(matrix) >= 2**53).any() if whole else not np.array_equal(matrix, values, equal_nan=True):
        raise ValueError(f"`weight` must hold numbers that float64 represents; got {values.dtype}.")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise ValueError(f"`weight` must be finite; row {bad[0]} is not.")
    n, d = matrix.shape
    if d > _MOST_COLUMNS:
        raise ValueError(f"`weight` must have at most {_MOST_COLUMNS} columns for exact minors; got {d}.")
    if math.comb(n, d) > _MOST_MINORS:
        raise ValueError(
            f"`weight` must have at most {_MOST_MINORS:,} maximal minors; "
            f"got {math.comb(n, d):,} choices of {d} of {n} rows."
        )
    return matrix


def _minor_signs(matrix: NDArray[np.float64]) -> Iterator[list[int]]:
    """Signs (-1, 0, 1) of all minors of d rows, in blocks."""
    d = matrix.shape[1]
    # A power of two per row changes no sign and no digit, and keeps the determinants within the range of float64.
    _, exponents = np.frexp(np.abs(matrix).max(axis=1, keepdims=True))
    scaled = np.ldexp(matrix, -exponents)
    exact = [whole_numbers(row) for row in matrix]
    choices = itertools.combinations(range(len(matrix)), d)
    while block := list(itertools.islice(choices, max(1, _BLOCK * 16 // d**2))):
        signs = _float_signs(scaled[np.array(block)]).tolist()
        for position, sign in enumerate(signs):
            if sign == 0:
                signs[position] = _exact_sign([exact[row] for row in block[position]])
        yield signs


def _float_signs(minors: NDArray[np.float64]) -> NDArray[np.int64]:
    r"""Signs of the determinants of ``(B, d, d)`` where rounding cannot have changed them, else 0.

    LU factorisation gives the determinant of A + E exactly, with :math:`|E| ≤ γ_d |L||U|` entry by entry. Expanding
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
    # The largest error serves all rows, because those of L and U stand in the order of the pivots. The constants are
    # at least twice those of theory: they cover the rounding of the bound, and entries that `ldexp` flushed to zero.
    errors = np.linalg.norm(np.abs(lower) @ np.abs(upper), axis=2) * (2 * d * unit)
    norms = np.linalg.norm(minors, axis=2)
    volume = np.prod(norms, axis=1)
    larger = np.prod(norms + errors.max(axis=1, keepdims=True), axis=1)
    clear = np.abs(determinant) > 2 * (larger - volume) + 8 * d * unit * larger
    return np.where(clear, np.sign(determinant) * (1 - 2 * (swaps % 2)), 0).astype(np.int64)


def _exact_sign(rows: list[list[int]]) -> int:
    """Sign of the determinant of whole numbers."""
    rank, sign = _eliminate(rows)
    return sign if rank == len(rows) else 0


def _rows_independent(matrix: NDArray[np.float64]) -> bool:
    """Whether the rank, in exact arithmetic, is the number of rows."""
    return _eliminate([whole_numbers(row) for row in matrix])[0] == len(matrix)


def _eliminate(rows: list[list[int]]) -> tuple[int, int]:
    """Rank of whole numbers and, for a regular square matrix, the sign of its determinant.

    Bareiss: every division is without remainder, so the numbers stay as short as the minors that they are.
    """
    rows = [list(row) for row in rows]
    rank, swapped, previous = 0, 1, 1
    for column in range(len(rows[0])):
        found = next((row for row in range(rank, len(rows)) if rows[row][column]), None)
        if found is None:
            continue
        if found != rank:
            rows[rank], rows[found] = rows[found], rows[rank]
            swapped = -swapped
        top = rows[rank]
        pivot = top[column]
        for row in rows[rank + 1 :]:
            head = row[column]
            for j in range(column, len(row)):
                row[j] = (row[j] * pivot - head * top[j]) // previous
        previous = pivot
        rank += 1
        if rank == len(rows):
            break
    return rank, swapped if previous > 0 else -swapped

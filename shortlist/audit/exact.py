"""Exact linear algebra on floats: they are rationals, so fraction-free integer elimination applies."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from operator import mul, or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


_MAX_ROWS = 40
# Bland's rule ends, but may take exponentially many pivots. Sets met in practice take a few per dimension.
_PIVOTS_PER_DIMENSION = 50


class Echelon(NamedTuple):
    """Row echelon form: pivot columns, nonzero rows, and the sign of the determinant if the matrix is nonsingular."""

    pivots: list[int]
    rows: list[list[int]]
    sign: int


def to_integers(values: Array) -> list[int]:
    """``values`` times the smallest power of two that makes all of them integers."""
    ratios = [value.as_integer_ratio() for value in values.tolist()]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


class IntegerRows(NamedTuple):
    """Rows of floats times positive powers of two, as integers: ``rows[i][j] = matrix[i, j] 2^(shifts[j] + ...)``.

    Rows are scaled too, by powers that nobody needs: they change no sign of a product.
    """

    rows: list[list[int]]
    shifts: list[int]

    def unscaled(self, vector: Sequence[int]) -> list[int]:
        """The same vector, up to a positive factor, in the coordinates of the floats."""
        lowest = min(self.shifts)
        return [value << (shift - lowest) for value, shift in zip(vector, self.shifts, strict=True)]


def to_integer_rows(matrix: Array) -> IntegerRows:
    """Scale columns, then rows, to short integers; the signs of products with a scaled vector are exact."""
    columns, shifts = [], []
    for column in matrix.T:
        scale = max(value.as_integer_ratio()[1] for value in column.tolist()).bit_length() - 1
        whole, zeros = _without_trailing_zeros(to_integers(column))
        columns.append(whole)
        shifts.append(scale - zeros)
    rows = [_without_trailing_zeros(list(row))[0] for row in zip(*columns, strict=True)]
    return IntegerRows(rows, shifts)


def _without_trailing_zeros(values: list[int]) -> tuple[list[int], int]:
    """Integers divided by the largest power of two that divides all of them, and its exponent."""
    union = functools.reduce(or_, (abs(value) for value in values), 0)
    zeros = max(0, (union & -union).bit_length() - 1)
    return [value >> zeros for value in values], zeros


def echelon_form(rows: Sequence[Sequence[int]]) -> Echelon:
    """Eliminate by Bareiss' method: every division is exact, and every entry is a minor, so entries stay short."""
    table = [list(row) for row in rows]
    pivots: list[int] = []
    sign, previous = 1, 1
    for column in range(len(table[0]) if table else 0):
        rank = len(pivots)
        found = next((row for row in range(rank, len(table)) if table[row][column]), None)
        if found is None:
            continue
        if found != rank:
            table[rank], table[found] = table[found], table[rank]
            sign = -sign
        top = table[rank]
        pivot = top[column]
        for row in table[rank + 1 :]:
            head = row[column]
            for j in range(column, len(row)):
                row[j] = (row[j] * pivot - head * top[j]) // previous
        previous = pivot
        pivots.append(column)
        if len(pivots) == len(table):
            break
    return Echelon(pivots, table[: len(pivots)], sign if previous > 0 else -sign)


def vanishing_weights(rows: Array) -> list[Fraction] | None:
    """Nonnegative weights that sum to one and combine ``rows`` to exactly zero.

    Returns:
        None if the weights are not unique up to scale, or for more than 40 rows.
    """
    count = len(rows)
    if not 0 < count <= _MAX_ROWS:
        return None
    echelon = echelon_form([to_integers(column) for column in rows.T if column.any()])
    free = [column for column in range(count) if column not in echelon.pivots]
    if len(free) != 1:
        return None
    weights = [Fraction(0)] * count
    weights[free[0]] = Fraction(1)
    for pivot, line in zip(reversed(echelon.pivots), reversed(echelon.rows), strict=True):
        rest = sum((line[column] * weights[column] for column in range(pivot + 1, count)), Fraction(0))
        weights[pivot] = -rest / line[pivot]
    if min(weights) < 0:
        return None
    total = sum(weights)
    return [weight / total for weight in weights]


class Alternative(NamedTuple):
    """One side of Gordan's alternative: a vector on the right side of every row, or rows that combine to zero."""

    vector: list[int] | None
    support: list[int] | None


def decide_exactly(rows: Sequence[Sequence[int]]) -> Alternative | None:
    r"""Find an integer vector :math:`x` with :math:`r_i \cdot x > 0` for all rows, or the rows that rule it out.

    Phase one of the revised simplex method for :math:`\sum_i \lambda_i (r_i, 1) = (0, 1),\ \lambda \ge 0`, on integers:
    the inverse of the basis is kept times its determinant, so that every division is exact. The first row with a
    positive gain enters (Bland's rule, which excludes cycles); put rows that are likely to matter first.

    Returns:
        None for more than 39 dimensions, or if the method needs unusually many pivots. The rows of a combination are
        minimal: their weights are unique up to scale.
    """
    dim = len(rows[0])
    size = dim + 1
    if size > _MAX_ROWS:
        return None
    # Entries are (row, 1); negative numbers in the basis stand for the artificial unit columns.
    inverse = [[int(i == j) for j in range(size)] for i in range(size)]
    basis, determinant = list(range(-size, 0)), 1
    for _ in range(_PIVOTS_PER_DIMENSION * size):
        price = [sum(column) for column in zip(*(inverse[i] for i in range(size) if basis[i] < 0), strict=True)]
        if not price or not price[-1]:
            return Alternative(None, [basis[i] for i in range(size) if inverse[i][-1]])
        entering = next((i for i, row in enumerate(rows) if _dot(price, row) > 0), None)
        if entering is None:
            return Alternative([-value for value in price[:-1]], None)
        column = [_dot(line, rows[entering]) for line in inverse]
        leaving = _leaving(inverse, basis, column)
        pivot, top = column[leaving], inverse[leaving]
        for i, factor in enumerate(column):
            if i != leaving:
                inverse[i] = [(pivot * a - factor * b) // determinant for a, b in zip(inverse[i], top, strict=True)]
        basis[leaving], determinant = entering, pivot
    return None


def _dot(line: list[int], row: Sequence[int]) -> int:
    """A line of the inverse times (row, 1)."""
    return sum(map(mul, line, row), line[-1])


def _leaving(inverse: list[list[int]], basis: list[int], column: list[int]) -> int:
    """The basic variable that reaches zero first as the new one grows; among equals, the first in Bland's order."""
    best = -1
    for i, slope in enumerate(column):
        if slope <= 0:
            continue
        ahead = inverse[best][-1] * slope - inverse[i][-1] * column[best]
        if best < 0 or ahead > 0 or (ahead == 0 and basis[i] < basis[best]):
            best = i
    return best

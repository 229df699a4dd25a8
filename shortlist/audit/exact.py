"""Exact linear algebra on floats: they are rationals, so fraction-free integer elimination applies."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from shortlist.audit.system import Array

_MAX_ROWS = 40


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

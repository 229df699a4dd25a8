"""Exact linear algebra on floating-point numbers, which are rationals: slow, for few rows, beyond doubt."""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np

from shortlist.audit.system import Array

_MOST_ROWS = 40


def vanishes_exactly(rows: Array) -> Array | None:
    """Weights, none negative, with which the rows sum to exactly zero, when they are unique up to scale; else None."""
    count = len(rows)
    if not 0 < count <= _MOST_ROWS:
        return None
    pivots, table = _eliminate([whole_numbers(column) for column in rows.T if column.any()], count)
    free = [column for column in range(count) if column not in pivots]
    if len(free) != 1:
        return None
    solution = [Fraction(0)] * count
    solution[free[0]] = Fraction(1)
    for pivot, line in zip(pivots, table, strict=True):
        solution[pivot] = Fraction(-line[free[0]], line[pivot])
    if min(solution) < 0:
        return None
    total = sum(solution)
    return np.array([float(value / total) for value in solution])


def whole_numbers(values: Array) -> list[int]:
    """The same numbers times the power of two that makes them whole."""
    ratios = [value.as_integer_ratio() for value in values.tolist()]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def _eliminate(lines: list[list[int]], width: int) -> tuple[list[int], list[list[int]]]:
    """Reduced echelon form by cross multiplication: pivot columns and their lines."""
    pivots: list[int] = []
    table: list[list[int]] = []
    for line in lines:
        for pivot, known in zip(pivots, table, strict=True):
            if line[pivot]:
                line = _cross(line, known, pivot)
        lead = next((column for column in range(width) if line[column]), None)
        if lead is None:
            continue
        table = [_cross(known, line, lead) if known[lead] else known for known in table]
        pivots.append(lead)
        table.append(line)
        if len(pivots) == width:
            break
    return pivots, table


def _cross(line: list[int], by: list[int], column: int) -> list[int]:
    """``line`` with its entry in ``column`` cancelled by a multiple of ``by``, divided by the common factor."""
    mine, theirs = line[column], by[column]
    result = [theirs * a - mine * b for a, b in zip(line, by, strict=True)]
    common = gcd(*result)
    return [value // common for value in result] if common > 1 else result

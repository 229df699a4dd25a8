"""Which label sets a layer can output, from the definitions: exact rationals, and the full linear program.

A label set asks for signs: y_i = 1 for its labels and -1 for all others. It is argmaxable iff some v has
y_i (w_i·v + b_i) > 0 at every label; in the top-k mode the rows are [w_i, 1]. No code is shared with the package.

Exact answers read each float as the rational that it is. A row may be multiplied by any positive number without
changing a strict sign, so rows become integers and the arithmetic never divides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

BOX = 1e4
"""Bound of every coordinate of v in the program for the radius."""

TEXT_EPSILON = 1e-8
"""The published test calls a set argmaxable iff its radius exceeds this."""


class Radius(NamedTuple):
    """Bounds of a radius: from below by a vector, from above by multipliers."""

    low: float
    high: float
    centre: np.ndarray


class Decision(NamedTuple):
    """One of the two exact certificates, in whole numbers: a vector or a combination; the other is None."""

    vector: list[int] | None
    combination: list[int] | None


def signed_system(weight: Any, labels: Sequence[int], bias: Any = None, mode: str = "sign") -> np.ndarray:
    """Rows y_i [w_i, (1 in the top-k mode), b_i] in float64; the last column is 0 without a bias."""
    weight = np.asarray(weight, dtype=np.float64)
    ones = [np.ones((len(weight), 1))] if mode == "top-k" else []
    offset = np.zeros(len(weight)) if bias is None else np.asarray(bias, dtype=np.float64)
    y = np.full(len(weight), -1.0)
    y[list(labels)] = 1.0
    return y[:, None] * np.hstack([weight, *ones, offset[:, None]])


def integer_rows(matrix: np.ndarray) -> list[list[int]]:
    """Each row times its own power of two, so that every entry is an integer; the signs of all products are kept."""
    mantissas, exponents = np.frexp(matrix)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    # A zero has exponent 0, which must not scale the others by hundreds of digits.
    exponents = np.where(whole == 0, exponents.max(1, initial=-1100, keepdims=True), exponents)
    shifts = exponents - exponents.min(1, initial=1100, keepdims=True)
    return [[int(a) << int(s) for a, s in zip(*row, strict=True)] for row in zip(whole, shifts, strict=True)]


def exact_products(rows: list[list[int]], vector: Sequence[int]) -> list[int]:
    """Dot product of each row with the vector."""
    return [sum(a * x for a, x in zip(row, vector, strict=True)) for row in rows]


def exact_decision(rows: list[list[int]]) -> Decision:
    """Decide whether some x has row·x > 0 for all rows (at least one), by Gordan's alternative, with a checked proof.

    Phase one of the simplex method on Σ a_i row_i = 0, Σ a_i = 1, a ≥ 0 with Bland's rule, which ends whatever the
    ties. Integers throughout: the tableau is kept multiplied by the determinant of its basis, so divisions are exact.
    """
    count, dim = len(rows), len(rows[0])
    height, right = dim + 1, count + dim + 1
    table = [[row[j] for row in rows] if j < dim else [1] * count for j in range(height)]
    for j, line in enumerate(table):
        line += [int(i == j) for i in range(height)] + [int(j == dim)]
    goal = [sum(column) for column in zip(*table, strict=True)]
    goal[count:right] = [0] * height
    basis, scale = list(range(count, right)), 1
    while any(g > 0 for g in goal[:count]):
        entering = next(j for j in range(count) if goal[j] > 0)
        leaving = _leaving(table, basis, entering, right)
        pivot, line = table[leaving][entering], table[leaving]
        for other in [*(table[i] for i in range(height) if i != leaving), goal]:
            factor = other[entering]
            other[:] = [(pivot * a - factor * b) // scale for a, b in zip(other, line, strict=True)]
        basis[leaving], scale = entering, pivot
    if goal[right] > 0:
        vector = [-(g + scale) for g in goal[count : count + dim]]
        if min(exact_products(rows, vector)) <= 0:
            raise ArithmeticError("the exact witness fails")
        return Decision(vector, None)
    combination = [0] * count
    for i, j in enumerate(basis):
        if j < count:
            combination[j] = table[i][right]
    columns = [list(column) for column in zip(*rows, strict=True)]
    if min(combination) < 0 or not any(combination) or any(exact_products(columns, combination)):
        raise ArithmeticError("the exact combination fails")
    return Decision(None, combination)


def _leaving(table: list[list[int]], basis: list[int], entering: int, right: int) -> int:
    """The row with the smallest ratio; among equals, the one whose variable comes first."""
    best = -1
    for i, line in enumerate(table):
        if line[entering] <= 0:
            continue
        if best >= 0:
            here, there = line[right] * table[best][entering], table[best][right] * line[entering]
            if here > there or (here == there and basis[i] > basis[best]):
                continue
        best = i
    return best


def is_argmaxable(weight: Any, labels: Sequence[int], bias: Any = None, mode: str = "sign") -> bool:
    """The exact answer for the stored numbers; for small layers."""
    return _feasible(signed_system(weight, labels, bias, mode), affine=bias is not None)


def _feasible(system: np.ndarray, *, affine: bool) -> bool:
    if not len(system):
        return True
    # An offset is a further coordinate s, and v/s solves the system with offsets, if s > 0.
    rows = integer_rows(system if affine else system[:, :-1])
    if affine:
        rows = [*rows, [0] * (system.shape[1] - 1) + [1]]
    return exact_decision(rows).vector is not None


def is_top_k(weight: Any, labels: Sequence[int], bias: Any = None) -> bool:
    """Whether some v gives every label of the set a larger logit than every other label has: all pairs, exactly."""
    stored = signed_system(weight, range(len(weight)), bias)
    # One power of two for the whole matrix, because differences of rows need a common scale.
    flat = integer_rows(stored.reshape(1, -1))[0]
    width = stored.shape[1]
    rows = [flat[i * width : (i + 1) * width] for i in range(len(stored))]
    rest = sorted(set(range(len(rows))) - set(labels))
    pairs = [[a - b for a, b in zip(rows[i], rows[j], strict=True)] for i in labels for j in rest]
    if not pairs:
        return True
    if bias is None:
        return exact_decision([pair[:-1] for pair in pairs]).vector is not None
    return exact_decision([*pairs, [0] * (width - 1) + [1]]).vector is not None


def witness_holds(weight: Any, labels: Sequence[int], vector: Any, bias: Any = None, mode: str = "sign") -> bool:
    """Whether all signs are exactly right; in the top-k mode the last entry of the vector is the threshold."""
    vector = np.append(np.asarray(vector, dtype=np.float64), 1.0)
    system = signed_system(weight, labels, bias, mode)
    return all(product > 0 for product in exact_products(integer_rows(system), integer_rows(vector[None])[0]))


def exact_witness_holds(weight: Any, labels: Sequence[int], vector: Any, bias: Any = None, mode: str = "sign") -> bool:
    """The same for a vector of integers, whose last entry is the denominator if there is a bias."""
    if bias is None:
        vector = [*vector, 0]
    elif vector[-1] <= 0:
        return False
    return all(
        product > 0 for product in exact_products(integer_rows(signed_system(weight, labels, bias, mode)), vector)
    )


def combination_holds(
    weight: Any, labels: Sequence[int], certificate: Any, bias: Any = None, mode: str = "sign"
) -> bool:
    """Whether the rows it names, each with a positive weight, are contradictory in exact arithmetic.

    With a bias, row n says that the coordinate of the bias is positive; ``_feasible`` always adds it.
    """
    rows, weights = np.asarray(certificate.rows), np.asarray(certificate.weights, dtype=np.float64)
    allowed = set(range(len(weight) + (bias is not None)))
    if len(rows) != len(weights) or len(set(rows.tolist()) & allowed) != len(rows):
        return False
    if not (weights > 0).all() or not len(weights):
        return False
    system = signed_system(weight, labels, bias, mode)[rows[rows < len(weight)]]
    return not _feasible(system, affine=bias is not None)


def combination_length(
    weight: Any, labels: Sequence[int], certificate: Any, bias: Any = None, mode: str = "sign"
) -> float:
    """Length of the weighted sum of the rows y_i [w_i, b_i] scaled to length one, row n being [0, 1]."""
    system = signed_system(weight, labels, bias, mode)
    unit = np.vstack([system, np.append(np.zeros(system.shape[1] - 1), 1.0)])[np.asarray(certificate.rows)]
    # Divided by the largest entry first, because squares overflow; zero rows stay.
    for order in (np.inf, 2):
        norms = np.linalg.norm(unit, ord=order, axis=1, keepdims=True)
        unit = unit / np.where(norms > 0, norms, 1)
    return float(np.linalg.norm(np.asarray(certificate.weights) @ unit))


def full_program(weight: Any, labels: Sequence[int], bias: Any = None, mode: str = "sign", **options: float) -> Radius:
    """Solve max ε, y_i (w_i·v + b_i) ≥ ε‖w_i‖, |v_j| ≤ 1e4, over all rows at once with HiGHS.

    Posed for unit rows and |v_j| ≤ 1: a solver's tolerance is absolute. A solver's own value proves nothing, so both
    bounds are computed anew: the vector achieves ``low``, and by weak duality no vector exceeds ``high``, up to
    rounding. Rows of zeros bound nothing here; they need a look of their own.
    """
    system = signed_system(weight, labels, bias, mode)
    norms = np.linalg.norm(system[:, :-1], axis=1)
    system = system[norms > 0] / norms[norms > 0, None]
    rows, offset = system[:, :-1], system[:, -1] / BOX
    count, dim = rows.shape
    answer = linprog(
        np.append(np.zeros(dim), -1.0),
        A_ub=np.hstack([-rows, np.ones((count, 1))]),
        b_ub=offset,
        bounds=[(-1, 1)] * dim + [(None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10} | options,
    )
    if answer.status != 0:
        raise ArithmeticError(f"the reference program ended with: {answer.message}")
    centre = np.clip(answer.x[:-1], -1, 1)
    multipliers = np.maximum(-answer.ineqlin.marginals, 0)
    multipliers /= multipliers.sum()
    high = np.abs(multipliers @ rows).sum() + multipliers @ offset
    return Radius(BOX * float((rows @ centre + offset).min()), BOX * float(high), BOX * centre)

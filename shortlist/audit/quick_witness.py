r"""A witness for a large set whose signs are nearly fitted, by a few Newton steps.

Of signed unit rows :math:`a_i` minimise :math:`\|v\|^2 / C + \sum_i \max(0, 1 - a_i \cdot v)^2`. The sum is piecewise
quadratic, so that Newton's method ends after finitely many steps, each one least-squares problem in the rows that are
not yet at margin one. Where thousands of rows have to be on the right side and a hundred numbers decide, that is faster
than the nearest point, to which rows come one after the other; but it proves nothing when it fails.

References:
    Mangasarian, "A Finite Newton Method for Classification", Optimization Methods and Software 17, 2002; Keerthi and
    DeCoste, "A Modified Finite Newton Method for Fast Solution of Large Scale Linear SVMs", JMLR 6, 2005.
"""

from __future__ import annotations

import numpy as np

from shortlist.audit.system import Array, System

_PENALTY = 1e6
# Rows per dimension that the pool starts with.
_START = 10
_ROUNDS, _STEPS = 8, 40
# A margin in the pool that is enough to look at all rows again, and one below which a row joins the pool.
_ENOUGH, _NEAR = 0.1, 0.5
# Beyond this share of rows on the wrong side of the first fit, the set is hardly argmaxable.
_MOST_WRONG = 0.1


def quick_witness(system: System, signs: Array, guess: Array, values: Array) -> Array | None:
    """Improve on a first fit until all rows are on their side.

    Args:
        system: the layer.
        signs: of the set, one per row.
        guess: a direction that fits the signs.
        values: signed products of the rows with it.

    Returns:
        A direction with all rows on their side. None where the first fit is bad, or nothing was found; that says
        nothing about the set.
    """
    count, dim = system.unit.shape
    if np.count_nonzero(values <= 0) > _MOST_WRONG * count:
        return None
    size = min(count, _START * dim)
    rows = np.argpartition(values, size - 1)[:size]
    edge = values[rows].max()
    if edge <= 0:
        return None
    pool, vector = signs[rows, None] * system.unit[rows], guess / edge
    for _ in range(_ROUNDS):
        vector = _separate(pool, vector)
        if vector is None:
            return None
        values = signs * (system.unit @ vector)
        if values.min() > 0:
            return vector
        values[rows] = np.inf
        more = np.flatnonzero(values < _NEAR)
        if len(more) == 0:  # A row of the pool is wrong by rounding.
            return None
        rows, pool = np.append(rows, more), np.append(pool, signs[more, None] * system.unit[more], axis=0)
    return None


def _separate(pool: Array, vector: Array) -> Array | None:
    """Newton's method from ``vector`` until all margins are positive beyond doubt."""
    margins = pool @ vector
    for _ in range(_STEPS):
        short = margins < 1
        rows = pool[short]
        matrix = rows.T @ rows
        matrix[np.diag_indices(len(matrix))] += 1 / _PENALTY
        change = np.linalg.solve(matrix, rows.sum(0)) - vector
        slope = pool @ change
        whole = bool(((margins + slope < 1) == short).all())
        step = 1.0 if whole else _step(vector, margins, change, slope)
        vector, margins = vector + step * change, margins + step * slope
        if margins.min() > _ENOUGH:
            return vector
        if whole or step == 0:
            break
    return vector if margins.min() > 0 else None


def _step(vector: Array, margins: Array, change: Array, slope: Array) -> float:
    """The first of 1, 1/2, 1/4, ... that makes the sum smaller; 0 if none does."""

    def loss(step: float) -> float:
        at, missing = vector + step * change, np.minimum(margins + step * slope - 1, 0)
        return float(at @ at / _PENALTY + missing @ missing)

    step, before = 1.0, loss(0.0)
    while step > 1e-3:
        if loss(step) < before:
            return step
        step /= 2
    return 0.0

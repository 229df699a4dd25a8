"""Decide one label set: by Newton steps, the nearest point of a growing pool, the Fourier theorem, or exactly.

References:
    Mangasarian, "A Finite Newton Method for Classification", Optimization Methods and Software 17, 2002; Keerthi and
    DeCoste, "A Modified Finite Newton Method for Fast Solution of Large Scale Linear SVMs", JMLR 6, 2005.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.audit.certificates import (
    Combination,
    Decision,
    ExactWitness,
    Multipliers,
    Theorem,
    Witness,
    combine,
    is_witness,
)
from shortlist.audit.exact import decide_exactly
from shortlist.audit.nearest_point import FEASIBLE, VANISHED, NearestPoint
from shortlist.audit.radius import largest_ball, make_multipliers, radius_above, radius_below
from shortlist.audit.system import BOX, UNIT_ROUNDOFF, Array, Indices, System
from shortlist.functional import dft_witness

# Initial size and growth of the pool, in rows per dimension.
_START, _GROWTH = 5, 2
# From this many rows per dimension, Newton's method is faster for large sets.
_MANY = 60
# Fraction of the best margin that a witness needs. Try the first, fast value first; the second is for thin regions.
_SHARES = (0.3, 0.99)

_PENALTY = 1e6
# Initial size of the pool for Newton's method, in rows per dimension.
_NEWTON_START = 10
_ROUNDS, _STEPS = 8, 40
# Recheck all rows when the pool's margin reaches the first value; rows with a margin below the second join the pool.
_ENOUGH, _NEAR = 0.1, 0.5
# If the first fit puts a larger fraction of rows on the wrong side, the set is almost never argmaxable.
_MOST_WRONG = 0.1


def decide(system: System, active: Indices, *, radius: bool) -> Decision:
    """Verdict and certificate of one set and, on request, its exact radius."""
    decision = _search(system, active)
    if decision.verdict == "undecided" and system.dft is not None:
        decision = _decide_by_theorem(system, active, system.dft, decision)
    if not radius or not isinstance(decision.certificate, Witness):
        return decision
    signs = system.signs(active)
    ball = largest_ball(system, signs, decision.certificate.vector)
    if ball.high < decision.high:
        decision = decision._replace(high=ball.high, multipliers=ball.multipliers)
    if not is_witness(system, signs, ball.center):
        return decision
    return decision._replace(certificate=Witness(ball.center), low=ball.low, high=max(ball.low, decision.high))


def _search(system: System, active: Indices) -> Decision:
    """Find a witness or a vanishing combination, and check it."""
    signs = system.signs(active)
    if len(system.zero_rows):
        certificate = Combination(system.zero_rows[:1], np.ones(1), 0.0, "exact")
        return Decision("unargmaxable", certificate, 0.0, 0.0, "")
    guess, values = _first_fit(system, signs, active)
    count, dim = system.unit.shape
    if len(active) > dim and count >= _MANY * dim:
        direction = newton_witness(system, signs, guess, values)
        if direction is not None:
            # The rows nearest to the witness bound the radius from above.
            solver, _ = _make_pool(system, signs, signs * (system.unit @ direction), 7 * dim // 4)
            solver.solve(_SHARES[0])
            decision = _witness_decision(system, signs, direction, solver)
            if decision is not None:
                return decision
    few = signs > 0 if len(active) <= dim else np.zeros(len(signs), dtype=bool)
    start = _START * dim + np.count_nonzero(few)
    solver, inside = _make_pool(system, signs, np.where(few, -np.inf, values), start)
    decision = None
    for share in _SHARES:
        status = _grow(solver, system, signs, inside, share)
        if status != FEASIBLE:
            combination = _vanishing(system, signs, solver)
            if combination is not None:
                return Decision("unargmaxable", combination, 0.0, 0.0, "")
        decision = _witness_decision(system, signs, solver.direction, solver)
        if decision is not None or status != FEASIBLE:
            break
    if decision is None and _theorem_verdict(system, _sign_changes(active, system.num_labels)) == "undecided":
        decision = _decide_exactly(system, signs, solver)
    return decision or _undecided(system, signs, solver)


def _first_fit(system: System, signs: Array, active: Indices) -> tuple[Array, Array]:
    """A least-squares fit of the signs, and the signed products of all rows with it."""
    # Weight active labels more than inactive ones; otherwise small sets would get the same fit as the empty set.
    emphasis = max(2.0, 0.1 * len(system.unit) / max(1, len(active)))
    guess = np.where(signs > 0, emphasis - 1.0, -1.0) @ system.least_squares
    return guess, signs * (system.unit @ guess)


def _make_pool(system: System, signs: Array, values: Array, size: int) -> tuple[NearestPoint, NDArray[np.bool_]]:
    """A solver on the rows with the lowest values, and a mask of these rows."""
    count, dim = system.unit.shape
    size = min(count, size)
    rows = np.argpartition(values, size - 1)[:size]
    solver = NearestPoint(dim, min(count, 2 * size))
    solver.add(signs[rows, None] * system.unit[rows], rows)
    inside = np.zeros(count, dtype=bool)
    inside[rows] = True
    return solver, inside


def _grow(solver: NearestPoint, system: System, signs: Array, inside: NDArray[np.bool_], share: float) -> int:
    """Solve on the pool and add the worst rows outside it until none are violated or the combination vanishes."""
    dim = system.unit.shape[1]
    least = (dim + 4) * UNIT_ROUNDOFF
    while True:
        status = solver.solve(share)
        if status == VANISHED:
            return status
        values = signs * (system.unit @ solver.direction)
        values[inside] = np.inf
        wrong = min(np.count_nonzero(values <= least), max(1, _GROWTH * dim))
        if wrong == 0:
            return status
        rows = np.argpartition(values, wrong - 1)[:wrong]
        solver.add(signs[rows, None] * system.unit[rows], rows)
        inside[rows] = True


def _vanishing(system: System, signs: Array, solver: NearestPoint) -> Combination | None:
    """A proof from all support rows, or an exact one from those whose weight is more than rounding error."""
    heavy = solver.support[solver.weights > 1e-9 * solver.weights.max(initial=0.0)]
    return combine(system, signs, solver.support) or combine(system, signs, heavy)


def _witness_decision(system: System, signs: Array, direction: Array, solver: NearestPoint) -> Decision | None:
    if not direction.any() or (system.bias is not None and direction[-1] <= 0):
        return None
    vector = system.to_vector(direction)
    if not is_witness(system, signs, vector):
        return None
    low, bound = radius_below(system, signs, vector), _upper_bound(system, solver)
    return Decision("argmaxable", Witness(vector), low, max(low, radius_above(system, signs, bound)), "", bound)


def _decide_exactly(system: System, signs: Array, solver: NearestPoint) -> Decision | None:
    """Decide in exact arithmetic what float64 could not; the rows that the search ended with are the likely ones."""
    order = np.append(solver.support, np.setdiff1d(np.arange(len(signs)), solver.support))
    rows = (system.integers.rows[i] for i in order.tolist())
    alternative = decide_exactly(
        [row if sign > 0 else [-value for value in row] for sign, row in zip(signs[order], rows, strict=True)]
    )
    if alternative is None:
        return None
    if alternative.vector is None:
        combination = combine(system, signs, order[alternative.support])
        return None if combination is None else Decision("unargmaxable", combination, 0.0, 0.0, "")
    full = [0] * system.augmented.shape[1]
    for column, value in zip(system.kept.tolist(), system.integers.unscaled(alternative.vector), strict=True):
        full[column] = value
    certificate, low, bound = ExactWitness(tuple(full)), 0.0, _upper_bound(system, solver)
    # Division of integers rounds correctly, however long they are.
    scale = full.pop() if system.bias is not None else max(map(abs, full))
    if max(map(abs, full)) // scale < BOX:
        vector = np.array([value / scale for value in full]) * (1.0 if system.bias is not None else BOX)
        if is_witness(system, signs, vector):
            certificate, low = Witness(vector), radius_below(system, signs, vector)
    return Decision("argmaxable", certificate, low, max(low, radius_above(system, signs, bound)), "", bound)


def _undecided(system: System, signs: Array, solver: NearestPoint) -> Decision:
    bound = _upper_bound(system, solver)
    high = radius_above(system, signs, bound)
    if system.rank < system.unit.shape[1]:
        reason = f"the layer has {system.unit.shape[1]} columns but numerical rank {system.rank}"
    else:
        reason = "neither a witness nor a vanishing combination survives float64 rounding"
    reason = f"{reason}; no ball in the box has a radius above {high:.1e}"
    return Decision("undecided", None, 0.0, high, reason, bound)


def _upper_bound(system: System, solver: NearestPoint) -> Multipliers | None:
    """Rescale weights: the solver's rows have unit norm over all kept columns, the bound needs it over ``features``."""
    support = solver.support
    labels = support < system.num_labels
    weights = np.where(labels, solver.weights, 0.0)
    rows = support[labels]
    norms = np.linalg.norm(system.homogeneous[rows, : system.features.shape[1]], axis=1)
    weights[labels] *= norms / np.linalg.norm(system.rows[rows], axis=1)
    return make_multipliers(system, support, weights)


def newton_witness(system: System, signs: Array, guess: Array, values: Array) -> Array | None:
    r"""Find a witness for a large set whose signs are almost fitted, in a few Newton steps.

    Minimizes :math:`\|v\|^2 / C + \sum_i \max(0, 1 - a_i \cdot v)^2` over signed unit rows :math:`a_i`. The sum is
    piecewise quadratic, so Newton's method terminates after finitely many steps, each a least-squares problem in the
    rows below margin one. For thousands of rows in a hundred dimensions this is faster than the nearest-point solver,
    which adds rows one by one, but its failure proves nothing.

    Args:
        system: the layer.
        signs: signs of the set, one per row.
        guess: a direction that fits the signs.
        values: signed products of the rows with ``guess``.

    Returns:
        A direction with every row on its correct side; None if the first fit is poor or none was found.
    """
    count, dim = system.unit.shape
    if np.count_nonzero(values <= 0) > _MOST_WRONG * count:
        return None
    size = min(count, _NEWTON_START * dim)
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
        if len(more) == 0:  # Only rounding puts a pool row on the wrong side.
            return None
        rows, pool = np.append(rows, more), np.append(pool, signs[more, None] * system.unit[more], axis=0)
    return None


def _separate(pool: Array, vector: Array) -> Array | None:
    """Newton's method from ``vector`` until all margins are clearly positive."""
    margins = pool @ vector
    for _ in range(_STEPS):
        short = margins < 1
        rows = pool[short]
        matrix = rows.T @ rows
        matrix[np.diag_indices(len(matrix))] += 1 / _PENALTY
        change = np.linalg.solve(matrix, rows.sum(0)) - vector
        slope = pool @ change
        full = bool(((margins + slope < 1) == short).all())
        step = 1.0 if full else _line_search(vector, margins, change, slope)
        vector, margins = vector + step * change, margins + step * slope
        if margins.min() > _ENOUGH:
            return vector
        if full or step == 0:
            break
    return vector if margins.min() > 0 else None


def _line_search(vector: Array, margins: Array, change: Array, slope: Array) -> float:
    """The first of 1, 1/2, 1/4, ... that decreases the objective; 0 if none does."""

    def loss(step: float) -> float:
        at, missing = vector + step * change, np.minimum(margins + step * slope - 1, 0)
        return float(at @ at / _PENALTY + missing @ missing)

    step, before = 1.0, loss(0.0)
    while step > 1e-3:
        if loss(step) < before:
            return step
        step /= 2
    return 0.0


def _decide_by_theorem(system: System, active: Indices, k: int, undecided: Decision) -> Decision:
    """For a Fourier layer: the trigonometric polynomial if it keeps the signs after rounding, else the theorem."""
    changes = _sign_changes(active, system.num_labels)
    verdict = _theorem_verdict(system, changes)
    if verdict == "undecided":
        return undecided
    if verdict == "unargmaxable":
        return Decision(verdict, Theorem(k, changes, -math.inf), 0.0, 0.0, "")
    polynomial = dft_witness(torch.from_numpy(active)[None], system.num_labels, k)
    vector = np.zeros(system.features.shape[1])
    vector[: 2 * k + 1] = BOX * polynomial.features[0].numpy()
    signs = system.signs(active)
    if is_witness(system, signs, vector):
        low = radius_below(system, signs, vector)
        return Decision(verdict, Witness(vector), low, max(low, undecided.high), "", undecided.multipliers)
    theorem = Theorem(k, changes, _log10_radius(system, k, float(polynomial.log10_radius[0])))
    low = theorem_radius(theorem)
    return Decision(verdict, theorem, low, max(low, undecided.high), "", undecided.multipliers)


def _sign_changes(active: Indices, num_labels: int) -> int:
    """Number of cyclic sign changes: twice the number of runs."""
    present = np.zeros(num_labels, dtype=bool)
    present[active] = True
    return int(np.count_nonzero(present != np.roll(present, 1)))


def _theorem_verdict(system: System, changes: int) -> str:
    """The verdict from the sign changes; undecided unless the layer starts with the Fourier matrix and has no bias."""
    if system.dft is None or system.bias is not None or not system.is_fourier:
        return "undecided"
    if changes <= 2 * system.dft:
        return "argmaxable"
    # With additional columns, sets that the theorem does not cover may also be argmaxable.
    return "unargmaxable" if system.weight.shape[1] == 2 * system.dft + 1 else "undecided"


def _log10_radius(system: System, k: int, log10_radius: float) -> float:
    """Convert from Fourier rows and a unit box to the layer's box and rows, which additional columns make longer."""
    exponents, norms = system.norms
    longest = (np.log10(norms) + exponents * math.log10(2)).max()
    return log10_radius + math.log10(BOX * math.sqrt((2 * k + 1) / system.num_labels)) - float(longest)


def theorem_radius(theorem: Theorem) -> float:
    """The radius that the theorem's polynomial achieves; 0 if that underflows."""
    return 10.0**theorem.log10_radius if theorem.log10_radius > -300 else 0.0


def theorem_holds(system: System, active: Indices, verdict: str, theorem: Theorem) -> bool:
    """Whether the theorem applies, gives this verdict, and its polynomial has the claimed radius."""
    changes = _sign_changes(active, system.num_labels)
    if (theorem.k, theorem.sign_changes) != (system.dft, changes) or verdict != _theorem_verdict(system, changes):
        return False
    if changes > 2 * theorem.k:
        return theorem.log10_radius == -math.inf
    polynomial = dft_witness(torch.from_numpy(active)[None], system.num_labels, theorem.k)
    expected = _log10_radius(system, theorem.k, float(polynomial.log10_radius[0]))
    return abs(expected - theorem.log10_radius) <= 1e-6 * max(1.0, abs(expected))

"""The verdict on one label set: nearest points on a pool of rows that grows until nothing outside it is violated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist.audit.bounds import radius_above, radius_below
from shortlist.audit.certificates import Certificate, Combination, Witness, combine, is_witness
from shortlist.audit.cone import FEASIBLE, VANISHED, Cone
from shortlist.audit.quick_witness import quick_witness
from shortlist.audit.system import UNIT_ROUNDOFF, Array, Indices, System

# Rows per dimension that the pool starts with and grows by.
_START, _GROWTH = 5, 2
# Rows per dimension from which on Newton's method is the quicker one for large sets.
_MANY = 60
# How much of the best margin a witness needs: the first value is quick, the second is for thin regions.
_SHARES = (0.3, 0.99)


class Decision(NamedTuple):
    """Verdict, what proves it, certified bounds of the radius, and why there is none where there is none."""

    verdict: str
    certificate: Certificate | None
    low: float
    high: float
    reason: str


def decide(system: System, active: Indices) -> Decision:
    """Find a witness or a vanishing combination, and check it."""
    signs = system.signs(active)
    if len(system.dead):
        row = system.dead[:1]
        return Decision("unargmaxable", Combination(row, np.ones(1), 0.0, "exact"), 0.0, 0.0, "")
    guess, values = _first_fit(system, signs, active)
    count, dim = system.unit.shape
    if len(active) > dim and count >= _MANY * dim:
        decision = _quick(system, signs, guess, values)
        if decision is not None:
            return decision
    few = signs > 0 if len(active) <= dim else np.zeros(len(signs), dtype=bool)
    cone, inside = _pool(system, signs, np.where(few, -np.inf, values), _START * dim + np.count_nonzero(few))
    decision = None
    for share in _SHARES:
        status = _grow(cone, system, signs, inside, share)
        if status != FEASIBLE:
            combination = _vanishing(system, signs, cone)
            if combination is not None:
                return Decision("unargmaxable", combination, 0.0, 0.0, "")
        decision = _witness(system, signs, cone.direction, cone)
        if decision is not None or status != FEASIBLE:
            break
    return decision or _undecided(system, signs, cone)


def _first_fit(system: System, signs: Array, active: Indices) -> tuple[Array, Array]:
    """A least-squares fit of the signs, and the signed products of all rows with it."""
    # An active label weighs more than an inactive one, else the fit of a short list is that of the empty one.
    emphasis = max(2.0, 0.1 * len(system.unit) / max(1, len(active)))
    guess = np.where(signs > 0, emphasis - 1.0, -1.0) @ system.spread
    return guess, signs * (system.unit @ guess)


def _quick(system: System, signs: Array, guess: Array, values: Array) -> Decision | None:
    """A witness by a few Newton steps; the rows next to it bound the radius from above."""
    direction = quick_witness(system, signs, guess, values)
    if direction is None:
        return None
    cone, _ = _pool(system, signs, signs * (system.unit @ direction), 7 * len(direction) // 4)
    cone.solve(_SHARES[0])
    return _witness(system, signs, direction, cone)


def _pool(system: System, signs: Array, values: Array, size: int) -> tuple[Cone, NDArray[np.bool_]]:
    """The rows of the lowest values, and which those are."""
    count, dim = system.unit.shape
    size = min(count, size)
    rows = np.argpartition(values, size - 1)[:size]
    cone = Cone(dim, min(count, 2 * size))
    cone.add(signs[rows, None] * system.unit[rows], rows)
    inside = np.zeros(count, dtype=bool)
    inside[rows] = True
    return cone, inside


def _grow(cone: Cone, system: System, signs: Array, inside: NDArray[np.bool_], share: float) -> int:
    """Solve on the pool and add the worst rows outside it, until there are none or the combination vanishes."""
    dim = system.unit.shape[1]
    least = (dim + 4) * UNIT_ROUNDOFF
    while True:
        status = cone.solve(share)
        if status == VANISHED:
            return status
        values = signs * (system.unit @ cone.direction)
        values[inside] = np.inf
        wrong = min(np.count_nonzero(values <= least), max(1, _GROWTH * dim))
        if wrong == 0:
            return status
        rows = np.argpartition(values, wrong - 1)[:wrong]
        cone.add(signs[rows, None] * system.unit[rows], rows)
        inside[rows] = True


def _vanishing(system: System, signs: Array, cone: Cone) -> Combination | None:
    """The proof from all rows of the support, or an exact one from those whose weight is not just rounding."""
    heavy = cone.support[cone.weights > 1e-9 * cone.weights.max(initial=0.0)]
    return combine(system, signs, cone.support) or combine(system, signs, heavy)


def _witness(system: System, signs: Array, direction: Array, cone: Cone) -> Decision | None:
    if not direction.any() or (system.bias is not None and direction[-1] <= 0):
        return None
    vector = system.to_vector(direction)
    if not is_witness(system, signs, vector):
        return None
    low = radius_below(system, signs, vector)
    return Decision("argmaxable", Witness(vector), low, _above(system, signs, cone), "")


def _undecided(system: System, signs: Array, cone: Cone) -> Decision:
    high = _above(system, signs, cone)
    if system.rank < system.unit.shape[1]:
        reason = f"the layer has {system.unit.shape[1]} columns but numerical rank {system.rank}"
    else:
        reason = "neither a witness nor a vanishing combination survives float64 rounding"
    return Decision("undecided", None, 0.0, high, f"{reason}; no ball in the box has a radius above {high:.1e}")


def _above(system: System, signs: Array, cone: Cone) -> float:
    """The combination's rows have length one in all kept columns; the bound wants that of ``features`` alone."""
    support = cone.support
    labels = support < system.num_labels
    weights = np.where(labels, cone.weights, 0.0)
    scale = np.ones(len(support))
    rows = support[labels]
    lengths = np.linalg.norm(system.rows[rows], axis=1)
    own = np.linalg.norm(system.homogeneous[rows, : system.features.shape[1]], axis=1)
    scale[labels] = own / lengths
    return radius_above(system, signs, support, weights * scale)

r"""The Chebyshev radius of a label set's region: certified bounds and the linear program that closes their gap.

.. math:: \epsilon^* = \max\{\epsilon : s_i (w_i \cdot v + b_i) \ge \epsilon \|w_i\|,\ |v_j| \le 10^4\}

Any vector gives a lower bound. For weights :math:`\lambda \ge 0` that sum to one, every feasible pair has the upper
bound :math:`\epsilon \le \sum_i \lambda_i s_i b_i / \|w_i\| + 10^4 \|\sum_i \lambda_i s_i w_i / \|w_i\|\|_1`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shortlist.audit.certificates import Multipliers
from shortlist.audit.system import BOX, UNDERFLOW, UNIT_ROUNDOFF, Array, Indices, System, to_box
from shortlist.extras import require

_START = 2
_TOLERANCE = 1e-10
_SECONDS = 60.0


class Ball(NamedTuple):
    """A center, its certified radius, and a certified upper bound over all centers with its proof."""

    center: Array
    low: float
    high: float
    multipliers: Multipliers | None


def radius_below(system: System, signs: Array, vector: Array) -> float:
    """Radius of the ball around ``vector``, scaled to the edge of the box if there is no bias; 0 outside the region."""
    if system.bias is None:
        vector = to_box(vector)
    elif np.abs(vector).max(initial=0.0) > BOX:
        return 0.0
    n, size = system.features.shape
    error = (size + 4) * UNIT_ROUNDOFF
    # Replace an offset that overflows by a smaller one; a label on the wrong side stays there.
    offsets = np.clip(system.offsets, -1e300, 1e300)
    distance = signs[:n] * (system.normals @ vector + offsets)
    bound = error * (np.linalg.norm(vector) + np.abs(offsets)) + size * BOX * UNDERFLOW
    lowest = np.where(system.constant, np.inf, distance - bound).min(initial=np.inf)
    return float(max(0.0, lowest))


def make_multipliers(system: System, support: Indices, weights: Array) -> Multipliers | None:
    """The positive weights on labels, scaled to sum to one; None if there are none."""
    inside = (support < system.num_labels) & (weights > 0)
    support, weights = support[inside], weights[inside]
    return Multipliers(support, weights / weights.sum()) if len(support) else None


def radius_above(system: System, signs: Array, multipliers: Multipliers | None) -> float:
    """The upper bound on the radius of any ball in the region that these weights on the rows of ``normals`` prove."""
    if multipliers is None:
        return float("inf")
    support, weights = multipliers.rows, multipliers.weights
    normals = signs[support, None] * system.normals[support]
    size = normals.shape[1]
    total = np.abs(weights @ normals).sum() + (len(support) + 4) * UNIT_ROUNDOFF * size
    with np.errstate(invalid="ignore", over="ignore"):
        offset = float(weights @ (signs[support] * system.offsets[support]))
        slack = (len(support) + 4) * UNIT_ROUNDOFF * float(weights @ np.abs(system.offsets[support]))
        bound = BOX * total + offset + slack
    return float("inf") if np.isnan(bound) else float(max(0.0, bound))


def largest_ball(system: System, signs: Array, witness: Array) -> Ball:
    """The largest ball in the region and the box, by a linear program on few rows that adds violated rows.

    Starts from a vector inside the region. If the solver fails, the result is the ball around the witness and an
    infinite bound. A verdict never changes.
    """
    signs = signs[: system.num_labels]
    program = _Program(system, signs)
    start = witness / max(1.0, np.abs(witness).max() / BOX)
    values = program.distances(start / BOX)
    size = min(len(values), _START * program.dim + 1)
    program.add(np.argpartition(values, size - 1)[:size])
    best = Ball(witness, radius_below(system, signs, witness), float("inf"), None)
    while program.solve():
        below = program.distances(program.point) - program.radius
        # Only rounding violates a row that is already in the program; adding it again would change nothing.
        below[program.rows] = np.inf
        wrong = min(np.count_nonzero(below < -_TOLERANCE), max(1, program.dim // 2))
        if wrong == 0:
            return _better(best, system, signs, program)
        program.add(np.argpartition(below, wrong - 1)[:wrong])
    return best


def _better(best: Ball, system: System, signs: Array, program: _Program) -> Ball:
    """The better of the solver's point and the exact vertex of its basis, bounded by either's multipliers."""
    for point in [program.point, *program.vertex()]:
        center = BOX * np.clip(point, -1.0, 1.0)
        low = radius_below(system, signs, center)
        if low > best.low:
            best = best._replace(center=center, low=low)
    for weights in [program.multipliers, *program.vertex_multipliers()]:
        multipliers = make_multipliers(system, program.rows, weights)
        high = radius_above(system, signs, multipliers)
        if high < best.high:
            best = best._replace(high=high, multipliers=multipliers)
    return best._replace(high=max(best.high, best.low))


class _Program:
    """Maximize ε subject to ``s_i (a_i·v + c_i) >= ε`` and ``|v_j| <= 1``: the box is scaled to one."""

    def __init__(self, system: System, signs: Array) -> None:
        self._highs = require("highspy", extra="audit")
        self._signs, self._matrix, self._offsets = signs, system.normals, system.offsets / BOX
        # The logit of a zero row is its bias for every vector, so the row constrains nothing.
        self._constant = system.constant
        self.dim = self._matrix.shape[1]
        self.rows: Indices = np.empty(0, dtype=np.int64)
        self._solver = self._make_solver()

    def _make_solver(self) -> Any:
        solver = self._highs.Highs()
        options = {
            "output_flag": False,
            "threads": 1,
            "presolve": "off",
            "solver": "simplex",
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
            "time_limit": _SECONDS,
        }
        for name, value in options.items():
            solver.setOptionValue(name, value)
        size = self.dim + 1
        infinity = self._highs.kHighsInf
        solver.addVars(size, np.append(-np.ones(self.dim), -infinity), np.append(np.ones(self.dim), infinity))
        solver.changeColCost(self.dim, -1.0)
        return solver

    def distances(self, point: Array) -> Array:
        """Signed distance of a point in the unit box from every label's hyperplane; positive on the correct side."""
        values = self._signs * (self._matrix @ point + self._offsets)
        values[self._constant] = np.inf
        return values

    def add(self, rows: Indices) -> None:
        rows = rows[~self._constant[rows]]
        count, size = len(rows), self.dim + 1
        self._solver.addRows(
            count,
            -self._signs[rows] * self._offsets[rows],
            np.full(count, self._highs.kHighsInf),
            count * size,
            np.arange(0, count * size, size, dtype=np.int32),
            np.tile(np.arange(size, dtype=np.int32), count),
            self._constraints(rows).ravel(),
        )
        self.rows = np.concatenate([self.rows, rows])

    def _constraints(self, rows: Indices) -> Array:
        return np.hstack([self._signs[rows, None] * self._matrix[rows], -np.ones((len(rows), 1))])

    def solve(self) -> bool:
        """Solve from the last basis; false if the solver does not reach an optimum."""
        self._solver.run()
        if self._solver.getModelStatus() != self._highs.HighsModelStatus.kOptimal:
            return False
        solution = self._solver.getSolution()
        self._columns = np.array(solution.col_value)
        self.point, self.radius = self._columns[:-1], self._columns[-1]
        self.multipliers = np.maximum(0.0, np.array(solution.row_dual))
        basis = self._solver.getBasis()
        basic = self._highs.HighsBasisStatus.kBasic
        self._tight = np.array([status != basic for status in basis.row_status])
        self._free = np.flatnonzero([status == basic for status in basis.col_status])
        return True

    def _is_square(self) -> bool:
        """Whether the basis determines a vertex: as many tight rows as coordinates off their bound."""
        return np.count_nonzero(self._tight) == len(self._free) and self.dim in self._free

    def vertex(self) -> list[Array]:
        """The point where the tight rows hold with equality, more accurate than the solver; None if degenerate."""
        if not self._is_square():
            return []
        tight = self.rows[self._tight]
        lines = self._constraints(tight)
        fixed = np.setdiff1d(np.arange(self.dim + 1), self._free)
        at_bound = np.round(self._columns[fixed])
        right = -self._signs[tight] * self._offsets[tight] - lines[:, fixed] @ at_bound
        try:
            solution = np.linalg.solve(lines[:, self._free], right)
        except np.linalg.LinAlgError:
            return []
        point = self._columns.copy()
        point[fixed] = at_bound
        point[self._free] = solution
        return [point[:-1]] if np.isfinite(point).all() else []

    def vertex_multipliers(self) -> list[Array]:
        """Multipliers that combine the tight rows to exactly zero in the free coordinates."""
        if not self._is_square():
            return []
        lines = self._constraints(self.rows[self._tight])
        right = np.where(self._free == self.dim, -1.0, 0.0)
        try:
            solution = np.linalg.solve(lines[:, self._free].T, right)
        except np.linalg.LinAlgError:
            return []
        weights = np.zeros(len(self.rows))
        weights[self._tight] = solution
        return [weights] if np.isfinite(weights).all() and weights.min() >= 0 else []

"""The exact Chebyshev radius: a linear programme on few rows, to which the violated ones are added, and its vertex."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shortlist.audit.bounds import radius_above, radius_below
from shortlist.audit.system import BOX, Array, Indices, System
from shortlist.extras import require

_START = 2
_TOLERANCE = 1e-10
_SECONDS = 60.0


class Ball(NamedTuple):
    """A centre, the radius that it achieves and a bound that no centre exceeds, both certified."""

    centre: Array
    low: float
    high: float


def largest_ball(system: System, signs: Array, witness: Array) -> Ball:
    """The largest ball in the region of the signs and the box, starting from a vector inside the region.

    A solver that fails leaves the ball around the witness and an infinite bound; it never changes a verdict.
    """
    signs = signs[: system.num_labels]
    programme = _Programme(system, signs)
    start = witness / max(1.0, np.abs(witness).max() / BOX)
    values = programme.distances(start / BOX)
    size = min(len(values), _START * programme.dim + 1)
    programme.add(np.argpartition(values, size - 1)[:size])
    best = Ball(witness, radius_below(system, signs, witness), float("inf"))
    while programme.solve():
        below = programme.distances(programme.point) - programme.radius
        # A row that is in already is violated by rounding alone: adding it again would change nothing.
        below[programme.rows] = np.inf
        wrong = min(np.count_nonzero(below < -_TOLERANCE), max(1, programme.dim // 2))
        if wrong == 0:
            return _better(best, system, signs, programme)
        programme.add(np.argpartition(below, wrong - 1)[:wrong])
    return best


def _better(best: Ball, system: System, signs: Array, programme: _Programme) -> Ball:
    """The best of the solver's point and of the exact vertex that its basis names, bounded by either's multipliers."""
    centres = [programme.point, *programme.vertex()]
    for centre in centres:
        low = radius_below(system, signs, BOX * np.clip(centre, -1.0, 1.0))
        if low > best.low:
            best = best._replace(centre=BOX * np.clip(centre, -1.0, 1.0), low=low)
    for weights in [programme.multipliers, *programme.vertex_multipliers()]:
        best = best._replace(high=min(best.high, radius_above(system, signs, programme.rows, weights)))
    return best._replace(high=max(best.high, best.low))


class _Programme:
    """Maximise ε subject to ``s_i (a_i·v + c_i) >= ε`` and ``|v_j| <= 1``: the box is scaled to one."""

    def __init__(self, system: System, signs: Array) -> None:
        self._highs = require("highspy", extra="audit")
        self._signs, self._matrix, self._offsets = signs, system.scaled, system.offsets / BOX
        # A row of zeros says nothing about the vector: its logit is the bias whatever the input.
        self._silent = system.silent
        self.dim = self._matrix.shape[1]
        self.rows: Indices = np.empty(0, dtype=np.int64)
        self._solver = self._make()

    def _make(self) -> Any:
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
        """How far a point of the unit box is on the right side of every label's hyperplane."""
        values = self._signs * (self._matrix @ point + self._offsets)
        values[self._silent] = np.inf
        return values

    def add(self, rows: Indices) -> None:
        rows = rows[~self._silent[rows]]
        count, size = len(rows), self.dim + 1
        lines = np.hstack([self._signs[rows, None] * self._matrix[rows], -np.ones((count, 1))])
        self._solver.addRows(
            count,
            -self._signs[rows] * self._offsets[rows],
            np.full(count, self._highs.kHighsInf),
            count * size,
            np.arange(0, count * size, size, dtype=np.int32),
            np.tile(np.arange(size, dtype=np.int32), count),
            lines.ravel(),
        )
        self.rows = np.concatenate([self.rows, rows])

    def solve(self) -> bool:
        """Solve from the last basis; false when the solver does not reach an optimum."""
        self._solver.run()
        if self._solver.getModelStatus() != self._highs.HighsModelStatus.kOptimal:
            return False
        solution = self._solver.getSolution()
        values = np.array(solution.col_value)
        self.point, self.radius = values[:-1], values[-1]
        self.multipliers = np.maximum(0.0, np.array(solution.row_dual))
        self._columns = np.array(solution.col_value)
        self._tight()
        return True

    def _tight(self) -> None:
        """The square system that the basis names: rows at their bound, and coordinates off theirs."""
        basis = self._solver.getBasis()
        basic = self._highs.HighsBasisStatus.kBasic
        self._at = np.array([status != basic for status in basis.row_status])
        self._free = np.flatnonzero([status == basic for status in basis.col_status])

    def _square(self) -> tuple[Array, Indices] | None:
        tight = self.rows[self._at]
        if len(tight) != len(self._free) or self.dim not in self._free:
            return None
        lines = np.hstack([self._signs[tight, None] * self._matrix[tight], -np.ones((len(tight), 1))])
        return lines, tight

    def vertex(self) -> list[Array]:
        """The point where the tight rows are exactly tight: better than the solver's tolerance; none if degenerate."""
        square = self._square()
        if square is None:
            return []
        lines, tight = square
        fixed = np.setdiff1d(np.arange(self.dim + 1), self._free)
        held = np.round(self._columns[fixed])
        right = -self._signs[tight] * self._offsets[tight] - lines[:, fixed] @ held
        try:
            solution = np.linalg.solve(lines[:, self._free], right)
        except np.linalg.LinAlgError:
            return []
        point = self._columns.copy()
        point[fixed] = held
        point[self._free] = solution
        return [point[:-1]] if np.isfinite(point).all() else []

    def vertex_multipliers(self) -> list[Array]:
        """Multipliers for which the combination of tight rows is exactly zero in the free coordinates."""
        square = self._square()
        if square is None:
            return []
        lines, _ = square
        right = np.where(self._free == self.dim, -1.0, 0.0)
        try:
            solution = np.linalg.solve(lines[:, self._free].T, right)
        except np.linalg.LinAlgError:
            return []
        weights = np.zeros(len(self.rows))
        weights[self._at] = solution
        return [weights] if np.isfinite(weights).all() and weights.min() >= 0 else []

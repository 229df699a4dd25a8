r"""The point of a convex hull nearest to the origin, by an active-set method on orthogonal factors.

For unit rows :math:`a_i` solve :math:`\min_{\lambda \ge 0} \|B^\top \lambda - e\|` with rows :math:`b_i = (a_i, 1)` and
:math:`e = (0, 1)`. If the residual vanishes, :math:`\sum_i \lambda_i a_i = 0` shows that no vector has all
:math:`a_i \cdot v > 0`. Otherwise the residual is :math:`(-x, \cdot)`, and the nearest point :math:`x` is such a
vector: its direction maximizes the smallest margin over all unit vectors.

The residual is kept as a *unit* vector that is reorthogonalized against the passive rows in every step. Its margins are
then accurate to a few units of rounding even if the nearest point is 1e-13 away from the origin, where the combination
itself has lost all its digits to cancellation.

References:
    Wolfe, "Finding the nearest point in a polytope", Mathematical Programming 11, 1976; Lawson and Hanson, "Solving
    Least Squares Problems", 1974, chapter 23.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from shortlist.audit.system import UNIT_ROUNDOFF, Array, Indices
from shortlist.kernels import chooser as numba_code

FEASIBLE, VANISHED, STALLED = 0, 1, 2
_CANDIDATES = 16
# Recompute a gap shorter than this; an updated one would have too few correct digits.
_SHORT = 1e-6

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile with numba, whose linear algebra needs scipy; without either, return the function unchanged."""
    if not numba_code.can_compile() or importlib.util.find_spec("scipy") is None:
        return function
    return numba_code.compiled()(function)


class NearestPoint:
    """The solver's state: a pool of rows, the passive ones among them, and the residual.

    Args:
        dim: length of a row.
        capacity: how many rows to allocate.
    """

    def __init__(self, dim: int, capacity: int) -> None:
        size = dim + 1
        self.pool: Array = np.empty((capacity, size))
        self.index: Indices = np.empty(capacity, dtype=np.int64)
        self.length = 0
        self.residual: Array = np.eye(1, size, dim)[0]
        self._orthogonal: Array = np.zeros((size, size))
        self._triangle: Array = np.zeros((size, size))
        self._weights: Array = np.zeros(size)
        self._passive: Indices = np.zeros(size, dtype=np.int64)
        self._count = 0

    def add(self, rows: Array, index: Indices) -> None:
        """Add signed rows to the pool."""
        end = self.length + len(rows)
        if end > len(self.pool):
            room = np.empty((2 * end - len(self.pool), self.pool.shape[1]))
            self.pool = np.vstack([self.pool, room])
            self.index = np.concatenate([self.index, np.empty(len(room), dtype=np.int64)])
        self.pool[self.length : end, :-1] = rows
        self.pool[self.length : end, -1] = 1.0
        self.index[self.length : end] = index
        self.length = end

    def solve(self, share: float) -> int:
        """Iterate until every margin in the pool is at least ``share`` times the best, or the combination vanishes."""
        status, self._count, self.residual = _advance(
            self.pool[: self.length],
            self._orthogonal,
            self._triangle,
            self._weights,
            self._passive,
            self._count,
            self.residual,
            share,
        )
        return status

    @property
    def direction(self) -> Array:
        """The direction of the nearest point, of norm about one."""
        return -self.residual[:-1]

    @property
    def support(self) -> Indices:
        """The rows that the combination uses."""
        return self.index[self._passive[: self._count]]

    @property
    def weights(self) -> Array:
        """The combination's positive weights."""
        return self._weights[: self._count]


@compiled
def _advance(
    pool: Array,
    orthogonal: Array,
    triangle: Array,
    weights: Array,
    passive: Indices,
    count: int,
    residual: Array,
    share: float,
) -> tuple[int, int, Array]:
    size = pool.shape[1]
    # The residual's last entry bounds the smallest margin of every unit vector. Below this, no margin is verifiable.
    noise = max(8.0, 0.5 * size) * UNIT_ROUNDOFF
    for _ in range(50 * size):
        if count == size or residual[size - 1] <= noise:
            return VANISHED, count, residual
        gain = np.dot(pool, residual)
        best = gain.max()
        if best <= max(noise, (1.0 - share) * residual[size - 1]):
            return FEASIBLE, count, residual
        # Several promising rows enter before the whole pool is scanned again.
        promising = np.flatnonzero(gain > 0.7 * best)[:_CANDIDATES]
        rows = pool[promising]
        # The residual's last entry is its norm before normalization. The loop only updates the gap.
        gap = residual * residual[size - 1]
        for _ in range(_CANDIDATES):
            gain = np.dot(rows, residual)
            entering = np.argmax(gain)
            if gain[entering] <= 0.7 * best or gain[entering] <= noise:
                break
            if not _append(orthogonal, triangle, rows[entering], count):
                return STALLED, count, residual
            passive[count] = promising[entering]
            weights[count] = 0.0
            previous = count
            count = _settle(orthogonal, triangle, weights, passive, count + 1, gap)
            if count < 0:
                return STALLED, previous, _orthogonal_residual(orthogonal[:previous])
            length = np.sqrt(np.dot(gap, gap))
            if count == size or length < _SHORT:
                break
            residual = gap / length
        residual = _orthogonal_residual(orthogonal[:count])
    return STALLED, count, residual


@compiled
def _settle(orthogonal: Array, triangle: Array, weights: Array, passive: Indices, count: int, gap: Array) -> int:
    """Move to the least-squares weights and drop rows whose weight reaches zero on the way; return how many remain.

    Updates ``gap``, the part of (0, …, 0, 1) that the rows do not span. Returns -1 if the newest row has a positive
    gain but gets no weight, which only rounding can cause.
    """
    size = orthogonal.shape[1]
    target = _back_substitute(triangle, orthogonal[:count, size - 1].copy())
    if target[count - 1] <= 0.0:
        return -1
    gap -= orthogonal[count - 1, size - 1] * orthogonal[count - 1]
    while target.min() <= 0.0:
        leaving, step = _blocking(weights[:count], target)
        weights[:count] += step * (target - weights[:count])
        _remove(orthogonal, triangle, leaving, count)
        weights[leaving : count - 1] = weights[leaving + 1 : count].copy()
        passive[leaving : count - 1] = passive[leaving + 1 : count].copy()
        count -= 1
        gap += orthogonal[count, size - 1] * orthogonal[count]
        target = _back_substitute(triangle, orthogonal[:count, size - 1].copy())
    weights[:count] = target
    return count


@compiled
def _append(orthogonal: Array, triangle: Array, row: Array, count: int) -> bool:
    """Add a row to the factors; false if it lies in the span of the others."""
    basis = orthogonal[:count]
    first = np.dot(basis, row)
    rest = row - np.dot(first, basis)
    second = np.dot(basis, rest)
    rest = rest - np.dot(second, basis)
    length = np.sqrt(np.dot(rest, rest))
    if length <= 64.0 * UNIT_ROUNDOFF:
        return False
    triangle[:count, count] = first + second
    triangle[count, count] = length
    orthogonal[count] = rest / length
    return True


@compiled
def _back_substitute(triangle: Array, values: Array) -> Array:
    """Solve with the upper triangular factor, in place."""
    count = len(values)
    for i in range(count - 1, -1, -1):
        rest = values[i]
        for j in range(i + 1, count):
            rest -= triangle[i, j] * values[j]
        values[i] = rest / triangle[i, i]
    return values


@compiled
def _blocking(weights: Array, target: Array) -> tuple[int, float]:
    """The weight that reaches zero first on the way to ``target``, and the fraction of the way where it does."""
    leaving, step = 0, 2.0
    for j in range(len(weights)):
        if target[j] <= 0.0:
            part = weights[j] / max(weights[j] - target[j], 1e-300)
            if part < step:
                leaving, step = j, part
    return leaving, step


@compiled
def _remove(orthogonal: Array, triangle: Array, gone: int, count: int) -> None:
    """Drop a row from the factors and rotate the rest back to triangular form."""
    for i in range(count):
        for j in range(max(gone, i - 1), count - 1):
            triangle[i, j] = triangle[i, j + 1]
    for i in range(gone, count - 1):
        length = np.hypot(triangle[i, i], triangle[i + 1, i])
        c, s = triangle[i, i] / length, triangle[i + 1, i] / length
        _rotate(triangle[i, i : count - 1], triangle[i + 1, i : count - 1], c, s)
        _rotate(orthogonal[i], orthogonal[i + 1], c, s)


@compiled
def _rotate(first: Array, second: Array, c: float, s: float) -> None:
    """A Givens rotation of two rows, as a loop: temporary arrays would cost more than the rotation."""
    for j in range(len(first)):
        above, below = first[j], second[j]
        first[j] = c * above + s * below
        second[j] = c * below - s * above


@compiled
def _orthogonal_residual(basis: Array) -> Array:
    """The component of (0, …, 0, 1) orthogonal to the basis, normalized; accurate to rounding even if it was tiny.

    Zero if only rounding errors in the span of the basis remain.
    """
    size = basis.shape[1]
    residual = np.zeros(size)
    residual[size - 1] = 1.0
    for _ in range(5):
        residual = residual - np.dot(np.dot(basis, residual), basis)
        length = np.sqrt(np.dot(residual, residual))
        residual = residual / max(length, 1e-300)
        if length > 0.5:
            return residual
    return np.zeros(size)

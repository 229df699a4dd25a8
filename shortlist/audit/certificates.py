"""What proves a verdict, and the checks, which use no solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.audit.rational import vanishes_exactly
from shortlist.audit.system import UNIT_ROUNDOFF, Array, Indices, System

# A proof that no vector exists has to hold for every layer whose entries differ from the given ones by this much of the
# largest in their row: entries are themselves rounded, and a region thinner than that is not excluded. A Fourier
# matrix from plain cosines of angles up to 2πk is off by about as much.
_PERTURBATION = 2.0**-44


@dataclass(frozen=True)
class Witness:
    """A feature vector that gives exactly the set.

    Attributes:
        vector: ``(d,)``; in top-k mode one more entry, which is added to every logit (minus the threshold).
    """

    vector: Array


@dataclass(frozen=True)
class Combination:
    """A positive combination of signed rows that vanishes: no vector can be on the right side of all of them.

    Attributes:
        rows: labels that take part; the number of labels itself stands for the row of the bias.
        weights: their positive weights, of the rows scaled to length one; they sum to one.
        residual: length of the combination as computed, next to zero.
        proof: ``"interval"`` when the positive solution is proved to exist for every matrix within rounding of this
            one, ``"exact"`` when rational arithmetic shows that the combination of these very rows is zero.
    """

    rows: Indices
    weights: Array
    residual: float
    proof: str


@dataclass(frozen=True)
class Theorem:
    """The layer holds the truncated Fourier matrix of degree ``k``, which decides by the number of sign changes.

    Sets with at most ``2k`` cyclic sign changes, all sets of at most k labels among them, are argmaxable; without
    further columns the others are not. This is a statement about the exact matrix, not about its rounded entries.

    Attributes:
        k: degree.
        sign_changes: of this set, around the circle of labels.
        log10_radius: of the ball that the trigonometric polynomial with these signs achieves in exact arithmetic;
            minus infinity where the set is not argmaxable.
    """

    k: int
    sign_changes: int
    log10_radius: float


Certificate = Witness | Combination | Theorem


def margins(system: System, signs: Array, vector: Array) -> tuple[Array, Array]:
    r"""Signed logits and bounds of their rounding error, :math:`(D + 2)\,u\,|r_i| \cdot |v|`, both per row."""
    direction = system.to_direction(vector)
    rows = system.homogeneous
    size = rows.shape[1]
    values = signs * (rows @ direction)
    largest = np.abs(direction).max(initial=0.0)
    # Length times length bounds |r|·|v| and is cheap; only what it leaves open is looked at closer.
    bounds = (size + 3) * UNIT_ROUNDOFF * np.linalg.norm(direction) * system.lengths
    close = np.flatnonzero(values <= bounds)
    bounds[close] = (size + 2) * UNIT_ROUNDOFF * (np.abs(rows[close]) @ np.abs(direction))
    # Products below the smallest normal number lose absolute, not relative, accuracy.
    return values, bounds + size * 2.0**-1070 * max(1.0, largest)


def is_witness(system: System, signs: Array, vector: Array) -> bool:
    """Whether the signs of all logits are right beyond rounding."""
    if vector.shape != (system.features.shape[1],) or not np.isfinite(vector).all():
        return False
    values, bounds = margins(system, signs, vector)
    return bool((values > bounds).all())


def combine(system: System, signs: Array, support: Indices) -> Combination | None:
    """The combination of these rows that vanishes, if there is one and it can be proved positive."""
    rows = signs[support, None] * system.rows[support]
    if len(support) == rows.shape[1] + 1 > 1:
        weights, proof = _positive_solution(rows), "interval"
    else:
        weights, proof = vanishes_exactly(rows) if system.exact else None, "exact"
    if weights is None:
        return None
    support, weights = support[weights > 0], weights[weights > 0]
    lengths = system.lengths[support]
    safe = np.where(lengths > 0, lengths, 1.0)
    weights = weights * safe
    weights /= weights.sum()
    unit = signs[support, None] * system.homogeneous[support] / safe[:, None]
    return Combination(support, weights, float(np.linalg.norm(weights @ unit)), proof)


def _positive_solution(rows: Array) -> Array | None:
    r"""Prove that :math:`\sum_i \lambda_i r_i = 0,\ \sum_i \lambda_i = 1` has a positive solution, for all rows near.

    With an approximate inverse R of the system's matrix M and :math:`\|I - RM\| \le \alpha < 1`, the solution differs
    from an approximate one by at most :math:`t + \|t\| \alpha / (1 - \alpha)`, where t bounds R times the residual.
    """
    size = len(rows)
    matrix = np.vstack([rows.T, np.ones(size)])
    try:
        inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(inverse).all():
        return None
    solution = inverse[:, -1]
    relative = (size + 4) * UNIT_ROUNDOFF
    magnitude = np.abs(inverse)
    # Rows of the system have their largest entry in [1/2, 1); the last line, of ones, is not perturbed.
    entries = np.abs(matrix)
    change = np.full(size, _PERTURBATION)
    change[-1] = 0.0
    defect = np.abs(np.eye(size) - inverse @ matrix) + relative * (magnitude @ entries) + (magnitude @ change)[:, None]
    alpha = 1.01 * defect.sum(axis=1).max()
    if not alpha < 0.5:
        return None
    right = np.zeros(size)
    right[-1] = 1.0
    total = np.abs(solution).sum()
    residual = np.abs(right - matrix @ solution) + relative * (entries @ np.abs(solution) + right) + change * total
    error = 1.01 * (magnitude @ residual)
    bound = error + error.max() * alpha / (1.0 - alpha)
    return solution if (solution > bound).all() else None


def holds(system: System, active: Indices, verdict: str, certificate: Certificate | None) -> bool:
    """Check from scratch that the certificate proves the verdict."""
    signs = system.signs(active)
    if isinstance(certificate, Witness):
        return verdict == "argmaxable" and is_witness(system, signs, certificate.vector)
    if isinstance(certificate, Combination):
        return verdict == "unargmaxable" and _is_combination(system, signs, certificate)
    if isinstance(certificate, Theorem):
        changes = circular_changes(active, system.num_labels)
        claimed = (certificate.k, certificate.sign_changes)
        return claimed == (system.dft, changes) and verdict == theorem_verdict(system, changes)
    return verdict == "undecided"


def _is_combination(system: System, signs: Array, certificate: Combination) -> bool:
    support, weights = certificate.rows, certificate.weights
    if support.shape != weights.shape or len(support) == 0 or len(np.unique(support)) < len(support):
        return False
    if support.min() < 0 or support.max() >= len(signs) or not (weights > 0).all():
        return False
    again = combine(system, signs, support)
    if again is None or again.proof != certificate.proof:
        return False
    return bool(np.abs(again.weights - weights).max() <= 1e-6) and abs(again.residual - certificate.residual) <= 1e-12


def circular_changes(active: Indices, num_labels: int) -> int:
    """How often the sign changes around the circle of labels: twice the number of runs."""
    present = np.zeros(num_labels, dtype=bool)
    present[active] = True
    return int(np.count_nonzero(present != np.roll(present, 1)))


def theorem_verdict(system: System, changes: int) -> str:
    """What the sign changes decide: nothing unless the layer begins with the Fourier matrix and has no bias."""
    if system.dft is None or system.bias is not None or not system.is_fourier:
        return "undecided"
    if changes <= 2 * system.dft:
        return "argmaxable"
    # Further columns can reach more sets than the theorem speaks of.
    return "unargmaxable" if system.weight.shape[1] == 2 * system.dft + 1 else "undecided"

r"""Certified bounds of the Chebyshev radius, from any vector (below) and any combination of rows (above).

.. math:: \epsilon^* = \max\{\epsilon : s_i (w_i \cdot v + b_i) \ge \epsilon \|w_i\|,\ |v_j| \le 10^4\}

For weights :math:`\lambda \ge 0` with sum one every feasible pair has
:math:`\epsilon \le \sum_i \lambda_i s_i b_i / \|w_i\| + 10^4 \|\sum_i \lambda_i s_i w_i / \|w_i\|\|_1`.
"""

from __future__ import annotations

import numpy as np

from shortlist.audit.system import BOX, UNIT_ROUNDOFF, Array, Indices, System


def radius_below(system: System, signs: Array, vector: Array) -> float:
    """Radius of the ball around ``vector``, moved to the box's edge when there is no bias; 0 outside the region."""
    largest = np.abs(vector).max(initial=0.0)
    if system.bias is None:
        vector = vector * (BOX / largest) if largest > 0 else vector
    elif largest > BOX:
        return 0.0
    n, size = system.features.shape
    ratios, error = system.scaled, (size + 4) * UNIT_ROUNDOFF
    distance = signs[:n] * (ratios @ vector + system.offsets)
    bound = error * (np.linalg.norm(vector) + np.abs(system.offsets))
    lowest = np.where(system.silent, np.inf, distance - bound).min(initial=np.inf)
    return float(max(0.0, lowest))


def radius_above(system: System, signs: Array, support: Indices, weights: Array) -> float:
    """No ball in the region has a larger radius; weights are those of rows divided by their norm in ``features``."""
    inside = (support < system.num_labels) & (weights > 0)
    support, weights = support[inside], weights[inside]
    if len(support) == 0:
        return float("inf")
    weights = weights / weights.sum()
    rows = signs[support, None] * system.scaled[support]
    size = rows.shape[1]
    total = np.abs(weights @ rows).sum() + (len(support) + 4) * UNIT_ROUNDOFF * size
    offset = float(weights @ (signs[support] * system.offsets[support]))
    slack = (len(support) + 4) * UNIT_ROUNDOFF * float(weights @ np.abs(system.offsets[support]))
    return float(max(0.0, BOX * total + offset + slack))

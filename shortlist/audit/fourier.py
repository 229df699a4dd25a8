"""What the structure of a Fourier layer decides when float64 cannot hold a witness."""

from __future__ import annotations

import math

import numpy as np
import torch

from shortlist.audit.bounds import radius_below
from shortlist.audit.certificates import Theorem, Witness, circular_changes, is_witness
from shortlist.audit.decide import Decision
from shortlist.audit.system import BOX, Indices, System
from shortlist.functional import dft_witness


def decide_by_fourier(system: System, active: Indices, k: int, open_decision: Decision) -> Decision:
    """Give the trigonometric polynomial as a witness if its rounded coefficients keep the signs, else the theorem."""
    changes = circular_changes(active, system.num_labels)
    if system.bias is not None:
        return open_decision
    if changes > 2 * k:
        if system.weight.shape[1] > 2 * k + 1:
            return open_decision
        return Decision("unargmaxable", Theorem(k, changes, -math.inf), 0.0, 0.0, "")
    polynomial = dft_witness(torch.from_numpy(active)[None], system.num_labels, k)
    vector = np.zeros(system.features.shape[1])
    vector[: 2 * k + 1] = BOX * polynomial.features[0].numpy()
    signs = system.signs(active)
    if is_witness(system, signs, vector):
        low = radius_below(system, signs, vector)
        return Decision("argmaxable", Witness(vector), low, max(low, open_decision.high), "")
    # The polynomial's radius is that of Fourier rows alone; other columns make the rows longer.
    longer = system.norms.max() / math.sqrt((2 * k + 1) / system.num_labels)
    exponent = float(polynomial.log10_radius[0]) + math.log10(BOX / longer)
    low = 10.0**exponent if exponent > -300 else 0.0
    return Decision("argmaxable", Theorem(k, changes, exponent), low, max(low, open_decision.high), "")

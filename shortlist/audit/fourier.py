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
    theorem = Theorem(k, changes, _exponent(system, k, float(polynomial.log10_radius[0])))
    low = theorem_radius(theorem)
    return Decision("argmaxable", theorem, low, max(low, open_decision.high), "")


def _exponent(system: System, k: int, log10_radius: float) -> float:
    """From Fourier rows alone and a box of one to the layer's own, which other columns make longer, and its box."""
    exponents, lengths = system.scales
    longer = np.ldexp(lengths, exponents).max() / math.sqrt((2 * k + 1) / system.num_labels)
    return log10_radius + math.log10(BOX / longer)


def theorem_radius(theorem: Theorem) -> float:
    """The radius that the theorem's polynomial achieves; 0 where that is too small for a number."""
    return 10.0**theorem.log10_radius if theorem.log10_radius > -300 else 0.0


def theorem_holds(system: System, active: Indices, theorem: Theorem) -> bool:
    """Whether the radius that the theorem claims for an argmaxable set is that of its polynomial."""
    if theorem.sign_changes > 2 * theorem.k:
        return theorem.log10_radius == -math.inf
    polynomial = dft_witness(torch.from_numpy(active)[None], system.num_labels, theorem.k)
    expected = _exponent(system, theorem.k, float(polynomial.log10_radius[0]))
    return abs(expected - theorem.log10_radius) <= 1e-6 * max(1.0, abs(expected))

"""Which label sets a layer can and cannot output, with proof."""

from shortlist.audit.certificates import Combination, ExactWitness, Multipliers, Theorem, Witness
from shortlist.audit.counting import (
    count_alternating,
    count_argmaxable,
    count_k_active,
    in_general_position,
    log10_share,
    minors_agree,
)
from shortlist.audit.curves import EpsilonCurve, RadiusQuantiles, epsilon_curve, radius_quantiles, share_by_dimension
from shortlist.audit.report import AuditReport
from shortlist.audit.run import audit

__all__ = [
    "AuditReport",
    "Combination",
    "EpsilonCurve",
    "ExactWitness",
    "Multipliers",
    "RadiusQuantiles",
    "Theorem",
    "Witness",
    "audit",
    "count_alternating",
    "count_argmaxable",
    "count_k_active",
    "epsilon_curve",
    "in_general_position",
    "log10_share",
    "minors_agree",
    "radius_quantiles",
    "share_by_dimension",
]

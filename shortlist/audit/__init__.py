"""Which label sets a layer can never output, with proof."""

from shortlist.audit.certificates import Combination, Theorem, Witness
from shortlist.audit.counting import count_alternating, count_argmaxable, count_k_active, log10_share
from shortlist.audit.curves import EpsilonCurve, RadiusQuantiles, epsilon_curve, radius_quantiles, share_by_dimension
from shortlist.audit.minors import in_general_position, minors_agree
from shortlist.audit.report import AuditReport
from shortlist.audit.run import audit

__all__ = [
    "AuditReport",
    "Combination",
    "EpsilonCurve",
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

"""Conformal prediction: conformity scores, and rules that calibrate thresholds on them."""

from shortlist.sets.conformal.class_conditional import ClassConditional
from shortlist.sets.conformal.conformity import APS, LAC, SAPS, ConformityScore, Entropy, Margin
from shortlist.sets.conformal.p_values import PValues
from shortlist.sets.conformal.rank_calibrated import RankCalibrated
from shortlist.sets.conformal.split import AverageError, PointwiseError, SplitConformal

__all__ = [
    "APS",
    "LAC",
    "SAPS",
    "AverageError",
    "ClassConditional",
    "ConformityScore",
    "Entropy",
    "Margin",
    "PValues",
    "PointwiseError",
    "RankCalibrated",
    "SplitConformal",
]

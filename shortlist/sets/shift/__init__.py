"""Set rules for rows that are not like the calibration rows: shift, groups, streams, and alarms when it happens."""

from shortlist.sets.shift.alarm import ShiftAlarm
from shortlist.sets.shift.covariate import CovariateShift
from shortlist.sets.shift.density_ratio import DensityRatio, density_ratio
from shortlist.sets.shift.groups import GroupConditional
from shortlist.sets.shift.label_shift import LabelShift, label_ratios
from shortlist.sets.shift.online import AdaptiveConformal, OnlineAverageK, OnlineConformal

__all__ = [
    "AdaptiveConformal",
    "CovariateShift",
    "DensityRatio",
    "GroupConditional",
    "LabelShift",
    "OnlineAverageK",
    "OnlineConformal",
    "ShiftAlarm",
    "density_ratio",
    "label_ratios",
]

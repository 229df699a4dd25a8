"""Set rules: turn the scores of any model into label sets with controlled size or controlled error."""

from shortlist.sets.average_k import AverageK
from shortlist.sets.conformal import (
    APS,
    LAC,
    SAPS,
    AverageError,
    ClassConditional,
    ConformityScore,
    Entropy,
    Margin,
    PointwiseError,
    PValues,
    RankCalibrated,
    SplitConformal,
)
from shortlist.sets.per_label import PerLabelThreshold
from shortlist.sets.prediction_sets import PredictionSets
from shortlist.sets.recall_control import RecallControl
from shortlist.sets.rule import SetRule, load_rule
from shortlist.sets.shift import (
    AdaptiveConformal,
    CovariateShift,
    DensityRatio,
    GroupConditional,
    LabelShift,
    OnlineAverageK,
    OnlineConformal,
    ShiftAlarm,
    density_ratio,
    label_ratios,
)
from shortlist.sets.top_k import TopK
from shortlist.sets.tradeoff import Tradeoff, tradeoff

__all__ = [
    "APS",
    "LAC",
    "SAPS",
    "AdaptiveConformal",
    "AverageError",
    "AverageK",
    "ClassConditional",
    "ConformityScore",
    "CovariateShift",
    "DensityRatio",
    "Entropy",
    "GroupConditional",
    "LabelShift",
    "Margin",
    "OnlineAverageK",
    "OnlineConformal",
    "PValues",
    "PerLabelThreshold",
    "PointwiseError",
    "PredictionSets",
    "RankCalibrated",
    "RecallControl",
    "SetRule",
    "ShiftAlarm",
    "SplitConformal",
    "TopK",
    "Tradeoff",
    "density_ratio",
    "label_ratios",
    "load_rule",
    "tradeoff",
]

"""Set rules: turn the scores of any model into label sets with controlled size or controlled error."""

from shortlist.sets.average_k import AverageK
from shortlist.sets.choice import MissGoal, RuleChoice, SizeGoal, choose_rule
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
from shortlist.sets.rejection import FeatureDistance, NoneOfThese, SelectiveAnswers, p_values
from shortlist.sets.risk.control import RecallControl, RiskControl
from shortlist.sets.risk.expected_f import ExpectedF, expected_f
from shortlist.sets.risk.expected_utility import ExpectedUtility, f_utility, u65, u80
from shortlist.sets.risk.risks import Risk, f_risk, false_discovery_rate, false_negative_rate, set_size
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
from shortlist.sets.taxonomic.cheapest_cover import CheapestCover
from shortlist.sets.taxonomic.deepest_node import DeepestNode
from shortlist.sets.taxonomic.node_sets import collapse, expand
from shortlist.sets.top_k import TopK
from shortlist.sets.tradeoff import Tradeoff, tradeoff

__all__ = [
    "APS",
    "LAC",
    "SAPS",
    "AdaptiveConformal",
    "AverageError",
    "AverageK",
    "CheapestCover",
    "ClassConditional",
    "ConformityScore",
    "CovariateShift",
    "DeepestNode",
    "DensityRatio",
    "Entropy",
    "ExpectedF",
    "ExpectedUtility",
    "FeatureDistance",
    "GroupConditional",
    "LabelShift",
    "Margin",
    "MissGoal",
    "NoneOfThese",
    "OnlineAverageK",
    "OnlineConformal",
    "PValues",
    "PerLabelThreshold",
    "PointwiseError",
    "PredictionSets",
    "RankCalibrated",
    "RecallControl",
    "Risk",
    "RiskControl",
    "RuleChoice",
    "SelectiveAnswers",
    "SetRule",
    "ShiftAlarm",
    "SizeGoal",
    "SplitConformal",
    "TopK",
    "Tradeoff",
    "choose_rule",
    "collapse",
    "density_ratio",
    "expand",
    "expected_f",
    "f_risk",
    "f_utility",
    "false_discovery_rate",
    "false_negative_rate",
    "label_ratios",
    "load_rule",
    "p_values",
    "set_size",
    "tradeoff",
    "u65",
    "u80",
]

"""Set rules: turn the scores of any model into label sets with controlled size or controlled error."""

from shortlist.sets.average_k import AverageK
from shortlist.sets.choice import MissGoal, RuleChoice, SizeGoal, choose_rule
from shortlist.sets.conformal import AverageError, ClassConditional
from shortlist.sets.per_label import PerLabelThreshold
from shortlist.sets.pointwise_error import PointwiseError
from shortlist.sets.prediction_sets import PredictionSets
from shortlist.sets.risk.control import RecallControl, RiskControl
from shortlist.sets.risk.expected_f import ExpectedF, expected_f
from shortlist.sets.risk.expected_utility import ExpectedUtility, f_utility, u65, u80
from shortlist.sets.risk.risks import Risk, f_risk, false_discovery_rate, false_negative_rate, set_size
from shortlist.sets.rule import SetRule, load_rule
from shortlist.sets.top_k import TopK
from shortlist.sets.tradeoff import Tradeoff, tradeoff

__all__ = [
    "AverageError",
    "AverageK",
    "ClassConditional",
    "ExpectedF",
    "ExpectedUtility",
    "MissGoal",
    "PerLabelThreshold",
    "PointwiseError",
    "PredictionSets",
    "RecallControl",
    "Risk",
    "RiskControl",
    "RuleChoice",
    "SetRule",
    "SizeGoal",
    "TopK",
    "Tradeoff",
    "choose_rule",
    "expected_f",
    "f_risk",
    "f_utility",
    "false_discovery_rate",
    "false_negative_rate",
    "load_rule",
    "set_size",
    "tradeoff",
    "u65",
    "u80",
]

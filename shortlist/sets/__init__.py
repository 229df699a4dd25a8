"""Set rules: turn the scores of any model into label sets with controlled size or controlled error."""

from shortlist.sets.average_k import AverageK
from shortlist.sets.conformal import AverageError, ClassConditional
from shortlist.sets.per_label import PerLabelThreshold
from shortlist.sets.pointwise_error import PointwiseError
from shortlist.sets.prediction_sets import PredictionSets
from shortlist.sets.recall_control import RecallControl
from shortlist.sets.rejection import FeatureDistance, NoneOfThese, SelectiveAnswers, p_values
from shortlist.sets.rule import SetRule, load_rule
from shortlist.sets.top_k import TopK
from shortlist.sets.tradeoff import Tradeoff, tradeoff

__all__ = [
    "AverageError",
    "AverageK",
    "ClassConditional",
    "FeatureDistance",
    "NoneOfThese",
    "PerLabelThreshold",
    "PointwiseError",
    "PredictionSets",
    "RecallControl",
    "SelectiveAnswers",
    "SetRule",
    "TopK",
    "Tradeoff",
    "load_rule",
    "p_values",
    "tradeoff",
]

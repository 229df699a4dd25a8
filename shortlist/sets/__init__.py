"""Set rules: turn the scores of any model into label sets with controlled size or controlled error."""

from shortlist.sets.average_k import AverageK
from shortlist.sets.conformal import AverageError, ClassConditional
from shortlist.sets.per_label import PerLabelThreshold
from shortlist.sets.pointwise_error import PointwiseError
from shortlist.sets.prediction_sets import PredictionSets
from shortlist.sets.recall_control import RecallControl
from shortlist.sets.rule import SetRule, load_rule
from shortlist.sets.taxonomic.cheapest_cover import CheapestCover
from shortlist.sets.taxonomic.deepest_node import DeepestNode
from shortlist.sets.taxonomic.node_sets import collapse, expand
from shortlist.sets.top_k import TopK
from shortlist.sets.tradeoff import Tradeoff, tradeoff

__all__ = [
    "AverageError",
    "AverageK",
    "CheapestCover",
    "ClassConditional",
    "DeepestNode",
    "PerLabelThreshold",
    "PointwiseError",
    "PredictionSets",
    "RecallControl",
    "SetRule",
    "TopK",
    "Tradeoff",
    "collapse",
    "expand",
    "load_rule",
    "tradeoff",
]

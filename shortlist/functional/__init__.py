"""Pure functions on tensors: projections, losses, metrics, and what they are built of."""

from shortlist.functional.dft import DFTWitness, dft_logits, dft_matrix, dft_witness, sign_changes
from shortlist.functional.losses import average_k as _average_k
from shortlist.functional.losses import binary, hinge, projection, ranking, single_positive, softmax
from shortlist.functional.losses import two_way as _two_way
from shortlist.functional.losses.average_k import *
from shortlist.functional.losses.binary import *
from shortlist.functional.losses.fenchel_young import (
    LMLPotential,
    Potential,
    SigmoidPotential,
    SoftmaxPotential,
    SparsemaxPotential,
    SparseTopPotential,
    fenchel_young_loss,
)
from shortlist.functional.losses.hinge import *
from shortlist.functional.losses.projection import *
from shortlist.functional.losses.ranking import *
from shortlist.functional.losses.single_positive import *
from shortlist.functional.losses.softmax import *
from shortlist.functional.losses.two_way import *
from shortlist.functional.metrics.accuracy import average_k_accuracy, topk_accuracy
from shortlist.functional.metrics.average_precision import (
    BinnedAveragePrecision,
    average_precision,
    binned_average_precision,
)
from shortlist.functional.metrics.calibration import Reliability, brier_score, calibration_error, reliability
from shortlist.functional.metrics.f1 import F1Counts, f1_counts, f1_score
from shortlist.functional.metrics.hierarchy import (
    HierarchicalCounts,
    hierarchical_counts,
    hierarchical_precision,
    hierarchical_recall,
)
from shortlist.functional.metrics.propensity import propensities, propensity_scored_precision_at_k
from shortlist.functional.metrics.ranking import f1_at_k, hits_at_k, ndcg_at_k, precision_at_k, recall_at_k
from shortlist.functional.metrics.risk_coverage import RiskCoverage, area_under_risk_coverage, risk_coverage
from shortlist.functional.metrics.scene_graph import scene_graph_recall
from shortlist.functional.order_statistics import kth_largest, noised_kth_largest
from shortlist.functional.projections.budget import lml_budget, sparse_top_budget
from shortlist.functional.projections.constrained_softmax import constrained_softmax
from shortlist.functional.projections.lml import lml, lml_dual, log_lml
from shortlist.functional.projections.sparse_top import sparse_top, sparsemax
from shortlist.functional.symmetric_polynomials import log_elementary_symmetric
from shortlist.label_axis.linear_logits import LinearLogits, TopLabels

__all__ = [
    "BinnedAveragePrecision",
    "DFTWitness",
    "F1Counts",
    "HierarchicalCounts",
    "LMLPotential",
    "LinearLogits",
    "Potential",
    "Reliability",
    "RiskCoverage",
    "SigmoidPotential",
    "SoftmaxPotential",
    "SparseTopPotential",
    "SparsemaxPotential",
    "TopLabels",
    "area_under_risk_coverage",
    "average_k_accuracy",
    "average_precision",
    "binned_average_precision",
    "brier_score",
    "calibration_error",
    "constrained_softmax",
    "dft_logits",
    "dft_matrix",
    "dft_witness",
    "f1_at_k",
    "f1_counts",
    "f1_score",
    "fenchel_young_loss",
    "hierarchical_counts",
    "hierarchical_precision",
    "hierarchical_recall",
    "hits_at_k",
    "kth_largest",
    "lml",
    "lml_budget",
    "lml_dual",
    "log_elementary_symmetric",
    "log_lml",
    "ndcg_at_k",
    "noised_kth_largest",
    "precision_at_k",
    "propensities",
    "propensity_scored_precision_at_k",
    "recall_at_k",
    "reliability",
    "risk_coverage",
    "scene_graph_recall",
    "sign_changes",
    "sparse_top",
    "sparse_top_budget",
    "sparsemax",
    "topk_accuracy",
]
__all__ += _average_k.__all__
__all__ += binary.__all__
__all__ += hinge.__all__
__all__ += projection.__all__
__all__ += ranking.__all__
__all__ += single_positive.__all__
__all__ += softmax.__all__
__all__ += _two_way.__all__

"""Pure functions on tensors: projections, losses, metrics, and what they are built of."""

from shortlist.functional.dft.logits import dft_logits, dft_matrix
from shortlist.functional.dft.runs import sign_changes
from shortlist.functional.dft.witness import DFTWitness, dft_witness
from shortlist.functional.losses.average_k import average_k
from shortlist.functional.losses.binary import asymmetric, bce
from shortlist.functional.losses.hinge import noised_topk, smooth_topk_svm, topk_hinge
from shortlist.functional.losses.projection import lml_nll, sparse_top_loss, sparsemax_loss
from shortlist.functional.losses.ranking import rml, two_way, warp
from shortlist.functional.losses.single_positive import assume_negative, expected_positive, role
from shortlist.functional.losses.softmax import (
    cross_entropy,
    focal,
    ldam,
    margins_from_counts,
    multilabel_softmax,
    multilabel_truncated_topk_entropy,
    truncated_topk_entropy,
)
from shortlist.functional.metrics.accuracy import topk_accuracy
from shortlist.functional.metrics.average_k import average_k_accuracy
from shortlist.functional.metrics.average_precision import average_precision
from shortlist.functional.metrics.binned import BinnedAveragePrecision, binned_average_precision
from shortlist.functional.metrics.f1 import F1Counts, f1_counts, f1_score
from shortlist.functional.metrics.places import hits_at_k
from shortlist.functional.metrics.propensity import propensities, propensity_scored_precision_at_k
from shortlist.functional.metrics.ranking import f1_at_k, ndcg_at_k, precision_at_k, recall_at_k
from shortlist.functional.metrics.scene_graph import scene_graph_recall
from shortlist.functional.order.largest import kth_largest, noised_kth_largest
from shortlist.functional.polynomials.symmetric import log_elementary_symmetric
from shortlist.functional.projections.budget import lml_budget, sparse_top_budget
from shortlist.functional.projections.constrained_softmax import constrained_softmax
from shortlist.functional.projections.fenchel_young import (
    LMLPotential,
    Potential,
    SigmoidPotential,
    SoftmaxPotential,
    SparsemaxPotential,
    SparseTopPotential,
    fenchel_young_loss,
)
from shortlist.functional.projections.lml import lml, lml_dual, log_lml
from shortlist.functional.projections.sparse_top import sparse_top, sparsemax
from shortlist.label_axis.linear_logits import LinearLogits, TopLabels

__all__ = [
    "BinnedAveragePrecision",
    "DFTWitness",
    "F1Counts",
    "LMLPotential",
    "LinearLogits",
    "Potential",
    "SigmoidPotential",
    "SoftmaxPotential",
    "SparseTopPotential",
    "SparsemaxPotential",
    "TopLabels",
    "assume_negative",
    "asymmetric",
    "average_k",
    "average_k_accuracy",
    "average_precision",
    "bce",
    "binned_average_precision",
    "constrained_softmax",
    "cross_entropy",
    "dft_logits",
    "dft_matrix",
    "dft_witness",
    "expected_positive",
    "f1_at_k",
    "f1_counts",
    "f1_score",
    "fenchel_young_loss",
    "focal",
    "hits_at_k",
    "kth_largest",
    "ldam",
    "lml",
    "lml_budget",
    "lml_dual",
    "lml_nll",
    "log_elementary_symmetric",
    "log_lml",
    "margins_from_counts",
    "multilabel_softmax",
    "multilabel_truncated_topk_entropy",
    "ndcg_at_k",
    "noised_kth_largest",
    "noised_topk",
    "precision_at_k",
    "propensities",
    "propensity_scored_precision_at_k",
    "recall_at_k",
    "rml",
    "role",
    "scene_graph_recall",
    "sign_changes",
    "smooth_topk_svm",
    "sparse_top",
    "sparse_top_budget",
    "sparse_top_loss",
    "sparsemax",
    "sparsemax_loss",
    "topk_accuracy",
    "topk_hinge",
    "truncated_topk_entropy",
    "two_way",
    "warp",
]

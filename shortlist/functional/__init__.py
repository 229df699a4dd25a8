"""Pure functions on tensors: projections, losses, and what they are built of."""

from shortlist.functional.budget import lml_budget, sparse_top_budget
from shortlist.functional.constrained_softmax import constrained_softmax
from shortlist.functional.fenchel_young import (
    LMLPotential,
    Potential,
    SigmoidPotential,
    SoftmaxPotential,
    SparsemaxPotential,
    SparseTopPotential,
    fenchel_young_loss,
)
from shortlist.functional.lml import lml, lml_dual, log_lml
from shortlist.functional.losses_average_k import average_k
from shortlist.functional.losses_binary import asymmetric, bce
from shortlist.functional.losses_hinge import noised_topk, smooth_topk_svm, topk_hinge
from shortlist.functional.losses_projection import lml_nll, sparse_top_loss, sparsemax_loss
from shortlist.functional.losses_ranking import rml, two_way, warp
from shortlist.functional.losses_single_positive import assume_negative, expected_positive, role
from shortlist.functional.losses_softmax import (
    cross_entropy,
    focal,
    ldam,
    margins_from_counts,
    multilabel_truncated_topk_entropy,
    truncated_topk_entropy,
)
from shortlist.functional.order import kth_largest, noised_kth_largest
from shortlist.functional.sparse_top import sparse_top, sparsemax
from shortlist.functional.symmetric_polynomials import log_elementary_symmetric

__all__ = [
    "LMLPotential",
    "Potential",
    "SigmoidPotential",
    "SoftmaxPotential",
    "SparseTopPotential",
    "SparsemaxPotential",
    "assume_negative",
    "asymmetric",
    "average_k",
    "bce",
    "constrained_softmax",
    "cross_entropy",
    "expected_positive",
    "fenchel_young_loss",
    "focal",
    "kth_largest",
    "ldam",
    "lml",
    "lml_budget",
    "lml_dual",
    "lml_nll",
    "log_elementary_symmetric",
    "log_lml",
    "margins_from_counts",
    "multilabel_truncated_topk_entropy",
    "noised_kth_largest",
    "noised_topk",
    "rml",
    "role",
    "smooth_topk_svm",
    "sparse_top",
    "sparse_top_budget",
    "sparse_top_loss",
    "sparsemax",
    "sparsemax_loss",
    "topk_hinge",
    "truncated_topk_entropy",
    "two_way",
    "warp",
]

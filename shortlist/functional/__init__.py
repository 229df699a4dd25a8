"""Pure functions on tensors: projections and the losses that train them."""

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
from shortlist.functional.sparse_top import sparse_top, sparsemax

__all__ = [
    "LMLPotential",
    "Potential",
    "SigmoidPotential",
    "SoftmaxPotential",
    "SparseTopPotential",
    "SparsemaxPotential",
    "constrained_softmax",
    "fenchel_young_loss",
    "lml",
    "lml_budget",
    "lml_dual",
    "log_lml",
    "sparse_top",
    "sparse_top_budget",
    "sparsemax",
]

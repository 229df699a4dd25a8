"""Modules: thin, they delegate to ``shortlist.functional``."""

from shortlist.nn.projections import (
    LML,
    ConstrainedSoftmax,
    LMLBudget,
    LogLML,
    Sparsemax,
    SparseTop,
    SparseTopBudget,
)

__all__ = [
    "LML",
    "ConstrainedSoftmax",
    "LMLBudget",
    "LogLML",
    "SparseTop",
    "SparseTopBudget",
    "Sparsemax",
]

"""Modules: thin, they delegate to ``shortlist.functional``."""

from shortlist.nn.heads import BottleneckHead, CosineHead, TwoHead
from shortlist.nn.heads_chunked import ChunkedHead
from shortlist.nn.heads_dft import DFTHead, HeadWitness
from shortlist.nn.heads_sharded import ColumnParallelHead
from shortlist.nn.losses_noised import NoisedTopK
from shortlist.nn.losses_one_class import (
    LDAM,
    CrossEntropy,
    Focal,
    SmoothTopKSVM,
    SparsemaxLoss,
    TopKHinge,
    TruncatedTopKEntropy,
)
from shortlist.nn.losses_sets import (
    BCE,
    LMLNLL,
    RML,
    WARP,
    AssumeNegative,
    Asymmetric,
    ExpectedPositive,
    MultilabelSoftmax,
    MultilabelTruncatedTopKEntropy,
    SparseTopLoss,
    TwoWay,
)
from shortlist.nn.losses_two_parts import ROLE, AverageK
from shortlist.nn.projections import LML, ConstrainedSoftmax, LMLBudget, LogLML, Sparsemax, SparseTop, SparseTopBudget

__all__ = [
    "BCE",
    "LDAM",
    "LML",
    "LMLNLL",
    "RML",
    "ROLE",
    "WARP",
    "AssumeNegative",
    "Asymmetric",
    "AverageK",
    "BottleneckHead",
    "ChunkedHead",
    "ColumnParallelHead",
    "ConstrainedSoftmax",
    "CosineHead",
    "CrossEntropy",
    "DFTHead",
    "ExpectedPositive",
    "Focal",
    "HeadWitness",
    "LMLBudget",
    "LogLML",
    "MultilabelSoftmax",
    "MultilabelTruncatedTopKEntropy",
    "NoisedTopK",
    "SmoothTopKSVM",
    "SparseTop",
    "SparseTopBudget",
    "SparseTopLoss",
    "Sparsemax",
    "SparsemaxLoss",
    "TopKHinge",
    "TruncatedTopKEntropy",
    "TwoHead",
    "TwoWay",
]

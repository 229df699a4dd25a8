"""Datasets for models that answer with sets: readers of real formats, procedures, worlds of known truth."""

from shortlist.data.dataset import Batch, Dataset, Example
from shortlist.data.groups import Groups
from shortlist.data.inputs import Features, Inputs, Texts
from shortlist.data.sparse_rows import SparseRows

__all__ = [
    "Batch",
    "Dataset",
    "Example",
    "Features",
    "Groups",
    "Inputs",
    "SparseRows",
    "Texts",
]

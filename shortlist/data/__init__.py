"""Datasets for models that answer with sets: readers of real formats, procedures, worlds of known truth."""

from shortlist.data.dataset import Batch, Dataset, Example
from shortlist.data.frozen import Encoder, frozen_features
from shortlist.data.frozen_encoders import EfficientNetLite0, MiniLM
from shortlist.data.groups import Groups
from shortlist.data.hidden_labels import hide_labels, incomplete_labels, single_positive
from shortlist.data.inputs import Features, Inputs, Texts
from shortlist.data.label_subset import frequent_labels, keep_labels, sample_groups
from shortlist.data.long_tails import long_tail, long_tail_sizes
from shortlist.data.noisy_labels import label_noise
from shortlist.data.pubmed import pubmed
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import (
    split_at_random,
    split_by_group,
    split_by_year,
    split_covering_labels,
    split_per_class,
)
from shortlist.data.text_features import hashed_words, tfidf_words
from shortlist.data.votes import VoteResult, aggregate_votes, vote_weight

__all__ = [
    "Batch",
    "Dataset",
    "EfficientNetLite0",
    "Encoder",
    "Example",
    "Features",
    "Groups",
    "Inputs",
    "MiniLM",
    "SparseRows",
    "Texts",
    "VoteResult",
    "aggregate_votes",
    "frequent_labels",
    "frozen_features",
    "hashed_words",
    "hide_labels",
    "incomplete_labels",
    "keep_labels",
    "label_noise",
    "long_tail",
    "long_tail_sizes",
    "pubmed",
    "sample_groups",
    "single_positive",
    "split_at_random",
    "split_by_group",
    "split_by_year",
    "split_covering_labels",
    "split_per_class",
    "tfidf_words",
    "vote_weight",
]

"""Datasets for models that answer with sets: readers of real formats, procedures, worlds of known truth."""

from shortlist.data import formats
from shortlist.data.dataset import Batch, Dataset, Example
from shortlist.data.encoders.frozen_features import Encoder, frozen_features
from shortlist.data.encoders.pretrained import BackboneFeatures, EfficientNetLite0, MiniLM, frozen_encoder
from shortlist.data.encoders.word_features import hashed_words, tfidf_words
from shortlist.data.formats import *
from shortlist.data.groups import Groups
from shortlist.data.images import ImageArray, ImageFiles
from shortlist.data.inputs import Features, Inputs, SparseRows, Texts
from shortlist.data.object_pairs import ObjectPairs, PairBatch, geometry
from shortlist.data.opening import open_dataset
from shortlist.data.packaged import digits, pubmed
from shortlist.data.procedures.covering_split import split_covering_labels
from shortlist.data.procedures.hidden_labels import hide_labels, incomplete_labels, single_positive
from shortlist.data.procedures.label_noise import label_noise
from shortlist.data.procedures.label_subset import frequent_labels, keep_labels, sample_groups
from shortlist.data.procedures.long_tail import long_tail, long_tail_sizes
from shortlist.data.procedures.splits import (
    split_at_random,
    split_by_group,
    split_by_year,
    split_off_validation,
    split_per_class,
)
from shortlist.data.procedures.votes import VoteResult, aggregate_votes, vote_weight
from shortlist.data.summary.duplicates import Duplicates, find_duplicates
from shortlist.data.summary.statistics import DatasetSummary, summarise
from shortlist.data.worlds import AmbiguousWorld, BayesRisk, MultiLabelWorld, SceneGraphWorld

__all__: list[str] = [
    "AmbiguousWorld",
    "BackboneFeatures",
    "Batch",
    "BayesRisk",
    "Dataset",
    "DatasetSummary",
    "Duplicates",
    "EfficientNetLite0",
    "Encoder",
    "Example",
    "Features",
    "Groups",
    "ImageArray",
    "ImageFiles",
    "Inputs",
    "MiniLM",
    "MultiLabelWorld",
    "ObjectPairs",
    "PairBatch",
    "SceneGraphWorld",
    "SparseRows",
    "Texts",
    "VoteResult",
    "aggregate_votes",
    "digits",
    "find_duplicates",
    "frequent_labels",
    "frozen_encoder",
    "frozen_features",
    "geometry",
    "hashed_words",
    "hide_labels",
    "incomplete_labels",
    "keep_labels",
    "label_noise",
    "long_tail",
    "long_tail_sizes",
    "open_dataset",
    "pubmed",
    "sample_groups",
    "single_positive",
    "split_at_random",
    "split_by_group",
    "split_by_year",
    "split_covering_labels",
    "split_off_validation",
    "split_per_class",
    "summarise",
    "tfidf_words",
    "vote_weight",
]
__all__ += formats.__all__

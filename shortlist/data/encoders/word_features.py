"""Sparse word features of texts: hashed counts and TF-IDF."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.inputs import Texts
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.tensors import check_size


def hashed_words(dataset: Dataset, *, num_features: int = 2**18, ngrams: int = 1) -> Dataset:
    """Replace texts by hashed word counts of unit norm; nothing is fitted, so new texts need no vocabulary.

    Args:
        dataset: its inputs are `Texts`.
        num_features: the number of columns.
        ngrams: the maximal number of consecutive words that are counted as one.

    Returns:
        The dataset with float32 inputs of kind ``sparse features`` that remember these options, so a model trained on
        them can predict from texts.

    Example:
        >>> from shortlist.data import Dataset, Texts, hashed_words
        >>> texts = Dataset(Texts(["a red rose", "a rose"]), torch.tensor([0, 1]), ("red", "any"))
        >>> hashed_words(texts, num_features=64).inputs.batch(torch.tensor([0, 1])).shape
        torch.Size([2, 64])
    """
    check_size("num_features", num_features)
    check_size("ngrams", ngrams)
    text = require("sklearn.feature_extraction.text", extra="data")
    hashing = text.HashingVectorizer(n_features=num_features, ngram_range=(1, ngrams), dtype=np.float32)
    texts = _texts(dataset).texts
    matrix = hashing.transform(texts or [""])  # scikit-learn refuses an empty list.
    words = {"num_features": num_features, "ngrams": ngrams}
    return replace(dataset, inputs=SparseRows.of_scipy(matrix[: len(texts)], words=words))


def tfidf_words(dataset: Dataset, *, num_features: int | None = 50_000, ngrams: int = 1, min_count: int = 2) -> Dataset:
    """Replace texts by TF-IDF weights of unit norm; vocabulary and weights come from the training rows only.

    Args:
        dataset: its inputs are `Texts`.
        num_features: keep only the most frequent words; None keeps all.
        ngrams: the maximal number of consecutive words that are counted as one.
        min_count: keep words that occur in at least this many training rows.

    Returns:
        The dataset with float32 inputs of kind ``sparse features``.

    Example:
        >>> from shortlist.data import Dataset, Texts, tfidf_words
        >>> texts = Dataset(Texts(["red rose", "white rose"]), torch.tensor([0, 1]), ("red", "white"))
        >>> tfidf_words(texts, min_count=1).inputs.batch(torch.tensor([0])).to_dense()
        tensor([[0.8148, 0.5797, 0.0000]])
    """
    check_size("num_features", 1 if num_features is None else num_features)
    check_size("ngrams", ngrams)
    check_size("min_count", min_count)
    text = require("sklearn.feature_extraction.text", extra="data")
    texts = _texts(dataset)
    weights = text.TfidfVectorizer(
        max_features=num_features, ngram_range=(1, ngrams), min_df=min_count, sublinear_tf=True, dtype=np.float32
    )
    try:
        weights.fit(texts.batch(dataset.part_rows("train")))
    except ValueError as error:
        raise InputError(f"`dataset` has no words that occur in {min_count} training rows.") from error
    return replace(dataset, inputs=SparseRows.of_scipy(weights.transform(texts.texts)))


def _texts(dataset: Dataset) -> Texts:
    if not isinstance(dataset.inputs, Texts):
        raise TypeError(f"`dataset` must have texts as inputs; got {dataset.inputs.kind}.")
    return dataset.inputs

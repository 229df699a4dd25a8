"""Sparse features of texts, fitted once and kept with the model: TF-IDF of n-grams, or hashed words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.encoders.hugging_face import Tokens
from shortlist.data.encoders.ngrams import NgramCounter, PieceCounter, frequent_ngrams, frequent_pieces
from shortlist.data.inputs import SparseRows, TextEncoder, Texts
from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.tensors import check_size


@dataclass(frozen=True, eq=False)
class TfidfWords:
    r"""TF-IDF of n-grams of words and of characters within words.

    .. math:: (1 + \log f) \, \bigl(1 + \log \tfrac{1 + N}{1 + N_t}\bigr)

    for a term t that occurs f times in the text and in N_t of N training texts. The weights of the words have unit
    length together, and so have those of the characters; with both, a row has unit length.

    Args:
        terms: n-grams of words, separated by single spaces; the first columns.
        pieces: n-grams of characters, the other columns.
        idf: ``(terms + pieces,)``, the second factor of the formula.
        characters: the smallest and the largest number of characters of a piece; empty for no pieces.

    Example:
        >>> words = TfidfWords.fit(["red rose", "white rose"], min_count=1)
        >>> words.terms
        ('red', 'rose', 'white')
        >>> words.rows(["rose rose"]).batch(torch.tensor([0])).to_dense()
        tensor([[0., 1., 0.]])
    """

    terms: tuple[str, ...]
    pieces: tuple[str, ...]
    idf: np.ndarray
    characters: tuple[int, int] | tuple[()] = ()

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        *,
        num_features: int | None = 50_000,
        ngrams: int = 1,
        characters: Sequence[int] = (),
        min_count: int = 2,
    ) -> TfidfWords:
        """Choose the terms and their weights.

        Args:
            texts: training texts.
            num_features: the most n-grams of words, and the most of characters, by the number of texts that they occur
                in; None for all.
            ngrams: the maximal number of consecutive words that are counted as one.
            characters: the smallest and the largest number of consecutive characters within words; empty for none.
            min_count: how many texts a term must occur in.
        """
        check_size("num_features", 1 if num_features is None else num_features)
        check_size("ngrams", ngrams)
        check_size("min_count", min_count)
        lengths = _character_lengths(characters)
        words = _most_frequent(frequent_ngrams(texts, ngrams, min_count), num_features)
        pieces = _most_frequent(frequent_pieces(texts, lengths, min_count), num_features) if lengths else {}
        counts = np.array([*words.values(), *pieces.values()], dtype=np.float64)
        idf = 1 + np.log((1 + len(texts)) / (1 + counts))
        return cls(tuple(words), tuple(pieces), idf.astype(np.float32), lengths)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.idf)

    def rows(self, texts: Sequence[str]) -> SparseRows:
        """Return the weights of texts, which need not be those of training."""
        blocks = [_weighted(self._count_words(texts), self.idf[: len(self.terms)])]
        if self.characters:
            blocks.append(_weighted(self._count_pieces(texts), self.idf[len(self.terms) :]))
        matrix = require("scipy.sparse", extra="data").hstack(blocks, format="csr", dtype=np.float32)
        # Each block has unit length, or none.
        matrix = _unit_rows(matrix) if len(blocks) > 1 else matrix
        return SparseRows.of_scipy(matrix, words=self)

    @cached_property
    def _count_words(self) -> NgramCounter:
        return NgramCounter(self.terms)

    @cached_property
    def _count_pieces(self) -> PieceCounter:
        index = {piece: column for column, piece in enumerate(self.pieces)}
        return PieceCounter(index, self.characters or (1, 1))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        kept = {"terms": list(self.terms), "pieces": list(self.pieces), "idf": self.idf.tolist()}
        return {"features": "tfidf", "characters": list(self.characters), **kept}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is derived from the terms."""
        return {name: getattr(self, name) for name in ("terms", "pieces", "idf", "characters")}


@dataclass(frozen=True)
class HashedWords:
    """Hashed word counts of unit norm: nothing is fitted.

    Args:
        num_features: the number of columns.
        ngrams: the maximal number of consecutive words that are counted as one.
    """

    num_features: int = 2**18
    ngrams: int = 1

    def __post_init__(self) -> None:
        check_size("num_features", self.num_features)
        check_size("ngrams", self.ngrams)

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.num_features

    def rows(self, texts: Sequence[str]) -> SparseRows:
        """Return the counts of texts."""
        text = require("sklearn.feature_extraction.text", extra="data")
        ngrams = (1, self.ngrams)
        hashing = text.HashingVectorizer(n_features=self.num_features, ngram_range=ngrams, dtype=np.float32)
        matrix = hashing.transform(texts or [""])  # scikit-learn refuses an empty list.
        return SparseRows.of_scipy(matrix[: len(texts)], words=self)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; they have been the same since the first saved models."""
        return {"num_features": self.num_features, "ngrams": self.ngrams}


def word_features(content: Mapping[str, Any]) -> TextEncoder:
    """Rebuild word features, or tokens, from ``to_json``.

    Raises:
        TypeError, ValueError, KeyError: if the content is something else.
    """
    if content.get("features") == "tokens":
        return Tokens(str(content["tokenizer"]), check_size("width", content["width"]))
    if content.get("features") != "tfidf":
        return HashedWords(**content)
    terms, pieces = (tuple(str(term) for term in content[name]) for name in ("terms", "pieces"))
    idf = np.array(content["idf"], dtype=np.float32)
    if idf.shape != (len(terms) + len(pieces),) or not np.isfinite(idf).all():
        raise ValueError(f"`idf` must have {len(terms) + len(pieces)} finite weights; got shape {idf.shape}")
    return TfidfWords(terms, pieces, idf, _character_lengths(content["characters"]))


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
    return replace(dataset, inputs=HashedWords(num_features, ngrams).rows(_texts(dataset).texts))


def tfidf_words(
    dataset: Dataset,
    *,
    num_features: int | None = 50_000,
    ngrams: int = 1,
    characters: Sequence[int] = (),
    min_count: int = 2,
) -> Dataset:
    """Replace texts by TF-IDF weights of unit norm; vocabulary and weights come from the training rows only.

    Args:
        dataset: its inputs are `Texts`.
        num_features, ngrams, characters, min_count: see `TfidfWords.fit`.

    Returns:
        The dataset with float32 inputs of kind ``sparse features`` that remember the terms, so a model trained on them
        can predict from texts.

    Example:
        >>> from shortlist.data import Dataset, Texts, tfidf_words
        >>> texts = Dataset(Texts(["red rose", "white rose"]), torch.tensor([0, 1]), ("red", "white"))
        >>> tfidf_words(texts, min_count=1).inputs.batch(torch.tensor([0])).to_dense()
        tensor([[0.8148, 0.5797, 0.0000]])
    """
    texts = _texts(dataset)
    options: dict[str, Any] = {"num_features": num_features, "ngrams": ngrams, "characters": characters}
    words = TfidfWords.fit(texts.batch(dataset.part_rows("train")), min_count=min_count, **options)
    if not words.width:
        raise InputError(f"`dataset` has no words that occur in {min_count} training rows.")
    return replace(dataset, inputs=words.rows(texts.texts))


def _texts(dataset: Dataset) -> Texts:
    if not isinstance(dataset.inputs, Texts):
        raise TypeError(f"`dataset` must have texts as inputs; got {dataset.inputs.kind}.")
    return dataset.inputs


def _character_lengths(characters: Sequence[int]) -> tuple[int, int] | tuple[()]:
    lengths: Any = tuple(characters) if isinstance(characters, Sequence) else (characters,)
    if lengths and (len(lengths) != 2 or any(type(n) is not int for n in lengths) or not 1 <= lengths[0] <= lengths[1]):
        raise InputError(f"`characters` must be empty or two ascending lengths of at least 1; got {characters!r}.")
    return lengths


def _most_frequent(counts: Mapping[str, int], most: int | None) -> dict[str, int]:
    """Return the terms with the largest counts, in alphabetical order."""
    kept = sorted(counts, key=lambda term: (-counts[term], term))[:most]
    return {term: counts[term] for term in sorted(kept)}


def _weighted(counts: Any, idf: np.ndarray) -> Any:
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    return _unit_rows(counts)


def _unit_rows(matrix: Any) -> Any:
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64)).ravel()
    scale = 1 / np.where(lengths > 0, lengths, 1)
    matrix.data = (matrix.data * np.repeat(scale, np.diff(matrix.indptr))).astype(np.float32)
    return matrix

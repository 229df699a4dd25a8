"""Words become sparse features: vocabulary and weights from training rows alone, hashing without either."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Dataset, Features, Groups, Texts, hashed_words, tfidf_words

pytest.importorskip("sklearn")

examples = settings(derandomize=True, deadline=None, max_examples=25)
WORDS = ["rose", "daisy", "fern", "moss", "oak", "Ähre"]


def make(texts: list[str], parts: list[str] | None = None) -> Dataset:
    split = None if parts is None else Groups.of(parts, order=("train", "val", "test"))
    return Dataset(Texts(texts), torch.zeros(len(texts), dtype=torch.int64), ("only",), split=split)


def dense(dataset: Dataset) -> np.ndarray:
    return dataset.inputs.batch(torch.arange(len(dataset))).to_dense().numpy()


def words_of(text: str) -> list[str]:
    return re.findall(r"\w\w+", text.lower())


def reference(texts: list[str], training: list[str], min_count: int) -> np.ndarray:
    """TF-IDF as it is defined: (1 + log tf) (1 + log((1 + n) / (1 + df))), to unit length, words in order."""
    holds = {word: sum(word in words_of(text) for text in training) for text in training for word in words_of(text)}
    vocabulary = sorted(word for word, count in holds.items() if count >= min_count)
    table = np.zeros((len(texts), len(vocabulary)))
    for row, text in enumerate(texts):
        found = words_of(text)
        for column, word in enumerate(vocabulary):
            if word in found:
                idf = 1 + math.log((1 + len(training)) / (1 + holds[word]))
                table[row, column] = (1 + math.log(found.count(word))) * idf
        length = np.linalg.norm(table[row])
        table[row] /= length if length else 1
    return table


texts_and_parts = st.lists(
    st.tuples(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), st.sampled_from(["train", "val", "test"])),
    max_size=8,
).map(lambda rows: [("rose oak", "train"), ("oak", "train"), *rows])


@examples
@given(texts_and_parts, st.sampled_from([1, 2]))
def test_weights_agree_with_the_definition_and_know_training_rows_alone(rows, min_count):
    texts, parts = [text for text, _ in rows], [part for _, part in rows]
    training = [text for text, part in rows if part == "train"]
    result = tfidf_words(make(texts, parts), min_count=min_count)
    expected = reference(texts, training, min_count)
    assert result.inputs.kind == "sparse features"
    assert dense(result).dtype == np.float32
    np.testing.assert_allclose(dense(result), expected, atol=1e-6)


def test_a_word_of_the_test_rows_alone_has_no_column():
    result = tfidf_words(make(["red rose", "rose red", "blue rose"], ["train", "train", "test"]), min_count=1)
    assert dense(result).shape == (3, 2)
    assert dense(result)[2].tolist() == [0, 1]


def test_test_rows_do_not_change_the_features_of_training_rows():
    texts = ["red rose", "rose red oak", "oak"]
    first = tfidf_words(make([*texts, "rose rose"], ["train"] * 3 + ["test"]), min_count=1)
    second = tfidf_words(make([*texts, "quite another oak fern"], ["train"] * 3 + ["test"]), min_count=1)
    assert dense(first)[:3].tolist() == dense(second)[:3].tolist()


def test_the_most_frequent_words_are_kept():
    result = tfidf_words(make(["oak oak oak fern", "oak moss moss", "oak moss"]), num_features=2, min_count=1)
    assert dense(result).shape == (3, 2)
    assert (dense(result)[0] > 0).tolist() == [False, True]


def test_words_in_a_row_can_count_as_one():
    assert dense(tfidf_words(make(["red rose", "rose red"]), min_count=1, ngrams=2)).shape == (2, 4)
    single, double = (dense(hashed_words(make(["red rose"]), ngrams=n, num_features=4096)) for n in (1, 2))
    assert (np.count_nonzero(single), np.count_nonzero(double)) == (2, 3)


def test_hashing_needs_no_other_rows():
    texts = ["red rose", "", "rose rose oak", "Ähre 'x'"]
    together = dense(hashed_words(make(texts, ["train", "val", "test", "test"]), num_features=512))
    alone = [dense(hashed_words(make([text]), num_features=512))[0] for text in texts]
    assert together.tolist() == [row.tolist() for row in alone]
    assert together.shape == (4, 512)
    assert together.dtype == np.float32


def test_hashed_words_are_counted_to_unit_length():
    row = dense(hashed_words(make(["oak fern oak oak"]), num_features=2**16))[0]
    np.testing.assert_allclose(sorted(np.abs(row[row != 0])), np.array([1, 3]) / math.sqrt(10), rtol=1e-6)
    same = dense(hashed_words(make(["Oak OAK, fern; oak!"]), num_features=2**16))[0]
    assert same.tolist() == row.tolist()


@pytest.mark.parametrize("make_features", [hashed_words, lambda dataset: tfidf_words(dataset, min_count=1)])
def test_batches_are_sparse_and_an_empty_text_is_an_empty_row(make_features):
    dataset = make(["red rose", "", "!", "rose"])
    result = make_features(dataset)
    batch = result.batch([3, 1, 2, 0])
    assert batch.inputs.layout == torch.sparse_csr
    assert batch.inputs.crow_indices().tolist() == [0, 1, 1, 1, 3]
    assert (batch.inputs @ torch.ones(batch.inputs.shape[1], 2)).shape == (4, 2)
    assert result.targets is dataset.targets
    assert len(result.subset([0, 2])) == 2
    norms = np.linalg.norm(dense(result), axis=1)
    np.testing.assert_allclose(norms, [1, 0, 0, 1], rtol=1e-6)


def test_no_texts_make_no_rows():
    result = hashed_words(make([]), num_features=64)
    assert len(result) == 0
    assert dense(result).shape == (0, 64)


@pytest.mark.parametrize("texts", [[], [""], ["a"], ["once only"]])
def test_training_rows_without_frequent_words_are_refused(texts):
    with pytest.raises(ValueError, match=r"^`dataset` has no words that occur in 2 training rows\.$"):
        tfidf_words(make(texts))


@pytest.mark.parametrize("make_features", [hashed_words, tfidf_words])
def test_options_and_inputs_that_do_not_fit_are_refused_by_name(make_features, monkeypatch):
    def divides_by_zero(self, texts):
        raise AssertionError("scikit-learn ends the process here")

    monkeypatch.setattr("sklearn.feature_extraction.text.HashingVectorizer.transform", divides_by_zero)
    for option in ("ngrams", "num_features"):
        with pytest.raises(ValueError, match=rf"`{option}` must .*; got 0\.$"):
            make_features(make(["red rose", "red rose"]), **{option: 0})
    with pytest.raises(TypeError, match=r"^`dataset` must have texts as inputs; got features\.$"):
        make_features(Dataset(Features(torch.zeros(1, 2)), torch.tensor([0]), ("only",)))

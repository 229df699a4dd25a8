"""Rows of the same content: all of them, only them, in order, and without reading more than needed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Features, SparseRows, Texts
from shortlist.data.summary.duplicates import find_duplicates


def as_lists(found):
    return [rows.tolist() for rows in found]


def brute_force(contents):
    groups = {}
    for row, content in enumerate(contents):
        groups.setdefault(content, []).append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


class Counted(Texts):
    """Texts that say how long they are and remember which rows were read."""

    def __init__(self, texts):
        super().__init__(texts)
        self.read, self.blocks = [], []

    def sizes(self):
        return torch.tensor([len(text) for text in self.texts], dtype=torch.int64)

    def fingerprints(self, rows):
        self.read += rows.tolist()
        self.blocks.append(len(rows))
        return super().fingerprints(rows)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "cc", "dd", "é", ""]), max_size=30), st.integers(1, 7))
def test_equal_rows_are_grouped_in_the_order_of_their_first_rows(texts, block):
    assert as_lists(find_duplicates(Texts(texts), block=block)) == brute_force(texts)
    assert as_lists(find_duplicates(Counted(texts), block=block)) == brute_force(texts)


def test_only_rows_whose_size_occurs_twice_are_read_and_in_blocks():
    inputs = Counted(["one", "two", "three", "four", "seven", "one", "eleven"])
    assert as_lists(find_duplicates(inputs, block=2)) == [[0, 5]]
    assert inputs.read == [0, 1, 2, 4, 5]
    assert inputs.blocks == [2, 2, 1]


def test_rows_that_share_half_a_fingerprint_are_not_equal():
    class Half(Texts):
        def fingerprints(self, rows):
            return [b"12345678" + text.encode().ljust(8) for text in self.batch(rows)]

    assert as_lists(find_duplicates(Half(["x", "y", "z", "y"]))) == [[1, 3]]


def test_groups_know_their_rows_and_rows_their_group():
    found = find_duplicates(Texts(["b", "a", "b", "a", "a", "c"]))
    assert len(found) == 2
    assert found[1].tolist() == found[-1].tolist() == [1, 3, 4]
    assert found.rows.tolist() == [0, 2, 1, 3, 4]
    assert found.groups().tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(IndexError, match=r"`group` must lie in \[-2, 1\]; got 2\."):
        found[2]


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "b"]])
def test_where_nothing_is_equal_there_are_no_groups(texts):
    found = find_duplicates(Texts(texts))
    assert (len(found), as_lists(found), found.groups().tolist()) == (0, [], [])


def test_dense_and_sparse_features_are_compared_by_content():
    dense = torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    assert as_lists(find_duplicates(Features(dense))) == [[0, 2]]
    assert as_lists(find_duplicates(Features(dense.numpy()).take(torch.tensor([2, 1, 0, 1])))) == [[0, 2], [1, 3]]
    rows = SparseRows(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 0]), torch.tensor([1.0, 1.0, 1.0]), 2)
    assert as_lists(find_duplicates(rows)) == [[0, 2]]


def test_progress_is_reported_after_each_block():
    reported = []
    find_duplicates(Features(np.eye(5)), block=2, progress=lambda *state: reported.append(state))
    assert reported == [(2, 5), (4, 5), (5, 5)]


def test_what_does_not_fit_the_rows_is_refused():
    class Short(Texts):
        def fingerprints(self, rows):
            return [b"1234" for _ in rows]

    class Unsized(Texts):
        def sizes(self):
            return np.zeros(3)

    with pytest.raises(ValueError, match=r"`block` must be at least 1; got 0\."):
        find_duplicates(Texts(["a"]), block=0)
    with pytest.raises(ValueError, match=r"`inputs` must give 16 bytes for each of 2 rows; got 8 bytes\."):
        find_duplicates(Short(["a", "b"]))
    with pytest.raises(ValueError, match=r"`inputs` must give one size for each of 2 rows; got shape \(3,\)\."):
        find_duplicates(Unsized(["a", "b"]))

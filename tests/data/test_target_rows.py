"""Labels of all rows: taken apart, put together, and taken by row, the same in every form."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.data.target_rows import csr, label_pairs, sparse_targets, take_rows, take_segments
from shortlist.targets import check_target
from tests.data.datasets import in_all_forms

examples = settings(derandomize=True, deadline=None, max_examples=60)
N = 5
Hot = list[list[int]]  # 1 present, 0 absent, -1 unknown
hot_rows = st.lists(st.lists(st.sampled_from([0, 0, 1, -1]), min_size=N, max_size=N), max_size=7)
sure_rows = st.lists(st.lists(st.sampled_from([0, 1]), min_size=N, max_size=N), max_size=7)


def forms(hot: Hot) -> dict[str, Tensor]:
    dense = torch.tensor(hot, dtype=torch.float32).reshape(-1, N)
    return {**in_all_forms(dense), "double": dense.double()}


def listed(hot: Hot) -> list[tuple[int, int, bool]]:
    return [(r, label, value > 0) for r, row in enumerate(hot) for label, value in enumerate(row) if value]


@examples
@given(hot_rows | sure_rows)
def test_pairs_are_the_same_in_every_form(hot):
    for name, target in forms(hot).items():
        pairs = label_pairs(target, N)
        assert pairs.rows.dtype == pairs.labels.dtype == torch.int64, name
        assert pairs.present.dtype == torch.bool, name
        found = list(zip(*(part.tolist() for part in pairs), strict=True))
        assert found == listed(hot), name  # By row, then by label, whatever the order in the form.


def test_a_stored_zero_is_an_absent_label():
    target = csr(torch.tensor([0, 2]), torch.tensor([1, 3]), torch.tensor([0.0, 1.0]), N)
    assert label_pairs(target, N).labels.tolist() == [3]


def test_pairs_of_a_form_that_is_none_are_refused():
    with pytest.raises(ValueError, match=r"last of size 5; got shape \(2, 3\)"):
        label_pairs(torch.zeros(2, 3), N)


@examples
@given(hot_rows | sure_rows, st.randoms(use_true_random=False))
def test_rows_are_taken_in_their_order_and_with_repeats(hot, rng):
    rows = [rng.randrange(len(hot)) for _ in range(5)] if hot else []
    for name, target in forms(hot).items():
        taken = take_rows(target, torch.tensor(rows, dtype=torch.int64))
        assert taken.dtype == target.dtype, name
        assert taken.layout == (torch.sparse_csr if "COO" in name else target.layout), name
        check_target(taken, N)
        pairs = label_pairs(taken, N)
        found = sorted(zip(*(part.tolist() for part in pairs), strict=True))
        assert found == listed([hot[row] for row in rows]), name


def test_rows_of_a_sparse_form_with_narrow_indices_are_a_valid_tensor():
    crow, columns = torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([2, 0, 1], dtype=torch.int32)
    taken = take_rows(csr(crow, columns, torch.ones(3), N), torch.tensor([1, 0, 1]))
    assert taken.crow_indices().dtype == taken.col_indices().dtype
    assert taken.crow_indices().tolist() == [0, 2, 3, 5]
    assert taken.col_indices().tolist() == [0, 1, 2, 0, 1]


@examples
@given(hot_rows, st.randoms(use_true_random=False))
def test_segments_point_at_the_entries_of_their_rows(hot, rng):
    sizes = [sum(map(abs, row)) for row in hot]
    starts = [sum(sizes[:r]) for r in range(len(sizes) + 1)]
    rows = [rng.randrange(len(hot)) for _ in range(4)] if hot else []
    crow, places = take_segments(torch.tensor(starts), torch.tensor(rows, dtype=torch.int64))
    assert crow.tolist() == [sum(sizes[row] for row in rows[:i]) for i in range(len(rows) + 1)]
    assert places.tolist() == [place for row in rows for place in range(starts[row], starts[row + 1])]


@examples
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, N - 1), st.booleans()), max_size=20))
def test_sparse_targets_count_a_pair_once_and_as_present_if_one_is(entries):
    hot = [[0] * N for _ in range(4)]
    for row, label, sure in entries:
        hot[row][label] = 1 if sure or hot[row][label] == 1 else -1
    rows, labels, sure = (torch.tensor([entry[i] for entry in entries], dtype=torch.int64) for i in range(3))
    for given_rows, given_labels in ((rows, labels), (rows.numpy().astype("int32"), labels.numpy())):
        target = sparse_targets(given_rows, given_labels, 4, N, present=sure.bool())
        assert target.layout == torch.sparse_csr
        assert target.dtype == torch.float32
        check_target(target, N)
        assert target.to_dense().tolist() == hot


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_rows_without_labels_are_rows_too(num_rows):
    none = torch.empty(0, dtype=torch.int64)
    target = sparse_targets(none, none, num_rows, N)
    assert tuple(target.shape) == (num_rows, N)
    assert not target.to_dense().any()
    assert len(label_pairs(target, N).rows) == 0


def test_columns_ascend_within_each_row():
    target = sparse_targets(torch.tensor([1, 0, 1, 1]), torch.tensor([4, 2, 0, 3]), 2, N)
    assert target.crow_indices().tolist() == [0, 1, 4]
    assert target.col_indices().tolist() == [2, 0, 3, 4]


@pytest.mark.parametrize(
    ("rows", "labels", "text"),
    [
        ([0, 4], [0, 0], r"`rows` must lie in \[0, 4\); got 4"),
        ([-1, 0], [0, 0], r"`rows` must lie in \[0, 4\); got -1"),
        ([0, 0], [0, 5], r"`labels` must lie in \[0, 5\); got 5"),
        ([0, 0], [-3, 5], r"`labels` must lie in \[0, 5\); got -3"),
    ],
)
def test_pairs_outside_the_table_are_refused(rows, labels, text):
    with pytest.raises(ValueError, match=rf"^{text}\.$"):
        sparse_targets(torch.tensor(rows), torch.tensor(labels), 4, N)

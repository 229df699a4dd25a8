"""Inputs are read when asked for, in the order asked for, and equal content has equal fingerprints."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Features, SparseRows, Texts

examples = settings(derandomize=True, deadline=None, max_examples=40)
ALL = torch.arange(3)


def table(rows: list[list[float]]) -> dict[str, Features | SparseRows]:
    """The same numbers as tensor, as array and as sparse rows."""
    dense = np.array(rows, dtype=np.float32).reshape(len(rows), -1)
    crow, columns, values = [0], [], []
    for row in rows:
        columns += [column for column, value in enumerate(row) if value]
        values += [value for value in row if value]
        crow.append(len(columns))
    narrow = torch.tensor(columns, dtype=torch.int32)
    return {
        "tensor": Features(torch.from_numpy(dense)),
        "array": Features(dense),
        "columns first": Features(np.asfortranarray(dense)),
        "sparse": SparseRows(torch.tensor(crow), torch.tensor(columns, dtype=torch.int64), torch.tensor(values), 4),
        "narrow": SparseRows(torch.tensor(crow), narrow, torch.tensor(values), 4),
    }


tables = st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.5, -2.0]), min_size=4, max_size=4), min_size=1, max_size=6)


@examples
@given(tables, st.randoms(use_true_random=False))
def test_rows_are_read_and_narrowed_in_any_order(rows, rng):
    first = [rng.randrange(len(rows)) for _ in range(4)]
    second = [rng.randrange(4) for _ in range(5)]
    for name, inputs in table(rows).items():
        assert len(inputs) == len(rows)
        assert inputs.shape == (4,), name
        read = inputs.batch(torch.tensor(first))
        assert read.to_dense().tolist() == [rows[row] for row in first], name
        few = inputs.take(torch.tensor(first))
        assert len(few) == 4
        expected = [rows[first[row]] for row in second]
        assert few.batch(torch.tensor(second)).to_dense().tolist() == expected, name
        fewer = few.take(torch.tensor(second))
        assert fewer.batch(torch.arange(5)).to_dense().tolist() == expected, name


@examples
@given(tables)
def test_fingerprints_are_equal_where_the_content_is(rows):
    for name, inputs in table(rows).items():
        prints = inputs.fingerprints(torch.arange(len(rows)))
        assert all(len(each) == 16 for each in prints), name
        for i, left in enumerate(rows):
            for j, right in enumerate(rows):
                assert (prints[i] == prints[j]) == (left == right), name


def test_fingerprints_belong_to_the_content_and_not_to_the_place():
    for name, inputs in table([[1.5, 0, 0, 0], [0, 1.5, 0, 0], [1.5, 0, 0, -2.0]]).items():
        backwards = inputs.take(torch.tensor([2, 1, 0]))
        assert backwards.fingerprints(ALL) == inputs.fingerprints(ALL)[::-1], name
    equal = [inputs.fingerprints(ALL) for name, inputs in table([[1.5, 0, 2, 0]] * 3).items() if name != "sparse"]
    assert equal[0] == equal[1] == equal[2]


def test_a_batch_of_sparse_rows_is_a_sparse_tensor():
    rows = SparseRows(torch.tensor([0, 1, 1, 3]), torch.tensor([2, 0, 1]), torch.tensor([1.0, 2.0, 3.0]), 3)
    batch = rows.batch(torch.tensor([2, 1, 2]))
    assert batch.layout == torch.sparse_csr
    assert batch.crow_indices().tolist() == [0, 2, 2, 4]
    assert batch.col_indices().tolist() == [0, 1, 0, 1]
    assert batch.values().tolist() == [2, 3, 2, 3]
    assert (batch @ torch.ones(3, 1)).flatten().tolist() == [5, 0, 5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.bool, torch.int64])
def test_batches_keep_the_dtype(dtype):
    inputs = Features(torch.tensor([[0, 1], [1, 1], [0, 1]]).to(dtype))
    assert inputs.batch(ALL).dtype == dtype
    prints = inputs.fingerprints(ALL)
    assert prints[0] == prints[2] != prints[1]


def test_minus_zero_is_another_content():
    prints = Features(torch.tensor([[0.0], [-0.0]])).fingerprints(torch.arange(2))
    assert prints[0] != prints[1]


def test_rows_may_have_any_shape():
    pixels = np.arange(24, dtype=np.uint8).reshape(3, 2, 2, 2)
    inputs = Features(pixels)
    assert inputs.shape == (2, 2, 2)
    assert inputs.batch(torch.tensor([1])).tolist() == [pixels[1].tolist()]
    assert len(set(inputs.fingerprints(ALL))) == 3


def test_a_mapped_file_stays_on_the_disk_and_is_never_written(tmp_path):
    path = tmp_path / "features.npy"
    np.save(path, np.arange(12, dtype=np.float16).reshape(3, 4))
    before = path.read_bytes()
    for mode in ("r", "r+"):
        inputs = Features(np.load(path, mmap_mode=mode)).take(torch.tensor([2, 0]))
        assert isinstance(inputs.array, np.memmap)
        batch = inputs.batch(torch.tensor([0]))
        assert batch.tolist() == [[8, 9, 10, 11]]
        batch.zero_()
        assert inputs.batch(torch.tensor([0])).tolist() == [[8, 9, 10, 11]]
        del inputs
    assert path.read_bytes() == before


def test_texts_are_read_and_narrowed_in_any_order():
    texts = Texts(("rose", "", "Ähre 'x'\n", "rose"))
    assert len(texts) == 4
    assert texts.batch(torch.tensor([2, 0, 2])) == ["Ähre 'x'\n", "rose", "Ähre 'x'\n"]
    assert texts.take(torch.tensor([3, 1])).take(torch.tensor([1])).batch(torch.tensor([0])) == [""]
    prints = texts.fingerprints(torch.arange(4))
    assert prints[0] == prints[3]
    assert len(set(prints)) == 3


def test_a_text_with_half_a_character_has_a_fingerprint():
    assert len(Texts(["\ud83d"]).fingerprints(torch.tensor([0]))[0]) == 16


def test_there_may_be_no_rows():
    none = torch.empty(0, dtype=torch.int64)
    empty = SparseRows(torch.zeros(1, dtype=torch.int64), none, torch.empty(0), 3)
    assert len(empty) == 0
    assert tuple(empty.batch(none).shape) == (0, 3)
    for inputs in (Features(torch.empty(0, 3)), Features(np.empty((0, 3))), Texts([]), empty):
        assert len(inputs) == len(inputs.batch(none)) == len(inputs.take(none)) == 0
        assert inputs.fingerprints(none) == []


def test_rows_of_scipy_are_taken_as_they_are():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[0, 1.5, 0], [0, 0, 0], [2, 0, 3]], dtype=np.float32)
    for matrix in (scipy_sparse.csr_matrix(dense), scipy_sparse.csr_array(dense)):
        rows = SparseRows.of_scipy(matrix)
        assert len(rows) == 3
        assert rows.batch(torch.tensor([2, 1, 0])).to_dense().tolist() == dense[[2, 1, 0]].tolist()
        assert rows.values.data_ptr() == matrix.data.ctypes.data


def test_a_matrix_by_columns_is_not_read_as_its_transpose():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[1.0, 2.0], [0.0, 3.0]])
    with pytest.raises(TypeError, match="CSR"):
        SparseRows.of_scipy(scipy_sparse.csc_matrix(dense))


@pytest.mark.parametrize("array", [torch.zeros(3), np.zeros(3), torch.zeros(())])
def test_an_array_without_rows_and_columns_is_refused(array):
    with pytest.raises(ValueError, match=r"^`array` must have at least 2 dimensions, rows first; got shape \(.*\)\.$"):
        Features(array)


def test_columns_and_values_of_two_lengths_are_refused():
    with pytest.raises(ValueError, match=r"^`columns` and `values` must have one length; got 2 and 1\.$"):
        SparseRows(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([1.0]), 3)


@pytest.mark.parametrize("crow", [[], [0, 1], [1, 2], [0, 3]])
def test_row_pointers_that_do_not_span_the_entries_are_refused(crow):
    with pytest.raises(ValueError, match=r"^`crow` must be int64 and go from 0 to 2; got "):
        SparseRows(torch.tensor(crow, dtype=torch.int64), torch.tensor([0, 1]), torch.tensor([1.0, 1.0]), 3)
    with pytest.raises(ValueError, match="`crow` must be int64"):
        SparseRows(torch.tensor([0, 2], dtype=torch.int32), torch.tensor([0, 1]), torch.tensor([1.0, 1.0]), 3)

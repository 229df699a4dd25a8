"""Datasets in data loaders: batches from other processes, files sent by name, labels checked once."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from shortlist.data import (
    Batch,
    Dataset,
    Features,
    Groups,
    SparseRows,
    Texts,
)
from shortlist.data.target_rows import sparse_targets
from shortlist.targets import to_sparse


def sparse_rows(count: int) -> SparseRows:
    return SparseRows(torch.arange(count + 1), torch.arange(count) % 5, torch.arange(count) + 1.0, 5)


def labels(count: int) -> torch.Tensor:
    return sparse_targets(torch.arange(count), torch.arange(count) % 3, count, 3)


def mapped(tmp_path, array: np.ndarray) -> np.ndarray:
    np.save(tmp_path / "x.npy", array)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_give_the_batches_of_one_process_without_a_warning(tmp_path, start):
    array = np.arange(40.0, dtype=np.float32).reshape(10, 4)
    for inputs in (Features(mapped(tmp_path, array)), sparse_rows(10)):
        dataset = Dataset(inputs, labels(10), ("a", "b", "c"))
        batches = BatchSampler(SequentialSampler(range(10)), 4, drop_last=False)
        loader = DataLoader(dataset, sampler=batches, batch_size=None, num_workers=1, multiprocessing_context=start)
        for got, rows in zip(loader, batches, strict=True):
            want = dataset.batch(rows)
            assert isinstance(got, Batch)
            for one, other in zip(got, want, strict=True):
                assert one.layout == other.layout
                assert torch.equal(one.to_dense(), other.to_dense())


def test_a_batch_of_texts_survives_pickling():
    dataset = Dataset(Texts(["a", "b"]), labels(2), ("a", "b", "c"))
    got = pickle.loads(pickle.dumps(dataset.batch([1, 0])))
    assert got.inputs == ["b", "a"]
    assert got.targets.to_dense().tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_mapped_file_is_sent_by_its_name_also_in_part(tmp_path):
    array = np.random.default_rng(0).random((500, 100)).astype(np.float32)
    whole = mapped(tmp_path, array)
    for part, want in ((whole, array), (whole[100:300], array[100:300]), (whole[1:2], array[1:2])):
        sent = pickle.dumps(Features(part))
        assert len(sent) < 1000
        got = pickle.loads(sent).batch(torch.arange(len(want)))
        assert torch.equal(got, torch.from_numpy(want))


def test_columns_of_a_mapped_file_are_sent_as_they_are(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    got = pickle.loads(pickle.dumps(Features(mapped(tmp_path, array)[:, 1:3])))
    assert got.batch(torch.tensor([2])).tolist() == [[9.0, 10.0]]


def test_bits_of_another_dtype_are_read_as_that():
    values = torch.tensor([[1.5, -2.0], [0.0, 3.0]], dtype=torch.bfloat16)
    features = Features(values.view(torch.uint16).numpy(), bits_of=torch.bfloat16)
    assert torch.equal(features.take(torch.tensor([1, 0])).batch(torch.tensor([1])), values[:1])
    assert len(set(features.fingerprints(torch.tensor([0, 1])))) == 2


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([0, -1, 1]), r"^`targets` row 1: label -1 must lie in \[0, 2\)\.$"),
        (torch.tensor([0, 1, 7]), r"^`targets` row 2: label 7 must lie in \[0, 2\)\.$"),
        (torch.tensor([[0, 0], [1, -1], [1, 0]]), r"^`targets` row 0: label 0 must not occur twice\.$"),
        (torch.tensor([[0.3, 1.0], [0.0, 0.0], [1.0, 1.0]]), r"^`targets` row 0: label 0 must have value 0, 1 or"),
    ],
)
def test_labels_are_checked_when_a_dataset_is_made(targets, message):
    with pytest.raises(ValueError, match=message):
        Dataset(Features(torch.zeros(3, 1)), targets, ("a", "b"))


def test_sparse_labels_of_any_order_are_checked_by_value():
    crow, columns = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1])
    good = torch.sparse_csr_tensor(crow, columns, torch.ones(3), (2, 2), check_invariants=False)
    assert Dataset(Features(torch.zeros(2, 1)), good, ("a", "b")).label_counts().tolist() == [1, 2]
    twice = torch.sparse_csr_tensor(crow, torch.tensor([1, 1, 1]), torch.ones(3), (2, 2), check_invariants=False)
    with pytest.raises(ValueError, match=r"^`targets` row 0: label 1 must not occur twice\.$"):
        Dataset(Features(torch.zeros(2, 1)), twice, ("a", "b"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dataset(torch.eye(2), torch.tensor([0, 1]), ("a", "b")), "`inputs` must be Inputs"),  # type: ignore
        (
            lambda: Dataset(Features(torch.eye(2)), torch.tensor([0, 1]), ("a", "b"), split=["train"] * 2),
            "`split` must be Groups; got list",
        ),
        (lambda: Features([[1.0]]), "`array` must be a tensor or a numpy array; got list"),
        (lambda: Texts("hello"), "`texts` must be a sequence of texts; got a single one"),
        (lambda: Groups([0, 1], ("a", "b")), "`index` must be a tensor; got list"),
    ],
)
def test_what_is_given_instead_of_our_own_types_is_named(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_a_slice_is_a_batch_and_coo_becomes_csr_once():
    dataset = Dataset(Features(torch.eye(4)), to_sparse(torch.tensor([0, 1, 2, 0]), 3), tuple("abc"))
    assert dataset.targets.layout == torch.sparse_csr
    assert dataset[1:3].rows.tolist() == [1, 2]
    assert dataset[::-2].rows.tolist() == [3, 1]

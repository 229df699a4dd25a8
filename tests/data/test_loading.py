"""Datasets in data loaders: batches from other processes, files sent by name, labels checked once."""

import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from shortlist.data import (
    Batch,
    Dataset,
    Features,
    Groups,
    SparseRows,
    Texts,
)
from shortlist.data.formats.arrays import read_arrays
from shortlist.data.formats.images.cifar import read_cifar
from shortlist.data.images import ImageArray
from shortlist.data.target_rows import sparse_targets
from shortlist.targets import to_sparse
from tests.data.files.pickles import Python2

PIXELS = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8)
VALUES = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32)
ROWS = torch.tensor([63, 0, 40, 40, 7])


def sparse_rows(count: int) -> SparseRows:
    return SparseRows(torch.arange(count + 1), torch.arange(count) % 5, torch.arange(count) + 1.0, 5)


def labels(count: int) -> torch.Tensor:
    return sparse_targets(torch.arange(count), torch.arange(count) % 3, count, 3)


def mapped(tmp_path, array: np.ndarray, name: str = "x.npy") -> np.ndarray:
    np.save(tmp_path / name, array)
    return np.load(tmp_path / name, mmap_mode="r")


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
    whole = mapped(tmp_path, np.concatenate([VALUES, VALUES]))
    for part in (whole, whole[:64], whole[40:104]):
        sent(Features(part), most=1000)


def test_columns_of_a_mapped_file_are_sent_as_they_are(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    got = pickle.loads(pickle.dumps(Features(mapped(tmp_path, array)[:, 1:3])))
    assert got.batch(torch.tensor([2])).tolist() == [[9.0, 10.0]]


def sent(inputs, *, most=4096):
    """The inputs after a journey that must not carry their content."""
    letter = pickle.dumps(inputs)
    assert len(letter) < most
    arrived = pickle.loads(letter)
    assert torch.equal(arrived.batch(ROWS), inputs.batch(ROWS))
    assert arrived.batch(ROWS).dtype == inputs.batch(ROWS).dtype
    assert len(arrived) == len(inputs)
    assert torch.equal(pickle.loads(pickle.dumps(arrived)).batch(ROWS), inputs.batch(ROWS))
    return arrived


@pytest.mark.parametrize("channels", [3, 1, None])
def test_mapped_images(tmp_path, channels):
    array = PIXELS[..., 0] if channels is None else PIXELS[..., :channels]
    sent(ImageArray(mapped(tmp_path, array)))


def test_images_in_several_files_and_some_of_their_rows(tmp_path):
    parts = [mapped(tmp_path, PIXELS[:30], "a.npy"), PIXELS[:0], mapped(tmp_path, PIXELS[30:], "b.npy")]
    images = sent(ImageArray(parts))
    assert isinstance(images.pixels.parts[2], np.memmap)
    few = images.take(torch.tensor([33, 2]))
    assert torch.equal(pickle.loads(pickle.dumps(few)).batch(torch.tensor([0, 1])), few.batch(torch.tensor([0, 1])))


def test_images_in_planes_and_slices_of_a_file(tmp_path):
    planes = mapped(tmp_path, np.concatenate([PIXELS, PIXELS]).transpose(0, 3, 1, 2))[20:84].transpose(0, 2, 3, 1)
    sent(ImageArray(planes))


def test_images_in_memory_are_sent_whole():
    images = ImageArray([PIXELS[:30], PIXELS[30:]])
    arrived = pickle.loads(pickle.dumps(images))
    assert torch.equal(arrived.batch(ROWS), images.batch(ROWS))


def test_features_in_parts(tmp_path):
    np.savez(tmp_path / "a.npz", X_train=VALUES[:40], X_test=VALUES[40:], y_train=[0] * 40, y_test=[0] * 24)
    sent(read_arrays(tmp_path / "a.npz").inputs)


@pytest.mark.parametrize("parts", [False, True])
def test_features_of_bfloat16(tmp_path, parts):
    values, labels = torch.from_numpy(VALUES).bfloat16(), torch.zeros(64, dtype=torch.int64)
    tensors = {"X": values, "y": labels}
    if parts:
        tensors = {"X_train": values[:9].clone(), "X_test": values[9:].clone()}
        tensors |= {"y_train": labels[:9].clone(), "y_test": labels[9:].clone()}
    save_file(tensors, tmp_path / "a.safetensors")
    inputs = sent(read_arrays(tmp_path / "a.safetensors").inputs)
    assert torch.equal(inputs.batch(ROWS), values[ROWS])
    assert torch.equal(inputs.take(ROWS).batch(torch.tensor([4])), values[[7]])


def test_pixels_of_cifar(tmp_path):
    pixels = np.random.default_rng(2).integers(0, 256, (64, 3072), dtype=np.uint8)
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": ["a"], "coarse_label_names": ["A"]}, protocol=2))
    for name, count in (("train", 64), ("test", 3)):  # As published, where pixels are stored as they are.
        labels = {b"fine_labels": [0] * count, b"coarse_labels": [0] * count}
        (tmp_path / name).write_bytes(Python2(2).dumps({b"data": pixels[:count], **labels}))
    inputs = sent(read_cifar(tmp_path).inputs)
    assert torch.equal(inputs.batch(ROWS), torch.from_numpy(pixels[ROWS]).reshape(-1, 3, 32, 32))


def test_packed_pixels_of_cifar_are_read_again(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x_train=PIXELS, y_train=[0] * 64, fine_names=["a"])
    inputs = read_cifar(tmp_path / "a.npz").inputs
    inputs.batch(ROWS)
    sent(inputs)


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
        (torch.tensor([[0, 0, -1], [1, -1, -1], [1, 0, -1]]), r"^`targets` row 0: label 0 must not occur twice\.$"),
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

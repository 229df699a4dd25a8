"""CIFAR: the published folders and npz files, read as written or refused with the file and the row."""

import numpy as np
import pytest

from shortlist.data.formats.images.cifar import read_cifar
from tests.data.datasets import parts_of
from tests.data.files.pickles import WRITERS, each_writer
from tests.data.formats.samples import batch, cifar_10, cifar_100, cifar_npz, pixels


def images(*rows):
    """Rows of the published layout with channels last."""
    return np.concatenate(rows).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


@each_writer
def test_the_published_folder_of_cifar_100_is_read_as_written(tmp_path, write):
    data = read_cifar(cifar_100(tmp_path, write))
    assert data.label_names == ("apple", "bear", "cattle")
    assert data.targets.tolist() == [0, 2, 1, 1, 1]
    superclass = data.label_groups["superclass"]
    assert (superclass.names, superclass.index.tolist()) == (("large", "fruit"), [1, 0, 0])
    assert parts_of(data) == (("train", "test"), [0] * 3 + [1] * 2)
    found = data.batch([4, 0, 2]).inputs.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(found, images(pixels(3), pixels(2, 4))[[4, 0, 2]])


def test_the_folder_around_is_enough_and_coarse_labels_are_a_choice(tmp_path):
    cifar_100(tmp_path)
    data = read_cifar(tmp_path, labels="coarse")
    assert data.label_names == ("large", "fruit")
    assert data.targets.tolist() == [1, 0, 0, 0, 0]
    assert not data.label_groups
    with pytest.raises(ValueError, match="`labels` must be 'fine' or 'coarse'; got 'both'"):
        read_cifar(tmp_path, labels="both")


@each_writer
def test_the_published_folder_of_cifar_10_is_read_as_written(tmp_path, write):
    data = read_cifar(cifar_10(tmp_path, write))
    assert data.targets.tolist() == [1, 0, 1, 0, 1, 0]
    assert data.split.counts().tolist() == [5, 1]
    assert not data.label_groups
    assert np.array_equal(data[2].input.permute(1, 2, 0).numpy(), images(pixels(1, 3))[0])
    with pytest.raises(ValueError, match="has no coarse labels, so `labels` must be 'fine'"):
        read_cifar(tmp_path, labels="coarse")
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(ValueError, match=r"data_batch_4` does not exist\."):
        read_cifar(tmp_path)


def test_pixels_stay_in_the_file(tmp_path):
    data = read_cifar(cifar_100(tmp_path, train=batch(6, fine_labels=[0] * 6, coarse_labels=[0] * 6)))
    held = data.inputs.pixels.parts[0]
    while isinstance(held, np.ndarray):
        held = held.base
    assert type(held).__name__ == "mmap"
    data.batch([0]).inputs.fill_(0)
    assert np.array_equal(data[0].input.permute(1, 2, 0).numpy(), images(pixels(1))[0])


@each_writer
def test_parts_without_rows_and_unused_labels_are_read(tmp_path, write):
    one, none = batch(1, fine_labels=[2], coarse_labels=[1]), batch(0, fine_labels=[], coarse_labels=[])
    data = read_cifar(cifar_100(tmp_path, write, train=one, test=none))
    assert data.targets.tolist() == [2]
    assert data.label_groups["superclass"].index.tolist() == [-1, -1, 1]


@pytest.mark.parametrize(
    ("file", "change", "complaint"),
    [
        ("train", {"data": None}, r"train` has no 'data'\.$"),
        ("train", b"\x80\x02]q\x00.", r"train` must hold a dict; got list\.$"),
        ("train", b"", r"train` is empty or cannot be read"),
        ("train", b"\x80\x04 no pickle", r"train` byte 2: the file ends early or is no pickle"),
        ("train", {"fine_labels": [0]}, r"train`: 'fine_labels' .* 3 images; got shape \(1,\)"),
        ("train", {"fine_labels": [0, 3, 0]}, r"train`: .* row 1: label must lie in \[0, 3\); got 3"),
        ("test", {"fine_labels": [-1, 0]}, r"test`: .* row 0: label must lie in .*; got -1"),
        ("test", {"fine_labels": [0, "x"]}, r"row 1: a label must be an integer; got bytes"),
        ("test", {"fine_labels": "ab"}, r"test`: 'fine_labels' must be integers; got bytes"),
        ("test", {"fine_labels": [2**30, 2**31 - 1]}, r"test`: .* row 0: label must lie in"),
        ("test", {"coarse_labels": [0, 1]}, r"test` row 1: coarse label must be 0, .* got 1"),
        ("test", {"coarse_labels": [0, 3]}, r"'coarse_labels' row 1: label must lie in \[0, 2\)"),
        ("test", {"data": np.zeros((2, 9), np.uint8)}, r"'data' must be .*; got uint8 \(2, 9\)"),
        ("test", {"data": np.zeros((2, 3072))}, r"'data' must be .*; got float64"),
        ("test", {"data": [0]}, r"test`: 'data' must be a uint8 array .*; got list"),
        ("meta", {"coarse_label_names": None}, r"meta` has no 'coarse_label_names'"),
        ("meta", {"fine_label_names": [1]}, r"meta`: 'fine_label_names' must be a list of names"),
        ("meta", {"fine_label_names": ["a", "b", "a"]}, r"row 2: names must differ; got 'a' again"),
    ],
)
def test_wrong_contents_are_named(tmp_path, file, change, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_cifar(cifar_100(tmp_path, **{file: change}))


def test_labels_beyond_all_integers_are_named(tmp_path):
    write = WRITERS["python 3, protocol 4"]
    with pytest.raises(ValueError, match=r"test`: 'fine_labels' must be labels; got numbers above"):
        read_cifar(cifar_100(tmp_path, write, test={"fine_labels": [2**62, 0]}))


def test_an_npz_is_read_as_written(tmp_path):
    data = read_cifar(cifar_npz(tmp_path))
    assert data.label_names == ("apple", "bear", "cattle")
    assert data.targets.tolist() == [0, 2, 1, 1, 1]
    assert data.label_groups["superclass"].index.tolist() == [1, 0, 0]
    assert not isinstance(data.inputs.pixels.parts[0], np.ndarray)  # It is read with the first batch.
    found = data.batch([4, 1]).inputs[0].permute(1, 2, 0).numpy()
    assert np.array_equal(found, pixels(5).reshape(5, 32, 32, 3)[4])
    assert data.split.counts().tolist() == [3, 2]
    assert read_cifar(tmp_path / "cifar.npz", labels="coarse").targets.tolist() == [1, 0, 0, 0, 0]


def test_an_npz_needs_no_names_and_superclasses_come_from_a_table_or_from_rows(tmp_path):
    unnamed = {"fine_names": None, "coarse_names": None}
    data = read_cifar(cifar_npz(tmp_path, **unnamed))
    assert data.label_names == ("0", "1", "2")
    assert data.label_groups["superclass"].index.tolist() == [1, 0, 0]
    table = {"y_coarse_train": None, "y_coarse_test": None, "fine_to_coarse": np.array([1, 0, 1], dtype=np.int8)}
    assert read_cifar(cifar_npz(tmp_path, **table)).label_groups["superclass"].index.tolist() == [1, 0, 1]
    half = cifar_npz(tmp_path, **unnamed, y_train=[0, 2, 0], y_coarse_train=[1, 0, 1], y_coarse_test=None)
    assert read_cifar(half).label_groups["superclass"].index.tolist() == [1, -1, 0]
    with pytest.raises(ValueError, match=r"cifar\.npz` part 'test' row 0: fine label 1 has no coarse label\."):
        read_cifar(half, labels="coarse")
    keras = read_cifar(cifar_npz(tmp_path, y_train=[[0], [2], [1]], y_coarse_train=None, y_coarse_test=None))
    assert keras.targets.tolist() == [0, 2, 1, 1, 1]
    assert not keras.label_groups


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"y_train": None}, r"has no array 'y_train'"),
        ({"x_train": None}, r"has no array 'x_train'"),
        ({"y_train": [0, 1, 9]}, r"'y_train' row 2: label must lie in \[0, 3\); got 9"),
        ({"y_train": [0, 1]}, r"'y_train' must have one label for each of 3 images; got shape \(2,\)"),
        ({"y_train": [0.5] * 3}, r"'y_train' must be integers; got float64"),
        ({"y_train": np.array([None] * 3)}, r"'y_train' must hold numbers or texts; got Python objects"),
        ({"x_train": np.zeros((3, 32, 32, 3))}, r"'x_train' must be a uint8 array \(N, H, W, 3\); got float64"),
        ({"fine_to_coarse": [0, 0, 3]}, r"'fine_to_coarse' row 2: label must lie in \[0, 2\); got 3"),
        ({"fine_to_coarse": [0]}, r"'fine_to_coarse' must have one label for each of 3"),
        ({"fine_to_coarse": 3}, r"'fine_to_coarse' must have one label for each of 3"),
        ({"fine_to_coarse": [0, 0, 0]}, r"part 'train' row 0: coarse label must be 0, as .* got 1"),
        ({"fine_names": [1, 2]}, r"'fine_names' must be a list of names"),
        ({"x_test": None}, r"has 'y_test' but no images of the part 'test'\.$"),
    ],
)
def test_wrong_arrays_of_an_npz_are_named(tmp_path, changes, complaint):
    with pytest.raises(ValueError, match=rf"cifar\.npz`.*{complaint}"):
        read_cifar(cifar_npz(tmp_path, **changes))


def test_parts_of_an_npz_have_one_name(tmp_path):
    train, val = (np.zeros((2, 4, 4, 3), dtype=np.uint8) for _ in range(2))
    np.savez(tmp_path / "a.npz", x_training=train, y_Train=[0, 1], x_valid=val, y_val=[1, 1], fine_names=["a", "b"])
    data = read_cifar(tmp_path / "a.npz")
    assert data.split.names == ("train", "val")
    assert data.targets.tolist() == [0, 1, 1, 1]

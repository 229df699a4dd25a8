"""CIFAR: the published folders and npz files, read as written or refused with the file and the row."""

import pickle

import numpy as np
import pytest

from shortlist.data.formats.images.cifar import read_cifar
from tests.data.datasets import parts_of
from tests.data.files.pickles import each_writer

FINE = ["beaver", "dolphin", "trout", "shark", "bus"]
COARSE = ["aquatic_mammals", "fish", "vehicles 1"]
FINE_TO_COARSE = [0, 0, 1, 1, 2]


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def batch(pixels, fine, coarse=True):
    """Rows as published: a row holds the red plane, then the green, then the blue."""
    planes = [pixels[..., channel].reshape(len(pixels), 1024) for channel in range(3)]
    content = {"data": np.concatenate(planes, axis=1), "filenames": [f"image_{i}.png" for i in range(len(pixels))]}
    if coarse:
        content |= {"fine_labels": fine, "coarse_labels": [FINE_TO_COARSE[label] for label in fine]}
    else:
        content |= {"labels": fine}
    return content | {"batch_label": "training batch 1 of 1"}


META = {"fine_label_names": FINE, "coarse_label_names": COARSE}


def write_cifar100(folder, write=pickle.dumps, **changes):
    folder.mkdir(exist_ok=True)
    contents = {
        "meta": META,
        "train": batch(images(6), [4, 0, 2, 3, 0, 1]),
        "test": batch(images(2, seed=1), [3, 4]),
    }
    for name, content in (contents | changes).items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else write(content))
    return folder


@each_writer
def test_the_published_folder_of_cifar_100_is_read_as_written(tmp_path, write):
    data = read_cifar(write_cifar100(tmp_path / "cifar-100-python", write))
    assert data.label_names == tuple(FINE)
    assert data.targets.tolist() == [4, 0, 2, 3, 0, 1, 3, 4]
    superclass = data.label_groups["superclass"]
    assert superclass.names == tuple(COARSE)
    assert superclass.index.tolist() == FINE_TO_COARSE
    assert parts_of(data) == (("train", "test"), [0] * 6 + [1] * 2)
    pixels = data.batch([7, 0, 5]).inputs
    assert pixels.shape == (3, 3, 32, 32)
    expected = np.concatenate([images(6), images(2, seed=1)])[[7, 0, 5]]
    assert np.array_equal(pixels.permute(0, 2, 3, 1).numpy(), expected)


def test_the_folder_around_is_enough_and_coarse_labels_are_a_choice(tmp_path):
    write_cifar100(tmp_path / "cifar-100-python")
    data = read_cifar(tmp_path, labels="coarse")
    assert data.label_names == tuple(COARSE)
    assert data.targets.tolist() == [2, 0, 1, 1, 0, 0, 1, 2]
    assert not data.label_groups
    with pytest.raises(ValueError, match="`labels` must be 'fine' or 'coarse'; got 'both'"):
        read_cifar(tmp_path, labels="both")


@each_writer
def test_the_published_folder_of_cifar_10_is_read_as_written(tmp_path, write):
    meta = {"num_cases_per_batch": 1, "label_names": FINE, "num_vis": 3072}
    (tmp_path / "batches.meta").write_bytes(write(meta))
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}").write_bytes(write(batch(images(1, number), [number - 1], coarse=False)))
    (tmp_path / "test_batch").write_bytes(write(batch(images(2, 6), [1, 0], coarse=False)))
    data = read_cifar(tmp_path)
    assert data.targets.tolist() == [0, 1, 2, 3, 4, 1, 0]
    assert data.split is not None
    assert data.split.counts().tolist() == [5, 2]
    assert not data.label_groups
    assert np.array_equal(data[2].input.permute(1, 2, 0).numpy(), images(1, 3)[0])
    with pytest.raises(ValueError, match="has no coarse labels, so `labels` must be 'fine'"):
        read_cifar(tmp_path, labels="coarse")
    (tmp_path / "data_batch_4").unlink()
    with pytest.raises(ValueError, match=r"data_batch_4` does not exist\."):
        read_cifar(tmp_path)


def test_pixels_stay_in_the_file(tmp_path):
    data = read_cifar(write_cifar100(tmp_path / "cifar"))
    held = data.inputs.pixels.parts[0]
    while isinstance(held, np.ndarray):
        held = held.base
    assert type(held).__name__ == "mmap"
    data.batch([0]).inputs.fill_(0)
    assert np.array_equal(data[0].input.permute(1, 2, 0).numpy(), images(6)[0])


@each_writer
def test_parts_without_rows_and_unused_labels_are_read(tmp_path, write):
    train = batch(images(1), [3])
    data = read_cifar(write_cifar100(tmp_path / "cifar", write, train=train, test=batch(images(0), [])))
    assert data.targets.tolist() == [3]
    assert data.label_groups["superclass"].index.tolist() == [-1, -1, -1, 1, -1]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train": {"fine_labels": []}}, r"train` has no 'data'\.$"),
        ({"train": [1, 2]}, r"train` must hold a dict; got list\.$"),
        (
            {"train": batch(images(2), [0, 1]) | {"fine_labels": [0]}},
            r"train`: 'fine_labels' .* 2 images; got shape \(1,\)",
        ),
        (
            {"train": batch(images(2), [0, 1]) | {"fine_labels": [0, 5]}},
            r"train`: .* row 1: label must lie in \[0, 5\); got 5",
        ),
        (
            {"test": batch(images(2), [0, 1]) | {"fine_labels": [-1, 0]}},
            r"test`: .* row 0: label must lie in .*; got -1",
        ),
        (
            {"test": batch(images(2), [0, 1]) | {"fine_labels": [0, "x"]}},
            r"row 1: a label must be an integer; got str",
        ),
        (
            {"test": batch(images(2), [0, 1]) | {"fine_labels": "ab"}},
            r"test`: 'fine_labels' must be integers; got str",
        ),
        (
            {"test": batch(images(1), [0]) | {"fine_labels": [2**62]}},
            r"test`: 'fine_labels' must be labels; got numbers above",
        ),
        (
            {"test": batch(images(2), [0, 1]) | {"coarse_labels": [0, 2]}},
            r"test` row 1: coarse label must be 0, .* got 2",
        ),
        (
            {"test": batch(images(2), [0, 1]) | {"coarse_labels": [0, 3]}},
            r"'coarse_labels' row 1: label must lie in \[0, 3\)",
        ),
        (
            {"test": batch(images(2), [0, 1]) | {"data": np.zeros((2, 9), np.uint8)}},
            r"'data' must be .*; got uint8 \(2, 9\)",
        ),
        ({"test": batch(images(2), [0, 1]) | {"data": np.zeros((2, 3072))}}, r"'data' must be .*; got float64"),
        ({"test": batch(images(2), [0, 1]) | {"data": [0]}}, r"test`: 'data' must be a uint8 array .*; got list"),
        ({"meta": {"fine_label_names": FINE}}, r"meta` has no 'coarse_label_names'"),
        ({"meta": META | {"fine_label_names": [1]}}, r"meta`: 'fine_label_names' must be a list of names"),
        ({"meta": META | {"fine_label_names": ["a", "b", "a"]}}, r"row 2: names must differ; got 'a' again"),
        ({"train": b""}, r"train` is empty or cannot be read"),
        ({"train": b"\x80\x04 no pickle"}, r"train` byte 2: the file ends early or is no pickle"),
    ],
)
def test_wrong_contents_are_named(tmp_path, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_cifar(write_cifar100(tmp_path / "cifar", **changes))


def write_npz(path, **changes):
    arrays = {
        "x_train": images(4),
        "y_train": np.array([4, 1, 2, 0], dtype=np.int16),
        "x_test": images(2, seed=1),
        "y_test": np.array([3, 3], dtype=np.int16),
        "fine_to_coarse": np.array(FINE_TO_COARSE, dtype=np.int8),
        "fine_names": np.array(FINE),
        "coarse_names": np.array(COARSE),
    } | changes
    np.savez_compressed(path, **{key: array for key, array in arrays.items() if array is not None})
    return path


def test_an_npz_is_read_as_written(tmp_path):
    data = read_cifar(write_npz(tmp_path / "cifar.npz"))
    assert data.label_names == tuple(FINE)
    assert data.targets.tolist() == [4, 1, 2, 0, 3, 3]
    assert data.label_groups["superclass"].index.tolist() == FINE_TO_COARSE
    assert not isinstance(data.inputs.pixels.parts[0], np.ndarray)  # It is read with the first batch.
    assert np.array_equal(data.batch([5, 1]).inputs[0].permute(1, 2, 0).numpy(), images(2, seed=1)[1])
    assert data.split is not None
    assert data.split.counts().tolist() == [4, 2]
    assert read_cifar(tmp_path / "cifar.npz", labels="coarse").targets.tolist() == [2, 0, 1, 0, 1, 1]


def test_an_npz_needs_no_names_and_may_have_coarse_labels_of_rows(tmp_path):
    changes = {"fine_names": None, "coarse_names": None, "fine_to_coarse": None}
    coarse = {"y_coarse_train": np.array([2, 0, 1, 0]), "y_coarse_test": np.array([1, 1])}
    data = read_cifar(write_npz(tmp_path / "a.npz", **changes, **coarse))
    assert data.label_names == ("0", "1", "2", "3", "4")
    assert data.label_groups["superclass"].index.tolist() == FINE_TO_COARSE
    del coarse["y_coarse_test"]
    write_npz(tmp_path / "half.npz", **changes, **coarse)
    assert read_cifar(tmp_path / "half.npz").label_groups["superclass"].index.tolist() == [0, 0, 1, -1, 2]
    with pytest.raises(ValueError, match=r"half\.npz` part 'test' row 0: fine label 3 has no coarse label\."):
        read_cifar(tmp_path / "half.npz", labels="coarse")
    keras = read_cifar(write_npz(tmp_path / "b.npz", **changes, y_train=np.array([[4], [1], [2], [0]])))
    assert keras.targets.tolist() == [4, 1, 2, 0, 3, 3]
    assert not keras.label_groups


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"y_train": None}, r"has no array 'y_train'"),
        ({"x_train": None}, r"has no array 'x_train'"),
        ({"y_train": np.array([0, 1, 2, 9])}, r"'y_train' row 3: label must lie in \[0, 5\); got 9"),
        ({"y_train": np.array([0, 1])}, r"'y_train' must have one label for each of 4 images; got shape \(2,\)"),
        ({"y_train": np.array([0.5] * 4)}, r"'y_train' must be integers; got float64"),
        ({"y_train": np.array([None] * 4)}, r"'y_train' must hold numbers or texts; got Python objects"),
        ({"x_train": np.zeros((4, 32, 32, 3))}, r"'x_train' must be a uint8 array \(N, H, W, 3\); got float64"),
        ({"fine_to_coarse": np.array([0, 0, 1, 1, 3])}, r"'fine_to_coarse' row 4: label must lie in \[0, 3\); got 3"),
        ({"fine_to_coarse": np.array([0])}, r"'fine_to_coarse' must have one label for each of 5"),
        ({"y_coarse_train": np.array([2, 0, 1, 1])}, r"part 'train' row 3: coarse label must be 0, as .* got 1"),
        ({"fine_names": np.array([1, 2])}, r"'fine_names' must be a list of names"),
    ],
)
def test_wrong_arrays_of_an_npz_are_named(tmp_path, changes, complaint):
    with pytest.raises(ValueError, match=rf"cifar\.npz`.*{complaint}"):
        read_cifar(write_npz(tmp_path / "cifar.npz", **changes))


def test_parts_of_an_npz_have_one_name_and_labels_need_images(tmp_path):
    pixels = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    arrays = {"x_training": pixels, "y_Train": [0, 1], "x_valid": pixels, "y_val": [1, 1], "fine_names": ["a", "b"]}
    np.savez(tmp_path / "a.npz", **arrays)
    data = read_cifar(tmp_path / "a.npz")
    assert data.split.names == ("train", "val")
    assert data.targets.tolist() == [0, 1, 1, 1]
    np.savez(tmp_path / "a.npz", **arrays, y_test=[0])
    with pytest.raises(ValueError, match=r"a\.npz` has 'y_test' but no images of the part 'test'\.$"):
        read_cifar(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x_train=pixels, y_train=[0, 1], fine_to_coarse=3)
    with pytest.raises(ValueError, match=r"'fine_to_coarse' must have one label for each of 2"):
        read_cifar(tmp_path / "a.npz")

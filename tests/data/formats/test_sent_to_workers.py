"""What is mapped goes to another process as the name of a file, not as its content."""

import pickle
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from shortlist.data.formats.arrays import read_arrays
from shortlist.data.formats.cifar import read_cifar
from shortlist.data.images import ImageArray

PIXELS = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8)
VALUES = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32)
ROWS = torch.tensor([63, 0, 40, 40, 7])


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


def mapped(folder, array, name="pixels.npy"):
    np.save(folder / name, array)
    return np.load(folder / name, mmap_mode="r")


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


def test_bfloat16_in_one_part_only_is_refused(tmp_path):
    tensors = {"X_train": torch.ones(2, 2).bfloat16(), "X_test": torch.ones(2, 2, dtype=torch.uint16)}
    tensors |= {"y_train": torch.tensor([0, 1]), "y_test": torch.tensor([0, 1])}
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"'X_test' must be bfloat16 exactly if 'X_train' is\.$"):
        read_arrays(tmp_path / "a.safetensors")


def python2_batch(pixels, labels):
    """A batch as published: protocol 2 of Python 2, in which the pixels stand as they are."""
    listed = b"]" + b"".join(b"K%ca" % label for label in labels)
    state = b"(K\x01" + b"K%cM\x00\x0c\x86" % len(pixels) + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"
    state += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", pixels.size)
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    data = b"U\x04data" + array + state + pixels.tobytes() + b"tbs"
    return b"\x80\x02}" + data + b"U\x0bfine_labels" + listed + b"sU\x0dcoarse_labels" + listed + b"s."


def test_pixels_of_cifar(tmp_path):
    pixels = np.random.default_rng(2).integers(0, 256, (64, 3072), dtype=np.uint8)
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": ["a"], "coarse_label_names": ["A"]}, protocol=2))
    (tmp_path / "train").write_bytes(python2_batch(pixels, [0] * 64))
    (tmp_path / "test").write_bytes(python2_batch(pixels[:3], [0] * 3))
    inputs = sent(read_cifar(tmp_path).inputs)
    assert torch.equal(inputs.batch(ROWS), torch.from_numpy(pixels[ROWS]).reshape(-1, 3, 32, 32))


def test_packed_pixels_of_cifar_are_read_again(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x_train=PIXELS, y_train=[0] * 64, fine_names=["a"])
    inputs = read_cifar(tmp_path / "a.npz").inputs
    inputs.batch(ROWS)
    sent(inputs)

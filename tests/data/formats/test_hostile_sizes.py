"""Small files that ask for much memory: refused in a sentence, or read in memory of their own size."""

import io
import re
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager

import h5py
import numpy as np
import pytest

from shortlist.data.formats.arff import read_arff
from shortlist.data.formats.arrays import read_arrays
from shortlist.data.formats.extreme_text import read_extreme_text
from shortlist.data.formats.images.cifar import read_cifar
from shortlist.data.formats.images.visual_genome import read_visual_genome
from tests.data.formats.samples import IMAGES, visual_genome


@contextmanager
def at_most(megabytes):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def header(shape, dtype="<f4"):
    text = io.BytesIO()
    np.lib.format.write_array_header_1_0(text, {"descr": dtype, "fortran_order": False, "shape": shape})
    return text.getvalue()


def write_npz(path, members, *, pack=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", pack) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    return path


def refuses(read, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught, at_most(16):
        read()
    assert str(caught.value).endswith(".")


def test_a_packed_array_is_not_unpacked_before_its_header_is_believed(tmp_path):
    zeros = bytes(2**25)
    path = write_npz(tmp_path / "a.npz", {"X": header((2, 2)) + zeros, "y": header((2,), "<i8") + bytes(16)})
    rule = f"'X' is too long: shape (2, 2) of float32 needs 16 bytes; got {2**25}."
    refuses(lambda: read_arrays(path), rule)
    path = write_npz(tmp_path / "b.npz", {"X": header((2, 3)) + bytes(20), "y": header((2,), "<i8") + bytes(16)})
    refuses(lambda: read_arrays(path), "'X' is cut short: shape (2, 3) of float32 needs 24 bytes; got 20.")


@pytest.mark.parametrize("pack", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": header((10**12, 0)), "y": header((10**12, 0), "<i8")}, "'X' must have at least one number in each row"),
        ({"X": header((2, 2), "<U0"), "y": header((2,), "<i8") + bytes(16)}, "'X' must hold numbers or texts"),
        ({"X": header((0, 10**9, 10**9, 10**9)), "y": header((0,), "<i8")}, "'X' must have at most 32 dimensions"),
        (
            {"X": header((1,) * 33) + bytes(4), "y": header((1,), "<i8") + bytes(8)},
            "'X' must have at most 32 dimensions",
        ),
        (
            {
                "X": header((1, 1)) + bytes(4),
                "y": header((1,), "<i8") + bytes(8),
                "fine_to_coarse": header((1,), "<i8") + struct.pack("<q", 10**15),
            },
            "'fine_to_coarse' must have at most 10000000 labels if they have no names; got 1000000000000001.",
        ),
    ],
)
def test_arrays_that_state_more_than_they_hold_are_refused(tmp_path, arrays, message, pack):
    path = write_npz(tmp_path / "a.npz", arrays, pack=pack)
    refuses(lambda: read_arrays(path), message)


def test_labels_of_cifar_without_names_are_few(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((1, 2, 2, 3), np.uint8), y_train=[2**31 - 1])
    refuses(lambda: read_cifar(tmp_path / "a.npz"), "must have at most 10000000 labels if they have no names")


def test_a_first_line_cannot_ask_for_all_the_names(tmp_path):
    (tmp_path / "a.txt").write_text("0 5 999999999999999999\n")
    rule = "a.txt` line 1 must have at most 10000000 labels if they have no names; got 999999999999999999."
    refuses(lambda: read_extreme_text(tmp_path / "a.txt"), rule)


def test_labels_that_rows_leave_out_but_have_are_bounded(tmp_path, monkeypatch):
    text = "@relation 'a: -C 2'\n@attribute sad {1,0}\n@attribute calm {0,1}\n@attribute x numeric\n@data\n"
    (tmp_path / "a.arff").write_text(text + "{2 1}\n" * 5)
    assert read_arff(tmp_path / "a.arff").label_counts().tolist() == [5, 0]
    monkeypatch.setenv("SHORTLIST_LIMITS", "entries=9")
    rule = "a.arff`: label 'sad' must not be declared with 1 first"
    refuses(lambda: read_arff(tmp_path / "a.arff"), rule)


def write_graphs(folder, **changes):
    """Two images with some arrays replaced; a shape stands for an array that was never written."""
    with h5py.File(visual_genome(folder, IMAGES[:2]) / "VG-SGG.h5", "a") as file:
        for key, array in changes.items():
            del file[key]
            if isinstance(array, tuple):
                file.create_dataset(key, array, "i4", chunks=True)
            else:
                file[key] = np.array(array, np.int32)


def test_arrays_of_a_graph_file_that_were_never_written_are_refused(tmp_path):
    write_graphs(tmp_path, relationships=(10**11, 2))
    rule = "relationships: must be stored completely; got 0 bytes for 200000000000 numbers."
    refuses(lambda: read_visual_genome(tmp_path), rule)


def test_pairs_of_very_many_boxes_are_refused_unless_related_ones_are_meant(tmp_path):
    ranges = {"img_to_first_box": [0, -1], "img_to_last_box": [59_999, -1]}
    ranges |= {"img_to_first_rel": [0, -1], "img_to_last_rel": [0, -1]}
    boxes = {"labels": [[1]] * 60_000, "boxes_1024": [[5, 5, 4, 4]] * 60_000}
    write_graphs(tmp_path, **ranges, **boxes, relationships=[[0, 1]], predicates=[[1]])
    rule = "VG-SGG.h5` has 3599940000 pairs of boxes, so `pairs` must be 'related'; got 'all'."
    refuses(lambda: read_visual_genome(tmp_path), rule)
    assert len(read_visual_genome(tmp_path, pairs="related")) == 1

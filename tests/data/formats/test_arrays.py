"""Files of arrays: features mapped, labels in every form, and files that are not what they say."""

import io
import json
import math
import random
import struct
import zipfile
from functools import partial

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file

from shortlist.data.files.array_files import open_arrays
from shortlist.data.formats.arrays import read_arrays
from shortlist.errors import InputError
from tests.data.datasets import parts_of
from tests.data.refusals import refuses_to_read

refuses = partial(refuses_to_read, read_arrays)

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([2, 0, 1, 1])


def save(folder, *, pack=False, **arrays):
    path = folder / "data.npz"
    (np.savez_compressed if pack else np.savez)(path, **arrays)
    return path


@pytest.mark.parametrize("kind", ["npz", "packed", "npy", "folder", "safetensors"])
def test_every_kind_of_file_gives_the_same_dataset(tmp_path, kind):
    split = np.array([0, 0, 1, 2], dtype=np.uint8)
    if kind in ("npz", "packed"):
        path = save(tmp_path, pack=kind == "packed", features=X, labels=Y, split=split, label_names=["a b", "é", '"c"'])
    elif kind == "safetensors":
        path = tmp_path / "data.safetensors"
        tensors = {"features": torch.from_numpy(X), "labels": torch.from_numpy(Y), "split": torch.from_numpy(split)}
        save_file(tensors, path, metadata={"label_names": json.dumps(["a b", "é", '"c"'])})
    else:
        for name, array in {"features": X, "labels": Y, "split": split, "label_names": ["a b", "é", '"c"']}.items():
            np.save(tmp_path / f"{name}.npy", array)
        path = tmp_path / "features.npy" if kind == "npy" else tmp_path
    data = read_arrays(path)
    assert torch.equal(data.inputs.batch(torch.tensor([3, 0])), torch.from_numpy(X[[3, 0]]))
    assert data.targets.tolist() == Y.tolist()
    assert data.label_names == ("a b", "é", '"c"')
    assert parts_of(data) == (("train", "val", "test"), [0, 0, 1, 2])
    assert isinstance(data.inputs.array, np.memmap) == (kind != "packed")


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors"])
def test_features_stay_in_the_file(tmp_path, kind):
    values = np.full((50, 4), 1234.5, dtype=np.float32)
    if kind == "npz":
        path = save(tmp_path, y=np.zeros(50, dtype=np.int64), F=values)
    elif kind == "npy":
        path = tmp_path / "F.npy"
        np.save(path, values)
        np.save(tmp_path / "y.npy", np.zeros(50, dtype=np.int64))
    else:
        path = tmp_path / "data.safetensors"
        save_file({"F": torch.from_numpy(values), "y": torch.zeros(50, dtype=torch.int64)}, path)
    data = read_arrays(path)
    content = path.read_bytes()
    with path.open("r+b") as file:  # In place, for a new file would not be the one that is mapped.
        file.seek(content.index(values.tobytes()))
        file.write(np.float32(-7).tobytes())
    assert data.inputs.batch(torch.tensor([0]))[0, 0] == -7


def test_a_file_larger_than_memory_opens(tmp_path):
    path = tmp_path / "F.npy"
    with path.open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (10**5, 50_000)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 10**10)
    np.save(tmp_path / "y.npy", np.zeros(10**5, dtype=np.uint8))
    data = read_arrays(path)
    assert len(data) == 10**5
    assert data.inputs.batch(torch.tensor([10**5 - 1])).shape == (1, 50_000)


def test_fortran_order_empty_arrays_and_half_precision_are_mapped(tmp_path):
    path = save(tmp_path, X=np.asfortranarray(X.astype(np.float16)), y=Y)
    assert torch.equal(read_arrays(path).inputs.batch(torch.tensor([2])), torch.from_numpy(X[2:3]).half())
    none = read_arrays(save(tmp_path, X=X[:0], y=Y[:0]))
    assert (len(none), none.num_labels) == (0, 0)
    assert len(read_arrays(save(tmp_path, pack=True, X=X[:0], y=Y[:0], n_labels=3)).label_names) == 3


def test_bfloat16_is_read_from_safetensors(tmp_path):
    path = tmp_path / "data.safetensors"
    save_file({"X": torch.from_numpy(X).bfloat16(), "Y": torch.eye(4, 3).bfloat16()}, path)
    data = read_arrays(path)
    assert data.inputs.batch(torch.tensor([1])).equal(torch.from_numpy(X[1:2]).bfloat16())
    assert data.targets.to_dense().equal(torch.eye(4, 3))


@pytest.mark.parametrize("pack", [False, True])
def test_parts_make_the_split_and_superclasses_are_read(tmp_path, pack):
    path = save(
        tmp_path,
        pack=pack,
        F_train=X.astype(np.float16),
        F_test=X[:2].astype(np.float16) + 100,
        y_train=Y.astype(np.int16),
        y_test=Y[:2].astype(np.int16),
        id_train=[5, 6, 7, 8],
        id_test=[5, 10],
        fine_to_coarse=np.array([1, 0, 1], dtype=np.int8),
        fine_names=["a", "b", "c"],
        coarse_names=["low", "high"],
    )
    data = read_arrays(path, groups=["id"])
    assert parts_of(data) == (("train", "test"), [0, 0, 0, 0, 1, 1])
    assert data.inputs.batch(torch.tensor([5, 0, 4])).tolist() == [[103, 104, 105], [0, 1, 2], [100, 101, 102]]
    assert data.part("test").inputs.batch(torch.tensor([1])).tolist() == [[103, 104, 105]]
    assert data.targets.tolist() == [2, 0, 1, 1, 2, 0]
    superclass = data.label_groups["superclass"]
    assert (superclass.names, superclass.index.tolist()) == (("low", "high"), [1, 0, 1])
    assert data.row_groups["id"].names == ("5", "6", "7", "8", "10")


def test_pixels_become_images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    data = read_arrays(save(tmp_path, x_train=pixels[:2], y_train=[0, 1], x_test=pixels[2:], y_test=[1]))
    assert data.inputs.kind == "images"
    assert np.array_equal(data.inputs.batch(torch.tensor([2]))[0].numpy(), pixels[2].transpose(2, 0, 1))


HOT = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]])
FORMS = {
    "bool": {"L": HOT.astype(bool)},
    "float": {"targets": HOT.astype(np.float64)},
    "small integers": {"Y": HOT.astype(np.int8)},
    "lists": {"Y": np.array([[0, -1], [2, 1], [-1, -1], [2, -1]]), "n_labels": 3},
    "sparse": {"Y_indptr": np.array([0, 1, 3, 3, 4], np.int32), "Y_indices": np.array([0, 2, 1, 2], np.int16)},
    "sparse with values": {
        "Y_indptr": [0, 2, 4, 4, 5],
        "Y_indices": [0, 1, 2, 1, 2],
        "Y_data": [1, 0, 1, 1, 1],
        "Y_shape": [4, 3],
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_sets_of_labels_in_every_form(tmp_path, form):
    data = read_arrays(save(tmp_path, X=X, **FORMS[form]))
    assert data.targets.layout == torch.sparse_csr
    assert np.array_equal(data.targets.to_dense().numpy(), HOT)
    assert data.label_names == ("0", "1", "2")


def test_unknown_labels_and_other_values_for_them(tmp_path):
    voc = np.array([[1, -1, 0], [-1, 1, -1], [-1, -1, -1], [0, 1, 1]], dtype=np.int8)
    path = save(tmp_path, X=X, L=voc)
    assert read_arrays(path).targets.to_dense().tolist() == voc.tolist()
    want = [[1, 0, -1], [0, 1, 0], [0, 0, 0], [-1, 1, 1]]
    assert read_arrays(path, hot_values=(1, -1, 0)).targets.to_dense().tolist() == want
    refuses(path, "'L' row 0: label 2 must be one of `hot_values` 1, -1; got 0", hot_values=(1, -1))
    path = save(tmp_path, X=X, Y=HOT)
    assert np.array_equal(read_arrays(path, hot_values=(1, 0)).targets.to_dense().numpy(), HOT)
    refuses(path, "`Y` row 0: label 0 must not occur twice. If `Y` is a multi-hot, say so with `hot_values`.")
    with pytest.raises(ValueError, match="`hot_values` must be present, absent and optionally unknown"):
        read_arrays(path, hot_values=(1,))


def test_names_of_classes_are_labels_too(tmp_path):
    data = read_arrays(save(tmp_path, X=X, y=["oak", "daisy", "oak", "ash"]))
    assert (data.label_names, data.targets.tolist()) == (("ash", "daisy", "oak"), [2, 1, 2, 0])
    data = read_arrays(save(tmp_path, X=X, y=np.array([b"b", b"a", b"b", b"b"]), label_names=["b", "a", "c"]))
    assert data.targets.tolist() == [0, 1, 0, 0]
    refuses(
        save(tmp_path, X=X, y=["a", "b", "d", "a"], label_names=["a", "b"]),
        "'y' row 2: 'd' must be one of the label names",
    )


def test_sparse_features_are_read(tmp_path):
    arrays = {
        "X_indptr": [0, 1, 1, 3],
        "X_indices": [1, 0, 4],
        "X_data": np.array([1, 2, 3], np.uint8),
        "X_shape": [3, 5],
    }
    data = read_arrays(save(tmp_path, y=[0, 1, 0], **arrays))
    batch = data.inputs.batch(torch.tensor([2, 0]))
    assert batch.dtype == torch.float32
    assert batch.to_dense().tolist() == [[2, 0, 0, 0, 3], [0, 1, 0, 0, 0]]
    for key, value, message in (
        ("X_indices", [1, 0, 5], "'X_indices' row 2: column 5 must lie in [0, 5)"),
        ("X_indptr", [0, 2, 1, 3], "'X_indptr' must rise from 0 to 3; got 4 numbers from 0 to 3"),
        ("X_data", [1, 2], "'X_data' must have a value for each of 3 columns; got shape (2,)"),
        ("X_shape", [4, 5], "'X_shape' must be 3 rows and a number of columns; got [4, 5]"),
        ("X_indices", [0.5, 1, 2], "'X_indices' must be integers in 1 dimension"),
    ):
        refuses(save(tmp_path, y=[0, 1, 0], **{**arrays, key: value}), message)


@pytest.mark.parametrize(
    ("split", "more", "parts"),
    [
        ([0, 1, 1, 0], {}, (("train", "test"), [0, 1, 1, 0])),
        ([0, 0, 0, 0], {}, (("train",), [0, 0, 0, 0])),
        ([0, 2, 1, -1], {}, (("train", "val", "test"), [0, 2, 1, -1])),
        ([0, 1, 1, 0], {"split_names": ["train", "val"]}, (("train", "val"), [0, 1, 1, 0])),
        (["test", "dev", "train", "extra"], {}, (("train", "val", "test", "extra"), [2, 1, 0, 3])),
    ],
)
def test_the_split_by_number_and_by_name(tmp_path, split, more, parts):
    assert parts_of(read_arrays(save(tmp_path, X=X, y=Y, split=split, **more))) == parts
    if "split_names" in more:
        assert parts_of(read_arrays(save(tmp_path, X=X, y=Y, split=split), **more)) == parts


SPARSE = {"X": X, "Y_indptr": [0, 1, 1, 1, 2]}
PARTS = {"X_train": X, "X_test": X, "y_train": Y, "y_test": Y}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": Y}, ": has no features under 'features' or 'X' or 'F' or 'x'; `features` can name the key: it has 'y'"),
        ({"X": X}, ": has no labels under 'labels' or 'targets' or 'Y' or 'L' or 'y'"),
        ({"X": X[0], "y": Y}, "'X' must have at least 2 dimensions, rows first; got shape (3,)"),
        ({"X": X, "y": Y[:3]}, "'y' must have length 4 like the features; got shape (3,)"),
        ({"X": X, "y": Y, "split": [0]}, "'split' must have length 4 like the features; got shape (1,)"),
        ({"X": X, "y": Y, "split": [0, 1, 3, 0]}, "'split' row 2: 3 must lie in [-1, 3)"),
        ({"X": X, "y": Y, "split": [0.0] * 4}, "'split' must hold integers or names; got float64"),
        ({"X": X, "y": [0, 1, -1, 0]}, "`y` row 2: label -1 must lie in [0, 2)"),
        ({"X": X, "y": [0, 1, 5, 0], "n_labels": 3}, "`y` row 2: label 5 must lie in [0, 3)"),
        ({"X": X, "y": Y, "n_labels": [1, 2]}, "'n_labels' must be one integer"),
        ({"X": X, "y": [0, 1, 10**15, 0]}, "'y' must have at most 10000000 labels if they have no names; got 10000000"),
        ({"X": X, "y": Y, "n_labels": 2**62}, "'n_labels' must have at most 10000000 labels"),
        ({"X": X, "Y_indptr": [0] * 5, "Y_indices": Y[:0], "Y_shape": [4, -1]}, "'Y_shape' must be 2 integers"),
        ({"X": X, "y": [0.5] * 4}, "'y' must hold integers or names, the class of each row; got float64"),
        ({"X": X, "y": X[:, :, None]}, "'y' must have 1 dimension (classes) or 2 (sets); got shape (4, 3, 1)"),
        ({"X": X, "Y": X}, "'Y' row 0: label 2 must be 1, 0 or negative (unknown); got 2.0"),
        ({"X": X, "Y": HOT > 0, "label_names": ["a"]}, "'Y' must have a column for each of 1 labels; got shape (4, 3)"),
        ({"X": X, "y": Y, "label_names": ["a", "b", "a"]}, "`label_names` must differ; positions 0 and 2 are both 'a'"),
        ({"X": X, "y": Y, "label_names": [1, 2, 3]}, "'label_names' must be texts in 1 dimension"),
        ({"X": X, "y": Y, "fine_to_coarse": [0, 1]}, "'fine_to_coarse' must be 3 integers, one per label"),
        ({"X": X.astype(">f4"), "y": Y}, "'X' must hold numbers in the byte order of this machine; got >f4"),
        ({"X": X.astype(str), "y": Y}, "'X' must hold numbers"),
        ({"X": X.astype(complex), "y": Y}, "'X' must hold numbers or texts; got complex128"),
        ({"X": X, "Y_indptr": [0, 1, 1, 1], "Y_indices": [0]}, "'Y_indptr' must have length 5 like the features"),
        (SPARSE | {"Y_indices": [0, 7], "n_labels": 3}, "'Y_indices' row 3: label 7 must lie in [0, 3)"),
        ({"X": X, "Y_indptr": [0, 0, 0, 0, 0]}, ": has no array 'Y_indices'; it has 'X', 'Y_indptr'"),
        (PARTS | {"X_test": X[:, :2]}, "'X_test' must have rows like 'X_train', (3,) of"),
        (PARTS | {"y_val": Y}, "'y_train' must have the parts of the features, train, test; got train, val, test"),
        (PARTS | {"y_test": Y[1:]}, "'y_test' must have length 4 like the features"),
        ({"X": X, "y_train": Y}, "'y_train' must have the parts of the features, no parts; got train"),
    ],
)
@pytest.mark.parametrize("pack", [False, True])
def test_wrong_arrays_are_refused_with_their_key(tmp_path, arrays, message, pack):
    refuses(save(tmp_path, pack=pack, **arrays), message)


def test_keys_and_options_that_fit_nothing_are_refused(tmp_path):
    path = save(tmp_path, X=X, y=Y)
    refuses(path, ": has no features under 'Z'; `features` can name the key: it has 'X', 'y'", features="Z")
    refuses(path, ": has no array 'split' for `split_names`", split_names=["train"])
    refuses(path, ": has no array 'source'", groups=["source"])
    refuses(path, "'X' must hold integers or names in 1 dimension", groups=["X"])
    refuses(path, "`y` row 0: label 2 must lie in [0, 2)", label_names=["a", "b"])


class Malicious:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize("pack", [False, True])
def test_objects_are_never_unpickled(tmp_path, pack):
    objects = np.array([Malicious()] * 4, dtype=object)
    path = save(tmp_path, pack=pack, X=X, y=objects)
    refuses(path, "'y' must hold numbers or texts; got Python objects, which are never unpickled")
    np.save(tmp_path / "F.npy", objects, allow_pickle=True)
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(ValueError, match=r"F.npy` must hold numbers or texts; got Python objects"):
        read_arrays(tmp_path / "F.npy")


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = save(tmp_path, X=np.zeros((100, 30)), y=np.zeros(100, dtype=int))
    whole = path.read_bytes()
    for content in (b"", whole[:500], whole[:-30], b"not a zip at all"):
        path.write_bytes(content)
        refuses(path, "is not a complete `.npz` file: ")
    path = save(tmp_path, pack=True, X=np.random.default_rng(0).random((100, 30)), y=np.zeros(100, dtype=int))
    content = bytearray(path.read_bytes())
    content[3000:3100] = bytes(100)
    path.write_bytes(content)
    refuses(path, "'X' is damaged: ")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"hello, this is text")
        archive.writestr("y.npy", b"")
    refuses(path, "'X' is not a numpy array: ")
    (tmp_path / "a.pt").write_bytes(b"")
    refuses(tmp_path / "a.pt", "must end in .npz, .npy or .safetensors")
    (tmp_path / "empty").mkdir()
    refuses(tmp_path / "empty", "holds no `.npy` files")


@pytest.mark.parametrize("pack", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_is_shorter_than_its_shape_is_refused(tmp_path, pack):
    buffer = io.BytesIO()
    np.save(buffer, X)
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", pack) as archive:
        archive.writestr("X.npy", buffer.getvalue()[:-4])
        archive.writestr("y.npy", buffer.getvalue())
    refuses(path, "'X' is cut short: shape (4, 3) of float32 needs 48 bytes; got 44")


def test_headers_and_texts_that_are_none_are_refused(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, X)
    (tmp_path / "X.npy").write_bytes(buffer.getvalue().replace(b"(4, 3)", b"(4, 3("))
    np.save(tmp_path / "y.npy", Y)
    refuses(tmp_path / "X.npy", "X.npy` is not a numpy array: ")
    names = np.array([2**31, 1, 2], dtype=np.uint32).view("<U1")
    refuses(save(tmp_path, X=X, y=Y, label_names=names), "'label_names' must be text, in UTF-8 if it is bytes")
    refuses(save(tmp_path, X=X, y=Y, label_names=np.array([b"\xff", b"a", b"b"])), "'label_names' must be text")


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def floats(*shape, at, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": at}


TWICE = {name: floats(2, at=[0, 8]) for name in "XY"}


SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I8": 1, "U8": 1, "BOOL": 1}
WRONG = [None, [], {}, "s", 1.5, [1], ["1", "2"], [1, 2, 3], [0, True], -1, 2**63, [2**32, 2**32]]


def random_safetensors(draw: random.Random) -> bytes:
    """A file with up to four arrays, aligned or not, of which most have an entry with a fault."""
    header, end = {}, 0
    for name in "abcd"[: draw.randint(0, 4)]:
        kind, shape = draw.choice([*SIZES]), draw.choices(range(4), k=draw.randint(0, 3))
        size = SIZES[kind] * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    if header and draw.random() < 0.7:
        entry = header[draw.choice([*header])]
        fault = draw.randrange(4)
        if fault == 0:
            entry["data_offsets"][draw.randrange(2)] += draw.choice([-8, -1, 1, 4])
        elif fault == 1:
            entry["shape"] = [*entry["shape"], draw.choice([0, 1, 2, -1, 2**63])]
        elif fault == 2:
            del entry[draw.choice([*entry])]
        else:
            entry[draw.choice([*entry])] = draw.choice(WRONG)
    text = json.dumps(header).encode() + b" " * draw.randrange(8)
    return safetensors(text, bytes(draw.choices([0, 1], k=max(0, end + draw.choice([0, 0, 0, 1, -1, 8])))))


def test_safetensors_are_read_as_by_the_official_library_and_refused_if_it_refuses_them(tmp_path):
    """It does not ask for alignment, but arrays must follow each other and fill the file."""
    draw, path, read, refused = random.Random(0), tmp_path / "a.safetensors", 0, 0
    for _ in range(400):
        content = random_safetensors(draw)
        path.write_bytes(content)
        try:
            expected = load(content)
        except (SafetensorError, TypeError):  # of torch, for a size of 2**63 beside one of 0
            refused += 1
            with pytest.raises(InputError):
                _ = [open_arrays(path).array(name) for name in open_arrays(path).openers]
            continue
        read += 1
        found = open_arrays(path)
        assert {*found.openers} == {*expected}
        for name, tensor in expected.items():
            array = found.array(name)
            assert torch.equal(torch.tensor(array) if isinstance(array, np.ndarray) else array, tensor), content
    assert min(read, refused) > 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a complete safetensors file"),
        (struct.pack("<Q", 10**6) + b"{}", "is not a complete safetensors file: its header does not fit into 10 bytes"),
        (safetensors(b"{nothing"), "its header is not JSON"),
        (safetensors([1]), "its header is not an object with keys"),
        (safetensors({"X": 1}), "'X' must have dtype, shape and data_offsets in the header; got 1"),
        (safetensors({"X": floats(1, 1, at=[0, 1], dtype="F8_E4M3")}), "'X' must have one of the types"),
        (safetensors({"X": floats(2, 2, at=[0, 8])}), "'X': shape (2, 2) of F32 does not match"),
        (safetensors({"X": floats(-1, -1, at=[0, 4])}), "'X': shape (-1, -1) of F32"),
        # An entry without offsets must not hide that others overlap.
        (safetensors(TWICE | {"Z": {}}), "'Z' must have dtype, shape and data_offsets"),
        (safetensors({"X": floats(1, 2, at=[0, 8])}, b"1234"), "'X' is cut short"),
        (safetensors(TWICE, bytes(8)), "'Y' must begin where the array before it ends, at 8; got 0"),
        (safetensors({"X": floats(1, at=[4, 8])}, bytes(8)), "'X' must begin where the array before it ends, at 0; g"),
        (safetensors({"X": floats(1, at=[0, 4])}, bytes(8)), "must end with its last array, after 4 bytes of data; g"),
        (safetensors({"__metadata__": {"a": 1}}), "'__metadata__' must hold texts by name"),
    ],
)
def test_wrong_safetensors_are_refused(tmp_path, content, message):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    refuses(path, message)


def test_bfloat16_in_one_part_only_is_refused(tmp_path):
    tensors = {"X_train": torch.ones(2, 2).bfloat16(), "X_test": torch.ones(2, 2, dtype=torch.uint16)}
    tensors |= {"y_train": torch.tensor([0, 1]), "y_test": torch.tensor([0, 1])}
    save_file(tensors, tmp_path / "a.safetensors")
    refuses(tmp_path / "a.safetensors", "'X_test' must be bfloat16 exactly if 'X_train' is.")


def test_names_in_metadata_must_be_a_list_in_json(tmp_path):
    path = tmp_path / "a.safetensors"
    for note in ("rose, daisy", '{"a": 1}', "[1]"):
        save_file(
            {"X": torch.zeros(2, 2), "y": torch.zeros(2, dtype=torch.int64)}, path, metadata={"label_names": note}
        )
        refuses(path, "'label_names' must be a JSON list")


def test_arrays_in_a_zip_are_found_behind_long_local_headers(tmp_path):
    path = tmp_path / "a.npz"
    buffer = io.BytesIO()
    np.save(buffer, X)
    info = zipfile.ZipInfo("X.npy")
    info.extra = struct.pack("<HH", 0x7777, 33) + bytes(33)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, buffer.getvalue())
    assert np.array_equal(np.asarray(open_arrays(path).array("X")), X)


@pytest.mark.parametrize(
    ("labels", "more"),
    [
        ([[0, 1], [1, 0], [1, 0], [0, 1]], {}),
        ([[0, 1], [1, 0], [1, 0], [0, 1]], {"n_labels": 2}),
        ([[0, 1], [1, 0], [1, 0], [0, 1]], {"label_names": ["a", "b"]}),
        ([[1, -1], [0, -1], [0, 1], [-1, -1]], {}),
        ([[0], [1], [1], [0]], {}),
    ],
)
def test_integers_that_are_lists_as_well_as_a_multi_hot_are_refused(tmp_path, labels, more):
    path = save(tmp_path, X=X, Y=np.array(labels, dtype=np.int64), **more)
    refuses(path, "'Y' could be a multi-hot or lists of labels, being int64 with values 0, 1 and -1 only")
    hot = read_arrays(path, hot_values=(1, 0, -1))
    assert hot.targets.to_dense().tolist() == labels
    listed = read_arrays(path, hot_values=()).targets.to_dense()
    assert listed.tolist() == [[float(label in row) for label in range(2)] for row in labels]


def test_lists_that_are_no_multi_hot_need_no_word(tmp_path):
    labels = np.array([[0, 1], [1, -1], [1, 0], [-1, -1]])
    for more in ({"n_labels": 3}, {"label_names": ["a", "b", "c"]}):
        data = read_arrays(save(tmp_path, X=X, Y=labels, **more))
        assert data.targets.to_dense().tolist() == [[1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    small = labels.astype(np.int16)
    assert read_arrays(save(tmp_path, X=X, Y=small), hot_values=()).label_counts().tolist() == [2, 3]
    refuses(
        save(tmp_path, X=X, Y=X[:, :2]),
        "'Y' must hold integers, since `hot_values` says that they are lists",
        hot_values=(),
    )
    with pytest.raises(ValueError, match=r"`hot_values` must be present, absent .* all different"):
        read_arrays(tmp_path / "data.npz", hot_values=(1, 1))


def test_parts_have_one_name_however_they_are_spelled(tmp_path):
    path = save(tmp_path, X=X, y=Y, split=["Train", "test", "train", "Validation"])
    assert parts_of(read_arrays(path)) == (("train", "val", "test"), [0, 2, 0, 1])
    path = save(tmp_path, X=X, y=Y, split=[0, 1, 0, 0])
    assert parts_of(read_arrays(path, split_names=["Training", "TEST"])) == (("train", "test"), [0, 1, 0, 0])
    refuses(path, "`split_names` must name different parts; got val, dev", split_names=["val", "dev"])
    parts = {"X_Training": X[:3], "X_tst": X[3:], "y_train": Y[:3], "y_TEST": Y[3:], "who_trn": [1, 2, 1]}
    data = read_arrays(save(tmp_path, **parts, who_test=[2]), groups=["who"])
    assert parts_of(data) == (("train", "test"), [0, 0, 0, 1])
    assert data.row_groups["who"].index.tolist() == [0, 1, 0, 1]
    assert data.targets.tolist() == Y.tolist()
    refuses(save(tmp_path, **parts, X_test=X), "'X_tst' and 'X_test' both are the part 'test'")


def test_no_labels_at_all_may_be_stated_and_a_wrong_number_of_rows_is_refused(tmp_path):
    path = save(tmp_path, X=X, Y=np.zeros((4, 2), bool), n_labels=0)
    refuses(path, "'Y' must have a column for each of 0 labels; got shape (4, 2)")
    refuses(
        save(tmp_path, X=X, Y_indptr=[0] * 5, Y_indices=Y[:0], Y_shape=[7, 3]),
        "'Y_shape' must be 4 rows and a number of labels; got [7, 3]",
    )

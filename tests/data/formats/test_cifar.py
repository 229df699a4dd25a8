"""CIFAR: the published folders and npz files, and pickles that try something else."""

import copyreg
import io
import os
import pickle
import random
import struct
import sys
import zipfile

import numpy as np
import pytest

from shortlist.data.formats.cifar import read_cifar
from shortlist.data.formats.restricted_pickle import read_plain_pickle

FINE = ["beaver", "dolphin", "trout", "shark", "bus"]
COARSE = ["aquatic_mammals", "fish", "vehicles 1"]
FINE_TO_COARSE = [0, 0, 1, 1, 2]


class Python2:
    """Writes pickles as Python 2 did: protocol 0 or 2, strings of bytes, numpy 1."""

    def __init__(self, protocol):
        self.protocol = protocol

    def dumps(self, value):
        return (b"\x80\x02" if self.protocol == 2 else b"") + self._write(value) + b"."

    def _write(self, value):
        binary = self.protocol == 2
        if isinstance(value, dict):
            items = b"".join(self._write(key) + self._write(item) + b"s" for key, item in value.items())
            return (b"}" if binary else b"(d") + items
        if isinstance(value, list):
            items = b"".join(self._write(item) + b"a" for item in value)
            return (b"]" if binary else b"(l") + items
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self._write, value)) + b"t"
        if value is None:
            return b"N"
        if isinstance(value, bool):
            return (b"\x88" if value else b"\x89") if binary else (b"I01\n" if value else b"I00\n")
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value) if binary else b"I%d\n" % value
        if isinstance(value, bytes):
            return b"T" + struct.pack("<i", len(value)) + value if binary else b"S" + repr(value)[1:].encode() + b"\n"
        assert isinstance(value, np.ndarray)
        dtype = b"cnumpy\ndtype\n" + self._write((value.dtype.str[1:].encode(), 0, 1)) + b"R"
        dtype += self._write((3, value.dtype.str[:1].encode(), None, None, None, -1, -1, 0)) + b"b"
        state = b"(" + self._write(1) + self._write(value.shape) + dtype + self._write(False)
        array = (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + self._write((0,)) + self._write(b"b") + b"tR"
        )
        return array + state + self._write(value.tobytes()) + b"tb"


def as_bytes(value):
    """The same with strings of bytes, as Python 2 has them."""
    if isinstance(value, dict):
        return {as_bytes(key): as_bytes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_bytes(item) for item in value]
    return value.encode() if isinstance(value, str) else value


WRITERS = {f"python 3, protocol {protocol}": lambda v, p=protocol: pickle.dumps(v, protocol=p) for protocol in range(6)}
WRITERS |= {
    f"python 2, protocol {protocol}": lambda v, p=protocol: Python2(p).dumps(as_bytes(v)) for protocol in (0, 2)
}
WRITERS |= {
    "numpy 1": lambda v: pickle.dumps(v, protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
}
each_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


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
    assert data.split is not None
    assert data.split.names == ("train", "test")
    assert data.split.index.tolist() == [0] * 6 + [1] * 2
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
    with pytest.raises(ValueError, match=r"data_batch_4` is not there\."):
        read_cifar(tmp_path)


def test_pixels_stay_in_the_file(tmp_path):
    data = read_cifar(write_cifar100(tmp_path / "cifar"))
    held = data.inputs.parts[0]
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
            r"row 1: a label must be a whole number; got str",
        ),
        (
            {"test": batch(images(2), [0, 1]) | {"fine_labels": "ab"}},
            r"test`: 'fine_labels' must be whole numbers; got str",
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
        ({"meta": META | {"fine_label_names": ["a", "b", "a"]}}, r"row 2: a name must not come twice; got 'a'"),
        ({"train": b""}, r"train` is empty or cannot be read"),
        ({"train": b"\x80\x04 no pickle"}, r"train` byte 2: .* is not one of plain data"),
    ],
)
def test_wrong_contents_are_named(tmp_path, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_cifar(write_cifar100(tmp_path / "cifar", **changes))


def test_other_places_are_refused(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path / "nowhere.npz"):
        with pytest.raises(ValueError, match=r"nowhere.*` is not there\."):
            read_cifar(path)
    with pytest.raises(ValueError, match="must be an npz file, or a folder with `meta`"):
        read_cifar(tmp_path)


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
    assert data.inputs.parts[0].pixels is None
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
    with pytest.raises(ValueError, match=r"half\.npz`: part 'test' row 0: fine label 3 has no coarse label\."):
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
        ({"y_train": np.array([0.5] * 4)}, r"'y_train' must be whole numbers; got float64"),
        ({"y_train": np.array([None] * 4)}, r"array 'y_train' cannot be read: .* plain numbers"),
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


def test_a_damaged_npz_is_named(tmp_path):
    path = write_npz(tmp_path / "cifar.npz")
    whole = path.read_bytes()
    for content in (b"", b"no zip", whole[: len(whole) // 2], whole[-100:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cifar\.npz` is not an npz file"):
            read_cifar(path)
    place = whole.index(b"y_train.npy") + 60
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
    with pytest.raises(ValueError, match=r"cifar\.npz`: array 'y_train' cannot be read"):
        read_cifar(path)


def npy(shape, content, descr="|u1"):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue() + content


@pytest.mark.parametrize(
    "member",
    [
        npy((10**15,), b"1234"),
        npy((4,), b"123"),
        npy((4,), b"12345"),
        npy((4,), b"1234")[:20],
        b"",
        b"\x93NUMPY\x01\x00\x04\x00{(4,",
    ],
    ids=["huge", "short", "long", "cut", "empty", "header"],
)
def test_an_npz_member_must_hold_what_it_promises(tmp_path, member):
    path = write_npz(tmp_path / "cifar.npz", y_train=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y_train.npy", member)
    with pytest.raises(ValueError, match=r"cifar\.npz`: array 'y_train' cannot be read: [^\n]*\.$"):
        read_cifar(path)


class Calls:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class Persistent(pickle.Pickler):
    def persistent_id(self, obj):
        return "an id" if obj == "outside" else None


def persistent(protocol):
    file = io.BytesIO()
    Persistent(file, protocol=protocol).dump({"data": "outside"})
    return file.getvalue()


def array_pickle(
    dtype=b"u1", shape=b"K\x04\x85", content=b"C\x04abcd", state=b"NNN", name=b"numpy\nndarray", order=b"|"
):
    """A pickle of one array by hand, so that each part can be wrong."""
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(c" + name + b"\nK\x00\x85C\x01btR"
    kind = b"cnumpy\ndtype\n(U" + bytes([len(dtype)]) + dtype + b"\x89\x88tR(K\x03U" + bytes([len(order)]) + order
    return (
        b"\x80\x03"
        + empty
        + b"(K\x01"
        + shape
        + kind
        + state
        + b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + content
        + b"tb."
    )


def marker():
    return os.environ["SHORTLIST_TEST_MARKER"]


ATTACKS = {
    "os.mkdir": lambda: pickle.dumps({"data": Calls(os.mkdir, marker())}),
    "os.system, protocol 0": lambda: pickle.dumps(Calls(os.system, f"mkdir {marker()}"), protocol=0),
    "eval": lambda: pickle.dumps([Calls(eval, f"__import__('os').mkdir({marker()!r})")]),
    "exec by its old name": lambda: b"c__builtin__\nexec\n(S'1'\ntR.",
    "getattr": lambda: pickle.dumps(Calls(getattr, Calls(__import__, "os"), "mkdir")),
    "dotted name": lambda: b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__base__\x93.",
    "dotted name below a known one": lambda: b"\x80\x04\x8c\x16numpy._core.multiarray\x8c\x12_reconstruct.__self\x93.",
    "import": lambda: b"cantigravity\nfly\n.",
    "inst": lambda: b"(S'mkdir x'\nios\nsystem\n.",
    "obj": lambda: b"(cnumpy\ndtype\nS'u1'\no.",
    "newobj": lambda: b"\x80\x02cnumpy\nndarray\nK\x01\x85\x81.",
    "newobj_ex": lambda: b"\x80\x04cnumpy\nndarray\n)}\x92.",
    "call of ndarray": lambda: b"cnumpy\nndarray\nK\x09\x85R.",
    "call of a list": lambda: b"])R.",
    "call with too much": lambda: b"c_codecs\nencode\n(VA\nVlatin1\nNtR.",
    "codec": lambda: b"c_codecs\nencode\n(VA\nVrot13\ntR.",
    "codec of no latin1": lambda: b"c_codecs\nencode\n(V\\u20ac\nVlatin1\ntR.",
    "bytes of a number": lambda: b"c__builtin__\nbytes\n(J\xff\xff\xff\x7ftR.",
    "state of a name": lambda: b"cnumpy\ndtype\n}S'call'\nNsb.",
    "state of a dict": lambda: b"}}b.",
    "name as data": lambda: b"]cnumpy\ndtype\na.",
    "dtype in a tuple as data": lambda: b"]cnumpy\ndtype\n(S'u1'\ntR\x85\x85a.",
    "persistent id 0": lambda: persistent(0),
    "persistent id 4": lambda: persistent(4),
    "extension code": lambda: pickle.dumps(shout, protocol=2),
    "object array": lambda: pickle.dumps({"data": np.array([Calls(os.mkdir, marker())])}),
    "object dtype": lambda: array_pickle(dtype=b"O8", content=b"]"),
    "text dtype": lambda: array_pickle(dtype=b"S4"),
    "dtype by a long text": lambda: array_pickle(dtype=b"u1,O8"),
    "structured": lambda: pickle.dumps(np.zeros(2, dtype=[("a", "u1")])),
    "fields": lambda: array_pickle(state=b"N]}"),
    "byte order": lambda: array_pickle(order=b"O"),
    "subclass": lambda: array_pickle(name=b"numpy\nmatrix"),
    "huge shape": lambda: array_pickle(shape=b"(" + b"J\xff\xff\xff\x7f" * 2 + b"t"),
    "huge empty shape": lambda: array_pickle(shape=b"(" + b"J\xff\xff\xff\x7f" * 3 + b"K\x00t", content=b"C\x00"),
    "negative shape": lambda: array_pickle(shape=b"J\xfc\xff\xff\xff\x85"),
    "shape of an array": lambda: array_pickle(shape=array_pickle()[2:-1]),
    "order of an array": lambda: b"cnumpy.core.numeric\n_frombuffer\n(C\x00NN" + array_pickle()[2:-1] + b"tR.",
    "few bytes": lambda: array_pickle(content=b"C\x03abc"),
    "a list for bytes": lambda: array_pickle(content=b"]"),
    "unfinished array": lambda: b"]cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nNNtRa.",
    "nested marks": lambda: b"(" * 100_000 + b".",
    "nested lists": lambda: b"]" * 30_000 + b"a" * 29_999 + b".",
    "nested tuples": lambda: b"N" + b"\x85" * 30_000 + b".",
    "nested tuples as a key": lambda: b"}N" + b"\x85" * 100_000 + b"Ns.",
    "list as a key": lambda: b"}]Ns.",
    "long number": lambda: b"L" + b"9" * 100_000 + b"L\n.",
    "wide number": lambda: b"\x8a\xff" + b"\x01" * 255 + b".",
    "many bytes promised": lambda: b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "negative length": lambda: b"T\xff\xff\xff\xff.",
    "far memo": lambda: b"\x80\x02}r\xff\xff\xff\xff0j\xfe\xff\xff\xff.",
    "float": lambda: pickle.dumps({"data": 1.5}),
    "set": lambda: pickle.dumps({"data": {1}}, protocol=4),
    "text that is none": lambda: b"X\x01\x00\x00\x00\xff.",
    "string without quotes": lambda: b"Sabc\n.",
    "string of odd escapes": lambda: b"S'\\q'\n.",
    "empty stack": lambda: b"0.",
    "two objects": lambda: b"NN.",
    "odd items": lambda: b"}(Nu.",
    "append to a tuple": lambda: b")Na.",
    "protocol 9": lambda: b"\x80\x09N.",
    "a zip": lambda: b"PK\x03\x04",
}


def shout():
    os.mkdir(marker())


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A path that an attack would make."""
    monkeypatch.setenv("SHORTLIST_TEST_MARKER", str(tmp_path / "executed"))
    return tmp_path / "executed"


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_pickle_is_named_and_does_nothing(tmp_path, trap, attack):
    registered = attack == "extension code"
    if registered:
        copyreg.add_extension(shout.__module__, "shout", 0x7FFF)
    try:
        content = ATTACKS[attack]()
        folder = write_cifar100(tmp_path / "cifar", train=content)
        modules = set(sys.modules)
        with pytest.raises(ValueError, match=r"cifar.train` [^\n]*\.$") as caught:
            read_cifar(folder)
    finally:
        if registered:
            copyreg.remove_extension(shout.__module__, "shout", 0x7FFF)
    assert len(str(caught.value)) < 400
    assert not trap.exists()
    # Codecs of Python itself are loaded when they are first needed.
    assert not {name for name in set(sys.modules) - modules if not name.startswith("encodings.")}


def test_the_attacks_would_work_on_the_standard_machine(trap):
    pickle.loads(ATTACKS["os.mkdir"]())
    assert trap.is_dir()


def test_a_correct_array_by_hand_is_read(tmp_path):
    (tmp_path / "array").write_bytes(array_pickle())
    assert read_plain_pickle(tmp_path / "array").tolist() == list(b"abcd")


@each_writer
def test_a_pickle_cut_anywhere_is_named(tmp_path, write):
    content = {"data": np.arange(6, dtype=">i2").reshape(2, 3), "labels": [1, -300, 70000], "names": ["é", "it's\n"]}
    whole = write(content)
    path = tmp_path / "cut"
    for length in {*range(0, len(whole), 9), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut` "):
            read_plain_pickle(path)


@each_writer
def test_a_damaged_pickle_is_read_or_refused_and_nothing_else(tmp_path, write, trap):
    whole = write({"data": np.arange(6, dtype=np.uint8), "labels": [1, 2], "names": ["a"], "tuple": (1, None, True)})
    chance, complaints = random.Random(0), []
    path = tmp_path / "flipped"
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            read_plain_pickle(path)
        except ValueError as error:
            complaints.append(str(error))
    assert len(complaints) > 20
    assert all(complaint.startswith(f"`{path}` ") for complaint in complaints)


@each_writer
def test_plain_data_are_read_as_written(tmp_path, write):
    arrays = [np.arange(12).reshape(3, 4).astype(dtype) for dtype in ("u1", "<i2", ">i4", "<f8", "f2", "?")]
    arrays += [np.zeros((0, 5), dtype=np.uint8), np.array(7), np.arange(5000, dtype=np.int64)]
    content = {
        "arrays": arrays,
        "same": [arrays[0]],
        "numbers": [0, -1, 255, 65536, -(2**31)],
        "flags": [None, True, False],
    }
    content |= {"nested": {"list": [[1], []], "text": 'it\'s \\ "é"\n\t\x00'}, "long": "x" * 5000}
    (tmp_path / "plain").write_bytes(write(content))
    found = read_plain_pickle(tmp_path / "plain")
    expected = as_bytes(content) if b"data" not in found and b"arrays" in found else content
    assert found.keys() == expected.keys()
    key = next(key for key in found if key in ("arrays", b"arrays"))
    for ours, theirs in zip(found[key], arrays, strict=True):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    for other in found.keys() - {"arrays", b"arrays", "same", b"same"}:
        assert found[other] == expected[other]


def test_arrays_in_column_order_numpy_numbers_and_shared_objects_are_read(tmp_path):
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    content = {"column": array, "again": array, "number": np.int64(7), "bytes": b"", "tuple": (1, ("a", b"b"))}
    for protocol in range(6):
        (tmp_path / "plain").write_bytes(pickle.dumps(content, protocol=protocol))
        found = read_plain_pickle(tmp_path / "plain")
        assert np.array_equal(found["column"], array)
        assert found["again"] is found["column"]
        assert (found["number"], found["bytes"], found["tuple"]) == (7, b"", (1, ("a", b"b")))
        assert type(found["number"]) is int


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

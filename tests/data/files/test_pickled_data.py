"""Pickled dicts: read as written by every writer, and attacks that are refused without executing anything."""

import copyreg
import io
import os
import pickle
import random
import struct
import sys
import tracemalloc

import numpy as np
import pytest

from shortlist.data.files.pickled_data import read_pickled_dict, resolve
from shortlist.errors import InputError
from tests.data.files.pickles import as_bytes, each_writer


def read(path):
    """All values of a pickled dict."""
    return {key: resolve(value, f"`{path}` {key!r}") for key, value in read_pickled_dict(path).items()}


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
        (tmp_path / "train").write_bytes(content)
        modules = set(sys.modules)
        with pytest.raises(InputError, match=r"train` [^\n]*\.$") as caught:
            read(tmp_path / "train")
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
    (tmp_path / "array").write_bytes(b"\x80\x03}U\x04data" + array_pickle()[2:-1] + b"s.")
    assert read(tmp_path / "array")[b"data"].tolist() == list(b"abcd")


@each_writer
def test_a_pickle_cut_anywhere_is_named(tmp_path, write):
    content = {"data": np.arange(6, dtype=">i2").reshape(2, 3), "labels": [1, -300, 70000], "names": ["é", "it's\n"]}
    whole = write(content)
    path = tmp_path / "cut"
    for length in {*range(0, len(whole), 9), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut` "):
            read(path)


@each_writer
def test_a_damaged_pickle_is_read_or_refused_and_nothing_else(tmp_path, write, trap):
    whole = write({"data": np.arange(6, dtype=np.uint8), "labels": [1, 2], "names": ["a"], "tuple": (1, None, True)})
    rng, complaints = random.Random(0), []
    path = tmp_path / "flipped"
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            read(path)
        except InputError as error:
            complaints.append(str(error))
    assert len(complaints) > 20
    assert all(complaint.startswith(f"`{path}` ") for complaint in complaints)


@each_writer
def test_plain_data_are_read_as_written(tmp_path, write):
    arrays = [np.arange(12).reshape(3, 4).astype(dtype) for dtype in ("u1", "<i2", ">i4", "<f8", "f2", "?")]
    arrays += [np.zeros((0, 5), dtype=np.uint8), np.array(7), np.arange(5000, dtype=np.int64)]
    content = {"arrays": arrays, "numbers": [0, -1, 255, 65536, -(2**31)], "flags": [None, True, False]}
    content |= {"nested": {"list": [[1], []], "text": 'it\'s \\ "é"\n\t\x00'}, "long": "x" * 500}
    (tmp_path / "plain").write_bytes(write(content))
    found = read(tmp_path / "plain")
    expected = as_bytes(content) if b"arrays" in found else content
    assert found.keys() == expected.keys()
    arrays_key = next(key for key in found if key in ("arrays", b"arrays"))
    for ours, theirs in zip(found.pop(arrays_key), arrays, strict=True):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    assert found == {key: value for key, value in expected.items() if key != arrays_key}


def test_arrays_in_column_order_numpy_numbers_and_shared_objects_are_read(tmp_path):
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    content = {"column": array, "again": array, "number": np.int64(7), "numbers": [np.int16(3)], "bytes": b""}
    for protocol in range(6):
        (tmp_path / "plain").write_bytes(pickle.dumps(content, protocol=protocol))
        found = read(tmp_path / "plain")
        assert np.array_equal(found["column"], array)
        assert found["again"] is found["column"]
        assert (found["number"], found["numbers"], found["bytes"]) == (7, [3], b"")
        assert type(found["number"]) is int


PAYLOAD = b"x" * 2**16
REMEMBERED = b"\x80\x02}U\x04dataB" + struct.pack("<I", len(PAYLOAD)) + PAYLOAD + b"q\x000]"
ENCODED = b"\x80\x02}U\x04dataX" + struct.pack("<I", len(PAYLOAD)) + PAYLOAD
ENCODED += b"q\x000c_codecs\nencode\nq\x010U\x06latin1q\x020]"


def test_bytes_that_a_pickle_uses_often_are_never_copied(tmp_path):
    (tmp_path / "bomb").write_bytes(REMEMBERED + b"h\x00a" * 3000 + b"s.")
    tracemalloc.start()
    found = read(tmp_path / "bomb")[b"data"]
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()
    assert len(found) == 3000
    assert found[0].tobytes() == PAYLOAD


def test_a_text_that_a_pickle_encodes_often_is_refused(tmp_path):
    (tmp_path / "bomb").write_bytes(ENCODED + b"h\x01h\x00h\x02\x86Ra" * 3000 + b"s.")
    with pytest.raises(InputError, match=r"b'data' cannot be read: an item of a list must have at most 256 characters"):
        read(tmp_path / "bomb")


def test_a_pickle_of_too_many_opcodes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SHORTLIST_LIMITS", "opcodes=100")
    (tmp_path / "bomb").write_bytes(b"\x80\x02}" + b"K\x01K\x01s" * 33 + b".")
    with pytest.raises(InputError, match="there must be at most 100 opcodes"):
        read(tmp_path / "bomb")
    (tmp_path / "fine").write_bytes(b"\x80\x02}" + b"K\x01K\x01s" * 32 + b".")
    assert read(tmp_path / "fine") == {1: 1}


def test_calls_within_calls_do_not_exhaust_the_stack(tmp_path):
    call = b"c_codecs\nencode\nq\x010U\x06latin1"
    for _ in range(3000):
        call += b"q\x020h\x01(U\x01ah\x02tR"
    (tmp_path / "deep").write_bytes(b"\x80\x02}" + call + b"Ns.")
    with pytest.raises(InputError, match="deep` byte"):
        read(tmp_path / "deep")

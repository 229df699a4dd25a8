"""Files that users bring are read, or refused in one sentence that names them."""

import gzip
import json
import re
from pathlib import Path

import pytest

from shortlist.data.files.text_files import json_field, need_file, need_folder, read_json, text_lines
from shortlist.errors import InputError


def sentence(path: Path, rest: str) -> str:
    return rf"^`{re.escape(str(path))}`{rest}\.$"


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_files_and_folders_are_found_as_text_or_path(tmp_path):
    path = put(tmp_path / "a file.txt", b"")
    assert need_file(path) == need_file(str(path)) == path
    assert need_folder(tmp_path) == need_folder(str(tmp_path)) == tmp_path


def test_what_is_missing_or_of_the_other_kind_is_refused(tmp_path):
    path = put(tmp_path / "é.txt", b"")
    for need, wrong, what in (
        (need_file, tmp_path / "none", "does not exist"),
        (need_file, tmp_path, "is a folder, not a file"),
        (need_folder, tmp_path / "none", "does not exist"),
        (need_folder, path, "is a file, not a folder"),
    ):
        with pytest.raises(ValueError, match=sentence(wrong, f" {what}")):
            need(wrong)


@pytest.mark.parametrize("name", ["plain.txt", "packed.txt.gz"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo", ["one", "two"]),
        (b"one\n\n two \n", ["one", "", " two "]),
        ("Ähre\u2028x\x0cy\n\ttab\t\n".encode(), ["Ähre\u2028x\x0cy", "\ttab\t"]),
        (b"\xef\xbb\xbfid,name\r\n\xef\xbb\xbfx\r\n", ["id,name", "\ufeffx"]),
    ],
    ids=["empty", "blank", "unix", "windows", "spaces", "odd", "byte order mark"],
)
def test_lines_are_numbered_and_lose_nothing_but_their_end(tmp_path, name, content, lines):
    path = put(tmp_path / name, content)
    assert list(text_lines(path)) == list(enumerate(lines, start=1))
    assert list(text_lines(str(path))) == list(enumerate(lines, start=1))


def test_lines_come_one_by_one(tmp_path):
    path = put(tmp_path / "a.txt", b"fine\nfine\n\xff\n")
    lines = text_lines(path)
    assert next(lines) == (1, "fine")
    assert next(lines) == (2, "fine")
    with pytest.raises(ValueError, match="line 3"):
        next(lines)


def test_another_encoding_can_be_asked_for(tmp_path):
    path = put(tmp_path / "a.txt", "Ähre\n".encode("latin-1"))
    assert list(text_lines(path, encoding="latin-1")) == [(1, "Ähre")]
    with pytest.raises(ValueError, match=sentence(path, " line 1 is not utf-8 text: .*")):
        list(text_lines(path))


@pytest.mark.parametrize("name", ["plain.txt", "packed.txt.gz"])
def test_a_line_that_is_no_text_is_refused_by_number(tmp_path, name):
    path = put(tmp_path / name, b"fine\n\xe4hre\n")
    with pytest.raises(ValueError, match=sentence(path, " line 2 is not utf-8 text: .*")):
        list(text_lines(path))


def test_a_packed_file_that_ends_early_is_refused_after_its_last_line(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % (i * 7919) for i in range(20_000)))[:-400])
    with pytest.raises(ValueError, match=sentence(path, r" is damaged after line \d+: .*")) as caught:
        list(text_lines(path))
    found = re.search(r"line (\d+)", str(caught.value))
    assert found
    assert 10_000 < int(found[1]) < 20_000


@pytest.mark.parametrize("damage", ["not packed", "wrong sum", "noise"])
def test_a_packed_file_that_is_damaged_is_refused(tmp_path, damage):
    whole = gzip.compress(b"one\ntwo\n")
    content = {
        "not packed": b"one\ntwo\n",
        "wrong sum": whole[:-8] + bytes(4) + whole[-4:],
        "noise": whole[:10] + b"\xff" * 12,
    }[damage]
    path = tmp_path / "a.txt.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence(path, r" is damaged after line \d+: .*")):
        list(text_lines(path))


def test_a_missing_file_has_no_lines(tmp_path):
    with pytest.raises(ValueError, match=sentence(tmp_path / "none.txt", " does not exist")):
        list(text_lines(tmp_path / "none.txt"))


def test_an_error_of_the_reader_is_not_mistaken_for_one_of_the_file(tmp_path):
    path = put(tmp_path / "a.txt", b"one\n")

    def read() -> None:
        for _ in text_lines(path):
            raise EOFError("mine")

    with pytest.raises(EOFError, match="mine"):
        read()


def test_json_is_read_in_any_unicode(tmp_path):
    content = {"name": "Ähre", "list": [1, 2.5, None, True]}
    text = json.dumps(content, ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert read_json(put(tmp_path / "a.json", text.encode(encoding))) == content


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        (b"", " line 1 is not JSON: .*"),
        (b'{"a": 1,\n"b": }\n', " line 2 is not JSON: .*"),
        (b'{"a": 1}\n{"a": 2}\n', " line 2 is not JSON: .*"),
        (b'{"a": [1, 2', " line 1 is not JSON: .*"),
        (b'{"a": "\xff"}', " is not UTF-8 text: .*"),
        (b"\x89PNG\r\n\x1a\n\0\0", ".*"),
        (b"[" * 100_000, ".*"),
        (b"1" * 5_000, ".*"),
    ],
    ids=["empty", "syntax", "lines", "cut", "no text", "picture", "deep", "long number"],
)
def test_what_is_no_json_is_refused(tmp_path, content, rest):
    path = put(tmp_path / "a.json", content)
    with pytest.raises(ValueError, match=sentence(path, rest)) as caught:
        read_json(path)
    assert type(caught.value) is InputError


def test_missing_json_is_refused(tmp_path):
    with pytest.raises(ValueError, match=sentence(tmp_path / "none.json", " does not exist")):
        read_json(tmp_path / "none.json")


def test_a_value_is_taken_by_key_and_type():
    record = {"id": 3, "name": "x", "score": 0.5, "sure": True}
    assert json_field(record, "id", int, "`a.json` image 0") == 3
    assert json_field(record, "score", (int, float), "`a.json` image 0") == 0.5
    assert json_field(record, "sure", bool, "`a.json` image 0") is True


@pytest.mark.parametrize(
    ("record", "key", "kind", "text"),
    [
        ({"id": "3"}, "id", int, "'id' must be int; got '3'"),
        ({"id": None}, "id", (int, float), "'id' must be int or float; got None"),
        ({"id": True}, "id", int, "'id' must be int; got True"),
        ({}, "id", int, "has no 'id'"),
        ([1], "id", int, "must be an object with keys; got list"),
        ("id", "id", int, "must be an object with keys; got str"),
    ],
)
def test_a_value_that_is_missing_or_of_another_type_is_refused(record, key, kind, text):
    with pytest.raises(ValueError, match=rf"^`a\.json` image 7: {re.escape(text)}\.$"):
        json_field(record, key, kind, "`a.json` image 7")


def test_a_long_value_is_shown_in_part():
    with pytest.raises(ValueError, match="must be int") as caught:
        json_field({"id": "x" * 10_000}, "id", int, "`a.json` image 7")
    assert len(str(caught.value)) < 200

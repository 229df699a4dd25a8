"""Files are written whole or not at all, and a path that cannot be written is found before the work."""

import json
import os
from pathlib import Path

import pytest

from shortlist.errors import InputError
from shortlist.files import check_folder, check_output, decoding, read_document, replacing, writing


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("before")
    return tmp_path


def test_a_file_that_fails_midway_leaves_the_old_one_and_nothing_else():
    with pytest.raises(ZeroDivisionError), replacing("file") as partial:
        partial.write_text(str(1 / 0))
    assert Path("file").read_text() == "before"
    assert os.listdir() == ["file"]
    with replacing("new/file") as partial:
        partial.write_text("whole")
    assert Path("new/file").read_text() == "whole"


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (ValueError("`k` must be\none number; got [1]."), "`k` must be one number; got [1]"),
        (ValueError("x" * 10_000), "x" * 200 + "…"),
        (KeyError("labels"), "KeyError 'labels'"),
        (TypeError("reshape(): failed\n      at 1"), "TypeError reshape(): failed at 1"),
        (OverflowError(), "OverflowError OverflowError"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_a_damaged_document_raises_is_one_short_line_that_names_it(raised, reason):
    with pytest.raises(InputError) as caught, decoding("rule.json"):
        raise raised
    assert str(caught.value) == f"`rule.json` is damaged: {reason}."


@pytest.mark.parametrize("version", ["a\nb", [0] * 1000, None, 10**4000])
def test_a_document_of_another_version_is_one_short_line(version):
    Path("file").write_text(json.dumps({"format": "thing", "version": version}))
    with pytest.raises(InputError) as caught:
        read_document("file", kind="thing", version=1)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("named", [None, "runs", "runs/here", "runs/here/plain-0", "runs/.here.17.partial"])
def test_a_system_error_about_the_written_path_names_it(named):
    message = r"^`runs/here` cannot be written: Not a directory\.$"
    with pytest.raises(InputError, match=message), writing("runs/here"):
        raise OSError(20, "Not a directory", named)


@pytest.mark.parametrize("written", ["runs/here", None])
def test_a_system_error_about_another_file_stays(written):
    with pytest.raises(FileNotFoundError, match="elsewhere"), writing(written):
        raise OSError(2, "No such file or directory", "runs/elsewhere")


def test_an_output_that_cannot_be_written_is_refused():
    Path("sub").mkdir()
    for path, inputs, reason in (
        ("file", ["file"], "`file` is read by this command, so it cannot be its output"),
        ("sub", [], "it is a folder"),
        ("file/below", [], "is not a folder"),
        (os.devnull, [], "it is not a regular file"),
    ):
        with pytest.raises(InputError, match=reason):
            check_output(path, *inputs)
    check_output("new/deep/file", "file", None)


def test_a_folder_that_cannot_be_written_is_refused():
    for path, reason in (("file", "it is not a folder"), ("file/below", "is not a folder")):
        with pytest.raises(InputError, match=reason):
            check_folder(path)
    for path in (None, "new/deep", "."):
        check_folder(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused():
    Path("locked").mkdir(mode=0o500)
    with pytest.raises(InputError, match="no permission to write in"):
        check_output("locked/file")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "cannot be read: "),
        ("[]", "is not a note"),
        ('{"format": "other"}', "is not a note"),
        ('{"format": "note", "version": 2}', "has version 2; this release reads 1"),
    ],
)
def test_a_document_of_another_kind_is_refused(content, reason):
    if content is not None:
        Path("note.json").write_text(content)
    with pytest.raises(InputError, match=f"`note.json` {reason}"):
        read_document("note.json", kind="note", version=1)

"""Fingerprints change when the task changes, and only then."""

import os

import pytest

from shortlist import __version__
from shortlist.fingerprint import (
    Digest,
    digest,
    digest_file,
    digest_values,
    file_state,
    first_difference,
    software_versions,
)


def test_a_digest_depends_on_the_content_and_not_on_its_pieces(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"ab" * (1 << 20))
    pieces = Digest(b"ab")
    pieces.update(memoryview(b"ab" * ((1 << 20) - 1)))
    assert pieces.hex() == digest_file(file) == pieces.bytes().hex() == digest("ab" * (1 << 20))
    assert digest_file(file) != digest(b"ab")


def test_the_digest_of_values_ignores_the_order_of_keys_alone():
    assert digest_values({"a": 1, "b": [2, None]}) == digest_values({"b": [2, None], "a": 1})
    assert digest_values([1, 2]) != digest_values([2, 1])


@pytest.mark.parametrize("change", ["content", "time"])
def test_a_changed_file_has_another_state(tmp_path, change):
    file = tmp_path / "file"
    file.write_text("a")
    before = file_state(file), file_state(tmp_path)
    if change == "content":
        file.write_text("ab")
    else:
        os.utime(file, ns=(0, 0))
    after = file_state(file), file_state(tmp_path)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_the_state_of_a_folder_covers_inner_files_but_those_excluded(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "rows").write_text("a")
    before = file_state(tmp_path, exclude=[tmp_path / "own", tmp_path / "own.txt"])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").write_text("b")
    (tmp_path / "own.txt").write_text("c")
    assert file_state(tmp_path, exclude=[tmp_path / "own", tmp_path / "own.txt"]) == before
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert file_state(tmp_path, exclude=[tmp_path / "own", tmp_path / "own.txt"]) != before


def test_a_name_that_is_no_path_counts_as_it_is():
    assert file_state("sklearn:digits") == {"name": "sklearn:digits"}


def test_versions_are_told_without_an_import():
    found = software_versions("no-such-package")
    assert found["shortlist"] == __version__
    assert found["torch"]
    assert found["no-such-package"] is None


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        ({"k": 1}, {"k": 1}, None),
        ({"a": {"k": 1}, "b": 2}, {"a": {"k": 1}, "b": 3}, "b was 2 and is 3"),
        ({"a": {"k": 1}}, {"a": {"k": 2}}, "k was 1 and is 2"),
        ({"a": None}, {}, "a was None and is None"),
        ({}, {"k": 1}, "k was None and is 1"),
        ({"k": 1}, {}, "k was 1 and is None"),
        ({"data": digest("a")}, {"data": digest("b")}, "data changed"),
        (None, {"k": 1}, "its fingerprint is missing"),
        ([1], {"k": 1}, "its fingerprint is missing"),
    ],
)
def test_the_first_difference_is_named(before, now, difference):
    assert first_difference(before, now) == difference

"""Limits on input: one table, documented, raised by name, and met by every reader that they protect."""

import gzip
import json
import re
import zipfile
from pathlib import Path

import pytest

from shortlist.audit.layer import read_array
from shortlist.data import open_dataset
from shortlist.data.files.array_files import open_arrays
from shortlist.data.files.text_files import read_json, text_lines
from shortlist.errors import InputError
from shortlist.files import read_document
from shortlist.limits import LIMITS, limit
from shortlist.typed_values import read_yaml
from tests.data.formats.test_hostile_sizes import at_most, header

ROOT = Path(__file__).parents[1]


def test_every_limit_is_documented_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| (.+) \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert {name: (int(number.replace(",", "")), text) for name, number, text in rows} == LIMITS


@pytest.mark.parametrize(
    ("given", "value"),
    [("field=12", 12), ("ratio=3, field=5e7", 50_000_000), ("field=1_000 line=7", 1000), ("", 2**23)],
)
def test_the_environment_changes_a_limit(monkeypatch, given, value):
    monkeypatch.setenv("SHORTLIST_LIMITS", given)
    assert limit("field") == value


@pytest.mark.parametrize("given", ["fields=3", "field", "field=-1", "field=many", "field=1e999"])
def test_a_wrong_limit_is_named(monkeypatch, given):
    monkeypatch.setenv("SHORTLIST_LIMITS", given)
    with pytest.raises(InputError, match=re.escape(f"got {given!r}.")):
        limit("field")


def write_bomb(path: Path, size: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("weight.npy", "w") as member:
        member.write(header((size // 1024, 256)))
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return path


@pytest.mark.parametrize(
    "read", [lambda path: open_arrays(path).array("weight"), lambda path: read_array(path, None)], ids=["data", "audit"]
)
def test_an_array_that_inflates_too_much_is_refused_before_it_does(tmp_path, monkeypatch, read):
    path = write_bomb(tmp_path / "a.npz", 4 << 20)
    assert read(path).shape == (4096, 256)
    monkeypatch.setenv("SHORTLIST_LIMITS", "unpacked=1e6")
    with at_most(3), pytest.raises(InputError, match=r"'weight' looks like a decompression bomb: .* can raise `ratio`"):
        read(path)
    monkeypatch.setenv("SHORTLIST_LIMITS", "unpacked=1e6 ratio=5000")
    assert read(path).shape == (4096, 256)


def test_a_compressed_array_takes_its_own_size_of_memory(tmp_path):
    path = write_bomb(tmp_path / "a.npz", 16 << 20)
    with at_most(16 + 12):
        open_arrays(path).array("weight")


def test_a_text_that_inflates_too_much_is_refused_while_it_does(tmp_path, monkeypatch):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n" * 60_000))
    monkeypatch.setenv("SHORTLIST_LIMITS", "unpacked=1e5 ratio=50")
    with at_most(8), pytest.raises(InputError, match="looks like a decompression bomb"):
        for _ in text_lines(tmp_path / "a.csv.gz"):
            pass


@pytest.mark.parametrize("cell", ["x" * 5000, "x\n" * 2500])
def test_a_long_cell_is_refused_by_its_line(tmp_path, monkeypatch, cell):
    path = tmp_path / "a.csv"
    path.write_text(f'text,label\nhello,a\n"{cell}",b\n')
    assert len(open_dataset(path, text="text", label="label")) == 2
    monkeypatch.setenv("SHORTLIST_LIMITS", "field=4000")
    with pytest.raises(
        InputError, match=r"a.csv` line \d+ has too long a cell: at most 4000 are read unless SHORTLIST_"
    ):
        open_dataset(path, text="text", label="label")


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("line", b"x" * 5000 + b"\n", lambda path: list(text_lines(path))),
        ("document", json.dumps(["x" * 5000]).encode(), read_json),
        ("document", json.dumps(["x" * 5000]).encode(), lambda path: read_document(path, kind="rule", version=1)),
    ],
)
def test_a_long_text_is_refused(tmp_path, monkeypatch, name, content, read):
    (tmp_path / "a").write_bytes(content)
    monkeypatch.setenv("SHORTLIST_LIMITS", f"{name}=4000")
    with pytest.raises(InputError, match=f"at most 4000 are read unless SHORTLIST_LIMITS raises `{name}`"):
        read(tmp_path / "a")


def test_an_endless_file_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setenv("SHORTLIST_LIMITS", "document=1e6")
    with pytest.raises(InputError, match="`/dev/zero` is too long to be read as a whole"):
        read_document("/dev/zero", kind="rule", version=1)


def test_aliases_of_aliases_are_counted(monkeypatch):
    monkeypatch.setenv("SHORTLIST_LIMITS", "nodes=5000")
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 30))]
    with at_most(8), pytest.raises(InputError, match=r"`run\.yaml` has too many values: at most 5000 are read"):
        read_yaml("\n".join(lines), "`run.yaml`")

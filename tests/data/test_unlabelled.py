"""Rows without labels: as the file has them, in blocks, with the place of each; one sentence for what is wrong."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.data import unlabelled
from shortlist.data.files import table_files as blocks_of_tables
from shortlist.data.unlabelled import UnlabelledRows, array_rows, image_rows, line_rows, table_rows

VALUES = np.arange(20, dtype=np.float32).reshape(5, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder; everything is read in blocks of two rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(blocks_of_tables, "BLOCK", 2)
    monkeypatch.setattr(unlabelled, "_LINES", 2)
    monkeypatch.setattr(unlabelled, "_MAPPED_BYTES", 2 * VALUES[0].nbytes)
    return tmp_path


def write_csv(path: str, columns: str = "a,b,c,d", values: np.ndarray = VALUES, delimiter: str = ",") -> None:
    lines = [columns.replace(",", delimiter), *(delimiter.join(map(str, row)) for row in values.tolist())]
    Path(path).write_text("\n".join(lines) + "\n")


def all_rows(rows: UnlabelledRows) -> torch.Tensor:
    batches = [block.inputs.batch(torch.arange(len(block.inputs))) for block in rows.blocks()]
    return torch.cat([batch.to_dense() if batch.layout == torch.sparse_csr else batch for batch in batches])


def test_a_table_gives_the_named_columns_in_their_order():
    write_csv("new.csv")
    write_csv("new.tsv", delimiter="\t")
    Path("new.jsonl").write_text("\n".join(json.dumps(dict(zip("abcd", row, strict=True))) for row in VALUES.tolist()))
    for path in ("new.csv", "new.tsv", "new.jsonl"):
        rows = table_rows(path, features=["d", "a"])
        assert rows.count() == 5
        assert len(list(rows.blocks())) == 3
        assert all_rows(rows).tolist() == VALUES[:, [3, 0]].tolist()


def test_a_table_without_names_gives_all_columns_that_can_be_features():
    write_csv("new.csv", "a,split,b,label")
    assert all_rows(table_rows("new.csv")).tolist() == VALUES[:, [0, 2]].tolist()
    write_csv("stars.csv", "x_1,y,x_2,z")
    assert all_rows(table_rows("stars.csv", features="x_*")).tolist() == VALUES[:, [0, 2]].tolist()


def test_texts_are_joined_and_a_column_may_name_the_rows():
    Path("new.csv").write_text("title,body,key\nA,rose,r1\nB,,r2\n,owl,r3\n")
    (first, second) = table_rows("new.csv", text=["title", "body"], id_column="key").blocks()
    assert first.inputs.batch(torch.tensor([0, 1])) == ["A rose", "B"]
    assert (list(first.ids), list(second.ids)) == (["r1", "r2"], ["r3"])


def test_rows_are_named_as_the_file_counts_them():
    write_csv("new.csv")
    assert [block.location(0) for block in table_rows("new.csv").blocks()] == [
        "`new.csv` line 2",
        "`new.csv` line 4",
        "`new.csv` line 6",
    ]
    Path("new.txt").write_text("a\nb\nc\n")
    assert [block.location(0) for block in line_rows("new.txt").blocks()] == ["`new.txt` line 1", "`new.txt` line 3"]
    np.save("new.npy", VALUES)
    assert [block.location(0) for block in array_rows("new.npy").blocks()] == [
        f"`new.npy` row {row}" for row in (0, 2, 4)
    ]


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("a,b,c,d", {"features": ["a", "z"]}, "`new.csv`: has no column 'z' for `features`; it has 'a', "),
        ("a,b,c,d", {"text": "z"}, "`new.csv`: has no column 'z' for `text`; it has "),
        ("a,b,c,d", {"id_column": "z"}, "`new.csv`: has no column 'z' for the ids of rows; it has "),
        ("label,labels,split,source", {}, "`new.csv`: has no column of text or features."),
    ],
)
def test_a_column_that_is_not_there_is_one_sentence(columns, options, sentence):
    write_csv("new.csv", columns)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}.*[.]?$"):
        table_rows("new.csv", **options)


def test_a_cell_that_is_no_number_is_reported_by_its_line():
    Path("new.csv").write_text("a,b\n1,2\n3,4\n5,x\n")
    with pytest.raises(ValueError, match=r"^`new.csv` line 4: 'b' must be a finite number; got 'x'\.$"):
        list(table_rows("new.csv").blocks())
    Path("few.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"^`few.csv` line 3: must have 2 cells, like the header; got 1\.$"):
        list(table_rows("few.csv").blocks())


def test_lines_are_texts_whatever_packs_them():
    Path("new.txt").write_text("a rose\n\nthe owl\n", encoding="utf-8")
    with gzip.open("new.txt.gz", "wt") as file:
        file.write("a rose\n\nthe owl\n")
    for path in ("new.txt", "new.txt.gz"):
        rows = line_rows(path)
        assert rows.count() == 3
        assert [text for block in rows.blocks() for text in block.inputs.texts] == ["a rose", "", "the owl"]
    with pytest.raises(ValueError, match=r"^`none.txt` does not exist\.$"):
        line_rows("none.txt")
    Path("old.txt").write_bytes("Łoś\n".encode("cp1250"))
    with pytest.raises(ValueError, match=r"`old.txt` line 1 is not utf-8 text"):
        list(line_rows("old.txt").blocks())
    assert next(line_rows("old.txt", encoding="cp1250").blocks()).inputs.texts == ["Łoś"]


def test_features_alone_are_found_in_every_file_of_arrays():
    np.save("new.npy", VALUES)
    np.savez("one.npz", VALUES)
    np.savez("usual.npz", x=VALUES, other=np.zeros(3))
    np.savez("asked.npz", mine=VALUES, x=np.zeros((2, 2)))
    np.savez_compressed("packed.npz", X=VALUES)
    for path, options in (
        ("new.npy", {}),
        ("one.npz", {}),
        ("usual.npz", {}),
        ("asked.npz", {"features": "mine"}),
        ("asked.npz", {"usual": ("mine", "x")}),
        ("packed.npz", {}),
    ):
        rows = array_rows(path, **options)
        assert rows.count() == 5
        assert all_rows(rows).tolist() == VALUES.tolist()
    assert len(list(array_rows("new.npy").blocks())) == 3  # Mapped anew for each.


def test_arrays_may_hold_no_rows_or_no_features():
    np.save("none.npy", VALUES[:0])
    assert array_rows("none.npy").count() == 0
    assert list(array_rows("none.npy").blocks()) == []
    np.savez("other.npz", q=VALUES, r=VALUES)
    with pytest.raises(ValueError, match=r"`other.npz`: has no features under 'features' or "):
        array_rows("other.npz")


def test_pixels_and_sparse_rows_are_recognized_by_their_form():
    np.savez("pixels.npz", x=np.zeros((3, 4, 5, 3), dtype=np.uint8))
    (block,) = array_rows("pixels.npz").blocks()
    assert (block.inputs.kind, block.inputs.batch(torch.arange(3)).shape) == ("images", (3, 3, 4, 5))
    np.savez("sparse.npz", x_indptr=[0, 1, 2], x_indices=[3, 0], x_data=np.float32([1, 2]), x_shape=[2, 4])
    assert all_rows(array_rows("sparse.npz")).tolist() == [[0, 0, 0, 1], [2, 0, 0, 0]]


def test_images_of_a_folder_are_named_by_their_paths():
    image = pytest.importorskip("PIL.Image")
    for name in ("b.png", "a.jpg", "owls/2.png", "owls/1.png", ".hidden/3.png", "notes.txt"):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Path("photos", name).write_text("") if name.endswith("txt") else image.new("RGB", (6, 4)).save(f"photos/{name}")
    rows = image_rows("photos", size=4)
    (block,) = rows.blocks()
    assert rows.count() == 4
    assert list(block.ids) == ["a.jpg", "b.png", "owls/1.png", "owls/2.png"]
    assert block.ids[1:3] == ["b.png", "owls/1.png"]
    assert block.location(2) == "`photos/owls/1.png`"
    assert block.inputs.batch(torch.arange(4)).shape == (4, 3, 4, 4)
    (block,) = image_rows("photos/b.png").blocks()
    assert (list(block.ids), block.inputs.batch(torch.tensor([0])).shape) == (["b.png"], (1, 3, 4, 6))


def test_no_images_are_one_sentence():
    Path("empty").mkdir()
    with pytest.raises(ValueError, match=r"^`empty` holds no images\.$"):
        image_rows("empty")
    with pytest.raises(ValueError, match=r"^`none` does not exist\.$"):
        image_rows("none")

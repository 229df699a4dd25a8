"""Plain tables of every kind, with one class or a set of labels for each row."""

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from shortlist.data.files import table_files
from shortlist.data.formats.tables import read_table, table_roles
from tests.data.datasets import labels_of, parts_of
from tests.data.formats.samples import table
from tests.data.refusals import refuses_to_read

refuses = partial(refuses_to_read, read_table)

COLUMNS = ("text", "label", "labels", "split", "source", "x_0", "x_1", "tag_red", "tag_big")
CELLS = [
    ("a rose, red", "rose", ["flower", "red"], "train", "garden", 1.0, 0.5, 1, 0),
    ("daisy", "daisy", ["flower"], "validation", "field", -2e-3, 3.0, 0, -1),
    ('say "oak"', "oak", [], "test", None, 0.0, 4.0, 0, 1),
]
KINDS = (".csv", ".tsv", ".csv.gz", ".jsonl", ".jsonl.xz", ".json", ".json.gz", ".parquet")


def write(folder, ending=".csv", row=0, **changes):
    """A table of any kind; some cells of a row may be others."""
    rows = [dict(zip(COLUMNS, cells, strict=True)) for cells in CELLS]
    rows[row] |= changes
    return table(folder, ending, rows)


@pytest.mark.parametrize("ending", KINDS)
def test_texts_with_sets_of_labels(tmp_path, ending):
    plants = read_table(write(tmp_path, ending), labels="labels")
    assert plants.inputs.batch(torch.arange(3)) == ["a rose, red", "daisy", 'say "oak"']
    assert plants.label_names == ("flower", "red")
    assert labels_of(plants) == [("flower", "red"), ("flower",), ()]
    assert parts_of(plants) == (("train", "val", "test"), [0, 1, 2])
    source = plants.row_groups["source"]
    assert (source.names, source.index.tolist()) == (("field", "garden"), [1, 0, -1])
    assert plants.name == "plants"


@pytest.mark.parametrize("ending", KINDS)
def test_numbers_with_one_class(tmp_path, ending):
    plants = read_table(write(tmp_path, ending), features="x_*", label="label", groups=["split"])
    assert torch.equal(plants.inputs.batch(torch.arange(3)), torch.tensor([[1, 0.5], [-2e-3, 3], [0, 4]]))
    assert plants.label_names == ("daisy", "oak", "rose")
    assert plants.targets.tolist() == [2, 0, 1]
    assert plants.targets.dtype == torch.int64
    assert plants.row_groups["split"].names == ("test", "train", "validation")


@pytest.mark.parametrize("ending", KINDS)
@pytest.mark.parametrize(("labels", "names"), [("tag_*", ("red", "big")), (["tag_big"], ("tag_big",))])
def test_labels_in_columns(tmp_path, ending, labels, names):
    plants = read_table(write(tmp_path, ending), labels=labels)
    assert plants.label_names == names
    dense = torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
    assert torch.equal(plants.targets.to_dense(), dense if len(names) == 2 else dense[:, 1:])


def test_the_usual_columns_are_found_by_their_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",height,width,label\n0,1,2,10\n1,3,4,9\n")
    plants = read_table(path)
    assert plants.inputs.batch(torch.tensor([1])).tolist() == [[3.0, 4.0]]
    assert plants.label_names == ("9", "10"), "integers are sorted by value"
    assert plants.split is None
    path.write_text("text,labels\nx,a\n")
    assert read_table(path).num_labels == 1
    path.write_text("text,labels,label\nx,a,b\n")
    refuses(path, "`label` or `labels` must name the column of labels; it has 'text', 'labels', 'label'")


def test_several_texts_are_joined_and_empty_ones_left_out(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("title,body,label\nOn mice,We ask,x\n,only,y\n")
    assert read_table(path, text=["title", "body"]).inputs.batch(torch.arange(2)) == ["On mice We ask", "only"]


def test_given_names_fix_the_labels_and_refuse_others(tmp_path):
    path = write(tmp_path)
    assert read_table(path, labels="labels", label_names=["red", "blue", "flower"]).label_names == (
        "red",
        "blue",
        "flower",
    )
    assert read_table(path, label="label", label_names=["rose", "oak", "daisy"]).targets.tolist() == [0, 2, 1]
    refuses(
        path,
        "line 2: 'labels' must hold only `label_names`; got 'flower'",
        labels="labels",
        label_names=["red"],
    )
    refuses(
        path,
        "line 3: 'label' must be one of `label_names`; got 'daisy'",
        label="label",
        label_names=["rose"],
    )


def test_odd_names_marks_and_windows_ends_survive(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufefftext,labels\r\n"two\r\nlines",été | o"k\r\n\r\nx, | été | été\r\n'.encode())
    plants = read_table(path, separator="|")
    assert plants.label_names == ('o"k', "été")
    assert labels_of(plants) == [('o"k', "été"), ("été",)]
    assert plants.inputs.batch(torch.arange(2)) == ["two\r\nlines", "x"]


def test_a_table_of_ten_thousand_columns_is_read(tmp_path):
    """Work that grows with their square would take a minute."""
    names = [f"c{i}" for i in range(10_000)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(["kind", *names]), ",".join(["a", *["1"] * 10_000])]) + "\n")
    data = read_table(path, label="kind")
    assert data.inputs.batch(torch.tensor([0])).shape == (1, 10_000)
    data = read_table(path, label="kind", features=names[::-1])
    assert data.inputs.batch(torch.tensor([0])).sum() == 10_000


def test_a_table_longer_than_a_block_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "BLOCK", 2)
    for ending in KINDS:
        plants = read_table(write(tmp_path, ending), features="x_*", labels="tag_*")
        assert plants.inputs.batch(torch.arange(3))[:, 1].tolist() == [0.5, 3.0, 4.0]
        assert plants.targets.to_dense().tolist() == [[1.0, 0.0], [0.0, -1.0], [0.0, 1.0]]
    path = write(tmp_path, row=2, x_1="oak")
    refuses(path, "line 4: 'x_1' must be a finite number; got 'oak'", features="x_*", label="label")


def test_every_line_of_a_table_longer_than_a_block_is_reported_by_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "BLOCK", 2)
    path = tmp_path / "a.csv"
    path.write_text('x,label\n1,a\n"2\n",b\n\n3,a\n4,b\n')
    assert [line for line, _ in table_files.csv_records(path)] == [1, 2, 3, 6, 7]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_column_may_hold_vectors(tmp_path, ending):
    records = [{"embedding": [1.0, 2.0], "labels": [3, 10]}, {"embedding": [0.5, -1.0], "labels": [3, 4]}]
    path = tmp_path / f"a{ending}"
    if ending == ".parquet":
        kind = pa.schema([("embedding", pa.list_(pa.float32(), 2)), ("labels", pa.list_(pa.int64()))])
        pq.write_table(pa.Table.from_pylist(records, schema=kind), path)
    else:
        path.write_text("\n".join(map(json.dumps, records)))
    vectors = read_table(path, features="embedding")
    assert vectors.inputs.batch(torch.arange(2)).tolist() == [[1.0, 2.0], [0.5, -1.0]]
    assert vectors.label_names == ("3", "4", "10")
    assert labels_of(vectors) == [("3", "10"), ("3", "4")]


def test_parquet_of_categories_and_missing_cells(tmp_path):
    path = tmp_path / "a.parquet"
    label = pa.array(["a", "b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"label": label, "split": [0, 1, None], "x": [1, 2, 3]}), path)
    table = read_table(path)
    assert table.targets.tolist() == [0, 1, 0]
    assert table.split.index.tolist() == [0, 1, -1]
    pq.write_table(pa.table({"label": ["a", None], "x": [1.0, 2.0]}), path)
    refuses(path, "row 1: 'label' must name a class; got an empty cell")
    pq.write_table(pa.table({"label": ["a", "b"], "x": [1.0, None]}), path)
    refuses(path, "row 1: 'x' must be a finite number; got None")


@pytest.mark.parametrize("header", ["text,label", "x,label", "text,labels", "x,a"])
def test_a_header_alone_has_no_rows(tmp_path, header):
    path = tmp_path / "a.csv"
    path.write_text(header + "\n")
    table = read_table(path, labels=["a"]) if header == "x,a" else read_table(path)
    assert len(table) == 0
    assert table.num_labels == (1 if header == "x,a" else 0)


def test_wrong_values_in_columns_of_labels_are_refused(tmp_path):
    path = write(tmp_path, row=1, tag_big=2)
    refuses(path, "line 3: 'tag_big' must be 1, 0 or -1 (unknown); got 2", labels="tag_*")
    path = write(tmp_path, row=1, tag_big=None)
    refuses(path, "line 3: 'tag_big' must be a finite number; got ''", labels=["tag_red", "tag_big"])


def test_what_is_no_parquet_and_no_table_is_refused(tmp_path):
    path = write(tmp_path, ".parquet")
    for content in (b"", b"PAR1", b"x,label\n1,a\n", path.read_bytes()[:-20]):
        path.write_bytes(content)
        refuses(path, "is not a Parquet file: ", label="label")
    path = tmp_path / "a.xlsx"
    path.write_bytes(b"")
    refuses(path, "must end in one of .csv, .tsv, .jsonl, .ndjson, .json, .parquet")


def test_columns_that_are_not_there_are_named(tmp_path):
    path = write(tmp_path)
    refuses(path, ": has no column 'intent' for `label`; it has 'text', 'label', 'labels'", label="intent")
    refuses(path, ": has no column 'part' for `split`", label="label", split="part")
    refuses(path, ": has no column 'y_*' for `features`", label="label", features="y_*")
    refuses(path, ": has no column 'year' for `groups`", label="label", groups=["year"])


def test_arguments_that_exclude_each_other_are_refused(tmp_path):
    path = write(tmp_path)
    with pytest.raises(ValueError, match="`label` and `labels` must not both be given"):
        read_table(path, label="label", labels="labels")
    with pytest.raises(ValueError, match="`text` and `features` must not both be given"):
        read_table(path, text="text", features="x_*", label="label")
    with pytest.raises(ValueError, match="`label_names` must not be given for labels in columns"):
        read_table(path, labels="tag_*", label_names=["red", "big"])
    with pytest.raises(ValueError, match="`separator` must not be empty"):
        read_table(path, labels="labels", separator="")


def test_a_whole_table_of_numbers_agrees_with_numpy(tmp_path):
    values = np.random.default_rng(0).normal(size=(2500, 4)).astype(np.float32)
    path = tmp_path / "a.csv"
    lines = [",".join([*map(repr, row.tolist()), str(number % 7)]) for number, row in enumerate(values)]
    path.write_text("a,b,c,d,label\n" + "\n".join(lines))
    table = read_table(path)
    assert np.array_equal(table.inputs.batch(torch.arange(2500)).numpy(), values)
    assert table.targets.tolist() == [number % 7 for number in range(2500)]


def test_parts_have_one_name_however_they_are_spelled(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label,split\na,x,TEST\nb,x,Train\nc,x, training \nd,x,Dev\ne,x,Holdout\n")
    split = read_table(path).split
    assert split.names == ("train", "val", "test", "Holdout")
    assert split.index.tolist() == [2, 0, 0, 1, 3]


def test_a_key_may_be_missing_from_the_first_record(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [{"text": "a"}, {"text": "b", "labels": ["x"], "split": "test"}, {"labels": ["y", "x"], "source": "web"}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    data = read_table(path)
    assert [data[row].labels for row in range(3)] == [(), ("x",), ("x", "y")]
    assert parts_of(data) == (("test",), [-1, 0, -1])
    assert data.row_groups["source"].index.tolist() == [-1, -1, 0]
    path.write_text('{"label": "x", "a": 1}\n{"label": "y", "a": 2, "b": 3}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl` line 1: 'b' must be a finite number; got None\.$"):
        read_table(path)  # Not silently without the feature.


def test_a_column_of_names_among_the_numbers_is_left_out(tmp_path):
    path = tmp_path / "plants.csv"
    path.write_text("id,height,label\np1,3,rose\np2,4,daisy\n")
    assert read_table(path).inputs.shape == (1,)
    assert table_roles(path).remark.endswith("Not used: 'id'.")
    path.write_text("height,label\n3,rose\nnan,daisy\n")
    refuses(path, "line 3: 'height' must be a finite number; got 'nan'", label="label")

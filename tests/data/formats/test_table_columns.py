"""Columns that nobody named are found, said and, where in doubt, asked about."""

import gzip
import subprocess

import numpy as np
import pytest
import torch

from shortlist.data.formats.table_columns import label_names_in, several_labels
from shortlist.data.formats.tables import read_table, table_roles
from shortlist.errors import ChoiceError, InputError

WORDS = ("red", "blue", "green", "old", "new")


def write(path, header, *columns, delimiter=",", encoding="utf-8", rows=40):
    """A table whose columns are functions of the row."""
    lines = [delimiter.join(header), *(delimiter.join(str(column(row)) for column in columns) for row in range(rows))]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def text(row):
    return f"number {row} is a {WORDS[row % 5]} thing"


def kind(row):
    return ("cat", "dog", "é")[row % 3]


@pytest.mark.parametrize(
    ("header", "columns", "roles"),
    [
        (["definition", "category"], (text, kind), {"text": ["definition"], "label": "category"}),
        (["Frage", "Antwort"], (text, kind), {"text": ["Frage"], "label": "Antwort"}),
        (["sentence", "stars"], (text, lambda row: row % 5), {"text": ["sentence"], "label": "stars"}),
        (["title", "body", "intent"], (text, text, kind), {"text": ["title", "body"], "label": "intent"}),
        (
            ["id", "when", "text", "label"],
            (int, lambda row: f"2024-01-{row % 28 + 1:02}", text, kind),
            {"label": "label"},
        ),
        (["w", "h", "species"], (lambda row: row / 7, lambda row: -row, kind), {"features": ["w", "h"]}),
        (["name", "w", "species"], (lambda row: f"p{row}", lambda row: row / 7, kind), {"features": ["w"]}),
        (["text", "label", "set"], (text, kind, lambda row: ("Train", "dev", "test")[row % 3]), {"split": "set"}),
        (["doc", "tags"], (text, lambda row: "cat|dog" if row % 2 else "dog"), {"labels": "tags", "separator": "|"}),
    ],
)
def test_columns_are_found_by_their_names_and_values(tmp_path, header, columns, roles):
    path = write(tmp_path / "a.csv", header, *columns)
    found = table_roles(path)
    assert {role: found.options[role] for role in roles} == roles
    assert found.remark
    assert len(read_table(path)) == 40


def test_a_first_line_that_is_a_row_is_noticed(tmp_path):
    path = write(tmp_path / "a.csv", [text(0), "cat"], text, kind)
    said = "The first line seems to be a row, because 'cat' is a label, too"
    command = f"(echo text,label; cat {path}) > {tmp_path / 'named-a.csv'}"
    assert table_roles(path).remark.endswith(f"{said}; with a line of names above it: {command}")
    subprocess.run(command, shell=True, check=True)
    assert len(read_table(tmp_path / "named-a.csv")) == 41
    assert table_roles(tmp_path / "named-a.csv").remark == ""
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert table_roles(packed).remark.endswith(f"{said}: put a line of names above it.")
    assert said not in table_roles(path, label="cat").remark
    assert said not in table_roles(write(tmp_path / "b.csv", ["question", "animal"], text, kind)).remark


def test_usual_columns_need_no_remark(tmp_path):
    assert table_roles(write(tmp_path / "a.csv", ["text", "label"], text, kind)).remark == ""


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_delimiter_and_encoding_are_found(tmp_path, delimiter, encoding):
    path = write(tmp_path / "a.csv", ["text", "label"], text, kind, delimiter=delimiter, encoding=encoding)
    assert read_table(path).label_names == ("cat", "dog", "é")
    remark = table_roles(path).remark
    assert (f"delimiter {delimiter!r}" in remark, "cp1252" in remark) == (delimiter != ",", encoding == "latin-1")


def test_decimal_commas_are_numbers_only_beside_semicolons(tmp_path):
    path = write(tmp_path / "a.csv", ["w", "label"], lambda row: f"{row},5", kind, delimiter=";")
    assert float(read_table(path).inputs.batch(torch.tensor([3]))[0, 0]) == 3.5


def test_utf_16_says_how_to_convert_it(tmp_path):
    path = write(tmp_path / "a.csv", ["text", "label"], text, kind, encoding="utf-16")
    with pytest.raises(InputError, match=r"iconv -f UTF-16 -t UTF-8 a.csv > utf8-a.csv"):
        read_table(path)


@pytest.mark.parametrize(("cell", "choice"), [("b;a", {"separator": ";"}), ("b|a", {"separator": "|"})])
def test_several_labels_in_a_cell_are_asked_about(tmp_path, cell, choice):
    path = write(tmp_path / "a.csv", ["text", "label"], text, lambda row: (cell, "a", "b", "c")[row % 4])
    with pytest.raises(ChoiceError, match=r"'label' seems to hold several labels per row") as caught:
        read_table(path)
    assert caught.value.choices == [{"labels": "label", **choice}, {"label": "label"}]
    sets, classes = (read_table(path, **chosen) for chosen in caught.value.choices)
    assert (sets.label_names, len(classes.label_names)) == (("a", "b", "c"), 4)


def test_lists_in_json_are_sets(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabels\n" + "".join(f'{text(row)}\t["a", "b"]\n' for row in range(9)))
    assert read_table(path)[0].labels == ("a", "b")


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        (str(["a", "b's", 'c"']), ["a", "b's", 'c"']),
        (str(("a",)), ["a"]),
        (str({"a b"}), ["a b"]),
        (str(np.array(["a", "b, c"])), ["a", "b, c"]),
        (str(["a\xa0b", "c\\d"]), ["a\xa0b", "c\\d"]),
        ("[]", []),
        ("(owl)", ["(owl)"]),
        ("['a', b]", ["['a', b]"]),
        ("['a'", ["['a'"]),
        (str({"a": 1}), ["{'a': 1}"]),
        ("[" * 10**5, ["[" * 10**5]),
        ("['" + "\\" * 10**5, ["['" + "\\" * 10**5]),
    ],
    ids=["list", "tuple", "set", "numpy", "escapes", "none", "parentheses", "unquoted", "open", "dict", "deep", "long"],
)
def test_lists_as_python_writes_them_are_lists(cell, labels):
    assert label_names_in(cell, ";") == labels


def test_a_column_of_lists_that_pandas_wrote_is_read_as_sets(tmp_path):
    lists = [["a", "b"], ["b"], ["c", "a"]]
    path = write(tmp_path / "a.csv", ["text", "tags"], text, lambda row: f'"{lists[row % 3]}"')
    assert read_table(path).label_names == ("a", "b", "c")
    path = write(tmp_path / "a.csv", ["text", "label"], text, lambda row: f'"{lists[row % 3]}"')
    with pytest.raises(
        ChoiceError, match=r"'label' seems to hold several labels per row, as a list, such as"
    ) as caught:
        read_table(path)
    assert caught.value.choices == [{"labels": "label"}, {"label": "label"}]


def test_rows_without_a_class_can_be_left_out(tmp_path):
    path = write(tmp_path / "a.csv", ["text", "label"], text, lambda row: "" if row == 7 else kind(row))
    with pytest.raises(ChoiceError, match=r"line 9: 'label' must name a class; got an empty cell") as caught:
        read_table(path)
    left_out, sets = (read_table(path, **choice) for choice in caught.value.choices)
    assert (len(left_out), left_out.targets.tolist()[6:8]) == (39, [0, 2])
    assert left_out.inputs.batch(torch.tensor([7])) == [text(8)]
    assert (len(sets), sets[7].labels) == (40, ())
    with pytest.raises(ChoiceError) as caught:
        read_table(path, label="label")
    assert caught.value.choices == [{"skip_unlabeled": True}]
    assert len(read_table(path, labels="label", skip_unlabeled=True)) == 39
    with pytest.raises(InputError, match=r"`skip_unlabeled` needs one column of labels; got 2\.$"):
        read_table(path, text="text", labels=["text", "label"], skip_unlabeled=True)


def test_a_choice_between_columns_is_offered(tmp_path):
    path = write(tmp_path / "a.csv", ["review", "city", "brand"], text, kind, lambda row: WORDS[row % 5])
    with pytest.raises(ChoiceError) as caught:
        read_table(path)
    assert caught.value.choices == [{"label": "city"}, {"label": "brand"}]
    path = write(tmp_path / "b.csv", ["comment", "rude", "threat"], text, lambda row: row % 2, lambda row: row // 2 % 2)
    with pytest.raises(ChoiceError) as caught:
        read_table(path)
    assert caught.value.choices[0] == {"labels": ["rude", "threat"]}
    assert read_table(path, **caught.value.choices[0]).label_names == ("rude", "threat")


def test_a_missing_number_offers_to_leave_its_column_out(tmp_path):
    path = write(
        tmp_path / "a.csv", ["w", "h", "label"], lambda row: row / 9, lambda row: "" if row == 7 else row / 3, kind
    )
    with pytest.raises(ChoiceError, match=r"line 9: 'h' must be a finite number; got ''\.$") as caught:
        read_table(path)
    assert caught.value.choices == [{"features": ["w"]}]


def test_commas_inside_names_do_not_separate():
    assert several_labels(["Neoplasms, Lung", "Neoplasms, Breast", "Heart"]) is None
    assert several_labels(["a, b", "b, c", "a", "c, a"]) == ","

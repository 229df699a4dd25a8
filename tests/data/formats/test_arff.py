"""Multi-label ARFF: Mulan's pairs with their XML, MEKA's options, and one sentence per fault."""

import pytest
import torch

from shortlist.data import Features, SparseRows, Texts
from shortlist.data.formats.arff import read_arff
from tests.data.datasets import parts_of

XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="Beach"></label>
<label name="Fall Foliage"/>
</labels>"""

MULAN = """% Scene, as Mulan publishes it
@RELATION scene

@Attribute Att1 numeric
@attribute\t'Att 2'\tREAL   % a remark
@attribute kind {indoor, 'out door', "d\\'or"}
@attribute Beach {0,1}
@attribute 'Fall Foliage' {0, 1}

@DATA
"""
ROWS = ["0.5,-1e-3,indoor,1,0", "2, 3 ,'out door', 0,?", "% nothing", "", '7\t8\t"d\'or"\t1\t1']

MEKA = """@relation '{}'
@attribute sad {{0,1}}
@attribute calm {{0,1}}
@attribute tempo integer
@attribute pitch numeric
@data
1,0,60,1
0,1,70,2
?,1,80,3
"""


def save(folder, files: dict[str, str]):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def dense_targets(data) -> list[list[float]]:
    return data.targets.to_dense().tolist()


def mulan(rows=ROWS) -> str:
    return MULAN + "".join(row + "\n" for row in rows)


def test_a_mulan_file_comes_back_with_names_kinds_and_unknown_labels(tmp_path):
    save(tmp_path, {"scene.arff": mulan(), "scene.xml": XML, "other.xml": "<labels/>"})
    data = read_arff(tmp_path / "scene.arff")
    assert isinstance(data.inputs, Features)
    batch = data.batch([0, 1, 2])
    expected = torch.tensor([[0.5, -1e-3, 0], [2, 3, 1], [7, 8, 2]])
    assert batch.inputs.dtype == torch.float32
    assert torch.equal(batch.inputs, expected)
    assert dense_targets(data) == [[1, 0], [0, -1], [1, 1]]
    assert data.label_names == ("Beach", "Fall Foliage")
    assert data.name == "scene"
    assert data.split is None


@pytest.mark.parametrize("stem", ["scene-{}", "scene_{}", "Scene{}-1", "scene-{}-sparse"])
def test_a_pair_is_found_from_its_folder_or_its_train_file(tmp_path, stem):
    names = {part: stem.format(part) + ".arff" for part in ("train", "test")}
    save(tmp_path, {names["train"]: mulan(ROWS[:1]), names["test"]: mulan(ROWS[1:]), "scene.xml": XML})
    save(tmp_path, {"scene.arff": mulan()})
    for path in (tmp_path, tmp_path / names["train"]):
        data = read_arff(path)
        assert parts_of(data) == (("train", "test"), [0, 1, 1])
        assert dense_targets(data.part("test")) == [[0, -1], [1, 1]]
    assert len(read_arff(tmp_path / names["test"])) == 2


def test_sparse_rows_leave_out_what_has_the_first_value(tmp_path):
    head = "@relation s\n@attribute a numeric\n@attribute b {x,'y, z'}\n@attribute c numeric\n"
    head += "@attribute L0 {0,1}\n@attribute L1 {1,0}\n@attribute L2 numeric\n@data\n"
    rows = ["{0 1.5, 3 1}", "{ 2 7,1 'y, z',4 0 }", "{}", "{3 ?,4 ?,5 1}", "{0 0, 5 1.0}"]
    save(tmp_path, {"s.arff": head + "\n".join(rows)})
    data = read_arff(tmp_path, labels=["L2", "L0", "L1"])
    assert isinstance(data.inputs, SparseRows)
    assert data.inputs.columns.dtype == torch.int32
    assert data.inputs.batch(torch.arange(5)).to_dense().tolist() == [
        [1.5, 0, 0],
        [0, 1, 7],
        [0, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
    ]
    assert data.label_names == ("L0", "L1", "L2")
    assert dense_targets(data) == [[1, 1, 0], [0, 0, 0], [0, 1, 0], [-1, -1, 1], [0, 1, 1]]


def test_the_option_of_meka_says_where_the_labels_are(tmp_path):
    path = tmp_path / "music.arff"
    path.write_text(MEKA.format("Music: -C 2 -S 1"))
    data = read_arff(path)
    assert (data.name, data.label_names, data.split) == ("Music", ("sad", "calm"), None)
    assert dense_targets(data) == [[1, 0], [0, 1], [-1, 1]]
    assert data.batch([0, 1, 2]).inputs.tolist() == [[60, 1], [70, 2], [80, 3]]
    path.write_text("@relation 'Music: -c -1'\n@attribute x numeric\n@attribute y {0,1}\n@data\n5,1\n")
    assert read_arff(path).label_names == ("y",)
    path.write_text("@relation Music: -C -1\n@attribute x numeric\n@attribute y {0,1}\n@data\n5,1\n")
    assert read_arff(path).batch([0]).inputs.tolist() == [[5]]


@pytest.mark.parametrize(("number", "parts"), [(2, [0, 0, 1]), (0, [1, 1, 1]), (3, [0, 0, 0])])
def test_the_option_of_meka_says_how_many_rows_are_for_training(tmp_path, number, parts):
    path = tmp_path / "music.arff"
    path.write_text(MEKA.format(f"Music: -C 2 -split-number {number}"))
    split = read_arff(path).split
    assert split is not None
    assert split.index.tolist() == parts
    assert split.names == ("train", "test")


def test_a_single_string_is_a_text(tmp_path):
    head = "@relation 'mail: -C 1'\n@attribute spam {0,1}\n@attribute words string\n@data\n"
    save(tmp_path, {"m.arff": head + "1,'don\\'t, 50% \"now\"\\n\\u00e9té'\n0,plain\n"})
    data = read_arff(tmp_path / "m.arff")
    assert isinstance(data.inputs, Texts)
    assert data.inputs.texts == ['don\'t, 50% "now"\nété', "plain"]
    assert dense_targets(data) == [[1], [0]]


def test_nested_labels_are_flattened_and_names_may_be_odd(tmp_path):
    names = ["a/b", "été “x”", "it's", "100%"]
    xml = '<labels><label name="a/b"><label name="été “x”"/></label>'
    xml += '<label name="it&apos;s"/><label name="100&#37;"/></labels>'
    attributes = ["'a/b'", '"été “x”"', "'it\\'s'", "'100%'"]
    text = "@relation r\n" + "".join(f"@attribute {name} {{0,1}}\n" for name in attributes)
    save(tmp_path, {"r.arff": text + "@attribute f real\n@data\n1,0,1,0,2.5\n", "r.xml": xml})
    data = read_arff(tmp_path)
    assert data.label_names == tuple(names)
    assert data[0].labels == ("a/b", "it's")


@pytest.mark.parametrize("stated", ["", "{}\n"])
def test_files_of_no_rows_and_of_empty_rows_are_read(tmp_path, stated):
    save(tmp_path, {"scene.arff": MULAN + stated, "scene.xml": XML})
    data = read_arff(tmp_path)
    assert len(data) == bool(stated)
    assert data.num_labels == 2
    assert data.label_counts().tolist() == [0, 0]


def test_a_missing_feature_is_refused_unless_a_number_is_given_for_it(tmp_path):
    save(tmp_path, {"scene.arff": mulan(["1,?,?,1,0"]), "scene.xml": XML})
    with pytest.raises(ValueError, match=r"`.*scene.arff` line 11: attribute 'Att 2' is missing; `missing` can give"):
        read_arff(tmp_path)
    assert read_arff(tmp_path, missing=-5.0).batch([0]).inputs.tolist() == [[1, -5, -5]]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("1,2,indoor,1", "a row must have 5 values; got 4"),
        ("1,2,indoor,1,0,{3}", "a row must have 5 values; got 6"),
        ("1,,indoor,1,0", "a row must have 5 values; got 4"),
        ("1,x,indoor,1,0", "attribute 'Att 2' must be a number; got 'x'"),
        ("1,1_0,indoor,1,0", "attribute 'Att 2' must be a number; got '1_0'"),
        ("1,٣,indoor,1,0", "attribute 'Att 2' must be a number; got '٣'"),
        ("1,nan,indoor,1,0", "attribute 'Att 2' must be a finite float32; got nan"),
        ("1,1e39,indoor,1,0", r"attribute 'Att 2' must be a finite float32; got 1e\+39"),
        ("1,2,garden,1,0", "attribute 'kind' must be one of indoor, out door, d'or; got 'garden'"),
        ("1,2,'indoor,1,0", r"quotes must open and close around a whole value; got .*"),
        ("1,2,indoor,2,0", r"attribute 'Beach' must be 0, 1 or \?; got '2'"),
        ("{0 1}", r"either all rows must be in braces or none; got '\{0 1\}'"),
    ],
)
def test_a_fault_in_a_row_is_reported_with_its_file_and_line(tmp_path, row, sentence):
    save(tmp_path, {"scene.arff": mulan([ROWS[0], row]), "scene.xml": XML})
    with pytest.raises(ValueError, match=rf"`.*scene.arff` line 12: .*{sentence}\.$"):
        read_arff(tmp_path)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("{0 1", "a row must end with its brace, without a weight; got '{0 1'"),
        ("{0 1}, {2}", "a row must end with its brace, without a weight"),
        ("{0 1, 2}", "values in braces must be written as number value; got '2'"),
        ("{0 1,}", "values in braces must be written as number value; got ''"),
        ("{x 1}", "values in braces must be written as number value; got 'x 1'"),
        ("{5 1}", r"attribute 5 must lie in \[0, 5\)"),
        ("{0 1,0 2}", "attribute 0 must occur once; got it twice"),
        ("{0 inf}", "attribute 'Att1' must be a finite float32; got inf"),
        ("{3 5}", r"attribute 'Beach' must be 0, 1 or \?; got '5'"),
    ],
)
def test_a_fault_in_a_row_of_pairs_is_reported_with_its_file_and_line(tmp_path, row, sentence):
    save(tmp_path, {"scene.arff": mulan(["{0 1}", row]), "scene.xml": XML})
    with pytest.raises(ValueError, match=rf"`.*scene.arff` line 12: .*{sentence}.*\.$"):
        read_arff(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "` ends at line 0 without @data, so it is not a complete ARFF file"),
        ("@relation x\n@attribute a numeric\n", "` ends at line 2 without @data"),
        ("@relation x\n@data\n1\n", "` line 2: data must come after at least one attribute; got none"),
        ("a,b\n1,2\n", "` line 1: must be @relation, @attribute or @data; got 'a,b'"),
        ("@attribute a\n@data\n", "line 1: attribute 'a' must be numeric, .*; got ''"),
        ("@attribute a relational\n", "line 1: attribute 'a' must be numeric, .*; got 'relational'"),
        ("@attribute\n", "line 1: an attribute must be written as @attribute name kind; got '@attribute'"),
        ("@attribute a {0,1\n", "line 1: the values of attribute 'a' must end with a brace"),
        ("@attribute a {0,0}\n", "line 1: the values of attribute 'a' must differ"),
        ("@attribute a real\n@attribute 'a' real\n", "line 2: attribute 'a' must be declared once; got it twice"),
        ("@relation 'x: -C 3'\n@attribute a real\n@data\n", "-C in the relation must name 1 to 1 attributes; got 3"),
        ("@relation x\n@attribute a real\n@data\n", "states no labels: give `labels`, or put an XML file"),
        (
            "@relation 'x: -C 1'\n@attribute a {0,2}\n@data\n",
            "label 'a' must be declared .0,1. or numeric; got 0,2; several classes per target are a multi-output",
        ),
        ("@relation 'x: -C 1'\n@attribute a string\n@data\n", "must be declared .0,1. or numeric; got string"),
        (MEKA.format("x: -C 2 -split-number 4"), "has 3 rows; its relation says 4 of them are for training"),
        (MEKA.format("x: -C 2").replace("integer", "string"), "attribute 'tempo' must be numeric or nominal, or a st"),
        (MEKA.format("x: -C 2").replace("numeric", "date 'yyyy'"), "attribute 'pitch' must be .*; got date"),
    ],
)
def test_a_broken_header_is_refused(tmp_path, text, sentence):
    path = tmp_path / "bad.arff"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"`.*bad.arff.*{sentence}.*\.$"):
        read_arff(path)


@pytest.mark.parametrize(
    ("xml", "sentence"),
    [
        ("", "line 1 is not XML: no element found"),
        (XML[:-12], "line 4 is not XML: .*"),
        ("<a/>", "line 1: must be a list <labels> of <label>; got <a>"),
        ("<labels><tag/></labels>", "line 1: must be a list <labels> of <label>; got <tag>"),
        ("<labels>\n<label/></labels>", "line 2: a label must have a name"),
        ("<labels/>", "must list at least one label"),
        (
            '<labels><label name="a"/>\n<label name="a"/></labels>',
            "line 2: label 'a' must be listed once; got it twice",
        ),
        ('<labels><label name="Sea"/></labels>', "label 'Sea' must be an attribute of `.*scene.arff`"),
        (
            '<!DOCTYPE labels [<!ENTITY a "b">]>\n<labels><label name="&a;"/></labels>',
            "line 1: must not declare a document type or entities",
        ),
    ],
)
def test_a_list_of_labels_that_is_not_one_is_refused(tmp_path, xml, sentence):
    save(tmp_path, {"scene.arff": mulan(), "scene.xml": xml})
    with pytest.raises(ValueError, match=rf"`.*scene.xml`.*{sentence}\.$"):
        read_arff(tmp_path)


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    save(tmp_path, {"a.arff": mulan(), "a.xml": XML, "b.arff": mulan().replace("Att1", "Att0")})
    with pytest.raises(ValueError, match=r"`.*b.arff`: attribute 0, 'Att0', must be declared as in `.*a.arff`\.$"):
        read_arff(tmp_path / "a.arff", test=tmp_path / "b.arff")
    save(tmp_path, {"b.arff": mulan().replace("@attribute kind", "@attribute more real\n@attribute kind")})
    with pytest.raises(ValueError, match=r"`.*b.arff` must have the 5 attributes of `.*a.arff`; got 6\.$"):
        read_arff(tmp_path / "a.arff", test=tmp_path / "b.arff")
    save(tmp_path, {"b.arff": mulan(["{0 1}"])})
    with pytest.raises(ValueError, match=r"`.*b.arff`: rows must be in braces exactly if those of `.*a.arff` are\.$"):
        read_arff(tmp_path / "a.arff", test=tmp_path / "b.arff")
    with pytest.raises(
        ValueError, match=r"must hold one ARFF file or one pair, -train and -test; got a.arff, b.arff\.$"
    ):
        read_arff(tmp_path)
    with pytest.raises(ValueError, match=r"`test` must be None if `path` is a folder"):
        read_arff(tmp_path, test=tmp_path / "b.arff")
    with pytest.raises(ValueError, match=r"`labels` must name at least one attribute; got none\.$"):
        read_arff(tmp_path / "a.arff", labels=[])


def test_an_empty_test_file_takes_the_shape_of_the_train_file(tmp_path):
    save(tmp_path, {"s-train.arff": mulan(["{0 1,3 1}"]), "s-test.arff": mulan([]), "s.xml": XML})
    data = read_arff(tmp_path)
    assert (len(data.part("train")), len(data.part("test"))) == (1, 0)


def test_files_of_parts_belong_together_however_they_are_spelled(tmp_path):
    text = "@relation 'a: -C 1'\n@attribute sad {{0,1}}\n@attribute x numeric\n@data\n{}"
    for name, rows in (
        ("music_Testing.arff", "1,3\n"),
        ("music_training.arff", "1,1\n0,2\n"),
        ("music_dev.arff", "0,4\n"),
    ):
        (tmp_path / name).write_text(text.format(rows))
    for path in (tmp_path, tmp_path / "music_training.arff"):
        data = read_arff(path)
        assert parts_of(data) == (("train", "val", "test"), [0, 0, 1, 2])
        assert data.inputs.batch(torch.arange(4)).flatten().tolist() == [1, 2, 4, 3]
    assert read_arff(tmp_path / "music_dev.arff").split is None
    (tmp_path / "music_val.arff").write_text(text.format("0,4\n"))
    with pytest.raises(ValueError, match=r"music_dev\.arff` and `music_val\.arff` both are the part 'val'"):
        read_arff(tmp_path)

"""Multi-label ARFF: Mulan's pairs with their XML, MEKA's options, and one sentence per fault."""

import pytest
import torch

from shortlist.data import Features, SparseRows, Texts
from shortlist.data.formats.arff import read_arff
from tests.data.datasets import parts_of
from tests.data.formats.samples import MUSIC, SCENE, SCENE_LABELS

ROWS = ["0.5,-1e-3,indoor,1,0", "2, 3 ,'out door', 0,?", "% nothing", "", '7\t8\t"d\'or"\t1\t1']


def save(folder, files: dict[str, str]):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def dense_targets(data) -> list[list[float]]:
    return data.targets.to_dense().tolist()


def mulan(rows=ROWS) -> str:
    return SCENE + "".join(row + "\n" for row in rows)


def test_a_mulan_file_comes_back_with_names_kinds_and_unknown_labels(tmp_path):
    save(tmp_path, {"scene.arff": mulan(), "scene.xml": SCENE_LABELS, "other.xml": "<labels/>"})
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
    save(tmp_path, {names["train"]: mulan(ROWS[:1]), names["test"]: mulan(ROWS[1:]), "scene.xml": SCENE_LABELS})
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
    path.write_text(MUSIC.replace("%", "-S 1"))
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
    path.write_text(MUSIC.replace("%", f"-split-number {number}"))
    split = read_arff(path).split
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


def test_a_missing_feature_is_refused_unless_a_number_is_given_for_it(tmp_path):
    save(tmp_path, {"scene.arff": mulan(["1,?,?,1,0"]), "scene.xml": SCENE_LABELS})
    with pytest.raises(ValueError, match=r"`.*scene.arff` line 11: attribute 'Att 2' is missing; `missing` can give"):
        read_arff(tmp_path)
    assert read_arff(tmp_path, missing=-5.0).batch([0]).inputs.tolist() == [[1, -5, -5]]


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    save(tmp_path, {"a.arff": mulan(), "a.xml": SCENE_LABELS, "b.arff": mulan().replace("Att1", "Att0")})
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
    save(tmp_path, {"s-train.arff": mulan(["{0 1,3 1}"]), "s-test.arff": mulan([]), "s.xml": SCENE_LABELS})
    data = read_arff(tmp_path)
    assert (len(data.part("train")), len(data.part("test"))) == (1, 0)

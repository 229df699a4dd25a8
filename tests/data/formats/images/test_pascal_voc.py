"""Pascal VOC, from samples in the published layout."""

from pathlib import Path

import pytest
import torch

from shortlist.data.formats.images.pascal_voc import read_voc
from tests.data.datasets import parts_of
from tests.data.formats.samples import VOC_NAMES, annotate, lines, thing


def enlist(root: Path, name: str, *content: str) -> Path:
    return lines(root / f"ImageSets/Main/{name}.txt", *content)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "VOCdevkit" / "VOC2012"
    head = "<part><name>head</name><bndbox/></part>"
    annotate(root, "2007_000027", thing("person", inner=head), thing("person", "1"), thing("dog", "1"))
    annotate(root, "2008_000008", thing("horse"), thing("person", None))
    annotate(root, "2008_000002", thing("tvmonitor", "1"), thing("tvmonitor", "1"))
    annotate(root, "2009_999999", thing("cat"))  # in no list of Main, as images for segmentation alone
    enlist(root, "train", "2008_000008", "2007_000027")
    enlist(root, "val", "2008_000002")
    enlist(root, "trainval", "2008_000008", "2007_000027", "2008_000002")
    return root


def known(dataset, row: int) -> tuple[set[str], set[str]]:
    values = dataset.targets.to_dense()[row]
    names = dataset.label_names
    return (
        {name for name, value in zip(names, values, strict=True) if value == 1},
        {name for name, value in zip(names, values, strict=True) if value == -1},
    )


def test_labels_are_present_by_a_plain_object_and_unknown_by_difficult_ones(root):
    voc = read_voc(root)
    assert voc.targets.layout == torch.sparse_csr
    assert voc.label_names == tuple(VOC_NAMES)
    assert known(voc, 0) == ({"horse", "person"}, set())
    assert known(voc, 1) == ({"person"}, {"dog"})
    assert known(voc, 2) == (set(), {"tvmonitor"})
    assert voc.name == "Pascal VOC2012"


def test_lists_give_rows_and_split_and_images_are_jpeg(root):
    voc = read_voc(root, size=8)
    assert len(voc) == 3
    assert parts_of(voc) == (("train", "val"), [0, 0, 1])
    assert voc.inputs.kind == "images"
    assert [voc.inputs.path(row).name for row in range(3)] == ["2008_000008.jpg", "2007_000027.jpg", "2008_000002.jpg"]
    assert voc.inputs.path(0).parent == root / "JPEGImages"
    assert voc.inputs.size == 8


def test_superclasses_are_those_of_the_challenge(root):
    superclass = read_voc(root).label_groups["superclass"]
    assert superclass.names == ("animal", "indoor", "person", "vehicle")
    assert superclass.counts().tolist() == [6, 6, 1, 7]
    assert superclass.names[superclass.index[VOC_NAMES.index("diningtable")]] == "indoor"


def test_the_folder_above_is_enough_if_it_holds_one_year(root):
    assert len(read_voc(root.parent)) == 3
    assert len(read_voc(root.parent.parent)) == 3
    (root.parent / "VOC2007" / "Annotations").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"must hold one year; got VOC2007, VOC2012: pass one of them\.$"):
        read_voc(root.parent)


def test_without_lists_all_annotated_images_are_rows_by_name(tmp_path):
    for image in ("b", "a 1", "ç"):
        annotate(tmp_path, image, thing("cow"))
    voc = read_voc(tmp_path)
    assert voc.split is None
    assert [voc.inputs.path(row).stem for row in range(3)] == ["a 1", "b", "ç"]


def test_other_names_are_sorted_and_have_no_superclass(tmp_path):
    annotate(tmp_path, "1", thing("zèbre & co"), thing("person"), thing('"quoted"', "1"))
    voc = read_voc(tmp_path)
    assert voc.label_names == ('"quoted"', "person", "zèbre & co")
    assert voc.label_groups == {}
    assert voc.targets.to_dense().tolist() == [[-1, 1, 1]]


def test_an_image_without_objects_has_no_labels(tmp_path):
    annotate(tmp_path, "1")
    voc = read_voc(tmp_path)
    assert voc.targets.shape == (1, 20)
    assert voc.targets.values().numel() == 0


def test_class_lists_stand_in_for_xml(tmp_path):
    enlist(tmp_path, "val", "000005", "000007", "")
    enlist(tmp_path, "car_val", "000005 -1", "000007  1")
    enlist(tmp_path, "chair_val", "000007  0", "000005  1")
    enlist(tmp_path, "chair_trainval", "nonsense")
    enlist(tmp_path, "sofa_val", "000005 -1", "000007 -1")
    voc = read_voc(tmp_path)
    assert known(voc, 0) == ({"chair"}, set())
    assert known(voc, 1) == ({"car"}, {"chair"})
    assert voc.label_names == tuple(VOC_NAMES)


def test_class_lists_of_other_names_keep_a_class_without_images(tmp_path):
    enlist(tmp_path, "train", "my image", "2")
    enlist(tmp_path, "red_kite_train", "my image 1", "2 -1")
    enlist(tmp_path, "dodo_train", "my image -1", "2 -1")
    voc = read_voc(tmp_path)
    assert voc.label_names == ("dodo", "red_kite")
    assert voc.targets.to_dense().tolist() == [[0, 1], [0, 0]]


def test_a_test_part_whose_labels_are_not_public_is_all_unknown(root):
    enlist(root, "test", "2008_000001", "2008_000004")
    voc = read_voc(root)
    assert len(voc.part("test")) == 2
    assert (voc.part("test").targets.to_dense() == -1).all()
    assert known(voc, 0) == ({"horse", "person"}, set())


def test_a_listed_image_without_xml_is_named(root):
    (root / "Annotations" / "2007_000027.xml").unlink()
    with pytest.raises(ValueError, match=r"train\.txt` line 2: image '2007_000027' has no `.*2007_000027\.xml`\.$"):
        read_voc(root)


def test_images_without_any_labels_are_refused_but_for_the_test_part(tmp_path):
    enlist(tmp_path, "train", "1")
    with pytest.raises(ValueError, match=r"train\.txt` lists images that have neither XML files nor class lists\.$"):
        read_voc(tmp_path)


def test_an_image_of_two_parts_is_a_row_of_both_and_is_named(root):
    enlist(root, "val", "2008_000002", "2008_000008")
    with pytest.warns(UserWarning, match=r"val\.txt` line 2: image '2008_000008' is also in `.*train\.txt` line 1"):
        voc = read_voc(root)
    rows = {part: [voc.inputs.path(row).stem for row in voc.part_rows(part).tolist()] for part in ("train", "val")}
    assert "2008_000008" in rows["train"]
    assert rows["val"] == ["2008_000002", "2008_000008"]
    enlist(root, "val", "2008_000002", "2008_000002")
    with pytest.raises(ValueError, match=r"val\.txt` line 2: image '2008_000002' must be listed once"):
        read_voc(root)


def test_entities_in_utf_16_are_refused_too(tmp_path):
    bomb = '<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><annotation>&b;</annotation>'
    annotate(tmp_path, "1").write_bytes(bomb.encode("utf-16"))
    with pytest.raises(ValueError, match=r"1\.xml` cannot be read as XML: it must not have a DOCTYPE\.$"):
        read_voc(tmp_path)


def test_xml_in_utf_16_is_read(tmp_path):
    xml = f'<?xml version="1.0" encoding="utf-16"?><annotation>{thing("vélo")}</annotation>'
    annotate(tmp_path, "1").write_bytes(xml.encode("utf-16"))
    assert read_voc(tmp_path).label_names == ("vélo",)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must hold `Annotations` or `ImageSets/Main`; it does not\.$"):
        read_voc(tmp_path)


@pytest.mark.parametrize("with_test", [False, True])
def test_trainval_alone_is_for_training(tmp_path, with_test):
    annotate(tmp_path, "b", thing("cow"))
    annotate(tmp_path, "a", thing("dog"))
    enlist(tmp_path, "trainval", "b", "a")
    if with_test:
        enlist(tmp_path, "test", "z")
    data = read_voc(tmp_path)
    assert parts_of(data) == ((("train", "test") if with_test else ("train",)), [0, 0, 1][: len(data)])
    assert [data.inputs.path(row).stem for row in range(2)] == ["b", "a"]
    enlist(tmp_path, "trainval", "b", "q")
    with pytest.raises(ValueError, match=r"trainval\.txt` line 2: image 'q' has no"):
        read_voc(tmp_path)
    enlist(tmp_path, "train", "a")
    assert data.label_names[int(read_voc(tmp_path).targets.col_indices()[0])] == "dog"


def test_an_unspecified_difficulty_is_none(tmp_path):
    annotate(tmp_path, "a", thing("cow", "Unspecified"), thing("dog", "1"))
    example = read_voc(tmp_path).targets.to_dense()[0]
    assert (example[VOC_NAMES.index("cow")], example[VOC_NAMES.index("dog")]) == (1, -1)

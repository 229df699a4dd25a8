"""COCO instances: which files of a folder are read, and where their images lie."""

import json
from pathlib import Path

import pytest

from shortlist.data.formats.images.coco import read_coco
from tests.data.datasets import parts_of, values_of
from tests.data.formats.samples import coco, coco_file, instances, put


def change(file: Path, **lists: list) -> Path:
    """Replace some of the lists of a file."""
    return put(file, json.dumps({**json.loads(file.read_text()), **lists}))


def test_a_file_gives_categories_by_id_with_crowds_and_images_without_annotations(tmp_path):
    file = instances(tmp_path / "annotations/instances_val2017.json", 7, [[3, 18], [], [1]])
    outlines = file.read_text().replace('"segmentation": [[1, 1, 2, 2, 1, 2]]', '"segmentation": {"counts": [272]}')
    found = read_coco(put(file, outlines.replace('"iscrowd": 0', '"iscrowd": 1')))
    assert found.label_names == ("person", "car", "dog")
    assert found.targets.to_dense().tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    superclass = found.label_groups["superclass"]
    assert values_of(superclass) == ["person", "vehicle", "animal"]
    assert (found.split.names, found.name) == (("val",), "COCO 2017")


def test_images_lie_beside_the_annotations_or_elsewhere_by_part_or_in_one_folder(tmp_path):
    file, name = coco_file(tmp_path), "000000000008.jpg"
    beside = read_coco(file, size=32).inputs
    assert (beside.path(1), beside.size) == (tmp_path / "val2017" / name, 32)
    assert read_coco(file, images=tmp_path / "all").inputs.path(1) == tmp_path / "all" / name
    (tmp_path / "all" / "val2017").mkdir(parents=True)
    assert read_coco(file, images=tmp_path / "all").inputs.path(1) == tmp_path / "all" / "val2017" / name


@pytest.mark.parametrize("inner", ["annotations", "."])
def test_a_folder_gives_train_before_val(tmp_path, inner):
    found = read_coco(coco(tmp_path) / inner)
    assert parts_of(found) == (("train", "val"), [0, 0, 1])
    assert found.inputs.path(0) == tmp_path / "train2017" / "000000000001.jpg"
    assert found.targets.to_dense().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert len(read_coco(tmp_path / inner, split="VALID")) == 1


def test_a_folder_of_two_years_needs_the_year(tmp_path):
    other = instances(coco_file(tmp_path).with_name("instances_val2014.json"), 9, [[]])
    with pytest.raises(ValueError, match=r"^`year` must be one of 2014, 2017, which `.*annotations` holds; got None"):
        read_coco(tmp_path)
    assert read_coco(tmp_path, year=2014).inputs.path(0) == tmp_path / "val2014" / "000000000009.jpg"
    with pytest.raises(ValueError, match=r"must hold `instances_train2014\.json`; it does not\.$"):
        read_coco(tmp_path, split="train", year=2014)
    with pytest.raises(ValueError, match="`year` selects files of a folder; got 2014"):
        read_coco(other, year=2014)


def test_a_file_whose_name_says_nothing_has_the_split_that_is_passed_and_its_images_beside(tmp_path):
    file = coco_file(tmp_path).rename(tmp_path / "mine.json")
    assert read_coco(file).split is None
    assert read_coco(file).inputs.path(0).parent == tmp_path
    assert read_coco(file, split="Testing").split.names == ("test",)


def test_odd_names_and_categories_without_a_superclass_are_kept(tmp_path):
    names = ['tall "tree", old', "ça va", "点 点"]
    categories = [{"id": place, "name": name} for place, name in enumerate(names)]
    odd = {"images": [{"id": 1, "file_name": "dir/ü 1.jpg"}], "annotations": [], "categories": categories}
    found = read_coco(change(coco_file(tmp_path), **odd))
    assert found.label_names == tuple(names)
    assert found.label_groups == {}
    assert found.inputs.path(0) == tmp_path / "val2017" / "dir" / "ü 1.jpg"
    categories[1]["supercategory"] = "talk"
    found = read_coco(change(tmp_path / "annotations/instances_val2017.json", categories=categories))
    assert found.label_groups["superclass"].index.tolist() == [-1, 0, -1]


def test_files_of_a_folder_must_have_the_same_categories(tmp_path):
    file = coco(tmp_path) / "annotations/instances_val2017.json"
    change(file, annotations=[], categories=json.loads(file.read_text())["categories"][:2])
    with pytest.raises(ValueError, match=r"val2017\.json` must have the categories of `.*train2017.*; id 3 differs\.$"):
        read_coco(tmp_path)


def test_folders_of_images_are_named_as_the_files_are(tmp_path):
    file = coco_file(tmp_path)
    file.rename(file.with_name("instances_Training2017.json"))
    assert read_coco(tmp_path).inputs.path(0).parent.name == "Training2017"

"""COCO instances, from samples in the published layout."""

import json
from pathlib import Path

import pytest
import torch

from shortlist.data.formats.images.coco import read_coco
from tests.data.datasets import parts_of

CATEGORIES = [
    {"supercategory": "vehicle", "id": 8, "name": "truck"},
    {"supercategory": "person", "id": 1, "name": "person"},
    {"supercategory": "indoor", "id": 90, "name": "toothbrush"},
    {"supercategory": "vehicle", "id": 3, "name": "car"},
]
NAMES = ("person", "car", "truck", "toothbrush")


def image(number: int, name: str | None = None) -> dict:
    return {"file_name": name or f"{number:012d}.jpg", "height": 427, "width": 640, "id": number}


def annotation(number: int, of: int, category: int, *, crowd: bool = False) -> dict:
    outline = {"counts": [272, 2, 4], "size": [427, 640]} if crowd else [[510.66, 423.01, 511.72, 420.03]]
    return {"segmentation": outline, "iscrowd": int(crowd), "image_id": of, "category_id": category, "id": number}


def content(**changes) -> dict:
    sample = {
        "info": {"year": 2017},
        "licenses": [],
        "images": [image(397133), image(37777), image(9)],
        "annotations": [
            annotation(1768, 9, 3),
            annotation(1773, 397133, 90),
            annotation(1800, 9, 3),
            annotation(900100000001, 9, 1, crowd=True),
        ],
        "categories": CATEGORIES,
    }
    return {**sample, **changes}


def written(folder: Path, sample: object, name: str = "instances_val2017.json") -> Path:
    file = folder / "annotations" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(sample), encoding="utf-8")
    return file


def test_a_file_gives_categories_by_id_with_crowds_and_images_without_annotations(tmp_path):
    coco = read_coco(written(tmp_path, content()))
    assert coco.label_names == NAMES
    assert coco.targets.layout == torch.sparse_csr
    assert coco.targets.dtype == torch.float32
    assert coco.targets.to_dense().tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]]
    superclass = coco.label_groups["superclass"]
    assert [superclass.names[group] for group in superclass.index] == ["person", "vehicle", "vehicle", "indoor"]
    assert coco.split is not None
    assert coco.split.names == ("val",)
    assert coco.name == "COCO 2017"


def test_images_lie_beside_the_annotations_and_need_not_be_there(tmp_path):
    coco = read_coco(written(tmp_path, content()), size=32)
    assert coco.inputs.kind == "images"
    assert len(coco) == 3
    assert coco.inputs.path(2) == tmp_path / "val2017" / "000000000009.jpg"
    assert coco.inputs.size == 32


def test_images_may_lie_elsewhere_by_part_or_in_one_folder(tmp_path):
    file = written(tmp_path, content())
    assert read_coco(file, images=tmp_path / "all").inputs.path(1) == tmp_path / "all" / "000000037777.jpg"
    (tmp_path / "all" / "val2017").mkdir(parents=True)
    assert read_coco(file, images=tmp_path / "all").inputs.path(1).parent == tmp_path / "all" / "val2017"


@pytest.mark.parametrize("inner", ["annotations", "."])
def test_a_folder_gives_train_before_val(tmp_path, inner):
    written(tmp_path, content())
    written(tmp_path, content(images=[image(5)], annotations=[annotation(1, 5, 8)]), "instances_train2017.json")
    written(tmp_path, {"images": []}, "captions_val2017.json")
    coco = read_coco(tmp_path / inner)
    assert parts_of(coco) == (("train", "val"), [0, 1, 1, 1])
    assert coco.inputs.path(0) == tmp_path / "train2017" / "000000000005.jpg"
    assert coco.targets.to_dense().tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]]
    only = read_coco(tmp_path / inner, split="train")
    assert len(only) == 1


def test_a_folder_of_two_years_needs_the_year(tmp_path):
    written(tmp_path, content())
    written(
        tmp_path, content(images=[image(9, "COCO_val2014_000000000009.jpg")], annotations=[]), "instances_val2014.json"
    )
    with pytest.raises(
        ValueError, match=r"^`year` must be one of 2014, 2017, which `.*annotations` holds; got None\.$"
    ):
        read_coco(tmp_path)
    coco = read_coco(tmp_path, year=2014)
    assert coco.inputs.path(0) == tmp_path / "val2014" / "COCO_val2014_000000000009.jpg"
    with pytest.raises(ValueError, match=r"must hold `instances_train2014\.json`; it does not\.$"):
        read_coco(tmp_path, split="train", year=2014)
    with pytest.raises(ValueError, match="`year` selects files of a folder; got 2014"):
        read_coco(tmp_path / "annotations" / "instances_val2014.json", year=2014)


def test_a_file_whose_name_says_nothing_has_the_split_that_is_passed_and_its_images_beside(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(content()))
    coco = read_coco(file)
    assert coco.split is None
    assert coco.inputs.path(0).parent == tmp_path
    split = read_coco(file, split="test").split
    assert split is not None
    assert split.names == ("test",)


def test_odd_names_and_categories_without_a_superclass_are_kept(tmp_path):
    names = ['tall "tree", old', "ça va", "点 点"]
    categories = [{"id": place, "name": name} for place, name in enumerate(names)]
    coco = read_coco(
        written(tmp_path, content(images=[image(1, "dir/ü 1.jpg")], annotations=[], categories=categories))
    )
    assert coco.label_names == tuple(names)
    assert coco.label_groups == {}
    assert coco.inputs.path(0) == tmp_path / "val2017" / "dir" / "ü 1.jpg"
    categories[1]["supercategory"] = "talk"
    coco = read_coco(written(tmp_path, content(images=[], annotations=[], categories=categories)))
    assert coco.label_groups["superclass"].index.tolist() == [-1, 0, -1]


def test_no_images_is_a_dataset_without_rows(tmp_path):
    coco = read_coco(written(tmp_path, content(images=[], annotations=[])))
    assert len(coco) == 0
    assert coco.targets.shape == (0, 4)


BAD = {
    "image_id 4 without image": (
        {"annotations": [annotation(1, 9, 3), annotation(77, 4, 3)]},
        r"annotation with id 77: image_id must be an id of the images; got 4\.$",
    ),
    "category_id 2 without category": (
        {"annotations": [annotation(77, 9, 2)]},
        r"annotation with id 77: category_id must be an id of the categories; got 2\.$",
    ),
    "image twice": ({"images": [image(9), image(7), image(9)]}, r"image number 2: id 9 is also that of number 0\.$"),
    "annotation twice": (
        {"annotations": [annotation(5, 9, 3), annotation(5, 9, 1)]},
        r"annotation number 1: id 5 is also that of number 0\.$",
    ),
    "category twice": (
        {"categories": [*CATEGORIES, CATEGORIES[0]]},
        r"category number 4: id 8 is also that of number 0",
    ),
    "name twice": (
        {"categories": [*CATEGORIES, {"id": 91, "name": "car"}]},
        r"category number 4: name 'car' is also that of number 3\.$",
    ),
    "no category_id": (
        {"annotations": [{"id": 7, "image_id": 9, "caption": "a bear"}]},
        r"annotation with id 7: has no 'category_id'\.$",
    ),
    "no id": ({"annotations": [annotation(1, 9, 3), {}]}, r"annotation number 1: has no 'id'\.$"),
    "id of text": ({"images": [{**image(9), "id": "9"}]}, r"image number 0: 'id' must be int; got '9'\.$"),
    "id that is a bool": ({"annotations": [annotation(1, 9, True)]}, r"'category_id' must be int; got True\.$"),
    "no file name": ({"images": [{"id": 9}]}, r"image with id 9: has no 'file_name'\.$"),
    **{
        f"outside of the folder: {name}": (
            {"images": [image(9), image(10, name)]},
            r"image 1: `file_name` must lie in the folder of the images; got ",
        )
        for name in ("../../secret.jpg", "a/../../b.jpg", "/etc/passwd", "..\\b.jpg")
    },
    "half a character": (
        {"images": [image(9, "\ud800.jpg")]},
        r"image with id 9: file_name .* must be whole characters",
    ),
    "superclass of a number": (
        {"categories": [{"id": 1, "name": "a", "supercategory": 3}], "annotations": []},
        r"category with id 1: 'supercategory' must be str; got 3\.$",
    ),
    "images as a number": ({"images": 3}, r"'images' must be list; got 3\.$"),
    "image as a list": ({"images": [[1]]}, r"image number 0: must be an object with keys; got list\.$"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_record_that_is_wrong_is_named(tmp_path, case):
    changes, message = BAD[case]
    file = written(tmp_path, content(**changes))
    with pytest.raises(ValueError, match=rf"^`{file}`.* ?{message}"):
        read_coco(file)


def test_files_of_a_folder_must_have_the_same_categories(tmp_path):
    written(tmp_path, content(annotations=[], categories=CATEGORIES[:3]))
    written(tmp_path, content(), "instances_train2017.json")
    with pytest.raises(ValueError, match=r"val2017\.json` must have the categories of `.*train2017.*; id 3 differs\.$"):
        read_coco(tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (json.dumps(content(), indent=1).encode()[:-100], r"line \d\d+ is not JSON"),
        (b'{"images": [], "categories": []}', "holds no labels: it lists images without annotations"),
        (b"[1, 2]", "must be an object with keys; got list"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_whole_json_of_instances_is_refused(tmp_path, raw, message):
    file = tmp_path / "instances_val2017.json"
    file.write_bytes(raw)
    with pytest.raises(ValueError, match=rf"^`{file}`.*{message}.*\.$"):
        read_coco(file)


def test_parts_have_one_name_however_they_are_spelled(tmp_path):
    for name in ("instances_Training2017.json", "instances_validation2017.json"):
        (tmp_path / name).write_text(json.dumps(content()))
    data = read_coco(tmp_path)
    assert data.split.names == ("train", "val")
    assert data.inputs.path(0).parent.name == "Training2017"
    assert len(read_coco(tmp_path, split="VALID")) * 2 == len(data)
    assert read_coco(tmp_path / "instances_validation2017.json", split="Testing").split.names == ("test",)
    (tmp_path / "instances_val2017.json").write_text(json.dumps(content()))
    with pytest.raises(ValueError, match=r"`instances_val.*` and `instances_validation.*` both are the part .val."):
        read_coco(tmp_path)

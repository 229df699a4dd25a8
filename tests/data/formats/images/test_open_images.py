"""Open Images, from samples in the published layout."""

import pytest
import torch

from shortlist.data.formats.images import open_images
from shortlist.data.formats.images.open_images import read_open_images
from tests.data.datasets import parts_of
from tests.data.formats.samples import OPEN_IMAGES, lines

FIRST, SECOND, THIRD = "000002b66c9c498e", "000002b97e5471a0", "000002c707c9895e"
PERSON, TREE, CAR, DUCK, DUCK_FOOD = "/m/01g317", "/m/07j7r", "/m/0k4j", "/m/09ddx", "/m/0dbt8g"
TRAIN = [
    f"{FIRST},verification,{PERSON},1",
    f"{FIRST},verification,{TREE},0",
    f"{SECOND},crowdsource-verification,{CAR},0",
    f"{THIRD},verification,{DUCK},1",
    f"{THIRD},verification,{CAR},1",
]
HUMAN = "oidv6-train-annotations-human-imagelabels.csv"
MACHINE = "train-annotations-machine-imagelabels.csv"


@pytest.fixture
def root(tmp_path):
    lines(tmp_path / HUMAN, OPEN_IMAGES, *TRAIN)
    lines(
        tmp_path / "validation-annotations-human-imagelabels.csv",
        OPEN_IMAGES,
        f"0001eeaf4aed83f9,verification,{TREE},1",
    )
    lines(tmp_path / "test-annotations-human-imagelabels.csv", OPEN_IMAGES, f"000026e7ee790996,verification,{PERSON},0")
    names = [f"{PERSON},Person", f"{TREE},Tree", f"{DUCK},Duck", f"{DUCK_FOOD},Duck", '/m/0x,"Coat, ""blue"""']
    lines(tmp_path / "oidv6-class-descriptions.csv", "LabelName,DisplayName", *names)
    return tmp_path


def test_a_folder_gives_rows_in_the_order_of_files_and_labels_in_that_of_descriptions(root):
    pictures = read_open_images(root)
    assert pictures.label_names == ("Person", "Tree", f"Duck ({DUCK})", f"Duck ({DUCK_FOOD})", 'Coat, "blue"', CAR)
    assert pictures.targets.layout == torch.sparse_csr
    assert pictures.targets.dtype == torch.float32
    dense = [[1, 0, 0, 0, 0, 0], [0] * 6, [0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0], [0] * 6]
    assert pictures.targets.to_dense().tolist() == dense
    assert parts_of(pictures) == (("train", "val", "test"), [0, 0, 0, 1, 2])


def test_what_is_not_listed_may_be_unknown(root):
    pictures = read_open_images(root, unlisted="unknown")
    assert pictures.targets.layout == torch.strided
    assert pictures.targets.dtype == torch.float32
    expected = torch.full((5, 6), -1.0)
    expected[0, 0], expected[0, 1] = 1, 0
    expected[1, 5] = 0
    expected[2, 2], expected[2, 5] = 1, 1
    expected[3, 1], expected[4, 0] = 1, 0
    assert torch.equal(pictures.targets, expected)


def test_a_dense_target_too_large_is_refused(root, monkeypatch):
    monkeypatch.setenv("SHORTLIST_LIMITS", "entries=29")
    with pytest.raises(
        ValueError, match=r"^`unlisted` must be 'absent' for more than 29 .* got 5 images of 6 labels\.$"
    ):
        read_open_images(root, unlisted="unknown")
    assert len(read_open_images(root)) == 5


def test_machines_count_from_a_confidence_on_and_people_overrule_them(root):
    rows = [
        f"{FIRST},machine,{TREE},0.9",  # which people deny
        f"{FIRST},machine,{CAR},0.5",
        f"{FIRST},machine,{DUCK},0.4",
        f"ffffffffffffffff,machine,{PERSON},1.0",
        f"{FIRST},machine,{PERSON},0.1",  # which people see
    ]
    lines(root / MACHINE, OPEN_IMAGES, *rows)
    pictures = read_open_images(root, min_confidence=0.5, split="train")
    assert pictures.inputs.path(3).stem == "ffffffffffffffff"
    dense = [[1, 0, 0, 0, 0, 1], [0] * 6, [0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0]]
    assert pictures.targets.to_dense().tolist() == dense
    unknown = read_open_images(root, min_confidence=0.5, split="train", unlisted="unknown").targets
    assert unknown[0].tolist() == [1, 0, -1, -1, -1, 1]
    assert len(read_open_images(root, split="train")) == 3  # machines are not read unasked


def test_a_file_of_machines_alone_needs_a_confidence(root):
    file = lines(root / MACHINE, OPEN_IMAGES, f"{FIRST},machine,{TREE},1", f"{FIRST},machine,{CAR},0.5")
    with pytest.raises(ValueError, match=r"line 2: Confidence 1 is that of a machine, so `min_confidence` must be"):
        read_open_images(file)
    assert read_open_images(file, min_confidence=0.6).label_counts().tolist() == [0, 1, 0, 0, 0]


def test_images_lie_by_part_beside_the_labels_or_where_they_are_given(root):
    assert len(read_open_images(root, split="Validation")) == 1
    pictures = read_open_images(root, size=5)
    assert pictures.inputs.kind == "images"
    assert pictures.inputs.size == 5
    assert pictures.inputs.path(2) == root / "train" / f"{THIRD}.jpg"
    assert pictures.inputs.path(3) == root / "validation" / "0001eeaf4aed83f9.jpg"
    (root / "pixels" / "val").mkdir(parents=True)
    pictures = read_open_images(root, images=root / "pixels")
    assert pictures.inputs.path(2) == root / "pixels" / f"{THIRD}.jpg"
    assert pictures.inputs.path(3) == root / "pixels" / "val" / "0001eeaf4aed83f9.jpg"


def test_labels_may_lie_in_a_folder_of_annotations(tmp_path):
    lines(tmp_path / "annotations/oidv7-val-annotations-human-imagelabels.csv", OPEN_IMAGES, *TRAIN)
    pictures = read_open_images(tmp_path)
    assert pictures.split.names == ("val",)
    assert pictures.inputs.path(0) == tmp_path / "validation" / f"{FIRST}.jpg"


def test_a_single_file_may_have_any_name(tmp_path):
    file = lines(tmp_path / "mine.csv", OPEN_IMAGES, *TRAIN)
    pictures = read_open_images(file)
    assert pictures.split is None
    assert pictures.label_names == tuple(sorted([PERSON, TREE, CAR, DUCK]))
    assert pictures.inputs.path(0) == tmp_path / f"{FIRST}.jpg"
    split = read_open_images(file, split="test").split
    assert split.names == ("test",)


@pytest.mark.parametrize("block", [1, 2, 3, 2**16])
def test_images_in_mixed_order_are_one_row_each_whatever_the_block(tmp_path, monkeypatch, block):
    monkeypatch.setattr(open_images, "BLOCK", block)
    rows = ["b,v,y,1", "a,v,x,1", "a,v,y,1", "b,v,x,0", "b,v,y,0"]
    file = lines(tmp_path / "mine.csv", OPEN_IMAGES, *rows)
    pictures = read_open_images(file)
    assert [pictures.inputs.path(row).stem for row in range(2)] == ["b", "a"]
    assert pictures.targets.to_dense().tolist() == [[0, 1], [1, 1]]
    assert read_open_images(file, unlisted="unknown").targets.tolist() == [[0, 1], [1, 1]]


def test_descriptions_may_be_given_without_a_header_and_keep_odd_characters(tmp_path):
    file = lines(tmp_path / "mine.csv", OPEN_IMAGES, *TRAIN)
    names = lines(tmp_path / "names.csv", f'{DUCK},"Ente, größere"', f"{CAR},", f'{PERSON},"""人"" 1"')
    pictures = read_open_images(file, names_file=names)
    assert pictures.label_names == ("Ente, größere", CAR, '"人" 1', TREE)
    assert pictures.label_counts().tolist() == [1, 1, 1, 0]


def test_quoted_fields_blank_lines_and_other_columns_are_read(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text('Confidence,LabelName,ImageID\n1,"/m/a,b",x\n\n0,/m/c,x\n1,/m/c,"y"\n\n')
    pictures = read_open_images(file)
    assert pictures.label_names == ("/m/a,b", "/m/c")
    assert pictures.targets.to_dense().tolist() == [[1, 0], [0, 1]]


def test_a_missing_description_file_or_part_is_refused(root):
    with pytest.raises(ValueError, match=r"none\.csv` does not exist\.$"):
        read_open_images(root, names_file=root / "none.csv")
    with pytest.raises(ValueError, match=r"^`split` must be one of train, val, test for a folder; got 'extra'\.$"):
        read_open_images(root, split="extra")


def test_two_files_for_one_part_are_refused(root):
    lines(root / "train-annotations-human-imagelabels-boxable.csv", OPEN_IMAGES, *TRAIN)
    with pytest.raises(
        ValueError, match=r"`oidv6-train-.*` and `train-.*` both are the part 'train'; one of them must"
    ):
        read_open_images(root)


def test_an_image_of_two_parts_is_refused(root):
    lines(root / "test-annotations-human-imagelabels.csv", OPEN_IMAGES, TRAIN[2])
    with pytest.raises(ValueError, match=rf"^`{root}`: image '{SECOND}' must be in one part; got train and test\.$"):
        read_open_images(root)


def test_options_outside_their_range_are_refused(root):
    with pytest.raises(ValueError, match=r"^`unlisted` must be 'absent' or 'unknown'; got 'maybe'\.$"):
        read_open_images(root, unlisted="maybe")  # type: ignore
    for confidence in (0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=rf"^`min_confidence` must lie in \(0, 1\]; got {confidence}\.$"):
            read_open_images(root, min_confidence=confidence)


def test_a_label_that_machines_were_too_unsure_of_is_no_label(root):
    rows = [
        f"{FIRST},machine,/m/sure,0.9",
        f"{SECOND},machine,/m/unsure,0.1",
        f"{FIRST},machine,{CAR},0.1",
    ]
    lines(root / MACHINE, OPEN_IMAGES, *rows)
    names = read_open_images(root, min_confidence=0.5).label_names
    assert "/m/sure" in names
    assert "/m/unsure" not in names
    assert CAR in names  # People speak of it.
    assert "/m/unsure" in read_open_images(root, min_confidence=0.1).label_names
    lines(root / MACHINE, OPEN_IMAGES, f"{FIRST},machine,/m/a,0.1", f"{FIRST},machine,,0.9")
    with pytest.raises(ValueError, match=r"line 3: LabelName must not be empty\.$"):
        read_open_images(root, min_confidence=0.5)

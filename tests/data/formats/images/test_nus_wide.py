"""NUS-WIDE, from samples in the published layout."""

from pathlib import Path

import pytest
import torch

from shortlist.data.formats.images.nus_wide import read_nus_wide
from tests.data.datasets import parts_of

CONCEPTS = ["airport", "animal", "zebra"]
TRAIN = ["actor\\0001_2124494179.jpg", "zoo\\0420_23.jpg", "house_of_worship\\0098_1153198149.jpg"]
TEST = ["zoo\\0007_8.jpg", "été à la plage\\0002_3.jpg"]
LABELS = {
    "airport": ([0, 0, 1], [0, 0]),
    "animal": ([0, 1, 1], [1, 0]),
    "zebra": ([0, 0, 0], [0, 0]),
}


def write(root: Path, name: str, lines: list, *, end: str = "\n") -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(f"{line}{end}" for line in lines).encode())
    return file


def write_by_part(root: Path, *, end: str = "\n") -> Path:
    write(root, "ConceptsList/Concepts81.txt", CONCEPTS, end=end)
    write(root, "ImageList/TrainImagelist.txt", TRAIN, end=end)
    write(root, "ImageList/TestImagelist.txt", TEST, end=end)
    for concept, (train, test) in LABELS.items():
        write(root, f"Groundtruth/TrainTestLabels/Labels_{concept}_Train.txt", train, end=end)
        write(root, f"Groundtruth/TrainTestLabels/Labels_{concept}_Test.txt", test, end=end)
    return root


def write_all(root: Path) -> Path:
    write(root, "Concepts81.txt", CONCEPTS)
    write(root, "ImageList/Imagelist.txt", [TEST[0], *TRAIN, TEST[1]])
    for concept, (train, test) in LABELS.items():
        write(root, f"Groundtruth/AllLabels/Labels_{concept}.txt", [test[0], *train, test[1]])
    return root


@pytest.mark.parametrize("end", ["\n", " \r\n"])
def test_files_of_train_and_test_give_rows_labels_and_split(tmp_path, end):
    pictures = read_nus_wide(write_by_part(tmp_path, end=end))
    assert pictures.label_names == ("airport", "animal", "zebra")
    assert pictures.targets.layout == torch.sparse_csr
    assert pictures.targets.to_dense().tolist() == [[0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert parts_of(pictures) == (("train", "test"), [0, 0, 0, 1, 1])
    assert pictures.label_counts().tolist() == [1, 3, 0]


def test_images_lie_in_the_folder_of_flickr_unless_it_is_given(tmp_path):
    root = write_by_part(tmp_path)
    pictures = read_nus_wide(root, size=(3, 4))
    assert pictures.inputs.kind == "images"
    assert pictures.inputs.size == (3, 4)
    assert pictures.inputs.path(0) == root / "Flickr" / "actor" / "0001_2124494179.jpg"
    assert pictures.inputs.path(4) == root / "Flickr" / "été à la plage" / "0002_3.jpg"
    assert read_nus_wide(root, images=tmp_path / "b").inputs.path(1) == tmp_path / "b" / "zoo" / "0420_23.jpg"


def test_files_of_all_images_keep_their_order_and_have_no_split_without_lists(tmp_path):
    pictures = read_nus_wide(write_all(tmp_path))
    assert pictures.split is None
    assert pictures.targets.to_dense().tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert pictures.inputs.path(0).name == "0007_8.jpg"


def test_files_of_all_images_are_split_by_the_lists(tmp_path):
    write_all(tmp_path)
    write(tmp_path, "ImageList/TrainImagelist.txt", TRAIN[1:])
    write(tmp_path, "ImageList/TestImagelist.txt", TEST)
    split = read_nus_wide(tmp_path).split
    assert split is not None
    assert split.names == ("train", "test")
    assert split.index.tolist() == [1, -1, 0, 0, 1]


def test_blank_lines_at_the_end_do_no_harm(tmp_path):
    write_by_part(tmp_path)
    write(tmp_path, "ConceptsList/Concepts81.txt", ["airport", "animal", "zebra", "", ""])
    (tmp_path / "Groundtruth/TrainTestLabels/Labels_zebra_Train.txt").write_bytes(b"0\n0\n0\n\n")
    pictures = read_nus_wide(tmp_path)
    assert pictures.label_names == ("airport", "animal", "zebra")
    assert pictures.targets.to_dense()[:3].tolist() == [[0, 0, 0], [0, 1, 0], [1, 1, 0]]


def test_one_part_alone_is_read(tmp_path):
    write_by_part(tmp_path)
    (tmp_path / "ImageList/TestImagelist.txt").unlink()
    assert len(read_nus_wide(tmp_path)) == 3


def test_no_images_is_a_dataset_without_rows(tmp_path):
    write(tmp_path, "Concepts81.txt", ["sky"])
    write(tmp_path, "ImageList/Imagelist.txt", [])
    write(tmp_path, "Groundtruth/AllLabels/Labels_sky.txt", [])
    pictures = read_nus_wide(tmp_path)
    assert len(pictures) == 0
    assert pictures.label_names == ("sky",)


ANIMALS = "Groundtruth/TrainTestLabels/Labels_animal_Train.txt"
BAD = {
    "short": (ANIMALS, b"0\n1\n", r"must have as many lines as `.*TrainImagelist\.txt`: 3; got 2\.$"),
    "long": (ANIMALS, b"0\n1\n1\n0\n", r"must have as many lines as `.*TrainImagelist\.txt`: 3; got 4\.$"),
    "empty": (ANIMALS, b"", r"must have as many lines as .*: 3; got 0\.$"),
    "two": (ANIMALS, b"0\n2\n1\n", r"line 2: must be 0 or 1; got '2'\.$"),
    "matrix": (ANIMALS, b"0 1\n0 1\n0 0\n", r"line 1: must be 0 or 1; got '0 1'\.$"),
    "gap": (ANIMALS, b"0\n\n1\n", r"line 2: must not be blank\.$"),
    "glued": (ANIMALS, b"0\n1\n\r\r", r"must have as many lines as .*: 3; got 2\.$"),
    "image twice": (
        "ImageList/TrainImagelist.txt",
        b"a\\1.jpg\nb\nA\na/1.jpg\n",
        "line 4: image 'a/1.jpg' must differ .* 1",
    ),
    "concept twice": (
        "ConceptsList/Concepts81.txt",
        b"sky\nsea\nsky\n",
        r"line 3: concept 'sky' must differ .* line 1\.$",
    ),
    "of both": (
        "ImageList/TestImagelist.txt",
        b"a\\1.jpg\nzoo\\0420_23.jpg\n",
        r"line 2: image 'zoo/0420_23\.jpg' must not also be in `.*TrainImagelist\.txt`\.$",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_wrong_is_named(tmp_path, case):
    name, raw, message = BAD[case]
    write_by_part(tmp_path)
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(ValueError, match=rf"^`{tmp_path / name}`.*({message})"):
        read_nus_wide(tmp_path)


def test_missing_lists_and_folders_are_named(tmp_path):
    write(tmp_path, "Concepts81.txt", CONCEPTS)
    with pytest.raises(ValueError, match=r"Imagelist\.txt` does not exist\.$"):
        read_nus_wide(tmp_path)
    write(tmp_path, "ImageList/Imagelist.txt", TRAIN)
    with pytest.raises(ValueError, match=r"AllLabels` does not exist\.$"):
        read_nus_wide(tmp_path)
    (tmp_path / "Groundtruth" / "TrainTestLabels").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"ImageList` must hold `TrainImagelist\.txt` or `TestImagelist\.txt`"):
        read_nus_wide(tmp_path)

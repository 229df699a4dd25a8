"""NUS-WIDE: its two layouts, and lists that are there or not."""

import pytest

from shortlist.data.formats.images.nus_wide import read_nus_wide
from tests.data.datasets import parts_of
from tests.data.formats.samples import lines, nus_wide

HOT = [[1, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize("end", [b"\n", b" \r\n", b"\n\n\n"])
def test_files_of_train_and_test_give_rows_labels_and_split(tmp_path, end):
    root = nus_wide(tmp_path)
    for file in root.rglob("*.txt"):  # Blanks and a line end of Windows after each line, or blank lines at the end.
        text = file.read_bytes()
        file.write_bytes(text.replace(b"\n", end) if b"\r" in end else text.removesuffix(b"\n") + end)
    pictures = read_nus_wide(root)
    assert pictures.label_names == ("airport", "animal")
    assert pictures.targets.to_dense().tolist() == HOT
    assert parts_of(pictures) == (("train", "test"), [0, 0, 1])


def test_images_lie_in_the_folder_of_flickr_unless_it_is_given(tmp_path):
    root = nus_wide(tmp_path)
    lines(root / "ImageList/TestImagelist.txt", "été à la plage\\0002_3.jpg")
    pictures = read_nus_wide(root, size=(3, 4))
    assert pictures.inputs.size == (3, 4)
    assert pictures.inputs.path(0) == root / "Flickr" / "actor" / "0001_21.jpg"
    assert pictures.inputs.path(2) == root / "Flickr" / "été à la plage" / "0002_3.jpg"
    assert read_nus_wide(root, images=tmp_path / "b").inputs.path(1) == tmp_path / "b" / "zoo" / "0002_22.jpg"


def test_files_of_all_images_keep_their_order_and_are_split_by_the_lists_there_are(tmp_path):
    root = nus_wide(tmp_path)
    for file in (root / "Groundtruth/TrainTestLabels").iterdir():
        file.unlink()
    (root / "Groundtruth/TrainTestLabels").rmdir()
    lines(root / "ImageList/TrainImagelist.txt", r"zoo\0002_22.jpg")
    assert read_nus_wide(root).targets.to_dense().tolist() == HOT
    assert parts_of(read_nus_wide(root)) == (("train", "test"), [-1, 0, 1])
    for part in ("Train", "Test"):
        (root / f"ImageList/{part}Imagelist.txt").unlink()
    assert read_nus_wide(root).split is None


def test_one_part_alone_is_read(tmp_path):
    (nus_wide(tmp_path) / "ImageList/TestImagelist.txt").unlink()
    assert len(read_nus_wide(tmp_path)) == 2


def test_missing_lists_and_folders_are_named(tmp_path):
    lines(tmp_path / "Concepts81.txt", "sky")
    with pytest.raises(ValueError, match=r"Imagelist\.txt` does not exist\.$"):
        read_nus_wide(tmp_path)
    lines(tmp_path / "ImageList/Imagelist.txt", "a.jpg")
    with pytest.raises(ValueError, match=r"AllLabels` does not exist\.$"):
        read_nus_wide(tmp_path)
    (tmp_path / "Groundtruth/TrainTestLabels").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"ImageList` must hold `TrainImagelist\.txt` or `TestImagelist\.txt`"):
        read_nus_wide(tmp_path)

"""Folders of images by class: the layouts, the files of Pl@ntNet-300K beside them, and what is something else."""

import json
import os

import pytest

from shortlist.data.formats.images.image_folder import read_image_folder
from tests.data.datasets import parts_of, values_of
from tests.data.formats.samples import PLANTNET, PLANTNET_IMAGES, plantnet


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def stems(data):
    return [data.inputs.path(row).stem for row in range(len(data))]


def test_classes_are_folders_and_rows_go_by_class_and_name(tmp_path):
    touch(tmp_path, "rose/2.jpg", "rose/10.PNG", "daisy/b.jpeg", "daisy/a.webp")
    data = read_image_folder(tmp_path)
    assert data.label_names == ("daisy", "rose")
    assert data.targets.tolist() == [0, 0, 1, 1]
    assert [data.inputs.path(row).name for row in range(4)] == ["a.webp", "b.jpeg", "10.PNG", "2.jpg"]
    assert data.split is None
    assert not data.label_groups
    assert not data.row_groups
    assert data.name == tmp_path.name


def test_parts_are_folders(tmp_path):
    touch(tmp_path, "train/b/1.jpg", "train/c/2.jpg", "val/c/3.jpg", "test/a/4.jpg", "test/b/5.jpg")
    data = read_image_folder(tmp_path)
    assert data.label_names == ("a", "b", "c")
    assert parts_of(data) == (("train", "val", "test"), [0, 0, 1, 2, 2])
    assert data.targets.tolist() == [1, 2, 2, 0, 1]
    assert stems(data.part("test")) == ["4", "5"]


def test_other_parts_keep_their_names_and_folders_of_other_things_are_left(tmp_path):
    touch(tmp_path, "train/a/1.jpg", "extra/a/2.jpg", "notes/readme.txt")
    data = read_image_folder(tmp_path)
    assert data.split.names == ("train", "extra")
    assert data.label_names == ("a",)


def test_a_class_may_be_called_like_a_part(tmp_path):
    touch(tmp_path, "test/1.jpg", "exam/2.jpg")
    data = read_image_folder(tmp_path)
    assert data.label_names == ("exam", "test")
    assert data.split is None


def test_empty_classes_stay_labels(tmp_path):
    touch(tmp_path, "b/1.jpg")
    (tmp_path / "a").mkdir()
    data = read_image_folder(tmp_path)
    assert data.label_names == ("a", "b")
    assert data.targets.tolist() == [1]
    assert data.label_counts().tolist() == [0, 1]


def test_hidden_and_other_files_are_skipped(tmp_path):
    touch(tmp_path, "a/1.jpg", "a/.2.jpg", "a/Thumbs.db", "a/notes.txt", "a/jpg", ".git/x.jpg", "__MACOSX/a/._1.jpg")
    touch(tmp_path, "cover.jpg")
    data = read_image_folder(tmp_path)
    assert data.label_names == ("a",)
    assert [data.inputs.path(row).name for row in range(len(data))] == ["1.jpg"]


@pytest.mark.parametrize("layout", ["images/{split}/{species}", "images_{split}/{species}", "{split}/{species}"])
def test_plantnet_gives_names_genera_and_split(tmp_path, layout):
    data = read_image_folder(plantnet(tmp_path, layout))
    assert data.label_names == tuple(PLANTNET.values())
    genus = data.label_groups["genus"]
    assert values_of(genus) == ["Lactuca", "Cirsium", "Cirsium", "Pelargonium"]
    assert data.split.names == ("train", "val", "test")
    assert data.split.counts().tolist() == [4, 2, 1]
    assert data.targets.tolist() == [0, 0, 1, 2, 0, 2, 1]
    assert stems(data) == [name * 20 for name in ("0a", "1b", "2c", "3d", "4e", "5f", "6a")]
    assert not data.row_groups


def test_the_folder_of_images_alone_finds_the_files_beside_it(tmp_path):
    root = plantnet(tmp_path, names="plantnet300K_species_names.json")
    data = read_image_folder(root / "images", metadata=True)
    assert data.label_names == tuple(PLANTNET.values())
    assert set(data.row_groups) == {"author", "organ"}


@pytest.mark.parametrize("how", ["found", "named"])
def test_metadata_that_are_asked_for_give_authors_and_organs(tmp_path, how):
    root = plantnet(tmp_path)
    data = read_image_folder(root, metadata=True if how == "found" else root / "plantnet300K_metadata.json")
    organ, author = data.row_groups["organ"], data.row_groups["author"]
    assert values_of(organ) == ["flower"] * 4 + ["leaf"] * 3
    assert values_of(author) == [f"Author {i % 2}" for i in range(7)]


def test_images_in_one_folder_take_their_split_from_the_metadata(tmp_path):
    root = plantnet(tmp_path, "images/{species}")
    data = read_image_folder(root)
    of_row = dict(zip(stems(data), values_of(data.split), strict=True))
    assert of_row == {
        name: split for split, classes in PLANTNET_IMAGES.items() for names in classes.values() for name in names
    }
    assert data.split.names == ("train", "val", "test")
    assert not data.row_groups
    assert read_image_folder(root, metadata=False).split is None


def test_images_without_metadata_have_no_groups(tmp_path):
    touch(tmp_path, "a/1.jpg", "a/2.jpg", "a/3.jpg")
    path = tmp_path / "about.json"
    path.write_text(json.dumps({"1": {"author": "Ann", "split": "valid"}, "3": {"author": 5, "split": None}}))
    data = read_image_folder(tmp_path, metadata=path)
    assert data.row_groups["author"].names == ("5", "Ann")
    assert data.row_groups["author"].index.tolist() == [1, -1, 0]
    assert "organ" not in data.row_groups
    assert parts_of(data) == (("val",), [0, -1, -1])


def test_names_that_two_classes_share_get_the_folder_appended(tmp_path):
    touch(tmp_path, "7/1.jpg", "8/1.jpg", "9/1.jpg", "new/1.jpg", "x/1.jpg")
    names = {
        "7": "Rosa canina L.",
        "8": "Rosa canina L.",
        "9": "× Cupressocyparis leylandii",
        "x": "×Sorbaronia_fallax",
    }
    path = tmp_path / "names.json"
    path.write_text(json.dumps(names))
    data = read_image_folder(tmp_path, names_file=path)
    assert data.label_names == (
        "Rosa canina L. (7)",
        "Rosa canina L. (8)",
        "× Cupressocyparis leylandii",
        "new",
        "×Sorbaronia_fallax",
    )
    genus = data.label_groups["genus"]
    assert genus.names == ("Cupressocyparis", "Rosa", "Sorbaronia")
    assert genus.index.tolist() == [1, 1, 0, -1, 2]


def test_published_files_about_other_images_change_nothing_unless_asked_for(tmp_path):
    root = plantnet(tmp_path)
    touch(tmp_path / "mine", "rose/1.jpg")
    for path in root.glob("*.json"):
        path.rename(tmp_path / "mine" / path.name)
    data = read_image_folder(tmp_path / "mine")
    assert data.label_names == ("rose",)
    assert data.split is None
    assert not data.label_groups
    with pytest.raises(ValueError, match="describes none of the images"):
        read_image_folder(tmp_path / "mine", metadata=True)


def test_the_rows_do_not_depend_on_the_order_of_the_file_system(tmp_path, monkeypatch):
    root = plantnet(tmp_path)
    expected = stems(read_image_folder(root))
    real = os.scandir

    class Backwards:
        def __init__(self, path):
            with real(path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(os, "scandir", Backwards)
    assert stems(read_image_folder(root)) == expected


def test_opening_looks_at_no_image(tmp_path, monkeypatch):
    root = plantnet(tmp_path)
    seen = []
    real = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, *args, **kwargs: (seen.append(str(path)), real(path, *args, **kwargs))[1]
    )
    assert len(read_image_folder(root, size=8)) == 7
    assert not [path for path in seen if path.endswith(".jpg")]


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (["1.jpg", "2.jpg"], r"` holds 2 images and no folders; images must be in one folder per class"),
        (["readme.txt"], r"` holds no folders; images must be in one folder per class"),
        (["a/readme.txt"], r"` holds folders without images; images must be"),
        (["a/1.jpg", "b/close-ups/2.jpg"], r"b` holds the folder `close-ups`; images must be directly in the folder"),
        (["train/a/1.jpg", "val/2.jpg"], r"val` holds the image `2\.jpg`; a part must hold one folder per class"),
        (
            ["train/a/1.jpg", "val/a/2.jpg", "valid/a/3.jpg"],
            r"`: 'val' and 'valid' both are the part 'val'; one of them must go",
        ),
        (["train/a/b/1.jpg"], r"a` holds the folder `b`; images must be directly in the folder of their class"),
    ],
)
def test_other_layouts_are_refused(tmp_path, files, complaint):
    touch(tmp_path, *files)
    with pytest.raises(ValueError, match=complaint):
        read_image_folder(tmp_path)


def test_missing_files_beside_the_images_are_named(tmp_path):
    touch(tmp_path, "a/1.jpg")
    with pytest.raises(ValueError, match=r"plantnet300K_metadata\.json` does not exist, so `metadata` must be a path"):
        read_image_folder(tmp_path, metadata=True)
    for option in ("metadata", "names_file"):
        with pytest.raises(ValueError, match=r"absent\.json` does not exist"):
            read_image_folder(tmp_path, **{option: tmp_path / "absent.json"})


def test_parts_in_the_metadata_have_one_name_too(tmp_path):
    touch(tmp_path, "rose/a.jpg", "rose/b.jpg", "daisy/c.jpg")
    described = {"a": {"split": "Train"}, "b": {"split": "TESTING "}, "c": {"split": "train"}}
    (tmp_path / "about.json").write_text(json.dumps(described))
    split = read_image_folder(tmp_path, metadata=tmp_path / "about.json").split
    assert split.names == ("train", "test")
    assert split.index.tolist() == [0, 0, 1]

"""The VG-SGG layout: written here as its authors publish it, then read back."""

import json
import math

import h5py
import numpy as np
import pytest
import torch

from shortlist.data import open_dataset
from shortlist.data.formats.images.visual_genome import read_visual_genome
from shortlist.data.target_rows import label_pairs
from tests.data.formats.samples import IMAGES, OBJECTS, PREDICATES, scene_graphs, visual_genome


def triples(data):
    """(image id, subject name, object name, predicate) of all labels."""
    rows, labels, present = label_pairs(data.targets, data.num_labels)
    assert present.all()
    batch, image = data.inputs.batch(rows), data.row_groups["image"]
    name = data.inputs.object_names
    return [
        (int(image.names[int(image.index[row])]), name[int(s)], name[int(o)], data.label_names[int(label)])
        for row, s, o, label in zip(rows, batch.subject, batch.object, labels, strict=True)
    ]


def expected(kept):
    return {
        (number, OBJECTS[objects[s][0]], OBJECTS[objects[o][0]], PREDICATES[predicate])
        for number, _, _, _, objects, relations in IMAGES
        if number in kept
        for s, o, predicate in relations
    }


@pytest.mark.parametrize(("pairs", "rows"), [("all", 6 + 2 + 2 + 2), ("related", 2 + 1 + 1 + 2)])
def test_the_sample_comes_back_as_it_was_written(tmp_path, pairs, rows):
    data = read_visual_genome(visual_genome(tmp_path), pairs=pairs, val_images=1)
    assert len(data) == rows
    assert data.label_names == PREDICATES
    assert data.inputs.object_names == OBJECTS
    assert data.inputs.kind == "object pairs"
    found = triples(data)
    assert set(found) == expected({61, 7, 5, 4})
    assert len(found) == len(set(found)), "a repeated relation must count once"
    assert data.row_groups["image"].names == ("61", "7", "5", "4")
    assert torch.equal(data.row_groups["image"].index, data.inputs.batch(torch.arange(rows)).image)
    assert data.split.names == ("train", "val", "test")
    parts = {name: set(data.part(name).row_groups["image"].index.tolist()) for name in data.split.names}
    assert parts == {"val": {0}, "train": {1, 3}, "test": {2}}
    assert data.targets.layout == torch.sparse_csr
    assert data.clean_targets is None


def test_several_relations_of_a_pair_are_several_labels_of_one_row(tmp_path):
    data = read_visual_genome(visual_genome(tmp_path))
    assert data[0].labels == ("has", "wearing")
    assert data[1].labels == ()
    assert data.label_counts().tolist() == [2, 2, 1, 2]


def test_boxes_are_corners_at_the_scale_of_the_file_and_images_have_their_shape(tmp_path):
    batch = read_visual_genome(visual_genome(tmp_path)).inputs.batch(torch.tensor([0, 6]))
    assert batch.subject_box[0].tolist() == [0, 0, math.ceil(80 * 1.28), math.ceil(61 * 1.28)]
    assert batch.object_box[0].tolist() == [512, 384, 512 + math.ceil(21 * 1.28), 384 + math.ceil(30 * 1.28)]
    assert batch.image_size.tolist() == [[1024, 768], [768, 1024]]


def test_without_fine_boxes_the_coarse_ones_are_read_and_without_sizes_images_are_square(tmp_path):
    data = read_visual_genome(visual_genome(tmp_path, graphs=scene_graphs(scales=(512,)), sizes=False))
    batch = data.inputs.batch(torch.tensor([0]))
    assert batch.object_box.tolist() == [[256, 192, 256 + math.ceil(21 * 0.64), 192 + math.ceil(30 * 0.64)]]
    assert batch.image_size.tolist() == [[512, 512]]
    assert data.row_groups["image"].names == ("0", "1", "4", "5")


def test_the_four_unreadable_images_are_passed_over(tmp_path):
    listed = list(IMAGES)
    for at, number in ((0, 1592), (3, 1722), (4, 4616), (10, 4617)):
        listed.insert(at, (number, 1, 1, 0, [], []))
    data = read_visual_genome(visual_genome(tmp_path, listed, scene_graphs()))
    assert data.row_groups["image"].names == ("61", "7", "5", "4")


def test_validation_images_are_the_first_training_images_that_have_relations(tmp_path):
    images = [(i, 10, 10, 2 if i % 5 == 0 else 0, IMAGES[5][4], IMAGES[5][5] if i % 3 else []) for i in range(1, 121)]
    root = visual_genome(tmp_path, images)
    train = [i for i in range(1, 121) if i % 5 and i % 3]
    for asked, count in ((None, len(train) // 10), (0, 0), (7, 7), (len(train) - 1, len(train) - 1)):
        data = read_visual_genome(root, val_images=asked)
        image = data.row_groups["image"]
        index = data.split.names.index("val") if "val" in data.split.names else 9
        found = [int(image.names[i]) for i in sorted(set(image.index[data.split.index == index].tolist()))]
        assert found == train[:count]
    with pytest.raises(ValueError, match=f"`val_images` must leave some of {len(train)} training images .*; got 64"):
        read_visual_genome(root, val_images=len(train))


def test_a_number_of_images_limits_each_part(tmp_path):
    data = read_visual_genome(visual_genome(tmp_path), images=1)
    assert data.row_groups["image"].names == ("61", "5")
    assert set(triples(data)) == expected({61, 5})
    assert len(read_visual_genome(tmp_path, images=0)) == 0


def test_validation_images_that_the_file_marks_are_kept(tmp_path):
    graphs = scene_graphs()
    graphs["split"][1] = 1
    data = read_visual_genome(visual_genome(tmp_path, graphs=graphs), val_images=0)
    assert data.part("val").row_groups["image"].counts().tolist() == [0, 2, 0, 0]


def test_a_file_of_test_images_alone_needs_no_validation_images(tmp_path):
    graphs = scene_graphs()
    graphs["split"][:] = 2
    assert read_visual_genome(visual_genome(tmp_path, graphs=graphs), val_images=5000).split.names == ("test",)


def changed(key, row, value):
    graphs = scene_graphs()
    graphs[key][row] = value
    return graphs


BAD_GRAPHS = {
    "predicate 0": (changed("predicates", 2, 0), r"predicates row 2: must lie in \[1, 4\].*; got 0\."),
    "predicate beyond": (changed("predicates", 6, 5), r"predicates row 6: must lie in \[1, 4\].*; got 5\."),
    "class beyond": (changed("labels", 3, 9), r"labels row 3: must lie in \[1, 4\].*; got 9\."),
    "two images": (
        changed("relationships", 3, [4, 1]),
        "relationships row 3: must join boxes of image 1, from 3 to 4; g",
    ),
    "no such box": (changed("relationships", 0, [0, 99]), "relationships row 0: must join boxes of image 0.*0 and 99"),
    "itself": (
        changed("relationships", 1, [2, 2]),
        r"relationships row 1: must join two different boxes; got \[2, 2\]",
    ),
    "box outside": (changed("boxes_1024", 1, [1020, 20, 10, 10]), "boxes_1024 row 1: the box .* must be .* inside the"),
    "box before": (changed("boxes_1024", 1, [2, 20, 10, 10]), "boxes_1024 row 1: the box .* must be .* inside the"),
    "empty box": (changed("boxes_1024", 4, [20, 20, 0, 10]), "boxes_1024 row 4: the box .* must be at least 1 x 1"),
    "split 3": (changed("split", 2, 3), r"split row 2: must be 0, 1 or 2; got 3\."),
    "half range": (changed("img_to_last_box", 1, -1), "img_to_first_box row 1: first and last must be -1 and -1, or"),
    "range beyond": (changed("img_to_last_rel", 5, 8), r"img_to_first_rel row 5: first and last .*; got \[6, 8\]"),
    "range twice": (changed("img_to_first_rel", 1, 2), "img_to_first_rel row 1: must not begin within the range of an"),
    "orphan box": (changed("img_to_last_box", 2, 5), "labels: all 11 rows must belong to an image; got 10 that do"),
    "orphan relation": (changed("img_to_last_rel", 5, 6), "predicates: all 8 rows must belong to an image; got 7"),
    "relation without box": (
        changed("img_to_first_box", 4, -1) | {"img_to_last_box": changed("img_to_last_box", 4, -1)["img_to_last_box"]},
        "relationships row 5: must join boxes of image 4",
    ),
    "fewer labels": (
        scene_graphs() | {"labels": scene_graphs()["labels"][1:]},
        "labels: must have shape 11 x 1; got 10 x 1",
    ),
    "flat labels": (
        scene_graphs() | {"labels": scene_graphs()["labels"][:, 0]},
        "labels: must have shape 11 x 1; got 11",
    ),
    "fewer images": (
        scene_graphs() | {"img_to_first_rel": np.zeros(5, int)},
        "img_to_first_rel: must have shape 6; got 5",
    ),
    "fractions": (scene_graphs() | {"split": np.zeros(6)}, "split: must be an array of integers; got float64"),
    "scalar": (scene_graphs() | {"split": np.int64(3)}, "split: must have shape any; got none"),
    "no predicates": ({k: v for k, v in scene_graphs().items() if k != "predicates"}, "has no 'predicates'"),
    "no boxes": (scene_graphs(scales=()), "has no 'boxes_1024'"),
    "foreign": ({"x": np.zeros(3)}, "VG-SGG.h5` has no 'boxes_1024'"),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_graphs_that_break_the_layout_are_refused_with_the_row_named(tmp_path, case):
    graphs, text = BAD_GRAPHS[case]
    visual_genome(tmp_path, graphs=graphs)
    with pytest.raises(ValueError, match=text) as caught:
        read_visual_genome(tmp_path)
    assert "VG-SGG.h5`" in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("content", [b"", b"not HDF5 at all", None], ids=["empty", "foreign", "truncated"])
def test_a_file_that_is_no_whole_hdf5_is_refused(tmp_path, content):
    file = visual_genome(tmp_path) / "VG-SGG.h5"
    file.write_bytes(file.read_bytes()[:-500] if content is None else content)
    with pytest.raises(ValueError, match=r"VG-SGG.h5` is not a complete HDF5 file: .*[^.]\.$"):
        read_visual_genome(tmp_path)


def test_a_group_in_place_of_an_array_is_refused(tmp_path):
    visual_genome(tmp_path, graphs={key: value for key, value in scene_graphs().items() if key != "split"})
    with h5py.File(tmp_path / "VG-SGG.h5", "a") as file:
        file.create_group("split")
    with pytest.raises(ValueError, match="split: must be an array of integers; got a group"):
        read_visual_genome(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"VG-SGG-dicts.json` does not exist"):
        read_visual_genome(tmp_path)
    visual_genome(tmp_path)
    (tmp_path / "VG-SGG.h5").unlink()
    with pytest.raises(ValueError, match=r"VG-SGG.h5` does not exist"):
        read_visual_genome(tmp_path)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"pairs": "some"}, "`pairs` must be 'all' or 'related'; got 'some'"),
        ({"val_images": -1}, "`val_images` must be at least 0; got -1"),
        ({"images": 2.0}, "`images` must be a whole number; got 2.0"),
    ],
)
def test_bad_options_are_refused(tmp_path, option, text):
    with pytest.raises(ValueError, match=text):
        read_visual_genome(tmp_path, **option)


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    visual_genome(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ImportError, match="h5py"):
        read_visual_genome(tmp_path)


@pytest.mark.parametrize("both", [False, True])
def test_graphs_with_attributes_are_read_as_those_without(tmp_path, both):
    plain = tmp_path / "plain"
    other = tmp_path / "other"
    for folder in (plain, other):
        folder.mkdir()
        visual_genome(folder)
    graphs, book = other / "VG-SGG-with-attri.h5", other / "VG-SGG-dicts-with-attri.json"
    (other / "VG-SGG.h5").rename(graphs)
    (other / "VG-SGG-dicts.json").rename(book)
    with h5py.File(graphs, "a") as file:
        file["attributes"] = np.zeros((len(file["labels"]), 10), dtype=np.int64)
    found = json.loads(book.read_text()) | {"attribute_to_idx": {"red": 1}, "idx_to_attribute": {"1": "red"}}
    book.write_text(json.dumps(found))
    if both:  # Then the file that is named is read; of a folder, the one without attributes.
        visual_genome(other, graphs=scene_graphs(IMAGES[:2]))
    want = read_visual_genome(plain)
    paths = (graphs,) if both else (graphs, other)
    for path in paths:
        for data in (read_visual_genome(path), open_dataset(path)):
            assert torch.equal(data.targets.to_dense(), want.targets.to_dense())
            assert data.row_groups["image"].names == want.row_groups["image"].names
    book.unlink()
    with pytest.raises(ValueError, match=r"VG-SGG-dicts-with-attri\.json` does not exist\.$"):
        read_visual_genome(graphs)

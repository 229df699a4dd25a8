"""From a path to a dataset: how formats are told apart, what their options may be, and one sentence for the rest."""

import shutil
from collections.abc import Sequence
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import numpy as np
import pytest
import torch

from shortlist.data import open_dataset
from shortlist.data.opening import FORMATS, reader_options, recognize_format
from shortlist.typed_values import read_entries
from tests.data.formats.samples import SAMPLES, place
from tests.data.formats.small_files import FEATURES, cifar_npz, image_folder, lines, picture, put, table
from tests.data.refusals import refused


def format_of(path):
    return recognize_format(path)[0]


def test_coarse_labels_of_a_cifar_npz_are_used_and_its_options_taken(tmp_path):
    path = cifar_npz(tmp_path)
    assert open_dataset(path).label_group("superclass").index.tolist() == [1, 0, 0]
    assert open_dataset(path, labels="coarse").label_names == ("large", "fruit")


@pytest.mark.parametrize(
    "content",
    [
        {"x_train": np.zeros((3, 32, 32, 3), np.uint8), "y_train": np.array([0, 1, 1])},
        {
            "x_train": np.zeros((3, 28, 28), np.uint8),
            "y_train": np.array([0, 1, 1]),
            "fine_names": np.array(["a", "b"]),
        },
        {"x_train": FEATURES, "y_train": np.array([0, 1, 1]), "fine_names": np.array(["a", "b"])},
        {"X": np.zeros((3, 8, 8, 3), np.uint8), "Y": np.array([0, 1, 1]), "fine_names": np.array(["a", "b"])},
    ],
)
def test_other_npz_files_go_to_arrays(content, tmp_path):
    np.savez(tmp_path / "a.npz", **content)
    assert format_of(tmp_path / "a.npz") == "arrays"
    assert open_dataset(tmp_path / "a.npz").label_counts().tolist() == [1, 2]


def test_every_ending_of_a_table_or_an_image_is_recognized(tmp_path):
    assert format_of(lines(tmp_path / "a.csv", "Source,label", "1,x", "ImageID,Source,LabelName")) == "table"
    for name in product((".csv", ".tsv", ".jsonl", ".NDJSON"), ("", ".gz", ".xz")):
        assert format_of(put(tmp_path / "".join(("a", *name)), "text,label\n")) == "table"
    for ending in ("jpg", "jpeg", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm", "pbm", "jp2", "JPG"):
        put(tmp_path / ending / "images" / "train" / "rose" / f"1.{ending}")
        assert format_of(tmp_path / ending) == "image-folder"


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_other_text_is_no_extreme_text(ending, tmp_path):
    for text in ("2 4\n0 1:1\n", "1 2 3 4\n", "See 3 4 5\n", "12:30 a talk\n", "2008_1 -1\n", ""):
        assert "`PATH` has no known format" in refused(put(tmp_path / f"notes{ending}", text))


def test_extreme_text_without_a_first_line_says_what_it_needs(tmp_path):
    path = lines(tmp_path / "old.txt", "0,2 1:0.5 3:2", " 0:1")
    assert "unless `num_features` and `num_labels` are given" in refused(path)
    assert len(open_dataset(path, num_features=4, num_labels=3)) == 2


@pytest.mark.parametrize("name", ["CSV", "Parquet", "npz", "MEKA", "extreme gz", "BioASQ", "COCO file", "CIFAR npz"])
def test_a_folder_with_one_file_of_data_and_notes_is_that_file(name, tmp_path, monkeypatch):
    inner, folder = place(name, tmp_path, monkeypatch), tmp_path / "folder"
    for note in ("README.txt", "README", "LICENSE.md", ".hidden.csv", "._a.csv", ".git/config", "notes/idea.txt"):
        put(folder / note, "1 word\n")
    shutil.copy(inner, folder)
    assert format_of(folder) == SAMPLES[name].format
    assert len(open_dataset(folder)) == SAMPLES[name].rows
    (folder / inner.name).rename(folder / "a.csv")
    put(folder / "b.csv")
    assert "has no known format" in refused(folder)


@pytest.mark.parametrize("beside", ["train.txt", "labels.csv", "mean.npy", "meta/a.txt", "classes.json", ".git/config"])
def test_images_by_class_stay_so_with_other_things_beside(beside, tmp_path):
    put(image_folder(tmp_path, "train/daisy/1.jpg test/rose/2.jpg") / beside, "daisy/1.jpg 0\n")
    assert format_of(tmp_path) == "image-folder"
    assert open_dataset(tmp_path).label_names == ("daisy", "rose")


def test_a_thing_at_the_path_goes_before_what_packages_carry(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image_folder(tmp_path / "digits")
    assert open_dataset("digits").label_names == ("daisy", "rose")
    assert open_dataset("digits", format="digits", val=0.2).num_labels == 10
    assert refused("other", format="digits") == "`path` must be 'digits' for this format; got 'other'."


ENDINGS = """
.csv .tsv .jsonl .ndjson .parquet .csv.gz .jsonl.xz .json .json.gz .txt .txt.gz .arff .arff.gz .npz .npy .safetensors
.h5 .hdf5 .xml .jpg .zip .pkl .unknown
"""


@pytest.mark.parametrize("ending", [*ENDINGS.split(), ""])
def test_random_bytes_of_any_ending_are_refused(ending, tmp_path):
    path = tmp_path / f"thing{ending}"
    for size in (0, 1, 9, 700, 701):
        path.write_bytes(np.random.default_rng(size).bytes(size))
        assert "`PATH`" in refused(path)


MARKS = "meta train test|batches.meta|VG-SGG.h5|annotations/instances_val2017.json|train_full.csv|a_train.txt|a.arff"
MORE = "ImageSets/Main/train.txt|ImageList/a Groundtruth/b|test-annotations-human-imagelabels.csv|F.npy y.npy"


@pytest.mark.parametrize("names", f"{MARKS}|{MORE}".split("|"))
def test_a_folder_that_only_looks_like_a_format_is_refused(names, tmp_path):
    for name in names.split():
        put(tmp_path / name, b"\x80\x02\xff\x00nothing")
    assert "`PATH" in refused(tmp_path)


def test_what_is_not_there_or_empty_or_odd_is_refused(tmp_path):
    known = f"one of {', '.join(FORMATS)}"
    assert refused(table(tmp_path), format="nonsense") == f"`format` must be {known}; got 'nonsense'."
    (tmp_path / "lost.csv").symlink_to(tmp_path / "nowhere")
    for missing in (tmp_path / "missing.csv", tmp_path / "lost.csv", "x" * 500, "a\0b"):
        assert refused(missing) == "`PATH` does not exist."
    assert refused("x" * 5000).endswith("x` does not exist.")
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    picture(tmp_path / "flat" / "1.jpg")
    for path in ("empty", "empty/inner", "flat", "flat/1.jpg"):
        assert refused(tmp_path / path) == f"`PATH` has no known format; `format` can be {known}."


def test_the_ambiguous_world_can_have_label_noise_in_its_training_rows_alone():
    data = open_dataset("ambiguous", rows=500, noise=0.5)
    changed = data.targets != data.true_targets
    assert 0.2 < changed[data.part_rows("train")].float().mean() < 0.5
    assert not changed[data.part_rows("test")].any()
    with pytest.raises(ValueError, match=r"^`noise` must lie in \[0, 1\]; got 2\.$"):
        open_dataset("ambiguous", noise=2)


def read(
    path: Path,
    *,
    size: int | tuple[int, int] | None = None,
    column: str | Sequence[str] | None = None,
    columns: Sequence[str] = (),
    values: Sequence[float] | None = None,
    share: float | None = None,
    file: str | Path | bool | None = None,
    which: Literal["all", "some"] = "all",
    dtype: torch.dtype = torch.float32,
    loose=None,
) -> None:
    """Take an option of each type."""


def options_of(texts, reader):
    return reader_options(read_entries(texts, "--reader", parse=False), reader)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("size=8", 8),
        ("size=[8, 9]", (8, 9)),
        ("size=null", None),
        ("column=5", "5"),
        ("column=true", "true"),
        ("column=a=b", "a=b"),
        ("column=", ""),
        ('column="5"', "5"),
        ('column=["a", "b"]', ("a", "b")),
        ("column=[1, 2]", "[1, 2]"),
        ("column=NaN", "NaN"),
        ("column=Infinity", "Infinity"),
        ("columns=a", ("a",)),
        ("columns=[]", ()),
        ("values=[1, 0.5]", (1, 0.5)),
        ("share=1", 1),
        ("share=0.5", 0.5),
        ("file=false", False),
        ("file=0", "0"),
        ("which=some", "some"),
        ("which=none", "none"),  # The reader says which there are.
        ("loose=[1, [2]]", (1, (2,))),
    ],
)
def test_a_value_is_what_the_reader_takes(option, value):
    (found,) = options_of([option], read).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["size=abc"],
            "reader option `size` must be a whole number or a list of 2, each a whole number or null; got 'abc'.",
        ),
        (["size=[8]"], "got '[8]'."),
        (["size=[8, 1.5]"], "got '[8, 1.5]'."),
        (["size=true"], "got 'true'."),
        (["share=[1]"], "reader option `share` must be a number or null; got '[1]'."),
        (["values=[true]"], "reader option `values` must be a list, each a number or null; got '[true]'."),
        (["dtype=float32"], "reader option `dtype` must be a dtype, which cannot be given as text; got 'float32'."),
        (["size"], "--reader must be NAME=VALUE, or an object like '{name: value}'; got 'size'."),
        (["a b=1"], "got 'a b=1'."),
        (["[size]"], "got '[size]'."),
        (["format=x"], "must be among size, column, columns, values, share, file, which, dtype, loose; got 'format'."),
    ],
)
def test_a_mistake_is_one_sentence(options, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        options_of(options, read)
    assert str(caught.value).endswith(message)
    assert str(caught.value).startswith(("--reader ", "reader option"))


def test_an_object_replaces_what_came_before_and_an_entry_adds_to_it():
    assert options_of(["share=1", "{size: [1, 2], column: a}", "column=b"], read) == {"size": (1, 2), "column": "b"}


def test_deep_nesting_is_text():
    text = "[" * 10_000
    assert options_of([f"column={text}"], read) == {"column": text}


def takes(reader, option: str, text: str) -> bool:
    try:
        return bool(options_of([f"{option}={text}"], reader))
    except ValueError as error:
        return pytest.fail(str(error)) if f"reader option `{option}` must be " not in str(error) else False


@pytest.mark.parametrize("name", FORMATS)
def test_the_types_of_every_reader_are_understood(name):
    reader = FORMATS[name].read
    hints = get_type_hints(reader)
    options = {given.name for given in signature(reader).parameters.values() if given.kind is given.KEYWORD_ONLY}
    assert options <= hints.keys()
    for option in options - {"dtype"}:
        assert any(takes(reader, option, text) for text in ("5", "true", "[8, 8]", "a"))
        # Whatever may be left out may be null.
        assert takes(reader, option, "null") or type(None) not in get_args(hints[option])
    if "size" in options:
        assert options_of(["size=[8, 8]"], reader) == {"size": (8, 8)}

"""What holds for every reader: the same rows however they are written, and one sentence for a file that is wrong."""

import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shortlist.data import open_dataset
from shortlist.data.dataset import Dataset
from shortlist.data.opening import BUILT_IN, FORMATS, recognize_format
from tests.data.formats.samples import (
    COMPRESS,
    DECOMPRESS,
    EXTREME,
    MIMIC_COLUMNS,
    MUSIC,
    OPEN_IMAGES,
    OUTSIDE,
    SAMPLES,
    SCENE,
    SCENE_LABELS,
    place,
    put,
)
from tests.data.refusals import refusal, refused

TEXT = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".arff", ".xml")
COMPRESSED = [name for name in OUTSIDE if name.endswith((" gz", " xz"))]
ENCODED = {"arff": "MEKA", "bioasq": "BioASQ", "table": "CSV"}
ONE_PER_FORMAT = {sample.format: name for name, sample in SAMPLES.items()}


def text_files(folder: Path) -> list[Path]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in files if file.name.removesuffix(".gz").removesuffix(".xz").endswith(TEXT))


def content(dataset: Dataset) -> Any:
    """Everything that a file says, as plain values."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to_dense().tolist()
        return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value

    split = None if dataset.split is None else (dataset.split.names, dataset.split.index.tolist())
    rows = dataset.inputs.batch(torch.arange(len(dataset)))
    return plain(rows), plain(dataset.targets), dataset.label_names, split, sorted(dataset.row_groups)


def test_every_format_has_a_sample():
    assert {sample.format for sample in SAMPLES.values()} == set(FORMATS)
    readers = {name: inspect.signature(form.read).parameters for name, form in FORMATS.items()}
    assert {name for name, parameters in readers.items() if "encoding" in parameters} == set(ENCODED)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_recognized_and_read_completely(name, tmp_path, monkeypatch):
    sample, path = SAMPLES[name], place(name, tmp_path, monkeypatch)
    assert recognize_format(path)[0] == sample.format
    dataset = open_dataset(path)
    assert dataset.inputs.kind == sample.kind
    assert list(zip(dataset.label_names, dataset.label_counts().tolist(), strict=True)) == list(sample.labels.items())
    split = dataset.split
    parts = [(None, len(dataset))] if split is None else list(zip(split.names, split.counts().tolist(), strict=True))
    assert parts == list(sample.parts.items())
    assert len(dataset) == sample.rows
    assert sum(len(dataset[row].unknown) for row in range(min(5, len(dataset)))) == sample.unknown
    if sample.format not in BUILT_IN:
        named = open_dataset(str(path), format=sample.format)
        assert (named.label_names, len(named), named.name) == (dataset.label_names, len(dataset), dataset.name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_inputs_are_the_same_in_another_process(name, tmp_path, monkeypatch):
    inputs = open_dataset(place(name, tmp_path, monkeypatch)).inputs
    rows, both = torch.tensor([len(inputs) - 1, 0]), torch.tensor([0, 1])
    expected = str(inputs.batch(rows))
    assert str(pickle.loads(pickle.dumps(inputs)).batch(rows)) == expected
    assert str(pickle.loads(pickle.dumps(inputs.take(rows))).batch(both)) == expected


@pytest.mark.parametrize("name", OUTSIDE)
def test_windows_line_ends_a_byte_order_mark_and_a_missing_last_line_end_change_nothing(name, tmp_path, monkeypatch):
    path = place(name, tmp_path, monkeypatch)
    form, expected = SAMPLES[name].format, content(open_dataset(path))
    written = {file: DECOMPRESS.get(file.suffix, bytes)(file.read_bytes()) for file in text_files(tmp_path)}
    for rewrite in (
        lambda text: (
            b"\xef\xbb\xbf" + text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        ),
        lambda text: text.rstrip(b"\r\n"),
    ):
        for file, text in written.items():
            file.write_bytes(COMPRESS.get(file.suffix, bytes)(rewrite(text)))
        assert content(open_dataset(path, format=form)) == expected


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_that_is_not_text_is_named_if_it_is_read_at_all(name, tmp_path, monkeypatch):
    path = place(name, tmp_path, monkeypatch)
    form, expected = SAMPLES[name].format, content(open_dataset(path))
    for file in text_files(tmp_path):
        whole = file.read_bytes()
        file.write_bytes(COMPRESS.get(file.suffix, bytes)(b"\xff\xd8\xff\xe0"))
        message = refusal(path, format=form)
        if message is None:
            assert content(open_dataset(path, format=form)) == expected
        else:
            assert file.name in message or file == path
        file.write_bytes(whole)


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_damaged_archive_is_refused(name, tmp_path, monkeypatch):
    path = place(name, tmp_path, monkeypatch)
    whole = path.read_bytes()
    text = DECOMPRESS[path.suffix](whole)
    for damaged in (whole[:-9], whole[: len(whole) // 2], text, whole[:12] + b"\xff" * 60 + whole[72:]):
        path.write_bytes(damaged)
        assert refused(path, format=SAMPLES[name].format).startswith("`PATH` is damaged")


@pytest.mark.parametrize("form", ENCODED)
def test_another_encoding_is_read_if_it_is_named(form, tmp_path, monkeypatch):
    path = place(ENCODED[form], tmp_path, monkeypatch)
    label = open_dataset(path).label_names[0]
    path.write_bytes(path.read_bytes().replace(label.encode(), "é".encode("latin-1") + label[1:].encode()))
    assert f"é{label[1:]}" in open_dataset(path, format=form, encoding="latin-1").label_names
    if form == "table":  # Tables are read as they come, and say so.
        assert f"é{label[1:]}" in open_dataset(path).label_names
    else:
        assert "is not utf-8 text: " in refused(path, format=form)
    message = "`encoding` must be one that Python knows; got 'no such'."
    assert refused(path, format=form, encoding="no such") == message


@pytest.mark.parametrize("name", [name for name in OUTSIDE if SAMPLES[name].kind == "images"])
def test_no_image_is_opened_before_it_is_asked_for(name, tmp_path, monkeypatch):
    path = place(name, tmp_path, monkeypatch)
    images = [file for file in tmp_path.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg", ".png")]
    for image in images:
        image.write_bytes(b"")
    dataset = open_dataset(path)
    assert len(dataset) == SAMPLES[name].rows
    if images:
        with pytest.raises(ValueError, match="` is not an image"):
            dataset.batch([0])


EMPTY = [
    ({"Concepts81.txt": "sky", "ImageList/Imagelist.txt": "", "Groundtruth/AllLabels/Labels_sky.txt": ""}, 1),
    ({"ImageSets/Main/train.txt": ""}, 20),
    ({"instances_val2017.json": '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}'}, 1),
    ({"train-annotations-human-imagelabels.csv": OPEN_IMAGES, "class-descriptions.csv": "/m/01,Cat"}, 1),
    ({f"{part}_full.csv": MIMIC_COLUMNS for part in ("train", "dev", "test")}, 0),
    ({"music.arff": MUSIC[: MUSIC.index("1,0")]}, 2),
    ({"scene.arff": SCENE, "scene.xml": SCENE_LABELS}, 2),
    ({"a.txt": "0 4 3\n"}, 3),
    ({"a.txt": "0 4 3"}, 3),
    ({"a.txt": "0 0 0\n\n"}, 0),
    ({"trn_X_Xf.txt": "0 3", "trn_X_Y.txt": "0 2"}, 2),
    ({"a.json": '{"articles":[]}'}, 0),
    ({"a.json": '{"articles":[\n]}\n'}, 0),
    ({"a.csv": "text,label"}, 0),
    ({"a.csv": "x,label"}, 0),
    ({"a.csv": "text,labels"}, 0),
]


@pytest.mark.parametrize(("files", "labels"), EMPTY, ids=[" ".join(files) for files, _ in EMPTY])
def test_files_without_rows_are_a_dataset_without_rows(tmp_path, files, labels):
    for name, content in files.items():
        put(tmp_path / name, content)
    data = open_dataset(tmp_path)
    assert (len(data), data.num_labels, data.label_counts().tolist()) == (0, labels, [0] * labels)
    assert len(data.targets) == len(data.inputs) == 0


INSTANCES = '{"images": [{"id": 1, "file_name": "a"}], "annotations": [], "categories": []}'
SPELLED = {
    "arff": (["music_training.arff", "music_Dev.arff", "music_TESTING.arff", "music_val.arff"], MUSIC),
    "coco": (["instances_Training2017.json", "instances_validation2017.json", "instances_val2017.json"], INSTANCES),
    "image-folder": (["training/a/1.jpg", "IMAGES_valid/a/1.jpg", "TST/a/1.jpg", "images_dev/a/2.jpg"], ""),
    "extreme-text": (["x_Training.txt", "x_dev.txt", "x_TST.txt", "x_validation.txt"], "\n".join(EXTREME)),
}


@pytest.mark.parametrize("form", SPELLED)
def test_parts_have_one_name_however_they_are_spelled_and_come_once(tmp_path, form):
    (*names, twice), content = SPELLED[form]
    for name in names:
        put(tmp_path / name, content)
    for data in (open_dataset(tmp_path), open_dataset(tmp_path, format=form)):
        assert data.split.names == ("train", "val", "test")[: len(names)]
        assert data.split.index.tolist() == sorted(data.split.index.tolist())
        assert data.split.counts().tolist() == [len(data) // len(names)] * len(names)
    put(tmp_path / twice, content)
    assert re.search("both are the part 'val'|must hold one file", refused(tmp_path, format=form))


@pytest.mark.parametrize("form", [name for name in FORMATS if name not in BUILT_IN])
def test_a_path_that_does_not_exist_or_holds_something_else_is_refused(form, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign.bin").write_bytes(b"\x00\x01")
    assert refused(tmp_path / "missing", format=form) == "`PATH` does not exist."
    for path in ("foreign.bin", "empty"):
        assert "`PATH" in refused(tmp_path / path, format=form)


@pytest.mark.parametrize("name", ONE_PER_FORMAT.values())
def test_an_option_that_a_format_does_not_have_is_refused(name, tmp_path, monkeypatch):
    path, form = place(name, tmp_path, monkeypatch), SAMPLES[name].format
    for option in ("colour", "root", "folder", "annotations"):  # Some readers call the path so.
        for chosen in (None, form):
            message = refused(path, TypeError, format=chosen, **{option: "red"})
            assert message.startswith(f"`PATH`: {form} has no option {option!r}; it has ")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_sample_with_one_damaged_file_is_read_or_refused_in_a_sentence(name, tmp_path, monkeypatch):
    path = place(name, tmp_path, monkeypatch)
    rng = np.random.default_rng(0)
    for file in sorted(file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".jpg"):
        whole = file.read_bytes()
        flipped = bytearray(whole)
        for at in rng.integers(0, max(1, len(whole)), 3 if whole else 0):
            flipped[at] ^= 1 << int(rng.integers(8))
        for damaged in (whole[: len(whole) // 2], whole[:-1], whole[len(whole) // 3 :], bytes(flipped)):
            file.write_bytes(damaged)
            message = refusal(path)
            assert message is None or "`PATH" in message or tmp_path.name in message
        file.write_bytes(whole)

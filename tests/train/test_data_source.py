"""Parts that published data lack are drawn from those that they have, and said; where data are is not in the model."""

import shutil
from pathlib import Path

import pytest
import torch

from shortlist.data import Dataset, Features, Groups
from shortlist.errors import InputError
from shortlist.train import FitOptions, fit, load_model, save_model
from shortlist.train.data_source import describe_source, open_training_data, saved_source, with_parts


def rows(*parts: str | None) -> Dataset:
    """Ten rows of each part, in two classes."""
    named = [part for part in parts for _ in range(10)]
    inputs, classes = Features(torch.zeros(len(named), 1)), torch.arange(len(named)) % 2
    return Dataset(inputs, classes, ("a", "b"), split=Groups.of(named, order=("train", "val", "test")))


def counts(dataset: Dataset, *, said: list[str] | None = None) -> dict[str, int]:
    drawn = with_parts(dataset, seed=0, data="d.csv", tell=None if said is None else said.append)
    return {part: len(drawn.part_rows(part)) for part in ("train", "val", "test")}


def test_a_validation_part_is_tested_on_where_there_is_no_test_part():
    said: list[str] = []
    assert counts(rows("train", "train", "val"), said=said) == {"train": 18, "val": 2, "test": 10}
    assert said == ["`d.csv` has no part test: its part val is tested on, and a tenth of its part train validates."]
    dataset = rows("train", "val")
    assert with_parts(dataset, seed=0, data="d.csv").part_rows("test").tolist() == dataset.part_rows("val").tolist()


def test_a_test_part_without_rows_is_none():
    dataset = rows("train", "val")
    empty = Groups(dataset.split.index, ("train", "val", "test"))
    assert counts(Dataset(dataset.inputs, dataset.targets, ("a", "b"), split=empty)) == {
        "train": 9,
        "val": 1,
        "test": 10,
    }


@pytest.mark.parametrize("part", ["train", "val", "test", "2017"])
def test_a_single_part_is_divided(part):
    said: list[str] = []
    assert counts(rows(part, part), said=said) == {"train": 16, "val": 2, "test": 2}
    assert said == [f"`d.csv` has only the part {part}, which is divided into train, val and test at random."]


def test_parts_that_are_there_stay_and_need_no_word():
    said: list[str] = []
    dataset = rows("train", "val", "test")
    assert with_parts(dataset, seed=0, data="d.csv", tell=said.append) is dataset
    assert counts(rows("train", "test"), said=said) == {"train": 9, "val": 1, "test": 10}
    assert not said


@pytest.mark.parametrize("parts", [("val", "test"), ("early", "late"), ("train", "late"), ("train", None)])
def test_other_parts_are_refused(parts):
    with pytest.raises(InputError, match=r"^`d\.csv` must have parts train and test, or none, .*; it has .*\.$"):
        counts(rows(*parts))


def test_a_folder_of_a_model_says_what_the_data_are_and_the_cache_where(tmp_path, monkeypatch):
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "cache"))
    data, names = tmp_path / "flowers.txt", tmp_path / "names.txt"
    data.write_text("40 3 2\n" + "0 0:1.0 1:0.5\n1 2:1.0\n" * 20)
    names.write_text("rose\nviolet\n")
    reading = {"format": "extreme-text", "reader": {"names_file": str(names)}, "seed": 0}
    dataset = open_training_data(str(data), **reading)
    source = describe_source(dataset, str(data), **reading)
    folder = save_model(fit(dataset, FitOptions(k=1, epochs=1)), tmp_path / "model", source=source)
    assert [file.name for file in folder.iterdir() if str(tmp_path).encode() in file.read_bytes()] == []
    found = saved_source(load_model(folder), folder)
    assert (found.name, found.path, found.reader) == ("flowers.txt", str(data), {"names_file": str(names)})
    monkeypatch.chdir(tmp_path)
    assert saved_source(load_model(folder), folder).path == "flowers.txt"
    copied = Path(shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("cache", "copy")))
    describe_source(dataset, str(copied / "flowers.txt"), **reading)
    assert saved_source(load_model(folder), folder).path == "flowers.txt"
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "elsewhere"))
    there = saved_source(load_model(folder), folder)
    assert (there.name, there.path, there.reader, there.digest) == ("flowers.txt", None, {}, found.digest)


def test_a_cache_that_cannot_be_written_costs_the_place_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "file"))
    data = tmp_path / "plants.csv"
    data.write_text("size,species\n" + "1,rose\n2,violet\n" * 20)
    reading = {"format": None, "reader": {}, "seed": 0}
    assert describe_source(open_training_data(str(data), **reading), str(data), **reading)["name"] == "plants.csv"

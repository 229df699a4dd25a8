"""Data for a saved model: read as those were that it was trained on, with labels or without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist.cli.data_options import check_reader_options
from shortlist.cli.run_options import open_data, reader_values, with_parts
from shortlist.data import Dataset, ImageFiles
from shortlist.data.files.table_files import open_table
from shortlist.data.formats.arrays import FEATURES
from shortlist.data.formats.image_folder import IMAGE_ENDINGS
from shortlist.data.formats.tables import input_columns, read_table
from shortlist.data.opening import BUILT_IN, FORMATS, told_format
from shortlist.data.procedures.label_subset import renumbered
from shortlist.data.target_rows import label_pairs
from shortlist.data.unlabelled import (
    FileNames,
    InputBlock,
    UnlabelledRows,
    array_rows,
    image_rows,
    line_rows,
    table_rows,
)
from shortlist.train import FitOptions, SavedModel
from shortlist.train.checkpoints import run_fingerprint

_LINES = "lines"
_TEXTS = (".txt", ".txt.gz", ".txt.xz")
# What says the same of a table in two ways: one that is given takes the place of both.
_EITHER = (("text", "features"), ("label", "labels"))


@dataclass(frozen=True)
class Source:
    """How the data of a model were read.

    Args:
        kind: of the inputs, as they were read.
        format: one of ``shortlist.data.opening.FORMATS``.
        reader: the options of its reader.
        columns: of a table, those of the inputs by the option that names them.
        digest: of labels, parts and inputs, by which the same data are known again.
        seed: of the parts that training made, where the data had none.
    """

    kind: str
    format: str | None = None
    reader: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digest: str | None = None
    seed: int = 0


def describe_source(
    dataset: Dataset, path: str, *, format: str | None, reader: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """What is kept with a model of how its data were read, as plain values.

    Args:
        dataset: the data, with their parts.
        path, format, reader: of the command line.
        seed: of the parts, where the data had none; runs of a comparison have seeds of their own.
    """
    name, place = told_format(path) if format is None else (format, Path(path))
    return {
        "kind": dataset.inputs.kind,
        "format": name,
        "reader": json.loads(json.dumps(dict(reader), default=str)),
        "columns": input_columns(place, **reader) if name == "table" else {},
        "digest": run_fingerprint(dataset, FitOptions())["data"],
        "seed": seed,
    }


def kept_source(saved: SavedModel, folder: str | Path) -> Source:
    """What `describe_source` said; what the model itself tells where nothing is kept.

    Raises:
        ValueError: if what is kept is of other types than was written.
    """
    file, plan = Path(folder) / "model.json", saved.plan
    try:
        kind = plan.frozen["takes"] if plan.frozen else "text" if plan.words else plan.kind
        content = saved.about.get("source")
        if content is None:
            return Source(kind)
        columns = {str(role): tuple(map(str, names)) for role, names in content["columns"].items()}
        found = Source(
            str(content["kind"]),
            content["format"],
            reader_values(dict(content["reader"])),
            columns,
            content["digest"],
            int(content["seed"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"`{file}` is damaged: its `source` is not what was written.") from error
    if found.format not in FORMATS:
        raise ValueError(f"`{file}` is damaged: {found.format!r} is no format of data.")
    return found


def open_labelled(data: str, source: Source, *, format: str | None, reader: Mapping[str, Any]) -> Dataset:
    """A dataset with labels; with the parts that training made, where it is the one that was trained on.

    Args:
        data: a path, or a dataset that comes inside a package.
        source: how the data of the model were read.
        format: of the data; None for that of the source, or the one that the path tells.
        reader: options that come before those of the source.
    """
    name, path = _told(data, format, source)
    options = _options(name, source, reader)
    if name == "table":
        encoding = {"encoding": options["encoding"]} if "encoding" in options else {}
        there = open_table(path, **encoding).columns
        if "split" not in reader and options.get("split") not in there:
            options.pop("split", None)
        if "groups" not in reader:
            options["groups"] = ()
    dataset = open_data(path, format=name, reader=options)
    try:
        drawn = with_parts(dataset, seed=source.seed, data=data)
    except ValueError:
        return dataset
    same = drawn is not dataset and run_fingerprint(drawn, FitOptions())["data"] == source.digest
    return drawn if same else dataset


def open_unlabelled(
    data: str, source: Source, *, format: str | None, reader: Mapping[str, Any], id_column: str | None = None
) -> UnlabelledRows:
    """Rows that may have no labels; labels are not looked at, where the format allows that.

    Args:
        data, source, format, reader: as in `open_labelled`. Besides what it takes: tables without labels, texts line by
            line, features alone, an image, or a folder of images.
        id_column: the column of a table that names the rows.
    """
    name, path = _told_unlabelled(data, format, source)
    options = _options(name, source, reader)
    if id_column is not None and name != "table":
        raise ValueError(f"--id names a column of a table, and `{data}` is none; got {id_column!r}.")
    if name == _LINES:
        check_reader_options(options, read_table, known=("encoding",))
    elif name in FORMATS:
        check_reader_options(options, FORMATS[name].read)
    encoding = {"encoding": options["encoding"]} if "encoding" in options else {}
    if name == "table":
        roles = {role: options[role] for role in ("text", "features") if options.get(role) is not None}
        if not roles and source.kind == "text":
            roles = {"text": "text"}
        try:
            return table_rows(path, id_column=id_column, **roles, **encoding)
        except ValueError as error:
            raise ValueError(str(error).replace("`id_column`", "--id")) from error
    if name == _LINES:
        return line_rows(path, **encoding)
    if name == "arrays":
        kept = source.reader.get("features") if source.format == name else None
        return array_rows(path, features=reader.get("features"), usual=FEATURES if kept is None else (kept, *FEATURES))
    if name == "image-folder":
        return image_rows(path, size=options.get("size"))
    # Of labels that are read along, none is refused.
    options.pop("label_names", None)
    return rows_of(open_data(path, format=name, reader=options), data)


def rows_of(dataset: Dataset, data: str, *, part: str | None = None) -> UnlabelledRows:
    """The rows of a dataset, or of a part of it, with the numbers that they have in the dataset."""
    rows = torch.arange(len(dataset)) if part is None else part_rows(dataset, part, data)
    inputs = dataset.inputs.take(rows)
    ids = FileNames(inputs, Path(data)) if isinstance(inputs, ImageFiles) else None
    place = (lambda row: f"`{inputs.path(row)}`") if isinstance(inputs, ImageFiles) else _numbered(data, rows)
    block = InputBlock(inputs, ids, place, None if part is None else rows.tolist())
    return UnlabelledRows(Path(data), lambda: iter([block]), lambda: len(rows))


def part_rows(dataset: Dataset, part: str, data: str) -> Tensor:
    """The numbers of the rows of a part; ValueError if the data have none of this name."""
    if dataset.split is None:
        raise ValueError(f"`{data}` has no parts; leave --part {part} out to take all rows.")
    if part not in dataset.split.names:
        raise ValueError(f"`{data}` has no part {part!r}; it has {', '.join(dataset.split.names)}.")
    return dataset.part_rows(part)


def targets_by_name(dataset: Dataset, rows: Tensor, saved: SavedModel, *, data: str, folder: str) -> Tensor:
    """The true labels of some rows under the numbers that the model has for their names.

    Raises:
        ValueError: names a label that the model does not know, and the first row that has it.
    """
    part = dataset.subset(rows)
    number = {name: place for place, name in enumerate(saved.label_names)}
    known = torch.tensor([number.get(name, -1) for name in part.label_names], dtype=torch.int64)
    at, labels, _ = label_pairs(part.true_targets, part.num_labels)
    wrong = (known[labels] < 0).nonzero()
    if len(wrong):
        name, row = part.label_names[int(labels[wrong[0]])], int(rows[at[wrong[0]]])
        raise ValueError(f"`{data}` row {row} has the label {name!r}, which `{folder}` does not know.")
    return renumbered(part.true_targets, known, len(saved.label_names))


def _numbered(data: str, rows: Tensor) -> Any:
    return lambda row: f"`{data}` row {int(rows[row])}"


def _options(name: str, source: Source, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of training, if the format is the same, and those that are given over them."""
    kept = {**source.reader, **{role: None for role in _EITHER[0] if source.columns}, **source.columns}
    kept = kept if name == source.format else {}
    for either in _EITHER:
        if any(key in given for key in either):
            kept = {key: value for key, value in kept.items() if key not in either}
    return {**kept, **reader_values(given)}


def _told(data: str, format: str | None, source: Source) -> tuple[str, Path]:
    """The format of labelled data: as asked for, as in training if that fits, or as the path tells."""
    path = Path(data)
    if format is not None:
        return format, path
    if source.format is not None and source.format not in BUILT_IN and FORMATS[source.format].recognises(path):
        return source.format, path
    return told_format(path)


def _told_unlabelled(data: str, format: str | None, source: Source) -> tuple[str, Path]:
    path = Path(data)
    ending = path.name.lower()
    if format is not None or not path.exists():
        return _told(data, format, source)
    if source.kind == "text" and ending.endswith(_TEXTS):
        return _LINES, path
    if source.kind == "images" and (ending.endswith(IMAGE_ENDINGS) if path.is_file() else _has_images(path)):
        return "image-folder", path
    return _told(data, format, source)


def _has_images(folder: Path) -> bool:
    """Whether images lie in a folder itself, and not in folders by class or as a format has it."""
    return any(file.name.lower().endswith(IMAGE_ENDINGS) for file in folder.glob("[!.]*") if file.is_file())

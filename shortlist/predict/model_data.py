"""Data for a saved model: read the way its training data were, with labels or without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shortlist.data import Dataset, ImageFiles, Texts
from shortlist.data.files.table_files import open_table
from shortlist.data.formats.arrays import FEATURES
from shortlist.data.formats.images.image_folder import IMAGE_ENDINGS
from shortlist.data.formats.tables import read_table
from shortlist.data.opening import BUILT_IN, FORMATS, open_data, reader_options, recognize_format
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
from shortlist.errors import InputError
from shortlist.targets import TargetForm, target_form
from shortlist.train import SavedModel
from shortlist.train.data_source import DataSource, is_training_data, with_parts

Unseen = Literal["refuse", "miss", "drop"]
_LINES = "lines"
_TEXT_FILES = (".txt", ".txt.gz", ".txt.xz")
# Pairs of options that say the same about a table: a given one replaces both.
_EXCLUSIVE = (("text", "features"), ("label", "labels"))


def open_labelled(data: str, source: DataSource, *, format: str | None, reader: Mapping[str, Any]) -> Dataset:
    """Open a dataset with labels; if it is the one that was trained on, with the parts that training drew.

    Args:
        data: a path, or a dataset inside a package.
        source: how the data of the model were read.
        format: of the data; by default that of the source, or what the path tells.
        reader: options that override those of the source.
    """
    name, path = _format_of(data, format, source)
    options = _options(name, source, reader)
    if name == "table":
        columns = open_table(path, **_file_options(options)).columns
        if "split" not in reader and options.get("split") not in columns:
            options.pop("split", None)
        if "groups" not in reader:
            options["groups"] = ()
    dataset = open_data(path, format=name, reader=options)
    try:
        drawn = with_parts(dataset, seed=source.seed, data=data)
    except ValueError:
        return dataset
    return drawn if drawn is not dataset and is_training_data(drawn, source) else dataset


def open_unlabelled(
    data: str, source: DataSource, *, format: str | None, reader: Mapping[str, Any], id_column: str | None = None
) -> UnlabelledRows:
    """Open rows that need no labels; labels are ignored where the format allows that.

    Args:
        data, source, format, reader: as in `open_labelled`. Also taken are tables without labels, text line by line,
            features alone, an image, or a folder of images.
        id_column: the column of a table that holds the ids of rows.
    """
    name, path = _unlabelled_format_of(data, format, source)
    options = _options(name, source, reader)
    if id_column is not None and name != "table":
        raise InputError(f"`{data}` is not a table, so it has no id column {id_column!r}.")
    if name == _LINES:
        options = reader_options(options, read_table, known=("encoding",))
    elif name in FORMATS:
        options = reader_options(options, FORMATS[name].read)
    if name == "table" and source.kind == "images":
        raise InputError(f"`{data}` is a table, but the model takes images.")
    if name == "table":
        roles = {role: options[role] for role in ("text", "features") if options.get(role) is not None}
        if not roles and source.kind == "text":
            roles = {"text": "text"}
        return table_rows(path, id_column=id_column, **roles, **_file_options(options))
    if name == _LINES:
        return line_rows(path, **options)
    if name == "arrays":
        kept = source.reader.get("features") if source.format == name else None
        return array_rows(
            path,
            features=options.get("features") if "features" in reader else None,
            usual=FEATURES if kept is None else (kept, *FEATURES),
        )
    if name == "image-folder":
        return image_rows(path, size=options.get("size"))
    # Labels that are read along are ignored, so none is refused.
    options.pop("label_names", None)
    return rows_of(open_data(path, format=name, reader=options), data)


def text_rows(texts: Sequence[str]) -> UnlabelledRows:
    """Return texts as rows."""
    block = InputBlock(Texts(list(texts)), None, lambda row: f"text {row}")
    return UnlabelledRows(Path("text"), lambda: iter([block]), lambda: len(texts))


def rows_of(dataset: Dataset, data: str, *, rows: Tensor | None = None) -> UnlabelledRows:
    """Return all rows of a dataset, or some of them, with their numbers in the dataset."""
    some = torch.arange(len(dataset)) if rows is None else rows
    inputs = dataset.inputs.take(some)
    ids = FileNames(inputs, Path(data)) if isinstance(inputs, ImageFiles) else None
    location = (lambda row: f"`{inputs.path(row)}`") if isinstance(inputs, ImageFiles) else _numbered(data, some)
    block = InputBlock(inputs, ids, location, None if rows is None else some.tolist())
    return UnlabelledRows(Path(data), lambda: iter([block]), lambda: len(some))


def part_rows(dataset: Dataset, part: str, data: str) -> Tensor:
    """Return the numbers of the rows of a part; InputError if the data have no part of that name."""
    if dataset.split is None:
        raise InputError(f"`{data}` has no parts, so none is called {part!r}: leave out the part to use all rows.")
    if part not in dataset.split.names:
        raise InputError(f"`{data}` has no part {part!r}; it has {', '.join(dataset.split.names)}.")
    return dataset.part_rows(part)


class KnownTargets(NamedTuple):
    """True labels of some rows, numbered as a model numbers their names.

    Attributes:
        rows: their numbers in the dataset.
        target: the labels; those that the model does not know follow its own, or are left out.
        unseen: the labels that the model does not know, and in how many rows each occurs.
    """

    rows: Tensor
    target: Tensor
    unseen: dict[str, int]


def targets_by_name(
    dataset: Dataset, rows: Tensor, saved: SavedModel, unseen: Unseen, *, data: str, folder: str
) -> KnownTargets:
    """Return the true labels of some rows by the model's numbers.

    Args:
        dataset, rows: the rows.
        saved: the model.
        unseen: as in `open_model`.
        data, folder: names of data and model, for errors.

    Raises:
        InputError: with ``refuse``, names a label that the model does not know, and the first row that has it.
    """
    part, numbers = dataset.subset(rows), label_numbers(dataset, saved)
    at, labels, present = label_pairs(part.true_targets, part.num_labels)
    new = (numbers[labels] < 0) & present
    counts = Counter(part.label_names[label] for label in labels[new].tolist())
    if unseen == "refuse" and counts:
        name, row = part.label_names[int(labels[new][0])], int(rows[at[new][0]])
        raise InputError(f"`{data}` row {row} has the label {name!r}, which `{folder}` does not know.")
    width = len(saved.label_names)
    if unseen == "drop" and counts and target_form(part.true_targets, part.num_labels) is TargetForm.CLASS_INDICES:
        kept = torch.ones(len(part), dtype=torch.bool)
        kept[at[new]] = False
        rows, part = rows[kept], part.subset(kept.nonzero().squeeze(1))
        if not len(rows):
            raise InputError(f"`{data}` has only labels that `{folder}` does not know, such as {next(iter(counts))!r}.")
    elif unseen == "miss":
        extra = {name: width + place for place, name in enumerate(counts)}
        numbers = torch.tensor([extra.get(name, int(numbers[at])) for at, name in enumerate(part.label_names)])
        width += len(extra)
    return KnownTargets(rows, renumbered(part.true_targets, numbers, width), dict(counts.most_common()))


def label_numbers(dataset: Dataset, saved: SavedModel) -> Tensor:
    """The number of each label of a dataset in a model; -1 for labels that it does not know."""
    number_of = {name: number for number, name in enumerate(saved.label_names)}
    return torch.tensor([number_of.get(name, -1) for name in dataset.label_names], dtype=torch.int64)


def _numbered(data: str, rows: Tensor) -> Callable[[int], str]:
    return lambda row: f"`{data}` row {int(rows[row])}"


def _options(name: str, source: DataSource, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reader's options of training, if the format is the same, overridden by the given ones."""
    kept = {**source.reader, **{role: None for role in _EXCLUSIVE[0] if source.columns}, **source.columns}
    kept = kept if name == source.format else {}
    for pair in _EXCLUSIVE:
        if any(option in given for option in pair):
            kept = {option: value for option, value in kept.items() if option not in pair}
    return {**kept, **given}


def _file_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("encoding", "delimiter") if name in options}


def _format_of(data: str, format: str | None, source: DataSource) -> tuple[str, Path]:
    """Return the format of labeled data: the given one, that of training if it applies, or what the path tells."""
    path = Path(data)
    if format is not None:
        return format, path
    if source.format is not None and source.format not in BUILT_IN and FORMATS[source.format].recognises(path):
        return source.format, path
    return recognize_format(path)


def _unlabelled_format_of(data: str, format: str | None, source: DataSource) -> tuple[str, Path]:
    path = Path(data)
    suffix = path.name.lower()
    if format is not None or not path.exists():
        return _format_of(data, format, source)
    if source.kind == "text" and suffix.endswith(_TEXT_FILES):
        return _LINES, path
    if source.kind == "images" and (suffix.endswith(IMAGE_ENDINGS) if path.is_file() else _has_images(path)):
        return "image-folder", path
    return _format_of(data, format, source)


def _has_images(folder: Path) -> bool:
    """Whether there are images in the folder itself, rather than in a folder per class."""
    return any(file.name.lower().endswith(IMAGE_ENDINGS) for file in folder.glob("[!.]*") if file.is_file())

"""How the data of a model were read: kept with the model, so that new data are read the same way.

Where the data are is kept in the user's cache, by a digest that the model states: a model's folder may be published,
and a path of one machine tells others something about its owner, and nothing about the data.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from shortlist.data import Dataset, ImageFiles, split_at_random, split_off_validation
from shortlist.data.formats.tables import table_roles
from shortlist.data.opening import BUILT_IN, FORMATS, open_data, reader_options, recognize_format
from shortlist.errors import InputError
from shortlist.files import cache_folder, read_document, replacing
from shortlist.fingerprint import digest_values
from shortlist.fit_options import FitOptions
from shortlist.targets import to_class_indices
from shortlist.train.checkpoints import run_fingerprint
from shortlist.train.fit import make_run
from shortlist.train.inputs import check_rows, is_one_class
from shortlist.train.saved_model import SavedModel
from shortlist.typed_values import with_tuples

_IMAGES_AT_ONCE = 16
_PLACE = "shortlist place of data"
_VERSION = 1


@dataclass(frozen=True)
class DataSource:
    """How the data of a model were read.

    Args:
        kind: of the inputs, before a frozen encoder or a hash of words.
        format: one of ``shortlist.data.opening.FORMATS``; None if unknown.
        reader: the options of its reader.
        columns: for a table, the input columns by the option that names them.
        digest: of labels, parts and inputs, which recognizes the same data.
        seed: of the parts that training drew because the data had none.
        one_class: whether rows had one class each; None if unknown.
        name: of the file or folder; None if unknown.
        path: where the data are on this machine; None if unknown.
    """

    kind: str
    format: str | None = None
    reader: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digest: str | None = None
    seed: int = 0
    one_class: bool | None = None
    name: str | None = None
    path: str | None = None


def open_training_data(
    path: str,
    *,
    format: str | None,
    reader: Mapping[str, Any],
    seed: int,
    multi_label: bool = False,
    tell: Callable[[str], object] | None = None,
) -> Dataset:
    """Open the data to train on; if they have no parts, a tenth each is set aside for validation and test.

    Args:
        path, format, reader: what to read, and how.
        seed: of the parts.
        multi_label: whether labels remain sets if every row has exactly one; otherwise it becomes the row's class.
        tell: called with a sentence if something was assumed about a table, or labels become classes.
    """
    dataset = open_data(path, format=format, reader=reader, tell=tell)
    if not len(dataset):
        raise InputError(f"`{path}` holds no rows.")
    found = dataset if multi_label else with_classes(dataset)
    if found is not dataset and tell is not None:
        tell("Every row has exactly one label, which is taken as its class; --multi-label treats labels as sets.")
    return with_parts(found, seed=seed, data=path, tell=tell)


def with_classes(dataset: Dataset) -> Dataset:
    """Return the dataset with class indices if every row has exactly one label, else the dataset itself.

    Example:
        >>> import torch
        >>> from shortlist.data import Features
        >>> lists = Dataset(Features(torch.zeros(2, 1)), torch.tensor([[2, -1], [0, -1]]), ("a", "b", "c"))
        >>> with_classes(lists).targets
        tensor([2, 0])
    """
    if is_one_class(dataset) or not len(dataset):
        return dataset
    try:
        classes = to_class_indices(dataset.targets, dataset.num_labels)
        clean = dataset.clean_targets
        clean = None if clean is None else to_class_indices(clean, dataset.num_labels)
    except ValueError:
        return dataset
    return replace(dataset, targets=classes, clean_targets=clean)


def with_parts(dataset: Dataset, *, seed: int, data: str, tell: Callable[[str], object] | None = None) -> Dataset:
    """Return the dataset with parts train, val and test; parts that it has stay, others are drawn.

    Published data often keep the labels of their test part back. Then the part val, which everybody reports on, is the
    part test, and rows to validate on are drawn from train. A single part is divided as rows without parts are.

    Args:
        dataset: with any parts, or none.
        seed: of the draw.
        data: its path, for errors.
        tell: called with a sentence if a part serves as another.
    """
    if dataset.split is None:
        return split_at_random(dataset, seed=seed)
    names = [name for name in dataset.split.names if len(dataset.part_rows(name))]
    if len(names) == 1 and len(dataset.part_rows(names[0])) == len(dataset):
        if tell is not None:
            tell(f"`{data}` has only the part {names[0]}, which is divided into train, val and test at random.")
        return split_at_random(dataset, seed=seed)
    if "train" in names and "test" not in names and "val" in names:
        if tell is not None:
            tell(f"`{data}` has no part test: its part val is tested on, and a tenth of its part train validates.")
        renamed = tuple({"val": "test", "test": "val"}.get(name, name) for name in dataset.split.names)
        return split_off_validation(replace(dataset, split=replace(dataset.split, names=renamed)), seed=seed)
    missing = [part for part in ("train", "test") if part not in names]
    if missing:
        raise InputError(
            f"`{data}` must have parts train and test, or none, so that they are drawn; it has {', '.join(names)}."
        )
    if "val" not in names:
        return split_off_validation(dataset, seed=seed)
    return dataset


def check_test_rows(dataset: Dataset, candidates: Iterable[FitOptions], *, name: str) -> None:
    """Read the test rows, which are needed only after training, so that a bad one is found before.

    Args:
        dataset: with a part test.
        candidates: checked before many image files are read.
        name: of the data, for errors.
    """
    check_rows(dataset, ("test",), name=name)
    if isinstance(dataset.inputs, ImageFiles):
        for options in candidates:
            make_run(dataset, options, data_name=name)
        for rows in dataset.part_rows("test").split(_IMAGES_AT_ONCE):
            dataset.inputs.batch(rows)


def describe_source(
    dataset: Dataset, path: str, *, format: str | None, reader: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Return what `save_model` keeps of how the data were read, as plain values, and note where the data are.

    Args:
        dataset: the data, with their parts.
        path, format, reader: as in `open_training_data`.
        seed: of the parts, if they were drawn; the runs of a comparison have seeds of their own.
    """
    name, location = recognize_format(path, format)
    options, columns = reader_options(reader, FORMATS[name].read), {}
    if name == "table":
        # New tables are read as this one was, whatever their own first rows suggest.
        roles = table_roles(location, **options).options
        columns = {role: roles.pop(role) for role in ("text", "features") if roles[role] is not None}
        columns = {role: [names] if isinstance(names, str) else list(names) for role, names in columns.items()}
        options |= {role: roles[role] for role in ("label", "labels", "separator", "split") if roles[role] is not None}
    hints = get_type_hints(FORMATS[name].read)
    files = {option: options.pop(option) for option in list(options) if _is_file(options[option], hints.get(option))}
    source = {
        "kind": dataset.inputs.kind,
        "format": name,
        "reader": json.loads(json.dumps(options, default=str)),
        "columns": columns,
        "digest": run_fingerprint(dataset, FitOptions())["data"],
        "seed": seed,
        "one_class": is_one_class(dataset),
        "name": Path(path).name,
    }
    # With the path, because copies of the same data are in several places.
    source["place"] = digest_values([path, source["digest"]])
    if name not in BUILT_IN:
        note_place(source["place"], path, files)
    return source


def note_place(place: str, path: str | Path, files: Mapping[str, Any]) -> None:
    """Note in the user's cache where data are; nothing happens if it cannot be written.

    Args:
        place: the digest under which a model finds the note.
        path: of the data.
        files: options of the reader that name further files.
    """
    found = {
        "path": str(Path(path).absolute()),
        "reader": {name: str(Path(file).absolute()) for name, file in files.items()},
    }
    with contextlib.suppress(OSError), replacing(_place_file(place)) as partial:
        partial.write_text(json.dumps({"format": _PLACE, "version": _VERSION, **found}))


def _is_file(value: Any, hint: Any) -> bool:
    """Whether the value of an option names a further file; some take the names of labels instead."""
    return Path in get_args(hint) and isinstance(value, str | Path) and Path(value).exists()


def _place_file(place: str) -> Path:
    return cache_folder() / "places" / f"{place}.json"


def _noted_place(place: Any) -> tuple[str | None, dict[str, Any]]:
    """The path of data and the options that name further files, relative to this folder if inside; None if unknown."""
    with contextlib.suppress(InputError, KeyError, TypeError):
        if re.fullmatch("[0-9a-f]+", place):
            found = read_document(_place_file(place), kind=_PLACE, version=_VERSION)
            path = Path(found["path"])
            return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path), dict(found["reader"])
    return None, {}


def saved_source(saved: SavedModel, folder: str | Path) -> DataSource:
    """Return what `describe_source` kept with a model, or what the model itself tells.

    Raises:
        InputError: if the record is damaged.
    """
    file, plan = Path(folder) / "model.json", saved.plan
    try:
        kind = plan.frozen["takes"] if plan.frozen else "text" if plan.words else plan.kind
        content = saved.about.get("source")
        if content is None:
            return DataSource(kind)
        path, files = _noted_place(content.get("place"))
        found = DataSource(
            str(content["kind"]),
            content["format"],
            {str(option): with_tuples(value) for option, value in {**content["reader"], **files}.items()},
            {str(role): tuple(map(str, names)) for role, names in content["columns"].items()},
            content["digest"],
            int(content["seed"]),
            content.get("one_class"),
            None if content.get("name") is None else str(content["name"]),
            path,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"`{file}` is damaged: its `source` is not what was written.") from error
    if found.format not in FORMATS:
        raise InputError(f"`{file}` is damaged: {found.format!r} is not a data format.")
    return found


def is_training_data(drawn: Dataset, source: DataSource) -> bool:
    """Whether a dataset, with its parts, is the one that the model was trained on."""
    return run_fingerprint(drawn, FitOptions())["data"] == source.digest

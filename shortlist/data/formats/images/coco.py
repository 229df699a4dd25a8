"""COCO instances: the categories that occur in each image, from the JSON of their outlines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PART_PATTERN, PARTS, by_part, part_name
from shortlist.data.files.text_files import json_field, need_file, read_json
from shortlist.data.groups import Groups, first_repeat
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError

_PART = re.compile(rf"(?:^|[_-])({PART_PATTERN})[_-]?(\d{{4}})?$", re.IGNORECASE)


def read_coco(
    annotations: str | Path,
    *,
    images: str | Path | None = None,
    split: str | None = None,
    year: int | None = None,
    size: int | tuple[int, int] | None = None,
) -> Dataset:
    """Read COCO instances: a label is present in an image with an annotation of its category, crowds included.

    The layout is ``annotations/instances_train2017.json`` with the images in ``train2017/`` beside ``annotations/``.
    Rows are the images in the order of the file, those without annotations included; labels are the categories by
    ascending id, which has gaps.

    Args:
        annotations: a JSON file of instances, the folder ``annotations`` with ``instances_{train,val}{year}.json`` (or
            only ``person_keypoints_...``), or the folder above it.
        images: the folder that contains ``train2017`` and so on, or the folder of the images itself; by default the
            one beside the annotations.
        split: for a file, the part of its images, if its name does not say so; for a folder, the only part to read.
            ``validation`` and the like are ``val``, also in file names.
        year: which files of a folder to read; needed if it holds several years, which share their images.
        size: as in `ImageFiles`.

    Returns:
        Images with sparse targets, ``label_groups["superclass"]`` and the split.

    Raises:
        InputError: names the file and the record that breaks a rule.

    Example:
        >>> import json, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "instances_val2017.json")
        ...     _ = file.write_text(json.dumps({
        ...         "images": [{"id": 139, "file_name": "139.jpg"}, {"id": 285, "file_name": "285.jpg"}],
        ...         "annotations": [{"id": 1, "image_id": 285, "category_id": 23}],
        ...         "categories": [{"id": 23, "name": "bear", "supercategory": "animal"}],
        ...     }))
        ...     coco = read_coco(file)
        >>> coco.label_names, coco.split.names, coco.targets.to_dense()
        (('bear',), ('val',), tensor([[0.], [1.]]))

    References:
        Lin et al., "Microsoft COCO: common objects in context", ECCV 2014; https://cocodataset.org/#format-data.
    """
    split = None if split is None else part_name(split)
    files = _instance_files(Path(annotations), split, year)
    read = [_read_instances(file) for file in files]
    for file, one in zip(files, read, strict=True):
        differing = sorted({kind[0] for kind in set(one.categories).symmetric_difference(read[0].categories)})
        if differing:
            raise InputError(f"`{file}` must have the categories of `{files[0]}`; id {differing[0]} differs.")
    folders = [_image_folder(file, images) for file in files]
    paths = PathList.of(
        f"{folder}/{name}" for folder, one in zip(folders, read, strict=True) for name in one.file_names
    )
    parts: list[str | None] = []
    rows: list[np.ndarray] = []
    for file, one in zip(files, read, strict=True):
        rows.append(one.rows + len(parts))
        parts += [split or _part_and_year(file)[0]] * len(one.file_names)
    names = tuple(name for _, name, _ in read[0].categories)
    supers = [above for _, _, above in read[0].categories]
    labels = np.concatenate([one.labels for one in read])
    years = {_part_and_year(file)[1] for file in files}
    return Dataset(
        ImageFiles(paths, size=size),
        sparse_targets(np.concatenate(rows), labels, len(paths), len(names)),
        names,
        label_groups={"superclass": Groups.of(supers)} if any(above is not None for above in supers) else {},
        split=Groups.of(parts, order=PARTS) if any(part is not None for part in parts) else None,
        name=f"COCO {years.pop() or ''}".strip(),
    )


class _Instances(NamedTuple):
    """The content of one file."""

    file_names: list[str]
    categories: list[tuple[int, str, str | None]]  # id, name and supercategory, by ascending id
    rows: np.ndarray
    labels: np.ndarray


def _part_and_year(file: Path) -> tuple[str | None, str]:
    found = _PART.search(file.stem)
    return (part_name(found[1]), found[2] or "") if found else (None, "")


def _instance_files(path: Path, split: str | None, year: int | None) -> list[Path]:
    if not path.is_dir():
        if year is not None:
            raise InputError(f"`year` selects files of a folder; got {year} for the file `{path}`.")
        return [need_file(path)]
    folder = path / "annotations" if (path / "annotations").is_dir() else path
    kinds = (sorted(folder.glob(f"{kind}_*.json")) for kind in ("instances", "person_keypoints"))
    named = ((file, *_part_and_year(file)) for file in next(filter(None, kinds), ()))
    files = [
        (file, part, of)
        for file, part, of in named
        if part is not None and split in (None, part) and (year is None or of == str(year))
    ]
    if not files:
        wanted = f"instances_{split or '{train,val}'}{year or '{year}'}.json"
        raise InputError(f"`{folder}` must hold `{wanted}`; it does not.")
    years = sorted({of for _, _, of in files})
    if len(years) > 1:
        raise InputError(f"`year` must be one of {', '.join(years)}, which `{folder}` holds; got {year}.")
    return list(by_part(((part, file) for file, part, _ in files), f"`{folder}`").values())


def _image_folder(file: Path, images: str | Path | None) -> Path:
    part = _PART.search(file.stem)
    own = "" if part is None else part[0].lstrip("_-")
    if images is not None:
        return Path(images, own) if Path(images, own).is_dir() else Path(images)
    if part is None:
        return file.parent
    return (file.parent.parent if file.parent.name == "annotations" else file.parent) / own


def _read_instances(path: Path) -> _Instances:
    content = read_json(path, object_hook=_drop_outline)
    where = f"`{path}`"
    if isinstance(content, dict) and "images" in content and "annotations" not in content:
        raise InputError(f"{where} holds no labels: it lists images without annotations, like files of test images.")
    images, annotations, categories = (
        json_field(content, key, list, where) for key in ("images", "annotations", "categories")
    )
    image_ids, file_names = _column(path, "image", images, "id", int), _column(path, "image", images, "file_name", str)
    for row, name in enumerate(file_names):
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise InputError(
                f"{where} image {row}: `file_name` must lie in the folder of the images; got {name!r:.80}."
            )
    kinds = _categories(path, categories)
    _check_distinct(path, "image", "id", image_ids)
    _check_distinct(path, "annotation", "id", _column(path, "annotation", annotations, "id", int))
    row_of = {image: row for row, image in enumerate(image_ids)}
    label_of = {kind[0]: label for label, kind in enumerate(kinds)}
    rows = _references(path, annotations, "image_id", row_of)
    return _Instances(file_names, kinds, rows, _references(path, annotations, "category_id", label_of))


def _drop_outline(record: dict[str, Any]) -> dict[str, Any]:
    """Outlines are nine tenths of a file: they are dropped at once, since collecting them would take longest."""
    if "segmentation" in record:
        del record["segmentation"]
        record.pop("bbox", None)
    return record


def _categories(path: Path, records: Sequence[Any]) -> list[tuple[int, str, str | None]]:
    ids, names = _column(path, "category", records, "id", int), _column(path, "category", records, "name", str)
    _check_distinct(path, "category", "id", ids)
    _check_distinct(path, "category", "name", names)
    supers = [
        None
        if record.get("supercategory") is None
        else json_field(record, "supercategory", str, f"`{path}` category {_called(record, position)}")
        for position, record in enumerate(records)
    ]
    return sorted(zip(ids, names, supers, strict=True), key=lambda kind: kind[0])


def _column(path: Path, what: str, records: Sequence[Any], key: str, kind: type) -> list[Any]:
    """The values of one key, read fast; the slow way only names the record that lacks it."""
    try:
        values = [record[key] for record in records]
        fits = set(map(type, values)) <= {kind}
    except (KeyError, TypeError):
        values, fits = [], False
    if not fits:
        for position, record in enumerate(records):
            json_field(record, key, kind, f"`{path}` {what} {_called(record, position)}")
    if kind is str:
        _check_characters(path, what, records, key, values)
    return values


def _check_characters(path: Path, what: str, records: Sequence[Any], key: str, values: Sequence[str]) -> None:
    """JSON can hold half a character, which no file name can contain and no terminal can show."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        for position, value in enumerate(values):
            if any("\ud800" <= character <= "\udfff" for character in value):
                called = _called(records[position], position)
                raise InputError(f"`{path}` {what} {called}: {key} {value!r:.60} must be whole characters.") from None


def _called(record: Any, position: int) -> str:
    """A record by its id, which people can search for; without one, by its position in the list."""
    known = isinstance(record, dict) and isinstance(record.get("id"), int)
    return f"with id {record['id']}" if known else f"number {position}"


def _check_distinct(path: Path, what: str, key: str, values: Sequence[Any]) -> None:
    repeat = first_repeat(values)
    if repeat is not None:
        first, second = repeat
        raise InputError(f"`{path}` {what} number {second}: {key} {values[second]!r} is also that of number {first}.")


def _references(path: Path, annotations: Sequence[Any], key: str, position_of: dict[int, int]) -> np.ndarray:
    """The row or the label that each annotation refers to."""
    values = _column(path, "annotation", annotations, key, int)
    numbers = np.fromiter((position_of.get(value, -1) for value in values), dtype=np.int64, count=len(values))
    lost = np.flatnonzero(numbers < 0)
    if len(lost):
        position = int(lost[0])
        called = _called(annotations[position], position)
        listed = {"image_id": "images", "category_id": "categories"}[key]
        raise InputError(f"`{path}` annotation {called}: {key} must be an id of the {listed}; got {values[position]}.")
    return numbers

"""COCO instances: which kinds of object an image shows, from the JSON of their outlines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, SPELLINGS, part_name
from shortlist.data.files.text_files import need_file, read_json, take
from shortlist.data.groups import Groups
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.target_rows import sparse_targets

_PART = re.compile(
    rf"(?:^|[_-])({'|'.join(name for names in SPELLINGS.values() for name in names)})[_-]?(\d{{4}})?$", re.IGNORECASE
)


def read_coco(
    annotations: str | Path,
    *,
    images: str | Path | None = None,
    split: str | None = None,
    year: int | None = None,
    size: int | tuple[int, int] | None = None,
) -> Dataset:
    """Read COCO instances: a label is present in an image that has an annotation of its category, crowds included.

    The layout is ``annotations/instances_train2017.json`` with the images in ``train2017/`` beside ``annotations/``.
    Rows are the images in the order of the file, those without annotations included; labels are the categories by
    ascending id, which has gaps.

    Args:
        annotations: a JSON file of instances, the folder ``annotations`` with ``instances_{train,val}{year}.json``, or
            the folder above it.
        images: the folder with ``train2017`` and its like, or the very folder of the images; by default that beside.
        split: of a file, the part that its images are, if its name does not say so; of a folder, the only part to
            read. ``validation`` and the like are ``val``, also in the names of files.
        year: which files of a folder to read, needed if it holds several years: their images are the same.
        size: what `ImageFiles` makes of the images.

    Returns:
        Images with sparse targets, ``superclass`` as a group of labels and the parts as the split.

    Raises:
        ValueError: names the file and the record that is not as it must be.

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
            raise ValueError(f"`{file}` must have the categories of `{files[0]}`; id {differing[0]} differs.")
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
    """What is kept of one file."""

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
            raise ValueError(f"`year` chooses among the files of a folder; got {year} with the file `{path}`.")
        return [need_file(path)]
    folder = path / "annotations" if (path / "annotations").is_dir() else path
    years = {file: _part_and_year(file) for file in sorted(folder.glob("instances_*.json"))}
    files = [
        file
        for wanted in PARTS
        for file, (part, of) in years.items()
        if part == wanted and (split is None or part == split) and (year is None or of == str(year))
    ]
    if not files:
        wanted = f"instances_{split or '{train,val}'}{year or '{year}'}.json"
        raise ValueError(f"`{folder}` must hold `{wanted}`; it does not.")
    several = sorted({years[file][1] for file in files})
    if len(several) > 1:
        raise ValueError(f"`year` must be one of {', '.join(several)}, which `{folder}` holds; got {year}.")
    if len({years[file] for file in files}) < len(files):
        names = ", ".join(file.name for file in files)
        raise ValueError(f"`{folder}` must hold one file of each part; got {names}: pass one.")
    return files


def _image_folder(file: Path, images: str | Path | None) -> Path:
    part = _PART.search(file.stem)
    own = "" if part is None else part[0].lstrip("_-")
    if images is not None:
        return Path(images, own) if Path(images, own).is_dir() else Path(images)
    if part is None:
        return file.parent
    return (file.parent.parent if file.parent.name == "annotations" else file.parent) / own


def _read_instances(path: Path) -> _Instances:
    content = _read_without_outlines(path)
    place = f"`{path}`"
    if isinstance(content, dict) and "images" in content and "annotations" not in content:
        raise ValueError(f"{place} holds no labels: it lists images without annotations, as those of test images do.")
    images, annotations, categories = (
        take(content, key, list, place) for key in ("images", "annotations", "categories")
    )
    image_ids, file_names = _column(path, "image", images, "id", int), _column(path, "image", images, "file_name", str)
    kinds = _categories(path, categories)
    _refuse_twice(path, "image", "id", image_ids)
    _refuse_twice(path, "annotation", "id", _column(path, "annotation", annotations, "id", int))
    row_of = {image: row for row, image in enumerate(image_ids)}
    label_of = {kind[0]: label for label, kind in enumerate(kinds)}
    rows = _numbers(path, annotations, "image_id", row_of)
    return _Instances(file_names, kinds, rows, _numbers(path, annotations, "category_id", label_of))


def _read_without_outlines(path: Path) -> Any:
    """The JSON but for the outlines, which are nine tenths of it: dropped at once, or collecting them takes longest."""
    try:
        return json.loads(need_file(path).read_bytes(), object_hook=_drop_outline)
    except RecursionError as error:
        raise ValueError(f"`{path}` is nested too deeply to be COCO instances.") from error
    except ValueError:
        return read_json(path)  # It refuses the file, too, and in a sentence.


def _drop_outline(record: dict[str, Any]) -> dict[str, Any]:
    if "segmentation" in record:
        del record["segmentation"]
        record.pop("bbox", None)
    return record


def _categories(path: Path, records: Sequence[Any]) -> list[tuple[int, str, str | None]]:
    ids, names = _column(path, "category", records, "id", int), _column(path, "category", records, "name", str)
    _refuse_twice(path, "category", "id", ids)
    _refuse_twice(path, "category", "name", names)
    supers = [
        None
        if record.get("supercategory") is None
        else take(record, "supercategory", str, f"`{path}` category {_called(record, place)}")
        for place, record in enumerate(records)
    ]
    return sorted(zip(ids, names, supers, strict=True), key=lambda kind: kind[0])


def _column(path: Path, what: str, records: Sequence[Any], key: str, kind: type) -> list[Any]:
    """The values of one key, at the speed of a list; the slow way only to name the record that lacks it."""
    try:
        values = [record[key] for record in records]
        fits = set(map(type, values)) <= {kind}
    except (KeyError, TypeError):
        values, fits = [], False
    if not fits:
        for place, record in enumerate(records):
            take(record, key, kind, f"`{path}` {what} {_called(record, place)}")
    if kind is str:
        _refuse_half_characters(path, what, records, key, values)
    return values


def _refuse_half_characters(path: Path, what: str, records: Sequence[Any], key: str, values: Sequence[str]) -> None:
    """JSON can write half a character, which no file can have in its name and no terminal can show."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        for place, value in enumerate(values):
            if any("\ud800" <= character <= "\udfff" for character in value):
                called = _called(records[place], place)
                raise ValueError(f"`{path}` {what} {called}: {key} {value!r:.60} must be whole characters.") from None


def _called(record: Any, place: int) -> str:
    """A record by its id, which people can search for; without one, by its place in the list."""
    known = isinstance(record, dict) and isinstance(record.get("id"), int)
    return f"with id {record['id']}" if known else f"number {place}"


def _refuse_twice(path: Path, what: str, key: str, values: Sequence[Any]) -> None:
    if len(set(values)) == len(values):
        return
    seen: dict[Any, int] = {}
    for place, value in enumerate(values):
        if value in seen:
            raise ValueError(f"`{path}` {what} number {place}: {key} {value!r} is that of number {seen[value]}, too.")
        seen[value] = place


def _numbers(path: Path, annotations: Sequence[Any], key: str, number_of: dict[int, int]) -> np.ndarray:
    """The row or the label that each annotation points to."""
    values = _column(path, "annotation", annotations, key, int)
    numbers = np.fromiter((number_of.get(value, -1) for value in values), dtype=np.int64, count=len(values))
    lost = np.flatnonzero(numbers < 0)
    if len(lost):
        place = int(lost[0])
        called = _called(annotations[place], place)
        listed = {"image_id": "images", "category_id": "categories"}[key]
        raise ValueError(f"`{path}` annotation {called}: {key} must be an id of the {listed}; got {values[place]}.")
    return numbers

"""Visual Genome scene graphs in the VG-SGG layout: a row is a pair of objects, a label is a predicate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS
from shortlist.data.files.text_files import json_field, need_file, need_folder, read_json
from shortlist.data.groups import Groups
from shortlist.data.object_pairs import ObjectPairs
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError, reason
from shortlist.extras import require
from shortlist.limits import limit
from shortlist.tensors import check_size

# The graphs and their names; the files with attributes hold the same arrays and more.
FILES = {"VG-SGG.h5": "VG-SGG-dicts.json", "VG-SGG-with-attri.h5": "VG-SGG-dicts-with-attri.json"}
IMAGES = "image_data.json"
_SCALES = (1024, 512)  # Pixels of the longer side of an image; the file has boxes at both scales.
_MAX_COMPRESSION = 2000  # Bytes in memory per byte in the file; gzip reaches 1032, unwritten arrays have no bytes.
_UNREADABLE_IMAGES = (1592, 1722, 4616, 4617)  # In image_data.json, but not in VG-SGG.h5.


def read_visual_genome(
    path: str | Path,
    *,
    pairs: Literal["all", "related"] = "all",
    val_images: int | None = None,
    images: int | None = None,
) -> Dataset:
    """Read a folder with ``VG-SGG.h5``, ``VG-SGG-dicts.json`` and optionally ``image_data.json``.

    ``VG-SGG-with-attri.h5`` and ``VG-SGG-dicts-with-attri.json`` are read as well, without the attributes.

    ==============================================  =============  ===================================================
    in ``VG-SGG.h5``                                shape          integers
    ==============================================  =============  ===================================================
    ``labels``                                      ``(M, 1)``     object class of each box, from 1
    ``boxes_1024`` (or ``boxes_512``)               ``(M, 4)``     center x, y, width, height; longer side 1024 (512)
    ``relationships``                               ``(Q, 2)``     subject and object, indices of boxes
    ``predicates``                                  ``(Q, 1)``     predicate of each relation, from 1
    ``img_to_first_box``, ``img_to_last_box``       ``(images,)``  boxes of each image, the last included; -1 if none
    ``img_to_first_rel``, ``img_to_last_rel``       ``(images,)``  the same for relations
    ``split``                                       ``(images,)``  0 train, 1 validation, 2 test
    ==============================================  =============  ===================================================

    As is usual, images without relations are left out, and the first training images are for validation.

    Args:
        path: the folder, whose ``VG-SGG.h5`` is read if it holds both files; or one of the two files.
        pairs: ``"all"`` for one row per ordered pair of distinct objects of an image, most of them without a label;
            ``"related"`` for one row per pair with a label.
        val_images: how many of the first training images become validation, besides those that the file marks; None
            for 5000, as is usual, but at most a tenth of the training images.
        images: read at most this many images of each part of the file, the first ones; None for all.

    Returns:
        Inputs are `ObjectPairs` with boxes at the scale of the file (the center is x1 + width // 2) and the class names
        as ``inputs.object_names``; without ``image_data.json``, images count as square. Targets are sparse: several
        relations of a pair are several labels, repeated ones count once. ``row_groups["image"]`` has the image id, or
        the index of the image in the file if there are no ids.

    Raises:
        InputError: names the file and the row that breaks a rule.
        MissingExtraError: if h5py is missing.

    References:
        Krishna et al., "Visual Genome", 2017; Xu, Zhu, Choy, Fei-Fei, "Scene Graph Generation by Iterative Message
        Passing", 2017 (layout and split); Zellers, Yatskar, Thomson, Choi, "Neural Motifs", 2018 (validation images).
    """
    if pairs not in ("all", "related"):
        raise InputError(f"`pairs` must be 'all' or 'related'; got {pairs!r}.")
    check_size("val_images", 0 if val_images is None else val_images, at_least=0, error=InputError)
    check_size("images", 0 if images is None else images, at_least=0, error=InputError)
    file = _graphs_file(Path(path))
    names_file = file.with_name(FILES[file.name])
    names = read_json(names_file)
    object_names, predicate_names = (_names(names, kind, names_file) for kind in ("label", "predicate"))
    graphs = _read_graphs(file)
    _check_values(graphs, len(object_names), len(predicate_names))
    _check_images(graphs)
    ids, sizes = _read_images(file.with_name(IMAGES), graphs)
    kept, part = _select_images(graphs, val_images, images)
    if pairs == "all":
        _check_number_of_pairs(graphs, kept)
    inputs = _object_table(graphs, kept, sizes[kept], object_names)
    subject, other, predicate = _relations(graphs, kept, inputs)
    if pairs == "all":
        rows = inputs.rows_of(subject, other)
    else:
        # Rows of all pairs are sorted by image, subject and object, so they sort the related ones.
        found, rows = torch.unique(inputs.rows_of(subject, other), return_inverse=True)
        inputs = inputs.take(found)
    image = inputs.images()
    used = [name for i, name in enumerate(PARTS) if (part == i).any()]
    number = torch.tensor([used.index(name) if name in used else -1 for name in PARTS])
    return Dataset(
        inputs,
        sparse_targets(rows, predicate, len(inputs), len(predicate_names)),
        predicate_names,
        row_groups={"image": Groups(image, tuple(str(ids[i]) for i in kept))},
        split=Groups(number[torch.from_numpy(part)][image], tuple(used)),
        name="Visual Genome",
    )


@dataclass(frozen=True)
class _Graphs:
    """The arrays of ``VG-SGG.h5`` as int64; ``split`` indexes `PARTS`, and the published file has no 1."""

    path: Path
    scale: int
    labels: np.ndarray
    boxes: np.ndarray
    relationships: np.ndarray
    predicates: np.ndarray
    first_box: np.ndarray
    last_box: np.ndarray
    first_rel: np.ndarray
    last_rel: np.ndarray
    split: np.ndarray

    @cached_property
    def corners(self) -> np.ndarray:
        """Corners from center and size; the format rounds half a size down, so integers stay integers."""
        low = self.boxes[:, :2] - self.boxes[:, 2:] // 2
        return np.concatenate([low, low + self.boxes[:, 2:]], 1)


def _graphs_file(path: Path) -> Path:
    if path.name in FILES and not path.is_dir():
        return need_file(path)
    folder = need_folder(path)
    return next((folder / name for name in FILES if (folder / name).is_file()), folder / next(iter(FILES)))


def _check_number_of_pairs(graphs: _Graphs, kept: np.ndarray) -> None:
    """Check that all pairs fit: a file of a megabyte can hold an image with a hundred thousand boxes."""
    counts = graphs.last_box[kept] - graphs.first_box[kept] + 1
    total = int((counts * (counts - 1)).sum())
    if total > limit("entries"):
        raise InputError(f"`{graphs.path}` has {total} pairs of boxes, so `pairs` must be 'related'; got 'all'.")


def _names(record: Any, kind: str, path: Path) -> tuple[str, ...]:
    """Names in the order of their numbers, which go from 1 without gaps."""
    table = json_field(record, f"idx_to_{kind}", dict, f"`{path}`")
    names = [json_field(table, str(i), str, f"`{path}` idx_to_{kind}") for i in range(1, len(table) + 1)]
    back = json_field(record, f"{kind}_to_idx", dict, f"`{path}`")
    for i, name in enumerate(names, start=1):  # A name with two numbers disagrees with one of them.
        if back.get(name) != i:
            got = f"{back.get(name)!r:.60}"
            raise InputError(f"`{path}` {kind}_to_idx: {name!r} must be {i}, as in idx_to_{kind}; got {got}.")
    return tuple(names)


def _read_graphs(path: Path) -> _Graphs:
    h5py = require("h5py", extra="data")
    need_file(path)
    try:
        with h5py.File(path, "r") as file:
            scale = next((scale for scale in _SCALES if f"boxes_{scale}" in file), _SCALES[0])

            def array(key: str, *shape: int | None) -> np.ndarray:
                return _array(file, key, shape, path)

            boxes = array(f"boxes_{scale}", None, 4)
            relationships = array("relationships", None, 2)
            split = array("split", None)
            ends = {
                end: array(f"img_to_{end}", len(split)) for end in ("first_box", "last_box", "first_rel", "last_rel")
            }
            labels, predicates = array("labels", len(boxes), 1)[:, 0], array("predicates", len(relationships), 1)[:, 0]
            return _Graphs(path, scale, labels, boxes, relationships, predicates, split=split, **ends)
    except (OSError, RuntimeError, KeyError) as error:
        raise InputError(f"`{path}` is not a complete HDF5 file: {reason(error)}.") from error


def _array(file: Any, key: str, shape: tuple[int | None, ...], path: Path) -> np.ndarray:
    """An integer array of a shape, in which None is any size."""
    if key not in file:
        raise InputError(f"`{path}` has no {key!r}.")
    data = file[key]
    found = getattr(data, "shape", None)  # A group has none.
    if found is None or data.dtype.kind not in "iu":
        raise InputError(f"`{path}` {key}: must be an array of integers; got {getattr(data, 'dtype', 'a group')}.")
    fits = len(found) == len(shape) and all(want is None or want == got for want, got in zip(shape, found, strict=True))
    if not fits:
        wanted = " x ".join("any" if want is None else str(want) for want in shape)
        raise InputError(f"`{path}` {key}: must have shape {wanted}; got {' x '.join(map(str, found)) or 'none'}.")
    if data.size * data.dtype.itemsize > _MAX_COMPRESSION * data.id.get_storage_size():
        stored = data.id.get_storage_size()
        raise InputError(f"`{path}` {key}: must be stored completely; got {stored} bytes for {data.size} numbers.")
    return data[:].astype(np.int64)


def _check_values(graphs: _Graphs, num_objects: int, num_predicates: int) -> None:
    def refuse(bad: ArrayLike, key: str, rule: str, values: np.ndarray) -> None:
        if np.any(bad):
            row = int(np.argmax(bad))
            raise InputError(f"`{graphs.path}` {key} row {row}: {rule}; got {np.asarray(values[row]).tolist()}.")

    for key, values, high in (
        ("labels", graphs.labels, num_objects),
        ("predicates", graphs.predicates, num_predicates),
    ):
        rule = f"must lie in [1, {high}], the numbers in `{FILES[graphs.path.name]}`"
        refuse((values < 1) | (values > high), key, rule, values)
    refuse((graphs.split < 0) | (graphs.split > 2), "split", "must be 0, 1 or 2", graphs.split)
    corners = graphs.corners
    outside = (graphs.boxes[:, 2:] < 1).any(1) | (corners < 0).any(1) | (corners > graphs.scale).any(1)
    rule = f"the box (center and size) must be at least 1 x 1 and inside the image of {graphs.scale} pixels"
    refuse(outside, f"boxes_{graphs.scale}", rule, graphs.boxes)
    for what, first, last, size in (
        ("box", graphs.first_box, graphs.last_box, len(graphs.labels)),
        ("rel", graphs.first_rel, graphs.last_rel, len(graphs.predicates)),
    ):
        none = (first == -1) & (last == -1)
        bad = ~none & ((first < 0) | (last < first) | (last >= size))
        rule = f"first and last must be -1 and -1, or in order and in [0, {size})"
        ends = np.stack([first, last], 1)
        refuse(bad, f"img_to_first_{what}", rule, ends)
        reached = np.maximum.accumulate(np.concatenate([[-1], np.where(none, -1, last)]))[:-1]
        rule = "must not begin within the range of an earlier image"
        refuse(~none & (first <= reached), f"img_to_first_{what}", rule, ends)
    same = ~np.diff(graphs.relationships, axis=1).any(1)
    refuse(same, "relationships", "must join two different boxes", graphs.relationships)


def _check_images(graphs: _Graphs) -> None:
    """Check that relations join boxes of their own image, and that all boxes and relations have an image."""
    every = np.arange(len(graphs.split))
    image, row = _spread(graphs.first_rel, graphs.last_rel, every)
    first, last, ends = graphs.first_box[image], graphs.last_box[image], graphs.relationships[row]
    foreign = ((ends < first[:, None]) | (ends > last[:, None])).any(1)
    if foreign.any():
        wrong = int(foreign.argmax())
        raise InputError(
            f"`{graphs.path}` relationships row {row[wrong]}: must join boxes of image {image[wrong]}, from "
            f"{first[wrong]} to {last[wrong]}; got {ends[wrong, 0]} and {ends[wrong, 1]}."
        )
    boxes = len(_spread(graphs.first_box, graphs.last_box, every)[0])
    for key, size, assigned in (
        ("labels", len(graphs.labels), boxes),
        ("predicates", len(graphs.predicates), len(row)),
    ):
        if assigned != size:
            raise InputError(f"`{graphs.path}` {key}: all {size} rows must belong to an image; got {assigned} that do.")


def _read_images(path: Path, graphs: _Graphs) -> tuple[np.ndarray, np.ndarray]:
    """Id of each image, and its width and height at the scale of the boxes; indices and squares without the file."""
    count = len(graphs.split)
    if not path.exists():
        return np.arange(count), np.full((count, 2), graphs.scale, dtype=np.float32)
    records = read_json(path)
    if not isinstance(records, list):
        raise InputError(f"`{path}` must be a list of images; got {type(records).__name__}.")
    table = np.array([_image(record, row, path) for row, record in enumerate(records)], dtype=np.int64).reshape(-1, 3)
    if len(table) != count:
        table = table[~np.isin(table[:, 0], _UNREADABLE_IMAGES)]
    if len(table) != count:
        raise InputError(f"`{path}` must list the {count} images of `{graphs.path.name}`; got {len(records)}.")
    if len(np.unique(table[:, 0])) != count:
        ids, times = np.unique(table[:, 0], return_counts=True)
        raise InputError(f"`{path}`: each image must be listed once; 'image_id' {ids[times.argmax()]} is repeated.")
    sizes = table[:, 1:] * (graphs.scale / table[:, 1:].max(1, keepdims=True, initial=1))
    return table[:, 0], sizes.astype(np.float32)


def _image(record: Any, row: int, path: Path) -> tuple[int, int, int]:
    """Id, width and height of an image."""
    try:
        image, width, height = record["image_id"], record["width"], record["height"]
        whole = type(image) is type(width) is type(height) is int
        if whole and min(image + 1, width, height) > 0 and max(image, width, height) < 2**31:
            return image, width, height
    except (KeyError, TypeError, IndexError):
        pass  # The error is raised below, away from the many good rows.
    where = f"`{path}` image {row}"
    values = {key: json_field(record, key, int, where) for key in ("image_id", "width", "height")}
    raise InputError(f"{where}: id, width and height must be above 0 and below 2^31; got {list(values.values())}.")


def _select_images(graphs: _Graphs, val_images: int | None, images: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Ascending indices of the selected images with relations, and the part of each."""
    related = graphs.first_rel >= 0
    by_part = [np.flatnonzero(related & (graphs.split == part))[:images] for part in range(len(PARTS))]
    train = len(by_part[0])
    if val_images is None:
        val_images = min(5000, train // 10)
    elif train and val_images >= train:
        raise InputError(f"`val_images` must leave some of {train} training images with relations; got {val_images}.")
    part = graphs.split.copy()
    part[by_part[0][:val_images]] = PARTS.index("val")
    kept = np.sort(np.concatenate(by_part))
    return kept, part[kept]


def _object_table(graphs: _Graphs, kept: np.ndarray, sizes: np.ndarray, names: tuple[str, ...]) -> ObjectPairs:
    _, box = _spread(graphs.first_box, graphs.last_box, kept)
    starts = np.zeros(len(kept) + 1, dtype=np.int64)
    np.cumsum(graphs.last_box[kept] - graphs.first_box[kept] + 1, out=starts[1:])
    return ObjectPairs(
        torch.from_numpy(graphs.labels[box] - 1),
        torch.from_numpy(graphs.corners[box].astype(np.float32)),
        torch.from_numpy(starts),
        torch.from_numpy(sizes),
        object_names=names,
    )


def _relations(
    graphs: _Graphs, kept: np.ndarray, inputs: ObjectPairs
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Subject and object, as indices of objects in the table, and label of each relation of the kept images."""
    image, row = _spread(graphs.first_rel, graphs.last_rel, kept)
    moved = inputs.starts.numpy()[image] - graphs.first_box[kept[image]]
    ends = torch.from_numpy(graphs.relationships[row] + moved[:, None])
    return ends[:, 0], ends[:, 1], torch.from_numpy(graphs.predicates[row] - 1)


def _spread(first: np.ndarray, last: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row in the ranges of the images: the position of its image in ``images``, and its own index."""
    first, last = first[images], last[images]
    counts = np.where(first < 0, 0, last - first + 1)
    position = np.repeat(np.arange(len(images)), counts)
    begin = np.cumsum(counts) - counts
    return position, np.arange(len(position)) + np.repeat(first - begin, counts)

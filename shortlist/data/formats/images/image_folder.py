"""Images in one folder per class, split or not; with the names and metadata of Pl@ntNet-300K if they are present."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, by_part, part_name
from shortlist.data.files.text_files import need_file, need_folder, read_json
from shortlist.data.files.vocabularies import distinct_names
from shortlist.data.groups import Groups
from shortlist.data.images import ImageFiles, PathList
from shortlist.errors import InputError

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".jp2")
_METADATA = ("plantnet300K_metadata.json",)
_SPECIES_NAMES = ("plantnet300K_species_id_2_name.json", "plantnet300K_species_names.json")
_LAYOUTS = "`{class}/*.jpg` or `{train,val,test}/{class}/*.jpg`"


class _ClassFolder(NamedTuple):
    """The images of one class, or of one class in one part."""

    path: str
    label: str
    split: str | None
    images: list[str]


def read_image_folder(
    root: str | Path,
    *,
    metadata: str | Path | bool | None = None,
    names_file: str | Path | None = None,
    size: int | tuple[int, int] | None = None,
) -> Dataset:
    """Read images in one folder per class; nothing is decoded, and no file is even opened.

    Layouts::

        root/{class}/*.jpg
        root/{train,val,test}/{class}/*.jpg        also Train, training, validation, dev and so on, and images_train
        root/images/...                            either of the above, as Pl@ntNet-300K and others are published

    Labels are the sorted names of the class folders of all parts, including empty ones. Rows are sorted by part, class
    and file name. Hidden files, and files without an image ending (jpg, jpeg, png, gif, bmp, webp, tif, tiff, ppm, pgm,
    pbm, jp2), are skipped; pipes, sockets and devices that are called like an image are refused.

    Args:
        root: the folder.
        metadata: JSON object ``{file name without ending: {"author": ..., "organ": ..., "split": ..., ...}}``, like
            ``plantnet300K_metadata.json``. Gives ``row_groups["author"]`` and ``["organ"]``, and the split if the
            folders give none. True reads the published file beside the images; None reads it only for a missing split,
            because that takes seconds; False ignores it.
        names_file: JSON object ``{class folder: scientific name}``; by default
            ``plantnet300K_species_id_2_name.json`` (or ``plantnet300K_species_names.json``) beside the images. Gives
            the label names (with the folder appended if two share a name) and ``label_groups["genus"]``. A class
            without a name there keeps its folder's name and has no genus.
        size: as in `ImageFiles`.

    Returns:
        Image files with class indices.

    Raises:
        InputError: names the folder or the file that has another layout.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("train/rose/1.jpg", "train/daisy/2.jpg", "test/rose/3.jpg"):
        ...         Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        ...         Path(folder, name).touch()
        ...     flowers = read_image_folder(folder, size=224)
        >>> flowers.label_names, flowers.targets, flowers.split.names
        (('daisy', 'rose'), tensor([0, 1, 1]), ('train', 'test'))

    References:
        Garcin et al., "Pl@ntNet-300K: a plant image dataset with high label ambiguity and a long-tailed distribution",
        2021; Zenodo record 5645731.
    """
    root = need_folder(root)
    folder = _image_root(root)
    beside = (root, folder, folder.parent) if folder.name == "images" else (root,)
    classes = _class_folders(folder)
    labels = sorted({one.label for one in classes})
    counts = [len(one.images) for one in classes]
    code = {label: i for i, label in enumerate(labels)}
    targets = np.repeat(np.array([code[one.label] for one in classes], dtype=np.int64), counts)
    splits = None
    if classes[0].split is not None:
        parts = Groups.of([one.split for one in classes], order=PARTS)
        splits = Groups(parts.index.repeat_interleave(torch.tensor(counts)), parts.names)
    row_groups: dict[str, Groups] = {}
    metadata_file = _metadata_file(metadata, beside, needed=splits is None)
    if metadata_file is not None:
        wanted = ("author", "organ") if metadata is not None else ()
        keys = wanted if splits is not None else (*wanted, "split")
        row_groups = _columns(metadata_file, classes, keys, asked=metadata is not None)
        splits = row_groups.pop("split", splits)
    found = need_file(names_file) if names_file is not None else _find(beside, _SPECIES_NAMES)
    names, genus = tuple(labels), None
    if found is not None:
        names, genus = _named(labels, found, asked=names_file is not None)
    return Dataset(
        ImageFiles(PathList((one.path, one.images) for one in classes), size=size),
        torch.from_numpy(targets),
        names,
        label_groups={} if genus is None else {"genus": genus},
        row_groups=row_groups,
        split=splits,
        name=root.resolve().name,
    )


class _Listing(NamedTuple):
    """The content of a folder, sorted, without hidden files."""

    folders: list[str]
    images: list[str]


def _listing(path: str | Path) -> _Listing:
    folders, images = [], []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith((".", "__MACOSX")):
                    continue
                if entry.is_dir():  # Known from the listing itself.
                    folders.append(name)
                elif name.lower().endswith(IMAGE_ENDINGS):
                    # A link to a missing file stays a row, which is counted as missing.
                    if not entry.is_file() and os.path.exists(entry.path):
                        raise InputError(f"`{entry.path}` must be a file to be read as an image.")
                    images.append(name)
    except OSError as error:
        raise InputError(f"`{path}` cannot be listed: {error.strerror}.") from error
    return _Listing(sorted(folders), sorted(images))


def _image_root(root: Path) -> Path:
    """The folder ``images`` in ``root`` if it holds folders and ``root`` itself has no parts; else ``root``."""
    folders = _listing(root).folders
    inner = root / "images"
    if "images" in folders and not any(_part(name) in PARTS for name in folders) and _listing(inner).folders:
        return inner
    return root


def _part(name: str) -> str:
    """The part that a folder is named after; in Pl@ntNet-300K, ``images_train``."""
    bare = name[len("images_") :] if name.lower().startswith("images_") else name
    return part if (part := part_name(bare)) in PARTS else name


def _class_folders(folder: Path) -> list[_ClassFolder]:
    """All class folders, in the order of the rows."""
    top = _listing(folder)
    if not top.folders:
        problem = f"holds {len(top.images)} images and no folders" if top.images else "holds no folders"
        raise InputError(f"`{folder}` {problem}; images must be in one folder per class, {_LAYOUTS}.")
    inner = {name: _listing(folder / name) for name in top.folders}
    # A class may be called "test"; a folder of folders is a part.
    if any(_part(name) in PARTS and listing.folders for name, listing in inner.items()):
        classes = _split_folders(folder, inner)
    else:
        classes = [_class_folder(os.path.join(folder, name), name, None, inner[name]) for name in top.folders]
    if not any(one.images for one in classes):
        raise InputError(
            f"`{folder}` holds folders without images; images must be in one folder per class, {_LAYOUTS}."
        )
    return classes


def _split_folders(folder: Path, inner: dict[str, _Listing]) -> list[_ClassFolder]:
    for name, listing in inner.items():
        if listing.images:
            raise InputError(
                f"`{folder / name}` holds the image `{listing.images[0]}`; a part must hold one folder per class."
            )
    parts = by_part(((_part(name), name) for name, listing in inner.items() if listing.folders), f"`{folder}`")
    return [
        _class_folder(path, label, split, _listing(path))
        for split, name in parts.items()
        for label in inner[name].folders
        for path in [os.path.join(folder, name, label)]
    ]


def _class_folder(path: str, label: str, split: str | None, listing: _Listing) -> _ClassFolder:
    if listing.folders:
        raise InputError(
            f"`{path}` holds the folder `{listing.folders[0]}`; images must be directly in the folder of their class, "
            f"{_LAYOUTS}."
        )
    return _ClassFolder(path, label, split, listing.images)


def _find(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def _metadata_file(metadata: str | Path | bool | None, beside: Sequence[Path], *, needed: bool) -> Path | None:
    """The metadata file to read, if any."""
    if metadata is False or (metadata is None and not needed):
        return None
    if metadata is not None and metadata is not True:
        return need_file(metadata)
    found = _find(beside, _METADATA)
    if metadata is True and found is None:
        raise InputError(f"`{beside[0] / _METADATA[0]}` does not exist, so `metadata` must be a path.")
    return found


def _columns(path: Path, classes: Sequence[_ClassFolder], keys: Sequence[str], *, asked: bool) -> dict[str, Groups]:
    """Groups of the rows by the values of some keys of the metadata; a key that never occurs is left out."""
    content = _object(path)
    columns: dict[str, list[str | None]] = {key: [] for key in keys}
    found = False
    for image in (name.rpartition(".")[0] for one in classes for name in one.images):
        record = content.get(image)
        found = found or record is not None
        if record is not None and not isinstance(record, dict):
            raise InputError(f"`{path}`: image {image!r} must be described by an object; got {record!r:.60}.")
        for key, column in columns.items():
            value = None if record is None else record.get(key)
            if isinstance(value, (dict, list)):
                raise InputError(f"`{path}`: {key!r} of image {image!r} must be a text; got {value!r:.60}.")
            text = None if value is None else str(value)
            column.append(_part(text.strip()) if key == "split" and text is not None else text)
    if asked and not found:
        raise InputError(f"`{path}` describes none of the images in `{Path(classes[0].path).parent}` by its name.")
    groups = {key: Groups.of(column, order=PARTS if key == "split" else ()) for key, column in columns.items()}
    return {key: group for key, group in groups.items() if group.names}


def _named(labels: Sequence[str], path: Path, *, asked: bool) -> tuple[tuple[str, ...], Groups | None]:
    """Names and genera of labels; a file that was not asked for and is about other folders is ignored."""
    content = _object(path)
    for label in labels:
        if not isinstance(content.get(label, ""), str):
            raise InputError(f"`{path}`: the name of {label!r} must be a text; got {content[label]!r:.60}.")
    if not any(label in content for label in labels):
        if not asked:
            return tuple(labels), None
        raise InputError(f"`{path}` names none of the class folders, such as {labels[0]!r}.")
    names = [" ".join(content.get(label, "").split()) or label for label in labels]
    genera = [
        _genus(name) if content.get(label, "").strip() else None for label, name in zip(labels, names, strict=True)
    ]
    return distinct_names(names, labels), Groups.of(genera)


def _genus(name: str) -> str:
    """The first word of a scientific name; the sign of a hybrid does not count."""
    words = [word for word in re.split(r"[\s_]+", name) if word not in ("", "×", "x", "X")]
    return words[0].lstrip("×") if words else name


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"`{path}` must hold a JSON object; got {type(content).__name__}.")
    return content

"""CIFAR-10 and CIFAR-100: the published folders of pickles, read without unpickling, and npz files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.files.array_files import ArrayFile, open_arrays
from shortlist.data.files.part_names import PARTS, part_keys
from shortlist.data.files.pickled_data import read_pickled_dict, resolve
from shortlist.data.files.text_files import need_file
from shortlist.data.files.vocabularies import numbered_names
from shortlist.data.groups import Groups, first_repeat
from shortlist.data.images import ImageArray
from shortlist.errors import InputError

_FOLDERS = ("cifar-100-python", "cifar-10-batches-py")
_PIXELS = 3 * 32 * 32


class _Part(NamedTuple):
    """Some rows: one pickled file, or the arrays of one part of an npz."""

    where: str  # for errors
    split: str
    images: Any  # (N, H, W, 3) uint8
    fine: np.ndarray  # (N,) int64
    coarse: np.ndarray | None


class _Source(NamedTuple):
    """The content of a folder or an npz."""

    parts: list[_Part]
    fine_names: tuple[str, ...]
    coarse_names: tuple[str, ...]
    fine_to_coarse: np.ndarray | None


def read_cifar(path: str | Path, *, labels: str = "fine") -> Dataset:
    """Read CIFAR-100 or CIFAR-10.

    Layouts::

        cifar-100-python/     train, test: dict of data (N, 3072) uint8, fine_labels, coarse_labels
                              meta: dict of fine_label_names, coarse_label_names
        cifar-10-batches-py/  data_batch_1, ..., data_batch_5, test_batch: dict of data, labels
                              batches.meta: dict of label_names
        *.npz                 x_train, y_train, x_test, y_test with x (N, H, W, 3) uint8; optionally x_val, y_val,
                              fine_names, coarse_names, fine_to_coarse (n,), y_coarse_train, y_coarse_test; parts may
                              be spelled in other ways, see `shortlist.data.files.part_names`

    Nothing is unpickled. Pixels stay on the disk; those of a compressed npz are read with the first batch.

    Args:
        path: one of the folders, a folder that contains one of them, or an npz file.
        labels: ``fine`` for the classes, ``coarse`` for the superclasses of CIFAR-100.

    Returns:
        Images with class indices, split into train and test; with fine labels of CIFAR-100,
        ``label_groups["superclass"]``.

    Raises:
        InputError: names the file and the row; also if two rows of one fine label have different coarse labels.

    Example:
        >>> import pickle
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> names = {"fine_label_names": ["beaver", "dolphin", "trout"], "coarse_label_names": ["mammals", "fish"]}
        >>> rows = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [2, 0], "coarse_labels": [1, 0]}
        >>> with TemporaryDirectory() as folder:
        ...     for name, content in (("meta", names), ("train", rows), ("test", rows)):
        ...         _ = Path(folder, name).write_bytes(pickle.dumps(content))
        ...     cifar = read_cifar(folder)
        ...     cifar[0].labels, cifar.label_groups["superclass"].index, len(cifar.part("test"))
        (('trout',), tensor([ 0, -1,  1]), 2)

    References:
        Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """
    if labels not in ("fine", "coarse"):
        raise InputError(f"`labels` must be 'fine' or 'coarse'; got {labels!r}.")
    source = _read_npz(need_file(path)) if Path(path).suffix == ".npz" else _read_folder(Path(path))
    superclass = _superclasses(source)
    if labels == "coarse" and superclass is None:
        raise InputError(f"`{path}` has no coarse labels, so `labels` must be 'fine'; got 'coarse'.")
    targets = np.concatenate([part.fine for part in source.parts])
    names, groups = source.fine_names, {}
    if superclass is not None:
        groups = {"superclass": Groups(torch.from_numpy(superclass), source.coarse_names)}
        if labels == "coarse":
            names, groups = source.coarse_names, {}
            for part in source.parts:
                bad = np.flatnonzero(superclass[part.fine] < 0)
                if len(bad):
                    raise InputError(f"{part.where} row {bad[0]}: fine label {part.fine[bad[0]]} has no coarse label.")
            targets = superclass[targets]
    return Dataset(
        ImageArray([part.images for part in source.parts]),
        torch.from_numpy(targets),
        names,
        label_groups=groups,
        split=Groups.of((part.split for part in source.parts for _ in part.fine), order=PARTS),
        name=f"CIFAR-{len(source.fine_names)}",
    )


def _superclasses(source: _Source) -> np.ndarray | None:
    """The coarse label of each fine label, -1 if no row shows it; None if there are no coarse labels at all."""
    if source.fine_to_coarse is None and all(part.coarse is None for part in source.parts):
        return None
    known = source.fine_to_coarse
    table = np.full(len(source.fine_names), -1, dtype=np.int64) if known is None else known.copy()
    for part in source.parts:
        if part.coarse is None:
            continue
        present, rows = np.unique(part.fine, return_index=True)
        unset = table[present] < 0
        table[present[unset]] = part.coarse[rows[unset]]
        wrong = np.flatnonzero(table[part.fine] != part.coarse)
        if len(wrong):
            row = wrong[0]
            raise InputError(
                f"{part.where} row {row}: coarse label must be {table[part.fine[row]]}, as in other rows of fine label "
                f"{part.fine[row]}; got {part.coarse[row]}."
            )
    return table


def _read_folder(path: Path) -> _Source:
    inner = [path / name for name in _FOLDERS if (path / name).is_dir()]
    path = inner[0] if len(inner) == 1 else path
    if (path / "batches.meta").is_file():
        (fine,) = _read_names(path / "batches.meta", "label_names")
        files = [("train", path / f"data_batch_{number}") for number in range(1, 6)] + [("test", path / "test_batch")]
        return _Source([_read_batch(file, split, {"labels": len(fine)}) for split, file in files], fine, (), None)
    if (path / "meta").is_file():
        fine, coarse = _read_names(path / "meta", "fine_label_names", "coarse_label_names")
        counts = {"fine_labels": len(fine), "coarse_labels": len(coarse)}
        return _Source([_read_batch(path / split, split, counts) for split in ("train", "test")], fine, coarse, None)
    if not path.exists():
        raise InputError(f"`{path}` does not exist.")
    raise InputError(
        f"`{path}` must be an npz file, or a folder with `meta` of CIFAR-100 or `batches.meta` of CIFAR-10."
    )


def _read_names(file: Path, *keys: str) -> list[tuple[str, ...]]:
    content = read_pickled_dict(file)
    return [_names(_value(content, key, file), f"`{file}`: {key!r}") for key in keys]


def _read_batch(file: Path, split: str, counts: dict[str, int]) -> _Part:
    """Read a pickled batch; ``counts`` has the number of labels for each key of labels."""
    content = read_pickled_dict(file)
    pixels = _value(content, "data", file)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        shown = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise InputError(f"`{file}`: 'data' must be a uint8 array (N, {_PIXELS}); got {shown}.")
    columns = [
        _labels(_value(content, key, file), len(pixels), count, f"`{file}`: {key!r}") for key, count in counts.items()
    ]
    # A row stores its red, green and blue planes one after the other.
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _Part(f"`{file}`", split, images, columns[0], columns[1] if len(columns) > 1 else None)


def _value(content: dict[Any, Any], key: str, file: Path) -> Any:
    """The value of a key, which Python 2 wrote as bytes."""
    for spelling in (key.encode(), key):
        if spelling in content:
            return resolve(content[spelling], f"`{file}` {key!r}")
    raise InputError(f"`{file}` has no {key!r}.")


def _labels(values: Any, num_rows: int, num_labels: int | None, where: str) -> np.ndarray:
    """Labels as int64 ``(N,)``, checked to lie below ``num_labels``."""
    if isinstance(values, list):
        wrong = next((row for row, value in enumerate(values) if type(value) is not int), None)
        if wrong is not None:
            raise InputError(f"{where} row {wrong}: a label must be an integer; got {type(values[wrong]).__name__}.")
        if any(abs(value) > 2**31 for value in values):
            raise InputError(f"{where} must be labels; got numbers above 2^31.")
        values = np.array(values, dtype=np.int64)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
        shown = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise InputError(f"{where} must be integers; got {shown}.")
    if values.shape not in ((num_rows,), (num_rows, 1)):
        raise InputError(f"{where} must have one label for each of {num_rows} images; got shape {values.shape}.")
    values = values.reshape(num_rows).astype(np.int64)
    bad = np.flatnonzero((values < 0) | (values >= (2**31 if num_labels is None else num_labels)))
    if len(bad):
        raise InputError(f"{where} row {bad[0]}: label must lie in [0, {num_labels}); got {values[bad[0]]}.")
    return values


def _names(values: Any, where: str) -> tuple[str, ...]:
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, list) or not all(isinstance(name, (str, bytes)) for name in values):
        raise InputError(f"{where} must be a list of names.")
    names = tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in values)
    repeat = first_repeat(names)
    if repeat is not None:
        raise InputError(f"{where} row {repeat[1]}: names must differ; got {names[repeat[1]]!r} again.")
    return names


def _read_npz(path: Path) -> _Source:
    file = open_arrays(path)
    found = part_keys(file.openers, "x", f"`{path}`")
    if "train" not in found:
        raise InputError(f"`{path}` has no array 'x_train'.")
    fine_names, coarse_names = (
        _names(np.asarray(file.array(key)), file.location(key)) if key in file else None
        for key in ("fine_names", "coarse_names")
    )
    images = {split: _image_array(file, key) for split, key in found.items()}
    sizes = {split: len(pixels) for split, pixels in images.items()}
    fine = _label_columns(file, "y", sizes, None if fine_names is None else len(fine_names))
    for split in sizes.keys() - fine.keys():
        raise InputError(f"`{path}` has no array 'y_{split}'.")
    coarse = _label_columns(file, "y_coarse", sizes, None if coarse_names is None else len(coarse_names))
    table = np.asarray(file.array("fine_to_coarse")) if "fine_to_coarse" in file else None
    if fine_names is None:
        known = np.arange(0 if table is None else table.size)
        fine_names = _numbered([*fine.values(), known], f"`{path}`")
    if table is not None:
        count = None if coarse_names is None else len(coarse_names)
        table = _labels(table, len(fine_names), count, file.location("fine_to_coarse"))
    if coarse_names is None:
        coarse_names = _numbered([*coarse.values(), *([] if table is None else [table])], f"`{path}`")
    parts = [_Part(f"`{path}` part {split!r}", split, images[split], fine[split], coarse.get(split)) for split in found]
    return _Source(parts, fine_names, coarse_names, table)


def _image_array(file: ArrayFile, key: str) -> Any:
    pixels = file.lazy(key)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3:
        raise InputError(
            f"{file.location(key)} must be a uint8 array (N, H, W, 3); got {pixels.dtype} {tuple(pixels.shape)}."
        )
    return pixels


def _label_columns(file: ArrayFile, stem: str, sizes: dict[str, int], num_labels: int | None) -> dict[str, np.ndarray]:
    """The labels of each part under ``{stem}_{part}``; labels without images are refused."""
    columns = {}
    for split, key in part_keys(file.openers, stem, f"`{file.path}`").items():
        if split not in sizes:
            raise InputError(f"`{file.path}` has {key!r} but no images of the part {split!r}.")
        columns[split] = _labels(np.asarray(file.array(key)), sizes[split], num_labels, file.location(key))
    return columns


def _numbered(columns: Sequence[np.ndarray], where: str) -> tuple[str, ...]:
    """Numbers as names, for files without names."""
    return numbered_names(max((int(column.max()) + 1 for column in columns if len(column)), default=0), where)

"""Features and labels in files of arrays: `.npz`, `.npy` and `.safetensors`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.array_files import ArrayFile, open_arrays
from shortlist.data.files.part_names import PARTS, part_keys, part_name
from shortlist.data.files.text_files import need_file
from shortlist.data.formats.array_labels import (
    read_labels,
    read_names,
    read_superclasses,
    refuse_outside,
    row_pointers,
    text_list,
)
from shortlist.data.formats.stacked_arrays import StackedArrays
from shortlist.data.groups import Groups
from shortlist.data.images import ImageArray
from shortlist.data.inputs import Features, Inputs
from shortlist.data.sparse_rows import SparseRows

FEATURES = ("features", "X", "F", "x")
LABELS = ("labels", "targets", "Y", "L", "y")
NAMES = ("label_names", "class_names", "fine_names")


def read_arrays(
    path: str | Path,
    *,
    features: str | None = None,
    labels: str | None = None,
    label_names: Sequence[str] | None = None,
    hot_values: Sequence[float] | None = None,
    split_names: Sequence[str] | None = None,
    groups: Sequence[str] = (),
) -> Dataset:
    """Read features and labels from a file of arrays; the features stay in the file.

    Features are mapped into memory, so that opening takes no longer for 10 GB than for 1 MB: in `.npy`,
    `.safetensors`, and where a `.npz` stores them as they are (``numpy.savez``). Those that ``numpy.savez_compressed``
    packed, and sparse ones, are read as a whole. Their values are not looked at. Nothing is ever unpickled.

    What is read, besides the features ``(N, ...)`` and the labels:

    - a key ``F`` may also stand for ``F_train``, ``F_val`` and ``F_test``, which makes the split (also spelled as in
      `part_names`); or for ``F_indptr``, ``F_indices``, ``F_data`` and ``F_shape``, a sparse matrix in CSR form;
    - labels are whole numbers or names ``(N,)``, one class for each row; int64 ``(N, m)``, lists of labels padded with
      -1, unless it could be a multi-hot as well, which is refused without ``hot_values``; any other ``(N, n)``, a
      multi-hot of 1, 0 and -1 (unknown); or ``Y_indptr`` and ``Y_indices``, perhaps with ``Y_data``. How many there
      are, ``n_labels`` says, or their names, or else the largest;
    - ``label_names``, ``class_names`` or ``fine_names``; ``fine_to_coarse`` and ``coarse_names`` for superclasses;
    - ``split``, names or numbers: 0 and 1 are train and test, 0, 1 and 2 are train, val and test, unless
      ``split_names`` says otherwise; -1 is no part.

    Safetensors files hold no arrays of text; there, names may stand in the metadata, as a list in JSON.

    Args:
        path: a `.npz` or `.safetensors`; a folder of `.npy` files, whose names are the keys; or the `.npy` of the
            features, with the others beside it.
        features: the key; None for the first of ``features``, ``X``, ``F`` and ``x`` that there is.
        labels: the key; None for the first of ``labels``, ``targets``, ``Y``, ``L`` and ``y`` that there is.
        label_names: the names of the labels, before those in the file.
        hot_values: what stands for present, absent and (if there is a third) unknown; this also says that the labels
            are a multi-hot, whatever their type. Files after Pascal VOC want ``(1, -1, 0)``. An empty one says that
            they are lists.
        split_names: what the numbers in ``split`` mean, before what the file says.
        groups: keys of whole numbers or names ``(N,)`` that become ``row_groups``.

    Returns:
        The dataset: class indices for one class, else sparse targets. Images, uint8 ``(N, H, W, 3)`` or
        ``(N, H, W, 1)``, become `ImageArray`.

    Raises:
        ValueError: names the file and the key for what is missing, cut short, of another shape or type, and the row
            for a label that is wrong.

    Example:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> from shortlist.data.formats.arrays import read_arrays
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/a.npz", F=np.eye(3, dtype=np.float32), y=[0, 1, 1], class_names=["daisy", "rose"])
        ...     flowers = read_arrays(f"{folder}/a.npz")
        ...     flowers[2]
        Example(input=tensor([0., 0., 1.]), labels=('rose',), unknown=(), split=None)
    """
    path = Path(path)
    if path.suffix.lower() == ".npy":
        need_file(path)
        features = path.stem if features is None else features
    file = open_arrays(path.parent if path.suffix.lower() == ".npy" else path)
    if hot_values is not None and (len(hot_values) not in (0, 2, 3) or len(set(hot_values)) < len(hot_values)):
        rule = "present, absent and perhaps unknown, which must differ, or () for lists"
        raise ValueError(f"`hot_values` must be {rule}; got {hot_values!r}.")
    found = _find(file, "features", features, FEATURES)
    inputs, parts = _read_inputs(file, found)
    names = read_names(file, NAMES) if label_names is None else tuple(label_names)
    label_keys = _label_keys(file, _find(file, "labels", labels, LABELS), parts, len(inputs))
    targets, names = read_labels(file, label_keys, names, hot_values)
    return Dataset(
        inputs,
        targets,
        names,
        label_groups=read_superclasses(file, len(names)),
        row_groups={key: _read_group(file, key, found.parts, len(inputs)) for key in groups},
        split=_read_split(file, len(inputs), split_names) if parts is None else parts,
        name=path.stem,
    )


def array_inputs(path: str | Path, *, features: str | None = None, usual: Sequence[str] = FEATURES) -> Inputs:
    """The features of a file of arrays that may hold no labels, as `read_arrays` reads them.

    Args:
        path: as in `read_arrays`.
        features: the key; None for the only array that there is, or else for the first of ``usual``.
        usual: keys to look for.

    Raises:
        ValueError: as `read_arrays`.
    """
    path = Path(path)
    single = path.suffix.lower() == ".npy"
    if single:
        need_file(path)
        features = path.stem if features is None else features
    file = open_arrays(path.parent if single else path)
    if features is None and len(file.openers) == 1:
        features = next(iter(file.openers))
    return _read_inputs(file, _find(file, "features", features, usual))[0]


class _Found(NamedTuple):
    """Where an array stands: one key, or one for each part; of a sparse one, what its keys begin with."""

    keys: list[str]
    parts: tuple[str, ...] | None = None


def _find(file: ArrayFile, argument: str, given: str | None, usual: Sequence[str]) -> _Found:
    candidates = usual if given is None else (given,)
    for key in candidates:
        if key in file or f"{key}_indptr" in file:
            return _Found([key])
        parts = _part_keys(file, key)
        if parts:
            return _Found(list(parts.values()), tuple(parts))
    tried = " or ".join(map(repr, candidates))
    raise ValueError(
        f"`{file.path}`: has no {argument} under {tried}; name them by `{argument}`: it has {file.names()}."
    )


def _part_keys(file: ArrayFile, stem: str) -> dict[str, str]:
    try:
        return part_keys(file.openers, stem)
    except ValueError as error:
        raise ValueError(f"`{file.path}`: {error}") from None


def _label_keys(file: ArrayFile, found: _Found, split: Groups | None, rows: int) -> list[str]:
    """The keys of the labels, each of which has the rows of its part."""
    if found.parts is None:
        sparse = found.keys[0] not in file
        key = f"{found.keys[0]}_indptr" if sparse else found.keys[0]
        _same_length(file, key, file.array(key), rows + sparse)
        return found.keys
    if split is None or found.parts != split.names:
        have = "no parts" if split is None else ", ".join(split.names)
        parts = ", ".join(found.parts)
        raise ValueError(f"{file.place(found.keys[0])} must stand in the parts of the features, {have}; got {parts}.")
    for key, size in zip(found.keys, split.counts().tolist(), strict=True):
        _same_length(file, key, file.array(key), size)
    return found.keys


def _read_inputs(file: ArrayFile, found: _Found) -> tuple[Inputs, Groups | None]:
    """The inputs, and the split if they stand in parts."""
    if found.keys[0] not in file:
        return _sparse_rows(file, found.keys[0]), None
    arrays = [_features(file, key) for key in found.keys]
    first = arrays[0]
    for key, array in zip(found.keys, arrays, strict=True):
        if array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
            rule = f"must have rows like {found.keys[0]!r}, {tuple(first.shape[1:])} of {first.dtype}"
            raise ValueError(f"{file.place(key)} {rule}; got {tuple(array.shape[1:])} of {array.dtype}.")
        if (key in file.bfloat16) != (found.keys[0] in file.bfloat16):
            raise ValueError(f"{file.place(key)} must be bfloat16 exactly if {found.keys[0]!r} is.")
    if first.ndim == 4 and first.dtype == np.uint8 and first.shape[3] in (1, 3):
        inputs: Inputs = ImageArray(arrays)
    else:
        joined: Any = first if len(arrays) == 1 else StackedArrays(arrays)
        inputs = Features(joined, bits_of=torch.bfloat16 if found.keys[0] in file.bfloat16 else None)
    if found.parts is None:
        return inputs, None
    sizes = torch.tensor([len(array) for array in arrays])
    return inputs, Groups(torch.repeat_interleave(torch.arange(len(arrays)), sizes), found.parts)


def _features(file: ArrayFile, key: str) -> np.ndarray:
    array = file.stored(key)
    if array.ndim < 2:
        raise ValueError(
            f"{file.place(key)} must have at least 2 dimensions, rows first; got shape {tuple(array.shape)}."
        )
    if len(array) and not array.size:  # Such rows cost nothing in the file, so that it could state any number of them.
        raise ValueError(f"{file.place(key)} must have at least one number in each row; got shape {array.shape}.")
    if array.dtype.kind not in "biuf" or not array.dtype.isnative:
        raise ValueError(
            f"{file.place(key)} must hold numbers in the order of bytes of this machine; got {array.dtype}."
        )
    if array.dtype.itemsize > 8:
        raise ValueError(f"{file.place(key)} must hold numbers that torch knows; got {array.dtype}.")
    return array


def _sparse_rows(file: ArrayFile, key: str) -> SparseRows:
    pointers, columns = row_pointers(file, key)
    values, shape = (file.array(f"{key}_{name}") for name in ("data", "shape"))
    if tuple(values.shape) != columns.shape:
        got = f"got shape {tuple(values.shape)}"
        raise ValueError(f"{file.place(f'{key}_data')} must have a value for each of {len(columns)} columns; {got}.")
    size = np.asarray(shape).tolist()
    if not isinstance(size, list) or len(size) != 2 or size[0] != len(pointers) - 1:
        rule = f"must be {len(pointers) - 1} rows and a number of columns"
        raise ValueError(f"{file.place(f'{key}_shape')} {rule}; got {size}.")
    refuse_outside(file, key, pointers, columns, int(size[1]), "column")
    content = values if isinstance(values, Tensor) else _floating(file.place(f"{key}_data"), values)
    return SparseRows(torch.from_numpy(pointers), torch.from_numpy(columns), content, int(size[1]))


def _floating(place: str, values: np.ndarray) -> Tensor:
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{place} must hold numbers; got {values.dtype}.")
    kept = values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8)
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("=") if kept else np.float32))


def _read_split(file: ArrayFile, rows: int, names: Sequence[str] | None) -> Groups | None:
    if "split" not in file:
        if names is not None:
            raise ValueError(f"`{file.path}`: has no array 'split', which `split_names` is for; it has {file.names()}.")
        return None
    place, array = file.place("split"), np.array(file.array("split"))
    _same_length(file, "split", array, rows)
    if array.dtype.kind in "US":
        return Groups.of(map(part_name, text_list(place, array)), order=PARTS)
    if array.dtype.kind not in "biu":
        raise ValueError(f"{place} must hold whole numbers or names; got {array.dtype}.")
    largest = int(array.max(initial=0))
    names = names or read_names(file, ("split_names",)) or (("train", "test") if largest < 2 else PARTS)
    wrong = np.flatnonzero((array.astype(np.int64) < -1) | (array.astype(np.int64) >= len(names)))
    if len(wrong):
        raise ValueError(f"{place} row {wrong[0]}: {array[wrong[0]]} must lie in [-1, {len(names)}).")
    usual = tuple(map(part_name, names))
    if len(set(usual)) < len(usual):
        raise ValueError(f"`{file.path}`: `split_names` must be different parts; got {', '.join(names)}.")
    return Groups(torch.from_numpy(array.astype(np.int64)), usual).compact()


def _read_group(file: ArrayFile, key: str, parts: tuple[str, ...] | None, rows: int) -> Groups:
    """One value for each row, under a key or, as the features are, in parts."""
    keys = [key]
    if key not in file and parts is not None:
        spelled = _part_keys(file, key)
        keys = [spelled.get(part, f"{key}_{part}") for part in parts]
    columns = [np.array(file.array(one)) for one in keys]
    for one, column in zip(keys, columns, strict=True):
        if column.ndim != 1 or column.dtype.kind not in "iuUS":
            rule = "must hold whole numbers or names in 1 dimension"
            raise ValueError(f"{file.place(one)} {rule}; got {column.dtype} in shape {column.shape}.")
    joined = np.concatenate(columns)
    _same_length(file, key, joined, rows)
    values, index = np.unique(joined, return_inverse=True)
    names = text_list(file.place(key), values) if values.dtype.kind in "US" else list(map(str, values.tolist()))
    return Groups(torch.from_numpy(index.reshape(-1).astype(np.int64)), tuple(names))


def _same_length(file: ArrayFile, key: str, array: np.ndarray | Tensor, rows: int) -> None:
    if array.ndim < 1 or array.shape[0] != rows:
        raise ValueError(f"{file.place(key)} must have length {rows} for the features; got shape {tuple(array.shape)}.")

"""Features and labels in array files: `.npz`, `.npy` and `.safetensors`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.array_files import ArrayFile, open_arrays
from shortlist.data.files.mapped_arrays import StackedArrays
from shortlist.data.files.part_names import PARTS, part_keys, part_name
from shortlist.data.files.text_files import need_file
from shortlist.data.formats.array_labels import (
    check_columns,
    read_labels,
    read_names,
    read_superclasses,
    row_pointers,
    text_list,
)
from shortlist.data.groups import Groups, check_unique
from shortlist.data.images import ImageArray
from shortlist.data.inputs import Features, Inputs, SparseRows
from shortlist.errors import InputError

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
    """Read features and labels from an array file; the features stay in the file.

    Features are memory-mapped, so opening 10 GB takes no longer than 1 MB: from `.npy`, `.safetensors` and uncompressed
    `.npz` (``numpy.savez``). Those from ``numpy.savez_compressed``, and sparse ones, are read as a whole. Their values
    are not checked. Nothing is ever unpickled.

    Besides the features ``(N, ...)`` and the labels, these are read:

    - a key ``F`` may also stand for ``F_train``, ``F_val`` and ``F_test``, which gives the split (for other spellings
      see `shortlist.data.files.part_names`); or for ``F_indptr``, ``F_indices``, ``F_data`` and ``F_shape``, a sparse
      matrix in CSR form;
    - labels are integers or names ``(N,)``, one class per row; int64 ``(N, m)``, lists of labels padded with -1,
      which are refused without ``hot_values`` if they could be a multi-hot as well; any other ``(N, n)``, a multi-hot
      of 1, 0 and -1 (unknown); or ``Y_indptr`` and ``Y_indices``, optionally with ``Y_data``. Their number is
      ``n_labels``, or that of the names, or one more than the largest;
    - ``label_names``, ``class_names`` or ``fine_names``; ``fine_to_coarse`` and ``coarse_names`` for superclasses;
    - ``split``, names or numbers: 0 and 1 are train and test, 0, 1 and 2 are train, val and test, unless
      ``split_names`` says otherwise; -1 is no part.

    Safetensors files hold no arrays of text; there, names may be JSON lists in the metadata.

    Args:
        path: a `.npz` or `.safetensors`; a folder of `.npy` files, whose names are the keys; or the `.npy` of the
            features, with the others beside it.
        features: the key; None for the first of ``features``, ``X``, ``F`` and ``x`` that exists.
        labels: the key; None for the first of ``labels``, ``targets``, ``Y``, ``L`` and ``y`` that exists.
        label_names: the names of the labels, instead of those in the file.
        hot_values: the values for present, absent and (optionally) unknown; this also says that the labels are a
            multi-hot, whatever their dtype. Files in the convention of Pascal VOC need ``(1, -1, 0)``. Empty if they
            are lists.
        split_names: the meaning of the numbers in ``split``, instead of what the file says.
        groups: keys of integers or names ``(N,)`` that become ``row_groups``.

    Returns:
        The dataset: class indices if each row has one class, else sparse targets. Images, uint8 ``(N, H, W, 3)`` or
        ``(N, H, W, 1)``, become `ImageArray`.

    Raises:
        InputError: names the file and the key that is missing, cut short, or of the wrong shape or type, and the row of
            a wrong label.

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
    file, features = _open(Path(path), features)
    if hot_values is not None and (len(hot_values) not in (0, 2, 3) or len(set(hot_values)) < len(hot_values)):
        rule = "present, absent and optionally unknown, all different, or () for lists"
        raise InputError(f"`hot_values` must be {rule}; got {hot_values!r}.")
    check_unique(label_names or (), "label_names", error=InputError)
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
        name=Path(path).stem,
    )


def array_inputs(path: str | Path, *, features: str | None = None, usual: Sequence[str] = FEATURES) -> Inputs:
    """The features of an array file that may hold no labels, as `read_arrays` reads them.

    Args:
        path: as in `read_arrays`.
        features: the key; None for the only array, or else for the first of ``usual`` that exists.
        usual: keys to look for.

    Raises:
        InputError: as `read_arrays`.
    """
    file, features = _open(Path(path), features)
    if features is None and len(file.openers) == 1:
        features = next(iter(file.openers))
    return _read_inputs(file, _find(file, "features", features, usual))[0]


def _open(path: Path, features: str | None) -> tuple[ArrayFile, str | None]:
    """The array file and the key of the features: a `.npy` names them, and the others lie beside it."""
    if path.suffix.lower() != ".npy":
        return open_arrays(path), features
    need_file(path)
    return open_arrays(path.parent), path.stem if features is None else features


class _Found(NamedTuple):
    """Where an array is: one key, or one per part; of a sparse one, the beginning of its keys."""

    keys: list[str]
    parts: tuple[str, ...] | None = None


def _find(file: ArrayFile, argument: str, given: str | None, usual: Sequence[str]) -> _Found:
    candidates = usual if given is None else (given,)
    for key in candidates:
        if key in file or f"{key}_indptr" in file:
            return _Found([key])
        parts = part_keys(file.openers, key, f"`{file.path}`")
        if parts:
            return _Found(list(parts.values()), tuple(parts))
    tried = " or ".join(map(repr, candidates))
    raise InputError(
        f"`{file.path}`: has no {argument} under {tried}; `{argument}` can name the key: it has {file.names()}."
    )


def _label_keys(file: ArrayFile, found: _Found, split: Groups | None, rows: int) -> list[str]:
    """The keys of the labels, checked to have the rows of the features."""
    if found.parts is None:
        sparse = found.keys[0] not in file
        key = f"{found.keys[0]}_indptr" if sparse else found.keys[0]
        _check_length(file, key, file.array(key), rows + sparse)
        return found.keys
    if split is None or found.parts != split.names:
        have = "no parts" if split is None else ", ".join(split.names)
        parts = ", ".join(found.parts)
        raise InputError(f"{file.location(found.keys[0])} must have the parts of the features, {have}; got {parts}.")
    for key, size in zip(found.keys, split.counts().tolist(), strict=True):
        _check_length(file, key, file.array(key), size)
    return found.keys


def _read_inputs(file: ArrayFile, found: _Found) -> tuple[Inputs, Groups | None]:
    """The inputs, and the split if they come in parts."""
    if found.keys[0] not in file:
        return _sparse_rows(file, found.keys[0]), None
    arrays = [_features(file, key) for key in found.keys]
    first = arrays[0]
    for key, array in zip(found.keys, arrays, strict=True):
        if array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
            rule = f"must have rows like {found.keys[0]!r}, {tuple(first.shape[1:])} of {first.dtype}"
            raise InputError(f"{file.location(key)} {rule}; got {tuple(array.shape[1:])} of {array.dtype}.")
        if (key in file.bfloat16) != (found.keys[0] in file.bfloat16):
            raise InputError(f"{file.location(key)} must be bfloat16 exactly if {found.keys[0]!r} is.")
    if first.ndim == 4 and first.dtype == np.uint8 and first.shape[3] in (1, 3):
        inputs: Inputs = ImageArray(arrays)
    else:
        joined: Any = first if len(arrays) == 1 else StackedArrays(arrays)
        inputs = Features(joined, bits_of=torch.bfloat16 if found.keys[0] in file.bfloat16 else None)
    if found.parts is None:
        return inputs, None
    return inputs, Groups.of_sizes([len(array) for array in arrays], found.parts)


def _features(file: ArrayFile, key: str) -> np.ndarray:
    array = file.stored(key)
    if array.ndim < 2:
        raise InputError(
            f"{file.location(key)} must have at least 2 dimensions, rows first; got shape {tuple(array.shape)}."
        )
    if len(array) and not array.size:  # Such rows cost nothing, so a file could state any number.
        raise InputError(f"{file.location(key)} must have at least one number in each row; got shape {array.shape}.")
    if array.dtype.kind not in "biuf" or not array.dtype.isnative:
        raise InputError(
            f"{file.location(key)} must hold numbers in the byte order of this machine; got {array.dtype}."
        )
    if array.dtype.itemsize > 8:
        raise InputError(f"{file.location(key)} must hold numbers of at most 8 bytes; got {array.dtype}.")
    return array


def _sparse_rows(file: ArrayFile, key: str) -> SparseRows:
    pointers, columns = row_pointers(file, key)
    values, shape = (file.array(f"{key}_{name}") for name in ("data", "shape"))
    if tuple(values.shape) != columns.shape:
        got = f"got shape {tuple(values.shape)}"
        raise InputError(f"{file.location(f'{key}_data')} must have a value for each of {len(columns)} columns; {got}.")
    size = np.asarray(shape).tolist()
    if not isinstance(size, list) or len(size) != 2 or size[0] != len(pointers) - 1:
        rule = f"must be {len(pointers) - 1} rows and a number of columns"
        raise InputError(f"{file.location(f'{key}_shape')} {rule}; got {size}.")
    check_columns(file, key, pointers, columns, int(size[1]), "column")
    content = values if isinstance(values, Tensor) else _as_floating(file.location(f"{key}_data"), values)
    return SparseRows(torch.from_numpy(pointers), torch.from_numpy(columns), content, int(size[1]))


def _as_floating(where: str, values: np.ndarray) -> Tensor:
    if values.dtype.kind not in "biuf":
        raise InputError(f"{where} must hold numbers; got {values.dtype}.")
    kept = values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8)
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("=") if kept else np.float32))


def _read_split(file: ArrayFile, rows: int, names: Sequence[str] | None) -> Groups | None:
    if "split" not in file:
        if names is not None:
            raise InputError(f"`{file.path}`: has no array 'split' for `split_names`; it has {file.names()}.")
        return None
    where, array = file.location("split"), np.array(file.array("split"))
    _check_length(file, "split", array, rows)
    if array.dtype.kind in "US":
        return Groups.of(map(part_name, text_list(where, array)), order=PARTS)
    if array.dtype.kind not in "biu":
        raise InputError(f"{where} must hold integers or names; got {array.dtype}.")
    largest = int(array.max(initial=0))
    names = names or read_names(file, ("split_names",)) or (("train", "test") if largest < 2 else PARTS)
    wrong = np.flatnonzero((array.astype(np.int64) < -1) | (array.astype(np.int64) >= len(names)))
    if len(wrong):
        raise InputError(f"{where} row {wrong[0]}: {array[wrong[0]]} must lie in [-1, {len(names)}).")
    usual = tuple(map(part_name, names))
    if len(set(usual)) < len(usual):
        raise InputError(f"`{file.path}`: `split_names` must name different parts; got {', '.join(names)}.")
    return Groups(torch.from_numpy(array.astype(np.int64)), usual).compact()


def _read_group(file: ArrayFile, key: str, parts: tuple[str, ...] | None, rows: int) -> Groups:
    """One value per row, under one key or, like the features, in parts."""
    keys = [key]
    if key not in file and parts is not None:
        spelled = part_keys(file.openers, key, f"`{file.path}`")
        keys = [spelled.get(part, f"{key}_{part}") for part in parts]
    columns = [np.array(file.array(one)) for one in keys]
    for one, column in zip(keys, columns, strict=True):
        if column.ndim != 1 or column.dtype.kind not in "iuUS":
            rule = "must hold integers or names in 1 dimension"
            raise InputError(f"{file.location(one)} {rule}; got {column.dtype} in shape {column.shape}.")
    joined = np.concatenate(columns)
    _check_length(file, key, joined, rows)
    values, index = np.unique(joined, return_inverse=True)
    names = text_list(file.location(key), values) if values.dtype.kind in "US" else list(map(str, values.tolist()))
    return Groups(torch.from_numpy(index.reshape(-1).astype(np.int64)), tuple(names))


def _check_length(file: ArrayFile, key: str, array: np.ndarray | Tensor, rows: int) -> None:
    if array.ndim < 1 or array.shape[0] != rows:
        raise InputError(
            f"{file.location(key)} must have length {rows} like the features; got shape {tuple(array.shape)}."
        )

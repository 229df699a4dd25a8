"""Labels and their names in array files: every form of labels, checked value by value."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.array_files import ArrayFile
from shortlist.data.files.vocabularies import numbered_names
from shortlist.data.groups import Groups, check_unique
from shortlist.data.target_rows import LabelPairs, label_pairs, sparse_targets
from shortlist.errors import InputError
from shortlist.targets import check_target, from_indices


def read_labels(
    file: ArrayFile,
    keys: Sequence[str],
    names: Sequence[str] | None,
    hot_values: Sequence[float] | None,
) -> tuple[Tensor, tuple[str, ...]]:
    """Read the labels under one key, or under several keys whose rows follow each other.

    Args:
        file: the arrays.
        keys: of dense arrays; or one key for ``{key}_indptr`` and ``{key}_indices``, optionally with ``{key}_data``.
        names: the names of the labels, or None.
        hot_values: the values for present, absent and unknown in a multi-hot; empty if the labels are lists; None for
            those of :mod:`shortlist.targets`.

    Returns:
        Class indices or sparse targets, and the names; numbers as names if there are none.
    """
    if keys[0] not in file:
        return _sparse_labels(file, keys[0], names, hot_values)
    arrays = {key: _in_memory(file.array(key)) for key in keys}
    first = arrays[keys[0]]
    if first.dtype.kind in "US":
        return _named_classes(file, arrays, names)
    for key, array in arrays.items():
        if array.ndim not in (1, 2) or array.ndim != first.ndim:
            raise InputError(
                f"{file.location(key)} must have 1 dimension (classes) or 2 (sets); got shape {array.shape}."
            )
    single, dtype = first.ndim == 1, first.dtype
    if single and dtype.kind not in "iu":
        raise InputError(f"{file.location(keys[0])} must hold integers or names, the class of each row; got {dtype}.")
    if hot_values is not None and not hot_values and dtype.kind not in "iu":
        rule = "must hold integers, since `hot_values` says that they are lists of labels"
        raise InputError(f"{file.location(keys[0])} {rule}; got {dtype}.")
    lists = single or (dtype == np.int64 if hot_values is None else not hot_values)
    stated = _label_count(file, names)
    count = first.shape[1] if not lists else max(int(a.max()) + 1 if a.size else 0 for a in arrays.values())
    count = count if stated is None else stated
    names = numbered_names(count, file.location("n_labels" if stated else keys[0])) if names is None else tuple(names)
    if single:
        return torch.cat([_checked(file, key, array, count) for key, array in arrays.items()]), names
    pairs, rows = [], 0
    for key, array in arrays.items():
        part = (
            label_pairs(_checked(file, key, array, count), count)
            if lists
            else _hot_pairs(file.location(key), array, count, hot_values)
        )
        pairs.append(LabelPairs(part.rows + rows, part.labels, part.present))
        rows += len(array)
    if lists and hot_values is None:
        _refuse_ambiguous(file.location(keys[0]), list(arrays.values()), stated)
    joined = LabelPairs(*map(torch.cat, zip(*pairs, strict=True)))
    return sparse_targets(joined.rows, joined.labels, rows, count, present=joined.present), names


def row_pointers(file: ArrayFile, key: str) -> tuple[np.ndarray, np.ndarray]:
    """The checked row pointers and columns of a sparse matrix in CSR form, int64."""
    arrays = []
    for name in (f"{key}_indptr", f"{key}_indices"):
        array = _in_memory(file.array(name))
        if array.ndim != 1 or array.dtype.kind not in "iu":
            rule = "must be integers in 1 dimension"
            raise InputError(f"{file.location(name)} {rule}; got {array.dtype} {array.shape}.")
        arrays.append(array.astype(np.int64))
    pointers, columns = arrays
    if not len(pointers) or pointers[0] != 0 or pointers[-1] != len(columns) or (np.diff(pointers) < 0).any():
        got = f"{len(pointers)} numbers from {pointers[0]} to {pointers[-1]}" if len(pointers) else "none"
        raise InputError(f"{file.location(f'{key}_indptr')} must rise from 0 to {len(columns)}; got {got}.")
    return pointers, columns


def check_columns(file: ArrayFile, key: str, pointers: np.ndarray, columns: np.ndarray, width: int, noun: str) -> None:
    """Raise an error for the first column out of range, with its row."""
    wrong = np.flatnonzero((columns < 0) | (columns >= width))
    if len(wrong):
        row = int(np.searchsorted(pointers, wrong[0], side="right")) - 1
        where = file.location(f"{key}_indices")
        raise InputError(f"{where} row {row}: {noun} {columns[wrong[0]]} must lie in [0, {width}).")


def read_names(file: ArrayFile, keys: Sequence[str]) -> tuple[str, ...] | None:
    """The names under the first of the keys that exists: an array of texts, or a note with a JSON list."""
    key = next((key for key in keys if key in file.notes or key in file), None)
    if key is None:
        return None
    if key in file.notes:
        try:
            names = json.loads(file.notes[key])
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file.location(key)} must be a JSON list; got {file.notes[key]!r:.60}.") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{file.location(key)} must be a JSON list of names; got {names!r:.60}.")
    else:
        names = text_list(file.location(key), _in_memory(file.array(key)))
    check_unique(names, key, where=f"`{file.path}`", error=InputError)
    return tuple(names)


def text_list(where: str, array: np.ndarray) -> list[str]:
    """The texts of an array in 1 dimension."""
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise InputError(f"{where} must be texts in 1 dimension; got {array.dtype} in shape {array.shape}.")
    try:
        return [text.decode() if isinstance(text, bytes) else text for text in array.tolist()]
    except (UnicodeDecodeError, SystemError, ValueError) as error:  # numpy does not check code points.
        raise InputError(f"{where} must be text, in UTF-8 if it is bytes; it is not.") from error


def read_superclasses(file: ArrayFile, count: int) -> dict[str, Groups]:
    """The superclass of each label, from ``fine_to_coarse`` and ``coarse_names``."""
    if "fine_to_coarse" not in file:
        return {}
    where, coarse = file.location("fine_to_coarse"), _in_memory(file.array("fine_to_coarse"))
    if coarse.shape != (count,) or coarse.dtype.kind not in "iu":
        raise InputError(f"{where} must be {count} integers, one per label; got {coarse.dtype} {coarse.shape}.")
    names = read_names(file, ("coarse_names",))
    if names is None:
        names = numbered_names(int(coarse.max()) + 1 if coarse.size else 0, where)
    wrong = np.flatnonzero((coarse < 0) | (coarse >= len(names)))
    if len(wrong):
        raise InputError(f"{where} label {wrong[0]}: {coarse[wrong[0]]} must lie in [0, {len(names)}).")
    return {"superclass": Groups(torch.from_numpy(coarse.astype(np.int64)), names)}


def _sparse_labels(
    file: ArrayFile, key: str, names: Sequence[str] | None, hot_values: Sequence[float] | None
) -> tuple[Tensor, tuple[str, ...]]:
    pointers, labels = row_pointers(file, key)
    count = _label_count(file, names)
    if count is None and f"{key}_shape" in file:
        shape, where = _in_memory(file.array(f"{key}_shape")), file.location(f"{key}_shape")
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
            raise InputError(f"{where} must be 2 integers, of rows and labels; got {shape.dtype} {shape.shape}.")
        if shape[0] != len(pointers) - 1:
            raise InputError(f"{where} must be {len(pointers) - 1} rows and a number of labels; got {shape.tolist()}.")
        count = int(shape[1])
    if count is None:
        count = int(labels.max(initial=-1)) + 1
    names = numbered_names(count, file.location(key)) if names is None else tuple(names)
    check_columns(file, key, pointers, labels, count, "label")
    rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    present = None
    if f"{key}_data" in file:
        values, where = _in_memory(file.array(f"{key}_data")), file.location(f"{key}_data")
        if values.shape != labels.shape:
            raise InputError(f"{where} must have a value for each of {len(labels)} labels; got shape {values.shape}.")
        stored, present = _present(where, values, rows, labels, hot_values)
        rows, labels, present = rows[stored], labels[stored], present[stored]
    return sparse_targets(rows, labels, len(pointers) - 1, count, present=present), names


def _named_classes(
    file: ArrayFile, arrays: dict[str, np.ndarray], names: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...]]:
    texts = {key: text_list(file.location(key), array) for key, array in arrays.items()}
    known = sorted({text for part in texts.values() for text in part}) if names is None else list(names)
    code = {name: i for i, name in enumerate(known)}
    for key, part in texts.items():
        for row, text in enumerate(part):
            if text not in code:
                raise InputError(f"{file.location(key)} row {row}: {text!r} must be one of the label names.")
    codes = [code[text] for part in texts.values() for text in part]
    return torch.tensor(codes, dtype=torch.int64), tuple(known)


def _checked(file: ArrayFile, key: str, array: np.ndarray, count: int) -> Tensor:
    """Class indices or index lists, checked by value."""
    target = from_indices(torch.from_numpy(array.astype(np.int64)), count)
    try:
        check_target(target, count, name=key)
    except ValueError as error:
        hint = f" If `{key}` is a multi-hot, say so with `hot_values`." if target.dim() == 2 else ""
        raise InputError(f"`{file.path}`: {error}{hint}") from error
    return target


def _refuse_ambiguous(where: str, arrays: Sequence[np.ndarray], stated: int | None) -> None:
    """Refuse labels that could be lists as well as a multi-hot, and so would be misread silently."""
    if all(
        array.shape[1] == (array.shape[1] if stated is None else stated) and np.isin(array, (0, 1, -1)).all()
        for array in arrays
    ) and any(array.size for array in arrays):
        raise InputError(
            f"{where} could be a multi-hot or lists of labels, being int64 with values 0, 1 and -1 only: give "
            f"`hot_values`, (1, 0) for a multi-hot (with unknown labels (1, 0, -1)) or () for lists."
        )


def _hot_pairs(where: str, array: np.ndarray, count: int, hot_values: Sequence[float] | None) -> LabelPairs:
    if array.shape[1] != count:
        raise InputError(f"{where} must have a column for each of {count} labels; got shape {array.shape}.")
    rows, labels = (array != (0 if hot_values is None else hot_values[1])).nonzero()
    stored, present = _present(where, array[rows, labels], rows, labels, hot_values)
    return LabelPairs(*(torch.from_numpy(part[stored]) for part in (rows, labels, present)))


def _present(
    where: str, values: np.ndarray, rows: np.ndarray, labels: np.ndarray, hot_values: Sequence[float] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Which values are not absent, and which are present."""
    if hot_values is None:
        present, absent, unknown, rule = values == 1, values == 0, values < 0, "1, 0 or negative (unknown)"
    else:
        present, absent = values == hot_values[0], values == hot_values[1]
        unknown = values == hot_values[2] if len(hot_values) > 2 else np.zeros_like(present)
        rule = "one of `hot_values` " + ", ".join(map(str, hot_values))
    wrong = np.flatnonzero(~(present | absent | unknown))
    if len(wrong):
        first = wrong[0]
        raise InputError(f"{where} row {rows[first]}: label {labels[first]} must be {rule}; got {values[first]}.")
    return ~absent, present


def _label_count(file: ArrayFile, names: Sequence[str] | None) -> int | None:
    """The number of labels according to the names or ``n_labels``; None if neither is given."""
    if names is not None:
        return len(names)
    if "n_labels" not in file:
        return None
    count = _in_memory(file.array("n_labels"))
    if count.size != 1 or count.dtype.kind not in "iu" or count.item() < 0:
        raise InputError(f"{file.location('n_labels')} must be one integer from 0; got {count.dtype} {count.shape}.")
    return int(count.item())


def _in_memory(array: np.ndarray | Tensor) -> np.ndarray:
    """An aligned copy, as torch needs it, which does not change with the file."""
    return array.float().numpy() if isinstance(array, Tensor) else np.array(array)

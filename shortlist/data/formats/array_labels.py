"""Labels and their names in files of arrays, in every form, checked value by value."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.array_files import ArrayFile
from shortlist.data.files.vocabularies import number_names
from shortlist.data.groups import Groups, refuse_repeated
from shortlist.data.target_rows import LabelPairs, label_pairs, sparse_targets
from shortlist.targets import check_target


def read_labels(
    file: ArrayFile,
    keys: Sequence[str],
    names: Sequence[str] | None,
    hot_values: Sequence[float] | None,
) -> tuple[Tensor, tuple[str, ...]]:
    """Read the labels under one key, or under several whose rows follow each other.

    Args:
        file: the arrays.
        keys: of dense arrays; or one key for ``{key}_indptr`` and ``{key}_indices``, perhaps with ``{key}_data``.
        names: the labels' names, or None.
        hot_values: what stands for present, absent and unknown in a multi-hot; empty if the labels are lists; None for
            what the contract says.

    Returns:
        Class indices or sparse targets, and the names; numbers as names if there are none.
    """
    if keys[0] not in file:
        return _sparse_labels(file, keys[0], names, hot_values)
    arrays = [(file.place(key), _numpy(file.array(key))) for key in keys]
    if arrays[0][1].dtype.kind in "US":
        return _named_classes(arrays, names)
    for place, array in arrays:
        if array.ndim not in (1, 2) or array.ndim != arrays[0][1].ndim:
            raise ValueError(f"{place} must have 1 dimension (classes) or 2 (sets); got shape {array.shape}.")
    single, kind = arrays[0][1].ndim == 1, arrays[0][1].dtype
    if single and kind.kind not in "iu":
        raise ValueError(f"{arrays[0][0]} must hold whole numbers or names, the class of each row; got {kind}.")
    if hot_values is not None and not hot_values and kind.kind not in "iu":
        raise ValueError(f"{arrays[0][0]} must hold whole numbers, being lists of labels by `hot_values`; got {kind}.")
    lists = single or (kind == np.int64 if hot_values is None else not hot_values)
    stated = _label_count(file, names)
    count = stated if stated is not None else _largest(arrays) + 1 if lists else arrays[0][1].shape[1]
    names = number_names(count, file.place("n_labels" if stated else keys[0])) if names is None else tuple(names)
    if single:
        return torch.cat([_checked(place, array, count) for place, array in arrays]), names
    pairs, rows = [], 0
    for place, array in arrays:
        part = label_pairs(_checked(place, array, count), count) if lists else _hot(place, array, count, hot_values)
        pairs.append(LabelPairs(part.rows + rows, part.labels, part.present))
        rows += len(array)
    if lists and hot_values is None:
        _refuse_ambiguous(arrays, stated)
    joined = LabelPairs(*map(torch.cat, zip(*pairs, strict=True)))
    return sparse_targets(joined.rows, joined.labels, rows, count, present=joined.present), names


def row_pointers(file: ArrayFile, key: str) -> tuple[np.ndarray, np.ndarray]:
    """The checked row pointers and columns of a sparse matrix in CSR form, int64."""
    arrays = []
    for name in (f"{key}_indptr", f"{key}_indices"):
        array = _numpy(file.array(name))
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"{file.place(name)} must be whole numbers in 1 dimension; got {array.dtype} {array.shape}."
            )
        arrays.append(array.astype(np.int64))
    pointers, columns = arrays
    if not len(pointers) or pointers[0] != 0 or pointers[-1] != len(columns) or (np.diff(pointers) < 0).any():
        raise ValueError(f"{file.place(f'{key}_indptr')} must rise from 0 to {len(columns)}; got {_ends(pointers)}.")
    return pointers, columns


def refuse_outside(file: ArrayFile, key: str, pointers: np.ndarray, columns: np.ndarray, width: int, noun: str) -> None:
    """Raise for the first column that is none, with its row."""
    wrong = np.flatnonzero((columns < 0) | (columns >= width))
    if len(wrong):
        row = int(np.searchsorted(pointers, wrong[0], side="right")) - 1
        place = file.place(f"{key}_indices")
        raise ValueError(f"{place} row {row}: {noun} {columns[wrong[0]]} must lie in [0, {width}).")


def read_names(file: ArrayFile, keys: Sequence[str]) -> tuple[str, ...] | None:
    """The names under the first key that there is: an array of texts, or a note with a JSON list."""
    for key in keys:
        if key in file.notes:
            try:
                names = json.loads(file.notes[key])
            except json.JSONDecodeError as error:
                raise ValueError(f"{file.place(key)} must be a list in JSON; got {file.notes[key]!r:.60}.") from error
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"{file.place(key)} must be a list of names in JSON; got {names!r:.60}.")
            return _distinct(file, key, names)
        if key in file:
            return _distinct(file, key, text_list(file.place(key), _numpy(file.array(key))))
    return None


def text_list(place: str, array: np.ndarray) -> list[str]:
    """The texts of an array in 1 dimension."""
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise ValueError(f"{place} must be texts in 1 dimension; got {array.dtype} in shape {array.shape}.")
    try:
        return [text.decode() if isinstance(text, bytes) else text for text in array.tolist()]
    except (UnicodeDecodeError, SystemError, ValueError) as error:  # numpy lets through what is no character.
        raise ValueError(f"{place} must be text, in UTF-8 if it is bytes; got what is none.") from error


def read_superclasses(file: ArrayFile, count: int) -> dict[str, Groups]:
    """The superclass of each label, from ``fine_to_coarse`` and ``coarse_names``."""
    if "fine_to_coarse" not in file:
        return {}
    place, coarse = file.place("fine_to_coarse"), _numpy(file.array("fine_to_coarse"))
    if coarse.shape != (count,) or coarse.dtype.kind not in "iu":
        raise ValueError(
            f"{place} must be {count} whole numbers, one for each label; got {coarse.dtype} {coarse.shape}."
        )
    names = read_names(file, ("coarse_names",))
    if names is None:
        names = number_names(int(coarse.max()) + 1 if coarse.size else 0, place)
    wrong = np.flatnonzero((coarse < 0) | (coarse >= len(names)))
    if len(wrong):
        raise ValueError(f"{place} label {wrong[0]}: {coarse[wrong[0]]} must lie in [0, {len(names)}).")
    return {"superclass": Groups(torch.from_numpy(coarse.astype(np.int64)), names)}


def _sparse_labels(
    file: ArrayFile, key: str, names: Sequence[str] | None, hot_values: Sequence[float] | None
) -> tuple[Tensor, tuple[str, ...]]:
    pointers, labels = row_pointers(file, key)
    count = _label_count(file, names)
    if count is None and f"{key}_shape" in file:
        shape, place = _numpy(file.array(f"{key}_shape")), file.place(f"{key}_shape")
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
            raise ValueError(f"{place} must be 2 whole numbers, of rows and labels; got {shape.dtype} {shape.shape}.")
        if shape[0] != len(pointers) - 1:
            raise ValueError(f"{place} must be {len(pointers) - 1} rows and a number of labels; got {shape.tolist()}.")
        count = int(shape[1])
    if count is None:
        count = int(labels.max(initial=-1)) + 1
    names = number_names(count, file.place(key)) if names is None else tuple(names)
    refuse_outside(file, key, pointers, labels, count, "label")
    rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    present = None
    if f"{key}_data" in file:
        values, place = _numpy(file.array(f"{key}_data")), file.place(f"{key}_data")
        if values.shape != labels.shape:
            raise ValueError(f"{place} must have a value for each of {len(labels)} labels; got shape {values.shape}.")
        stored, present = _present(place, values, rows, labels, hot_values)
        rows, labels, present = rows[stored], labels[stored], present[stored]
    return sparse_targets(rows, labels, len(pointers) - 1, count, present=present), names


def _named_classes(
    arrays: Sequence[tuple[str, np.ndarray]], names: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...]]:
    texts = [text_list(place, array) for place, array in arrays]
    known = sorted({text for part in texts for text in part}) if names is None else list(names)
    number = {name: i for i, name in enumerate(known)}
    for (place, _), part in zip(arrays, texts, strict=True):
        for row, text in enumerate(part):
            if text not in number:
                raise ValueError(f"{place} row {row}: {text!r} must be one of the names of labels.")
    return torch.tensor([number[text] for part in texts for text in part], dtype=torch.int64), tuple(known)


def _checked(place: str, array: np.ndarray, count: int) -> Tensor:
    """Class indices or index lists, checked by value."""
    target = torch.from_numpy(array.astype(np.int64))
    try:
        check_target(target, count)
    except ValueError as error:
        hint = ", or is this a multi-hot (then say so by `hot_values`)?" if target.dim() == 2 else "."
        raise ValueError(f"{place}{str(error).removeprefix('`target`').rstrip('.')}{hint}") from error
    return target


def _refuse_ambiguous(arrays: Sequence[tuple[str, np.ndarray]], stated: int | None) -> None:
    """Raise for labels that are lists as well as a multi-hot, which would be read as something else in silence."""
    if all(
        array.shape[1] == (array.shape[1] if stated is None else stated) and np.isin(array, (0, 1, -1)).all()
        for _, array in arrays
    ) and any(array.size for _, array in arrays):
        raise ValueError(
            f"{arrays[0][0]} must say whether it is a multi-hot or lists of labels, being int64 of 0, 1 and -1 only: "
            f"give `hot_values`, (1, 0) for a multi-hot (with unknown labels (1, 0, -1)) and () for lists."
        )


def _hot(place: str, array: np.ndarray, count: int, hot_values: Sequence[float] | None) -> LabelPairs:
    if array.shape[1] != count:
        raise ValueError(f"{place} must have a column for each of {count} labels; got shape {array.shape}.")
    rows, labels = (array != (0 if hot_values is None else hot_values[1])).nonzero()
    stored, present = _present(place, array[rows, labels], rows, labels, hot_values)
    return LabelPairs(*(torch.from_numpy(part[stored]) for part in (rows, labels, present)))


def _present(
    place: str, values: np.ndarray, rows: np.ndarray, labels: np.ndarray, hot_values: Sequence[float] | None
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
        at = wrong[0]
        raise ValueError(f"{place} row {rows[at]}: label {labels[at]} must be {rule}; got {values[at]}.")
    return ~absent, present


def _label_count(file: ArrayFile, names: Sequence[str] | None) -> int | None:
    """How many labels the names or ``n_labels`` say that there are; None if neither does."""
    if names is not None:
        return len(names)
    if "n_labels" not in file:
        return None
    count = _numpy(file.array("n_labels"))
    if count.size != 1 or count.dtype.kind not in "iu" or count.item() < 0:
        raise ValueError(f"{file.place('n_labels')} must be one whole number from 0; got {count.dtype} {count.shape}.")
    return int(count.item())


def _largest(arrays: Sequence[tuple[str, np.ndarray]]) -> int:
    return max(int(array.max()) if array.size else -1 for _, array in arrays)


def _distinct(file: ArrayFile, key: str, names: Sequence[str]) -> tuple[str, ...]:
    try:
        refuse_repeated(names, key)
    except ValueError as error:
        raise ValueError(f"`{file.path}`: {error}") from None
    return tuple(names)


def _numpy(array: np.ndarray | Tensor) -> np.ndarray:
    """A copy in memory, aligned as torch wants it, and so that the file may change."""
    return array.float().numpy() if isinstance(array, Tensor) else np.array(array)


def _ends(pointers: np.ndarray) -> str:
    return f"{len(pointers)} numbers from {pointers[0]} to {pointers[-1]}" if len(pointers) else "none"

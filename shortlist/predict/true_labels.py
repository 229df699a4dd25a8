"""The true labels of the rows of scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.array_files import ArrayFile, open_arrays
from shortlist.data.files.text_files import need_file
from shortlist.data.formats.array_labels import read_labels
from shortlist.data.target_rows import take_rows
from shortlist.errors import InputError
from shortlist.predict.files.label_files import read_label_sets
from shortlist.predict.files.matrix_files import ARRAYS, open_array_file
from shortlist.predict.scores import ScoreBlock, Scores
from shortlist.targets import from_indices, to_class_indices, to_index_lists, to_pairs

# The arrays of a sparse matrix in a file that scipy saved.
_SCIPY = {"indptr", "indices", "data", "shape", "format"}


def read_true_labels(
    path: str | Path, scores: Scores, *, key: str | None = None, one_class: bool | None = None
) -> Tensor:
    """Read the true labels of each row of ``scores``.

    Args:
        path: arrays in any form of ``shortlist.targets`` (sparse ones as scipy saves them, or as ``KEY_indptr`` and
            ``KEY_indices``), ``.json``, or text; see `read_label_sets`.
        scores: of the same rows. Their label names are those of the file.
        key: which array of a file with several.
        one_class: True requires one label per row, False reads the labels of a row as a set. None: the shape and type
            of arrays decide; text and JSON are one class if every row has one label.

    Returns:
        Class indices; index lists; or sparse CSR, which may hold unknown labels only if ``one_class`` is None.

    Raises:
        InputError: names the file and the row.
    """
    path = need_file(path)
    if path.suffix in ARRAYS:
        file, name = _array_file(path, key)
        target, _ = read_labels(file, [name], scores.names or list(map(str, range(scores.num_labels))), None)
    else:
        if key is not None:
            raise InputError(f"`{path}` holds no arrays, so there is none called {key!r}.")
        names = None if scores.names is None else list(scores.names)
        target = _padded(read_label_sets(path, scores.num_labels, names=names), scores.num_labels)
    if len(target) != scores.num_rows:
        raise InputError(
            f"`{path}` must have labels for each of the {scores.num_rows} rows of `{scores.path}`; got {len(target)}."
        )
    return as_task(target, scores.num_labels, one_class, path)


def as_task(target: Tensor, num_labels: int, one_class: bool | None, path: str | Path) -> Tensor:
    """Convert labels to the form that ``one_class`` asks for, as in `read_true_labels`; ``path`` is for errors."""
    if one_class is None and target.layout == torch.strided:
        return target
    if one_class is None and bool((target.values() < 0).any()):
        return target
    try:
        if one_class or target.layout == torch.strided:
            convert = to_class_indices if one_class else to_index_lists
            return convert(target, num_labels, name=str(path))
        to_pairs(target, num_labels, name=str(path))  # Checks the values; lists would be as wide as the longest row.
        return target
    except ValueError as error:
        raise InputError(str(error)) from error


def labels_of(target: Tensor, block: ScoreBlock) -> Tensor:
    """Return the labels of the rows of a block."""
    rows = block.rows
    if target.layout == torch.strided:
        return target[rows.start : rows.stop]
    return take_rows(target, torch.arange(rows.start, rows.stop))


def _array_file(path: Path, key: str | None) -> tuple[ArrayFile, str]:
    option = "the key of the labels"
    if path.suffix == ".npy":
        return open_array_file(path, key, option)
    file = open_arrays(path)
    if key is None and file.openers.keys() >= _SCIPY:
        kind = str(file.array("format").item(), "ascii", "replace")  # pyright: ignore[reportArgumentType]
        if kind != "csr":
            raise InputError(f"`{path}` must hold a sparse matrix in the format 'csr'; got {kind!r}.")
        return ArrayFile(path, {f"labels_{name}": opener for name, opener in file.openers.items()}), "labels"
    if key is not None and f"{key}_indptr" in file:
        return file, key
    return open_array_file(path, key, option)


def _padded(sets: np.ndarray | list[list[int]], num_labels: int) -> Tensor:
    """Return class indices if every row has one label, and index lists otherwise."""
    rows = [list(labels) for labels in sets]
    if all(len(row) == 1 for row in rows):
        return torch.tensor([row[0] for row in rows])
    width = max(map(len, rows))
    lists = torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.int64)
    return from_indices(lists.reshape(len(rows), width), num_labels)

"""The true labels of the rows of a file of scores."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from shortlist.audit.layer import LabelSets
from shortlist.cli.label_file import read_label_file
from shortlist.cli.scores_file import ARRAYS, ScoreBlock, Scores, open_array_file
from shortlist.data.files.array_files import ArrayFile, open_arrays
from shortlist.data.files.text_files import need_file
from shortlist.data.formats.array_labels import read_labels
from shortlist.data.target_rows import take_rows
from shortlist.targets import to_class_indices, to_index_lists, to_pairs

# What scipy calls the parts of a sparse matrix in a file.
_SCIPY = {"indptr", "indices", "data", "shape", "format"}


def add_label_options(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add LABELS and what must be known to read it."""
    parser.add_argument(
        "labels",
        metavar="LABELS",
        nargs="?" if optional else None,
        help="true labels of the same rows: arrays (also sparse), .json, or text with the labels of a row per line",
    )
    parser.add_argument("--labels-key", metavar="KEY", help="which array of LABELS; not needed when it holds one")


def read_true_labels(
    path: str | Path, scores: Scores, *, key: str | None = None, one_class: bool | None = None
) -> Tensor:
    """Read the true labels of each row of ``scores``.

    Args:
        path: arrays in any form of ``shortlist.targets`` (sparse ones as scipy saves them, or as ``KEY_indptr`` and
            ``KEY_indices``), ``.json``, or text; see `read_label_file`.
        scores: of the same rows. Their names are those of the labels.
        key: which array of a file with several.
        one_class: True demands one label in each row, False takes the labels of a row as a set. None: arrays say by
            their form what they are; text and JSON are one class where every row has one label.

    Returns:
        Class indices; index lists; or sparse CSR, in which labels are unknown only if ``one_class`` leaves that open.

    Raises:
        ValueError: names the file and the row.
    """
    path = need_file(path)
    if path.suffix in ARRAYS:
        file, name = _array_file(path, key)
        target, _ = read_labels(file, [name], scores.names or list(map(str, range(scores.num_labels))), None)
    else:
        if key is not None:
            raise ValueError(f"--labels-key names an array of a file, and `{path}` is none; got {key!r}.")
        names = None if scores.names is None else list(scores.names)
        target = _padded(read_label_file(path, scores.num_labels, names=names))
    rows = scores.num_rows
    if len(target) != rows:
        raise ValueError(
            f"`{path}` must have labels for each of the {rows} rows of `{scores.path}`; got {len(target)}."
        )
    return in_form(target, scores.num_labels, one_class, path)


def labels_of(target: Tensor, block: ScoreBlock) -> Tensor:
    """The labels of the rows of a block."""
    rows = block.rows
    if target.layout == torch.strided:
        return target[rows.start : rows.stop]
    return take_rows(target, torch.arange(rows.start, rows.stop))


def _array_file(path: Path, key: str | None) -> tuple[ArrayFile, str]:
    if path.suffix == ".npy":
        return open_array_file(path, key, "--labels-key")
    file = open_arrays(path)
    if key is None and file.openers.keys() >= _SCIPY:
        kind = str(file.array("format").item(), "ascii", "replace")  # pyright: ignore[reportArgumentType]
        if kind != "csr":
            raise ValueError(f"`{path}` must hold a sparse matrix in the form 'csr'; got {kind!r}.")
        return ArrayFile(path, {f"labels_{name}": opener for name, opener in file.openers.items()}), "labels"
    if key is not None and f"{key}_indptr" in file:
        return file, key
    return open_array_file(path, key, "--labels-key")


def _padded(sets: LabelSets) -> Tensor:
    """Class indices where every row has one label, else index lists."""
    rows = [list(labels) for labels in sets]
    width = max(map(len, rows))
    if all(len(row) == 1 for row in rows):
        return torch.tensor([row[0] for row in rows])
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.int64).reshape(len(rows), width)


def in_form(target: Tensor, num_labels: int, one_class: bool | None, path: str | Path) -> Tensor:
    """Labels as `read_true_labels` gives them; ``path`` is for errors."""
    if one_class is None and target.layout == torch.strided:
        return target
    if one_class is None and bool((target.values() < 0).any()):
        return target
    name = str(path)
    if one_class:
        return to_class_indices(target, num_labels, name=name)
    if target.layout == torch.strided:
        return to_index_lists(target, num_labels, name=name)
    to_pairs(target, num_labels, name=name)  # lists would be as wide as the longest row, so they are only checked
    return target

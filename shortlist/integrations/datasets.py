"""Datasets of Hugging Face as datasets of this library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.data import Dataset, Features, Groups, ImageArray, Inputs, Texts
from shortlist.errors import InputError

__all__ = ["read_datasets"]

_PARTS = {"validation": "val", "valid": "val", "dev": "val"}


def read_datasets(data: Any, *, inputs: str, labels: str, resolution: int | None = None) -> Dataset:
    """Read a ``datasets.Dataset``, or a ``datasets.DatasetDict`` whose splits become the parts.

    The types of the columns decide, not their values: texts, images or lists of numbers as inputs; class labels, whole
    numbers or texts as one class per row, and lists of these as sets.

    Args:
        data: loaded by ``datasets.load_dataset`` or built in memory. Of a ``DatasetDict``, ``validation`` becomes the
            part val.
        inputs: the column of the inputs.
        labels: the column of the labels.
        resolution: images are resized to this width and height; None if they all have one size.

    Raises:
        InputError: for columns that do not exist or have another type.

    Example:
        >>> import datasets
        >>> rows = datasets.Dataset.from_dict({"text": ["a rose", "a daisy"], "tags": [["red", "tall"], ["tall"]]})
        >>> found = read_datasets(rows, inputs="text", labels="tags")
        >>> found.label_names, found[0].labels
        (('red', 'tall'), ('red', 'tall'))
    """
    parts = {_PARTS.get(name, name): part for name, part in data.items()} if isinstance(data, Mapping) else {"": data}
    if not parts:
        raise InputError("`data` must have at least one split; it has none.")
    for part in parts.values():
        for argument, column in (("inputs", inputs), ("labels", labels)):
            if column not in part.column_names:
                raise InputError(f"`{argument}` must be one of {', '.join(part.column_names)}; got {column!r}.")
    features = next(iter(parts.values())).features
    values = [value for part in parts.values() for value in part[labels]]
    targets, names = _read_labels(values, features[labels], labels)
    split = [name for name, part in parts.items() for _ in range(len(part))]
    return Dataset(
        _read_inputs([part[inputs] for part in parts.values()], features[inputs], inputs, resolution),
        targets,
        names,
        split=Groups.of(split, order=("train", "val", "test")) if isinstance(data, Mapping) else None,
    )


def _read_inputs(columns: Sequence[Any], feature: Any, name: str, resolution: int | None) -> Inputs:
    rows = [row for column in columns for row in column]
    if _is_text(feature):
        return Texts([str(row) for row in rows])
    if type(feature).__name__ == "Image":
        return _read_images(rows, name, resolution)
    try:
        array = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`inputs` must be a column of texts, images or lists of numbers; {name!r} is none."
        ) from error
    if array.ndim < 2:
        raise InputError(f"`inputs` must be a column of texts, images or lists of numbers; {name!r} is none.")
    return Features(array)


def _read_images(images: Sequence[Any], name: str, resolution: int | None) -> Inputs:
    sized = (image if resolution is None else image.resize((resolution, resolution)) for image in images)
    arrays = [np.asarray(image.convert("RGB")) for image in sized]
    sizes = {array.shape for array in arrays}
    if len(sizes) > 1:
        raise InputError(f"`resolution` must be given: the images of {name!r} have {len(sizes)} sizes.")
    return ImageArray(np.stack(arrays))


def _read_labels(values: Sequence[Any], feature: Any, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """Class indices for one label per row, index lists for several; and the names."""
    inner = getattr(feature, "feature", None)
    flat = list(values) if inner is None else [label for row in values for label in row]
    if any(label is None for label in flat):
        raise InputError(f"`labels` must have a label in every row; {name!r} has rows without one.")
    numbers, names = _numbered(flat, feature if inner is None else inner, name)
    if inner is None:
        return torch.tensor(numbers, dtype=torch.int64), names
    # One column more than the longest row, if it has all labels: lists as wide as there are labels are refused.
    longest = max((len(row) for row in values), default=0)
    table = torch.full((len(values), longest + (longest == len(names))), -1, dtype=torch.int64)
    start = 0
    for target, row in zip(table, values, strict=True):
        target[: len(row)] = torch.tensor(numbers[start : start + len(row)], dtype=torch.int64)
        start += len(row)
    return table, names


def _numbered(labels: list[Any], feature: Any, name: str) -> tuple[list[int], tuple[str, ...]]:
    if type(feature).__name__ == "ClassLabel":
        return labels, tuple(feature.names)
    if _is_text(feature):
        names = sorted(set(labels))
        number = {label: position for position, label in enumerate(names)}
        return [number[label] for label in labels], tuple(names)
    if not all(isinstance(label, int) and not isinstance(label, bool) and label >= 0 for label in labels):
        raise InputError(f"`labels` must be a column of classes, or of lists of them; {name!r} is none.")
    return labels, tuple(str(number) for number in range(max(labels, default=-1) + 1))


def _is_text(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string") and type(feature).__name__ == "Value"

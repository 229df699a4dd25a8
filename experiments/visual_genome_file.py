"""Scene graphs written as files in the layout of Visual Genome, so that the reader is part of an experiment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from shortlist.data import Dataset, ObjectPairs
from shortlist.data.target_rows import label_pairs
from shortlist.extras import require

_PARTS = {"train": 0, "val": 1, "test": 2}
_SCALE = 1024


def write_visual_genome(dataset: Dataset, folder: Path) -> Path:
    """Write ``VG-SGG.h5``, ``VG-SGG-dicts.json`` and ``image_data.json``.

    Args:
        dataset: rows are all pairs of objects of images with a longer side of 1024 pixels, and boxes of whole pixels.
        folder: is there.

    Returns:
        ``folder``. `read_visual_genome` gives back all images that have relations.
    """
    inputs = dataset.inputs
    if not isinstance(inputs, ObjectPairs) or inputs.pairs is not None:
        raise TypeError(f"`dataset` must have all pairs of objects as rows; got {getattr(inputs, 'kind', inputs)}.")
    h5py = require("h5py", extra="data")
    with h5py.File(folder / "VG-SGG.h5", "w") as file:
        for name, values in _arrays(dataset, inputs).items():
            file.create_dataset(name, data=values)
    names = {**_numbered("label", inputs.object_names), **_numbered("predicate", dataset.label_names)}
    (folder / "VG-SGG-dicts.json").write_text(json.dumps(names))
    sizes = inputs.image_size.int().tolist()
    images = [{"image_id": i + 1, "width": width, "height": height} for i, (width, height) in enumerate(sizes)]
    (folder / "image_data.json").write_text(json.dumps(images))
    return folder


def _arrays(dataset: Dataset, inputs: ObjectPairs) -> dict[str, np.ndarray]:
    rows, labels, present = label_pairs(dataset.targets, dataset.num_labels)
    image, subject, other = inputs.members(rows[present])
    counts = torch.bincount(image, minlength=inputs.num_images)
    boxes = inputs.boxes.numpy().astype(np.int64)
    found = {
        "labels": inputs.classes.numpy()[:, None] + 1,
        "relationships": torch.stack([subject, other], 1).numpy().astype(np.int32),
        "predicates": labels[present].numpy()[:, None] + 1,
        "split": _split(dataset, inputs),
        f"boxes_{_SCALE}": _centred(boxes),
        f"boxes_{_SCALE // 2}": _centred(np.concatenate([boxes[:, :2] // 2, -(-boxes[:, 2:] // 2)], 1)),
    }
    for what, sizes in (("box", inputs.starts.diff()), ("rel", counts)):
        last = sizes.cumsum(0) - 1
        found[f"img_to_first_{what}"] = torch.where(sizes > 0, last - sizes + 1, -1).numpy().astype(np.int32)
        found[f"img_to_last_{what}"] = torch.where(sizes > 0, last, -1).numpy().astype(np.int32)
    return found


def _centred(corners: np.ndarray) -> np.ndarray:
    """Boxes as centre and size; half a size is rounded down, as in the published file."""
    sizes = corners[:, 2:] - corners[:, :2]
    return np.concatenate([corners[:, :2] + sizes // 2, sizes], 1).astype(np.int32)


def _split(dataset: Dataset, inputs: ObjectPairs) -> np.ndarray:
    """The part of each image; one without pairs has no relations, so that its part does not matter."""
    found = np.zeros(inputs.num_images, dtype=np.int32)
    if dataset.split is not None:
        parts = np.array([_PARTS[name] for name in dataset.split.names], dtype=np.int32)
        found[inputs.images().numpy()] = parts[dataset.split.index.numpy()]
    return found


def _numbered(kind: str, names: Sequence[str]) -> dict[str, dict[str, int] | dict[str, str]]:
    numbers = list(enumerate(names, start=1))
    return {
        f"{kind}_to_idx": {name: number for number, name in numbers},
        f"idx_to_{kind}": {str(number): name for number, name in numbers},
    }

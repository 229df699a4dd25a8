"""Data and options with which a training takes a tenth of a second."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from shortlist.data import AmbiguousWorld, Dataset, Features, Groups, ImageArray, SparseRows, Texts
from shortlist.train import FitOptions

ROWS = 240


def classes(rows: int = ROWS) -> Dataset:
    """One of 7 classes per row, 4 features; 60, 20 and 20 percent of the rows in train, val and test."""
    return AmbiguousWorld(4, (1, 3), dim=4).sample(rows, seed=0)


def label_sets(rows: int = ROWS) -> Dataset:
    """The same rows with one to three of the labels each."""
    data = classes(rows)
    hot = torch.nn.functional.one_hot(data.targets, data.num_labels)
    more = torch.rand(hot.shape, generator=torch.Generator().manual_seed(1)) < 0.15
    return replace(data, targets=((hot > 0) | more).float(), clean_targets=None)


def features(data: Dataset) -> torch.Tensor:
    return data.inputs.batch(torch.arange(len(data)))


def texts() -> Dataset:
    data = classes()
    return replace(data, inputs=Texts([f"word{int(label)} and others" for label in data.targets]))


def sparse() -> Dataset:
    data = classes()
    values = features(data)
    rows = SparseRows(torch.arange(0, 4 * len(data) + 1, 4), torch.arange(4).repeat(len(data)), values.flatten(), 4)
    return replace(data, inputs=rows)


def images() -> Dataset:
    data = classes()
    pixels = np.random.default_rng(0).integers(0, 256, (len(data), 8, 8, 3), dtype=np.uint8)
    pixels[..., 0] = (36 * data.targets.numpy())[:, None, None]
    return replace(data, inputs=ImageArray(pixels))


KINDS = {"features": classes, "sparse features": sparse, "text": texts, "images": images}
ENCODERS: dict[str, dict[str, Any]] = {kind: {"width": 2} if kind == "images" else {"hidden": [8]} for kind in KINDS}
"""Options of a small encoder for each."""


def with_parts(data: Dataset, *names: str) -> Dataset:
    """The parts in turn."""
    return replace(data, split=Groups.of([names[row % len(names)] for row in range(len(data))]))


def with_value(data: Dataset, row: int, value: float) -> Dataset:
    """One feature of one row replaced."""
    changed = features(data).clone()
    changed[row, 1] = value
    return replace(data, inputs=Features(changed))


def quick(**options: Any) -> FitOptions:
    """One epoch of a small network; text has few columns."""
    small = {} if options.get("encoder", "auto") != "auto" else {"encoder_options": {"hidden": [8]}}
    return FitOptions(**{"epochs": 1, "k": 2, "batch_size": 64, **small, **options})

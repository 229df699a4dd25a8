"""Handwritten digits: small images that come inside scikit-learn."""

from __future__ import annotations

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.images import ImageArray
from shortlist.data.splits import split_per_class
from shortlist.extras import require


def digits(*, val: float = 0.1, test: float = 0.2, seed: int = 0) -> Dataset:
    """The 1,797 handwritten digits of scikit-learn, 8 × 8 grey pixels, split by class.

    Args:
        val, test, seed: as of `split_per_class`.

    Returns:
        Images of one channel with values from 0 to 255 (the file has 17 levels), and ten classes.

    Example:
        >>> from shortlist.data import digits
        >>> data = digits()
        >>> len(data), data.inputs.kind, data.split.counts().tolist()
        (1797, 'images', [1248, 185, 364])
    """
    bunch = require("sklearn.datasets", extra="data").load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    dataset = Dataset(
        ImageArray(pixels),
        torch.from_numpy(bunch.target.astype(np.int64)),
        tuple(str(digit) for digit in range(10)),
        name="handwritten digits",
    )
    return split_per_class(dataset, val=val, test=test, seed=seed)

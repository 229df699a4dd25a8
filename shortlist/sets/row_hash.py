"""A number in [0, 1) for each row of scores, as good as random and always the same for the same row."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniform_of_rows(values: Tensor) -> Tensor:
    """Hash of each row, ``(rows,)`` float64.

    Every bit of every entry counts: entries are mixed, multiplied by odd numbers for their places, and summed.

    Example:
        >>> uniform_of_rows(torch.tensor([[0.2, 0.8], [0.8, 0.2], [0.2, 0.8]]))
        tensor([0.3591, 0.1589, 0.3591], dtype=torch.float64)
    """
    # The sum makes 0 of -0, which is the same score.
    bits = (values.double() + 0.0).contiguous().numpy().view(np.uint64)
    factors = _mixed(np.arange(1, bits.shape[-1] + 1, dtype=np.uint64) * _STEP) | np.uint64(1)
    hashed = _mixed((_mixed(bits) * factors).sum(axis=-1, dtype=np.uint64))
    return torch.from_numpy((hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64 bits in which each bit depends on all (the finaliser of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))

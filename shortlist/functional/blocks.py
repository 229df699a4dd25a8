"""Rows in cache-sized blocks, and per-row scalars as numpy columns: what the eager CPU solvers stand on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_BLOCK = 1 << 18
"""Entries that one thread works on at a time, so that a few buffers of that size stay in its cache."""


BLOCK = 1 << 16
"""The same for operators with many buffers."""


def row_blocks(x: Tensor) -> list[slice]:
    """Slices that cut the rows of ``x`` ``(rows, n)`` into blocks."""
    size = max(1, _BLOCK * torch.get_num_threads() // x.shape[-1])
    return [slice(start, start + size) for start in range(0, x.shape[0], size)]


def column(values: Tensor) -> np.ndarray:
    """Per-row values in float64; on a few hundred of them a numpy call costs a fraction of a tensor operation."""
    return values.numpy().astype(np.float64)

"""The projections as loops over rows, compiled by numba: float32, on the CPU, where numba is installed.

A loop makes all passes over a row while the row is in the cache, where tensor operations make one over the batch. It
solves ordinary rows and tells which ones it did not; those, and everything else, are left to the tensor versions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from shortlist.compiled import can_compile

LEAST = 1 << 12
"""Entries from which a loop serves: its first call in a process loads numba, the first of all compiles."""


def serve(x: Tensor) -> bool:
    """Whether a loop takes ``x``, a plain tensor outside the compiler of torch."""
    return (
        x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() >= LEAST
        and type(x) in (Tensor, Parameter)
        and can_compile()
    )

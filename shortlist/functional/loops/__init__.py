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


_MODERATE = 1e12
"""Temperatures beyond it, or below its inverse, are left to tensor operations: quotients may leave float32's range."""


def serve(temperature: float, x: Tensor, *others: Tensor) -> bool:
    """Whether a loop takes the logits ``x`` and what comes with them: all must be memory that it may read.

    Wrappers of tensors are not, nor is anything under a mode that watches the operators of torch, such as a tracer.
    """
    return (
        x.dtype == torch.float32
        and x.numel() >= LEAST
        and 1 / _MODERATE < temperature < _MODERATE
        and all(_is_memory(tensor) for tensor in (x, *others))
        and torch._C._len_torch_dispatch_stack() == 0
        and can_compile()
    )


def _is_memory(x: Tensor) -> bool:
    return type(x) in (Tensor, Parameter) and x.device.type == "cpu" and not (x.is_neg() or x._is_zerotensor())

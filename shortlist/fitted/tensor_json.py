"""Tensors as plain JSON values: exact numbers, and infinity, which JSON lacks, as a string."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

_DTYPES = {"float64": torch.float64, "int64": torch.int64}


def encode_tensor(values: Tensor) -> dict[str, Any]:
    """Numbers in Python's repr, which round-trips exactly.

    Example:
        >>> encode_tensor(torch.tensor([0.1, -torch.inf], dtype=torch.float64))
        {'dtype': 'float64', 'shape': [2], 'values': [0.1, '-inf']}
    """
    numbers = [value if math.isfinite(value) else str(value) for value in values.reshape(-1).tolist()]
    return {"dtype": str(values.dtype).removeprefix("torch."), "shape": list(values.shape), "values": numbers}


def decode_tensor(content: dict[str, Any], name: str) -> Tensor:
    """Read what `encode_tensor` wrote; ValueError, which calls the tensor ``name``, for NaN and for other things."""
    numbers = [float(entry) if isinstance(entry, str) else entry for entry in content["values"]]
    if not all(isinstance(entry, int | float) for entry in numbers):
        raise ValueError(f"an entry of `{name}` is not a number")
    shape = content["shape"]
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) != len(numbers):
        raise ValueError(f"the shape of `{name}` is not that of its {len(numbers)} values")
    values = torch.tensor(numbers, dtype=_DTYPES[content["dtype"]]).reshape(shape)
    if values.isnan().any():
        raise ValueError(f"`{name}` must not be NaN")
    return values

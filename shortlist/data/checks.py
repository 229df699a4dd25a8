"""Checks of options and of indices that readers, procedures and worlds share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.tensors import check_size


def check_share(name: str, value: float, *, below_one: bool = False) -> float:
    """``value`` as a float; TypeError unless it is a number, ValueError unless it lies in [0, 1], or in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number; got {value!r}.")
    if not 0 <= value <= 1 or (below_one and value == 1):
        raise ValueError(f"`{name}` must lie in [0, 1{')' if below_one else ']'}; got {value}.")
    return float(value)


def check_positive_pair(name: str, pair: Any) -> tuple[float, float]:
    """Two finite positive bounds as floats; ValueError unless the smaller comes first."""
    low, high = _two(name, pair)
    if not all(isinstance(value, Real) for value in (low, high)) or not 0 < low <= high < math.inf:
        raise ValueError(f"`{name}` must be two positive numbers, the smaller first; got {pair!r}.")
    return float(low), float(high)


def check_size_pair(name: str, pair: Any) -> tuple[int, int]:
    """Two whole numbers from 1; ValueError unless the smaller comes first."""
    low, high = (check_size(name, value) for value in _two(name, pair))
    if low > high:
        raise ValueError(f"`{name}` must have the smaller number first; got {pair!r}.")
    return low, high


def check_inputs(x: Any, dim: int) -> None:
    """TypeError unless ``x`` is a floating tensor, ValueError unless its shape is ``(B, dim)``."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"`x` must be floating; got {x.dtype if isinstance(x, Tensor) else type(x).__name__}.")
    if x.dim() != 2 or x.shape[1] != dim:
        raise ValueError(f"`x` must have shape (B, {dim}); got {tuple(x.shape)}.")


def check_range(name: str, values: Any, size: int, *, error: type[Exception] = ValueError) -> None:
    """Raise ``error`` unless all indices of a tensor or array lie in [0, size)."""
    if len(values) and (values.min() < 0 or values.max() >= size):
        worst = int(values.min() if values.min() < 0 else values.max())
        raise error(f"`{name}` must lie in [0, {size}); got {worst}.")


def integer_tensor(name: str, values: Tensor | np.ndarray | Sequence[int]) -> Tensor:
    """Indices ``(B,)`` as int64; TypeError for masks and fractions, which would be misread."""
    try:
        numbers = torch.as_tensor(values)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` must be integers.") from error
    if numbers.dim() != 1:
        raise ValueError(f"`{name}` must have 1 dimension; got {numbers.dim()}.")
    if len(numbers) and (numbers.is_floating_point() or numbers.dtype == torch.bool):
        raise TypeError(f"`{name}` must be integers; got {numbers.dtype}.")
    return numbers.to(torch.int64)


def _two(name: str, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray | Tensor) or len(pair) != 2:
        raise ValueError(f"`{name}` must be two numbers; got {pair!r}.")
    low, high = pair.tolist() if isinstance(pair, np.ndarray | Tensor) else pair
    return low, high

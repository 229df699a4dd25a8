"""Checks of the options of worlds: integers, pairs of bounds, shares and inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor


def need_whole(name: str, value: Any, *, at_least: int) -> int:
    """``value`` as an int; ValueError unless it is an integer (no bool) of at least ``at_least``.

    Example:
        >>> import numpy as np
        >>> from shortlist.data.worlds.checks import need_whole
        >>> need_whole("dim", np.int64(3), at_least=1)
        3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"`{name}` must be an integer, at least {at_least}; got {value!r}.")
    return int(value)


def need_positive_pair(name: str, pair: Any) -> tuple[float, float]:
    """Two finite positive bounds as floats; ValueError unless the smaller comes first."""
    low, high = _two(name, pair)
    if not all(isinstance(value, Real) for value in (low, high)) or not 0 < low <= high < math.inf:
        raise ValueError(f"`{name}` must be two positive numbers, the smaller first; got {pair!r}.")
    return float(low), float(high)


def need_whole_pair(name: str, pair: Any, *, at_least: int) -> tuple[int, int]:
    """Two bounds as ints; ValueError unless they are integers of at least ``at_least``, the smaller first."""
    low, high = (need_whole(name, value, at_least=at_least) for value in _two(name, pair))
    if low > high:
        raise ValueError(f"`{name}` must have the smaller number first; got {pair!r}.")
    return low, high


def need_share(name: str, value: float) -> float:
    """``value`` as a float; ValueError unless it lies in [0, 1]."""
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must lie in [0, 1]; got {value!r}.")
    return float(value)


def need_inputs(x: Any, dim: int) -> None:
    """TypeError unless ``x`` is a floating tensor, ValueError unless its shape is ``(B, dim)``."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"`x` must be floating; got {x.dtype if isinstance(x, Tensor) else type(x).__name__}.")
    if x.dim() != 2 or x.shape[1] != dim:
        raise ValueError(f"`x` must have shape (B, {dim}); got {tuple(x.shape)}.")


def _two(name: str, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray | Tensor) or len(pair) != 2:
        raise ValueError(f"`{name}` must be two numbers; got {pair!r}.")
    low, high = pair.tolist() if isinstance(pair, np.ndarray | Tensor) else pair
    return low, high

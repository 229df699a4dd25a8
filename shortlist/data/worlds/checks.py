"""Checks of what the worlds take: whole numbers, pairs of bounds, shares and inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor


def need_whole(name: str, value: Any, *, at_least: int) -> int:
    """``value`` as an int.

    Args:
        name: of the argument, for the error.
        value: any whole number (`numbers.Integral`, so also those of numpy), but no bool.
        at_least: the smallest that is allowed.

    Returns:
        The same number.

    Raises:
        ValueError: if it is no whole number, or too small.

    Example:
        >>> import numpy as np
        >>> from shortlist.data.worlds.checks import need_whole
        >>> need_whole("dim", np.int64(3), at_least=1)
        3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"`{name}` must be a whole number, at least {at_least}; got {value!r}.")
    return int(value)


def need_positive_pair(name: str, pair: Any) -> tuple[float, float]:
    """Two positive bounds, the smaller first.

    Args:
        name: of the argument, for the error.
        pair: a sequence or an array.

    Returns:
        Both as floats.

    Raises:
        ValueError: if there are not two numbers, or one is not finite and positive, or they fall.

    Example:
        >>> from shortlist.data.worlds.checks import need_positive_pair
        >>> need_positive_pair("ambiguity", [0.5, 2])
        (0.5, 2.0)
    """
    low, high = _two(name, pair)
    if not all(isinstance(value, Real) for value in (low, high)) or not 0 < low <= high < math.inf:
        raise ValueError(f"`{name}` must be two positive numbers, the smaller first; got {pair!r}.")
    return float(low), float(high)


def need_whole_pair(name: str, pair: Any, *, at_least: int) -> tuple[int, int]:
    """Two bounds that are whole numbers, the smaller first.

    Args:
        name: of the argument, for the error.
        pair: a sequence or an array.
        at_least: the smallest that is allowed.

    Returns:
        Both as ints.

    Raises:
        ValueError: if there are not two numbers, or one is not whole or too small, or they fall.

    Example:
        >>> from shortlist.data.worlds.checks import need_whole_pair
        >>> need_whole_pair("objects_per_image", (2, 8), at_least=1)
        (2, 8)
    """
    low, high = (need_whole(name, value, at_least=at_least) for value in _two(name, pair))
    if low > high:
        raise ValueError(f"`{name}` must have the smaller number first; got {pair!r}.")
    return low, high


def need_share(name: str, value: float) -> float:
    """``value`` as a float in [0, 1].

    Args:
        name: of the argument, for the error.
        value: any real number.

    Returns:
        The same number.

    Raises:
        ValueError: if it is no number, NaN, or outside.

    Example:
        >>> from shortlist.data.worlds.checks import need_share
        >>> need_share("missing", 1)
        1.0
    """
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must lie in [0, 1]; got {value!r}.")
    return float(value)


def need_inputs(x: Any, dim: int) -> None:
    """Check the type and shape of inputs.

    Args:
        x: what should be a floating tensor ``(B, dim)``.
        dim: how many numbers make an x.

    Raises:
        TypeError: if x is no floating tensor.
        ValueError: if it has another shape.

    Example:
        >>> from shortlist.data.worlds.checks import need_inputs
        >>> need_inputs(torch.zeros(2, 3), 4)
        Traceback (most recent call last):
        ValueError: `x` must have shape (B, 4); got (2, 3).
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"`x` must be floating; got {x.dtype if isinstance(x, Tensor) else type(x).__name__}.")
    if x.dim() != 2 or x.shape[1] != dim:
        raise ValueError(f"`x` must have shape (B, {dim}); got {tuple(x.shape)}.")


def _two(name: str, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray | Tensor) or len(pair) != 2:
        raise ValueError(f"`{name}` must be two numbers; got {pair!r}.")
    low, high = pair.tolist() if isinstance(pair, np.ndarray | Tensor) else pair
    return low, high

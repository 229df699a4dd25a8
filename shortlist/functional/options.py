"""Checks of the numbers that losses take as options."""

from __future__ import annotations

import math
from numbers import Real

import torch


def check_number(name: str, value: float, *, at_least: float = -math.inf, below: float = math.inf) -> float:
    """``value`` as a finite float, checked to lie in [``at_least``, ``below``)."""
    if not isinstance(value, Real | torch.SymInt | torch.SymFloat):
        raise TypeError(f"`{name}` must be a number; got {type(value).__name__}.")
    if not at_least <= value < below or value == -math.inf:
        if below < math.inf:
            rule = f"lie in [{at_least:g}, {below:g})" if at_least > -math.inf else f"be below {below:g}"
        else:
            rule = f"be finite and at least {at_least:g}" if at_least > -math.inf else "be finite"
        raise ValueError(f"`{name}` must {rule}; got {value}.")
    return float(value)


def check_positive(name: str, value: float) -> float:
    """``value`` as a positive finite float."""
    if check_number(name, value) <= 0:
        raise ValueError(f"`{name}` must be positive; got {value}.")
    return float(value)

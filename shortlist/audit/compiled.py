"""Numerical loops, compiled where numba is installed and plain numpy where it is not."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TypeVar

from shortlist import compiled as numba_code

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile ``function`` with numba, whose linear algebra is that of scipy, or return it as it is."""
    if not numba_code.can_compile() or importlib.util.find_spec("scipy") is None:
        return function
    return numba_code.compiled()(function)

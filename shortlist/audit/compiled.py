"""Numerical loops, compiled where numba is installed and plain numpy where it is not."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile ``function`` with numba, whose linear algebra is that of scipy, or return it as it is."""
    if importlib.util.find_spec("numba") is None or importlib.util.find_spec("scipy") is None:
        return function
    decorate = importlib.import_module("numba").njit(cache=True, nogil=True)
    return decorate(function)

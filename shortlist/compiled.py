"""Numerical loops compiled by numba, which is optional."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(*freedom: str) -> Callable[[Function], Function]:
    """Decorate a function of numbers and arrays: numba compiles it at its first call.

    It runs without Python's lock and divides by zero as IEEE 754 says.

    Args:
        freedom: what of IEEE 754 the compiler may give up, by the names of LLVM, such as ``"reassoc"``.
    """
    numba = importlib.import_module("numba")
    return keeping(numba.njit, nogil=True, error_model="numpy", fastmath=set(freedom))


def keeping(compiler: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Decorate with numba's ``compiler``, keeping the machine code on disk unless no folder can be written."""

    def decorate(function: Any) -> Any:
        try:
            return compiler(*arguments, cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's
            return compiler(*arguments, **options)(function)

    return decorate


@functools.cache
def can_compile() -> bool:
    """Whether numba is installed, can be imported beside what else is installed, and is not switched off."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        return not importlib.import_module("numba").config.DISABLE_JIT
    except Exception:  # whatever a numba made for another numpy, or beside an odd package, may raise
        return False

"""Compilation by numba, which is optional."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(*freedom: str) -> Callable[[Function], Function]:
    """Decorate a function of numbers and arrays, which numba compiles at its first call.

    It runs without Python's lock and divides by zero like IEEE 754.

    Args:
        freedom: LLVM's names of the rules of IEEE 754 that the compiler may relax, such as ``"reassoc"``.
    """
    numba = importlib.import_module("numba")
    return keeping(numba.njit, nogil=True, error_model="numpy", fastmath=set(freedom))


def keeping(compiler: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Decorate with numba's ``compiler`` and cache the machine code on disk, if a folder is writable."""

    def decorate(function: Any) -> Any:
        try:
            return compiler(*arguments, cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache is writable
            return compiler(*arguments, **options)(function)

    return decorate


@functools.cache
def can_compile() -> bool:
    """Whether numba is installed, can be imported, and is not disabled."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        return not importlib.import_module("numba").config.DISABLE_JIT
    except Exception:  # a numba built for another numpy can raise anything
        return False

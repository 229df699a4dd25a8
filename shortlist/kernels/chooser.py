"""Whether a kernel serves a call, decided in one place; and compilation by numba, which is optional."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from shortlist.tensors import is_plain

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


LEAST_ENTRIES = 1 << 12
"""The smallest input for a kernel: its first call in a process loads numba, and the first one ever compiles."""

_MODERATE = 1e12
"""Scales beyond this bound or below its inverse are left to tensor operations: quotients may leave float32's range."""


def use_kernel(scale: float, x: Tensor, *others: Tensor) -> bool:
    """Whether a kernel takes the logits ``x`` and the tensors that come with them.

    It takes float32 memory on the CPU: no tensor subclasses, nothing under a ``torch.func`` transform or while torch
    compiles or traces. ``SHORTLIST_KERNELS=off`` in the environment switches kernels off, for comparison.

    Args:
        scale: the temperature, or the scale of the noise.
        x: the logits, or what has their shape.
        others: further arguments of the kernel.
    """
    return (
        x.dtype == torch.float32
        and x.numel() >= LEAST_ENTRIES
        and 1 / _MODERATE < scale < _MODERATE
        and all(_is_memory(tensor) for tensor in (x, *others))
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and os.environ.get("SHORTLIST_KERNELS") != "off"
        and can_compile()
    )


def use_kernel_backward(scale: float, x: Tensor, gradient: Tensor) -> bool:
    """The same for a backward pass, which must not be differentiated again."""
    return not torch.is_grad_enabled() and is_plain(gradient) and use_kernel(scale, x, gradient)


def _is_memory(x: Tensor) -> bool:
    return type(x) in (Tensor, Parameter) and x.device.type == "cpu" and not (x.is_neg() or x._is_zerotensor())

"""The single place that decides whether to use a kernel, and optional compilation by numba."""

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
    """Decorate a function of numbers and arrays, which numba compiles on its first call.

    It releases the GIL and follows IEEE 754 for division by zero.

    Args:
        freedom: LLVM fast-math flags that relax IEEE 754, such as ``"reassoc"``.
    """
    numba = importlib.import_module("numba")
    return keeping(numba.njit, nogil=True, error_model="numpy", fastmath=set(freedom))


def keeping(compiler: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Decorate with numba's ``compiler`` and cache the machine code on disk, if a folder is writable."""

    def decorate(function: Any) -> Any:
        try:
            return compiler(*arguments, cache=True, **options)(function)
        except RuntimeError:  # neither the package folder nor the user cache is writable
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
"""The smallest input for a kernel: the first call in a process loads numba, and the very first compiles."""

_MODERATE = 1e12
"""Scales above this bound or below its inverse fall back to tensor operations: quotients may leave float32's range."""


def use_kernel(scale: float, x: Tensor, *others: Tensor) -> bool:
    """Whether a kernel supports the logits ``x`` and the tensors passed with them.

    Kernels need plain float32 tensors on the CPU: no tensor subclasses, no ``torch.func`` transforms, no compilation or
    tracing. Set ``SHORTLIST_KERNELS=off`` in the environment to disable kernels for comparison.

    Args:
        scale: the temperature, or the scale of the noise.
        x: the logits, or a tensor of their shape.
        others: other arguments of the kernel.
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
    """The same for a backward pass, where no kernel is used if the gradient itself may be differentiated."""
    return not torch.is_grad_enabled() and is_plain(gradient) and use_kernel(scale, x, gradient)


def _is_memory(x: Tensor) -> bool:
    return type(x) in (Tensor, Parameter) and x.device.type == "cpu" and not (x.is_neg() or x._is_zerotensor())

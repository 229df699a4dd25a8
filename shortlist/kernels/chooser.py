"""The single place that decides whether to use a kernel: numba on the CPU, Triton on accelerators.

``SHORTLIST_KERNELS=off`` disables both, for comparison. Tensors on an accelerator without a kernel take tensor
operations with a fixed number of steps, which exporters take as well.
"""

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

from shortlist.tensors import HALF, is_plain, on_accelerator

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
    """Whether a numba kernel supports the logits ``x`` and the tensors passed with them.

    These kernels need plain float32 tensors on the CPU: no tensor subclasses, no ``torch.func`` transforms, no
    compilation or tracing.

    Args:
        scale: the temperature, or the scale of the noise.
        x: the logits, or a tensor of their shape.
        others: other arguments of the kernel.
    """
    return (
        not torch.compiler.is_compiling()  # first: a size that may vary must not be compared
        and x.dtype == torch.float32
        and x.numel() >= LEAST_ENTRIES
        and 1 / _MODERATE < scale < _MODERATE
        and all(_is_memory(tensor) for tensor in (x, *others))
        and not _under_modes()
        and not on_accelerator(x)
        and os.environ.get("SHORTLIST_KERNELS") != "off"
        and can_compile()
    )


def use_kernel_backward(scale: float, x: Tensor, gradient: Tensor) -> bool:
    """The same for a backward pass, where no kernel is used if the gradient itself may be differentiated."""
    return not torch.is_grad_enabled() and is_plain(gradient) and use_kernel(scale, x, gradient)


ACCELERATORS = ("cuda", "xpu")
"""Where Triton compiles; ROCm calls its devices cuda, too."""


def fixed_steps(x: Tensor) -> bool:
    """Whether control flow must not depend on values: on accelerators, and while exporting."""
    return on_accelerator(x) or torch.compiler.is_exporting()


def use_triton(scale: float, x: Tensor, *others: Tensor) -> bool:
    """Whether a Triton kernel supports the logits ``x`` and the tensors passed with them, compiling or not.

    These kernels need plain tensors on a CUDA, ROCm or XPU device, with logits of float32 or half precision. While
    compiling, call them through an operator of `torch.library`.

    Args:
        scale: the temperature, or the scale of the noise.
        x: the logits, or a tensor of their shape.
        others: other arguments of the kernel.
    """
    choice = "on" if torch.compiler.is_compiling() else os.environ.get("SHORTLIST_KERNELS", "on")
    return (
        all(type(tensor) in (Tensor, Parameter) and tensor.device == x.device for tensor in (x, *others))
        and (choice == "triton" or (choice == "on" and x.device.type in ACCELERATORS))
        and (x.dtype == torch.float32 or x.dtype in HALF)
        and x.numel() > 0
        and 1 / _MODERATE < scale < _MODERATE
        and not torch.compiler.is_exporting()
        # The compiler needs Triton itself on these devices, and cannot trace the test for it.
        and (torch.compiler.is_compiling() or (not _under_modes() and has_triton()))
    )


def use_triton_backward(scale: float, x: Tensor, gradient: Tensor) -> bool:
    """The same for a backward pass: not if the gradient may be differentiated itself, or the compiler fuses it."""
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling() and use_triton(scale, x, gradient)


LARGEST_ROW = 8192
"""The widest row that a Triton program holds in registers, 16 entries a thread; wider ones are read in blocks."""

TRITON_DEVICES = ("cpu", *ACCELERATORS)
"""Where operators made of Triton kernels are registered: accelerators, and the CPU for the interpreter."""


def triton_kernels(operator: str) -> Any:
    """The module of the Triton kernels of an operator, imported with its first use."""
    return importlib.import_module(f"shortlist.kernels.gpu.{operator}")


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed and can be imported."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        importlib.import_module("triton")
    except Exception:  # a build for another driver or torch can raise anything
        return False
    return True


def _under_modes() -> bool:
    """Whether a ``torch.func`` transform or a tracer sees the operations."""
    return torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack() > 0


def _is_memory(x: Tensor) -> bool:
    return type(x) in (Tensor, Parameter) and x.device.type == "cpu" and not (x.is_neg() or x._is_zerotensor())

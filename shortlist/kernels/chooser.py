"""The one place that decides whether a kernel serves a call."""

from __future__ import annotations

import os

import torch
from torch import Tensor
from torch.nn import Parameter

from shortlist.kernels.compilation import can_compile
from shortlist.tensors import is_plain

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

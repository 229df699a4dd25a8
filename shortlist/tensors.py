"""Suitable precision for tensors, and checks of when their values can be read without synchronization."""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

HALF = (torch.float16, torch.bfloat16)


def solvable(logits: Tensor) -> Tensor:
    """``logits`` in a precision suitable for solving: half precision becomes float32."""
    return logits.float() if logits.dtype in HALF else logits


def wide(x: Tensor) -> torch.dtype:
    """The precision for long sums and for sums over processes."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def may_look(x: Tensor) -> bool:
    """Whether control flow may depend on values of ``x`` at no cost: on the CPU, and not while compiling."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def is_plain(x: Tensor) -> bool:
    """Whether numpy can read ``x``: a strided CPU tensor outside of compilation and ``torch.func`` transforms."""
    if not may_look(x) or x.layout != torch.strided or x.dtype == torch.bfloat16:  # numpy has no bfloat16
        return False
    try:
        x.detach().numpy()
    except RuntimeError:  # under a transform
        return False
    return True


def holds(condition: Tensor | bool) -> bool:
    """Whether ``condition`` is known to hold; False where reading it would synchronize or a transform hides it."""
    if isinstance(condition, bool):
        return condition
    if not may_look(condition):
        return False
    try:
        return bool(condition)
    except RuntimeError:  # under vmap
        return False


def is_dtensor(x: object) -> bool:
    """Whether ``x`` is a ``DTensor`` with any placement. Imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def moved(x: Tensor, source: int, to: int) -> Tensor:
    """``movedim``, but returns ``x`` itself if the axis stays in place: a no-op would add a node to the graph."""
    return x if source % x.ndim == to % x.ndim else x.movedim(source, to)


def at_most_finite(x: Tensor) -> Tensor:
    """``x`` with +inf replaced by the largest finite number. (ONNX reads ``clamp(max=...)`` as a bound on -inf too.)"""
    return torch.minimum(x, x.new_full((), torch.finfo(x.dtype).max))


def log_sigmoid(y: Tensor) -> Tensor:
    """``log sigmoid(y)`` in a form that stays accurate when exported, where torch's own may underflow."""
    if torch.compiler.is_exporting():
        return torch.minimum(y, y.new_zeros(())) - (-y.abs()).exp().log1p()
    return logsigmoid(y)


def finite_logsumexp(x: Tensor, dim: int = -1) -> Tensor:
    """``log sum exp`` along ``dim``; if all are -inf, the lowest finite number with a gradient of 0."""
    limits = torch.finfo(x.dtype)
    pivot = x.detach().amax(dim, keepdim=True).clamp(min=limits.min / 4)
    total = (x - pivot).exp().sum(dim)
    return total.clamp(min=limits.tiny).log() + pivot.squeeze(dim)

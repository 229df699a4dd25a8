"""What every projection shares: logits as rows of floats, one ``k`` per row."""

from __future__ import annotations

import math
import sys
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

HALF = (torch.float16, torch.bfloat16)
_NUMBERS = (int, float, Real, torch.SymInt, torch.SymFloat)


class Rows(NamedTuple):
    """Logits with the label axis last, in a precision fit for solving, and ``k`` as a column beside them."""

    logits: Tensor
    k: Tensor

    def restore(self, result: Tensor, like: Tensor, dim: int) -> Tensor:
        """Bring ``result`` back to the axis order and dtype of ``like``."""
        result = moved(result, -1, dim)
        return result if result.dtype == like.dtype else result.to(like.dtype)


def as_rows(logits: Tensor, k: float | Tensor, *, dim: int, mask: Tensor | None) -> Rows:
    """Check the arguments that all projections share and bring them to one shape.

    Args:
        logits: any shape with at least one axis, floating.
        k: a number in [0, n], or a tensor with one value per row: the shape of ``logits`` without ``dim``
            (or with size 1 there), or anything that broadcasts to it.
        dim: the label axis.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.
    """
    check_logits(logits, dim)
    if mask is not None:
        logits = _without_absent(logits, mask)
    rows = solvable(moved(logits, dim, -1))
    return Rows(rows, _k_column(k, rows, dim))


def at_most_finite(x: Tensor) -> Tensor:
    """``x`` with +inf as the largest finite number. (ONNX would read ``clamp(max=...)`` as a bound on -inf too.)"""
    return torch.minimum(x, x.new_full((), torch.finfo(x.dtype).max))


def log_sigmoid(y: Tensor) -> Tensor:
    """``log sigmoid(y)``, also where an exporter would write the logarithm of an underflowed sigmoid."""
    if torch.compiler.is_exporting():
        return torch.minimum(y, y.new_zeros(())) - (-y.abs()).exp().log1p()
    return logsigmoid(y)


def check_temperature(temperature: float) -> float:
    """``temperature`` as a positive finite float."""
    if isinstance(temperature, Tensor):
        raise TypeError("`temperature` must be a number; divide the logits by a tensor to learn one.")
    if not 0 < temperature < math.inf:
        raise ValueError(f"`temperature` must be positive and finite; got {temperature}.")
    return float(temperature)


def is_sharded(x: object) -> bool:
    """Whether ``x`` is a ``DTensor``, of any placement; nothing is imported to tell."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def check_logits(logits: Tensor, dim: int = -1) -> None:
    """Refuse what is no plain floating tensor with a label axis."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        # Logits that are not held say themselves who takes them.
        raise TypeError(f"`logits` must be a floating tensor; got {kind}{getattr(logits, 'refusal', '')}.")
    if is_sharded(logits):  # who takes them has gone another way before
        raise TypeError(
            "`logits` must be a plain tensor; got a DTensor, which only `lml`, `log_lml`, `lml_dual`, `sparse_top`, "
            "`sparsemax`, `lml_nll`, `two_way`, `bce`, `asymmetric`, `TopK` and `AverageK` take: its `full_tensor()` "
            "is a plain one."
        )
    if logits.ndim == 0:
        raise ValueError("`logits` must have a label axis; got a tensor without dimensions.")
    if not -logits.ndim <= dim < logits.ndim:
        raise ValueError(f"`dim` must lie in [{-logits.ndim}, {logits.ndim - 1}]; got {dim}.")


def solvable(logits: Tensor) -> Tensor:
    """``logits`` in a precision fit for solving: half precision as float32."""
    return logits.float() if logits.dtype in HALF else logits


def wide(x: Tensor) -> torch.dtype:
    """The precision of sums of many numbers that are added one after the other, or sent to other processes."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def may_look(x: Tensor) -> bool:
    """Whether reading a value costs nothing and may steer the work: on the CPU, and not for a compiler."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def is_plain(x: Tensor) -> bool:
    """Whether numpy may look at ``x``: on the CPU, and under no compiler and no transform."""
    if not may_look(x) or x.layout != torch.strided:
        return False
    try:
        x.detach().numpy()
    except RuntimeError:  # under a transform
        return False
    return True


def holds(condition: Tensor | bool) -> bool:
    """Whether ``condition`` is known to hold; False where reading it would wait or a transform hides it."""
    if isinstance(condition, bool):
        return condition
    if not may_look(condition):
        return False
    try:
        return bool(condition)
    except RuntimeError:  # under vmap
        return False


def finite_logsumexp(x: Tensor, dim: int = -1) -> Tensor:
    """``log sum exp`` along ``dim``; over nothing but -inf, the lowest finite number, and a gradient of 0."""
    limits = torch.finfo(x.dtype)
    pivot = x.detach().amax(dim, keepdim=True).clamp(min=limits.min / 4)
    total = (x - pivot).exp().sum(dim)
    return total.clamp(min=limits.tiny).log() + pivot.squeeze(dim)


def moved(x: Tensor, source: int, to: int) -> Tensor:
    """``movedim`` that leaves alone what stays: it would add a node to the graph."""
    return x if source % x.ndim == to % x.ndim else x.movedim(source, to)


def _without_absent(logits: Tensor, mask: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"`mask` must be a bool tensor, False where a label is absent; got {kind}.")
    try:
        fits = torch.broadcast_shapes(mask.shape, logits.shape) == logits.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"`mask` must broadcast to the shape of `logits` {tuple(logits.shape)}; got {tuple(mask.shape)}."
        )
    return logits.masked_fill(~mask, -math.inf)


def _k_column(k: float | Tensor, rows: Tensor, dim: int) -> Tensor:
    """``k`` in the dtype of ``rows``, with a trailing axis of size 1."""
    n = rows.shape[-1]
    if not isinstance(k, Tensor):
        if not isinstance(k, _NUMBERS):
            raise TypeError(f"`k` must be a number or a real tensor; got {type(k).__name__}.")
        if not 0 <= k <= n:
            raise ValueError(f"`k` must lie in [0, {n}]; got {k}.")
        return rows.new_full((1,) * rows.ndim, k)
    if k.dtype == torch.bool or k.is_complex():
        raise TypeError(f"`k` must be a number or a real tensor; got {k.dtype}.")
    if k.device != rows.device and k.ndim == 0:
        k = k.to(rows.device)
    if k.device != rows.device and not rows.is_meta:  # which has no numbers, only a shape
        raise ValueError(f"`k` must be on the device of `logits`, {rows.device}; got {k.device}.")
    column = k.movedim(dim, -1) if k.ndim == rows.ndim and k.shape[dim] == 1 else k.unsqueeze(-1)
    row_shape = rows.shape[:-1]
    try:
        fits = torch.broadcast_shapes(column.shape[:-1], row_shape) == row_shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"`k` must be a number or have one value per row, shape {tuple(row_shape)}; got {tuple(k.shape)}."
        )
    return column.reshape((1,) * (rows.ndim - column.ndim) + column.shape).to(rows.dtype)

"""The arguments shared by all projections: logits as rows of floats, and one ``k`` per row."""

from __future__ import annotations

import math
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.label_axis.processes import (
    ONE_PROCESS,
    OneProcess,
    Processes,
    ProcessShards,
    local_part,
    replicated,
    shards_of,
    to_local,
)
from shortlist.tensors import HALF, check_logits, is_dtensor, moved, on_accelerator, solvable

_NUMBERS = (int, float, Real, torch.SymInt, torch.SymFloat)


class Rows(NamedTuple):
    """Logits with the label axis last, in a precision suitable for solving, and ``k`` as a column."""

    logits: Tensor
    k: Tensor
    processes: Processes = ONE_PROCESS
    number: float | None = None
    """``k``, if the host knows it as one number and accelerators may choose shapes by it."""

    @property
    def wanted(self) -> Tensor | float:
        """``k`` as the code for accelerators without kernels takes it: the number if it is known."""
        return self.k if self.number is None else self.number

    @property
    def shards(self) -> ProcessShards | None:
        """The processes, if there is more than one."""
        return None if isinstance(self.processes, OneProcess) else self.processes

    def restore(self, result: Tensor, like: Tensor, dim: int) -> Tensor:
        """``result`` with the axis order, dtype and sharding of ``like``."""
        result = moved(result, -1, dim)
        return self.processes.shard(result if result.dtype == like.dtype else result.to(like.dtype), dim)


def as_rows(logits: Tensor, k: float | Tensor, *, dim: int, mask: Tensor | None, keep_half: bool = False) -> Rows:
    """Check the arguments and normalize their shapes.

    Args:
        logits: any shape with at least one axis, floating; or a DTensor sharded along ``dim``, whose local labels are
            used.
        k: a number in [0, n], or a tensor with one value per row: the shape of ``logits`` without ``dim``
            (or with size 1 there), or anything that broadcasts to it.
        dim: the label axis.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.
        keep_half: leave half precision as it is, for kernels that convert what they load.
    """
    if is_dtensor(logits):
        return _as_local_rows(logits, k, dim, mask)
    check_logits(logits, dim)
    if mask is not None:
        _check_mask(mask, logits)
        logits = logits.masked_fill(~mask, -math.inf)
    rows = moved(logits, dim, -1)
    rows = rows if keep_half else solvable(rows)
    known = isinstance(k, int | float) and on_accelerator(rows) and not torch.compiler.is_exporting()
    return Rows(rows, _k_column(k, rows, dim), number=float(k) if known else None)


def flat_rows(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """``x`` ``(..., n)`` as ``(B, n)``, and ``k`` as ``(B, 1)``, without a graph."""
    rows = math.prod(x.shape[:-1])
    return x.detach().reshape(rows, x.shape[-1]), k.detach().expand(*x.shape[:-1], 1).reshape(rows, 1)


def _as_local_rows(logits: Tensor, k: float | Tensor, dim: int, mask: Tensor | None) -> Rows:
    shards = shards_of(logits, dim)
    k = replicated(k, "k") if isinstance(k, Tensor) else k
    # The checks only read shapes, so meta tensors represent what no process holds.
    if mask is not None:
        _check_mask(mask, logits)
    whole = torch.empty(logits.shape, dtype=logits.dtype, device="meta")
    column = _k_column(k, solvable(moved(whole, dim, -1)), dim)
    local = to_local(logits)
    if mask is not None:
        local = local.masked_fill(~local_part(mask, shards, dim, like=logits, name="mask"), -math.inf)
    rows = solvable(moved(local, dim, -1))
    if not isinstance(k, Tensor):
        column = rows.new_full(column.shape, k)
    elif column.is_meta:  # a 0-dimensional tensor
        column = k.to(rows).reshape(column.shape)
    return Rows(rows, column, shards)


def _check_mask(mask: Tensor, logits: Tensor) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"`mask` must be a bool tensor, False where a label is absent; got {kind}.")
    if not _broadcasts(mask.shape, logits.shape):
        raise ValueError(
            f"`mask` must broadcast to the shape of `logits` {tuple(logits.shape)}; got {tuple(mask.shape)}."
        )


def _k_column(k: float | Tensor, rows: Tensor, dim: int) -> Tensor:
    """``k`` in the dtype of ``rows``, with a trailing axis of size 1."""
    n = rows.shape[-1]
    if not isinstance(k, Tensor):
        if not isinstance(k, _NUMBERS):
            raise TypeError(f"`k` must be a number or a real tensor; got {type(k).__name__}.")
        if not 0 <= k <= n:
            raise ValueError(f"`k` must lie in [0, {n}]; got {k}.")
        return torch.full((1,) * rows.ndim, k, dtype=_solvable_dtype(rows), device=rows.device)
    if k.dtype == torch.bool or k.is_complex():
        raise TypeError(f"`k` must be a number or a real tensor; got {k.dtype}.")
    if k.device != rows.device and k.ndim == 0:
        k = k.to(rows.device)
    if k.device != rows.device and not rows.is_meta:
        raise ValueError(f"`k` must be on the device of `logits`, {rows.device}; got {k.device}.")
    column = k.movedim(dim, -1) if k.ndim == rows.ndim and k.shape[dim] == 1 else k.unsqueeze(-1)
    row_shape = rows.shape[:-1]
    if not _broadcasts(column.shape[:-1], row_shape):
        raise ValueError(
            f"`k` must be a number or have one value per row, shape {tuple(row_shape)}; got {tuple(k.shape)}."
        )
    return column.reshape((1,) * (rows.ndim - column.ndim) + column.shape).to(_solvable_dtype(rows))


def _solvable_dtype(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype in HALF else x.dtype


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    try:
        return torch.broadcast_shapes(shape, to) == to
    except RuntimeError:
        return False

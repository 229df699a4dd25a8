"""Targets inside kernels: class indices, index lists and multi-hots, read as they were given."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class RowTargets(NamedTuple):
    """The arguments of a kernel that say which labels are present, absent and unknown."""

    values: Tensor
    width: int  # labels per row of a list, n of a multi-hot
    lowest: int  # that a list may hold
    listed: bool


def row_targets(target: Tensor, n: int) -> RowTargets:
    """``target`` for rows of ``n`` labels: int64 ``(rows,)`` or ``(rows, width)``, or a multi-hot ``(rows, n)``."""
    if target.dtype == torch.int64:
        width, lowest = (1, 0) if target.ndim == 1 else (target.shape[-1], -1)
        return RowTargets(target.contiguous(), width, lowest, True)
    target = target.contiguous()
    return RowTargets(target.view(torch.uint8) if target.dtype == torch.bool else target, n, 0, False)


@triton.jit
def target_values(target, row, columns, inside, width, LISTED: tl.constexpr):
    """The target's value of each label of a block: above 0 present, 0 absent, below 0 unknown.

    ``row`` is an int64 offset, a number or a column; ``inside`` masks the whole block.
    """
    if LISTED:
        present = inside & (columns < 0)
        for slot in range(width):
            present |= inside & (columns == tl.load(target + row * width + slot))
        return present.to(tl.float32)
    return tl.load(target + row * width + columns, mask=inside, other=0).to(tl.float32)


@triton.jit
def nan_if_outside(target, row, n, width, lowest, LISTED: tl.constexpr):
    """NaN if a list names a label that does not exist, else 0: a wrong target must not pass unnoticed."""
    broken = (row * 0).to(tl.float32)
    if LISTED:
        for slot in range(width):
            label = tl.load(target + row * width + slot)
            broken = tl.where((label < lowest) | (label >= n), float("nan"), broken)
    return broken

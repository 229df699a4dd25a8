"""How kernels go over rows: one program per row, with the row in registers while it fits, otherwise block by block."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from shortlist.kernels.chooser import LARGEST_ROW

LOOP_BLOCK = 2048
"""The entries that a program takes at a time of a wider row: few enough to stay in registers beside all sums."""


def block_size(n: int) -> int:
    """The number of entries that a program takes at a time."""
    return triton.next_power_of_2(max(n, 16)) if n <= LARGEST_ROW else LOOP_BLOCK


def num_warps(block: int, fits: bool = True) -> int:
    """The number of warps of a program: few, but so many that no kernel spills on sm_80, sm_90 and sm_100."""
    return max(1, min(block // (512 if fits else 256), 16))


def compiled_for(block: int) -> tuple[dict[str, Any], int]:
    """The constants and the number of warps for rows of ``block`` labels, a power of two."""
    size = block_size(block)
    return {"BLOCK": size, "FITS": size >= block}, num_warps(size, size >= block)


def launch(kernel: Any, x: Tensor, *arguments: Any, **constants: Any) -> None:
    """Run ``kernel(x, *arguments, n, BLOCK, FITS)`` with one program for each row of ``x`` ``(rows, n)``.

    ``FITS`` tells whether a row is one block.
    """
    rows, n = x.shape
    block = block_size(n)
    options = {"BLOCK": block, "FITS": block >= n, "num_warps": num_warps(block, block >= n)}
    with on_device(x):
        kernel[(rows,)](x, *arguments, n, **options, **constants)


def on_device(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Make the device of ``x`` the current one, on which Triton launches; the interpreter overflows without a word."""
    return np.errstate(all="ignore") if x.device.type == "cpu" else torch.get_device_module(x.device).device(x.device)


def as_matrix(x: Tensor) -> Tensor:
    """``x`` ``(..., n)`` as a contiguous ``(rows, n)``."""
    return x.detach().reshape(-1, x.shape[-1]).contiguous()


def per_row(column: Tensor, x: Tensor) -> Tensor:
    """A column broadcastable to ``(..., 1)`` as one float32 number for each row of ``x`` ``(..., n)``."""
    return column.detach().expand(*x.shape[:-1], 1).reshape(-1).to(torch.float32).contiguous()


FAR = tl.constexpr(1e38)
"""Log-odds are clipped to this size, so that differences stay finite."""


@triton.jit
def load_block(row, start, n, BLOCK: tl.constexpr):
    """The entries of a row from ``start`` on in float32; -inf beyond its end, and +inf as the largest number."""
    index = start + tl.arange(0, BLOCK)
    x = tl.load(row + index, mask=index < n, other=float("-inf")).to(tl.float32)
    return tl.where(x > 3.4028234663852886e38, 3.4028234663852886e38, x)


@triton.jit
def scaled(x, base, offset, temperature):
    """``(x - base) / T - offset``, clipped to a finite range; NaN stays NaN."""
    z = (x - base) / temperature - offset
    return tl.where(z > FAR, FAR, tl.where(z < -FAR, -FAR, z))


@triton.jit
def order(x):
    """The bits of a finite float32 as an integer in the order of the numbers."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def middle(low_base, low, high_base, high, temperature):
    """A position between ``low_base + T low`` and ``high_base + T high``.

    It halves by the order of floats, so that 31 steps reach any scale, and arithmetically between neighboring floats.
    """
    a, b = order(low_base), order(high_base)
    between = (a >> 1) + (b >> 1) + (a & b & 1)
    between = between ^ ((between >> 31) & 0x7FFFFFFF)
    apart = b > a + 1
    width = (high_base - low_base) / temperature + (high - low)
    base = tl.where(apart, between.to(tl.float32, bitcast=True), low_base)
    return base, tl.where(apart, 0.0, low + 0.5 * width)


@triton.jit
def moved(base, offset, step, temperature):
    """The position ``step`` T above ``base + T offset``, with a float as its new base and a small offset."""
    target = base + temperature * (offset + step)
    target = tl.where(target > 3.4028234663852886e38, 3.4028234663852886e38, target)
    target = tl.where(target < -3.4028234663852886e38, -3.4028234663852886e38, target)
    return target, (base - target) / temperature + (offset + step)


@triton.jit
def row_moments(row, x, n, temperature, BLOCK: tl.constexpr, FITS: tl.constexpr):
    """The largest and the smallest present entry, how many are present, whether one is NaN, and mean and variance of
    ``(x - largest) / T``.

    Far entries count as 10,000 T below the largest: the moments are for a guess.
    """
    if FITS:
        here = x > float("-inf")
        top = tl.max(tl.where(here, x, float("-inf")), 0)
        bottom = tl.min(tl.where(here, x, float("inf")), 0)
        present, broken = tl.sum(here.to(tl.float32), 0), tl.sum((x != x).to(tl.float32), 0)
        z = tl.where(here, tl.maximum(scaled(x, top, 0.0, temperature), -1e4), 0.0)
        total, square = tl.sum(z, 0), tl.sum(z * z, 0)
    else:
        top, bottom, present, broken = float("-inf"), float("inf"), 0.0, 0.0
        for start in range(0, n, BLOCK):
            x = load_block(row, start, n, BLOCK)
            here = x > float("-inf")
            top = tl.maximum(top, tl.max(tl.where(here, x, float("-inf")), 0))
            bottom = tl.minimum(bottom, tl.min(tl.where(here, x, float("inf")), 0))
            present += tl.sum(here.to(tl.float32), 0)
            broken += tl.sum((x != x).to(tl.float32), 0)
        total, square = 0.0, 0.0
        for start in range(0, n, BLOCK):
            x = load_block(row, start, n, BLOCK)
            z = tl.where(x > float("-inf"), tl.maximum(scaled(x, top, 0.0, temperature), -1e4), 0.0)
            total += tl.sum(z, 0)
            square += tl.sum(z * z, 0)
    mean = total / tl.maximum(present, 1.0)
    variance = tl.maximum(square / tl.maximum(present, 1.0) - mean * mean, 0.0)
    return top, bottom, present, broken > 0, mean, variance


@triton.jit
def normal_quantile(share):
    """The number that a normal variable exceeds with probability ``share``, within 0.003 (Abramowitz, Stegun,
    26.2.22).
    """
    share = tl.minimum(tl.maximum(share, 1e-37), 1 - 1e-6)
    root = tl.sqrt(-2 * tl.log(tl.minimum(share, 1 - share)))
    quantile = root - (2.30753 + 0.27061 * root) / (1 + (0.99229 + 0.04481 * root) * root)
    return tl.where(share < 0.5, quantile, -quantile)

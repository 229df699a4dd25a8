"""Triton kernels of noised order statistics, and of the gradient of entries read from rows.

The noise is that of `shortlist.functional.noise`: 32 bits of a label in a draw, ``factor * multiplier + term``, and
their normal quantile. A program reads a row (or one block of a long row) once, holds it with its labels' factors and
terms, and draws all samples, a few at a time. The k-th largest is found by bisection on the bits of the floats, which
takes at most 32 counts whatever the values are; it ends early when exactly k values lie above the middle.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_ROW = 8192
"""Up to this many labels, a row is held by one program; tests lower it."""

LARGEST_BLOCK = 4096
"""The blocks of longer rows, and the noised values that a program holds at a time: a few samples of a short row."""

_BLOCK_WARPS = 16

NAN_KEY = 0x7FFFFFFF
"""The key of NaN, above those of all numbers."""

_LEAST_KEY = tl.constexpr(-0x80000000)
_NAN_KEY = tl.constexpr(NAN_KEY)
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)


def fits(n: int, k: int, samples: int) -> bool:
    """Whether a kernel draws rows of n labels: of long ones if the k largest of all blocks fit in the row's bytes."""
    return is_one_block(n) or -(n // -LARGEST_BLOCK) * k * samples * 2 <= n


def is_one_block(n: int) -> bool:
    """Whether one program holds a row."""
    return n <= LARGEST_ROW


def noised_places(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    """Where each row's k-th largest entry of ``x + epsilon Z`` is in each sample, and the mean of ``epsilon Z`` there.

    Takes rows that fit in one block. The second result is NaN for rows that hold a NaN.

    Args:
        x: ``(rows, n)``, float32 or half precision.
        k: a whole number in [1, n].
        epsilon: the scale of the noise.
        samples: their number.
        seed: an int64 tensor of one element, on the device.

    Returns:
        ``(rows, samples)`` int64 and ``(rows,)`` float32.
    """
    x, (rows, n) = x.contiguous(), x.shape
    places = torch.empty(rows, samples, dtype=torch.int64, device=x.device)
    offset = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(n)
    noised_places_kernel[(rows,)](
        x, seed, places, offset, n, k, samples, epsilon, BLOCK=block, GROUP=group_of(block), num_warps=warps_of(block)
    )
    return places, offset


def largest_of_blocks(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    """The k largest of ``x + epsilon Z`` in each block of each row; the arguments are those of `noised_places`.

    Returns:
        Their keys, in the order of the values, and their labels, ``(rows, samples, k * blocks)`` int32 each. A row with
        a NaN has `NAN_KEY` among them. A block with fewer than k labels adds keys below those of all numbers.
    """
    x, (rows, n) = x.contiguous(), x.shape
    blocks = triton.cdiv(n, LARGEST_BLOCK)
    keys, labels = (torch.empty(rows, samples, k * blocks, dtype=torch.int32, device=x.device) for _ in range(2))
    largest_of_blocks_kernel[(rows, blocks)](
        x,
        seed,
        keys,
        labels,
        n,
        k,
        samples,
        epsilon,
        BLOCK=LARGEST_BLOCK,
        num_warps=_BLOCK_WARPS,
    )
    return keys, labels


def scattered(values: Tensor, places: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Zeros of ``shape`` ``(..., n)`` plus the ``values`` at ``places``, ``(..., m)`` both; written once, in ``dtype``.

    Values at equal places are added in float32 and in their order, so the result is deterministic.
    """
    n, m = shape[-1], places.shape[-1]
    out = torch.empty(shape, dtype=dtype, device=values.device)
    block = min(triton.next_power_of_2(n), LARGEST_BLOCK)
    grid = (out.numel() // n, triton.cdiv(n, block))
    scattered_kernel[grid](values.contiguous(), places.contiguous(), out, n, m, BLOCK=block, num_warps=4)
    return out


def group_of(block: int) -> int:
    """How many samples are drawn at once."""
    return max(1, min(16, LARGEST_BLOCK // block))


def warps_of(block: int) -> int:
    """The warps of a program: a thread holds at most 16 labels, so that nothing spills."""
    return max(4, min(16, block // 512))


def compile_cases(block: int) -> dict[str, tuple[Any, dict[str, str], dict[str, Any], int]]:
    """How the kernels are compiled for rows of ``block`` labels: kernel, argument types, constants, warps."""
    numbers = {"n": "i32", "k": "i32", "samples": "i32", "epsilon": "fp32"}
    drawn = {"x_ptr": "*fp32", "seed_ptr": "*i64"}
    row, part = min(block, LARGEST_ROW), min(block, LARGEST_BLOCK)
    return {
        "noised_places": (
            noised_places_kernel,
            drawn | {"places_ptr": "*i64", "offset_ptr": "*fp32"} | numbers,
            {"BLOCK": row, "GROUP": group_of(row)},
            warps_of(row),
        ),
        "largest_of_blocks": (
            largest_of_blocks_kernel,
            drawn | {"keys_ptr": "*i32", "labels_ptr": "*i32"} | numbers,
            {"BLOCK": LARGEST_BLOCK},
            _BLOCK_WARPS,
        ),
        "scattered": (
            scattered_kernel,
            {"values_ptr": "*fp32", "places_ptr": "*i64", "out_ptr": "*fp32", "n": "i32", "m": "i32"},
            {"BLOCK": part},
            4,
        ),
    }


@triton.jit
def _mix(z):
    """The output function of SplitMix64: 64 random bits for each state."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _words(seed, labels):
    """The factor and the term of each label, uint32."""
    words = _mix(_mix(~seed) + _GOLDEN * (labels + 1).to(tl.uint64))
    return words.to(tl.uint32) & 0xFFFFFFFE, (words >> 32).to(tl.uint32) | 1


@triton.jit
def _multipliers(seed, row, samples):
    """The multiplier of each sample of a row, uint32."""
    key = _mix(seed + _GOLDEN * (row + 1).to(tl.uint64))
    return _mix(key + _GOLDEN * (samples + 1).to(tl.uint64)).to(tl.uint32)


@triton.jit
def _normal(bits):
    """The noise at 32 bits: a rational function of ``r = sqrt(-log tail)``, that of `shortlist.kernels.noise_code`."""
    upper = bits < 0x80000000
    tail = tl.where(upper, bits, 0 - bits).to(tl.float32) * 2.3283064365386963e-10
    r = tl.sqrt(-tl.log(tail))
    up = ((((0.687247402 * r + 7.99974766) * r + 18.7861083) * r + 1.73681980) * r - 15.4549940) * r - 3.29629081
    down = (((0.485864128 * r + 5.66511574) * r + 14.4326862) * r + 9.40719061) * r + 1.0
    return tl.where(upper, up / down, -(up / down))


@triton.jit
def _keys(x, factors, terms, multipliers, epsilon, inside):
    """The noised values ``(samples, labels)`` as int32 in the same order; labels outside of the row come last."""
    bits = factors[None, :] * multipliers[:, None] + terms[None, :]
    value = x[None, :] + epsilon * _normal(bits)
    pattern = value.to(tl.int32, bitcast=True)
    keys = pattern ^ ((pattern >> 31) & 0x7FFFFFFF)
    keys = tl.where(value == value, keys, _NAN_KEY)
    return tl.where(inside[None, :], keys, _LEAST_KEY)


@triton.jit
def _kth_key(keys, highest, k):
    """The k-th largest key of each sample, between the least and the ``highest``."""
    low, high = tl.full(highest.shape, _LEAST_KEY, tl.int32), highest
    while tl.max((low < high).to(tl.int32), 0) > 0:
        # The upper mean, which does not overflow. At least k keys are at least `low`, fewer exceed `high`.
        middle = (low | high) - ((low ^ high) >> 1)
        count = tl.sum((keys >= middle[:, None]).to(tl.int32), 1)
        searching = low < high
        low = tl.where(searching & (count >= k), middle, low)
        high = tl.where(searching & (count <= k), tl.where(count == k, middle, middle - 1), high)
    return tl.min(tl.where(keys >= low[:, None], keys, _NAN_KEY), 1)


@triton.jit
def noised_places_kernel(
    x_ptr, seed_ptr, places_ptr, offset_ptr, n, k, samples, epsilon, BLOCK: tl.constexpr, GROUP: tl.constexpr
):
    """One row: the place of the k-th largest noised value in every sample, and the mean of the noise there."""
    row = tl.program_id(0).to(tl.int64)
    labels = tl.arange(0, BLOCK)
    inside = labels < n
    x = tl.load(x_ptr + row * n + labels, mask=inside, other=0.0).to(tl.float32)
    seed = tl.load(seed_ptr).to(tl.uint64)
    factors, terms = _words(seed, labels)
    total = tl.zeros((GROUP,), tl.float32)
    for start in range(0, samples, GROUP):
        sample = start + tl.arange(0, GROUP)
        multipliers = _multipliers(seed, row, sample)
        keys = _keys(x, factors, terms, multipliers, epsilon, inside)
        highest = tl.max(keys, 1)
        kth = _kth_key(keys, highest, k)
        place = tl.min(tl.where(keys == kth[:, None], labels[None, :], BLOCK - 1), 1)
        factor, term = _words(seed, place)
        noise = tl.where(highest == _NAN_KEY, float("nan"), epsilon * _normal(factor * multipliers + term))
        total += tl.where(sample < samples, noise, 0.0)
        tl.store(places_ptr + row * samples + sample, place.to(tl.int64), mask=sample < samples)
    tl.store(offset_ptr + row, tl.sum(total, 0) / samples)


@triton.jit
def largest_of_blocks_kernel(x_ptr, seed_ptr, keys_ptr, labels_ptr, n, k, samples, epsilon, BLOCK: tl.constexpr):
    """One block of a row: its k largest noised values in every sample, in the order of the labels."""
    row, block, blocks = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    labels = block * BLOCK + tl.arange(0, BLOCK)
    inside = labels < n
    x = tl.load(x_ptr + row * n + labels, mask=inside, other=0.0).to(tl.float32)
    seed = tl.load(seed_ptr).to(tl.uint64)
    factors, terms = _words(seed, labels)
    for index in range(samples):
        sample = index + tl.arange(0, 1)
        keys = _keys(x, factors, terms, _multipliers(seed, row, sample), epsilon, inside)
        kth = _kth_key(keys, tl.max(keys, 1), k)
        above, equal = (keys > kth[:, None]).to(tl.int32), (keys == kth[:, None]).to(tl.int32)
        # Those above come first; equal ones fill the places that are left. One sum counts both.
        counts = tl.cumsum((above << 16) + equal, 1)
        rank = tl.where(above > 0, counts >> 16, tl.sum(above, 1)[:, None] + (counts & 0xFFFF)) - 1
        at = ((row * samples + sample) * blocks + block)[:, None] * k + rank
        chosen = (above + equal > 0) & (rank < k)
        tl.store(keys_ptr + at, keys, mask=chosen)
        tl.store(labels_ptr + at, labels[None, :], mask=chosen)


@triton.jit
def scattered_kernel(values_ptr, places_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    """One block of a row: the sum of the values at each of its places."""
    row = tl.program_id(0).to(tl.int64)
    labels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(m):
        place = tl.load(places_ptr + row * m + i)
        total += tl.where(labels == place, tl.load(values_ptr + row * m + i), 0.0)
    tl.store(out_ptr + row * n + labels, total.to(out_ptr.dtype.element_ty), mask=labels < n)

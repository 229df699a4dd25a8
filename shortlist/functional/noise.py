"""The k-th largest of ``x + epsilon Z``, for many draws of Gaussian noise ``Z`` from a counter-based generator.

The noise of a label is a function of the seed, the row, the sample and the label, so a seed gives the same numbers with
and without kernels, on every device, and whatever the block size. SplitMix64 mixes these counters into 32 bits for each
label; only labels that can reach the k-th place get further bits and a value. If k of them exceed a threshold, the k-th
largest of all is among them; otherwise, which is rare, all labels are evaluated. So the result does not depend on the
threshold, and the law is that of Gaussian noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction
from shortlist.kernels import noise as kernels
from shortlist.kernels.chooser import use_kernel
from shortlist.tensors import may_look, wide

_ENTRIES = 1 << 18
"""Random numbers held at a time."""

_BUCKETS, _WIDTH, _STEP = 48, 0.5, 1 / 8
"""Logits are counted in buckets of ``_WIDTH`` epsilon; a threshold lies at a whole number of steps of ``_STEP``."""

_HEAD = 4.5
"""How far above the k-th largest logit the buckets start, in epsilon: noise lifts the k-th of many labels that high."""

_LOW = 0xFFFFFFFF


def noised_mean(x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None) -> Tensor:
    """The mean over samples of the k-th largest of ``x + epsilon Z``, ``(...)``."""
    return _NoisedMean.run(x, k, epsilon, samples, generator)[0]


class _NoisedMean(RowFunction):
    """``x, k, ... -> mean, share``; the gradient is the share of the draws in which a label was the k-th."""

    @staticmethod
    def forward(
        x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        seed = torch.randint(1 << 62, (), generator=generator, device=x.device)
        rows = x.detach().reshape(math.prod(x.shape[:-1]), x.shape[-1])
        if not may_look(x) or x.numel() == 0:
            mean, share = _draw_all(rows, k, epsilon, samples, seed)
        elif use_kernel(epsilon, rows):
            mean, share = kernels.noised_kth(rows, k, epsilon, samples, int(seed))
            odd = mean.isnan().nonzero().squeeze(-1)
            if len(odd):
                mean[odd], share[odd] = _draw_few(rows, k, epsilon, samples, seed, odd)
        else:
            mean, share = _draw_few(rows, k, epsilon, samples, seed, torch.arange(len(rows)))
        return mean.view(x.shape[:-1]), share.view(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # otherwise zeros are made for the share
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        (share,) = ctx.saved_tensors
        return None if gradient is None else gradient.unsqueeze(-1) * share, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        (share,) = ctx.saved_tensors
        return (share * x_tangent).sum(-1), None


def _signed(word: int) -> int:
    """A 64-bit word as the int64 with the same bits."""
    return word - (1 << 64) if word >> 63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FACTORS = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _mix(z: Tensor) -> Tensor:
    """The output function of SplitMix64 (Steele, Lea, Flood): 64 random bits for each state."""
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        z = (z ^ _shifted(z, shift)) * factor
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, shift: int) -> Tensor:
    """The logical right shift, which torch does not have for int64."""
    return (z >> shift) & ((1 << (64 - shift)) - 1)


def _keys(seed: Tensor, rows: Tensor, samples: Tensor) -> Tensor:
    """One state for each pair of a row and a sample."""
    return _mix(_mix(seed + _GOLDEN * (rows + 1)) + _GOLDEN * (samples + 1))


def _bits(keys: Tensor, n: int) -> Tensor:
    """32 random bits for each label, ``(pairs, n)``; two labels share a word."""
    words = _mix(keys.unsqueeze(-1) + _GOLDEN * torch.arange(1, (n + 1) // 2 + 1, device=keys.device))
    return torch.stack([words & _LOW, _shifted(words, 32)], -1).flatten(-2)[..., :n]


def _normal(keys: Tensor, labels: Tensor, bits: Tensor) -> Tensor:
    """The noise of some labels: the normal quantile at their 32 bits and 53 more below them."""
    more = _shifted(_mix(~keys + _GOLDEN * (labels + 1)), 11)
    precision = wide(bits)
    tails = (bits.to(precision) + more.to(precision) * 2.0**-53 + 2.0**-54) * 2.0**-32
    return -torch.special.ndtri(tails)


def _all_noise(keys: Tensor, n: int) -> Tensor:
    """The noise of all labels, ``(pairs, n)``."""
    return _normal(keys.unsqueeze(-1), torch.arange(n, device=keys.device), _bits(keys, n))


def _draw_all(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    """One sample at a time and without data-dependent branches: for accelerators and compilers."""
    mean, share = torch.zeros_like(x[..., :1]), torch.zeros_like(x)
    rows = torch.arange(len(x), device=x.device)
    for sample in range(samples):
        noise = _all_noise(_keys(seed, rows, torch.full_like(rows, sample)), x.shape[-1]).to(x.dtype)
        place = (x + epsilon * noise).topk(k).indices[..., -1:]
        mean = mean + (x.gather(-1, place) + epsilon * noise.gather(-1, place)) / samples
        share = share.scatter_add(-1, place, torch.full_like(mean, 1 / samples))
    return mean.squeeze(-1), share


def _draw_few(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The statistics of some rows on the CPU, evaluating only labels that can be the k-th."""
    n = x.shape[-1]
    x = x[rows] if len(rows) < len(x) else x
    threshold, levels = _thresholds(x, k, epsilon)
    mean, share = x.new_zeros(len(x), dtype=torch.float64), torch.zeros_like(x)
    step = max(1, _ENTRIES // max(n, 1))
    for start in range(0, len(x) * samples, step):
        pair = torch.arange(start, min(start + step, len(x) * samples))
        row = pair // samples
        keys = _keys(seed, rows[row], pair % samples)
        place, value = _kth_of_pairs(x, row, keys, k, epsilon, threshold, levels)
        mean.index_add_(0, row, value / samples)
        share.view(-1).index_add_(0, row * n + place, x.new_full((len(row),), 1 / samples))
    return mean.to(x.dtype), share


def _kth_of_pairs(
    x: Tensor, row: Tensor, keys: Tensor, k: int, epsilon: float, threshold: Tensor, levels: Tensor
) -> tuple[Tensor, Tensor]:
    """Place and value of the k-th largest for each pair of a row and a sample."""
    bits = _bits(keys, x.shape[-1])
    pair, label = (bits < levels[row]).nonzero(as_tuple=True)
    value = x[row[pair], label].double() + epsilon * _normal(keys[pair], label, bits[pair, label])
    kept = value >= threshold[row[pair]]
    pair, label, value = pair[kept], label[kept], value[kept]
    order = torch.from_numpy(np.lexsort((-value.numpy(), pair.numpy())))
    counts = torch.bincount(pair, minlength=len(row))
    kth = order[(counts.cumsum(0) - counts + k - 1).clamp(max=len(order) - 1)] if len(order) else order
    place, found = (label[kth], value[kth]) if len(order) else (row.clone(), row.double())
    rest = (counts < k).nonzero().squeeze(-1)
    if len(rest):
        values = x[row[rest]].double() + epsilon * _all_noise(keys[rest], x.shape[-1])
        place[rest] = values.topk(k).indices[:, -1]
        found[rest] = values.gather(-1, place[rest].unsqueeze(-1)).squeeze(-1)
    return place, found


def _thresholds(x: Tensor, k: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """For each row a value that a few more than k noised labels should exceed, and the level below which the 32 bits of
    a label must lie for it to do so.
    """
    wanted = k + 2.5 * math.sqrt(k) + 1
    top = x.topk(k).values[:, -1:].double() + _HEAD * epsilon
    depth = ((top - x) / (_WIDTH * epsilon)).nan_to_num(0, _BUCKETS - 1).clamp(0, _BUCKETS - 1).long()
    slots = depth + _BUCKETS * torch.arange(len(x)).unsqueeze(-1)
    counts = torch.bincount(slots.view(-1), minlength=len(x) * _BUCKETS).view(len(x), _BUCKETS).double()
    buckets = torch.arange(_BUCKETS, dtype=torch.float64)
    steps = torch.arange(int(_BUCKETS * _WIDTH / _STEP), dtype=torch.float64)
    expected = counts @ _tail((buckets.unsqueeze(-1) + 0.5) * _WIDTH - steps * _STEP)
    step = (expected < wanted).sum(-1, keepdim=True)
    usable = (step < len(steps)) & top.isfinite()
    threshold = torch.where(usable, top - step * _STEP * epsilon, -math.inf)
    # One step lower than the end of the bucket, for logits that were rounded into it.
    reach = _tail(_WIDTH * buckets - (step + 1) * _STEP)
    levels = torch.where(usable & (buckets > 0), reach, 1) * 2.0**32
    return threshold.squeeze(-1), (levels.long() + 1).gather(-1, depth)


def _tail(level: Tensor) -> Tensor:
    """The probability that noise exceeds a level."""
    return 0.5 * torch.special.erfc(level / math.sqrt(2))

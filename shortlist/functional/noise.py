"""Where the k-th largest of ``x + epsilon Z`` is, for many draws of Gaussian noise ``Z``.

The generator is counter-based. The noise of a label in a draw (a row and a sample) is the normal quantile of 32 bits,
``factor * multiplier + term`` mod 2^32, where the label's factor and term and the draw's multiplier are outputs of
SplitMix64 at counters. So a seed gives the same numbers with and without kernels, on every device, and whatever the
block size, and a wide tensor of bits costs one multiplication. Labels have words of their own, so their noise in a draw
is independent. Any two draws are independent, because a factor and a term are two random numbers: means over draws have
the expectation and the variance of independent noise, though three draws are not independent. Factors are even and
terms odd, so the bits are odd and every quantile is finite.

On the CPU only labels that can reach the k-th place get a value. If k of them exceed a threshold, the k-th largest of
all is among them; otherwise, which is rare, all labels are evaluated. So the result does not depend on the threshold.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction, opaque
from shortlist.kernels import noise as kernels
from shortlist.kernels.chooser import TRITON_DEVICES, fixed_steps, use_kernel, use_triton
from shortlist.tensors import solvable, wide

_ENTRIES = 1 << 18
"""Random numbers held at a time on the CPU."""

_DEVICE_ENTRIES = 1 << 22
"""The same on accelerators, unless one sample has more: small inputs take few kernels, large ones little memory."""

_BUCKETS, _WIDTH, _STEP = 48, 0.5, 1 / 8
"""Logits are counted in buckets of ``_WIDTH`` epsilon; a threshold lies at a whole number of steps of ``_STEP``."""

_HEAD = 4.5
"""How far above the k-th largest logit the buckets start, in epsilon: noise lifts the k-th of many labels that high."""

_LOW = 0xFFFFFFFF


def noised_places(
    x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Where the k-th largest of ``x + epsilon Z`` is in each sample, and the mean over samples of ``epsilon Z`` there.

    Returns:
        ``(..., samples)`` int64, and ``(...)`` in float32 or float64, NaN for rows that hold a NaN; neither has a
        derivative.
    """
    return _NoisedPlaces.run(x.detach(), k, epsilon, samples, generator)


class _NoisedPlaces(RowFunction):
    """``x, k, ... -> places, offset``."""

    @staticmethod
    def forward(
        x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        source = x.device if generator is None else generator.device
        seed = torch.randint(1 << 62, (), generator=generator, device=source).to(x.device)
        rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        places, offset = _path(rows, k, epsilon, samples)(rows, k, epsilon, samples, seed)
        return places.view(*x.shape[:-1], samples), offset.view(x.shape[:-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        return (None,) * 5

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor | None) -> tuple[None, None]:
        return None, None


def _path(x: Tensor, k: int, epsilon: float, samples: int) -> Any:
    """The function that draws for the rows ``x``."""
    if use_triton(epsilon, x) and _fits_triton(x.shape[-1], k, samples):
        return _triton_op if torch.compiler.is_compiling() else _draw_triton
    if fixed_steps(x) or x.numel() == 0:
        return _draw_all
    return _cpu_op if torch.compiler.is_compiling() else _draw_cpu


def _fits_triton(n: int, k: int, samples: int) -> bool:
    from shortlist.kernels.gpu import noise as gpu

    return gpu.fits(n, k, samples)


def _draw_triton(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    from shortlist.kernels.gpu import noise as gpu

    if gpu.is_one_block(x.shape[-1]):
        return gpu.noised_places(x, k, epsilon, samples, seed)
    keys, labels = gpu.largest_of_blocks(x, k, epsilon, samples, seed)
    last = keys.topk(k)
    places = labels.gather(-1, last.indices[..., -1:]).squeeze(-1).long()
    holds_nan = last.values[..., 0].amax(-1) == gpu.NAN_KEY
    draws = _multipliers(seed, torch.arange(len(x), device=x.device), samples)
    offset = epsilon * _mean_noise(_label_words(seed, x.shape[-1]), draws, places)
    return places, offset.float().masked_fill(holds_nan, math.nan)


def _draw_cpu(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    x = solvable(x)
    if not use_kernel(epsilon, x):
        return _draw_few(x, k, epsilon, samples, seed, torch.arange(len(x)))
    places, offset = kernels.noised_places(x, k, epsilon, samples, int(seed))
    odd = offset.isnan().nonzero().squeeze(-1)
    if len(odd):
        places[odd], offset[odd] = _draw_few(x, k, epsilon, samples, seed, odd)
    return places, offset


def _shapes(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    return seed.new_empty((len(x), samples)), solvable(x.new_empty((len(x),)))


_SCHEMA = "(Tensor x, SymInt k, float epsilon, SymInt samples, Tensor seed) -> (Tensor, Tensor)"
# The compiler calls these as they are: steps that depend on the data, and a Triton kernel.
_cpu_op = opaque("noised_places", _SCHEMA, _draw_cpu, _shapes)
_triton_op = opaque("noised_places_triton", _SCHEMA, _draw_triton, _shapes, devices=TRITON_DEVICES)


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


def _label_words(seed: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The factor and the term of each label, ``(n,)`` each, int64 below 2^32."""
    words = _mix(_mix(~seed) + _GOLDEN * torch.arange(1, n + 1, device=seed.device))
    return words & (_LOW - 1), _shifted(words, 32) | 1


def _multipliers(seed: Tensor, rows: Tensor, samples: int) -> Tensor:
    """The multiplier of each draw, ``(rows, samples)``, int64 below 2^32."""
    keys = _mix(seed + _GOLDEN * (rows + 1)).unsqueeze(-1)
    return _mix(keys + _GOLDEN * torch.arange(1, samples + 1, device=seed.device)) & _LOW


def _normal(bits: Tensor) -> Tensor:
    """The noise at 32 bits (int64), in the precision of long sums."""
    # The smaller tail, because the larger one may round to 1 where float64 is not available.
    upper = bits < 1 << 31
    tails = torch.where(upper, bits, (1 << 32) - bits).to(wide(bits)) * 2.0**-32
    noise = torch.special.ndtri(tails)
    return torch.where(upper, -noise, noise)


def _mean_noise(words: tuple[Tensor, Tensor], draws: Tensor, places: Tensor) -> Tensor:
    """The mean over samples of the noise at ``places`` ``(rows, samples)``."""
    factors, terms = (word[places] for word in words)
    return _normal((factors * draws + terms) & _LOW).mean(-1)


def _draw_all(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    """All labels of every sample and no data-dependent branches: for accelerators and exporters.

    Moves eight times the bytes of ``x`` for each sample: the bits, their tails, the noise, the sum, and its selection.
    """
    x = solvable(x)
    n, words = x.shape[-1], _label_words(seed, x.shape[-1])
    draws = _multipliers(seed, torch.arange(len(x), device=x.device), samples)
    factors, terms, multipliers = (part.to(torch.int32) for part in (*words, draws))
    # Small tails keep their digits, and those near 1 lose some in float32: tails count from the end that matters.
    from_below = 2 * k > n
    if from_below:
        factors, terms = -factors, -terms
    scale = x.new_full((1,), 2.0**-32 * (1 - torch.finfo(x.dtype).eps / 2))  # no tail rounds to 1
    found, step = [], max(1, _DEVICE_ENTRIES // max(x.numel(), 1))
    for start in range(0, samples, step):
        bits = torch.addcmul(terms, factors, multipliers[:, start : start + step].unsqueeze(-1))
        noise = torch.special.ndtri(bits.view(torch.uint32) * scale)
        noised = torch.add(x.unsqueeze(1), noise, alpha=epsilon if from_below else -epsilon)
        chosen = noised.topk(n - k + 1, largest=False) if from_below else noised.topk(k)
        found.append(chosen.indices[..., -1])
    places = torch.cat(found, -1)
    offset = epsilon * _mean_noise(words, draws, places).to(x.dtype)
    return places, offset.masked_fill(x.amax(-1).isnan(), math.nan)


def _draw_few(x: Tensor, k: int, epsilon: float, samples: int, seed: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The places and offsets of some rows on the CPU, evaluating only labels that can be the k-th."""
    n = x.shape[-1]
    x = x[rows] if len(rows) < len(x) else x
    threshold, levels = _thresholds(x, k, epsilon)
    words, draws = _label_words(seed, n), _multipliers(seed, rows, samples)
    places, row, step = torch.empty_like(draws), torch.arange(len(x)).repeat_interleave(samples), max(1, _ENTRIES // n)
    for start in range(0, draws.numel(), step):
        part = slice(start, start + step)
        bits = (words[0] * draws.view(-1, 1)[part] + words[1]) & _LOW
        places.view(-1)[part] = _kth_of_draws(x, row[part], bits, k, epsilon, threshold, levels)
    offset = epsilon * _mean_noise(words, draws, places).masked_fill(x.isnan().any(-1), math.nan)
    return places, offset.to(x.dtype)


def _kth_of_draws(
    x: Tensor, row: Tensor, bits: Tensor, k: int, epsilon: float, threshold: Tensor, levels: Tensor
) -> Tensor:
    """The place of the k-th largest in each draw, a row of ``x`` noised by a row of ``bits``."""
    draw, label = (bits < levels[row]).nonzero(as_tuple=True)
    value = x[row[draw], label].double() + epsilon * _normal(bits[draw, label])
    kept = value >= threshold[row[draw]]
    draw, label, value = draw[kept], label[kept], value[kept]
    order = torch.from_numpy(np.lexsort((-value.numpy(), draw.numpy())))
    counts = torch.bincount(draw, minlength=len(row))
    kth = order[(counts.cumsum(0) - counts + k - 1).clamp(max=len(order) - 1)] if len(order) else order
    place = label[kth] if len(order) else row.clone()
    rest = (counts < k).nonzero().squeeze(-1)
    if len(rest):
        place[rest] = (x[row[rest]].double() + epsilon * _normal(bits[rest])).topk(k).indices[:, -1]
    return place


def _thresholds(x: Tensor, k: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """For each row a value that a few more than k noised labels should exceed, and the level below which the 32 bits of
    a label must lie for it to do so.
    """
    wanted = k + 2.5 * math.sqrt(k) + 1
    top = x.topk(k).values[:, -1:].double() + _HEAD * epsilon
    depth = ((top - x) / (_WIDTH * epsilon)).nan_to_num(0, _BUCKETS - 1).clamp(0, _BUCKETS - 1).long()
    slots = depth + _BUCKETS * torch.arange(len(x)).unsqueeze(-1)
    counts = torch.bincount(slots.reshape(-1), minlength=len(x) * _BUCKETS).view(len(x), _BUCKETS).double()
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

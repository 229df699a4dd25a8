"""Where the k-th largest of ``x + epsilon Z`` lies, for many draws of ``Z``, drawing only the noise that matters.

The ``width`` leading labels of a row get ordinary noise. Each other label has noise above a level ``z`` with a small
probability ``q``; which ones do is a Bernoulli process, drawn by its gaps, and only those get a value, from the
normal distribution above ``z``. All labels that got none lie below ``bound = x_[width] + epsilon z``. If the k-th
largest of what was drawn reaches the bound, it is the k-th largest of all. If not, which is rare, the missing noise
is drawn too, from the normal distribution below ``z``. So the law is exact for every choice of ``width`` and ``q``;
the choice decides the speed. Where loops are compiled, one does the same in its own way (``kernels/noise_code.py``).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction
from shortlist.kernels import noise as kernels
from shortlist.kernels.chooser import use_kernel
from shortlist.tensors import may_look

_RARE = [(rare, -NormalDist().inv_cdf(rare)) for rare in (1 / 128, 1 / 64, 1 / 32, 1 / 8)]
"""Probabilities ``q`` to choose from, and the noise that is exceeded so rarely."""

_SPARSE_COST = 7.0
"""How much more a drawn exceedance costs than the noise of a leading label."""

_ENTRIES = 1 << 14
"""Least number of noised values held at a time."""


def noised_mean(x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None) -> Tensor:
    """The mean over samples of the k-th largest of ``x + epsilon Z``, ``(...)``."""
    return _NoisedMean.run(x, k, epsilon, samples, generator)[0]


class _NoisedMean(RowFunction):
    """``x, k, ... -> mean, share``; the share of the draws in which a label was the k-th is the gradient."""

    @staticmethod
    def forward(
        x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        if not may_look(x) or x.numel() == 0:
            return _draw_all(x, k, epsilon, samples, generator)
        rows = x.detach().reshape(-1, x.shape[-1])
        draw = _draw_by_loop if use_kernel(epsilon, rows) else _draw_what_matters
        mean, share = draw(rows, k, epsilon, samples, generator)
        return mean.view(x.shape[:-1]), share.view(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros are made for the share
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


def _draw_all(
    x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    mean, share = torch.zeros_like(x[..., :1]), torch.zeros_like(x)
    for _ in range(samples):
        noise = torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=generator)
        place = (x + epsilon * noise).topk(k).indices[..., -1:]
        mean = mean + (x.gather(-1, place) + epsilon * noise.gather(-1, place)) / samples
        share = share.scatter_add(-1, place, torch.full_like(mean, 1 / samples))
    return mean.squeeze(-1), share


def _draw_by_loop(
    x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    mean, share = kernels.noised_kth(x, k, epsilon, samples, _seed(generator))
    odd = mean.isnan()
    if bool(odd.any()):
        mean[odd], share[odd] = _draw_what_matters(x[odd], k, epsilon, samples, generator)
    return mean, share


class _Plan(NamedTuple):
    """How to draw: ``width`` leading labels always, the others with probability ``rare``, that is above ``level``."""

    width: int
    rare: float
    level: float


def _draw_what_matters(
    x: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    plan = _plan(x, k, epsilon)
    mean, share = x.new_zeros(rows), torch.zeros_like(x)
    # The values held at a time are a fraction of the logits, however many samples there are.
    per_pair = plan.width + math.ceil(2 * plan.rare * n)
    pairs = max(_ENTRIES, rows * n // 2) // per_pair + 1
    # Some steps need a few copies of their rows: not of all of them, unless there are few entries.
    row_step, sample_step = max(1, min(pairs // samples, max(_ENTRIES // n, rows // 4))), min(samples, pairs)
    rng = np.random.Generator(np.random.SFC64(_seed(generator)))
    for start in range(0, rows, row_step):
        block = slice(start, start + row_step)
        for first in range(0, samples, sample_step):
            count = min(sample_step, samples - first)
            place, noise = (torch.from_numpy(part) for part in _draw_block(x[block], k, epsilon, count, plan, rng))
            mean[block] += (x[block].gather(-1, place) + epsilon * noise).sum(-1) / samples
            share[block].scatter_add_(-1, place, x.new_full((1, 1), 1 / samples).expand(place.shape))
    return mean, share


def _seed(generator: torch.Generator | None) -> int:
    return int(torch.randint(1 << 62, (), generator=generator))


def _plan(x: Tensor, k: int, epsilon: float) -> _Plan:
    """The cheapest plan that settles almost every draw, judged by a few rows."""
    rows, n = x.shape
    best, cost = _Plan(n, 0.0, math.inf), 0.7 * n
    widths = [width for width in (int((k + 4) * 1.4**i) for i in range(40)) if width < n / 2]
    few = torch.from_numpy(-np.sort(-x[:: max(1, rows // 4)][:4].numpy(), axis=-1))

    def settles(width: int, level: float) -> bool:
        bound = few[:, width - 1 : width] + epsilon * level
        above = torch.erfc((bound - few) / (epsilon * math.sqrt(2))).sum(-1) / 2  # labels expected there
        return bool(above.nan_to_num(0).min() >= k + 3 * math.sqrt(k) + 1)

    for rare, level in _RARE:
        affordable = [width for width in widths if width + _SPARSE_COST * rare * n < cost]
        # The wider, the lower the bound: the first width that settles is found by halving.
        place = bisect_left(affordable, True, key=lambda width, level=level: settles(width, level))
        if place < len(affordable):
            best, cost = _Plan(affordable[place], rare, level), affordable[place] + _SPARSE_COST * rare * n
    return best


def _draw_block(
    x: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    plan: _Plan,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Places and noise of the k-th largest, ``(rows, samples)`` each."""
    rows, n = x.shape
    width, logits, pairs = plan.width, x.numpy(), rows * samples
    noise = _normal(rng, (rows, samples, width), x.dtype)
    pair = np.arange(pairs)
    if width == n:
        _, place = _kth(torch.add(x[:, None], noise, alpha=epsilon).numpy().reshape(pairs, n), k)
        return place.reshape(rows, samples), noise.numpy().reshape(pairs, n)[pair, place].reshape(rows, samples)

    head = np.argpartition(logits, n - width, axis=-1)[:, n - width :]
    leading = np.take_along_axis(logits, head, -1)
    bound = leading.min(-1) + epsilon * plan.level
    hits = _exceedances(rows, n, samples, plan, rng)
    tail = logits.copy()
    np.put_along_axis(tail, head, -np.inf, -1)
    labels, extra = _beside(hits, tail, bound, epsilon, samples)
    values = x.new_empty(rows, samples, width + extra.shape[1])
    torch.add(torch.from_numpy(leading)[:, None], noise, alpha=epsilon, out=values[..., :width])
    values, noise = values.numpy().reshape(pairs, -1), noise.numpy().reshape(pairs, -1)
    values[:, width:] = extra

    value, column = _kth(values, k)
    row, leads = pair // samples, column < width
    inside, outside = np.minimum(column, width - 1), np.maximum(column - width, 0)
    place = np.where(leads, head[row, inside], labels[pair, outside])
    z = np.where(leads, noise[pair, inside], (value - logits[row, place]) / epsilon)
    unsettled = np.flatnonzero(~(value >= bound[row]))
    if len(unsettled):
        drawn = _Drawn(head, noise, hits)
        place[unsettled], z[unsettled] = _draw_rest(logits, drawn, unsettled, k, epsilon, samples, plan, rng)
    return place.reshape(rows, samples), z.reshape(rows, samples)


class _Hits(NamedTuple):
    """Noise above the level, one by one, ordered by pair of row and sample; also of labels that lead."""

    pair: np.ndarray
    label: np.ndarray
    noise: np.ndarray


def _exceedances(rows: int, n: int, samples: int, plan: _Plan, rng: np.random.Generator) -> _Hits:
    cells, per_step = rows * samples * n, -1 / math.log1p(-plan.rare)
    ends, last = [], -1
    while last < cells:
        count = int((cells - last) * plan.rare * 1.02 + 5 * math.sqrt(cells * plan.rare)) + 16
        gaps = (rng.standard_exponential(count) * per_step).astype(np.int64) + 1  # geometric
        ends.append(np.cumsum(gaps) + last)
        last = int(ends[-1][-1])
    cell = np.concatenate(ends) if len(ends) > 1 else ends[0]
    cell = cell[: np.searchsorted(cell, cells)]
    pair = cell // n
    # P(Z > z) = u at z = sqrt(2) erfinv(1 - 2 u); u is uniform below `rare`.
    uniform = torch.from_numpy(rng.random(len(cell))).mul_(2 * plan.rare).add_(1 - 2 * plan.rare)
    return _Hits(pair, cell - pair * n, uniform.erfinv_().mul_(math.sqrt(2)).numpy())


def _beside(
    hits: _Hits, tail: np.ndarray, bound: np.ndarray, epsilon: float, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and values of the hits above the bound, a padded line per pair; ``tail`` is -inf at the leading labels."""
    rows, n = tail.shape
    row = hits.pair // samples
    value = (tail.take(row * n + hits.label) + epsilon * hits.noise).astype(tail.dtype)
    reaching = np.flatnonzero(value >= bound.take(row))
    pair = hits.pair[reaching]
    counts = np.bincount(pair, minlength=rows * samples)
    slot = np.arange(len(pair)) - (np.cumsum(counts) - counts)[pair]
    shape = (rows * samples, max(1, int(counts.max(initial=0))))
    labels, values = np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf, dtype=tail.dtype)
    labels[pair, slot], values[pair, slot] = hits.label[reaching], value[reaching]
    return labels, values


class _Drawn(NamedTuple):
    """The noise drawn so far: of the leading labels, and of others above the level."""

    head: np.ndarray
    noise: np.ndarray
    hits: _Hits


def _draw_rest(
    logits: np.ndarray,
    drawn: _Drawn,
    unsettled: np.ndarray,
    k: int,
    epsilon: float,
    samples: int,
    plan: _Plan,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Complete the noise of some pairs: what was not drawn lies below the level."""
    n, row = logits.shape[1], unsettled // samples
    below = rng.random((len(unsettled), n)) * (1 - plan.rare)
    everything = torch.special.ndtri(torch.from_numpy(below)).numpy().astype(logits.dtype)
    line = np.full(len(drawn.noise), -1)
    line[unsettled] = np.arange(len(unsettled))
    mine = line[drawn.hits.pair] >= 0
    everything[line[drawn.hits.pair[mine]], drawn.hits.label[mine]] = drawn.hits.noise[mine]
    np.put_along_axis(everything, drawn.head[row], drawn.noise[unsettled], -1)  # last: a hit may lead
    _, place = _kth(logits[row] + logits.dtype.type(epsilon) * everything, k)
    return place, everything[np.arange(len(place)), place]


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Normal numbers; in float32 by the inverse of the distribution function at 24 random bits, twice as fast."""
    if dtype != torch.float32:
        return torch.from_numpy(rng.standard_normal(shape))
    count = math.prod(shape)
    bits = torch.from_numpy(rng.integers(-(1 << 63), 1 << 63, count + 1 >> 1).view(np.int32)[:count])
    # The middles of 2^24 equal parts of (-1, 1): exact in float32, and never an end.
    middles = bits.bitwise_right_shift_(8).to(dtype).mul_(2.0**-23).add_(2.0**-24)
    return middles.erfinv_().mul_(math.sqrt(2)).view(shape)


def _kth(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k-th largest value of each line, and its place. (numpy selects values much faster than places.)"""
    split = values.shape[1] - k
    kth = np.partition(values, split, axis=-1)[:, split]
    return kth, (values == kth[:, None]).argmax(-1)

"""The two terms of a binary loss, for labels that are present and absent, with their slopes.

Negatives are many and positives few, so eager CPU code computes a dense negative term in cache-sized blocks and the
positive term only where it counts. Here the labels are masks; `few_binary_terms.py` takes them one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.blocks import BLOCK
from shortlist.functional.row_function import RowFunction
from shortlist.tensors import log_sigmoid, may_look

_RARE = 16
"""One entry in this many may be positive for the positives to be picked one by one."""

_FEW = 8
"""Up to this whole exponent a power is a handful of products; beyond it, an exponential of a logarithm."""


def binary_terms(
    x: Tensor,
    present: Tensor,
    absent: Tensor,
    gamma_positive: float = 0.0,
    gamma_negative: float = 0.0,
    clip: float = 0.0,
    *,
    summed: bool = True,
) -> Tensor:
    """``-present (1 - p)^γ+ log p - absent p_m^γ- log(1 - p_m)`` with ``p = σ(x)`` and ``p_m = max(p - clip, 0)``.

    One value per row, or per entry if not ``summed``. ``present`` and ``absent`` are any weights, shaped like ``x``.
    An infinite term counts as the largest number, so that a weight of 0 leaves it out.
    """
    return _Terms.run(x, present, absent, summed, gamma_positive, gamma_negative, clip)[0]


class _Terms(RowFunction):
    """``x, present, absent, summed, γ+, γ-, clip -> value, slope``; the slope has one number per entry."""

    @staticmethod
    def forward(
        x: Tensor,
        present: Tensor,
        absent: Tensor,
        summed: bool,
        gamma_positive: float,
        gamma_negative: float,
        clip: float,
    ) -> tuple[Tensor, Tensor]:
        # All parameters by name: the compiler counts them to see that there is no context among them.
        if may_look(x) and x.numel():
            return _by_blocks(x, present, absent, summed, gamma_positive, gamma_negative, clip)
        (positive, positive_slope), (negative, negative_slope) = sides(x, gamma_positive, gamma_negative, clip)
        value = present * positive + absent * negative
        slope = present * positive_slope + absent * negative_slope
        return value.sum(-1) if summed else value, slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.summed, *ctx.options = inputs[3:]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros are made for the slope
        ctx.save_for_backward(*inputs[:3], output[1])
        ctx.save_for_forward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 7
        x, present, absent, slope = ctx.saved_tensors
        gradient = gradient.unsqueeze(-1) if ctx.summed else gradient
        to_labels = None, None
        if torch.is_grad_enabled() or any(ctx.needs_input_grad[1:3]):
            (positive, positive_slope), (negative, negative_slope) = sides(x, *ctx.options)
            slope = present * positive_slope + absent * negative_slope
            to_labels = gradient * positive, gradient * negative
        return gradient * slope, *to_labels, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, None]:
        x, present, absent = ctx.saved_tensors
        (positive, positive_slope), (negative, negative_slope) = sides(x, *ctx.options)
        rates = present * positive_slope + absent * negative_slope, positive, negative
        moved = sum((t * rate for t, rate in zip(tangents, rates, strict=False) if t is not None), torch.zeros_like(x))
        return moved.sum(-1) if ctx.summed else moved, None


def _by_blocks(
    x: Tensor, present: Tensor, absent: Tensor, summed: bool, gamma_positive: float, gamma_negative: float, clip: float
) -> tuple[Tensor, Tensor]:
    shape, n = x.shape, x.shape[-1]
    x, present, absent = (t.detach().reshape(-1, n).contiguous() for t in (x, present, absent))
    slope = torch.empty_like(x)
    value = x.new_empty(len(x), 1) if summed else torch.empty_like(x)
    places = torch.from_numpy(np.flatnonzero(present.numpy() != 0))
    many = len(places) * _RARE > x.numel()
    size = max(1, BLOCK * torch.get_num_threads() // n)
    for start in range(0, len(x), size):
        block = slice(start, start + size)
        term, rate = negative_side(x[block], gamma_negative, clip)
        torch.mul(rate, absent[block], out=slope[block])
        term.mul_(absent[block])
        if many:
            extra, rate = positive_side(x[block], gamma_positive)
            slope[block].addcmul_(rate, present[block])
            term.addcmul_(extra, present[block])
        value[block] = term.sum(-1, keepdim=True) if summed else term
    if not many:
        term, rate = positive_side(x.view(-1)[places], gamma_positive)
        scale = present.view(-1)[places]
        slope.view(-1).index_add_(0, places, rate.mul_(scale))
        value.view(-1).index_add_(0, places // n if summed else places, term.mul_(scale))
    return value.view(shape[:-1] if summed else shape), slope.view(shape)


def sides(
    x: Tensor, gamma_positive: float, gamma_negative: float, clip: float
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The terms of positives and of negatives, each with its slope."""
    return positive_side(x, gamma_positive), negative_side(x, gamma_negative, clip)


def positive_side(x: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """``-(1 - p)^γ log p`` and its slope: the negative side in a mirror."""
    loss, slope = negative_side(-x, gamma, 0)
    return loss, -slope


def negative_side(x: Tensor, gamma: float, clip: float) -> tuple[Tensor, Tensor]:
    """``-p_m^γ log(1 - p_m)`` and its slope."""
    if clip > 0:
        return _clipped_side(x, gamma, clip)
    loss, slope = _softplus(x), x.sigmoid()
    if gamma == 0:
        return loss, slope
    fade = _step(_step(_softplus(-x), "mul", -gamma), "exp")
    rest = _step(_step((-x).sigmoid(), "mul", gamma), "mul", loss)
    return _step(loss, "mul", fade), _step(_step(slope, "add", rest), "mul", fade)


def _clipped_side(x: Tensor, gamma: float, clip: float) -> tuple[Tensor, Tensor]:
    q = _step(-x, "sigmoid")
    if gamma not in range(1, _FEW + 1):
        return _clipped_side_of_any_power(q, gamma, clip)
    rest = _step(q + clip, "clamp", None, 1)
    shifted = 1 - rest
    over_rest = rest.reciprocal()
    loss = over_rest.log()
    rate = _step(_step(over_rest, "mul", shifted), "add", gamma * loss)
    slope = _step(_step(1 - q, "mul", q), "mul", rate)
    if gamma > 1:
        lower = _power(shifted, int(gamma) - 1)
        slope, shifted = _step(slope, "mul", lower), lower * shifted
    return _step(loss, "mul", shifted), slope


def _clipped_side_of_any_power(q: Tensor, gamma: float, clip: float) -> tuple[Tensor, Tensor]:
    """The same without ``p_m^(γ - 1)``, which below a gamma of 1 is infinite at the clip."""
    limits = torch.finfo(q.dtype)
    # With 1 - p_m rounded and short of 1, log(1 - p_m) / p_m has all its digits, and is finite up to the clip.
    rest = (q + clip).clamp(max=1 - limits.eps / 2)
    ratio = rest.log() / (rest - 1)
    shifted = (1 - clip - q).relu()
    # At a gamma of 0 the slope still jumps from 0 at the clip.
    fade = (gamma * shifted.clamp(min=limits.tiny).log()).exp() * shifted.sign()
    return fade * shifted * ratio, (1 - q) * q * fade * (gamma * ratio + 1 / rest)


def _power(base: Tensor, exponent: int) -> Tensor:
    """``base ** exponent`` for an exponent from 1 on, by squaring: torch's own takes as long as ten products."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    return half * half * base if exponent % 2 else half * half


def _softplus(x: Tensor) -> Tensor:
    """``log(1 + exp x)`` with all its digits in both tails; at most the largest number."""
    largest = torch.finfo(x.dtype).max
    if torch.is_grad_enabled():
        return -log_sigmoid(-x.clamp(max=largest))
    # The same in half the time; but its parts have no derivative at 0.
    return x.abs().neg_().exp_().log1p_().add_(x.clamp(0, largest))


def _step(a: Tensor, name: str, *arguments: Any) -> Tensor:
    """``a.name(...)``, in the place of ``a`` where autograd does not watch."""
    return getattr(a, name if torch.is_grad_enabled() else name + "_")(*arguments)

"""The terms of a binary loss where all entries but a few are negatives that count alike, or by their label."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.blocks import BLOCK
from shortlist.functional.losses.binary_terms import negative_side, positive_side
from shortlist.functional.marked import Marked, add_at, filled, sum_rows
from shortlist.functional.row_function import RowFunction
from shortlist.tensors import may_look

Side = tuple[Tensor, Tensor]
"""Terms with their slopes."""


def few_binary_terms(
    marks: Marked,
    gamma_positive: float = 0.0,
    gamma_negative: float = 0.0,
    clip: float = 0.0,
    *,
    background: float = 1.0,
    weight: Tensor | None = None,
    summed: bool = True,
) -> Tensor:
    """`binary_terms` for labels given one by one: no mask of them is made.

    Args:
        marks: the logits, and what is not just a negative.
        gamma_positive, gamma_negative, clip: as in `binary_terms`.
        background: how much a negative counts beside a positive.
        weight: ``(n,)``, multiplies the terms of each label.
        summed: whether to give one value per row, not one per entry.
    """
    x, present, absent = marks.matrix, marks.present, marks.absent
    if absent is not None:
        absent = background * absent
    level = x.new_full((1,), background) if weight is None else background * weight
    if weight is not None:
        factor = weight[marks.labels]
        present, absent = factor * present, None if absent is None else factor * absent
    marked = marks.places, present, absent, marks.unknown, marks.taken
    values = _FewTerms.run(x, level, *marked, marks.width, summed, gamma_positive, gamma_negative, clip)[0]
    return values.view(marks.logits.shape[:-1] if summed else marks.logits.shape)


class _FewTerms(RowFunction):
    """``x, level, places, present, absent, unknown, taken, width, summed, γ+, γ-, clip -> value, slope``.

    x is ``(..., rows, n)``, the level of the negatives ``(..., n)`` or ``(..., 1)``; what is marked is ``(..., m)``.
    """

    @staticmethod
    def forward(
        x: Tensor,
        level: Tensor,
        places: Tensor,
        present: Tensor,
        absent: Tensor | None,
        unknown: Tensor | None,
        taken: Tensor | None,
        width: int | None,
        summed: bool,
        gamma_positive: float,
        gamma_negative: float,
        clip: float,
    ) -> tuple[Tensor, Tensor]:
        # All parameters by name: the compiler counts them to see that there is no context among them.
        options = gamma_positive, gamma_negative, clip
        marked = places, present, absent, unknown, taken
        if may_look(x) and x.ndim == 2 and x.numel():
            value, slope = _by_blocks(x, level, places, taken, summed, gamma_negative, clip)
        else:
            value, slope = _background(x, level, places, taken, gamma_negative, clip)
            value = value.sum(-1) if summed else value
        term, rate = _marked_terms(x, marked, options)
        slope.view(*x.shape[:-2], -1).scatter_add_(-1, places, rate)
        return value + sum_rows(term, places, x, width) if summed else add_at(value, places, term), slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.width, ctx.summed, *ctx.options = inputs[7:]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros are made for the slope
        ctx.save_for_backward(*inputs[:7], output[1])
        ctx.save_for_forward(*inputs[:7])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 12
        x, level, *marked, slope = ctx.saved_tensors
        rows = gradient.unsqueeze(-1) if ctx.summed else gradient
        to_level = to_present = to_absent = None
        if torch.is_grad_enabled() or any(ctx.needs_input_grad[1:5]):
            negative, positive_terms, negative_terms, slope = _parts(x, level, marked, ctx.options)
            places = marked[0]
            at = gradient.gather(-1, places // x.shape[-1]) if ctx.summed else rows.flatten(-2).gather(-1, places)
            to_present = at * positive_terms
            to_absent = None if marked[2] is None else at * negative_terms
            if ctx.needs_input_grad[1]:
                to_level = (rows * negative).sum(-2).sum_to_size(level.shape)
        return rows * slope, to_level, None, to_present, to_absent, *(None,) * 7

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, None]:
        x, level, *marked = ctx.saved_tensors
        places, by_x, by_level = marked[0], tangents[0], tangents[1]
        negative, positive_terms, negative_terms, slope = _parts(x, level, marked, ctx.options)
        moved = torch.zeros_like(x) if by_x is None else by_x * slope
        if by_level is not None:
            moved = moved + by_level.unsqueeze(-2) * negative
        for tangent, terms in ((tangents[3], positive_terms), (tangents[4], negative_terms)):
            if tangent is not None:
                moved = add_at(moved, places, tangent * terms)
        return moved.sum(-1) if ctx.summed else moved, None


def _background(x: Tensor, level: Tensor, places: Tensor, taken: Tensor | None, gamma: float, clip: float) -> Side:
    """The terms of the negatives: at -inf, where the marked entries are put, they have neither value nor slope."""
    rest = filled(x.flatten(-2), places, taken, -math.inf).view(x.shape)
    term, rate = negative_side(rest, gamma, clip)
    return term * level.unsqueeze(-2), rate * level.unsqueeze(-2)


def _by_blocks(
    x: Tensor, level: Tensor, places: Tensor, taken: Tensor | None, summed: bool, gamma: float, clip: float
) -> Side:
    """The same, of plain rows, in blocks that stay in the cache."""
    n = x.shape[-1]
    slope = filled(x.reshape(-1), places, taken, -math.inf).view(x.shape)
    value = x.new_empty(len(x), 1) if summed else torch.empty_like(slope)
    size, of_sums = max(1, BLOCK * torch.get_num_threads() // n), summed and level.numel() == 1
    for start in range(0, len(x), size):
        block = slice(start, start + size)
        term, rate = negative_side(slope[block], gamma, clip)
        if not of_sums:
            term.mul_(level)
        value[block] = term.sum(-1, keepdim=True) if summed else term
        torch.mul(rate, level, out=slope[block])
    if of_sums:
        value.mul_(level)
    return value.squeeze(-1) if summed else value, slope


def _marked_terms(x: Tensor, marked: Any, options: Any) -> Side:
    """Terms and slopes of the marked entries, as positives and as negatives together."""
    _, present, absent, _, _ = marked
    (positive, positive_rate), (negative, negative_rate) = _both_sides(x, marked, options)
    if absent is None:
        return present * positive, present * positive_rate
    return present * positive + absent * negative, present * positive_rate + absent * negative_rate


def _both_sides(x: Tensor, marked: Any, options: Any) -> tuple[Side, Side]:
    places, _, absent, unknown, _ = marked
    gamma_positive, gamma_negative, clip = options
    own = x.flatten(-2).gather(-1, places)
    if unknown is not None:
        own = own.masked_fill(unknown, 0)  # a NaN times 0
    positive = positive_side(own, gamma_positive)
    return positive, positive if absent is None else negative_side(own, gamma_negative, clip)


def _parts(x: Tensor, level: Tensor, marked: Any, options: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """In operations that differentiate: the negatives' terms, both terms of what is marked, and the slope of it all."""
    places, present, absent, _, taken = marked
    rest = filled(x.flatten(-2), places, taken, -math.inf).view(x.shape)
    negative, rate = negative_side(rest, *options[1:])
    (positive_terms, positive_rate), (negative_terms, negative_rate) = _both_sides(x, marked, options)
    at_marked = present * positive_rate
    if absent is not None:
        at_marked = at_marked + absent * negative_rate
    slope = add_at(rate * level.unsqueeze(-2), places, at_marked)
    return negative, positive_terms, negative_terms, slope

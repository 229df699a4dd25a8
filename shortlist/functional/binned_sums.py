"""Sums of a smooth function over the entries of each row, at many shifts, in a few passes over the row.

The entries are put into bins. Within a bin the function is nearly a polynomial in the place of an entry, so sums of the
powers of these places stand for the row, and its sums at all shifts are one matrix product. Costs and memory do not
depend on how many entries count, so that nothing has to be read back from an accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction
from shortlist.tensors import no_autocast

WIDTH, POWERS = 0.125, 5
"""Width of a bin, and the number of powers, from 0 on: for functions whose singularities are 1.5 away or more, the
error is below 1e-8."""


class Bins(NamedTuple):
    """A function at ``x + shift`` for all x from ``low`` on."""

    low: float
    table: Tensor  # (POWERS * bins, shifts): the coefficients of each power in each bin

    @classmethod
    def of(cls, function: Callable[[Tensor], Tensor], shifts: Tensor, low: float, high: float) -> Bins:
        """Interpolate ``function`` of float64 at the Chebyshev nodes of each bin."""
        count = math.ceil((high - low) / WIDTH)
        powers = torch.arange(POWERS, dtype=torch.float64)
        nodes = 0.5 + 0.5 * (math.pi * (powers + 0.5) / POWERS).cos()
        starts = low + WIDTH * torch.arange(count, dtype=torch.float64)
        values = function((nodes.unsqueeze(-1) * WIDTH + starts).unsqueeze(-1) + shifts)  # (nodes, bins, shifts)
        table = torch.linalg.solve(nodes.unsqueeze(-1) ** powers, values.flatten(1))
        return cls(low, table.reshape(POWERS * count, -1))


def binned_sums(x: Tensor, bins: Bins) -> Tensor:
    """The sum of ``function(x + shift)`` over each row of ``x`` ``(..., n)``: ``(..., shifts)``, in the dtype of ``x``.

    What is outside of the range of ``bins`` counts as its nearest end, and has the gradient there. Like any matrix
    product in float32, it has the precision of ``torch.set_float32_matmul_precision``.
    """
    powers = _BinnedPowers.run(x, bins.low, len(bins.table) // POWERS)[0]
    with no_autocast(x.device):
        return powers @ bins.table


class _BinnedPowers(RowFunction):
    """``x, low, bins -> sums, bin, place``: for each bin, of the powers of its entries' places, which lie in [0, 1)."""

    @staticmethod
    def forward(x: Tensor, low: float, bins: int) -> tuple[Tensor, Tensor, Tensor]:
        place = torch.sub(x, low).mul_(1 / WIDTH).clamp_(0, bins - 1e-3)
        number = place.to(torch.int32).clamp_(0, bins - 1)  # also where a place is not a number
        place.sub_(number)
        sums = x.new_zeros(*x.shape[:-1], POWERS, bins)
        power = x.new_ones(1).expand(x.shape)
        for degree in range(POWERS):
            power = power * place if degree > 1 else place if degree else power
            sums.select(-2, degree).scatter_add_(-1, number, power)
        return sums.flatten(-2), number, place

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.bins = inputs[2]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output[1:])
        ctx.save_for_forward(*output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: None, to_place: Tensor | None) -> tuple[Tensor | None, ...]:
        """The place, an output, passes its gradient on, so that this can be differentiated itself."""
        number, place = ctx.saved_tensors
        slope = None if to_place is None else to_place / WIDTH
        if gradient is None:
            return slope, None, None
        *rates, rate = (
            (column * (degree / WIDTH)).gather(-1, number)
            for degree, column in enumerate(gradient.unflatten(-1, (POWERS, ctx.bins)).unbind(-2))
            if degree
        )
        for lower in reversed(rates):
            rate = torch.addcmul(lower, rate, place)
        return rate if slope is None else rate + slope, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None, Tensor]:
        number, place = ctx.saved_tensors
        power = moved = x_tangent / WIDTH
        none = place.new_zeros(*place.shape[:-1], ctx.bins)
        sums = [none]
        for degree in range(1, POWERS):
            sums.append(none.scatter_add(-1, number, degree * power))
            power = power * place
        return torch.cat(sums, -1), None, moved

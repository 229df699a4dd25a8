"""Constrained softmax: a softmax that sums to k, with no probability above 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.checks import check_temperature
from shortlist.functional.blocks import column, row_blocks
from shortlist.functional.projections.centring import centred_gradient, centred_tangent, keep_projection
from shortlist.functional.row_function import RowFunction
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import at_most_finite, log_sigmoid

_MAX_STEPS = 12


def constrained_softmax(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Projection onto the vectors in [0, 1] that sum to ``k``, by the entropy :math:`-\sum_j p_j \log p_j`.

    .. math:: p = \min\!\left(1, e^{(x + \nu) / T}\right), \quad \textstyle\sum_j p_j = k

    With ``k = 1`` this is softmax.

    Args:
        logits: any shape, floating. ``-inf`` marks an absent label (p = 0); a ``+inf`` label is certain (p = 1) and
            the rest share what is left of ``k``; NaN makes its own row NaN. float16 and bfloat16 are solved in
            float32.
        k: how many labels, whole or not: a number in [0, n], or a tensor with one value per row, differentiable,
            whose values outside [0, n] give rows of NaN. Where no more than ``k`` labels are present, each has
            p = 1.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``; differentiable except where a label just reaches 1.

    Example:
        >>> constrained_softmax(torch.tensor([3.0, 1.0, 0.0, 0.0]), k=2)
        tensor([1.0000, 0.5761, 0.2119, 0.2119])

    References:
        Martins, Kreutzer, "Learning What's Easy: Fully Differentiable Neural Easy-First Taggers", 2017.
    """
    rows = as_rows(logits, k, dim=dim, mask=mask)
    p = _ConstrainedSoftmax.run(rows.logits, rows.k, check_temperature(temperature))
    return rows.restore(p, logits, dim)


class _ConstrainedSoftmax(RowFunction):
    """``x, k, T -> p``. With u = p where p < 1, else 0, the Jacobian in x is ``(diag(u) - u u^T / sum u) / T``."""

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: float) -> Tensor:
        k = k.expand(*x.shape[:-1], 1)
        if x.numel() == 0:
            return x.clone()
        if x.device.type != "cpu" or torch.compiler.is_exporting():
            return _capped(x, *_exact(x, k, temperature), temperature)
        return _constrained_softmax_cpu(x, k, temperature)

    setup_context = staticmethod(keep_projection)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        return centred_gradient(ctx, *_free(ctx.saved_tensors[0]), gradient)

    @staticmethod
    def tangent(ctx: Any, x: Tensor | None, k: Tensor | None, _: None) -> Tensor:
        return centred_tangent(ctx, *_free(ctx.saved_tensors[0]), x, k)


def _free(p: Tensor) -> tuple[Tensor, Tensor]:
    """p where it is below 1, else 0, and the sum of that."""
    free = p * (p < 1)
    return free, free.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)


def _capped(x: Tensor, pivot: Tensor, delta: Tensor, temperature: float) -> Tensor:
    shifted = at_most_finite(x) - pivot
    return torch.minimum(shifted / temperature + delta, delta.new_zeros(())).exp()


@torch.library.custom_op("shortlist::constrained_softmax_cpu", mutates_args=())
def _constrained_softmax_cpu(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    """One opaque call: its steps depend on the data, which a compiler cannot follow."""
    rows, rows_k = x.reshape(-1, x.shape[-1]), k.reshape(-1, 1)
    p = torch.empty_like(rows)
    for block in row_blocks(rows):
        with np.errstate(all="ignore"):
            settled = _raise_cap(rows[block], rows_k[block], temperature, p[block])
        left = torch.from_numpy(np.flatnonzero(~settled) + block.start)
        if left.numel():
            p[left] = _capped(rows[left], *_exact(rows[left], rows_k[left], temperature), temperature)
    return p.view(x.shape)


@_constrained_softmax_cpu.register_fake
def _(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    return x.new_empty(x.shape)


def _raise_cap(x: Tensor, k: Tensor, temperature: float, p: Tensor) -> np.ndarray:
    """Fill ``p``; returns which rows are settled.

    The sum of min(1, e t) is concave in t, so Newton's method climbs to the root from below: each step fixes the
    labels that have reached 1 and shares the rest of k among the others, until no further label reaches 1.
    """
    e = x - x.amax(-1, keepdim=True)
    if temperature != 1:
        e.div_(temperature)
    e.exp_()
    wanted = column(k)
    scale = wanted / column(e.sum(-1, keepdim=True))
    capped, settled = np.zeros_like(wanted), np.zeros_like(wanted, dtype=bool)
    part = torch.empty_like(x)
    for _ in range(_MAX_STEPS):
        torch.mul(e, torch.from_numpy(scale).to(x.dtype), out=p).clamp_(max=1)
        free = column(torch.frac(p, out=part).sum(-1, keepdim=True))
        count = np.rint(column(p.sum(-1, keepdim=True)) - free)
        settled = (count == capped) & (free > 0) & (count < wanted)
        if settled.all():
            break
        scale, capped = np.where(settled, scale, scale * (wanted - count) / free), count
    # Far above 1 the scale would bring back exponentials that have underflowed.
    return settled & (scale < torch.finfo(x.dtype).max ** 0.2)


def _exact(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``pivot`` and ``delta`` with ``p = exp(min(0, (x - pivot) / T + delta))``, by sorting, in float64."""
    dtype, n = x.dtype, x.shape[-1]
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    largest = torch.finfo(dtype).max
    x, k = at_most_finite(x).to(wide), k.to(wide)
    ordered = x.sort(dim=-1, descending=True).values
    present = (ordered > -math.inf).sum(-1, keepdim=True)
    none, everything = k <= 0, k >= present
    rank = torch.where(everything, present - 1, k.nan_to_num().clamp(0, n).ceil().long() - 1).clamp(min=0)
    pivot = torch.where(none, ordered[..., :1], ordered.gather(-1, rank)).clamp(min=-largest)
    y = (ordered - pivot) / temperature

    # With the first j labels at 1 the others share k - j; once the next label stays below 1, so do all after it.
    # Labels far above the pivot are at 1 whatever their distance; the bound keeps their sum finite.
    y = torch.minimum(y, y.new_full((), math.log(torch.finfo(wide).max) - 100))
    tail = y.exp().flip(-1).cumsum(-1).flip(-1).log()
    after = pad(tail[..., 1:], (0, 1), value=-math.inf)
    share = (k - torch.arange(n, device=x.device)).clamp(min=0).log()
    capped = (share > -log_sigmoid(y - after)).sum(-1, keepdim=True).clamp(max=n - 1)
    delta = share.gather(-1, capped) - tail.gather(-1, capped)
    delta = torch.where(none, -math.inf, torch.where(everything, largest / 4, delta))
    valid = (k >= 0) & (k <= n) & ~ordered[..., :1].isnan()  # NaN sorts first
    delta = torch.where(valid, delta, math.nan)
    return pivot.to(dtype), delta.to(dtype)

"""Constrained softmax: a softmax that sums to k, with no probability above 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.functional.autograd import (
    RowFunction,
    opaque,
    projection_gradient,
    projection_tangent,
    save_projection,
)
from shortlist.functional.selection import select
from shortlist.kernels.chooser import fixed_steps
from shortlist.label_axis.axis import row_blocks
from shortlist.label_axis.rows import as_rows, flat_rows
from shortlist.tensors import at_most_finite, check_logits, check_temperature, log_sigmoid, wide

_MAX_STEPS = 12

_FAR = 40.0
"""Next to exp of this, 1,000,000 labels at the pivot are nothing in float32."""

_FIXED_STEPS = {torch.float32: 14, torch.float64: 18}
"""Enough for normal and exponential rows of any spread with 100,000 labels, which need 12."""


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
        logits: as for :func:`lml`, but not sharded.
        k: as for :func:`lml`.
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
    check_logits(logits, dim)
    rows = as_rows(logits, k, dim=dim, mask=mask)
    p = _ConstrainedSoftmax.run(rows.logits, rows.wanted, check_temperature(temperature), None)
    return rows.restore(p, logits, dim)


class _ConstrainedSoftmax(RowFunction):
    """``x, k, T, shards -> p``. The Jacobian has the weights p where p < 1, else 0."""

    @staticmethod
    def forward(x: Tensor, k: Tensor | float, temperature: float, shards: None) -> Tensor:
        if x.numel() == 0:
            return x.clone()
        if not isinstance(k, Tensor) and 0 < 2 * k < x.shape[-1]:
            return _capped(x, *_among_few(x, k, temperature), temperature)
        k = torch.full((), k, dtype=x.dtype, device=x.device) if not isinstance(k, Tensor) else k
        k = k.expand(*x.shape[:-1], 1)
        if torch.compiler.is_exporting():
            return _capped(x, *_exact(x, k, temperature), temperature)
        if fixed_steps(x):
            return _capped(x, *_in_fixed_steps(x, k, temperature), temperature)
        return (_project_op if torch.compiler.is_compiling() else _project_cpu)(x, k, temperature)

    setup_context = staticmethod(save_projection)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return projection_gradient(ctx, _below_cap(ctx.saved_tensors[0]), gradient)

    @staticmethod
    def tangent(ctx: Any, x: Tensor | None, k: Tensor | None, *_: None) -> Tensor:
        return projection_tangent(ctx, _below_cap(ctx.saved_tensors[0]), x, k)


def _below_cap(p: Tensor) -> Tensor:
    """p where it is below 1, else 0."""
    return p * (p < 1)


def _capped(x: Tensor, pivot: Tensor, delta: Tensor, temperature: float) -> Tensor:
    shifted = at_most_finite(x) - pivot
    shifted = shifted if temperature == 1 else shifted / temperature
    return torch.minimum(shifted + delta, torch.zeros((), dtype=x.dtype, device=x.device)).exp()


def _project_cpu(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    rows, rows_k = flat_rows(x, k)
    p = torch.empty_like(rows, memory_format=torch.contiguous_format)
    for block in row_blocks(rows):
        with np.errstate(all="ignore"):
            settled = _raise_cap(rows[block], rows_k[block], temperature, p[block])
        left = torch.from_numpy(np.flatnonzero(~settled) + block.start)
        if left.numel():
            p[left] = _capped(rows[left], *_exact(rows[left], rows_k[left], temperature), temperature)
    return p.view(x.shape)


# The compiler calls this as it is: its steps depend on the data.
_project_op = opaque(
    "constrained_softmax",
    "(Tensor x, Tensor k, float temperature) -> Tensor",
    _project_cpu,
    lambda x, k, temperature: x.new_empty(x.shape),
)


def _column(values: Tensor) -> np.ndarray:
    """Per-row values in float64: for a few hundred rows, a numpy call costs a fraction of a tensor operation."""
    return values.numpy().astype(np.float64)


def _raise_cap(x: Tensor, k: Tensor, temperature: float, p: Tensor) -> np.ndarray:
    """Fill ``p``; returns which rows are settled.

    The sum of min(1, e t) is concave in t, so Newton's method approaches the root from below: each step fixes the
    labels that have reached 1 and shares the rest of k among the others, until no other label reaches 1.
    """
    e = x - x.amax(-1, keepdim=True)
    if temperature != 1:
        e.div_(temperature)
    e.exp_()
    wanted = _column(k)
    scale = wanted / _column(e.sum(-1, keepdim=True))
    capped, settled = np.zeros_like(wanted), np.zeros_like(wanted, dtype=bool)
    fraction = torch.empty_like(p)
    for _ in range(_MAX_STEPS):
        torch.mul(e, torch.from_numpy(scale).to(x.dtype), out=p).clamp_(max=1)
        free = _column(torch.frac(p, out=fraction).sum(-1, keepdim=True))
        count = np.rint(_column(p.sum(-1, keepdim=True)) - free)
        settled = (count == capped) & (free > 0) & (count < wanted)
        if settled.all():
            break
        scale, capped = np.where(settled, scale, scale * (wanted - count) / free), count
    # If k takes every label, all are 1 exactly; a sum of rounded numbers would leave some just below, with a gradient.
    whole = (wanted > 1) & (wanted == np.rint(wanted))
    if whole.any():
        settled &= ~whole | (wanted < _column(torch.count_nonzero(e, dim=-1).unsqueeze(-1)))
    # Far above 1 the scale would bring back exponentials that have underflowed.
    return settled & (scale < torch.finfo(x.dtype).max ** 0.2)


def _among_few(x: Tensor, k: float, temperature: float) -> tuple[Tensor, Tensor]:
    """``pivot`` and ``delta`` on accelerators for a small number ``k``: only the first floor(k) labels can reach 1.

    As in `_exact`, but among them alone; the others add one sum, in the precision of ``x``.
    """
    limits = torch.finfo(x.dtype)
    top, places = x.topk(int(k) + 1)  # NaN sorts first
    top = at_most_finite(top)
    last = math.ceil(k) - 1
    pivot = top[..., last : last + 1].nan_to_num(limits.min)
    rest = at_most_finite(x).scatter_(-1, places, -math.inf).sub_(pivot)
    rest = rest if temperature == 1 else rest.div_(temperature)
    y = top - pivot
    # Labels far above the pivot are at 1 anyway; the bound keeps their sum finite.
    e = (y if temperature == 1 else y.div_(temperature)).clamp_(max=_FAR).exp_()
    tail = e.flip(-1).cumsum(-1).flip(-1) + rest.exp_().sum(-1, keepdim=True)
    share = k - torch.arange(int(k) + 1, dtype=x.dtype, device=x.device)
    capped = (e * share > tail).sum(-1, keepdim=True)
    delta = (share[capped] / tail.gather(-1, capped)).log_()
    delta = delta.masked_fill(top[..., -1:] == -math.inf, limits.max / 4)
    return pivot, delta.masked_fill(top[..., :1].isnan(), math.nan)


def _in_fixed_steps(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``pivot`` and ``delta``, without data-dependent branches and in the precision of ``x``.

    The label of rank ceil(k) bounds the scale t of ``sum min(1, e t) = k`` to at most 1; with all larger labels at 1,
    it is at least (k - their number) / the sum of the others. From there Newton's method rises to the root.
    """
    n, limits = x.shape[-1], torch.finfo(x.dtype)
    x = at_most_finite(x)
    pivot = select(x, k.ceil() - 1)
    y = x - pivot.clamp(min=limits.min)
    y = y if temperature == 1 else y.div_(temperature)
    capped, e, inverse = y > 0, y.exp(), k
    for _ in range(_FIXED_STEPS[x.dtype]):
        share = k - capped.sum(-1, keepdim=True)
        inverse = e.masked_fill(capped, 0).sum(-1, keepdim=True) / share
        capped = e > inverse
    delta = -inverse.log()
    delta = delta.masked_fill((pivot == -math.inf) | (k >= n), limits.max / 4)
    delta = delta.masked_fill(k <= 0, -math.inf)
    delta = delta.masked_fill((k.clamp(0, n) != k) | pivot.isnan(), math.nan)
    return pivot.clamp(min=limits.min), delta


def _exact(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``pivot`` and ``delta`` with ``p = exp(min(0, (x - pivot) / T + delta))``, by sorting, in float64."""
    dtype, n = x.dtype, x.shape[-1]
    precision = wide(x)
    largest = torch.finfo(dtype).max
    x, k = at_most_finite(x).to(precision), k.to(precision)
    ordered = x.sort(dim=-1, descending=True).values
    present = (ordered > -math.inf).sum(-1, keepdim=True)
    none, everything = k <= 0, k >= present
    rank = torch.where(everything, present - 1, k.nan_to_num().clamp(0, n).ceil().long() - 1).clamp(min=0)
    pivot = torch.where(none, ordered[..., :1], ordered.gather(-1, rank)).clamp(min=-largest)
    y = (ordered - pivot) / temperature

    # With the first j labels at 1 the others share k - j; once the next label stays below 1, so do all after it.
    # Labels far above the pivot are at 1 anyway; the bound keeps their sum finite.
    y = torch.minimum(y, y.new_full((), math.log(torch.finfo(precision).max) - 100))
    tail = y.exp().flip(-1).cumsum(-1).flip(-1).log()
    after = pad(tail[..., 1:], (0, 1), value=-math.inf)
    share = (k - torch.arange(n, device=x.device)).clamp(min=0).log()
    capped = (share > -log_sigmoid(y - after)).sum(-1, keepdim=True).clamp(max=n - 1)
    delta = share.gather(-1, capped) - tail.gather(-1, capped)
    delta = torch.where(none, -math.inf, torch.where(everything, largest / 4, delta))
    valid = (k >= 0) & (k <= n) & ~ordered[..., :1].isnan()  # NaN sorts first
    delta = torch.where(valid, delta, math.nan)
    return pivot.to(dtype), delta.to(dtype)

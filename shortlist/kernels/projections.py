"""The kernels of the projections as functions of float32 tensors ``(..., n)`` on the CPU.

They import numba on the first call. Rows that do not converge are reported by index.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_NO_ROWS = torch.empty(0, dtype=torch.int64)


class Projected(NamedTuple):
    """Projections ``(..., n)``, valid except for the ``unsettled`` rows, which did not converge."""

    p: Tensor
    unsettled: Tensor


def lml(x: Tensor, k: Tensor, temperature: float) -> Projected:
    """LML of the rows of ``x``."""
    return _projected("lml", x, k, temperature)


def sparse_top(x: Tensor, k: Tensor, temperature: float) -> Projected:
    """Sparse-top of the rows of ``x``."""
    return _projected("sparse_top", x, k, temperature)


def _projected(kernel: str, x: Tensor, k: Tensor, temperature: float) -> Projected:
    x = x.contiguous()
    p = torch.empty_like(x)
    left = _run(kernel, x, temperature, k=_flat(k, x), out=p)
    return Projected(p, _unsettled(p, left))


class Root(NamedTuple):
    """``p = sigmoid((x - pivot) / T + delta)`` with columns ``(..., 1)``, valid except in ``unsettled`` rows."""

    pivot: Tensor
    delta: Tensor
    unsettled: Tensor


def lml_root(x: Tensor, k: Tensor, temperature: float) -> Root:
    """The root of LML for each row of ``x``."""
    x = x.contiguous()
    root = x.new_empty((*x.shape[:-1], 2))
    left = _run("lml_root", x, temperature, k=_flat(k, x), per_row=root)
    pivot, delta = (column.contiguous() for column in root.split(1, -1))
    return Root(pivot, delta, _unsettled(delta, left))


class RootGradient(NamedTuple):
    """``values q / sum q`` ``(..., n)`` and ``1 / sum q`` ``(..., 1)``, valid except in ``unsettled`` rows."""

    to_x: Tensor
    per_k: Tensor
    unsettled: Tensor


def lml_root_gradient(x: Tensor, pivot: Tensor, delta: Tensor, values: Tensor, temperature: float) -> RootGradient:
    """The gradient of the root, given one of ``values`` ``(..., 1)`` per row, with ``q = p (1 - p)``."""
    x = x.contiguous()
    out, per_row = torch.empty_like(x), torch.cat([pivot, delta, values], -1)
    left = _run("lml_root_gradient", x, temperature, out=out, per_row=per_row)
    return RootGradient(out, per_row[..., 2:].contiguous(), _unsettled(out, left))


def lml_gradient(p: Tensor, gradient: Tensor, temperature: float) -> Tensor:
    """``q (gradient - mean) / T``, with the mean of ``gradient`` weighted by ``q = p (1 - p)``."""
    p = p.contiguous()
    out = torch.empty_like(p)
    _run("lml_gradient", p, temperature, y=gradient.contiguous(), out=out)
    return out


def sparse_top_gradient(p: Tensor, gradient: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``(gradient - mean) / T`` where 0 < p < 1, else 0; and the mean of ``gradient`` there, ``(..., 1)``."""
    p = p.contiguous()
    out, mean = torch.empty_like(p), p.new_empty((*p.shape[:-1], 1))
    _run("sparse_top_gradient", p, temperature, y=gradient.contiguous(), out=out, per_row=mean)
    return out, mean


def _run(kernel: str, x: Tensor, temperature: float, **others: Tensor) -> int:
    from shortlist.kernels import threads

    return threads.run(kernel, x, temperature, **others)


def _flat(k: Tensor, x: Tensor) -> Tensor:
    """One value, or one for each row of ``x``, contiguous."""
    k = k.to(x.dtype)
    return k if k.numel() == 1 else k.expand(*x.shape[:-1], 1).contiguous()


def _unsettled(output: Tensor, count: int) -> Tensor:
    """The indices of rows whose first entry is marked by NaN, if any."""
    return output[..., 0].reshape(-1).isnan().nonzero().squeeze(-1) if count else _NO_ROWS

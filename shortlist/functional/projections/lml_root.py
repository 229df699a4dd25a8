"""The root of the LML projection: one scalar per row, to full precision for every row.

With ``e_j = exp((x_j - max x) / T)`` the projection is ``p_j = e_j / (e_j + s)``; the scale ``s > 0`` is the root
of ``sum_j p_j = k``. Newton's method finds it in 2-5 passes over realistic rows (``loops``, where they serve, or
``lml_newton.py``); what it does not settle goes to a solver that sorts (``lml_exact.py``). Accelerators and exports
take the latter at once, because asking whether a row is done would wait for the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.functional.loops import on_tensors, serve
from shortlist.functional.opaque import opaque
from shortlist.functional.projections.lml_exact import exact_dual
from shortlist.functional.projections.lml_newton import newton_blocks
from shortlist.tensors import at_most_finite

_HARMLESS = 1e-4
"""At scales below, the exponentials of labels with a tiny p may have underflowed: p is computed from its log-odds."""


def solve_dual(x: Tensor, k: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``(pivot, delta)`` with ``p = sigmoid((x - pivot) / T + delta)`` summing to ``k`` in every row.

    Args:
        x: ``(..., n)``, float32 or float64.
        k: broadcastable to ``(..., 1)``, same dtype.
        temperature: ``T``.

    Returns:
        Two tensors ``(..., 1)``. The pivot is finite and near the root, so that the difference keeps its digits
        for any offset of ``x``; ``delta`` is huge where all labels are taken and -inf where none is; both are
        NaN for a row that holds NaN, ``delta`` alone where ``k`` is outside [0, n].
    """
    k = k.expand(*x.shape[:-1], 1)
    if x.numel() == 0:
        return torch.zeros_like(k), torch.full_like(k, -math.inf)
    if not _may_look(x):
        return exact_dual(x, k, temperature)
    if torch.compiler.is_compiling():
        return _dual_op(x, k, temperature)
    if serve(temperature, x, k):
        root = on_tensors.lml_root(x, k, temperature, lambda *rows: torch.cat(exact_dual(*rows), -1))
        return root[..., :1].contiguous(), root[..., 1:].contiguous()
    rows, rows_k = x.reshape(-1, x.shape[-1]), k.reshape(-1, 1)
    pivot, delta = torch.empty_like(rows_k), torch.empty_like(rows_k)
    for block, block_pivot, _, scale, left in newton_blocks(rows, rows_k, temperature):
        pivot[block], delta[block] = block_pivot, -scale.log()
        if left.numel():
            pivot[left], delta[left] = exact_dual(rows[left], rows_k[left], temperature)
    return pivot.view(k.shape), delta.view(k.shape)


def solve_projection(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    """``sigmoid((x - pivot) / T + delta)``, shaped like ``x``, with the exponentials of the solver used again."""
    if x.numel() == 0 or not _may_look(x):
        return centred(x, *solve_dual(x, k, temperature), temperature).sigmoid()
    if torch.compiler.is_compiling():
        return _projection_op(x, k, temperature)
    if serve(temperature, x, k):
        return on_tensors.lml(x, k, temperature, _sorted_projection)
    k = k.expand(*x.shape[:-1], 1)
    rows, rows_k = x.reshape(-1, x.shape[-1]), k.reshape(-1, 1)
    p = torch.empty_like(rows)
    for block, pivot, e, scale, left in newton_blocks(rows, rows_k, temperature, buffer=p):
        if scale.min() > _HARMLESS:
            torch.div(e, torch.add(e, scale, out=p[block]), out=p[block])
        else:
            y = torch.sub(rows[block], pivot, out=p[block])
            (y if temperature == 1 else y.div_(temperature)).sub_(scale.log()).sigmoid_()
        if left.numel():
            p[left] = _sorted_projection(rows[left], rows_k[left], temperature)
    return p.view(x.shape)


def centred(x: Tensor, pivot: Tensor, delta: Tensor, temperature: float) -> Tensor:
    """``(x - pivot) / T + delta``: the log-odds of the projection. +inf counts as the largest finite number."""
    return (at_most_finite(x) - pivot) / temperature + delta


def _sorted_projection(x: Tensor, k: Tensor, temperature: float) -> Tensor:
    return centred(x, *exact_dual(x, k, temperature), temperature).sigmoid()


# For a compiler, which cannot follow steps that depend on the data: one call each.
_dual_op = opaque(
    "lml_dual",
    "(Tensor x, Tensor k, float temperature) -> (Tensor, Tensor)",
    solve_dual,
    lambda x, k, temperature: (x.new_empty((*x.shape[:-1], 1)), x.new_empty((*x.shape[:-1], 1))),
)
_projection_op = opaque(
    "lml",
    "(Tensor x, Tensor k, float temperature) -> Tensor",
    solve_projection,
    lambda x, k, temperature: x.new_empty(x.shape),
)


def _may_look(x: Tensor) -> bool:
    """Whether reading a value on the way costs nothing and may steer the work."""
    return x.device.type == "cpu" and not torch.compiler.is_exporting()

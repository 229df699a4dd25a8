"""The compiled loops as functions of float32 tensors ``(..., n)`` on the CPU.

Numba is imported when one of them is called.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Exact = Callable[[Tensor, Tensor, float], Tensor]
"""A solver for the rows ``(rows, n)``, with ``k`` ``(rows, 1)``, that a loop does not settle."""


Slopes = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""``x, pivot, delta, T -> q / sum q, 1 / sum q`` for rows that a loop does not settle."""


def lml(x: Tensor, k: Tensor, temperature: float, exact: Exact) -> Tensor:
    """LML of the rows of ``x``."""
    return _projection("lml", x, k, temperature, exact)


def sparse_top(x: Tensor, k: Tensor, temperature: float, exact: Exact) -> Tensor:
    """Sparse-top of the rows of ``x``."""
    return _projection("sparse_top", x, k, temperature, exact)


def _projection(loop: str, x: Tensor, k: Tensor, temperature: float, exact: Exact) -> Tensor:
    x = x.contiguous()
    p = torch.empty_like(x)
    if _run(loop, x, temperature, k=_flat(k, x), out=p):
        _settle(p.view(-1, x.shape[-1]), p[..., 0], x, k, temperature, exact)
    return p


def lml_root(x: Tensor, k: Tensor, temperature: float, exact: Exact) -> Tensor:
    """``pivot`` and ``delta`` ``(..., 2)``, with ``p = sigmoid((x - pivot) / T + delta)``."""
    x = x.contiguous()
    root = x.new_empty((*x.shape[:-1], 2))
    if _run("lml_root", x, temperature, k=_flat(k, x), per_row=root):
        _settle(root.view(-1, 2), root[..., 1], x, k, temperature, exact)
    return root


def lml_root_gradient(
    x: Tensor, pivot: Tensor, delta: Tensor, values: Tensor, temperature: float, slopes: Slopes
) -> tuple[Tensor, Tensor]:
    """``values q / sum q`` and ``1 / sum q``, ``(..., 1)`` as ``values`` are, with ``q = p (1 - p)``."""
    x = x.contiguous()
    out, per_row = torch.empty_like(x), torch.cat([pivot, delta, values], -1)
    if _run("lml_root_gradient", x, temperature, out=out, per_row=per_row):
        left = out[..., 0].isnan()
        shares, per_k = slopes(x[left], pivot[left], delta[left], temperature)
        out[left], per_row[left, 2:] = shares * values[left], per_k
    return out, per_row[..., 2:]


def lml_gradient(p: Tensor, gradient: Tensor, temperature: float) -> Tensor:
    """``q (gradient - mean) / T``, with the mean of ``gradient`` by the weights ``q = p (1 - p)``."""
    p = p.contiguous()
    out = torch.empty_like(p)
    _run("lml_gradient", p, temperature, y=gradient.contiguous(), out=out)
    return out


def sparse_top_gradient(p: Tensor, gradient: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``(gradient - mean) / T`` where 0 < p < 1, else 0, and the mean of ``gradient`` there, ``(..., 1)``."""
    p = p.contiguous()
    out, mean = torch.empty_like(p), p.new_empty((*p.shape[:-1], 1))
    _run("sparse_top_gradient", p, temperature, y=gradient.contiguous(), out=out, per_row=mean)
    return out, mean


def noised_kth(x: Tensor, k: int, epsilon: float, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Of rows ``(rows, n)``: the mean of the k-th largest of ``x + epsilon Z`` over samples, and where it lies.

    The mean ``(rows,)`` is NaN in rows that are not finite; the share of the samples in which a label is the k-th is
    ``(rows, n)``. Neither depends on the number of threads.
    """
    from shortlist.functional.loops import noise_code, threads

    x = x.contiguous()
    mean, share = x.new_empty(x.shape[0]), torch.empty_like(x)
    logits, means, shares = x.numpy(), mean.numpy(), share.numpy()

    def work(start: int, stop: int) -> None:
        noise_code.noised_kth(logits, k, float(epsilon), samples, np.uint64(seed), start, stop, means, shares)

    threads.run_parts(work, x.shape[0], samples * x.numel())
    return mean, share


def _run(loop: str, x: Tensor, temperature: float, **others: Tensor) -> int:
    from shortlist.functional.loops import threads

    return threads.run(loop, x, temperature, **others)


def _flat(k: Tensor, x: Tensor) -> Tensor:
    """One value, or one for each row of ``x``, in one piece."""
    k = k.to(x.dtype)
    return k if k.numel() == 1 else k.expand(*x.shape[:-1], 1).contiguous()


def _settle(answer: Tensor, marks: Tensor, x: Tensor, k: Tensor, temperature: float, exact: Exact) -> None:
    """Replace the rows of ``answer`` whose mark is NaN."""
    left = marks.reshape(-1).isnan().nonzero().squeeze(-1)
    rows, rows_k = x.view(-1, x.shape[-1]), k.expand(*x.shape[:-1], 1).reshape(-1, 1)
    answer[left] = exact(rows[left], rows_k[left], temperature)

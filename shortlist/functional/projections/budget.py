"""Budgets: at most k labels, where the projections ask for exactly k."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from shortlist.functional.projections.lml import lml
from shortlist.functional.projections.sparse_top import sparse_top
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import check_temperature


def lml_budget(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Independent sigmoids where they sum to at most ``k``, else :func:`lml`.

    .. math:: p = \arg\max_p\; x \cdot p + T H_b(p), \quad 0 \le p \le 1, \; \textstyle\sum_j p_j \le k

    Args:
        logits: as for :func:`lml`.
        k: the most labels that may be spent; a non-negative number or a tensor with one value per row. More than n
            is no constraint.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``.

    Example:
        >>> lml_budget(torch.tensor([[2.0, 1.0, 0.0, -1.0], [-2.0, -3.0, -4.0, -4.0]]), k=2).sum(-1)
        tensor([2.0000, 0.2026])
    """
    temperature = check_temperature(temperature)
    rows = as_rows(logits, _at_most_all(k, logits, dim), dim=dim, mask=mask)
    free = (rows.logits / temperature).sigmoid()
    return rows.restore(_spend(free, lml(rows.logits, rows.k, temperature=temperature)), logits, dim)


def sparse_top_budget(
    logits: Tensor,
    k: float | Tensor,
    *,
    dim: int = -1,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""``clip(x / T, 0, 1)`` where that sums to at most ``k``, else :func:`sparse_top`.

    .. math:: p = \arg\min_p\; \tfrac12 \|p - x / T\|^2, \quad 0 \le p \le 1, \; \textstyle\sum_j p_j \le k

    Args:
        logits: as for :func:`sparse_top`.
        k: the most labels that may be spent; a non-negative number or a tensor with one value per row. More than n
            is no constraint.
        dim: the label axis.
        temperature: ``T``, a positive number.
        mask: bool, broadcastable to ``logits``; ``False`` marks an absent label.

    Returns:
        Same shape and dtype as ``logits``.

    Example:
        >>> sparse_top_budget(torch.tensor([0.75, 0.5, -1.0]), k=2)
        tensor([0.7500, 0.5000, 0.0000])
    """
    temperature = check_temperature(temperature)
    rows = as_rows(logits, _at_most_all(k, logits, dim), dim=dim, mask=mask)
    free = (rows.logits / temperature).clamp(0, 1)
    bound = sparse_top(rows.logits, rows.k, temperature=temperature)
    return rows.restore(_spend(free, bound), logits, dim)


def _at_most_all(k: float | Tensor, logits: Tensor, dim: int) -> float | Tensor:
    """A budget of more than n labels is a budget of n."""
    if not isinstance(logits, Tensor) or not -logits.ndim <= dim < logits.ndim:
        return k  # `as_rows` says what is wrong
    if isinstance(k, Tensor):
        return k.clamp(max=logits.shape[dim]) if k.is_floating_point() or k.dtype == torch.int64 else k
    return min(k, logits.shape[dim]) if isinstance(k, Real) else k


def _spend(free: Tensor, bound: Tensor) -> Tensor:
    """``bound`` where the budget binds: there its shift is negative, so each entry is below its free value.

    Sums could not tell by how little a budget is exceeded.
    """
    return torch.where(bound >= free, free, bound)

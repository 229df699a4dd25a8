"""Fenchel-Young losses: each projection trains by "prediction - target"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction
from shortlist.functional.losses.labeled_logits import own_logits, without_unknown
from shortlist.functional.projections.lml import lml, lml_dual, log_odds, solve_root
from shortlist.functional.projections.sparse_top import sparse_top
from shortlist.label_axis.rows import as_rows
from shortlist.labels import read_labels
from shortlist.tensors import check_logits, log_sigmoid, solvable


class Potential(Protocol):
    """Convex map ``(..., n) -> (...)`` whose gradient is the prediction that it trains."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """The largest value of ``logits . p + entropy(p)`` over the predictions ``p``."""
        ...


def fenchel_young_loss(logits: Tensor, target: Tensor, potential: Potential) -> Tensor:
    r"""The loss whose gradient is prediction minus target.

    .. math:: \ell(x, y) = \Omega^*(x) - x \cdot y, \qquad \nabla_x \ell = \nabla \Omega^*(x) - y

    It is convex; with the potentials of this module and a target that they can predict it is non-negative, and zero
    only where the prediction is the target (for soft targets up to the target's own entropy, which is left out).

    Args:
        logits: ``(*rows, n)``, floating.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out. A floating multi-hot may
            hold soft targets in [0, 1].
        potential: :class:`SoftmaxPotential`, :class:`LMLPotential`, ... or any convex function of the logits.

    Returns:
        One value per row, ``(*rows,)``; float16 and bfloat16 are computed in float32, and so is the result. A row whose
        labels are all unknown is 0.

    Example:
        >>> logits = torch.tensor([[2.0, 1.0, -1.0]])
        >>> fenchel_young_loss(logits, torch.tensor([0]), SoftmaxPotential())
        tensor([0.3490])
        >>> fenchel_young_loss(logits, torch.tensor([[0, 1]]), LMLPotential(2))
        tensor([0.7390])

    References:
        Blondel, Martins, Niculae, "Learning with Fenchel-Young Losses", 2020.
    """
    check_logits(logits)
    work = solvable(logits)
    labels = read_labels(target, work.shape, dtype=work.dtype)
    x, present = work.reshape(labels.num_rows, work.shape[-1]), labels.present
    positives = labels.sum_along(torch.where(present > 0, own_logits(x, labels), 0) * present)
    known, nothing = without_unknown(x, labels), None
    if labels.unknown is not None:
        # Nothing is left to predict in such a row, and a potential of nothing may be infinite.
        nothing = (labels.sum_along(labels.unknown.to(x.dtype)) == x.shape[-1]).unsqueeze(-1)
        known = torch.where(nothing, 0, known)
    values = potential(known.reshape(work.shape))
    if nothing is not None:
        values = torch.where(nothing.reshape(values.shape), 0, values)
    return values - positives.reshape(labels.row_shape)


@dataclass(frozen=True)
class SigmoidPotential:
    """``sum_j log(1 + exp x_j)``: independent labels; the loss is binary cross-entropy."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """One value per row."""
        return -log_sigmoid(-solvable(logits)).sum(-1).to(logits.dtype)  # softplus drops its tail above 20


@dataclass(frozen=True)
class SoftmaxPotential:
    """``log sum_j exp x_j``: one label; the loss is cross-entropy."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """One value per row."""
        return solvable(logits).logsumexp(-1).to(logits.dtype)


@dataclass(frozen=True)
class LMLPotential:
    """``k`` labels by binary entropy: its gradient is :func:`shortlist.functional.lml`."""

    k: float | Tensor

    def __call__(self, logits: Tensor, /) -> Tensor:
        r"""``x . p`` plus the binary entropy of the projection ``p``, one value per row."""
        rows = as_rows(logits, self.k, dim=-1, mask=None)
        return _LMLValue.run(rows.logits, rows.k).squeeze(-1).to(logits.dtype)


class _LMLValue(RowFunction):
    """``x, k -> max_p x . p + H_b(p)``; the gradient is p in x and minus the dual root in k."""

    @staticmethod
    def forward(x: Tensor, k: Tensor) -> Tensor:
        y = log_odds(x, *solve_root(x, k, 1.0), 1.0)
        p, size = y.sigmoid(), y.abs()
        # Both parts of the entropy are positive: log(1 + exp(-|y|)) and |y| / (1 + exp|y|).
        tail = torch.where(size < math.inf, size * (-size).sigmoid(), 0)
        entropy = tail - log_sigmoid(size)
        return (torch.where(p > 0, x, 0) * p + entropy).sum(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        x, k = ctx.saved_tensors
        to_k = -gradient * lml_dual(x, k).unsqueeze(-1) if ctx.needs_input_grad[1] else None
        return gradient * lml(x, k), None if to_k is None else to_k.sum_to_size(k.shape)

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None) -> Tensor:
        x, k = ctx.saved_tensors
        moved = torch.zeros_like(x[..., :1])
        if x_tangent is not None:
            moved = (lml(x, k) * x_tangent).sum(-1, keepdim=True)
        return moved if k_tangent is None else moved - k_tangent * lml_dual(x, k).unsqueeze(-1)


@dataclass(frozen=True)
class SparseTopPotential:
    """``k`` labels by the Gini entropy: its gradient is :func:`shortlist.functional.sparse_top`."""

    k: float | Tensor

    def __call__(self, logits: Tensor, /) -> Tensor:
        r"""``x . p + sum_j p_j (1 - p_j) / 2`` at the projection ``p``, one value per row."""
        x = solvable(logits)
        p = sparse_top(x, self.k)
        present = torch.where(p > 0, x, 0)  # -inf times 0
        return (present * p + p * (1 - p) / 2).sum(-1).to(logits.dtype)


@dataclass(frozen=True)
class SparsemaxPotential:
    """One label by the Gini entropy: its gradient is :func:`shortlist.functional.sparsemax`."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """One value per row."""
        return SparseTopPotential(1)(logits)

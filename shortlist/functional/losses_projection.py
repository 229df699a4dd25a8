"""Losses that train the projections: the likelihood of LML, and the Fenchel-Young losses of sparse-top."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.functional.lml import dual_parts
from shortlist.functional.lml_root import centred
from shortlist.functional.observed import observed, one_class, positives, without_unknown
from shortlist.functional.reduction import Reduction, check_weight, reduce_rows
from shortlist.functional.row_function import RowFunction
from shortlist.functional.rows import as_rows, check_temperature, log_sigmoid
from shortlist.functional.sparse_top import sparse_top
from shortlist.functional.sparse_top_solve import solve_sparse_top


def lml_nll(
    logits: Tensor,
    target: Tensor,
    k: float | Tensor,
    *,
    temperature: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Negative log-likelihood of the observed labels under the LML projection: maximum likelihood for recall at k.

    .. math:: \ell = -\sum_{j \in Y} \log p_j, \qquad p = \operatorname{LML}(x, k)

    Labels that were not observed count neither for nor against: they only compete for the ``k`` places. Predict the
    ``k`` largest logits.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label. float16 and bfloat16 are computed in
            float32, and so is the result.
        target: the observed labels, in any form of :mod:`shortlist.targets`; labels marked unknown leave the
            competition.
        k: how many labels the answer holds: a number in (0, n], or a tensor with one value per row.
        temperature: that of :func:`lml`.
        weight: ``(n,)``, the factor of each positive.
        reduction: ``"mean"`` over the rows, where one without positives counts as 0; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row. The gradient in the logits is
        :math:`-(1 - p) \circ 1_Y + \frac{q}{\sum q} \sum_{j \in Y} (1 - p_j)` with :math:`q = p (1 - p)`.

    Example:
        >>> lml_nll(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([[0, 2]]), k=2)
        tensor(1.1755)

    References:
        Amos, Koltun, Kolter, "The Limited Multi-Label Projection Layer", 2019, section 4.
    """
    known = without_unknown(logits, target)
    rows = as_rows(known, k, dim=-1, mask=None)
    if not isinstance(k, Tensor) and k == 0:
        raise ValueError("`k` must be positive for a likelihood; got 0.")
    parts = dual_parts(rows.logits, rows.k, check_temperature(temperature))
    picked = positives(known, target, weight)
    return reduce_rows(-picked.total(log_sigmoid(centred(picked.logits, *parts, temperature))), reduction)


def sparse_top_loss(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""The convex loss of sparse-top, for as many labels as the row has positives.

    .. math:: \ell = \sum_j (p_j - y_j)\, x_j + \tfrac12 \sum_j p_j (1 - p_j), \qquad
              p = \operatorname{sparse\text{-}top}(x, |Y|)

    It is never negative, zero only where ``p`` is the target (each positive at least 1 above each negative), and its
    gradient is ``p`` minus the target.

    Args:
        logits: ``(*rows, n)``, floating. float16 and bfloat16 are computed in float32, and so is the result.
        target: the positives, in any form of :mod:`shortlist.targets`; unknown labels leave the problem.
        weight: ``(n,)``; a row is multiplied by the mean weight of its positives.
        reduction: ``"mean"`` over the rows, where one without positives counts as 0; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> sparse_top_loss(torch.tensor([[2.0, 1.0, 0.6, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.4900)

    References:
        Garcin, "Set-valued classification", 2023, chapter 6.
    """
    known = without_unknown(logits, target)
    weight = check_weight(weight, known)
    hot = observed(known, target).present
    values = _SparseTopExcess.run(known, hot)[0]
    if weight is not None:
        values = values * (hot * weight).sum(-1) / hot.sum(-1).clamp(min=1)
    return reduce_rows(values, reduction)


def sparsemax_loss(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""The convex loss of sparsemax: :func:`sparse_top_loss` with one true class.

    Args:
        logits: as for :func:`sparse_top_loss`.
        target: one class per row, as for :func:`cross_entropy`.
        weight: ``(n,)``, one factor per class.
        reduction: ``"mean"`` weighs the rows by the weight of their class; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> sparsemax_loss(torch.tensor([[1.0, 0.6, -1.0]]), torch.tensor([0]))
        tensor(0.0900)

    References:
        Martins, Astudillo, "From Softmax to Sparsemax", 2016.
    """
    rows = one_class(logits, target, weight)
    hot = torch.zeros_like(rows.logits).scatter(-1, rows.index, 1.0)
    return reduce_rows(_SparseTopExcess.run(rows.logits, hot)[0], reduction, share=rows.share)


class _SparseTopExcess(RowFunction):
    """``x, y -> (p - y) . x + p . (1 - p) / 2, p - y`` with ``p = sparse_top(x, sum y)``: the loss and its gradient."""

    @staticmethod
    def forward(x: Tensor, hot: Tensor) -> tuple[Tensor, Tensor]:
        p = solve_sparse_top(x, hot.sum(-1, keepdim=True), 1.0)
        # p and y have the same sum, so any shift is free; this one keeps the digits that count, and the zero exact.
        limits = torch.finfo(x.dtype)
        shifted = (x - x.amax(-1, keepdim=True).clamp(min=limits.min / 4)).clamp(min=limits.min / 4)
        excess = p - hot
        # Rounding aside, it is never negative.
        return (excess * shifted + p * (1 - p) / 2).sum(-1).clamp(min=0), excess

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros are made for the second output
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, None]:
        if gradient is None:
            return None, None
        x, hot, excess = ctx.saved_tensors
        if torch.is_grad_enabled():
            excess = sparse_top(x, hot.sum(-1)) - hot
        return gradient.unsqueeze(-1) * excess, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, _: None) -> tuple[Tensor, None]:
        x, hot = ctx.saved_tensors
        return ((sparse_top(x, hot.sum(-1)) - hot) * x_tangent).sum(-1), None

"""Losses that train the projections: the likelihood of LML, and the Fenchel-Young losses of sparse-top."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.checks import check_temperature
from shortlist.functional.linear.lml import linear_lml_nll
from shortlist.functional.marked import add_at, marked, sum_rows
from shortlist.functional.observed import observed, one_class, positives, without_unknown
from shortlist.functional.projections.lml import dual_parts
from shortlist.functional.projections.lml_root import centred
from shortlist.functional.projections.sparse_top import sparse_top
from shortlist.functional.projections.sparse_top_solve import solve_sparse_top
from shortlist.functional.reduction import Reduction, check_weight, reduce_rows
from shortlist.functional.row_function import RowFunction
from shortlist.functional.sharded.losses import sharded_lml_nll
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.label_axis.rows import as_rows
from shortlist.tensors import is_dtensor, log_sigmoid

__all__ = ["lml_nll", "sparse_top_loss", "sparsemax_loss"]


def lml_nll(
    logits: Tensor | LinearLogits,
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
            float32, and so is the result. :class:`LinearLogits` are never held. A ``DTensor`` may be sharded along
            its labels; all processes give the same target, with the numbers of all labels, and get a replicated loss.
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
    if not isinstance(k, Tensor) and k == 0:
        raise ValueError("`k` must be positive for a likelihood; got 0.")
    if isinstance(logits, LinearLogits):
        return linear_lml_nll(logits, target, k, temperature=temperature, weight=weight, reduction=reduction)
    if is_dtensor(logits):
        return sharded_lml_nll(logits, target, k, temperature=temperature, weight=weight, reduction=reduction)
    known = without_unknown(logits, target)
    rows = as_rows(known, k, dim=-1, mask=None)
    parts = dual_parts(rows.logits, rows.k, check_temperature(temperature))
    picked = positives(known, target, weight)
    pivot, delta = (picked.beside(part) for part in parts)
    return reduce_rows(-picked.total(log_sigmoid(centred(picked.logits, pivot, delta, temperature))), reduction)


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
    marks = marked(logits, target)
    if marks is None:
        known = without_unknown(logits, target)
        hot, weight = observed(known, target).present, check_weight(weight, known)
        values, weights = _SparseTopExcess.run(known, None, hot)[0], None if weight is None else (hot * weight).sum(-1)
        count = hot.sum(-1)
    else:
        known, weight = marks.without_unknown(), check_weight(weight, marks.logits)
        values = _SparseTopExcess.run(known.view(marks.matrix.shape), marks.places, marks.present)[0]
        values = values.view(known.shape[:-1])
        weights = None if weight is None else marks.row_sums(marks.present * weight[marks.labels])
        count = marks.row_sums(marks.present)
    if weights is not None:
        values = values * weights / count.clamp(min=1)
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
    x = rows.logits.reshape(-1, rows.logits.shape[-1])
    places = rows.index.reshape(-1) + x.shape[-1] * torch.arange(len(x), device=x.device)
    values = _SparseTopExcess.run(x, places, torch.ones_like(places, dtype=x.dtype))[0]
    return reduce_rows(values.view(rows.logits.shape[:-1]), reduction, share=rows.share)


class _SparseTopExcess(RowFunction):
    """``x, places, y -> (p - y) . x + p . (1 - p) / 2, p - y`` with ``p = sparse_top(x, sum y)``: loss and slope.

    y are the labels in these places of the flattened rows, or, if places are None, one number for each entry of x.
    """

    @staticmethod
    def forward(x: Tensor, places: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
        p = solve_sparse_top(x, _label_counts(x, places, labels).unsqueeze(-1), 1.0)
        # p and y have the same sum, so any shift is free; this one keeps the digits that count, and the zero exact.
        limits = torch.finfo(x.dtype)
        shifted = (x - x.amax(-1, keepdim=True).clamp(min=limits.min / 4)).clamp(min=limits.min / 4)
        excess = _without_labels(p, places, labels)
        # Rounding aside, it is never negative.
        return (excess * shifted + p * (1 - p) / 2).sum(-1).clamp(min=0), excess

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros are made for the second output
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, None, None]:
        if gradient is None:
            return None, None, None
        *inputs, excess = ctx.saved_tensors
        if torch.is_grad_enabled():
            excess = _excess(*inputs)
        return gradient.unsqueeze(-1) * excess, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        return (_excess(*ctx.saved_tensors) * x_tangent).sum(-1), None


def _excess(x: Tensor, places: Tensor | None, labels: Tensor) -> Tensor:
    """The prediction minus the labels, in operations that differentiate."""
    return _without_labels(sparse_top(x, _label_counts(x, places, labels)), places, labels)


def _label_counts(x: Tensor, places: Tensor | None, labels: Tensor) -> Tensor:
    return labels.sum(-1) if places is None else sum_rows(labels, places, x, None)


def _without_labels(p: Tensor, places: Tensor | None, labels: Tensor) -> Tensor:
    return p - labels if places is None else add_at(p, places, -labels)

"""Reductions and class weights of the losses."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]
"""``"mean"`` over what counts, ``"sum"``, or ``"none"``."""


def check_reduction(reduction: str) -> None:
    """Raise for an unknown reduction."""
    if reduction not in get_args(Reduction):
        raise ValueError(f'`reduction` must be "mean", "sum" or "none"; got {reduction!r}.')


def check_weight(weight: Tensor | None, logits: Tensor) -> Tensor | None:
    """``weight`` in the dtype of ``logits``, checked to have one value per label."""
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"`weight` must be a floating tensor with one value per label; got {kind}.")
    if weight.shape != logits.shape[-1:]:
        raise ValueError(
            f"`weight` must have one value per label, shape {tuple(logits.shape[-1:])}; got {tuple(weight.shape)}."
        )
    return weight.to(logits.dtype)


def reduce_rows(values: Tensor, reduction: Reduction, *, share: Tensor | None = None) -> Tensor:
    """Reduce ``values``, each counting by its ``share``.

    With a share, ``"mean"`` is the weighted mean, as in :func:`torch.nn.functional.cross_entropy`; values with a share
    of 0 are left out, NaN included. The mean of nothing is a 0 that still backpropagates.
    """
    check_reduction(reduction)
    if share is not None:
        values = torch.where(share > 0, values, 0) * share
    if reduction == "none":
        return values
    total = values.sum()
    if reduction == "sum":
        return total
    if share is None:
        return total / max(values.numel(), 1)
    whole = share.sum()
    return total / torch.where(whole > 0, whole, 1)

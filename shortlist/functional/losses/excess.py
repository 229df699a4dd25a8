"""By how much the rivals of the true class exceed it, on the logarithmic scale: the heart of the softmax losses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shortlist.functional.row_function import RowFunction
from shortlist.tensors import finite_logsumexp


def rival_excess(x: Tensor, index: Tensor, dropped: Tensor | None = None) -> Tensor:
    """``log sum_{j in J} exp(x_j) - x_y``, where J is all labels but y and the dropped ones.

    Cross-entropy is ``log(1 + exp(excess))``, with all the digits of a tiny loss.

    Args:
        x: ``(*rows, n)``, float32 or float64; ``-inf`` marks an absent label.
        index: ``(*rows, 1)``, y.
        dropped: ``(*rows, m)``, labels that do not compete.

    Returns:
        ``(*rows,)``; hugely negative, with no gradient to rivals, where J is empty.
    """
    out = index if dropped is None else torch.cat([index, dropped], -1)
    return _Excess.run(x, out)[0]


class _Excess(RowFunction):
    """``x, out -> excess, exponentials, their sum``; of the labels ``out``, which are no rivals, the first is y."""

    @staticmethod
    def forward(x: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        limits = torch.finfo(x.dtype)
        own = x.gather(-1, out[..., :1]).squeeze(-1)
        rest = x.scatter(-1, out, -math.inf)
        pivot = rest.amax(-1, keepdim=True).clamp(min=limits.min / 4)
        e = rest.sub_(pivot).exp_()
        total = e.sum(-1, keepdim=True).clamp(min=limits.tiny)
        return (total.log() + pivot).squeeze(-1) - own, e, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros are made for the exponentials
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.save_for_forward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, None]:
        if gradient is None:
            return None, None
        x, out, e, total = ctx.saved_tensors
        index = out[..., :1]
        gradient = gradient.unsqueeze(-1)
        if torch.is_grad_enabled():
            return (gradient * _soft(x, out)).scatter(-1, index, -gradient), None
        return (e * (gradient / total)).scatter_(-1, index, -gradient), None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None, None]:
        x, out = ctx.saved_tensors[:2]
        return (_soft(x, out) * x_tangent).sum(-1) - x_tangent.gather(-1, out[..., :1]).squeeze(-1), None, None


def _soft(x: Tensor, out: Tensor) -> Tensor:
    """The softmax of the rivals, in operations that differentiate."""
    rest = x.scatter(-1, out, -math.inf)
    return (rest - finite_logsumexp(rest).unsqueeze(-1)).exp()

"""Operators that can be differentiated once; a second derivative raises instead of silently losing a term."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Backward = Callable[..., tuple[Tensor | None, ...]]


def once_differentiable(backward: Backward) -> Backward:
    """Decorate the backward of a ``Function`` like torch's decorator of this name, but make ``grad`` raise, too.

    Torch attaches the error to tensors that ``torch.autograd.grad`` may skip. This decorator attaches it to the
    gradients and to the saved tensors, which lie on every path to the inputs.
    """

    @wraps(backward)
    def guarded(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            results = backward(ctx, *gradients)
        if not torch.is_grad_enabled():
            return results
        sources = [part for part in (*gradients, *ctx.saved_tensors) if part is not None and part.requires_grad]
        return tuple(None if part is None else _LastDerivative.apply(part, *sources) for part in results)

    return guarded


class _LastDerivative(Function):
    """``gradient, *sources -> gradient``."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *_: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise RuntimeError(
            "functions of sharded logits and of `LinearLogits` can be differentiated once; got a second derivative, "
            "which only functions of plain logits have."
        )

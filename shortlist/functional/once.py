"""Functions that are differentiated once: a second derivative raises, instead of leaving out what they add to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Backward = Callable[..., tuple[Tensor | None, ...]]


def once(backward: Backward) -> Backward:
    """Mark the backward of a ``Function``, as ``once_differentiable`` does, also for ``torch.autograd.grad``.

    Torch's own mark hangs on tensors that nobody asks for, so that ``grad``, which only goes where it is asked to,
    passes it by. This one hangs on the gradients and on what was saved, by which the inputs are reached.
    """

    @wraps(backward)
    def marked(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            results = backward(ctx, *gradients)
        if not torch.is_grad_enabled():
            return results
        sources = [part for part in (*gradients, *ctx.saved_tensors) if part is not None and part.requires_grad]
        return tuple(None if part is None else _Last.apply(part, *sources) for part in results)

    return marked


class _Last(Function):
    """``gradient, *sources -> gradient``."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *_: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise RuntimeError(
            "functions of labels in parts, sharded or of `LinearLogits`, can be differentiated once; got a second "
            "derivative, which those of plain logits have."
        )

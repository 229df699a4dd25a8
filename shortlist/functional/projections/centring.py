"""The derivative that sparse-top and constrained softmax share: with weights w, ``(diag(w) - w w^T / sum w) / T``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def keep_projection(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep for the derivatives what they need of ``x, k, T -> p``: the projection itself."""
    ctx.k_shape, ctx.temperature = inputs[1].shape, inputs[2]
    ctx.save_for_backward(output)
    ctx.save_for_forward(output)


def centred_gradient(ctx: Any, weights: Tensor, total: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
    """The gradients in x, k and T; in k it is the mean of ``gradient`` by the weights."""
    mean = (weights * gradient).sum(-1, keepdim=True) / total
    to_k = mean.sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
    to_x = (gradient - mean) * weights if torch.is_grad_enabled() else (gradient - mean).mul_(weights)
    return to_x if ctx.temperature == 1 else to_x / ctx.temperature, to_k, None


def centred_tangent(ctx: Any, weights: Tensor, total: Tensor, x: Tensor | None, k: Tensor | None) -> Tensor:
    """How p moves with x and k."""
    moved = torch.zeros_like(weights)
    if x is not None:
        moved = weights * (x - (weights * x).sum(-1, keepdim=True) / total) / ctx.temperature
    return moved if k is None else moved + weights * (k / total)

"""The slopes of LML, ``q = p (1 - p)``, as logarithms: their shares do not underflow where they do."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.label_axis.processes import all_max, all_sum
from shortlist.tensors import wide


def log_slopes(y: Tensor, *, overwrite: bool = False) -> Tensor:
    """``log q = -|y| - 2 log(1 + exp(-|y|))``, with derivatives of all orders, also at 0.

    Args:
        y: the log-odds of p.
        overwrite: whether the result may take the memory of y where autograd does not watch.
    """
    if torch.is_grad_enabled():
        size = y * torch.copysign(y.new_ones(()), y.detach())
        return -size - 2 * softplus(-size)
    near = y.copysign_(-1) if overwrite else torch.copysign(y, -1)
    return near.sub_(softplus(near), alpha=2)


def slope_shares(log_q: Tensor, delta: Tensor, group: Any) -> Tensor:
    """``q / sum q``; zero where all labels are taken or none."""
    if group is None:
        share = log_q.softmax(-1)
    else:
        nearest, total = _slope_sum(log_q, delta, group)
        share = (log_q - nearest).exp() / total
    outer = is_outer(delta)
    return share.masked_fill(outer, 0) if torch.is_grad_enabled() else share.masked_fill_(outer, 0)


def _slope_sum(log_q: Tensor, delta: Tensor, group: Any) -> tuple[Tensor, Tensor]:
    """The logarithm of the largest q of each row, and the sum of q relative to it."""
    nearest = log_q.detach().amax(-1, keepdim=True) if log_q.shape[-1] else torch.full_like(delta, -math.inf)
    nearest = all_max(nearest, group).clamp(min=torch.finfo(delta.dtype).min / 4)
    total = (log_q - nearest).exp().sum(-1, keepdim=True)
    total = total if group is None else all_sum(total.to(wide(total)), group).to(total.dtype)
    return nearest, total.clamp(min=torch.finfo(delta.dtype).tiny)


def inverse_slope(log_q: Tensor, delta: Tensor, group: Any) -> Tensor:
    """``1 / sum q``, finite; zero where all labels are taken or none."""
    nearest, total = _slope_sum(log_q, delta, group)
    return inverse(total.log() + nearest, delta)


def inverse(log_slope: Tensor, delta: Tensor) -> Tensor:
    """``1 / sum q`` from the logarithm of the sum."""
    largest = math.log(torch.finfo(delta.dtype).max) - 1
    return (-log_slope).clamp(max=largest).exp().masked_fill(is_outer(delta), 0)


def is_outer(delta: Tensor) -> Tensor:
    """Whether all labels are taken, or none."""
    return delta.abs() >= torch.finfo(delta.dtype).max / 8


def finite(values: Tensor) -> Tensor:
    """``values`` with overflows replaced by the largest finite number."""
    largest = torch.finfo(values.dtype).max
    return values.clamp(-largest, largest)

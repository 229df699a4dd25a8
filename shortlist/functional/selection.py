"""One order statistic per row, with a rank of its own for each row and without reading the ranks."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def select(x: Tensor, k: Tensor | float) -> Tensor:
    """The entry of ``x`` ``(..., n)`` after the first ``floor(k)`` in descending order, or the last: ``(..., 1)``.

    A small number of labels is selected by one kernel. If each row has a ``k`` of its own, it is padded with as many
    infinities of either sign as move that entry to the middle. Its median then takes one kernel, which accelerators
    implement by radix selection. Exporters and deterministic algorithms (where a median on CUDA is refused because of
    its index) sort instead.

    Args:
        x: ``(..., n)`` with at least one label. NaN makes its row NaN.
        k: a number in [0, n], or ``(..., 1)``, where negative numbers and NaN count as 0.
    """
    n = x.shape[-1]
    if not isinstance(k, Tensor):
        if 2 * k < n:
            return x.topk(int(k) + 1, sorted=False).values.amin(-1, keepdim=True)
        k = torch.full((*x.shape[:-1], 1), k, dtype=x.dtype, device=x.device)
    if torch.compiler.is_exporting() or torch.are_deterministic_algorithms_enabled():
        ordered = x.sort(dim=-1, descending=True).values  # NaN sorts first
        selected = ordered.gather(-1, k.nan_to_num().clamp(0, n - 1).long())
        return torch.where(ordered[..., :1].isnan(), math.nan, selected)
    padding = torch.where(torch.arange(1, n, device=x.device) <= k, -math.inf, math.inf).to(x.dtype)
    return torch.cat([x, padding], -1).median(-1, keepdim=True).values

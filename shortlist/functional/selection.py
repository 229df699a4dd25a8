"""One order statistic per row, with a rank of its own for each row and without reading the ranks."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def select(x: Tensor, rank: Tensor) -> Tensor:
    """The entry of ``x`` ``(..., n)`` with ``rank`` larger ones before it, ``(..., 1)``.

    Each row is padded with as many infinities of either sign as move that entry to the middle. Its median then takes
    one kernel, which accelerators implement by radix selection. Exporters and deterministic algorithms (where a median
    on CUDA is refused because of its index) sort instead.

    Args:
        x: ``(..., n)`` with at least one label. NaN makes its row NaN.
        rank: ``(..., 1)``, whole numbers in [0, n - 1], of any dtype.
    """
    n = x.shape[-1]
    if torch.compiler.is_exporting() or torch.are_deterministic_algorithms_enabled():
        ordered = x.sort(dim=-1, descending=True).values  # NaN sorts first
        selected = ordered.gather(-1, rank.long())
        return torch.where(ordered[..., :1].isnan(), math.nan, selected)
    smaller = torch.arange(n - 1, device=x.device) < rank
    padding = torch.full_like(smaller, math.inf, dtype=x.dtype).masked_fill_(smaller, -math.inf)
    return torch.cat([x, padding], -1).median(-1, keepdim=True).values

"""Labels for the measurements."""

from __future__ import annotations

import torch
from torch import Tensor


def label_lists(rows: int, labels: int, per_row: int, generator: torch.Generator) -> Tensor:
    """Index lists ``(rows, per_row)``: evenly spread from a random label on, so no row has a label twice."""
    first = torch.randint(labels, (rows, 1), generator=generator)
    return ((first + torch.arange(per_row) * (labels // per_row)) % labels).sort(-1).values

"""How many labels are true, and the expected F of the first ones, for float32 rows of probabilities on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor


def count_masses(probs: Tensor, most: int) -> Tensor:
    """Probabilities of 0 to ``most`` true labels, ``(rows, most + 1)`` float64; -inf counts as a probability of 0."""
    from shortlist.kernels import label_counts_code, threads

    masses = torch.empty(len(probs), most + 1, dtype=torch.float64)
    arrays = (probs.contiguous().numpy(), masses.numpy())
    threads.run_parts(lambda *part: label_counts_code.count_masses(*arrays, *part), len(probs), probs.numel() * most)
    return masses


def expected_f(first: Tensor, masses: Tensor, beta: float) -> Tensor:
    """Expected F-beta of the first labels of each row, ``(rows, k)`` float64 for 1 to k of them.

    Args:
        first: ``(rows, k)`` float32, the probabilities of these labels.
        masses: ``(rows, m + 1)`` float64, of 0 to m true labels among all.
        beta: weight of recall.
    """
    from shortlist.kernels import label_counts_code, threads

    found = torch.empty(first.shape, dtype=torch.float64)
    arrays = (first.contiguous().numpy(), masses.contiguous().numpy(), found.numpy(), beta)
    entries = first.numel() * masses.shape[1]
    threads.run_parts(lambda *part: label_counts_code.expected_f(*arrays, *part), len(first), entries)
    return found

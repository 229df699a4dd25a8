"""Ranks, masses and hashes of rows of scores, in one pass over float32 rows on the CPU, without sorting them."""

from __future__ import annotations

import torch
from torch import Tensor


def row_hashes(scores: Tensor, factors: Tensor) -> Tensor:
    """The sums modulo 2**31 - 1 that `row_uniforms` mixes, ``(rows,)`` int64.

    Args:
        scores: ``(rows, n)`` float32.
        factors: ``(2 n,)`` int64, below 2**31 - 1.
    """
    from shortlist.kernels import ranked_rows_code, threads

    hashed = torch.empty(len(scores), dtype=torch.int64)
    arrays = (scores.contiguous().numpy(), factors.numpy(), hashed.numpy())
    threads.run_parts(lambda *part: ranked_rows_code.hashes(*arrays, *part), len(scores), scores.numel())
    return hashed


def places(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rank of one label of each row, int64 from 1, and the float64 mass of the labels before it.

    Args:
        probs: ``(rows, n)`` float32, not negative.
        labels: ``(rows,)``.
    """
    from shortlist.kernels import ranked_rows_code, threads

    ranks, masses = torch.empty(len(probs), dtype=torch.int64), torch.empty(len(probs), dtype=torch.float64)
    arrays = (probs.contiguous().numpy(), labels.contiguous().numpy(), ranks.numpy(), masses.numpy())
    threads.run_parts(lambda *part: ranked_rows_code.places(*arrays, *part), len(probs), probs.numel())
    return ranks, masses


def first_labels(probs: Tensor, shares: Tensor, limits: Tensor, *, by_rank: bool, weight: float, free: float) -> Tensor:
    """Labels whose level is at most the limit of their row, where levels rise with the rank: of APS, or of SAPS.

    Args:
        probs: ``(rows, n)`` float32, not negative.
        shares, limits: ``(rows,)`` float64.
        by_rank: whether levels are those of SAPS, with ``weight`` per rank; otherwise those of APS, with ``weight`` per
            rank beyond ``free``.

    Returns:
        ``(rows, n)`` uint8: 1 for levels below the limit, 2 for those at it, else 0.
    """
    from shortlist.kernels import ranked_rows_code, threads

    marks = torch.empty(probs.shape, dtype=torch.uint8)
    arrays = (probs.contiguous().numpy(), shares.contiguous().numpy(), limits.contiguous().numpy(), marks.numpy())
    threads.run_parts(
        lambda *part: ranked_rows_code.first_labels(*arrays, by_rank, weight, free, *part), len(probs), probs.numel()
    )
    return marks

"""One pseudorandom number per row, a hash of its scores: the same in every batch, device and exported graph."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.kernels import ranked_rows
from shortlist.kernels.chooser import use_kernel

# A Mersenne prime, and the constants added in the rounds of the hash (digits of pi).
PRIME = 2**31 - 1
_SHIFTS = (0x243F6A88, 0x13198A2E, 0x299F31D0)


def row_uniforms(scores: Tensor) -> Tensor:
    """A pseudorandom number in [0, 1) for each row, ``(rows,)`` float64, that depends only on the row's scores.

    Equal scores give equal numbers in every dtype, batch, device and exported graph: every step is exact. Scores count
    up to a magnitude of a million and down to a part in 2**84.

    Example:
        >>> row_uniforms(torch.tensor([[0.2, 0.8], [0.8, 0.2], [0.2, 0.8]]))
        tensor([0.5724, 0.5739, 0.5724], dtype=torch.float64)
    """
    n = scores.shape[-1]
    # Below 2**31 each, so that no product overflows: what integers do then is up to the runtime.
    factors = _mixed(torch.arange(1, 2 * n + 1, device=scores.device))
    if scores.ndim == 2 and use_kernel(1.0, scores):
        return _mixed(ranked_rows.row_hashes(scores.detach(), factors)).double() / PRIME
    # ONNX cannot read the bits of a float, so two integers of at most 53 bits stand for it: floor(x) and the rest.
    fixed = scores.detach().double().clamp(-(2.0**20), 2.0**20) * 2.0**32
    whole = fixed.floor()
    parts = torch.cat([whole, (fixed - whole) * 2.0**52], dim=-1).long() % PRIME
    hashed = (parts * factors % PRIME).sum(-1) % PRIME
    return _mixed(hashed).double() / PRIME


def _mixed(numbers: Tensor) -> Tensor:
    """A bijection modulo the prime, far from linear: fifth powers are one, because 5 does not divide the prime - 1."""
    for shift in _SHIFTS:
        square = numbers * numbers % PRIME
        numbers = (square * square % PRIME * numbers % PRIME + shift) % PRIME
    return numbers

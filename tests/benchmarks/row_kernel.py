"""A kernel whose loads and stores are easy to count."""

import torch
import triton
import triton.language as tl


@triton.jit
def _doubled(x_ptr, factor_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n + at
    half = tl.load(factor_ptr) / 2
    x = tl.load(x_ptr + row, mask=at < n)
    tl.store(y_ptr + row, x * (half + tl.load(factor_ptr) / 2), mask=at < n)


def doubled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _doubled[(len(x),)](x, _TWO, y, x.shape[-1], BLOCK=128)
    return y


_TWO = torch.full((1,), 2.0)

"""The products with the truncated DFT matrix and with its transpose, by real FFTs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def synthesis(features: Tensor, num_labels: int) -> Tensor:
    """``features @ F.T``: from coefficients ``(..., 2k + 1)`` to the values ``(..., n)`` of the polynomial."""
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        # The compiler makes no code for complex numbers, and warns; as one real operator it takes the FFT as it is.
        return _synthesis(features, num_labels)
    return _from_coefficients(features, num_labels)


def analysis(values: Tensor, columns: int) -> Tensor:
    """``values @ F``: the coefficients ``(..., 2k + 1)`` of values ``(..., n)``; the transpose of `synthesis`."""
    waves = torch.fft.rfft(values, norm="ortho")[..., : columns // 2 + 1]
    pairs = torch.stack([waves.real, -waves.imag], -1)[..., 1:, :].flatten(-2) * math.sqrt(2)
    return torch.cat([waves.real[..., :1], pairs], -1)


def _from_coefficients(features: Tensor, num_labels: int) -> Tensor:
    waves = features[..., 1:].unflatten(-1, (features.shape[-1] // 2, 2)) * math.sqrt(0.5)
    constant = features[..., :1]
    real = torch.cat([constant, waves[..., 0]], -1)
    imaginary = torch.cat([torch.zeros_like(constant), -waves[..., 1]], -1)
    return torch.fft.irfft(torch.complex(real, imaginary), num_labels, norm="ortho")


@torch.library.custom_op("shortlist::dft_synthesis", mutates_args=())
def _synthesis(features: Tensor, num_labels: int) -> Tensor:
    return _from_coefficients(features, num_labels).contiguous()


@torch.library.custom_op("shortlist::dft_analysis", mutates_args=())
def _analysis(values: Tensor, columns: int) -> Tensor:
    return analysis(values, columns).contiguous()


def _other_size(x: Tensor, size: int) -> Tensor:
    return x.new_empty((*x.shape[:-1], size))


def _keep_size(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.size = inputs[0].shape[-1]


_synthesis.register_fake(_other_size)
_analysis.register_fake(_other_size)
_synthesis.register_autograd(lambda ctx, slope: (_analysis(slope, ctx.size), None), setup_context=_keep_size)
_analysis.register_autograd(lambda ctx, slope: (_synthesis(slope, ctx.size), None), setup_context=_keep_size)

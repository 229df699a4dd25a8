"""Order statistics that learn: the k-th largest logit, plain and smoothed by noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.autograd import RowFunction
from shortlist.functional.noise import noised_places
from shortlist.kernels.chooser import use_triton_backward
from shortlist.tensors import check_logits, check_number, may_look, moved, solvable, whole_k


def kth_largest(x: Tensor, k: int, *, dim: int = -1) -> Tensor:
    r"""The ``k``-th largest value, :math:`x_{[k]}`; its gradient is 1 at its place and 0 elsewhere.

    Args:
        x: any shape, floating.
        k: a whole number in [1, n]; 1 is the largest.
        dim: the label axis.

    Returns:
        The shape of ``x`` without ``dim``. Among equal values one gets the gradient.

    Example:
        >>> kth_largest(torch.tensor([3.0, 9.0, 5.0]), 2)
        tensor(5.)
    """
    check_logits(x, dim)
    k = whole_k(k, x.shape[dim])
    rows = moved(x, dim, -1)
    return rows.gather(-1, largest(rows, k)[..., -1:]).squeeze(-1)


def noised_kth_largest(
    x: Tensor,
    k: int,
    *,
    epsilon: float = 1.0,
    samples: int = 10,
    dim: int = -1,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    r"""The ``k``-th largest value under Gaussian noise, averaged: a smooth order statistic.

    .. math:: \hat\tau = \frac{1}{M} \sum_{m=1}^{M} (x + \varepsilon Z_m)_{[k]}, \qquad Z_m \sim \mathcal{N}(0, I)

    The gradient is the average of the one-hot vectors of where the ``k``-th was found, which is an unbiased estimate
    of the gradient of the expected value.

    On the CPU only noise that can matter is evaluated: that of labels which can reach the ``k``-th place. For the
    gradient, each row keeps one index per sample.

    Args:
        x: any shape, floating; float16 and bfloat16 are computed in float32.
        k: a whole number in [1, n].
        epsilon: the scale of the noise, at least 0.
        samples: ``M``, at least 1.
        dim: the label axis.
        generator: makes the draw reproducible: a seed gives the same noise with and without kernels, up to the rounding
            of float32.
        noise: ``Z`` given instead of drawn, the shape of ``x`` behind an axis of samples.

    Returns:
        The shape of ``x`` without ``dim``; float32 for half precision.

    Example:
        >>> x = torch.tensor([2.4, 2.6, 2.3, 0.5])
        >>> noise = torch.tensor([[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]])
        >>> noised_kth_largest(x, 2, noise=noise)
        tensor(2.4667)

    References:
        Garcin, Servajean, Joly, Salmon, "Stochastic smoothing of the top-K calibrated hinge loss", 2022.
    """
    check_logits(x, dim)
    places, offset = noised_kth_places(
        x, k, epsilon=epsilon, samples=samples, dim=dim, generator=generator, noise=noise
    )
    return mean_of(entries_at(moved(x, dim, -1), places)) + offset


def noised_kth_places(
    x: Tensor,
    k: int,
    *,
    epsilon: float,
    samples: int,
    dim: int = -1,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Where the ``k``-th largest of ``x + epsilon Z`` is in each sample, and the mean of ``epsilon Z`` there.

    The arguments are those of :func:`noised_kth_largest`, which is the mean of ``x`` at these places, plus the second
    result. Neither has a derivative.

    Returns:
        ``(..., samples)``, the label axis last, and ``(...)``.
    """
    k = whole_k(k, x.shape[dim])
    _check_noise(x, epsilon, samples, generator, noise)
    rows = moved(x.detach(), dim, -1)
    if epsilon == 0:
        return largest(rows, k)[..., -1:], solvable(rows.new_zeros(rows.shape[:-1]))
    if noise is None:
        return noised_places(rows, k, epsilon, samples, generator)
    rows = solvable(rows)
    drawn = moved(noise.to(rows.dtype), dim if dim < 0 else dim + 1, -1)
    places = torch.stack([largest(torch.add(rows, z, alpha=epsilon), k)[..., -1] for z in drawn], -1)
    return places, epsilon * drawn.movedim(0, -2).gather(-1, places.unsqueeze(-1)).squeeze(-1).mean(-1)


def entries_at(x: Tensor, places: Tensor) -> Tensor:
    """The entries of ``x`` ``(..., n)`` at ``places`` ``(..., m)``; float32 for half precision.

    As ``x.gather(-1, places)``, but places that occur several times add up their gradients in float32.
    """
    return _Entries.run(x, places)


def mean_of(entries: Tensor) -> Tensor:
    """The mean along the last axis, which does not overflow."""
    return (entries / entries.shape[-1]).sum(-1)


class _Entries(RowFunction):
    """``x, places -> entries``."""

    @staticmethod
    def forward(x: Tensor, places: Tensor) -> Tensor:
        return solvable(x.gather(-1, places))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        x, places = inputs
        ctx.shape, ctx.dtype = x.shape, x.dtype
        ctx.save_for_backward(places)
        ctx.save_for_forward(places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        if use_triton_backward(1.0, gradient, places) and not torch.compiler.is_compiling():
            from shortlist.kernels.gpu import noise as gpu

            return gpu.scattered(gradient, places, ctx.shape, ctx.dtype), None
        return gradient.new_zeros(ctx.shape).scatter_add(-1, places, gradient).to(ctx.dtype), None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, _: None) -> Tensor:
        (places,) = ctx.saved_tensors
        return solvable(x_tangent.gather(-1, places))


def largest(x: Tensor, k: int) -> Tensor:
    """Indices of the ``k`` largest along the last axis, ``(..., k)``; the last of them is the k-th."""
    return _Largest.run(x.detach(), k)


class _Largest(RowFunction):
    """``x, k -> indices``."""

    @staticmethod
    def forward(x: Tensor, k: int) -> Tensor:
        n = x.shape[-1]
        # torch selects fast only the first few; numpy's selection does not care how many.
        if not may_look(x) or k * 64 <= n or x.numel() == 0:
            return x.topk(k).indices
        x, size = solvable(x), math.isqrt(n // k)
        if size == 1:
            return _partition(x, k)
        # The k largest are in the k groups with the largest maxima: label j is in group j modulo the number of groups.
        groups = n // size
        leading = _partition(x[..., : size * groups].unflatten(-1, (size, groups)).amax(-2), k)
        places = (leading.unsqueeze(-1) + groups * torch.arange(size)).flatten(-2)
        left = torch.arange(size * groups, n).expand(*x.shape[:-1], -1)
        places = torch.cat([places, left], -1)
        return places.gather(-1, _partition(x.gather(-1, places), k))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        return None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor | None) -> None:
        return None


def _partition(x: Tensor, k: int) -> Tensor:
    """As `largest`, by numpy."""
    n = x.shape[-1]
    places = np.argpartition(x.numpy(), n - k, axis=-1)[..., n - k :]
    return torch.from_numpy(places[..., ::-1].copy())


def _check_noise(
    x: Tensor, epsilon: float, samples: int, generator: torch.Generator | None, noise: Tensor | None
) -> None:
    check_number("epsilon", epsilon, at_least=0)
    whole_k(samples, 1 << 62, name="samples")
    if noise is None:
        return
    if generator is not None:
        raise ValueError("`generator` has no use beside `noise`; give one of them.")
    if noise.ndim != x.ndim + 1 or noise.shape[1:] != x.shape or len(noise) == 0:
        raise ValueError(
            f"`noise` must have the shape (samples, {', '.join(map(str, x.shape))}); got {tuple(noise.shape)}."
        )

"""The truncated real DFT as an output layer: a fixed matrix whose logits are trigonometric polynomials."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import linear

from shortlist.functional.dft.transform import synthesis
from shortlist.tensors import solvable

Method = Literal["fft", "matmul"]


def dft_matrix(
    num_labels: int, k: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    r"""The first ``2k + 1`` columns of the real discrete Fourier transform of ``n`` points.

    .. math:: F_i = \tfrac{1}{\sqrt n} \left[1,\; \sqrt2 \cos t_i,\; \sqrt2 \sin t_i,\; \dots,\;
              \sqrt2 \cos k t_i,\; \sqrt2 \sin k t_i\right], \quad t_i = 2 \pi i / n, \; i = 0, \dots, n - 1

    The columns are orthonormal and all maximal minors have one sign. So the signs of :math:`F v` can be those of every
    label set with at most ``2k`` cyclic sign changes, and of no other; every set of at most ``k`` labels is among them.

    Args:
        num_labels: n, at least 1.
        k: the largest frequency, a whole number with ``2k + 1 <= n``.
        dtype: floating; by default torch's default. Entries are computed in float64, to within three units in the last
            place, and then rounded.
        device: where the matrix is wanted.

    Returns:
        ``(n, 2k + 1)``.

    Example:
        >>> dft_matrix(4, 1)
        tensor([[ 0.5000,  0.7071,  0.0000],
                [ 0.5000,  0.0000,  0.7071],
                [ 0.5000, -0.7071,  0.0000],
                [ 0.5000,  0.0000, -0.7071]])

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse Multi-Label Classification",
        2024, eq. 8.
    """
    check_degree(num_labels, k)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        raise TypeError(f"`dtype` must be floating; got {dtype}.")
    places = torch.arange(num_labels, device="cpu")
    # Reduced as integers: the angle i j 2 pi / n itself would have lost as many digits as i j has.
    turns = places.unsqueeze(-1) * torch.arange(1, k + 1, device="cpu") % num_labels
    circle = (_circle(num_labels) / math.sqrt(num_labels / 2)).to(dtype)
    constant = circle.new_full((num_labels, 1), 1 / math.sqrt(num_labels))
    waves = circle.index_select(0, turns.flatten()).reshape(num_labels, 2 * k)
    matrix = torch.cat([constant, waves], -1)
    return matrix.to(torch.get_default_device() if device is None else device)


def dft_logits(
    features: Tensor, num_labels: int, *, method: Method | None = None, matrix: Tensor | None = None
) -> Tensor:
    r"""Product of each feature vector with :func:`dft_matrix`: the values of a trigonometric polynomial.

    .. math:: z_i = \tfrac{1}{\sqrt n} \Big(v_0 + \sqrt2 \sum_{j=1}^{k} v_{2j-1} \cos j t_i + v_{2j} \sin j t_i\Big)

    Args:
        features: v, ``(..., 2k + 1)``, floating with an odd last size of at most n. float16 and bfloat16 are
            multiplied in float32, under autocast too.
        num_labels: n.
        method: ``"fft"`` for an inverse real FFT, ``"matmul"`` for a matrix product; by default the one that costs
            less, and for exporters the product.
        matrix: ``dft_matrix(n, k)`` if it is at hand, in the dtype of the features (float32 for half precision); the
            product then does not have to make it.

    Returns:
        ``(..., n)`` with the dtype of ``features``; differentiable any number of times. The gradient is the truncated
        real FFT, or the product with the transposed matrix.

    Example:
        >>> dft_logits(torch.tensor([2.0, 0.0, 1.0]), 4)
        tensor([1.0000, 1.7071, 1.0000, 0.2929])
    """
    k = _degree_of(features, num_labels)
    size = (num_labels, 2 * k + 1)
    if matrix is not None and matrix.shape != size:
        raise ValueError(f"`matrix` must have shape {size}; got {tuple(matrix.shape)}.")
    if method is None:
        rows = math.prod(features.shape[:-1])
        fft = not torch.compiler.is_exporting() and fft_is_cheaper(num_labels, k, None if matrix is not None else rows)
    elif method in ("fft", "matmul"):
        fft = method == "fft"
    else:
        raise ValueError(f"`method` must be 'fft', 'matmul' or None; got {method!r}.")
    work = solvable(features)
    if fft and features.numel():  # some FFTs refuse to transform nothing
        return synthesis(work, num_labels).to(features.dtype)
    if matrix is None:
        matrix = dft_matrix(num_labels, k, dtype=work.dtype, device=work.device)
    return _product(work, matrix.to(work.dtype)).to(features.dtype)


def check_degree(num_labels: int, k: int) -> None:
    """Refuse what is no number of labels, and a ``k`` for which they are fewer than ``2k + 1``."""
    for name, value in (("num_labels", num_labels), ("k", k)):
        if not isinstance(value, Integral | torch.SymInt):
            raise TypeError(f"`{name}` must be a whole number; got {type(value).__name__}.")
    if num_labels < 1:
        raise ValueError(f"`num_labels` must be at least 1; got {num_labels}.")
    largest = (num_labels - 1) // 2
    if not 0 <= k <= largest:
        raise ValueError(f"`k` must lie in [0, {largest}], so that 2k + 1 <= {num_labels} labels; got {k}.")


def fft_is_cheaper(num_labels: int, k: int, rows: int | None) -> bool:
    """Whether the FFT costs less than the product for ``rows`` rows; with None, than one whose matrix is kept.

    Measured on one core of x86 with MKL, float32, forward and with gradient, n = 50 ... 100003, k = 1 ... 400, 1 to 256
    rows. Per row and label, the product takes 0.017 ns per column, the FFT 2 to 5 ns if n has no prime factor above 17
    and 5 to 20 ns if it has; to make the matrix takes about as long as the product with 350 rows. On that grid, timed
    twice, 88 % of 644 choices were the faster way; the rest lost a factor of up to 4.6 in calls of
    less than 0.2 ms, and of up to 3.5 in longer ones. Accelerators were not measured.
    """
    columns, worth = 2 * k + 1, 160 if _is_smooth(num_labels) else 600 if num_labels < 2000 else 1100
    if rows is None:
        return num_labels >= 500 and columns > worth
    return columns * (rows + 350) > worth * rows


def _is_smooth(n: int) -> bool:
    for prime in (2, 3, 5, 7, 11, 13, 17):
        while n % prime == 0:
            n //= prime
    return n == 1


def _circle(n: int) -> Tensor:
    """Cosine and sine of the ``n`` angles ``2 pi m / n`` in float64, ``(n, 2)``; exact at whole quarter turns."""
    m = torch.arange(n, device="cpu")
    quarters = (8 * m + n) // (2 * n)
    # What is left of the angle lies within an eighth of a turn, where no digit of it is lost.
    rest = (4 * m - quarters * n).double() * (math.pi / 2) / n
    cos, sin = rest.cos(), rest.sin()
    odd, left, below = quarters % 2 == 1, (quarters + 1) % 4 >= 2, quarters % 4 >= 2
    across, up = torch.where(odd, sin, cos), torch.where(odd, cos, sin)
    # The sum makes 0 of -0.
    return torch.stack([torch.where(left, -across, across), torch.where(below, -up, up)], -1) + 0.0


def _degree_of(features: Tensor, num_labels: int) -> int:
    if not isinstance(features, Tensor) or not features.is_floating_point():
        kind = features.dtype if isinstance(features, Tensor) else type(features).__name__
        raise TypeError(f"`features` must be a floating tensor; got {kind}.")
    if features.ndim == 0 or features.shape[-1] % 2 == 0:
        raise ValueError(f"`features` must have an odd last size, 2k + 1; got shape {tuple(features.shape)}.")
    k = features.shape[-1] // 2
    check_degree(num_labels, k)
    return k


def _product(features: Tensor, matrix: Tensor) -> Tensor:
    kind = features.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        # Rounding the matrix to half precision would move the signs that it was made for.
        with torch.autocast(kind, enabled=False):
            return linear(features, matrix)
    return linear(features, matrix)

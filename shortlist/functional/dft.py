"""Output layers whose logits are truncated Fourier series: the layer, sign changes, and a witness for every small set.

The logits of such a layer are the values of a trigonometric polynomial at equally spaced points on a circle. A
polynomial of degree k can change its sign 2k times, so any set of at most k labels can be its set of positive logits;
`dft_witness` writes down features that achieve it. Products with the matrix use real FFTs.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from shortlist.targets import to_sparse
from shortlist.tensors import solvable


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


class Runs(NamedTuple):
    """Maximal runs of active labels on the circle, by row; a full row has none, for it has neither end.

    ``first`` and ``last`` are labels; a run that passes from n - 1 to 0 has ``last < first``.
    """

    num_rows: int
    rows: Tensor
    first: Tensor
    last: Tensor

    def counts(self) -> Tensor:
        """How many runs each row has, ``(rows,)``."""
        return torch.bincount(self.rows, minlength=self.num_rows)


def sign_changes(target: Tensor, num_labels: int, *, cyclic: bool = True) -> Tensor:
    r"""How often the labels, read in order, pass from absent to present or back.

    .. math:: \#\{i : y_i \ne y_{i+1}\}

    A set of ``k`` labels has at most ``2k``. The signs of a trigonometric polynomial of degree ``k`` at ``n`` points
    are those with at most ``2k`` cyclic changes and no others: so what :func:`dft_logits` can answer is decided here.

    Args:
        target: label sets, one per row, in any form of :mod:`shortlist.targets` without unknown labels. The values are
            checked; index lists and sparse ones take time by the labels that they hold, whatever n is.
        num_labels: n.
        cyclic: whether label 0 follows label n - 1.

    Returns:
        ``(rows,)`` int64.

    Example:
        >>> sign_changes(torch.tensor([[0, 1, 4], [2, -1, -1]]), 5)
        tensor([2, 2])
        >>> sign_changes(torch.tensor([[0, 1, 4], [2, -1, -1]]), 5, cyclic=False)
        tensor([2, 2])
        >>> sign_changes(torch.tensor([0, 4]), 5, cyclic=False)
        tensor([1, 1])

    References:
        Gantmakher, Krein, "Oscillation Matrices and Kernels", 1961, on sign changes and minors.
    """
    num_rows, rows, labels = active_labels(target, num_labels)
    joined = _joined(rows, labels)
    if cyclic:
        wraps = _wraps(num_rows, rows, labels, num_labels)
        return 2 * _count(rows, ~joined & ~((labels == 0) & wraps[rows]), num_rows)
    left, right = ~joined & (labels > 0), ~_next(joined) & (labels < num_labels - 1)
    return _count(rows, left, num_rows) + _count(rows, right, num_rows)


def active_labels(target: Tensor, num_labels: int) -> tuple[int, Tensor, Tensor]:
    """How many rows there are, and row and label of every active label, sorted; the values are checked."""
    sparse = to_sparse(target, num_labels, dtype=torch.bool)
    rows, labels = sparse.indices()
    return sparse.shape[0], rows, labels


def active_runs(num_rows: int, rows: Tensor, labels: Tensor, num_labels: int) -> Runs:
    """The runs of what `active_labels` returns."""
    joined, wraps = _joined(rows, labels), _wraps(num_rows, rows, labels, num_labels)
    starts = ~joined & ~((labels == 0) & wraps[rows])
    ends = ~_next(joined) & ~((labels == num_labels - 1) & wraps[rows])
    rows, first, last = rows[starts], labels[starts], labels[ends]
    counts = torch.bincount(rows, minlength=num_rows)
    offset = counts.cumsum(0) - counts
    # Where a run passes label 0, the end that comes first belongs to the start that comes last.
    place = torch.arange(len(rows), device=rows.device) - offset[rows]
    partner = offset[rows] + (place + wraps[rows].long()) % counts[rows]
    return Runs(num_rows, rows, first, last[partner])


def _joined(rows: Tensor, labels: Tensor) -> Tensor:
    """Whether the label before is active too, not counting n - 1 before 0."""
    joined = torch.zeros_like(rows, dtype=torch.bool)
    joined[1:] = (rows[1:] == rows[:-1]) & (labels[1:] == labels[:-1] + 1)
    return joined


def _next(joined: Tensor) -> Tensor:
    """Whether the label after is active too."""
    return torch.cat([joined[1:], joined.new_zeros(min(1, len(joined)))])


def _wraps(num_rows: int, rows: Tensor, labels: Tensor, num_labels: int) -> Tensor:
    """Whether a row has both label 0 and label n - 1."""
    return (_count(rows, labels == 0, num_rows) > 0) & (_count(rows, labels == num_labels - 1, num_rows) > 0)


def _count(rows: Tensor, which: Tensor, num_rows: int) -> Tensor:
    return torch.bincount(rows[which], minlength=num_rows)


_BLOCK = 1 << 18
"""Entries of the table rows x labels that are held at a time."""


class DFTWitness(NamedTuple):
    """Features whose logits have the signs of a label set, and how far those are from changing.

    ``features``, ``(rows, 2k + 1)`` float64, have 1 as their largest magnitude. ``log10_radius``, ``(rows,)`` float64,
    is the decimal logarithm of ``min_i |z_i| / ||w_i||`` for them in exact arithmetic: the radius of a ball of features
    that all have these signs. For features in a box of half width c, add ``log10(c)``.
    """

    features: Tensor
    log10_radius: Tensor


def dft_witness(target: Tensor, num_labels: int, k: int, *, row_norms: Tensor | None = None) -> DFTWitness:
    r"""Coefficients, in the columns of :func:`dft_matrix`, of a polynomial that is positive on the set only.

    .. math:: p(t) = \pm \prod_\rho 2 \sin \frac{t - \rho}{2}

    with two roots :math:`\rho` for each run of neighbouring labels on the circle: in the middle of the gaps at its
    ends, or :math:`h / \sqrt2` to both sides of a label without neighbours, :math:`h = 2 \pi / n`. The empty set has
    the constant -1, the full one +1.

    The product is evaluated in logarithms, so ``log10_radius`` is right where the values underflow. The coefficients
    are rounded to float64: where the smallest value of p is some 1e-15 of the largest, as for many labels close
    together, *they no longer have the signs of the set*. The radius warns of that, and looking at the signs decides.

    Args:
        target: label sets, one per row, in any form of :mod:`shortlist.targets` without unknown labels.
        num_labels: n.
        k: the largest frequency, a whole number with ``2k + 1 <= n``.
        row_norms: ``(n,)``, the norms ``||w_i||`` to measure the radius by, if there are columns beside those of the
            DFT; by default ``sqrt((2k + 1) / n)`` for all.

    Returns:
        :class:`DFTWitness`, on the device of ``target``.

    Raises:
        ValueError: for a row with more than ``2k`` cyclic sign changes; no features exist for it.

    Example:
        >>> witness = dft_witness(torch.tensor([[0, 2]]), 6, 2)
        >>> dft_logits(witness.features, 6).sign()
        tensor([[ 1., -1.,  1., -1., -1., -1.]], dtype=torch.float64)

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse Multi-Label Classification",
        2024, theorem 4.
    """
    check_degree(num_labels, k)
    log_norms = _log_norms(row_norms, num_labels, k)
    num_rows, *places = active_labels(target, num_labels)
    rows, labels = (place.cpu() for place in places)
    runs = active_runs(num_rows, rows, labels, num_labels)
    counts = runs.counts().numpy()
    _refuse_changes(counts, k)
    features, radius = np.empty((num_rows, 2 * k + 1)), np.empty(num_rows)
    polynomials = _Polynomials(runs, num_labels)
    size = max(1, _BLOCK // num_labels)
    for start in range(0, num_rows, size):
        block = slice(start, min(start + size, num_rows))
        logs = polynomials.log_values(block)
        logs -= logs.max(-1, keepdims=True)
        values = -np.exp(logs)
        first, end = np.searchsorted(rows.numpy(), [block.start, block.stop])
        values[rows[first:end].numpy() - start, labels[first:end].numpy()] *= -1
        found = analysis(torch.from_numpy(values), 2 * k + 1).numpy()
        # A polynomial has no frequency above half the number of its roots: what is there is rounding.
        found[np.arange(2 * k + 1) > 2 * counts[block, None]] = 0
        largest = np.abs(found).max(-1, keepdims=True)
        features[block] = found / largest
        radius[block] = (logs - log_norms).min(-1) - np.log(largest[:, 0])
    radius /= math.log(10)
    return DFTWitness(torch.from_numpy(features).to(target.device), torch.from_numpy(radius).to(target.device))


class _Polynomials:
    """``log |p|`` at all labels, as sums of windows into two tables: shifting a root shifts its factor."""

    def __init__(self, runs: Runs, num_labels: int) -> None:
        self.runs, self.n = runs, num_labels
        self.first = np.concatenate([[0], np.cumsum(runs.counts().numpy())])
        self.left, self.right = (-runs.first % num_labels).tolist(), ((-1 - runs.last) % num_labels).tolist()
        self.alone = (runs.first == runs.last).tolist()
        places = np.arange(num_labels)
        # Folded to the near side of the circle, where the sine keeps all digits of a small angle.
        near = np.minimum(places, num_labels - places)
        offset = math.sqrt(0.5)
        pair = self._log_factor(near - offset) + self._log_factor(near + offset)
        root = self._log_factor(np.minimum(places, num_labels - 1 - places) + 0.5)
        self.pair, self.root = np.tile(pair, 2), np.tile(root, 2)

    def _log_factor(self, steps: np.ndarray) -> np.ndarray:
        """``log |2 sin(t / 2)|`` where t is so many steps from one label to the next."""
        return np.log(2 * np.abs(np.sin(steps * (np.pi / self.n))))

    def log_values(self, block: slice) -> np.ndarray:
        """``(rows, n)``, for the rows of a block."""
        n, logs = self.n, np.zeros((block.stop - block.start, self.n))
        for row, values in enumerate(logs, block.start):
            for run in range(self.first[row], self.first[row + 1]):
                left, right = self.left[run], self.right[run]
                if self.alone[run]:
                    values += self.pair[left : left + n]
                else:
                    values += self.root[left : left + n]
                    values += self.root[right : right + n]
        return logs


def _log_norms(row_norms: Tensor | None, n: int, k: int) -> np.ndarray | float:
    if row_norms is None:
        return 0.5 * math.log((2 * k + 1) / n)
    if row_norms.shape != (n,):
        raise ValueError(f"`row_norms` must have shape ({n},); got {tuple(row_norms.shape)}.")
    return row_norms.detach().double().log().cpu().numpy()


def _refuse_changes(counts: np.ndarray, k: int) -> None:
    too_many = np.flatnonzero(counts > k)
    if len(too_many):
        row = int(too_many[0])
        raise ValueError(
            f"`target` row {row}: must have at most 2k = {2 * k} cyclic sign changes; got {2 * int(counts[row])}."
        )
